"""The runs below a folder and how far each has come: done, interrupted, running, or broken and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from ipate.errors import InputError, IpateError
from ipate.labelling.results import Record
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import known_heads, ledger_path, reading
from ipate.runs.record import read_record

State: TypeAlias = Literal["complete", "interrupted", "running", "broken"]
STAGES = ("data", "allocation", "teachers", "labels", "student", "scores", "comparison", "report")


@dataclass(frozen=True, kw_only=True)
class RunState:
    """How far a run has come.

    Attributes
    ----------
    path : path
        Its folder.
    state : {"complete", "interrupted", "running", "broken"}
        running: a process works on it now; interrupted: `ipate run --resume` continues it.
    why : str
        What is wrong with a broken run, and what to do; empty otherwise.
    done : tuple of str
        The stages that are done, of `STAGES`.
    teachers : (int, int) or None
        How many teachers have voted, of how many; None before the first.
    labels : int or None
        How many labels there are.
    private : bool
        Whether that number is for the data owner alone: unless the guarantee is releasable and the noise secret.
    begun, data, variant, guarantee : str
        When it began, on which data, how, and what may be said of its costs.
    ledger : str
        The file that it is charged to.
    """

    path: Path
    state: State
    why: str = ""
    done: tuple[str, ...] = ()
    teachers: tuple[int, int] | None = None
    labels: int | None = None
    private: bool = True
    begun: str = ""
    data: str = ""
    variant: str = ""
    guarantee: str = ""
    ledger: str = ""


def list_runs(below: str | Path) -> tuple[RunState, ...]:
    """Return the state of every run in a folder or one level below it, the oldest first."""
    top = Path(below)
    if not top.is_dir():
        raise InputError(f"{top}: no such folder; name the folder that holds the runs")
    places = [top, *sorted(path for path in top.iterdir() if path.is_dir())]
    found = [state_of(path) for path in places if _is_run(path)]
    return tuple(sorted(found, key=lambda run: (run.begun, str(run.path))))


def _is_run(path: Path) -> bool:
    """Whether a folder holds a run, or what is left of one: a folder without its config.json is a broken run."""
    return any((path / name).is_file() for name in ("config.json", "run.json"))


def state_of(path: Path) -> RunState:
    """Return how far one run has come; its ledger is verified and compared with every head that the run wrote."""
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
    """The stages whose file is there: each is written aside and renamed, so a file that is there is whole."""
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
    """Raise if the ledger is gone, does not verify, or is older than what this run has seen of it."""
    if known_heads(folder):  # else it has not been charged yet
        with reading(folder):
            pass
