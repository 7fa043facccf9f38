"""The runs in a folder and the state of each: complete, interrupted, running, or broken with the reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from ipate.errors import InputError, IpateError
from ipate.labelling.results import Record
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import known_heads, ledger_path, read_record, reading

State: TypeAlias = Literal["complete", "interrupted", "running", "broken"]
STAGES = ("data", "allocation", "teachers", "labels", "student", "scores", "comparison", "report")


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The state of a run; an interrupted one is continued by `ipate run --resume`."""

    path: Path
    state: State
    why: str = ""  # the error of a broken run, and what to do
    done: tuple[str, ...] = ()  # the completed stages, of `STAGES`
    teachers: tuple[int, int] | None = None  # how many have voted, of how many; None before the first
    labels: int | None = None
    private: bool = True  # whether only the data owner may see `labels`
    begun: str = ""
    data: str = ""
    variant: str = ""
    guarantee: str = ""
    ledger: str = ""


def list_runs(below: str | Path) -> tuple[RunState, ...]:
    """Return the state of every run in a folder or one level below it, the oldest first."""
    top = Path(below)
    if not top.is_dir():
        raise InputError(f"{top}: no such folder; name the folder of the runs")
    places = [top, *sorted(path for path in top.iterdir() if path.is_dir())]
    found = [state_of(path) for path in places if _is_run(path)]
    return tuple(sorted(found, key=lambda run: (run.begun, str(run.path))))


def _is_run(path: Path) -> bool:
    """Whether a folder holds a run, including a broken one without its config.json."""
    return any((path / name).is_file() for name in ("config.json", "run.json"))


def state_of(path: Path) -> RunState:
    """Return the state of one run; its ledger is verified against every head that the run recorded."""
    try:
        folder = RunFolder.open(path)
        begun = str(folder.facts.get("begun", ""))
        record = read_record(folder)
        done = _done(folder, record)
        _check_ledger(folder)
        variant = folder.settings.variant if folder.begun else folder.config.labelling.variant
    except (IpateError, OSError, ValueError) as error:
        return RunState(path=path, state="broken", why=" ".join(str(error).split()))
    config = folder.config
    needed = set(STAGES) - (set() if config.compare else {"comparison"})
    state: State = "complete" if needed <= set(done) else "interrupted"
    return RunState(
        path=path,
        state="running" if folder.busy else state,
        done=done,
        teachers=_teachers(folder),
        labels=None if record is None else record.n_labels,
        private=record is None or not record.publishable,
        begun=begun,
        data=config.data.file.name if config.data.file is not None else str(config.data.name),
        variant=variant,
        guarantee="" if record is None else record.headline.lower(),
        ledger=str(ledger_path(folder)),
    )


def _done(folder: RunFolder, record: Record | None) -> tuple[str, ...]:
    """Return the stages whose file exists: files are written atomically, so an existing one is complete."""
    shown = folder.private if record is None or not record.publishable else folder.public
    voted = _teachers(folder)
    there: Mapping[str, bool] = {
        "data": (folder.path / "data.json").is_file(),
        "allocation": (folder.private / "allocation.npz").is_file(),
        "teachers": voted is not None and voted[0] == voted[1],
        "labels": record is not None and (shown / "labels.csv").is_file(),
        "student": record is not None and (shown / "student.joblib").is_file(),
        "scores": (folder.private / "metrics.json").is_file(),
        "comparison": (folder.private / "compare.json").is_file(),
        "report": _any_file(part / "report.html" for part in (folder.public, folder.private)),
    }
    return tuple(stage for stage in STAGES if there[stage])


def _any_file(paths: Iterable[Path]) -> bool:
    return any(path.is_file() for path in paths)


def _teachers(folder: RunFolder) -> tuple[int, int] | None:
    votes = folder.private / "votes"
    if not (votes / "store.json").is_file():
        return None
    marks = np.load(votes / "done.npy", allow_pickle=False)
    return int(marks.sum()), len(marks)


def _check_ledger(folder: RunFolder) -> None:
    """Raise if the ledger is missing, does not verify, or was rolled back."""
    if known_heads(folder):  # otherwise nothing has been charged yet
        with reading(folder):
            pass
