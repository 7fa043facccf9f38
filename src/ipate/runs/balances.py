"""What a run's ledger records about its people, read once for any number of them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.ledger.base import Ledger
from ipate.ledger.carry import Histories, Place
from ipate.ledger.finding import LEDGER
from ipate.ledger.records import PersonRecord
from ipate.people.budgets import Account
from ipate.release.results import Kind, state_guarantee
from ipate.report.statement import Which
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path, reading


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
    private_costs: Which | None = None  # the run that was charged data-dependent costs, if one was


class Balances:
    """The balances of people on a run's ledger, as a context manager; people with the same history share one."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._stack = folder, ExitStack()
        self._book: tuple[Ledger, Histories] | None = None  # None before anything is charged
        self._opened: dict[str, Ledger] = {}
        self._known: dict[tuple[Place, ...], Balance] = {}
        self._own: Kind = state_guarantee(
            folder.settings.meter,
            stopped_by="account",
            seeded=folder.config.seed is not None,
            overlap=folder.config.data.allow_overlap,
        ).kind

    def __enter__(self) -> Self:
        if (self._folder.private / "ledger.json").is_file():
            ledger = self._stack.enter_context(reading(self._folder))
            self._book, self._opened[ledger.run] = (ledger, ledger.histories()), ledger
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, person: str, home: Account) -> Balance:
        """Return a person's balance; without an account nothing of the budget of `home` is spent."""
        which: Which | None = None if self._folder.settings.meter.data_independent else "this run"
        untouched = Balance(budget=home.epsilon, kind=self._own, private_costs=which)
        if self._book is None:
            return untouched
        ledger, histories = self._book
        places = histories.places(person)
        if not places:  # they withdrew before the first query
            return untouched
        if places not in self._known:
            self._known[places] = self._balance(ledger, histories, places)
        return self._known[places]

    def uses(self, person: str) -> tuple[tuple[str, str], ...]:
        """Return the name and the time of every run that used a person's rows as pool or test data."""
        return () if self._book is None else self._book[1].unprotected_in(person)

    @property
    def withdrawn(self) -> Mapping[str, str]:
        """The people who withdrew from the ledger and have not consented again, each with the time."""
        return {} if self._book is None else self._book[0].withdrawn

    @property
    def unprotected(self) -> tuple[str, ...]:
        """Everybody whose rows this run used as pool or test data."""
        return () if self._book is None else self._book[0].own_unprotected

    def _at(self, run: str) -> Ledger:
        """Return the ledger as of a run, whose accounts decide what a budget is."""
        if run not in self._opened:
            opened = LEDGER.read(ledger_path(self._folder), run)
            self._opened[run] = self._stack.enter_context(opened)
        return self._opened[run]

    def _balance(self, own: Ledger, histories: Histories, places: tuple[Place, ...]) -> Balance:
        """Add up the records of these accounts; this run's are those of its first part and of the later ones."""
        records = histories.records(places)
        last, first = records[-1], own.parts()[0]
        ledger = self._at(last.run)
        meter = ledger.terms[last.account].meter
        cost = histories.cost(places, meter)
        kinds = {self._own, *(state_guarantee(Meter(record.bound), stopped_by="account").kind for record in records)}
        mine = [record for record in records if ledger.parts(record.run)[0] == first]
        return Balance(
            records=_whole_runs(ledger, records),
            labels=sum(record.labels for record in mine),
            checks=sum(record.checks for record in mine),
            ballots=sum(record.vectors for record in mine),
            epsilon=ledger.terms[last.account].epsilon(cost) if cost.any() else 0.0,
            budget=last.budget,
            kind=_least_of(kinds | ({"private"} if ledger.private_history else set())),
            private_costs=self._private_costs(own, ledger, records, mine),
        )

    def _private_costs(
        self, own: Ledger, ledger: Ledger, records: Sequence[PersonRecord], mine: Sequence[PersonRecord]
    ) -> Which | None:
        """Return which run was charged data-dependent costs: this one, one before it, or else one after it."""
        if not self._folder.settings.meter.data_independent:
            return "this run"
        dependent = [record for record in records if not Meter(record.bound).data_independent]
        if own.private_history or any(record.time < mine[0].time for record in dependent if mine):
            return "an earlier run"
        return "a later run" if dependent or ledger.private_history else None


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
        vectors=sum(part.vectors for part in parts),
        epsilon=float(meter.epsilon(cost, parts[0].delta)[0]) if cost.any() else 0.0,
    )
