"""What one person was promised and what was spent, as values: the gate that keeps private figures in is here.

A cost that was computed from votes depends on other people's data: it is private, and so is the number of labels
where costs could end a run. Unless the data owner asks for them, neither is in a statement at all.
"""

from dataclasses import dataclass, replace

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.ledger.records import PersonRecord
from ipate.runs.folder import RunFolder
from ipate.runs.person import balance_of, find_person, kind_of
from ipate.runs.withdrawal import withdrawals


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """What one run on the ledger promised a person and spent; figures are None where they are private."""

    run: str
    opened: str
    group: str
    budget: float
    delta: float
    bound: str
    labels: int | None
    checks: int | None
    epsilon: float | None


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What may be told about one person of a run.

    Attributes
    ----------
    person, run : str
        The person's id and the run's name.
    asked, group : str
        The group of their own consent, and the one that they count with: the same or a stricter one.
    levels : bool
        Whether groups are consent levels, rather than numbers that people chose.
    budget, delta : float
        What they are promised at most, in this run.
    guaranteed : bool
        Whether the run gives a guarantee: costs that hold for all votes, and noise that nobody can draw again.
    seeded : bool
        The noise can be drawn again by whoever knows the seed.
    labels, checks : int or None
        What this run released that their data could have changed; None where that is private.
    allowed : float
        The latest budget on the ledger; consent may have changed since this run.
    spent, left : float or None
        ε over all runs on the ledger, and what is left of the latest budget; None where they are private.
    private : bool
        Whether there are figures in here that must not leave the data owner's hands.
    entries : tuple of RunEntry
        Every run on the ledger that the person took part in.
    withdrawn : str or None
        When they withdrew.
    """

    person: str
    run: str
    asked: str
    group: str
    levels: bool
    budget: float
    delta: float
    guaranteed: bool
    seeded: bool
    private: bool
    withdrawn: str | None
    allowed: float
    labels: int | None
    checks: int | None
    spent: float | None
    left: float | None
    entries: tuple[RunEntry, ...]


def state(folder: RunFolder, person: str, *, private: bool = False) -> Statement:
    """Return what may be said to a person, or with `private` what the data owner may see about them.

    Raises
    ------
    InputError
        Where nobody in the run has this id, or the run has not dealt people to teachers yet.
    """
    path = folder.private / "allocation.npz"
    if not path.is_file():
        raise InputError(
            f"{folder.path}: nobody has a teacher in this run yet; begin it: ipate run --resume {folder.path}"
        )
    allocation = Allocation.load(path)
    index = find_person(allocation, person)
    known = str(allocation.people.ids[index])
    config = folder.config
    home = allocation.groups[int(allocation.group_of_person[index])]
    balance = balance_of(folder, known)
    guaranteed = "private" not in (kind_of(folder), "releasable" if balance is None else balance.kind)
    left = next((entry for entry in withdrawals(folder) if entry.person == known), None)
    full = Statement(
        person=known,
        run=folder.path.absolute().name,
        asked=allocation.people.group_of(known).id,
        group=home.id,
        levels=config.budgets.epsilon is None and config.data.epsilon is None,
        budget=home.epsilon,
        delta=home.delta,
        guaranteed=guaranteed,
        seeded=config.seed is not None,
        private=not guaranteed,
        withdrawn=None if left is None else left.when,
        allowed=home.epsilon if balance is None else balance.budget,
        labels=0 if balance is None else balance.labels,
        checks=0 if balance is None else balance.checks,
        spent=0.0 if balance is None else balance.epsilon,
        left=home.epsilon if balance is None else max(0.0, balance.budget - balance.epsilon),
        entries=() if balance is None else tuple(_entry(record) for record in balance.records),
    )
    return full if private else for_the_person(full)


def for_the_person(statement: Statement) -> Statement:
    """Return a statement without any figure that is private: what may be handed to the person."""
    if statement.guaranteed:
        return statement
    silent = tuple(replace(entry, labels=None, checks=None, epsilon=None) for entry in statement.entries)
    return replace(statement, private=False, labels=None, checks=None, spent=None, left=None, entries=silent)


def _entry(record: PersonRecord) -> RunEntry:
    return RunEntry(
        run=record.run,
        opened=record.time,
        group=record.group,
        budget=record.budget,
        delta=record.delta,
        bound=record.bound,
        labels=record.labels,
        checks=record.checks,
        epsilon=record.epsilon,
    )
