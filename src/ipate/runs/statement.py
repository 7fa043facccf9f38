"""What one person was promised and what was spent, as values: the gate that keeps private figures in is here.

A cost that was computed from votes depends on other people's data: it is private, and so is the number of labels
where costs could end a run. Unless the data owner asks for them, neither is in a statement at all.
"""

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.ledger.records import PersonRecord
from ipate.report.statement import RunEntry, Statement, for_the_person
from ipate.runs.folder import RunFolder
from ipate.runs.person import balance_of, find_person, kind_of
from ipate.runs.withdrawal import withdrawals


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
