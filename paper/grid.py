"""All votings of an experiment, over higher budgets, shares of people, variants, splits and seeds, and their tables."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.costs import check_costs, label_costs
from paper import experiments
from paper.experiments import BASELINE, BASELINE_BUDGETS, HIGHER, LOWER, SHARES, Budgets, Key, Published
from paper.models import Ensemble, EnsembleSpec, Student, TrainedModels
from paper.pages import Cell, Row, Spread, Table, spread
from paper.voting import PAPER, VARIANTS, MakeScheme, Scheme, Voting, answer, query_order, run_voting

_MARGIN = 1e-12  # as in `label`: it stops this much (relative) before the ledger would refuse
_CHUNK = 1024  # queries whose costs are computed at a time


@dataclass(frozen=True, kw_only=True)
class Options:
    """How many repetitions (the paper has 10 × 5), and of what."""

    ensembles: int = 3
    votings: int = 5
    quick: bool = False
    only: tuple[str, ...] = ()  # data sets; empty: all of the experiment
    row: str | None = None  # of Table 1: its shares of people; None: all rows

    def wants(self, setup: str) -> bool:
        """Whether a setup's data set is asked for."""
        return not self.only or experiments.SETUPS[setup].dataset in self.only


class PrecomputedVotings:
    """Runs votings of an ensemble as `run_voting` does, with the costs of all points computed once.

    Where teachers rotate, and for the loose and sup bounds, whose accounts fix one order each, it calls `run_voting`.
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
        labels = answer(self.ensemble, self.scheme, self.counts[order], number=number)
        stop, spent = self._stop(order, labels >= 0)
        return Voting(ensemble=self.ensemble, number=number, asked=order[:stop], labels=labels[:stop], spent=spent)

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


class Votings(tuple[Voting, ...]):
    """Votings of one setting."""

    __slots__ = ()

    @property
    def labels(self) -> Spread:
        """How many labels they gave."""
        return spread(voting.n_labels for voting in self)

    @property
    def accuracies(self) -> Spread:
        """The accuracies of their labels, in per cent."""
        return spread(100 * voting.accuracy for voting in self)

    def over(self, base: "Votings") -> Spread:
        """Return labels over those of the same voting of the same ensemble in `base`."""
        below = {(v.ensemble.spec.replicate, v.number): v.n_labels for v in base}
        return spread(v.n_labels / below[v.ensemble.spec.replicate, v.number] for v in self)

    @property
    def ensembles(self) -> list[Ensemble]:
        """Their ensembles, each once."""
        return list({voting.ensemble.spec: voting.ensemble for voting in self}.values())


def run_votings(
    ensembles: Iterable[Ensemble], make: MakeScheme, given: Budgets, options: Options, meter: Meter = PAPER
) -> Votings:
    """Run all votings of some ensembles under one variant."""
    return Votings(
        voting
        for ensemble in ensembles
        for voting in map(PrecomputedVotings(ensemble, make(ensemble, given), meter).run, range(options.votings))
    )


def shared_ensembles(setup: str, options: Options, **copied: Any) -> list[EnsembleSpec]:
    """Return the ensembles that all variants but upsampling share; `copied` describes upsampling's own."""
    return [EnsembleSpec(setup=setup, replicate=replicate, **copied) for replicate in range(options.ensembles)]


def copied_ensembles(
    setup: str, options: Options, *, shares: Sequence[float] = SHARES, skew: bool = False
) -> dict[tuple[str, float], list[EnsembleSpec]]:
    """Return upsampling's own ensembles for every setting of two groups."""
    return {
        (higher, share): shared_ensembles(setup, options, shares=(1 - share, share), copies=(1, copies), skew=skew)
        for higher, copies in experiments.COPIES.items()
        for share in shares
    }


def budget_table(
    title: str,
    variant: str,
    ours: Callable[[Key], Spread],
    theirs: Published | None,
    *,
    column: str = "",
    place: int | None = 0,
    name: str = "baseline, ln 2",
    shares: Sequence[float] = SHARES,
    notes: Sequence[str] = (),
    **looks: Any,
) -> Table:
    """Return a table with a row per higher budget, a cell per share of the people, and a last row for the baseline.

    `column` is the variant's letter in the paper's table where it has another one. `place` is that of the baseline's
    value there; None leaves its row out. `looks` are fields of the cells.
    """

    def cell(key: Key, printed: float | None) -> Cell:
        return Cell(**{"ours": ours(key), "theirs": printed, "note": "a", **looks})

    rows: list[Row] = []
    for higher in HIGHER:
        printed = [None if theirs is None else theirs.printed((higher, s, column or variant)) for s in shares]
        rows.append((higher, [cell((higher, share, variant), p) for share, p in zip(shares, printed, strict=True)]))
    if place is not None:
        baseline = cell(BASELINE, None if theirs is None else theirs.baseline[place])
        rows.append((name, [baseline, *("" for _ in shares[1:])]))
    return Table(title=title, columns=[f"{share:.0%}" for share in shares], rows=rows, notes=notes)


class Grid(dict[Key, Votings]):
    """All votings of an experiment by key; the baseline's under `BASELINE`."""

    def labels(self, key: Key) -> Spread:
        """Return how many labels a cell's votings gave."""
        return self[key].labels

    def ratio(self, key: Key) -> Spread:
        """Return a cell's labels over the mean of the baseline's on the same split."""
        base: dict[int, list[int]] = {}
        for voting in self[BASELINE]:
            base.setdefault(voting.ensemble.spec.replicate, []).append(voting.n_labels)
        return spread(v.n_labels / spread(base[v.ensemble.spec.replicate]).mean for v in self[key])

    def students(self, variants: str) -> Iterator[Student]:
        """Yield the students of all votings of some variants; the baseline is S."""
        for key, votings in self.items():
            if key[2] in variants:
                yield from (voting.student(key) for voting in votings)


def make_grid(
    models: TrainedModels,
    setup: str,
    options: Options,
    *,
    variants: str = "UVQWP",
    shares: Sequence[float] = SHARES,
    skew: bool = False,
    also: Sequence[EnsembleSpec] = (),
) -> Grid:
    """Run the votings of an experiment with two groups; `also` names ensembles that will be asked for later."""
    specs, own = shared_ensembles(setup, options), copied_ensembles(setup, options, shares=shares, skew=skew)
    models.require([*specs, *itertools.chain(*own.values()), *also])
    ensembles = models.ensembles(specs)
    grid = Grid()
    grid[BASELINE] = run_votings(ensembles, VARIANTS["S"], BASELINE_BUDGETS, options)
    for (higher, share), copied in own.items():
        given = experiments.two_groups(LOWER, HIGHER[higher], share)
        for variant in variants:
            voters = models.ensembles(copied) if variant == "U" else ensembles
            grid[higher, share, variant] = run_votings(voters, VARIANTS[variant], given, options)
        models.log(f"{setup}: votings held for {higher}, {share:.0%}")
    return grid
