"""One person's history in a ledger: what they were promised in every run, and what was spent of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ipate.errors import InputError
from ipate.ledgers.carry import Place, Releases, histories
from ipate.ledgers.records import RunRow

__all__ = ["PersonRecord", "person_records"]


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
        row = next(row for row in runs[run].accounts if row.account == account)
        own = releases[run, account]
        moved = [counts for kind, counts in own.counts.items() if kind[3] > 0]
        records.append(
            PersonRecord(
                run=runs[run].name,
                time=runs[run].time,
                account=account,
                group=row.group,
                budget=row.epsilon,
                delta=row.delta,
                bound=row.bound,
                checks=sum(checks for checks, _ in moved),
                labels=sum(labels for _, labels in moved),
                epsilon=float(row.meter.epsilon(own.cost, row.delta)[0]) if own.cost.any() else 0.0,
            )
        )
    return tuple(records)
