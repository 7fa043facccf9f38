"""The Rényi order that each account keeps for ever under loose and sup.

The filter of Feldman and Zrnic, "Individual privacy accounting via a Rényi filter" (2021), holds for one order that is
fixed before the first release. So a person keeps the order of their first account, whatever later budgets, settings or
bounds say, and an account is limited at the orders of all its members.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from ipate.accounting.bounds import Meter, best_order
from ipate.ledger.carry import last_members
from ipate.ledger.records import RunRow, Terms

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
