"""Who is best in a cell, and what is within noise: every sentence of the page is derived from these figures."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.stats import t as student_t

from ipate.accounting.gdp import mu_of
from paper.compare.kept import Kept
from paper.compare.methods import METHODS, Method
from paper.compare.outcome import Outcome
from paper.compare.worlds import BUDGETS, SPECS, Spec, delta_for
from paper.pages import Spread, spread

LEVEL = 0.95  # of the confidence interval within which two means are called a tie
STRICTEST = "everybody at the strictest ε"
COLUMNS: Mapping[str, int] = {"digits": 64, "adult": 105, **{name: 20 for name in SPECS if "synthetic" in name}}
"""The number of features of every table."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """The runs of one method in one cell; `strictest` if everybody had the smallest budget of a mix."""

    method: Method
    outcomes: Mapping[int, Outcome]
    strictest: bool = False

    @property
    def title(self) -> str:
        """The name of the row."""
        return f"{self.method.title}, {STRICTEST}" if self.strictest else self.method.title

    @cached_property
    def accuracies(self) -> dict[int, float]:
        """The accuracy on the test rows by run, of the runs that gave a model."""
        return {seed: own.accuracy for seed, own in self.outcomes.items() if own.accuracy is not None}

    @property
    def complete(self) -> bool:
        """Whether every run gave a model."""
        return bool(self.outcomes) and len(self.accuracies) == len(self.outcomes)

    @property
    def spread(self) -> Spread:
        """Mean and deviation of the accuracies."""
        return spread(self.accuracies.values())

    @property
    def outside(self) -> Spread:
        """Mean and deviation of the accuracies on all rows outside the pool."""
        return spread(own.outside for own in self.outcomes.values() if own.outside is not None)

    @property
    def groups(self) -> tuple[float, ...]:
        """The mean accuracy on the rows of every group's people, the strictest first; empty without groups."""
        found = [own.groups for own in self.outcomes.values() if own.groups is not None]
        return tuple(np.mean(found, axis=0).tolist()) if found else ()


def lead(first: Row, second: Row) -> tuple[float, float]:
    """Return the mean difference of two rows over their common runs, and half the width of its confidence interval.

    Runs of one number have the same rows, so differences are taken run by run.
    """
    common = sorted(set(first.accuracies) & set(second.accuracies))
    if not common:
        return math.nan, math.nan
    apart = np.array([first.accuracies[seed] - second.accuracies[seed] for seed in common])
    if len(common) < 2:
        return float(apart.mean()), math.nan
    quantile = float(student_t.ppf((1 + LEVEL) / 2, len(common) - 1))
    return float(apart.mean()), quantile * float(apart.std(ddof=1)) / math.sqrt(len(common))


def beats(first: Row, second: Row) -> bool:
    """Whether the first row is better beyond noise; a row with a model beats one without in every run."""
    if not first.accuracies or not second.accuracies:
        return bool(first.accuracies) and not second.accuracies and bool(second.outcomes)
    apart, noise = lead(first, second)
    return apart > noise if not math.isnan(noise) else False


def _tied(first: Row, second: Row) -> bool:
    """Whether neither row is better beyond noise; two common runs at least are needed to say so."""
    apart, noise = lead(first, second)
    return abs(apart) <= noise  # false where the noise is not known


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """All rows of one data set under one budget."""

    spec: Spec
    budget: str
    rows: tuple[Row, ...]

    @cached_property
    def best(self) -> Row | None:
        """The row of the largest mean accuracy among those that gave a model in every run."""
        given = [row for row in self.rows if row.complete]
        return max(given, key=lambda row: row.spread.mean) if given else None

    @cached_property
    def winners(self) -> tuple[Row, ...]:
        """The best row, and all that it does not beat beyond noise."""
        best = self.best
        if best is None:
            return ()
        return (best, *(row for row in self.rows if row is not best and row.complete and _tied(best, row)))

    @property
    def measured(self) -> bool:
        """Whether there is a verdict: every method that belongs here has as many runs as the others, at least two."""
        needed = {m.name for m in METHODS.values() if m.runs_on(self.spec) and self.budget in m.budgets_on(self.spec)}
        counts = [len(row.outcomes) for row in self.rows if not row.strictest]
        there = {row.method.name for row in self.rows if not row.strictest}
        return self.best is not None and needed <= there and min(counts) == max(counts) > 1

    def row(self, method: str, *, strictest: bool = False) -> Row | None:
        """Return the row of a method, None where it has no run."""
        return next((r for r in self.rows if r.method.name == method and r.strictest == strictest), None)

    @property
    def weight(self) -> float:
        """Σw/σ of ballots: how many noise deviations all people weigh together; public."""
        mix = BUDGETS[self.budget]
        mu = mu_of(np.array(mix.epsilon), delta_for(self.spec.people))
        return float(np.dot(mu, mix.shares)) * self.spec.people / math.sqrt(2)

    @property
    def per_parameter(self) -> float:
        """Σw/σ over the number of parameters of a linear model."""
        return self.weight / ((COLUMNS[self.spec.name] + 1) * CLASSES[self.spec.name])


CLASSES: Mapping[str, int] = {"digits": 10, "adult": 2, "mnist": 10, **{n: 6 for n in SPECS if "synthetic" in n}}


@dataclass(frozen=True, kw_only=True, eq=False)
class Board:
    """All cells of the comparison, from the kept results."""

    kept: Kept
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)

    @classmethod
    def of(cls, kept: Kept) -> "Board":
        """Arrange the kept results; under a mix the methods of one ε appear with the strictest one for everybody."""
        cells = {}
        for spec in SPECS.values():
            for budget in spec.budgets:
                rows = tuple(_rows(kept, spec, budget))
                if rows:
                    cells[spec.name, budget] = Cell(spec=spec, budget=budget, rows=rows)
        return cls(kept=kept, cells=cells)

    def of_data(self, spec: Spec, *, individual: bool) -> list[Cell]:
        """Return the cells of a data set with one ε for everybody, or with several."""
        own = (self.cells.get((spec.name, budget)) for budget in spec.budgets)
        return [cell for cell in own if cell is not None and BUDGETS[cell.budget].individual == individual]

    def reference(self, spec: Spec, method: str) -> Row | None:
        """Return the row of a method without privacy, None where it has no run."""
        found = self.kept.outcomes(method, spec.name, "")
        return Row(method=METHODS[method], outcomes=found) if found else None

    def judged(self) -> Iterator[Cell]:
        """Yield the cells that have a verdict."""
        return (cell for cell in self.cells.values() if cell.measured)


def _rows(kept: Kept, spec: Spec, budget: str) -> Iterator[Row]:
    mix = BUDGETS[budget]
    for method in METHODS.values():
        if not method.runs_on(spec) or method.budgets == "nobody":
            continue
        if mix.individual and method.budgets in ("all", "uniform"):
            found = kept.outcomes(method.name, spec.name, mix.strictest)
            if found:
                yield Row(method=method, outcomes=found, strictest=True)
        if budget in method.budgets_on(spec) and (found := kept.outcomes(method.name, spec.name, budget)):
            yield Row(method=method, outcomes=found)
