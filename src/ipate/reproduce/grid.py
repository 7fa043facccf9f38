"""All votings of an experiment: over higher budgets, shares of people, variants, splits and seeds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.labelling.aggregators import Confident
from ipate.labelling.costs import check_costs, label_costs
from ipate.reproduce.models import Ensemble, EnsembleSpec, Student, TrainedModels
from ipate.reproduce.pages import Cell, Row, Spread, spread
from ipate.reproduce.paper import COPIES, HIGHER, SHARES
from ipate.reproduce.schemes import (
    BASELINE_BUDGETS,
    TWO_GROUPS,
    Scheme,
    published,
    standard,
    upsampling,
    vanishing,
    weighting,
)
from ipate.reproduce.voting import PAPER, Voting, query_order, run_voting, voting_noise

Key: TypeAlias = tuple[str, float, str]
"""(higher budget, share of the people who have it, variant)."""
BASELINE: Key = ("baseline", 0.0, "S")
COLUMNS = [f"{share:.0%}" for share in SHARES]
_MARGIN = 1e-12  # as in `label`: it stops this much (relative) before the ledger would refuse
_CHUNK = 1024  # queries whose costs are computed at a time


@dataclass(frozen=True, kw_only=True)
class Options:
    """How many repetitions; the paper has 10 × 5."""

    ensembles: int = 3
    votings: int = 5


class PrecomputedVotings:
    """Runs many votings of an ensemble fast: votes and costs of all points are computed once.

    The results are those of `run_voting`, which is called where teachers rotate and for the loose and sup bounds,
    whose accounts fix one order each.
    """

    def __init__(self, ensemble: Ensemble, scheme: Scheme, meter: Meter) -> None:
        self.ensemble, self.scheme, self.meter = ensemble, scheme, meter
        self.by_loop = scheme.schedule is not None or (meter.data_independent and meter.bound != "gdp")
        if not self.by_loop:
            self._compute_costs()

    def _compute_costs(self) -> None:
        """Count votes and costs of all points, in their own order."""
        panel, mechanism = self.scheme.panel, self.scheme.mechanism
        counts, checks, labels = [], [], []
        for start in range(0, len(self.ensemble.truth), _CHUNK):
            tally = panel.tally(np.asarray(self.ensemble.votes[:, start : start + _CHUNK]), self.ensemble.n_classes)
            shape = (len(tally.counts), len(panel.groups), self.meter.width)
            own = check_costs(self.meter, mechanism, panel, tally, tally.counts.max(axis=1))
            counts.append(tally.counts)
            checks.append(np.broadcast_to(own, shape))
            labels.append(np.broadcast_to(label_costs(self.meter, mechanism, panel, tally), shape))
        self.counts, self.checks, self.labels = map(np.concatenate, (counts, checks, labels))

    def run(self, number: int) -> Voting:
        """Run one voting."""
        if self.by_loop:
            return run_voting(self.ensemble, self.scheme, self.meter, number=number)
        order = query_order(self.ensemble, number)
        outcome = Confident(mechanism=self.scheme.mechanism).ask(
            self.counts[order], queries=[str(place) for place in order.tolist()],
            noise=voting_noise(self.ensemble, number), total_weight=self.scheme.panel.total_weight,
        )  # fmt: skip
        stop, spent = self._stop(order, outcome.answered)
        labels = np.where(outcome.answered, outcome.labels, -1)[:stop]
        return Voting(ensemble=self.ensemble, number=number, asked=order[:stop], labels=labels, spent=spent)

    def _stop(self, order: NDArray[np.int64], answered: NDArray[np.bool_]) -> tuple[int, dict[str, float]]:
        """Return how many queries are asked before one that could overspend a budget, and ε by group then."""
        panel = self.scheme.panel
        epsilon, delta = panel.budgets
        limit = self.meter.limit(epsilon, delta) * (1 - _MARGIN)
        spent = np.zeros((len(panel.groups), self.meter.width))
        stop = len(order)
        for start in range(0, len(order), _CHUNK):
            rows = order[start : start + _CHUNK]
            checks, labels = self.checks[rows], self.labels[rows]
            paid = checks + answered[start : start + _CHUNK, None, None] * labels
            running = spent + np.cumsum(paid, axis=0)
            exceeded = ~np.any(running - paid + checks + labels <= limit, axis=2).all(axis=1)
            if exceeded.any():
                first = int(np.argmax(exceeded))
                stop, spent = start + first, running[first - 1] if first else spent
                break
            spent = running[-1]
        found, _ = self.meter.epsilon(spent, delta)
        return stop, {group.id: float(found[place]) for place, group in enumerate(panel.groups)}


def run_votings(
    ensembles: Iterable[Ensemble], scheme_of: Callable[[Ensemble], Scheme], options: Options, meter: Meter = PAPER
) -> list[Voting]:
    """Run all votings of some ensembles; `scheme_of` makes an ensemble's scheme."""
    return [
        voting
        for ensemble in ensembles
        for voting in map(PrecomputedVotings(ensemble, scheme_of(ensemble), meter).run, range(options.votings))
    ]


def label_counts(votings: Iterable[Voting]) -> Spread:
    """Return the spread of the numbers of labels."""
    return spread(voting.n_labels for voting in votings)


def label_accuracies(votings: Iterable[Voting]) -> Spread:
    """Return the spread of the labels' accuracies in per cent."""
    return spread(100 * voting.accuracy for voting in votings)


def ensembles_of(votings: Iterable[Voting]) -> list[Ensemble]:
    """Return the ensembles of some votings, each once."""
    return list({voting.ensemble.spec: voting.ensemble for voting in votings}.values())


def shared_ensembles(setup: str, options: Options) -> list[EnsembleSpec]:
    """Return the ensembles that all variants but upsampling share."""
    return [EnsembleSpec(setup=setup, replicate=replicate) for replicate in range(options.ensembles)]


def upsampled_ensembles(
    setup: str, options: Options, *, higher: str, share: float, skew: bool = False
) -> list[EnsembleSpec]:
    """Return upsampling's own ensembles for one setting of two groups."""
    return [
        EnsembleSpec(setup=setup, replicate=r, shares=(1 - share, share), copies=(1, COPIES[higher]), skew=skew)
        for r in range(options.ensembles)
    ]


def budget_rows(
    cell: Callable[[str, float], Cell],
    *,
    baseline: Cell | None = None,
    name: str = "baseline, ln 2",
    shares: Sequence[float] = SHARES,
) -> list[Row]:
    """Return a row per higher budget with a cell per share, then the baseline's."""
    rows: list[Row] = [(higher, [cell(higher, share) for share in shares]) for higher in HIGHER]
    if baseline is not None:
        rows.append((name, [baseline, *("" for _ in shares[1:])]))
    return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """All votings of an experiment by key; the baseline's under `BASELINE`."""

    setup: str
    cells: dict[Key, list[Voting]] = field(default_factory=dict)

    def labels(self, key: Key) -> Spread:
        """Return how many labels a cell's votings gave."""
        return label_counts(self.cells[key])

    def ratio(self, key: Key) -> Spread:
        """Return a cell's labels over the mean of the baseline's on the same split."""
        base: dict[int, list[int]] = {}
        for voting in self.cells[BASELINE]:
            base.setdefault(voting.ensemble.spec.replicate, []).append(voting.n_labels)
        return spread(v.n_labels / spread(base[v.ensemble.spec.replicate]).mean for v in self.cells[key])

    def students(self, variants: str) -> Iterator[Student]:
        """Yield the students of all votings of some variants; the baseline is S."""
        for key, votings in self.cells.items():
            if key[2] in variants:
                yield from (voting.student(key) for voting in votings)


def make_grid(
    models: TrainedModels, setup: str, options: Options, *, variants: str, also: Sequence[EnsembleSpec] = ()
) -> Grid:
    """Run the votings of the main experiment.

    Variants: U upsampling, V and Q vanishing with participation (ε/ε_max)⁴ and (ε/ε_max)², W weighting by budgets,
    P weighting by Algorithm 2 and charged as published. `also` names ensembles that will be asked for later.
    """
    specs = shared_ensembles(setup, options)
    ups = {key: upsampled_ensembles(setup, options, higher=key[0], share=key[1]) for key in TWO_GROUPS}
    models.require([*specs, *(spec for own in ups.values() for spec in own), *also])
    ensembles = models.ensembles(specs)
    makers: dict[str, Callable[..., Scheme]] = {
        "U": upsampling, "V": vanishing, "Q": partial(vanishing, power=2), "W": weighting, "P": published,
    }  # fmt: skip
    grid = Grid(setup=setup)
    grid.cells[BASELINE] = run_votings(ensembles, partial(standard, given=BASELINE_BUDGETS), options)
    for (higher, share), given in TWO_GROUPS.items():
        for variant in variants:
            voters = models.ensembles(ups[higher, share]) if variant == "U" else ensembles
            scheme_of = partial(makers[variant], given=given)
            grid.cells[higher, share, variant] = run_votings(voters, scheme_of, options)
        models.log(f"{setup}: votings held for {higher}, {share:.0%}")
    return grid
