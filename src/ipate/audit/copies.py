"""The copy of a run in a temporary folder: its teachers, its ledger and its labelling, on made-up rows and votes.

Everything here is the code that a run uses: the allocation, the training and voting of teachers, the ledger on disk,
the labelling loop and its charges.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.audit.canaries import roll_call
from ipate.audit.subject import Subject
from ipate.errors import MOST_EPSILON
from ipate.labelling.aggregators import Mechanism
from ipate.labelling.results import Labelling
from ipate.ledger.records import Terms
from ipate.people.budgets import Budget
from ipate.runs.fitting import run_labelling
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import Bar, opened
from ipate.runs.voting import collect_votes
from ipate.votes import Votes
from ipate.votes.panel import Panel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ENTRIES = 40_000_000  # teachers × people whose numbers are asked
_POOL = 200_000  # largest made-up pool
_NOBODY = np.zeros(0, dtype=np.str_)


@contextmanager
def silent(*_: Any) -> Iterator[Any]:
    """Show no progress."""
    yield lambda done: None


@dataclass(frozen=True, kw_only=True, eq=False)
class Charged:
    """One labelling of a copy: how many queries were asked and answered, and what its ledger charged, by account.

    Queries in which an account's teachers had no vote, because they were dropped or not their turn, do not count.
    """

    labelling: Labelling
    asked: Mapping[str, int]
    answered: Mapping[str, int]
    spent: Mapping[str, Floats]
    constant: bool  # whether every query had the same price


@dataclass(frozen=True, kw_only=True, eq=False)
class Copy:
    """The copy of a run with teachers."""

    subject: Subject
    where: Path
    number: Iterator[int] = field(default_factory=count)

    @property
    def allocation(self) -> Allocation:
        """Who learns from whom in the copy."""
        if self.subject.allocation is None:
            raise TypeError("ballots have no teachers")
        return self.subject.allocation

    @property
    def mechanism(self) -> Mechanism:
        """The noise parameters that the run states."""
        return self.subject.settings.aggregator(self.allocation.scale).mechanism

    def folder(self) -> RunFolder:
        """Return a new run folder with the run's configuration and no charges."""
        return RunFolder.create(self.where / f"copy-{next(self.number)}", self.subject.copied)

    def reached(self, bar: Bar = silent) -> tuple[Ints, NDArray[np.bool_]]:
        """Return people and, (k, people), which teachers' votes show that they were trained on their rows."""
        people = self.subject.people
        most = max(1, _ENTRIES // max(1, self.allocation.n_teachers))
        asked = np.arange(people.n_people)
        if len(asked) > most:
            asked = np.sort(np.random.default_rng(0).choice(asked, size=most, replace=False))
        task = roll_call(people, asked)
        votes = collect_votes(self.folder(), "votes", task=task, allocation=self.allocation, bar=bar)
        return asked, np.asarray(votes.votes, dtype=bool)

    def votes(self, own: Ints, n_queries: int) -> Votes:
        """Return the same votes (k,) on so many queries."""
        small = own.astype(np.int16 if self.subject.n_classes > 127 else np.int8)
        return Votes(votes=np.broadcast_to(small[:, None], (len(own), n_queries)), n_classes=self.subject.n_classes)

    def counts(self, own: Ints, n_queries: int) -> Floats:
        """Return the weighted counts of these votes, (queries, classes), as the labelling counts them."""
        votes, panel = self.votes(own, n_queries), Panel.of(self.allocation.layout)
        turns = self.allocation.participation
        if turns is None:
            counted = panel.tally(np.asarray(own)[:, None], votes.n_classes, blocs=False).counts
            return np.broadcast_to(counted, (n_queries, votes.n_classes))
        return panel.tally(np.asarray(votes.votes), votes.n_classes, turns.in_order(n_queries, None)).counts

    def charged(self, own: Ints) -> Charged:
        """Label made-up points with these votes until the copy's own ledger stops it, or the pool ends."""
        settings = self.subject.settings
        n_pool = 2 * self.subject.n_queries + 100
        while True:
            points = n_pool if settings.n_queries is None else settings.n_queries
            with opened(self.folder(), self.allocation, settings, pool="made-up points", unprotected=_NOBODY) as ledger:
                found, _ = run_labelling(self.votes(own, points), self.allocation, settings, ledger=ledger)
                spent, charges = {account: ledger.spent(account) for account in ledger.terms}, ledger.charges
            if found.stopped_by != "pool" or settings.n_queries is not None or n_pool >= _POOL:
                break
            n_pool *= 4
        constant = settings.stop != "drop" and self.allocation.participation is None
        asked, answered = dict.fromkeys(spent, found.n_queries), dict.fromkeys(spent, found.n_labels)
        if not constant:
            for name in spent:
                moving = [np.broadcast_to(c.sensitivity[name], len(c.queries)) > 0 for c in charges]
                asked[name] = sum(int(part.sum()) for part in moving)
                answered[name] = sum(int((m & c.answered).sum()) for m, c in zip(moving, charges, strict=True))
        return Charged(labelling=found, asked=asked, answered=answered, spent=spent, constant=constant)

    @cached_property
    def terms(self) -> Mapping[str, Terms]:
        """The accounts of the copy's ledger."""
        with opened(
            self.folder(), self.allocation, self.subject.settings, pool="made-up points", unprotected=_NOBODY
        ) as ledger:
            return ledger.terms

    def sampled(self, own: Ints, n_queries: int) -> Iterator[Labelling]:
        """Label so many queries with these votes, in as many labellings as the largest budgets need."""
        layout = self.allocation.layout
        rich = tuple(account.with_budget(Budget(MOST_EPSILON, account.delta)) for account in layout.groups)
        allocation = replace(self.allocation, layout=replace(layout, groups=rich))
        settings = replace(self.subject.settings, stop="budget", max_labels=None, n_queries=None)
        left = n_queries
        while left > 0:
            found, _ = run_labelling(self.votes(own, left), allocation, settings)
            yield found
            left -= max(1, found.n_queries)
