"""`adult-skew`: the effect of higher budgets for the underrepresented class alone."""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

from ipate.reproduce import paper
from ipate.reproduce.grid import (
    Options,
    budget_rows,
    ensembles_of,
    label_counts,
    run_votings,
    shared_ensembles,
    upsampled_ensembles,
)
from ipate.reproduce.models import TrainedModels
from ipate.reproduce.pages import Cell, Page, Spread, Table, spread
from ipate.reproduce.paper import HIGHER, LOWER, SETUPS, SKEW_SHARES, Published
from ipate.reproduce.schemes import BASELINE_BUDGETS, standard, two_groups, upsampling
from ipate.reproduce.voting import Voting

_COLUMNS = [f"{share:.0%}" for share in SKEW_SHARES]
_CLASSES = (("low incomes (the majority)", "l"), ("high incomes", "h"))  # with their letters in `paper`
Key = tuple[str, float]
ClassAccuracy = Callable[[Key, int], Spread]
_BASELINE: Key = ("baseline", 0.0)


def adult_skew(models: TrainedModels, options: Options) -> Page:
    """Reproduce the four tables of the unbalanced experiment."""
    cells = _votings(models, options)
    students = [voting.student(key) for key, votings in cells.items() for voting in votings]
    right: dict[tuple[Key, int], list[float]] = {}
    predictions = models.student_predictions(SETUPS["adult"], {"adult-skew": students})
    for key, (predicted, truth) in predictions.items():
        for one in (0, 1):
            right.setdefault((key[:2], one), []).append(100 * float(np.mean(predicted[truth == one] == one)))

    def of_teachers(key: Key, one: int) -> Spread:
        return spread(100 * ensemble.teacher_accuracy_of(one) for ensemble in ensembles_of(cells[key]))

    def of_labels(key: Key, one: int) -> Spread:
        return spread(100 * voting.accuracy_of(one) for voting in cells[key])

    def of_students(key: Key, one: int) -> Spread:
        return spread(right[key, one])

    tables = [
        _table(title, accuracy, theirs, one)
        for title, accuracy, theirs in (
            ("Teacher accuracy", of_teachers, paper.SKEW_TEACHERS),
            ("Accuracy of the labels", of_labels, paper.SKEW_VOTINGS),
            ("Student accuracy", of_students, paper.SKEW_STUDENTS),
        )
        for one in (0, 1)
    ]
    trends = {"Teachers": _trends(of_teachers), "Students": _trends(of_students)}
    return Page(
        name="adult-skew", title="Adult: budgets by class", tables=[_labels(cells), *tables],
        findings=[
            f"{name}: accuracy on high incomes rises in {up} of {steps} steps to a larger share or a "
            f"higher budget, accuracy on low incomes falls in {down} of {steps}."
            for name, (up, down, steps) in trends.items()
        ],
        about="Only people of the class with high incomes (24.8%) can have the higher budget; the columns say which "
        f"share of them has it; everybody else has ln 2. Upsampling, {len(cells[_BASELINE])} votings per setting "
        f"({options.ensembles} ensembles); the paper's account. A teacher's and a label's accuracy is measured on "
        "public points, a student's on test points.",
    )  # fmt: skip


def _votings(models: TrainedModels, options: Options) -> dict[Key, list[Voting]]:
    base = shared_ensembles("adult", options)
    specs = {
        (higher, share): upsampled_ensembles("adult", options, higher=higher, share=share, skew=True)
        for higher in HIGHER
        for share in SKEW_SHARES
    }
    models.require([*base, *(spec for own in specs.values() for spec in own)])
    cells = {_BASELINE: run_votings(models.ensembles(base), partial(standard, given=BASELINE_BUDGETS), options)}
    for (higher, share), own in specs.items():
        given = two_groups(LOWER, HIGHER[higher], share)
        cells[higher, share] = run_votings(models.ensembles(own), partial(upsampling, given=given), options)
    return cells


def _labels(cells: dict[Key, list[Voting]]) -> Table:
    theirs = paper.SKEW_LABELS

    def cell(key: Key, printed: float) -> Cell:
        return Cell(ours=label_counts(cells[key]), theirs=printed, note="a")

    rows = budget_rows(
        lambda higher, share: cell((higher, share), theirs.cells[higher, share, "N"]),
        baseline=cell(_BASELINE, theirs.baseline[0]), shares=SKEW_SHARES,
    )  # fmt: skip
    return Table(title=f"Labels; the paper's: {theirs.source}", columns=_COLUMNS, rows=rows)


def _table(title: str, accuracy: ClassAccuracy, theirs: Published, one: int) -> Table:
    """Return the table of one class."""
    name, letter = _CLASSES[one]

    def cell(key: Key, printed: float) -> Cell:
        return Cell(ours=accuracy(key, one), theirs=printed, percent=True, digits=2, note="a")

    rows = budget_rows(
        lambda higher, share: cell((higher, share), theirs.cells[higher, share, letter]),
        baseline=cell(_BASELINE, theirs.baseline[one]), name="baseline", shares=SKEW_SHARES,
    )  # fmt: skip
    pairs = [(c.ours.mean, c.theirs) for _, cells in rows for c in cells if isinstance(c, Cell)]
    worst = max(abs(ours - printed) for ours, printed in pairs if printed is not None)
    note = f"a: other forests; the cells differ by {worst:.1f} points at most."
    source = f"{title} on {name}, %; the paper's: {theirs.source}"
    return Table(title=source, columns=_COLUMNS, rows=rows, notes=[note])


def _trends(accuracy: ClassAccuracy) -> tuple[int, int, int]:
    """Count the steps to a larger share or a higher budget in which high incomes gain, and low incomes lose."""
    budgets = list(HIGHER)
    steps = [((h, a), (h, b)) for h in budgets for a, b in itertools.pairwise(SKEW_SHARES)]
    steps += [((a, s), (b, s)) for s in SKEW_SHARES for a, b in itertools.pairwise(budgets)]
    steps += [(_BASELINE, (budgets[0], SKEW_SHARES[0]))]
    up = sum(accuracy(after, 1).mean > accuracy(before, 1).mean for before, after in steps)
    down = sum(accuracy(after, 0).mean < accuracy(before, 0).mean for before, after in steps)
    return up, down, len(steps)
