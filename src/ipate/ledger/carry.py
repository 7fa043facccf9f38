"""Balances carried over between runs: each person keeps their spending under any grouping and any bound.

A person's history is what their own account was charged in every run. It is recomputed from the releases (mechanism, σ,
Δ), never by converting costs; only an account that stays under the same data-dependent bound adds up the recorded
costs. A new account starts from the maximum over its members, order by order.

The filter under loose and sup (Feldman and Zrnic, "Individual privacy accounting via a Rényi filter", 2021) holds for
one order that is fixed before the first release. So a person keeps the order of their first account, whatever later
budgets, settings or bounds say, and an account is limited at the orders of all its members.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ipate._types import Floats
from ipate.accounting.bounds import Meter, best_order
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.records import PRIVATE_COSTS, Charge, Draw, Mechanism, Noise, PersonRecord, RunRow, Scope, Terms

Place = tuple[int, str]  # a run (its entry) and an account of it
Charges = Iterable[tuple[int, Charge]]  # in order, each with the entry of its run
_ROOT2 = math.sqrt(2)


class Kind(NamedTuple):
    """What releases have in common that cost the same."""

    scope: Scope
    mechanism: Mechanism
    noise: Noise
    sigma: float
    sensitivity: float


def price(release: Draw | Kind, meter: Meter, sensitivity: ArrayLike) -> Floats:
    """Return what a release costs at most, whatever the votes: (*shape of Δ, width).

    A vector never has the smaller price of an argmax. What was charged as a whole took a whole budget, δ included, so
    its cost has no limit.
    """
    if release.mechanism == "check":
        return meter.worst_check(sensitivity=sensitivity, check_sigma=release.sigma)
    if release.mechanism == "argmax":
        return meter.worst_label(sensitivity=sensitivity, sigma=release.sigma, noise=release.noise)
    if release.mechanism == "vector":
        return meter.vector_cost(sensitivity=sensitivity, sigma=release.sigma)
    return np.full((*np.shape(sensitivity), meter.width), np.inf)


@dataclass
class Releases:
    """Releases of one account in one run: their numbers by kind, and the recorded cost."""

    meter: Meter  # the unit of `cost`
    cost: Floats
    numbers: Counter[Kind] = field(default_factory=Counter)

    def add(self, charge: Charge, account: str) -> None:
        """Add the releases of a charge, with one Δ for all keys or one per key."""
        self.cost = self.cost + charge.cost[account]
        sensitivities = np.broadcast_to(charge.sensitivity[account], len(charge.keys))
        for value in np.unique(sensitivities).tolist():
            here = sensitivities == value
            for draw in charge.draws:
                kind = Kind(charge.scope, draw.mechanism, draw.noise, draw.sigma, value)
                self.numbers[kind] += int(np.count_nonzero(here & charge.drawn(draw)))

    @property
    def whole(self) -> bool:
        """Whether something was charged as a whole."""
        return any(kind.mechanism == "whole" for kind in self.numbers)

    def count(self, *mechanisms: Mechanism, scope: Scope = "pool") -> int:
        """Return the number of releases by some mechanisms that the account's people could have changed."""
        return sum(
            number
            for kind, number in self.numbers.items()
            if kind.scope == scope and kind.mechanism in mechanisms and kind.sensitivity > 0
        )

    @property
    def mechanisms(self) -> tuple[tuple[str, float, int], ...]:
        """The releases by their noise: σ, or the scale of Laplace noise, over what a person moves, and their number.

        A person moves a check by Δ, and the counts behind a label or a histogram by √2·Δ, or by 2Δ in the norm that
        counts under Laplace noise.
        """
        found: Counter[tuple[str, float]] = Counter()
        for (_, mechanism, noise, sigma, moved), number in self.numbers.items():
            if moved and number and mechanism != "whole":
                reach = 1.0 if mechanism == "check" else 2.0 if noise == "laplace" else _ROOT2
                found[noise, sigma / (reach * moved)] += number
        return tuple((*release, number) for release, number in sorted(found.items()))


def gather(runs: Mapping[int, RunRow], charges: Charges) -> dict[Place, Releases]:
    """Count the releases of every account of every run."""
    found = {
        (run.entry, row.id): Releases(meter=row.terms.meter, cost=np.zeros(row.terms.meter.width))
        for run in runs.values()
        for row in run.accounts
    }
    for run, charge in charges:
        for account in charge.cost:
            found[run, account].add(charge, account)
    return found


def recharge(releases: Releases, meter: Meter) -> Floats:
    """Return the cost of releases in another unit.

    A data-independent meter counts every release at its worst case. A data-dependent meter keeps costs that were
    recorded under the same bound at the same orders, and counts other releases at the worst case. A release that was
    tested and charged as a whole took the whole budget, δ included: its cost in any other unit is infinite, and under
    such a unit so is the cost of releases that were charged one by one.
    """
    old = releases.meter
    if meter.whole or old.whole or releases.whole:
        if meter.whole and old.whole:
            return releases.cost
        return np.full(meter.width, np.inf if releases.cost.any() else 0.0)
    if not meter.data_independent and old.bound == meter.bound and set(meter.orders) <= set(old.orders):
        return np.asarray(releases.cost[[old.orders.index(order) for order in meter.orders]])
    total = np.zeros(meter.width)
    for kind, number in sorted(releases.numbers.items(), key=lambda item: item[0].mechanism == "vector"):
        if number:
            total = total + number * price(kind, meter, kind.sensitivity)
    return total


def histories(runs: Iterable[RunRow]) -> dict[str, tuple[Place, ...]]:
    """Return every person's accounts by run; in a run without people, the account id replaces the person's id."""
    found: dict[str, tuple[Place, ...]] = {}
    for run in runs:
        for person, account in run.places:
            found[person] = (*found.get(person, ()), (run.entry, account))
    return found


def openings(
    terms: Sequence[Terms], people: Mapping[str, str] | None, runs: Mapping[int, RunRow], charges: Charges
) -> dict[str, Floats]:
    """Return the opening balance of each new account: the maximum over its members.

    An account without members continues from its last members' spending. If people are not named, a person may be in
    any account of their group (the rows of a votes file identify nobody), so each run counts at the maximum over the
    group. Refused where the members of an account cannot be known, where they were charged under another privacy
    filter, or where a group has no budget left.
    """
    _check_people(terms, people, runs)
    releases = gather(runs, charges)
    if people is None:
        accounts = [(run.entry, row) for run in runs.values() for row in run.accounts]
        for entry in terms:
            own = [(run, row.id) for run, row in accounts if row.terms.account.group.id == entry.account.group.id]
            _refuse_other_filter(entry, (releases[place] for place in own))
        units = {(entry.account.group.id, entry.meter) for entry in terms}
        spent = {unit: _worst_of_group(*unit, runs=runs, releases=releases) for unit in units}
        return {
            entry.account.id: _refuse_nothing_left(entry, spent[entry.account.group.id, entry.meter], releases.values())
            for entry in terms
        }
    past = histories(runs.values())
    pasts: dict[str, set[tuple[Place, ...]]] = {entry.account.id: set() for entry in terms}
    for person, account in people.items():
        pasts[account].add(past.get(person, ()))
    for account in (account for account, found in pasts.items() if not found):
        pasts[account] = {past[person] for person in last_members(account, runs)}
    counted = cache(lambda place, meter: recharge(releases[place], meter))
    opened = {}
    for entry in terms:
        nothing = np.zeros(entry.meter.width)
        _refuse_other_filter(entry, (releases[place] for places in pasts[entry.account.id] for place in places))
        totals = [sum((counted(place, entry.meter) for place in places), nothing) for places in pasts[entry.account.id]]
        opened[entry.account.id] = _refuse_nothing_left(entry, np.max([nothing, *totals], axis=0), releases.values())
    return opened


def _worst_of_group(
    group: str, meter: Meter, *, runs: Mapping[int, RunRow], releases: Mapping[Place, Releases]
) -> Floats:
    """Return an upper bound on the spending of a group's people: the sum over runs of its largest account."""
    total = np.zeros(meter.width)
    for run in runs.values():
        own = [
            recharge(releases[run.entry, row.id], meter) for row in run.accounts if row.terms.account.group.id == group
        ]
        total = total + np.max([np.zeros(meter.width), *own], axis=0)
    return total


def last_members(account: str, runs: Mapping[int, RunRow]) -> tuple[str, ...]:
    """Return the members of an account in the last run in which it had any."""
    for run in reversed(tuple(runs.values())):
        found = tuple(person for person, where in run.members if where == account)
        if found:
            return found
    return ()


def _check_people(terms: Sequence[Terms], people: Mapping[str, str] | None, runs: Mapping[int, RunRow]) -> None:
    """Refuse accounts whose people are unknown, because their earlier spending could not be found."""
    accounts = {entry.account.id for entry in terms}
    unknown = sorted(set((people or {}).values()) - accounts)
    if unknown:
        raise InputError(f"people: account {unknown[0]!r} is unknown: the accounts are {', '.join(accounts)}")
    rows = [row for run in runs.values() for row in run.accounts]
    known = {row.id for row in rows} | {row.terms.account.group.id for row in rows}
    wanted = accounts | {entry.account.group.id for entry in terms}
    strangers = sorted(wanted - known) if runs and people is None else []
    if strangers:
        raise InputError(
            f"account {strangers[0]!r} is new and this ledger names no people: its members and their earlier "
            "spending are unknown; keep the accounts, or name people from the first run on"
        )


def _refuse_other_filter(terms: Terms, past: Iterable[Releases]) -> None:
    """Refuse people who were charged under gdp and now under a Rényi order, or the other way round.

    Each of the two is a privacy filter. A budget that changes from one to the other, perhaps because of what was
    released, is covered by neither proof (docs/proofs/filter.md). Costs that depend on votes promise nothing anyway.
    """
    new = terms.meter
    for old in {own.meter for own in past if own.cost.any()}:
        filters = new.data_independent and old.data_independent and not (new.whole or old.whole)
        if filters and new.fixes_order != old.fixes_order:
            raise BudgetExceededError(
                f"{terms.owner} has people who were charged under {old.bound}, and this run charges {new.bound}: gdp "
                "is one privacy filter, loose and sup at a fixed Rényi order are another, and a budget stays with the "
                f"one that it began with; use {old.bound}, or leave those people out"
            )


def _refuse_nothing_left(terms: Terms, opening: Floats, past: Iterable[Releases]) -> Floats:
    """Return the opening balance of an account; refuse it if no budget is left.

    What was spent is told only if all runs in the `past` were charged by costs that hold for all votes.
    """
    if not opening.any() or (terms.fits(np.nextafter(opening, np.inf)) and not terms.meter.whole):
        return opening
    if terms.meter.whole or not np.all(np.isfinite(opening)):
        raise BudgetExceededError(
            f"{terms.owner} has people whose budget is partly or fully spent: a release that is tested as a whole "
            "(ptr) takes a whole budget, ε and δ, so it cannot share a budget with any other release; leave those "
            "people out"
        )
    spent = (
        f"its worst member has spent ε = {terms.epsilon(opening):.6g} at δ = {terms.account.delta:g}, counted as "
        f"{terms.meter.bound}, of the budget {terms.account.epsilon:.6g}"
    )
    if any(not own.meter.data_independent and own.cost.any() for own in past):
        spent = PRIVATE_COSTS
    raise BudgetExceededError(
        f"{terms.owner} has nothing left: {spent}; leave its people out, or ask them for new consent"
    )


class Histories:
    """What every person was charged in every run, from one reading of all charges."""

    def __init__(self, runs: Mapping[int, RunRow], charges: Charges) -> None:
        self._runs, self._releases = runs, gather(runs, charges)
        self._places = histories(runs.values())
        self._unprotected: dict[str, tuple[tuple[str, str], ...]] = {}
        for run in runs.values():
            for person in run.unprotected:
                self._unprotected[person] = (*self._unprotected.get(person, ()), (run.name, run.time))

    def places(self, person: str) -> tuple[Place, ...]:
        """Return the accounts of a person, in the order of runs; empty for somebody without any."""
        return self._places.get(person, ())

    def cost(self, places: Iterable[Place], meter: Meter) -> Floats:
        """Return the cost of all releases of some accounts together, in any unit."""
        costs = [recharge(self._releases[place], meter) for place in places]
        return np.asarray(np.sum([np.zeros(meter.width), *costs], axis=0))

    def unprotected_in(self, person: str) -> tuple[tuple[str, str], ...]:
        """Return the name and the time of every run that used a person's rows as pool or test data."""
        return self._unprotected.get(person, ())

    def records(self, places: Iterable[Place]) -> tuple[PersonRecord, ...]:
        """Return the records of whoever has these accounts, one per run."""
        return tuple(self._record(run, account) for run, account in places)

    def _record(self, run: int, account: str) -> PersonRecord:
        row = next(row.terms for row in self._runs[run].accounts if row.id == account)
        own = self._releases[run, account]
        return PersonRecord(
            run=self._runs[run].name,
            time=self._runs[run].time,
            account=account,
            group=row.account.group.id,
            budget=row.account.epsilon,
            delta=row.account.delta,
            bound=row.meter.bound,
            checks=own.count("check"),
            labels=own.count("argmax", "vector"),
            vectors=own.count("vector", scope="run"),
            epsilon=row.epsilon(own.cost) if own.cost.any() else 0.0,
        )


Orders = tuple[float, ...]
_RULE = Meter("loose")


@cache
def usual_order(epsilon: float, delta: float) -> float:
    """Return the order for people whose first run had no Rényi order: a fixed rule, by their first budget alone."""
    label = _RULE.worst_label(sensitivity=1.0, sigma=1.0)  # under loose, σ and Δ do not change the best order
    return best_order(_RULE, epsilon=epsilon, delta=delta, label=label)


def _fixed(terms: Terms) -> float:
    """Return the order that an account of an earlier run has fixed for its members."""
    if terms.meter.fixes_order:
        return terms.meter.orders[0]
    return usual_order(terms.account.epsilon, terms.account.delta)


def first_orders(runs: Mapping[int, RunRow]) -> dict[str, float]:
    """Return every person's order, from their first run; without people, every account's."""
    found: dict[str, float] = {}
    for run in runs.values():
        fixed = {row.id: _fixed(row.terms) for row in run.accounts}
        for person, account in run.places:
            found.setdefault(person, fixed[account])
    return found


def keep_orders(
    terms: Sequence[Terms], people: Mapping[str, str] | None, runs: Mapping[int, RunRow], parent: str | None = None
) -> tuple[Terms, ...]:
    """Return the terms of a new run at the orders that its people have fixed before; only new people choose one.

    All accounts get the same number of orders, some of them repeated. A run that continues another one keeps its
    accounts' orders.
    """
    if not runs or not any(entry.meter.fixes_order for entry in terms):
        return tuple(terms)
    if parent is not None:
        before = next(run for run in runs.values() if run.name == parent)
        kept = {row.id: row.terms.meter.orders for row in before.accounts}
        return tuple(_at(entry, tuple(kept.get(entry.account.id, entry.meter.orders))) for entry in terms)
    orders = _by_account(terms, people, runs) if people is not None else _by_group(terms, runs)
    width = max(len(own) for own in orders.values())
    return tuple(
        _at(entry, own * (width // len(own)) + own[: width % len(own)])
        for entry in terms
        for own in [orders[entry.account.id]]
    )


def _by_account(terms: Sequence[Terms], people: Mapping[str, str], runs: Mapping[int, RunRow]) -> dict[str, Orders]:
    """Return the orders of every account's members; an account without members keeps those of its last ones."""
    known = first_orders(runs)
    found: dict[str, dict[float, None]] = {entry.account.id: {} for entry in terms}
    for person, account in people.items():
        if person in known:
            found[account][known[person]] = None
    taken = set(people.values())
    for account, own in found.items():
        own.update((known[person], None) for person in (() if account in taken else last_members(account, runs)))
    return {entry.account.id: tuple(found[entry.account.id]) or _chosen(entry) for entry in terms}


def _by_group(terms: Sequence[Terms], runs: Mapping[int, RunRow]) -> dict[str, Orders]:
    """Return the orders of every account's group: without people, a member may be in any account of the group."""
    found: dict[str, dict[float, None]] = {}
    for run in runs.values():
        here: dict[str, dict[float, None]] = {}
        for row in run.accounts:
            here.setdefault(row.terms.account.group.id, {})[_fixed(row.terms)] = None
        found = here | found  # the first run counts
    return {entry.account.id: tuple(found.get(entry.account.group.id, ())) or _chosen(entry) for entry in terms}


def _chosen(entry: Terms) -> Orders:
    return tuple(entry.meter.orders)


def _at(entry: Terms, orders: Orders) -> Terms:
    return replace(entry, meter=Meter(entry.meter.bound, entry.meter.conversion, orders))
