"""What people have spent follows them: from run to run, through any grouping, into any unit.

A person's history is what their own account was charged in every run. It is counted again from the releases
(kind, σ, Δ), never by converting costs; only an account that stays under the same data-dependent bound adds
up the costs that were recorded. A new account starts from the worst of its members, order by order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter, find_bound
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.entries import BatchRow, RunRow, from_bytes
from ipate.ledger.records import Terms

Floats = NDArray[np.float64]
Place = tuple[int, str]  # a run and an account of it
Kind = tuple[str, float, float | None, float]  # noise, σ, σ_T and Δ of alike releases


@dataclass
class Releases:
    """What was released on one account of one run: how many checks and labels of each kind, and their cost.

    Attributes
    ----------
    counts : dict
        (noise, σ, σ_T, Δ) to [checks, labels].
    bound, orders
        The unit of `cost`, the sum of what was recorded.
    """

    bound: str
    orders: tuple[float, ...]
    cost: Floats
    counts: dict[Kind, list[int]] = field(default_factory=dict)

    def add(self, batch: BatchRow, moved: Floats, cost: Floats) -> None:
        """Add the releases of a batch, at one Δ or one per query."""
        self.cost = self.cost + cost
        answered = batch.answered
        deltas = np.broadcast_to(moved, answered.shape)
        for value in np.unique(deltas).tolist():
            here = deltas == value
            entry = self.counts.setdefault((batch.noise, batch.sigma, batch.check_sigma, value), [0, 0])
            entry[0] += int(np.count_nonzero(here)) if batch.check_sigma is not None else 0
            entry[1] += int(np.count_nonzero(here & answered))


def gather(runs: Mapping[int, RunRow], charged: Iterable[BatchRow]) -> dict[Place, Releases]:
    """Count the releases of every account of every run."""
    found = {
        (run.entry, row.id): Releases(
            bound=row.meter.bound, orders=tuple(row.meter.orders), cost=np.zeros(row.meter.width)
        )
        for run in runs.values()
        for row in run.accounts
    }
    for batch in charged:
        for row in batch.charges:
            found[batch.run, row.account].add(batch, row.moved, from_bytes(row.cost))
    return found


def recharge(releases: Releases, meter: Meter) -> Floats:
    """Return what releases cost in another unit.

    A data-independent meter counts every release at its worst case, whatever it was charged before. A data-dependent
    one keeps costs that were recorded under the same bound at the same orders; others it, too, counts at the worst.
    A release that was tested and charged as a whole (ptr) took the whole budget, δ included, so in any other unit it
    is infinite, and so is in its unit whatever was charged query by query.
    """
    tested = find_bound(releases.bound).whole
    if meter.whole or tested:
        if meter.whole and tested:
            return releases.cost
        return np.full(meter.width, np.inf if releases.cost.any() else 0.0)
    if not meter.data_independent and releases.bound == meter.bound and set(meter.orders) <= set(releases.orders):
        return np.asarray(releases.cost[[releases.orders.index(order) for order in meter.orders]])
    total = np.zeros(meter.width)
    for (noise, sigma, check_sigma, moved), (checks, labels) in releases.counts.items():
        if checks and check_sigma is not None:
            total = total + checks * meter.worst_check(sensitivity=moved, check_sigma=check_sigma)
        if labels:
            total = total + labels * meter.worst_label(sensitivity=moved, sigma=sigma, noise=noise)
    return total


def histories(runs: Iterable[RunRow]) -> dict[str, tuple[Place, ...]]:
    """Return the accounts that every person had, run by run; without names, an account's id stands for its people."""
    found: dict[str, tuple[Place, ...]] = {}
    for run in runs:
        pairs = run.members if run.named else tuple((row.id, row.id) for row in run.accounts)
        for person, account in pairs:
            found[person] = (*found.get(person, ()), (run.entry, account))
    return found


def openings(
    terms: Sequence[Terms],
    people: Mapping[str, str] | None,
    *,
    runs: Mapping[int, RunRow],
    releases: Mapping[Place, Releases],
) -> dict[str, Floats]:
    """Return what each new account has spent when it is opened: the worst of its members.

    An account that everybody has left goes on from what the last of them had spent. Without names a group's people
    may be in any of its accounts (a teacher's place in a votes file is no name), so each run counts at its worst.

    Raises
    ------
    InputError
        Where it cannot be known who is in an account.
    BudgetExceededError
        Where nothing of a group's budget is left.
    """
    past = histories(runs.values())
    _check_people(terms, people, runs, past)
    if people is None:
        units = {(entry.account.group.id, entry.meter) for entry in terms}
        spent = {unit: _worst_of_group(*unit, runs=runs, releases=releases) for unit in units}
        return {
            entry.account.id: _refuse_nothing_left(entry, spent[entry.account.group.id, entry.meter]) for entry in terms
        }
    pasts: dict[str, set[tuple[Place, ...]]] = {entry.account.id: set() for entry in terms}
    for person, account in people.items():
        pasts[account].add(past.get(person, ()))
    for account in (account for account, found in pasts.items() if not found):
        pasts[account] = {past[person] for person in _last_members(account, runs)}
    opened = {}
    for entry in terms:
        counted: dict[Place, Floats] = {}
        worst = np.zeros(entry.meter.width)
        for places in pasts[entry.account.id]:
            total = np.zeros(entry.meter.width)
            for place in places:
                if place not in counted:
                    counted[place] = recharge(releases[place], entry.meter)
                total = total + counted[place]
            worst = np.maximum(worst, total)
        opened[entry.account.id] = _refuse_nothing_left(entry, worst)
    return opened


def _worst_of_group(
    group: str, meter: Meter, *, runs: Mapping[int, RunRow], releases: Mapping[Place, Releases]
) -> Floats:
    """Return the most that anybody of a group can have spent: in every run, the worst of the group's accounts."""
    total = np.zeros(meter.width)
    for run in runs.values():
        own = [
            recharge(releases[run.entry, row.id], meter) for row in run.accounts if row.terms.account.group.id == group
        ]
        total = total + np.max([np.zeros(meter.width), *own], axis=0)
    return total


def _last_members(account: str, runs: Mapping[int, RunRow]) -> tuple[str, ...]:
    """Return who was in an account when it last had anybody."""
    for run in reversed(tuple(runs.values())):
        found = tuple(person for person, where in run.members if where == account)
        if found:
            return found
    return ()


def _check_people(
    terms: Sequence[Terms],
    people: Mapping[str, str] | None,
    runs: Mapping[int, RunRow],
    past: Mapping[str, tuple[Place, ...]],
) -> None:
    """Refuse to guess who is in an account: what somebody spent must be found again."""
    accounts = {entry.account.id for entry in terms}
    if people is not None:
        unknown = sorted(set(people.values()) - accounts)
        if unknown:
            raise InputError(f"people: account {unknown[0]!r} is unknown: the accounts are {', '.join(accounts)}")
    named = people is not None
    for run in runs.values():
        if run.named != named:
            says = "names its people" if run.named else "names no people"
            raise InputError(
                f"run {run.name!r} of this ledger {says} and the new one does not do so alike: who spent what could "
                "not be found; give people (person → account) in every run, or in none"
            )
    known = past.keys() | {row.terms.account.group.id for run in runs.values() for row in run.accounts}
    wanted = accounts | {entry.account.group.id for entry in terms}
    strangers = sorted(wanted - known) if runs and not named else []
    if strangers:
        raise InputError(
            f"account {strangers[0]!r} is new and this ledger names no people: who is in it, and what they spent, "
            "cannot be known; keep the accounts, or name people from the first run on"
        )


def _refuse_nothing_left(terms: Terms, opening: Floats) -> Floats:
    """Return what an account has spent when it is opened, where that leaves it something to spend."""
    limit = terms.meter.limit(terms.account.epsilon, terms.account.delta)
    if not opening.any() or (np.any(opening < limit) and not terms.meter.whole):
        return opening
    whose = f"group {terms.account.group.id!r}" + (
        "" if terms.account.id == terms.account.group.id else f" (account {terms.account.id!r})"
    )
    if terms.meter.whole or not np.all(np.isfinite(opening)):
        raise BudgetExceededError(
            f"{whose} has people whose budget is begun or used up: a release that is tested as a whole (ptr) takes a "
            "whole budget, ε and δ, so none can follow other releases and none can follow it; leave those people out"
        )
    spent = float(terms.meter.epsilon(opening, terms.account.delta)[0])
    raise BudgetExceededError(
        f"{whose} has nothing left: its worst member has spent ε = {spent:.6g} at δ = {terms.account.delta:g}, counted "
        f"as {terms.meter.bound}, of the budget {terms.account.epsilon:.6g}; leave its people out, or ask them for "
        "a new consent"
    )


@dataclass(frozen=True, kw_only=True)
class PersonRecord:
    """What one run promised one person, and what it spent.

    Attributes
    ----------
    run, time : str
        The run's name, and when it was opened.
    account, group : str
        Where the person's costs are kept.
    budget, delta : float
        What the account may spend in all, as it was consented to when the run was opened.
    bound : str
        What the costs of this run were computed by; those of tight and exact are private.
    checks, labels : int
        The releases that the person's data could have changed.
    epsilon : float
        ε of this run's own releases, without earlier ones; `SqliteLedger.cost_of` counts all of them together.
    """

    run: str
    time: str
    account: str
    group: str
    budget: float
    delta: float
    bound: str
    checks: int
    labels: int
    epsilon: float


def person_records(
    runs: Mapping[int, RunRow], releases: Mapping[Place, Releases], person: str
) -> tuple[PersonRecord, ...]:
    """Return a person's records, in the order of runs."""
    places = histories(runs.values()).get(person)
    if places is None:
        raise InputError(f"person is {person!r}: nobody in this ledger has this id")
    records = []
    for run, account in places:
        row = next(row.terms for row in runs[run].accounts if row.id == account)
        own = releases[run, account]
        moved = [counts for kind, counts in own.counts.items() if kind[3] > 0]
        records.append(
            PersonRecord(
                run=runs[run].name,
                time=runs[run].time,
                account=account,
                group=row.account.group.id,
                budget=row.account.epsilon,
                delta=row.account.delta,
                bound=row.meter.bound,
                checks=sum(checks for checks, _ in moved),
                labels=sum(labels for _, labels in moved),
                epsilon=float(row.meter.epsilon(own.cost, row.account.delta)[0]) if own.cost.any() else 0.0,
            )
        )
    return tuple(records)
