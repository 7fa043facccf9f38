"""One voting process of the paper: who votes with which weight, who pays, and when a budget is exhausted.

Budgets are given out at random, so an ensemble's teachers are exchangeable: the first ones belong to the first group.
"""

import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Integers
from ipate.accounting import loose, tight
from ipate.accounting.bounds import Meter
from ipate.allocation.participation import Participation
from ipate.engines.teachers.account import HistoryRow, account_for
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.variants import lay_out
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError, ReproductionWarning
from ipate.people.budgets import Account, Budget, Group
from ipate.release.noise import SeededNoise
from paper.experiments import DELTA, Budgets
from paper.models import Ensemble, Student

PAPER = Meter("tight", "classic")  # the paper's account, with orders 2 to 50; it is not releasable
IMPROVED = Meter("tight", "improved")  # the same bound with the conversion of Canonne, Kamath and Steinke
_ORDER_STREAM = 3  # seeds the order in which points are asked
_PEOPLE = 100_000  # shares are converted to whole people


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheme:
    """The weights and accounts of a variant, its noise, and for vanishing who takes part in which query."""

    panel: Panel
    mechanism: Mechanism
    schedule: Participation | None = None

    def with_budgets(self, epsilon: Sequence[float]) -> "Scheme":
        """Return the scheme with another ε per group, in the order of its groups."""
        groups = tuple(
            group.with_budget(Budget(own, group.delta)) for group, own in zip(self.panel.groups, epsilon, strict=True)
        )
        return replace(self, panel=replace(self.panel, groups=groups))


def standard(ensemble: Ensemble, given: Budgets, *, mechanism: Mechanism | None = None) -> Scheme:
    """Charge everybody against the smallest budget, as standard PATE must."""
    epsilon = min(value for value, _ in given.values())
    group = Account(group=Group(id="everybody", budget=Budget(epsilon, DELTA)), sensitivity=1.0)
    k = ensemble.n_teachers
    panel = Panel(groups=(group,), weights=np.ones(k), member=np.zeros(k, dtype=np.intp))
    return Scheme(panel=panel, mechanism=mechanism or ensemble.setup.mechanism)


def weighting(
    ensemble: Ensemble, given: Budgets, *, rule: str = "proportional", mechanism: Mechanism | None = None
) -> Scheme:
    """Give every teacher one group, and its votes a weight by one of the rules of weighting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReproductionWarning)
        return _laid_out("weighting", ensemble, given, mechanism=mechanism, rule=rule)


def by_rule(ensemble: Ensemble, given: Budgets, *, rule: str) -> Scheme:
    """Weight by a rule where budgets differ; where they do not, everybody is one group."""
    alike = len({epsilon for epsilon, _ in given.values()}) == 1
    return standard(ensemble, given) if alike else weighting(ensemble, given, rule=rule)


def vanishing(ensemble: Ensemble, given: Budgets, *, power: float = 4) -> Scheme:
    """Let a group's teachers vote on a fraction (ε_g/ε_max)^power of the queries; the paper's experiments have 4."""
    return _laid_out("vanishing", ensemble, given, seed=0, power=power)


def groups_of(given: Budgets) -> list[Group]:
    """Return the groups of people who have these budgets."""
    return [
        Group(id=name, budget=Budget(epsilon, DELTA), people=round(share * _PEOPLE))
        for name, (epsilon, share) in given.items()
    ]


def _laid_out(
    variant: str, ensemble: Ensemble, given: Budgets, *, mechanism: Mechanism | None = None, **options: Any
) -> Scheme:
    layout = lay_out(variant, groups=groups_of(given), n_teachers=ensemble.n_teachers, **options)
    return Scheme(
        panel=Panel.of(layout), mechanism=mechanism or ensemble.setup.mechanism, schedule=layout.participation
    )


def as_published(scheme: Scheme) -> Scheme:
    """Charge the i-th smallest weight against the i-th smallest budget, whoever has it: the published code's error."""
    groups = scheme.panel.groups
    by_weight = sorted(range(len(groups)), key=lambda place: groups[place].sensitivity)
    budget = dict(zip(by_weight, sorted(group.epsilon for group in groups), strict=True))
    return scheme.with_budgets([budget[place] for place in range(len(groups))])


def published(ensemble: Ensemble, given: Budgets, *, mechanism: Mechanism | None = None) -> Scheme:
    """Weight by Algorithm 2 and charge as the published code does: for reproduction only."""
    return as_published(weighting(ensemble, given, rule="algorithm2", mechanism=mechanism))


def upsampling(ensemble: Ensemble, given: Budgets) -> Scheme:
    """Charge the ensemble's groups of copies against the budgets in their order; noise and threshold scale with k."""
    spec, setup = ensemble.spec, ensemble.setup
    if len(spec.copies) != len(given):
        raise InputError(f"{spec.name} has {len(spec.copies)} groups of copies, and there are {len(given)} budgets")
    groups = tuple(
        Account(group=Group(id=name, budget=Budget(epsilon, DELTA)), sensitivity=float(copies))
        for (name, (epsilon, _)), copies in zip(given.items(), spec.copies, strict=True)
    )
    factor, base = ensemble.n_teachers / setup.n_teachers, setup.mechanism
    check_sigma, threshold = (base.check_sigma or 0) * factor, (base.threshold or 0) * factor
    mechanism = Mechanism(sigma=base.sigma * factor, check_sigma=check_sigma, threshold=threshold)
    return Scheme(panel=Panel(groups=groups, weights=np.ones(ensemble.n_teachers)), mechanism=mechanism)


MakeScheme: TypeAlias = Callable[[Ensemble, Budgets], Scheme]
VARIANTS: Mapping[str, MakeScheme] = MappingProxyType(
    {"S": standard, "U": upsampling, "V": vanishing, "Q": partial(vanishing, power=2), "W": weighting, "P": published}
)
"""The variants of the main experiment: S is the baseline, V and Q are vanishing with participation (ε/ε_max)⁴ and
(ε/ε_max)², W is weighting by budgets, P is weighting by Algorithm 2 and charged as published."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Voting:
    """The labels of one voting process of an ensemble."""

    ensemble: Ensemble
    number: int
    asked: NDArray[np.int64]  # positions in the ensemble's public points, in the order asked
    labels: NDArray[np.int64]  # −1 where the check failed
    spent: dict[str, float]  # ε by group id at the end

    @property
    def truth(self) -> Integers:
        """The classes of the points asked; for scoring only."""
        return self.ensemble.truth[self.asked]

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Which queries were answered."""
        return np.asarray(self.labels >= 0)

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return int(self.answered.sum())

    @property
    def accuracy(self) -> float:
        """The share of right labels; NaN where there is none."""
        return _mean(self.labels[self.answered] == self.truth[self.answered])

    def accuracy_of(self, one: int) -> float:
        """Return the share of right labels among the labelled points of one class."""
        return _mean(self.labels[self.answered & (self.truth == one)] == one)

    def student(self, key: tuple[Any, ...]) -> Student:
        """Return the student that learns from these labels."""
        replicate, rows = self.ensemble.spec.replicate, self.ensemble.public[self.asked[self.answered]]
        key = (*key, replicate, self.number)
        return Student(key=key, replicate=replicate, rows=rows, labels=self.labels[self.answered])


def _mean(right: NDArray[np.bool_]) -> float:
    return float(right.mean()) if right.size else float("nan")


def query_order(ensemble: Ensemble, number: int) -> NDArray[np.int64]:
    """Return the order in which a voting asks the public points."""
    rng = np.random.default_rng([ensemble.spec.replicate, number, _ORDER_STREAM])
    return rng.permutation(len(ensemble.truth))


def voting_noise(ensemble: Ensemble, number: int) -> SeededNoise:
    """Return the noise of a voting."""
    return SeededNoise(1000 * ensemble.spec.replicate + number)


def answer(ensemble: Ensemble, scheme: Scheme, counts: Floats, *, number: int) -> NDArray[np.int64]:
    """Answer all points of a voting, in the order of `query_order` as `counts` are; −1 where the check fails."""
    outcome = Confident(mechanism=scheme.mechanism).ask(
        counts,
        queries=[str(place) for place in query_order(ensemble, number).tolist()],
        noise=voting_noise(ensemble, number),
        total_weight=scheme.panel.total_weight,
    )
    return np.where(outcome.answered, outcome.labels, -1)


def run_voting(
    ensemble: Ensemble,
    scheme: Scheme,
    meter: Meter = PAPER,
    *,
    number: int,
    max_labels: int | None = None,
    max_queries: int | None = None,
    present: NDArray[np.bool_] | None = None,
) -> Voting:
    """Run one voting until a budget would be exceeded: by `label`, or by `rotation_costs` where teachers rotate.

    The order of points and the noise depend on the ensemble's replicate and the voting's number only, so schemes can
    be compared. `present` (teachers, points) says who takes part in which query, in place of a schedule.
    """
    order = query_order(ensemble, number)
    if present is not None or scheme.schedule is not None:
        costs = rotation_costs(ensemble, scheme, meter, number=number, present=present)
        count = costs.affordable()
        asked, labels, spent = order[:count], costs.labels[:count], costs.epsilon(count)
    else:
        done = label(
            _votes(ensemble, order),
            scheme.panel,
            Confident(mechanism=scheme.mechanism),
            meter,
            max_labels=max_labels,
            max_queries=max_queries,
            noise=voting_noise(ensemble, number),
        )
        asked, labels = order[done.queries], np.where(done.answered, done.labels, -1)
        spent = {group.id: group.cost for group in done.groups}
    return Voting(ensemble=ensemble, number=number, asked=asked, labels=labels, spent=spent)


def charge_again(
    voting: Voting, scheme: Scheme, meter: Meter = PAPER
) -> tuple[dict[str, float], dict[str, int | None], list[HistoryRow]]:
    """Charge a finished voting to the accounts of another scheme, past their budgets.

    Return each group's ε at the end, how many labels there were when its budget was exhausted (None where it was
    not), and the history of costs as rows (query, group, ε).
    """
    rows: list[HistoryRow] = []
    account = account_for(
        _votes(voting.ensemble, voting.asked),
        scheme.panel,
        scheme.mechanism,
        meter,
        answered=voting.answered.astype(np.int8),
        stopped_by="other",
        history=rows.extend,
    )
    labels = np.concatenate([[0], np.cumsum(voting.answered)])
    exhausted = {
        group.id: None if group.exhausted_at is None else int(labels[group.exhausted_at]) for group in account.groups
    }
    return {group.id: group.cost for group in account.groups}, exhausted, rows


def _votes(ensemble: Ensemble, order: NDArray[np.int64]) -> Votes:
    """Return the votes in an order of the points, each with the point's own id."""
    queries = tuple(map(str, order.tolist()))
    return Votes(votes=ensemble.votes[:, order], n_classes=ensemble.n_classes, queries=queries)


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationCosts:
    """What queries cost where teachers rotate, with all of them asked in order, past every budget."""

    panel: Panel
    meter: Meter
    labels: NDArray[np.int64]  # (queries,), −1 where the check failed
    present: NDArray[np.bool_]  # (teachers, queries)
    cost: Floats  # (queries, orders): what each query costs whoever takes part in it

    def spent(self, queries: int) -> Floats:
        """Return the cost of every account after so many queries, (teachers, orders)."""
        return np.asarray(self.present[:, :queries].astype(np.float64) @ self.cost[:queries])

    def by_group(self, queries: int) -> list[Floats]:
        """Return every group's ε after so many queries, one per account of the group."""
        epsilon, _ = self.meter.epsilon(self.spent(queries), self.panel.budgets[1])
        return [epsilon[self.panel.account_group == place] for place in range(len(self.panel.groups))]

    def epsilon(self, queries: int) -> dict[str, float]:
        """Return the largest ε among every group's accounts after so many queries."""
        return {g.id: float(own.max()) for g, own in zip(self.panel.groups, self.by_group(queries), strict=True)}

    def affordable(self) -> int:
        """Return how many queries can be asked before a budget is exceeded."""
        limit = self.meter.limit(*self.panel.budgets)

        def paid(queries: int) -> bool:
            idle = ~self.present[:, :queries].any(axis=1)
            return bool(np.all(np.any(self.spent(queries) <= limit, axis=1) | idle))

        return self._last(paid)

    def affordable_on_average(self) -> int:
        """Return how many queries fit if a group's *mean* ε is held to its budget; some teachers then overspend."""
        groups = self.panel.groups
        return self._last(
            lambda queries: all(
                own.mean() <= group.epsilon for group, own in zip(groups, self.by_group(queries), strict=True)
            )
        )

    def _last(self, paid: Callable[[int], bool]) -> int:
        """Return the largest number of queries that is paid for; costs only grow, so bisection finds it."""
        counts = range(1, self.present.shape[1] + 1)
        return bisect_left(counts, True, key=lambda queries: not paid(queries))


def rotation_costs(
    ensemble: Ensemble, scheme: Scheme, meter: Meter = PAPER, *, number: int, present: NDArray[np.bool_] | None = None
) -> RotationCosts:
    """Answer all points in a voting's order and compute what each costs under the tight bound."""
    order, mechanism = query_order(ensemble, number), scheme.mechanism
    if present is None and scheme.schedule is not None:
        present = scheme.schedule.participants(np.arange(len(order)))
    taking_part = np.asarray(present)
    tally = scheme.panel.tally(np.asarray(ensemble.votes[:, order]), ensemble.n_classes, taking_part)
    labels = answer(ensemble, scheme, tally.counts, number=number)
    scale = np.asarray(tally.scale)[:, None]
    checks = loose.check_rdp(meter.orders, sensitivity=scale, check_sigma=mechanism.check_sigma or 1.0)[:, 0]
    label_cost = tight.label_rdp(tally.counts, meter.orders, sensitivity=scale, sigma=mechanism.sigma)[:, 0]
    cost = checks + (labels >= 0)[:, None] * label_cost
    return RotationCosts(panel=scheme.panel, meter=meter, labels=labels, present=taking_part, cost=cost)
