"""The withdrawal of one person from a run.

A withdrawal leaves the person's place empty. Nobody else moves to another teacher, because then one person would
change many votes. The allocation is replaced atomically; votes of teachers that learnt from the person no longer match
it and are erased. Earlier releases cannot be undone: `withdrawals.json` records them and their cost.
"""

import shutil
from dataclasses import asdict
from datetime import UTC, datetime

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError, show
from ipate.report.statement import Withdrawal
from ipate.runs.balances import Balances
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import read_record
from ipate.votes.store import erase_votes, voted_in


def find_person(allocation: Allocation, person: str) -> int:
    """Return a person's index; the error for an unknown id explains who has an account."""
    try:
        return allocation.people.index_of(person)
    except InputError as error:
        raise InputError(
            f"{error} among the {allocation.people.n_people:,} people with private data in this run; people whose "
            "rows are used as pool or test data have no account: ipate statement answers them, and to leave they must "
            "be removed from the data"
        ) from None


def withdrawals(folder: RunFolder) -> tuple[Withdrawal, ...]:
    """Return the withdrawals from a run, in order."""
    path, advice = folder.private / "withdrawals.json", "restore it, because it records the withdrawals and their costs"
    try:
        found = (folder.read(path, advice=advice) or {}).get("withdrawals", [])
        return tuple(Withdrawal(**{**entry, "teachers": tuple(entry["teachers"])}) for entry in found)
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: not readable ({error}); {advice}") from None


def planned_withdrawal(folder: RunFolder, allocation: Allocation, person: str) -> Withdrawal:
    """Return the withdrawal as it would be recorded now, or was if it was interrupted; nothing is changed."""
    index = find_person(allocation, person)
    earlier = [entry for entry in withdrawals(folder) if entry.person == str(allocation.people.ids[index])]
    if index in allocation.withdrawn:
        when = f" on {earlier[0].when}" if earlier else ""
        raise InputError(f"person {show(person)} has withdrawn already{when}: nothing was changed")
    return earlier[0] if earlier else _made(folder, allocation, index)


def withdraw(folder: RunFolder, allocation: Allocation, person: str) -> Withdrawal:
    """Remove a person from a run permanently; the caller must hold the folder's lock.

    The record is written before the allocation. If interrupted in between, the next process that opens the run
    completes the withdrawal (`settle`) before anything is trained or released.
    """
    entry, known = planned_withdrawal(folder, allocation, person), withdrawals(folder)
    if entry not in known:
        folder.write(folder.private / "withdrawals.json", {"withdrawals": [asdict(entry) for entry in (*known, entry)]})
    settle(folder, allocation)
    _erase(folder, entry.teachers)
    return entry


def settle(folder: RunFolder, allocation: Allocation) -> Allocation:
    """Apply recorded withdrawals that are not yet in the allocation, and save it."""
    ids = [entry.person for entry in withdrawals(folder)]
    pending = [index for index in map(allocation.people.index_of, ids) if index not in allocation.withdrawn]
    if not pending:
        return allocation
    left = allocation.without((*allocation.withdrawn, *pending))
    left.save(folder.private / "allocation.npz")
    return left


def _made(folder: RunFolder, allocation: Allocation, index: int) -> Withdrawal:
    person = str(allocation.people.ids[index])
    group = allocation.groups[int(allocation.group_of_person[index])]
    teachers = allocation.teachers_of(index)
    with Balances(folder) as balances:
        balance = balances.of(person, group)
    tested = folder.settings.meter.whole and balance.epsilon > 0
    released = tested or balance.labels + balance.checks + balance.ballots > 0
    voted = voted_in(folder.private / "votes")
    return Withdrawal(
        person=person,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        group=group.id,
        teachers=teachers,
        trained=bool(voted.size and voted[list(teachers)].any()),
        labelling="complete" if read_record(folder) is not None else "begun" if released else "not begun",
        labels=balance.labels,
        checks=balance.checks,
        ballots=balance.ballots,
        bound=folder.settings.meter.bound,
        kind=balance.kind,
        epsilon=balance.epsilon,
        delta=group.delta,
    )


def _erase(folder: RunFolder, teachers: tuple[int, ...]) -> None:
    """Erase the votes of these teachers, and all votes of a comparison, which is repeated if requested."""
    erase_votes(folder.private / "votes", teachers)
    for compared in folder.private.glob("votes-*"):
        shutil.rmtree(compared, ignore_errors=True)
