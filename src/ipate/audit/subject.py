"""What is audited: a run's settings, what it promised to each group, and the people of the copy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ipate.allocation import allocate
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.people.budgets import Budget, Group
from ipate.people.people import People
from ipate.planning.settings import Settings
from ipate.runs.config import RunConfig
from ipate.runs.folder import RunFolder
from ipate.runs.sections import TeacherConfig

STORED = "the run's own people, with made-up rows"
MADE_UP = "made-up people"
_FEW = 1  # people of a group whose number is not shown


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A run as the audit knows it: no private row, no label of one and no vote is among it.

    `promised` has the strictest budget that consent, policy and record state for each group of `people`. `allocation`
    says who learns from whom in the copy; it is None for ballots.
    """

    run: str
    config: RunConfig
    settings: Settings
    n_classes: int
    n_queries: int
    partitions: int | None
    guarantee: str
    people: People
    promised: Mapping[str, Budget]
    allocation: Allocation | None
    source: str
    private: bool

    @property
    def copied(self) -> RunConfig:
        """The configuration of the copy: the run's, without its data, its ledger and its seed."""
        stated = self.config.model_dump()
        plain = {name: stated[name] for name in ("budgets", "labelling", "student", "split_seed", "code")}
        made = RunConfig.from_mapping({**plain, "data": {"name": "synthetic"}})
        roll = TeacherConfig(model="ipate.audit.canaries:Roll", backend="sequential", n_jobs=1)
        return made.model_copy(update={"teachers": roll})


def read_subject(path: Path, *, on_real_people: bool = False) -> Subject:
    """Read a finished run; refuse one that promises nothing that can be attacked.

    The allocation of real people is read only if that is asked for: by default made-up people of the same groups are
    allocated anew.
    """
    folder = RunFolder.open(path)
    facts, stated = folder.read(folder.path / "data.json"), _stated(folder)
    if facts is None or stated is None:
        raise InputError(f"{path}: the run has released no labels yet; continue it with ipate run --resume {path}")
    settings = folder.settings
    meter = settings.meter
    if meter.whole or not meter.data_independent:
        why = "ptr charges a release as a whole" if meter.whole else "its costs are no guarantee"
        attacks = "benchmarks/ptr_attacks.py attacks its test" if meter.whole else "use gdp, loose or sup"
        raise InputError(f"{path}: bound is {meter.bound!r}, which ipate audit does not cover: {why}; {attacks}")
    real = folder.config.data.file is not None and not folder.config.benchmark
    if on_real_people and settings.ballots:
        raise InputError("--on-real-people is for teachers: ballots are audited on made-up people, leave it out")
    use_stored = not settings.ballots and (on_real_people or not real)
    if use_stored:
        kept = Allocation.load(folder.private / "allocation.npz")
        people = _two_rows_each(kept.people)
        allocation: Allocation | None = replace(kept, people=people, withdrawn=())
    else:
        people = _made_up(stated["groups"])
        allocation = None
        if not settings.ballots:
            allocation = allocate(
                settings.variant, people=people, n_teachers=settings.n_teachers, seed=folder.config.split_seed,
                **settings.options,
            )  # fmt: skip
    ballots = stated.get("ballots")
    return Subject(
        run=folder.id, config=folder.config, settings=settings, n_classes=len(facts["classes"]),
        n_queries=int(stated["n_queries"]), partitions=None if ballots is None else int(ballots["partitions"]),
        guarantee=str(stated["kind"]), people=people, allocation=allocation,
        promised=_promises(people, folder.config, stated["groups"]), source=STORED if use_stored else MADE_UP,
        private=real and (use_stored or stated["kind"] != "releasable"),  # the number of queries is private then
    )  # fmt: skip


def _stated(folder: RunFolder) -> dict[str, Any] | None:
    """Return what the run states about its costs."""
    for shown in (folder.public, folder.private):
        if (found := folder.read(shown / "guarantee.json")) is not None:
            return found
    return None


def _promises(people: People, config: RunConfig, stated: list[dict[str, Any]]) -> dict[str, Budget]:
    """Return the strictest budget that people, policy and the run's own record state for every group."""
    recorded = {entry["group"]: Budget(entry["budget"], entry["delta"]) for entry in stated}
    policy = config.budgets.policy or {}
    found = {}
    for group in people.groups:
        told = [group.budget, *([recorded[group.id]] if group.id in recorded else [])]
        epsilon = min([budget.epsilon for budget in told] + [policy.get(group.id, np.inf)])
        found[group.id] = Budget(epsilon, min(budget.delta for budget in told))
    return found


def _two_rows_each(people: People) -> People:
    """Return the same people with two rows each, one of either made-up class, so that every teacher has to learn."""
    return replace(people, person_of_row=np.repeat(np.arange(people.n_people), 2))


def _made_up(stated: list[dict[str, Any]]) -> People:
    """Return as many made-up people as the run states for each group, with the same budgets."""
    sizes = [entry["people"] if isinstance(entry["people"], int) else _FEW for entry in stated]
    groups = tuple(
        Group(id=entry["group"], budget=Budget(entry["budget"], entry["delta"]), people=size)
        for entry, size in zip(stated, sizes, strict=True)
    )
    group = np.repeat(np.arange(len(groups)), sizes)
    made = People(
        groups=groups, ids=np.array([f"canary {index}" for index in range(len(group))]), group_of_person=group,
        person_of_row=np.arange(len(group)),
    )  # fmt: skip
    return _two_rows_each(made)
