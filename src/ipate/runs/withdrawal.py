"""Somebody withdraws from a run: their place stays empty, their teachers learn again, what was released stays owed.

Nobody else moves to another teacher, or one person would change many votes. The allocation decides: it is replaced
in one step, and from then on votes of a teacher that learnt from the person do not fit and are erased. What was
released before cannot be called back; `withdrawals.json` keeps what it was and what it cost.
"""

import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError, show
from ipate.report.statement import Withdrawal
from ipate.runs.folder import RunFolder
from ipate.runs.person import balance_of, find_person, kind_of
from ipate.runs.record import read_record
from ipate.votes.store import erase_votes, voted_in

EMPTY = -1


def withdrawals(folder: RunFolder) -> tuple[Withdrawal, ...]:
    """Return who withdrew from a run, in that order."""
    path = folder.private / "withdrawals.json"
    try:
        found = (folder.read(path) or {}).get("withdrawals", [])
        return tuple(Withdrawal(**{**entry, "teachers": tuple(entry["teachers"])}) for entry in found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: not readable ({error}); restore it, for it says what people who withdrew are owed"
        ) from None


def withdraw(folder: RunFolder, allocation: Allocation, person: str) -> Withdrawal:
    """Take a person out of a run, for good; the caller holds the folder's lock.

    The record is written first and the allocation second. Interrupted in between, the withdrawal is finished by
    whoever opens the run next (`settle`), before anything is trained or released.

    Raises
    ------
    InputError
        Where nobody has this id, or the person has withdrawn already.
    """
    index = find_person(allocation, person)
    known = withdrawals(folder)
    earlier = [entry for entry in known if entry.person == str(allocation.people.ids[index])]
    if index in allocation.withdrawn:
        when = f" on {earlier[0].when}" if earlier else ""
        raise InputError(f"person {show(person)} has withdrawn already{when}: nothing was changed")
    entry = earlier[0] if earlier else _made(folder, allocation, index)
    if not earlier:
        folder.write(folder.private / "withdrawals.json", {"withdrawals": [asdict(entry) for entry in (*known, entry)]})
    settle(folder, allocation)
    _erase(folder, entry.teachers)
    return entry


def settle(folder: RunFolder, allocation: Allocation) -> Allocation:
    """Apply the withdrawals that are recorded and not yet in the allocation, and keep it."""
    ids = [entry.person for entry in withdrawals(folder)]
    pending = [index for index in map(allocation.people.index_of, ids) if index not in allocation.withdrawn]
    if not pending:
        return allocation
    left = without(allocation, (*allocation.withdrawn, *pending))
    left.save(folder.private / "allocation.npz")
    return left


def without(allocation: Allocation, people: tuple[int, ...]) -> Allocation:
    """Return an allocation as it was dealt, with the places of these people empty; nobody else moves."""
    persons = np.where(np.isin(allocation.persons, people), EMPTY, allocation.persons)
    return replace(allocation, persons=persons, withdrawn=people)


def vacant(allocation: Allocation) -> frozenset[int]:
    """Return the teachers that somebody has left."""
    teacher = np.repeat(np.arange(allocation.n_teachers), allocation.teacher_sizes)
    return frozenset(teacher[allocation.persons == EMPTY].tolist())


def _made(folder: RunFolder, allocation: Allocation, index: int) -> Withdrawal:
    person = str(allocation.people.ids[index])
    group = allocation.groups[int(allocation.group_of_person[index])]
    teachers = allocation.teachers_of(index)
    balance, kind = balance_of(folder, person), kind_of(folder)
    tested = folder.settings.meter.whole and balance is not None and balance.epsilon > 0
    released = tested or (balance is not None and balance.labels + balance.checks > 0)
    voted = voted_in(folder.private / "votes")
    return Withdrawal(
        person=person,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        group=group.id,
        teachers=teachers,
        trained=bool(voted.size and voted[list(teachers)].any()),
        labelling="complete" if read_record(folder) is not None else "begun" if released else "not begun",
        labels=0 if balance is None else balance.labels,
        checks=0 if balance is None else balance.checks,
        bound=folder.settings.meter.bound,
        kind=kind if balance is None or kind == "private" else balance.kind,
        epsilon=0.0 if balance is None else balance.epsilon,
        delta=group.delta,
    )


def _erase(folder: RunFolder, teachers: tuple[int, ...]) -> None:
    """Erase the votes that the person had a part in; those of a comparison are made afresh if they are wanted."""
    erase_votes(folder.private / "votes", teachers)
    shutil.rmtree(folder.private / "votes-standard", ignore_errors=True)
