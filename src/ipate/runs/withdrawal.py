"""The withdrawal of one person from a run and from its ledger.

A withdrawal leaves the person's place empty. Nobody else moves to another teacher, because then one person would
change many votes. The allocation is replaced atomically; votes of teachers that learnt from the person no longer match
it and are erased. Earlier releases cannot be undone: `withdrawals.json` records them and their cost. The withdrawal is
recorded on the run's ledger, so that the person's place is empty in every later run on it, and in every run that began
earlier and goes on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ipate.allocation.allocation import Allocation
from ipate.errors import InputError, show
from ipate.ledger.durable import Withdrawals
from ipate.ledger.finding import LEDGER
from ipate.report.statement import Withdrawal
from ipate.runs.balances import Balances
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_ahead, newest_head, read_record
from ipate.runs.task import engine_of


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
    """Return the withdrawals from a run, in order; whoever left before it began is not among them."""
    try:
        found = _kept(folder).get("withdrawals", [])
        return tuple(Withdrawal(**{**entry, "teachers": tuple(entry["teachers"])}) for entry in found)
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{folder.private / 'withdrawals.json'}: not readable ({error}); {_ADVICE}") from None


def left_before(folder: RunFolder) -> dict[str, str]:
    """Return the people of a run who had withdrawn from its ledger before it began, each with the time."""
    return {str(person): str(when) for person, when in _kept(folder).get("before", {}).items()}


_ADVICE = "restore it, because it records the withdrawals and their costs"


def _kept(folder: RunFolder) -> dict[str, Any]:
    return folder.read(folder.private / "withdrawals.json", advice=_ADVICE) or {}


def _keep(folder: RunFolder, entries: Iterable[Withdrawal], before: Mapping[str, str]) -> None:
    kept = {"withdrawals": [asdict(entry) for entry in entries], "before": dict(before)}
    folder.write(folder.private / "withdrawals.json", kept)


def planned_withdrawal(folder: RunFolder, allocation: Allocation, person: str) -> Withdrawal:
    """Return the withdrawal as it would be recorded now, or was if it was interrupted; nothing is changed."""
    index = find_person(allocation, person)
    earlier = [entry for entry in withdrawals(folder) if entry.person == str(allocation.people.ids[index])]
    if index in allocation.withdrawn:
        known = {**left_before(folder), **{entry.person: entry.when for entry in earlier}}
        when = f" on {known[str(allocation.people.ids[index])]}" if known else ""
        raise InputError(f"person {show(person)} has withdrawn already{when}: nothing was changed")
    return earlier[0] if earlier else _made(folder, allocation, index)


def withdraw(folder: RunFolder, allocation: Allocation, person: str) -> Withdrawal:
    """Remove a person from a run permanently, and from its ledger; the caller must hold the folder's lock.

    The ledger's record is written first, then the run's, then the allocation. If interrupted in between, the next
    process that opens the run completes the withdrawal (`settle`) before anything is trained or released.
    """
    entry, known = planned_withdrawal(folder, allocation, person), withdrawals(folder)
    path = ledger_ahead(folder, allocation)
    if path is not None:
        LEDGER.withdraw(path, [entry.person])
    if entry not in known:
        _keep(folder, (*known, entry), left_before(folder))
    settle(folder, allocation)
    _erase(folder, entry.teachers)
    return entry


def readmit(folder: RunFolder, allocation: Allocation, person: str) -> Path:
    """Record that a person who withdrew consented again: runs that begin from now on use their data."""
    known = str(allocation.people.ids[find_person(allocation, person)])
    path = ledger_ahead(folder, allocation)
    if path is None or known not in LEDGER.withdrawals(path, head=newest_head(folder)).withdrawn:
        raise InputError(f"person {show(person)} has not withdrawn from the ledger of this run: nothing was changed")
    LEDGER.withdraw(path, [known], returned=True)
    return path


def begin_without(folder: RunFolder, allocation: Allocation, *, unprotected: Sequence[str]) -> Allocation:
    """Return the allocation of a new run, saved, with empty places for the people who withdrew from its ledger."""
    gone = _on_ledger(folder, ledger_ahead(folder, allocation, unprotected=unprotected)).withdrawn
    ids = set(allocation.people.ids.tolist())
    before = {person: when for person, when in gone.items() if person in ids}
    if before:
        _keep(folder, (), before)
    left = allocation.without(tuple(map(allocation.people.index_of, before)))
    left.save(folder.private / "allocation.npz")
    return left


def settle(folder: RunFolder, allocation: Allocation) -> Allocation:
    """Apply withdrawals from the run or its ledger that are not yet in the allocation, and save it.

    A run that began before somebody withdrew goes on without them, also if they have consented again since.
    """
    path, entries = ledger_ahead(folder, allocation), withdrawals(folder)
    found = _on_ledger(folder, path)
    begun = datetime.fromisoformat(folder.facts["begun"])
    missing = [entry.person for entry in entries if not _since(found, entry.person, datetime.fromisoformat(entry.when))]
    if missing and path is not None:  # the run was restored from a copy
        LEDGER.withdraw(path, missing)
    gone, ids = {entry.person for entry in entries}, set(allocation.people.ids.tolist())
    later = [
        replace(_made(folder, allocation, allocation.people.index_of(person)), when=when)
        for person, when in found.latest.items()
        if person in ids - gone
        and (person in found.withdrawn or _since(found, person, begun))
        and allocation.people.index_of(person) not in allocation.withdrawn
    ]
    if later:
        _keep(folder, (*entries, *later), left_before(folder))
    everybody = [allocation.people.index_of(entry.person) for entry in (*entries, *later)]
    pending = [index for index in everybody if index not in allocation.withdrawn]
    if not pending:
        return allocation
    left = allocation.without((*allocation.withdrawn, *pending))
    left.save(folder.private / "allocation.npz")
    for entry in later:
        _erase(folder, entry.teachers)
    return left


def _on_ledger(folder: RunFolder, path: Path | None) -> Withdrawals:
    return Withdrawals(withdrawn={}, latest={}) if path is None else LEDGER.withdrawals(path, head=newest_head(folder))


def _since(found: Withdrawals, person: str, time: datetime) -> bool:
    """Whether the ledger has a withdrawal of a person at or after a time."""
    return person in found.latest and datetime.fromisoformat(found.latest[person]) >= time


def _made(folder: RunFolder, allocation: Allocation, index: int) -> Withdrawal:
    person = str(allocation.people.ids[index])
    group = allocation.groups[int(allocation.group_of_person[index])]
    teachers = allocation.teachers_of(index)
    with Balances(folder) as balances:
        balance = balances.of(person, group)
    tested = folder.settings.meter.whole and balance.epsilon > 0
    released = tested or balance.labels + balance.checks + balance.ballots > 0
    engine, begun = engine_of(folder), released or read_record(folder) is not None
    trained, manner = engine.trained(folder.private), engine.report(folder.settings, allocation).manner
    return Withdrawal(
        person=person,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        group=group.id,
        teachers=teachers,
        place=manner.after if begun else manner.before,
        trained=bool(trained.size and trained[list(teachers)].any()),
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
    """Erase what these teachers learnt."""
    if folder.begun:
        engine_of(folder).forget(folder.private, teachers)
