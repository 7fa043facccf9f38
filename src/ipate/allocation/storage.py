"""Allocations on disk: one npz without pickle, arrays as they are and the rest as JSON text."""

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.allocation.layout import Layout, Merge
from ipate.allocation.participation import Participation
from ipate.errors import InputError
from ipate.files import replacing
from ipate.people.budgets import Account, Budget, Group
from ipate.people.people import People

_FORMAT = "ipate allocation 2"
_AS_THEY_ARE = ("variant", "rule", "teachers", "home", "copies", "scale")  # fields of a layout that JSON can hold


def save(allocation: Allocation, path: str | Path) -> None:
    """Write the allocation aside in the same folder, to disk, then rename it into place."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **_arrays(allocation))


def load(path: str | Path) -> Allocation:
    """Read what `save` wrote, and check it as a new allocation is checked."""
    try:
        with np.load(Path(path), allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile) or "meta" not in archive:
                raise InputError(f"{path} is no allocation: it must be an npz file that ipate has saved")
            meta = json.loads(str(archive["meta"]))
            if meta.get("format") != _FORMAT:
                raise InputError(f"{path} has the format {meta.get('format')!r}: it must be {_FORMAT!r}")
            return _allocation(meta, {name: archive[name] for name in archive.files if name != "meta"})
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; an allocation is an npz file that ipate has saved") from None
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no readable allocation ({' '.join(str(error).split())})") from None


def _arrays(allocation: Allocation) -> dict[str, Any]:
    layout, people, schedule = allocation.layout, allocation.people, allocation.participation
    meta = {
        "format": _FORMAT,
        "seed": allocation.seed,
        "withdrawn": allocation.withdrawn,
        "layout": {
            **{name: getattr(layout, name) for name in _AS_THEY_ARE},
            "groups": [asdict(account) for account in layout.groups],
            "participation": None if schedule is None else {"seed": schedule.seed, "fractions": schedule.fractions},
            "merged": [asdict(merge) for merge in layout.merged],
            "notes": layout.notes,
        },
        "people": {"n": people.n_people, "groups": [asdict(group) for group in people.groups], "notes": people.notes},
    }
    arrays: dict[str, NDArray[Any]] = {
        "meta": np.array(json.dumps(meta, allow_nan=False, default=dict)),
        "offsets": allocation.offsets,
        "persons": _narrow(allocation.persons),
        "weights": layout.weights,
        "group_of_person": _narrow(people.group_of_person),
    }
    if layout.teacher_groups is not None:
        position = {group.id: place for place, group in enumerate(layout.groups)}
        arrays["teacher_groups"] = np.array([position[name] for name in layout.teacher_groups])
    if not np.array_equal(people.ids, _numbers(people.n_people)):
        arrays["ids"] = people.ids
    if not np.array_equal(people.person_of_row, np.arange(people.n_people)):
        arrays["person_of_row"] = _narrow(people.person_of_row)
    return arrays


def _allocation(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Allocation:
    kept, n_people = meta["layout"], meta["people"]["n"]
    groups = tuple(
        Account(group=_group(account["group"]), sensitivity=account["sensitivity"]) for account in kept["groups"]
    )
    teacher_groups = None
    if "teacher_groups" in arrays:
        teacher_groups = tuple(groups[place].id for place in arrays["teacher_groups"].tolist())
    schedule = None
    if kept["participation"] is not None and teacher_groups is not None:
        schedule = Participation(**kept["participation"], teacher_groups=teacher_groups)
    layout = Layout(
        **{name: kept[name] for name in _AS_THEY_ARE},
        groups=groups,
        weights=arrays["weights"],
        teacher_groups=teacher_groups,
        participation=schedule,
        merged=tuple(Merge(**merge) for merge in kept["merged"]),
        notes=tuple(kept["notes"]),
    )
    people = People(
        groups=tuple(map(_group, meta["people"]["groups"])),
        ids=arrays["ids"] if "ids" in arrays else _numbers(n_people),
        group_of_person=arrays["group_of_person"].astype(np.int64),
        person_of_row=arrays.get("person_of_row", np.arange(n_people)).astype(np.int64),
        notes=tuple(meta["people"]["notes"]),
    )
    return Allocation(
        layout=layout,
        people=people,
        seed=meta["seed"],
        offsets=arrays["offsets"],
        persons=arrays["persons"].astype(np.int64),
        withdrawn=tuple(meta["withdrawn"]),
    )


def _group(kept: dict[str, Any]) -> Group:
    return Group(id=kept["id"], budget=Budget(**kept["budget"]), people=kept["people"])


def _numbers(n: int) -> NDArray[np.str_]:
    """The ids of people who are known by their row numbers alone: not worth storing."""
    return np.arange(n).astype(np.str_)


def _narrow(array: NDArray[np.int64]) -> NDArray[Any]:
    small = array.size == 0 or max(-int(array.min()), int(array.max())) < 2**31
    return array.astype(np.int32) if small else array
