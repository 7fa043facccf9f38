"""The runs in a folder and the state of each: complete, interrupted, running, or broken with the reason."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ipate.errors import InputError, IpateError
from ipate.release.results import Record
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import known_heads, ledger_path, read_record, reading, student_folder
from ipate.runs.task import engine_of

State: TypeAlias = Literal["complete", "interrupted", "running", "broken"]
STAGES = ("data", "allocation", "teachers", "labels", "student", "scores", "comparison", "report")


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The state of a run; an interrupted one is continued by `ipate run --resume`."""

    path: Path
    state: State
    why: str = ""  # the error of a broken run, and what to do
    begun: str = ""
    data: str = ""
    variant: str = ""
    engine: str = ""  # auto before the settings are resolved
    done: tuple[str, ...] = ()  # the completed stages, of `STAGES`
    teachers: tuple[int, int] | None = None  # how many have voted, of how many; None before the first
    labels: int | None = None
    labels_private: bool = True  # whether only the data owner may see `labels`
    guarantee: str = ""
    ledger: str = ""


def list_runs(below: str | Path) -> tuple[RunState, ...]:
    """Return the state of every run in a folder or one level below it, the oldest first."""
    top = Path(below)
    if not top.is_dir():
        raise InputError(f"{top}: no such folder; name the folder of the runs")
    places = [top, *sorted(path for path in top.iterdir() if path.is_dir())]
    runs = [path for path in places if (path / "config.json").is_file() or (path / "run.json").is_file()]
    return tuple(sorted(map(state_of, runs), key=lambda run: (run.begun, str(run.path))))


def state_of(path: Path) -> RunState:
    """Return the state of one run; its ledger is verified against every head that the run recorded."""
    try:
        folder = RunFolder.open(path)
        record = read_record(folder)
        engine = engine_of(folder) if folder.begun else None
        trained = () if engine is None else engine.trained(folder.private).tolist()
        teachers = (sum(trained), len(trained)) if trained else None
        done = _done(folder, record, voted=bool(trained) and all(trained), trains=engine is not None and engine.trains)
        if known_heads(folder):  # otherwise nothing has been charged yet
            with reading(folder):
                pass  # opening it raises if the ledger is missing, does not verify, or was rolled back
        variant, named = folder.config.labelling.variant, str(folder.config.labelling.voting)
        if engine is not None:
            variant, named = folder.settings.variant, folder.settings.engine
    except (IpateError, OSError, ValueError) as error:
        return RunState(path=path, state="broken", why=" ".join(str(error).split()))
    config = folder.config
    needed = set(STAGES) - (set() if config.compare else {"comparison"})
    needed -= set() if engine is None or engine.trains else {"teachers"}
    state: State = "complete" if needed <= set(done) else "interrupted"
    return RunState(
        path=path,
        state="running" if folder.busy else state,
        done=done,
        teachers=teachers,
        labels=None if record is None else record.n_labels,
        labels_private=record is None or not record.publishable,
        begun=str(folder.facts.get("begun", "")),
        data=config.data.file.name if config.data.file is not None else str(config.data.name),
        variant=variant,
        engine=named,
        guarantee="" if record is None else record.kind,
        ledger=str(ledger_path(folder)),
    )


def _done(folder: RunFolder, record: Record | None, *, voted: bool, trains: bool) -> tuple[str, ...]:
    """Return the stages whose file exists: files are written atomically, so an existing one is complete."""
    shown = folder.private if record is None or not record.publishable else folder.public
    there = {
        "data": (folder.path / "data.json").is_file(),
        "allocation": (folder.private / "allocation.npz").is_file(),
        "teachers": voted
        or (trains and record is not None),  # after the release, votes that are erased are not cast again
        "labels": record is not None and (shown / "labels.csv").is_file(),
        "student": record is not None and (student_folder(folder, record) / "student.json").is_file(),
        "scores": (folder.private / "metrics.json").is_file(),
        "comparison": (folder.private / "compare.json").is_file(),
        "report": any((part / "report.html").is_file() for part in (folder.public, folder.private)),
    }
    return tuple(stage for stage in STAGES if there[stage])
