"""One person in a run: their balance on the ledger, their statement, and their withdrawal.

A cost that was computed from votes depends on other people's data, so it is private, and so is the number of labels
where such costs could end a run. A statement contains neither unless the data owner asks for them.

A withdrawal leaves the person's place empty. Nobody else moves to another teacher, because then one person would
change many votes. The allocation is replaced atomically; votes of teachers that learnt from the person no longer match
it and are erased. Earlier releases cannot be undone: `withdrawals.json` records them and their cost.
"""

import shutil
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError, show
from ipate.labelling.results import Kind, state_guarantee
from ipate.ledger.base import Ledger
from ipate.ledger.records import PersonRecord
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.budgets import Account
from ipate.people.ids import plain_id
from ipate.report.statement import RunEntry, Statement, Unprotected, Use, Withdrawal, for_the_person
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path, read_record, reading
from ipate.votes.store import erase_votes, voted_in


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What a ledger records about one person.

    `kind` is none where this run promises nothing, and private where this run's figures are, or where any run of the
    person, or an earlier run on the ledger, was charged data-dependent costs.
    """

    budget: float  # ε of the last account
    kind: Kind
    records: tuple[PersonRecord, ...] = ()  # one per run, in order; a withdrawal by others does not split a run
    labels: int = 0  # released by this run and possibly changed by the person's data, as are the next two
    checks: int = 0
    ballots: int = 0  # histograms of ballots
    epsilon: float = 0.0  # the cost of all runs together, by the meter of the last account


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


def balance_of(folder: RunFolder, person: str, home: Account) -> Balance:
    """Return a person's balance on the run's ledger; without an account nothing of the budget of `home` is spent."""
    own = state_guarantee(
        folder.settings.meter,
        stopped_by="account",
        seeded=folder.config.seed is not None,
        overlap=folder.config.data.allow_overlap,
    )
    untouched = Balance(budget=home.epsilon, kind=own.kind)
    if not (folder.private / "ledger.json").is_file():
        return untouched
    with reading(folder) as ledger:
        try:
            records = ledger.person(person)
        except InputError:  # the person withdrew before the first query
            return untouched
        first = ledger.parts()[0]
        if records[-1].run == ledger.run:
            return _balance(ledger, records, person, first, kind=untouched.kind)
    with SqliteLedger.open(ledger_path(folder), run=records[-1].run, readonly=True) as ledger:
        return _balance(ledger, records, person, first, kind=untouched.kind)


def _balance(ledger: Ledger, records: tuple[PersonRecord, ...], person: str, first: str, *, kind: Kind) -> Balance:
    """Add up a person's records; this run's are those of the run `first` and its later parts, and it has this kind."""
    last = records[-1]
    meter = ledger.terms[last.account].meter
    cost = ledger.cost_of(person, meter)
    kinds = {kind, *(state_guarantee(Meter(record.bound), stopped_by="account").kind for record in records)}
    own = [record for record in records if ledger.parts(record.run)[0] == first]
    return Balance(
        records=_whole_runs(ledger, records),
        labels=sum(record.labels for record in own),
        checks=sum(record.checks for record in own),
        ballots=sum(record.ballots for record in own),
        epsilon=ledger.terms[last.account].epsilon(cost) if cost.any() else 0.0,
        budget=last.budget,
        kind=_least_of(kinds | ({"private"} if ledger.private_history else set())),
    )


def _least_of(kinds: set[Kind]) -> Kind:
    """Return the weakest of several kinds of guarantee."""
    return next(kind for kind in ("none", "private", "releasable") if kind in kinds)


def _whole_runs(ledger: Ledger, records: tuple[PersonRecord, ...]) -> tuple[PersonRecord, ...]:
    """Join the parts of each run, which withdrawals separate in the ledger."""
    parts: dict[str, list[PersonRecord]] = {}
    for record in records:
        parts.setdefault(ledger.parts(record.run)[0], []).append(record)
    return tuple(own[0] if len(own) == 1 else _joined(ledger, name, own) for name, own in parts.items())


def _joined(ledger: Ledger, name: str, parts: list[PersonRecord]) -> PersonRecord:
    meter = ledger.meter_of(parts[-1].run, parts[-1].account)
    cost = np.sum([ledger.charged_by(part.run, part.account) for part in parts], axis=0)
    return replace(
        parts[0],
        run=name,
        checks=sum(part.checks for part in parts),
        labels=sum(part.labels for part in parts),
        ballots=sum(part.ballots for part in parts),
        epsilon=float(meter.epsilon(cost, parts[0].delta)[0]) if cost.any() else 0.0,
    )


def state(folder: RunFolder, person: str, *, private: bool = False) -> Statement | Unprotected:
    """Return a person's statement, or with `private` the one that only the data owner may see.

    Somebody whose rows are pool or test data has no account: their statement says so.
    """
    path = folder.private / "allocation.npz"
    if not path.is_file():
        raise InputError(
            f"{folder.path}: people are not assigned to teachers yet; continue it with ipate run --resume {folder.path}"
        )
    allocation = Allocation.load(path)
    uses = _uses(folder, plain_id(person))
    try:
        index = allocation.people.index_of(person)
    except InputError:
        if not uses:
            find_person(allocation, person)
        return Unprotected(person=plain_id(person), run=folder.path.absolute().name, unprotected=uses)
    known = str(allocation.people.ids[index])
    config = folder.config
    home = allocation.groups[int(allocation.group_of_person[index])]
    balance = balance_of(folder, known, home)
    full = Statement(
        person=known,
        run=folder.path.absolute().name,
        asked=allocation.people.group_of(known).id,
        group=home.id,
        levels=config.budgets.epsilon is None and config.data.epsilon is None,
        budget=home.epsilon,
        delta=home.delta,
        guaranteed=balance.kind == "releasable",
        seeded=config.seed is not None,
        overlap=config.data.allow_overlap,
        private=balance.kind != "releasable",
        withdrawn=next((entry.when for entry in withdrawals(folder) if entry.person == known), None),
        allowed=balance.budget,
        labels=balance.labels,
        checks=balance.checks,
        ballots=balance.ballots,
        spent=balance.epsilon,
        left=max(0.0, balance.budget - balance.epsilon),
        entries=tuple(_entry(record) for record in balance.records),
        unprotected=uses,
    )
    return full if private else for_the_person(full)


def _uses(folder: RunFolder, person: str) -> tuple[Use, ...]:
    """Return the runs on the ledger that used a person's rows as pool or test data."""
    if not (folder.private / "ledger.json").is_file():
        return ()
    with reading(folder) as ledger:
        return tuple(Use(run=run, opened=time) for run, time in ledger.unprotected_in(person))


def _entry(record: PersonRecord) -> RunEntry:
    same = {name: value for name, value in asdict(record).items() if name not in ("account", "time")}
    return RunEntry(opened=record.time, **same)


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
    balance = balance_of(folder, person, group)
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
