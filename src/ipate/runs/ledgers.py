"""The ledger of a run, with rollback detection, and the record of what it charged and released."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.config import RunConfig
from ipate.engines.context import Book
from ipate.errors import InputError
from ipate.ledger.admission import Roster
from ipate.ledger.base import Checked, Ledger, Opening
from ipate.ledger.finding import LEDGER, Choice, choose_ledger
from ipate.ledger.records import Head, Reason, RunRow
from ipate.ledger.standing import Standing
from ipate.people.people import People
from ipate.release.results import Record
from ipate.runs.folder import RunFolder, refuse_public
from ipate.runs.task import FileTask, roster_of


def ledger_path(folder: RunFolder) -> Path:
    """Return the ledger that a run is charged to, from its record; before it is opened, the one that is named.

    The ledger of a file of people lies beside that file and is found by `choose`; a seeded run and a data set of this
    package have one of their own.
    """
    kept = folder.read(folder.private / "ledger.json")
    if kept is not None:
        return folder.path / str(kept["path"])  # a ledger of the run's own is found after the folder was moved
    path = folder.config.ledger
    if path is None:
        return folder.private / "ledger.sqlite"
    refuse_public(path, "a ledger is private and", near=folder.path)
    return path


def choose(folder: RunFolder, roster: Roster) -> Choice:
    """Return the ledger to charge: the recorded one, the run's own, or the one that knows these people."""
    path, config = ledger_path(folder), folder.config
    if _own(config) or (folder.private / "ledger.json").is_file():
        return Choice(path=path, announcement=f"charging {path}")
    apart = _apart(config)
    return choose_ledger(
        path if apart else config.ledger,
        beside=config.data.file,
        people=None if roster.rows else roster.everybody,
        run=folder.id,
        fresh=config.fresh_ledger or apart,
    )


def find_ledger(config: RunConfig, roster: Roster) -> Choice | None:
    """Return the ledger that a run would charge before it has a folder; None if it begins one of its own."""
    if (_own(config) and config.ledger is None) or _apart(config) or config.fresh_ledger:
        return None
    if _own(config):
        return Choice(path=Path(config.ledger or ""), announcement="")
    people = None if roster.rows else roster.everybody
    return choose_ledger(config.ledger, beside=config.data.file, people=people)


def _own(config: RunConfig) -> bool:
    """Whether no ledger of people is looked for: the noise is seeded, or the data set belongs to this package."""
    return config.seed is not None or config.data.file is None


def _apart(config: RunConfig) -> bool:
    """Whether the ledger is in the run's folder, and charges elsewhere are not counted."""
    return config.benchmark and config.ledger is None


def ledger_ahead(folder: RunFolder, allocation: Allocation, *, unprotected: Sequence[str] = ()) -> Path | None:
    """Return the ledger that a run is or will be charged to; None if it begins a new one when it is opened."""
    config = folder.config
    if config.fresh_ledger and config.ledger is None and not (folder.private / "ledger.json").is_file():
        return None
    return choose(folder, roster_of(folder.config, allocation, unprotected)).path


def heads_beside(folder: RunFolder, path: Path) -> tuple[Head, ...]:
    """Return the heads of a ledger that other runs in the same parent folder have recorded: rollback detection."""
    found: list[Head] = []
    for stated in folder.path.absolute().parent.glob("*/private/ledger.json"):
        kept = folder.read(stated) or {}
        other = RunFolder(stated.parents[1], folder.config)
        if (other.path / str(kept.get("path"))).absolute() == path.absolute():
            found += known_heads(other).values()
    return tuple(found)


def known_heads(folder: RunFolder) -> dict[str, Head]:
    """Return every head of the ledger that this run has recorded, by the file that holds it."""
    places = [folder.private / "ledger.json", folder.private / "labelling.json"]
    places += [shown / name for shown in (folder.public, folder.private) for name in ("guarantee.json", "report.json")]
    found = {}
    for path in places:
        found_in = folder.read(path) or {}
        parts = (found_in, *(found_in.get(block) or {} for block in ("publishable", "private")))
        stated = next((part["ledger_head"] for part in parts if part.get("ledger_head") is not None), None)
        if stated is not None:
            found[str(path.relative_to(folder.path))] = Head.parse(str(stated))
    return found


def newest_head(folder: RunFolder) -> Head | None:
    """Return the latest head that this run has recorded; None before its ledger was opened."""
    return max(known_heads(folder).values(), key=lambda head: head.entries, default=None)


def _part(folder: RunFolder, path: Path, roster: Roster) -> tuple[str, str | None]:
    """Return the name of the run on its ledger, and the name of the part that it continues, if any.

    After a withdrawal the run continues as a new run of the ledger: balances of the others carry over, answers are
    shared, and the person who withdrew is in no account any more. Whoever left before the run was opened is in none of
    its parts, and its name does not show that they left.
    """
    parts: list[RunRow] = []
    for row in LEDGER.runs_on(path) if roster.withdrawn else ():
        if row.name == folder.id or (parts and row.parent == parts[-1].name):
            parts.append(row)
    if not parts:
        return folder.id, None
    last, people = parts[-1], set((roster.people or {}).items())
    if people < set(last.members):
        return f"{folder.id} (part {len(parts) + 1})", last.name
    return last.name, last.parent


@contextmanager
def reading(folder: RunFolder) -> Iterator[Ledger]:
    """Open the ledger of a charged run read-only; refuse an older copy, another ledger, or a missing one."""
    name = (folder.read(folder.private / "ledger.json") or {}).get("run", folder.id)
    with LEDGER.read(ledger_path(folder), name, head=newest_head(folder)) as ledger:
        for head in known_heads(folder).values():
            ledger.check_head(head)
        yield ledger


class FolderBook(Book):
    """The ledger of a run with a folder: found by its people, opened with every head that the folder has seen."""

    def __init__(self, folder: RunFolder, task: FileTask) -> None:
        self.folder, self.task = folder, task

    def standing(self, people: People, meter: Meter) -> Standing | None:
        """Return what earlier runs left of the budgets of people in these groups."""
        return standing_of(self.task, people, meter)

    @property
    def begun(self) -> bool:
        """Whether the run was opened on its ledger; it then continues with what is left, also after a withdrawal."""
        return (self.folder.private / "ledger.json").is_file()

    def check(self, opening: Opening) -> Checked:
        """Choose the ledger, and refuse a run that it does not admit."""
        folder, chosen = self.folder, choose(self.folder, opening.roster)
        path = chosen.path
        if not path.parent.is_dir():
            raise InputError(f"ledger is {str(path)!r}: the folder {path.parent} does not exist; create it first")
        if path.is_dir():
            raise InputError(f"ledger is {str(path)!r}: it is a folder; name a file")
        found = LEDGER.check(path, replace(opening, run=folder.id), heads=heads_beside(folder, path))
        logging.getLogger("ipate").info(chosen.announcement)
        return found

    @contextmanager
    def begin(self, opening: Opening) -> Iterator[Ledger]:
        """Open the ledger to charge this run; balances carry over from earlier runs by person id."""
        folder, chosen = self.folder, choose(self.folder, opening.roster)
        path = chosen.path
        if self.begun:
            logging.getLogger("ipate").info(chosen.announcement)
        name, parent = _part(folder, path, opening.roster)
        reason: Reason | None = None if parent is None else "withdrawal"
        asked = replace(opening, run=name, parent=parent, reason=reason, replaces=chosen.replaces)
        with LEDGER.begin(path, asked, head=newest_head(folder)) as ledger:
            kept = folder.private / "ledger.json"
            if (folder.read(kept) or {}).get("run") != ledger.run:  # from now on an older or missing ledger is refused
                inside = path.is_relative_to(folder.path)
                stated = path.relative_to(folder.path) if inside else path
                folder.write(kept, {"path": str(stated), "run": ledger.run, "ledger_head": str(ledger.head)})
            yield ledger

    def read(self) -> AbstractContextManager[Ledger]:
        """Open the ledger of the charged run read-only."""
        return reading(self.folder)


def standing_of(task: FileTask, people: People, meter: Meter) -> Standing | None:
    """Return what earlier runs on the ledger that a run would charge left of its people's budgets.

    None if they have spent nothing, or if the run would begin a ledger of its own.
    """
    config = task.config
    roster = Roster(
        people=dict.fromkeys(people.ids.tolist(), ""),
        unprotected=task.unprotected,
        rows=config.data.file is None or config.data.person is None,
        overlap=config.data.allow_overlap,
    )
    found = find_ledger(config, roster)
    if found is None:
        return None
    return LEDGER.standing(found.path, people, roster, meter=meter, noise=config.noise)


def shown_folder(folder: RunFolder, record: Record) -> Path:
    """Return the folder of what was released: the public one if the record is publishable, else the private one."""
    return folder.public if record.publishable else folder.private


def student_folder(folder: RunFolder, record: Record) -> Path:
    """Return the folder of the deployed student."""
    return shown_folder(folder, record) / "student"


def read_record(folder: RunFolder) -> Record | None:
    """Return the record of an earlier labelling, or None; released labels are never drawn again."""
    found: dict[str, Any] | None = folder.read(folder.private / "labelling.json")
    if found is None:
        return None
    try:
        return Record.from_json(found)
    except (TypeError, KeyError) as error:
        raise InputError(
            f"{folder.private / 'labelling.json'}: it was edited, or written by another version of ipate ({error}); "
            "remove it, and --resume restores it from the ledger"
        ) from None
