"""`adult-skew`: what happens where only the underrepresented class gets the higher budget."""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

from ipate.reproduce import paper
from ipate.reproduce.ensembles import Spec
from ipate.reproduce.grid import COPIES, Held, Options, shared, votings
from ipate.reproduce.paper import Published
from ipate.reproduce.results import Cell, Sheet, Table
from ipate.reproduce.schemes import standard, two, upsampling
from ipate.reproduce.settings import HIGHER, LOWER, SETUPS, SKEW_SHARES
from ipate.reproduce.voting import Spread, spread
from ipate.reproduce.workshop import Workshop

_COLUMNS = [f"{share:.0%}" for share in SKEW_SHARES]
Key = tuple[str, float]
Measure = Callable[[Key, int], Spread]
BASE: Key = ("baseline", 0.0)


def adult_skew(workshop: Workshop, options: Options) -> Sheet:
    """Reproduce the four tables of the unbalanced experiment."""
    cells = _votings(workshop, options)
    pupils = [held.pupil(key) for key, own in cells.items() for held in own]
    said = workshop.students(SETUPS["adult"], {"adult-skew": pupils})
    right: dict[tuple[Key, int], list[float]] = {}
    for key, (predicted, truth) in said.items():
        for one in (0, 1):
            own = truth == one
            right.setdefault((key[:2], one), []).append(100 * float(np.mean(predicted[own] == one)))

    def teachers(key: Key, one: int) -> Spread:
        once = {held.ensemble.spec: held.ensemble for held in cells[key]}.values()
        return spread(100 * ensemble.teacher_accuracy_of(one) for ensemble in once)

    def labels(key: Key, one: int) -> Spread:
        return spread(100 * held.voting.accuracy_of(one) for held in cells[key])

    def students(key: Key, one: int) -> Spread:
        return spread(right[key, one])

    tables = [
        _labels(cells),
        *_tables("Teacher accuracy", teachers, paper.SKEW_TEACHERS),
        *_tables("Accuracy of the labels", labels, paper.SKEW_VOTINGS),
        *_tables("Student accuracy", students, paper.SKEW_STUDENTS),
    ]
    trends = {name: _trends(measure) for name, measure in (("teachers", teachers), ("students", students))}
    return Sheet(
        name="adult-skew", title="Adult: budgets by class", tables=tables,
        findings=[
            f"{name.capitalize()}: accuracy on high incomes rises in {up} of {steps} steps to a larger share or a "
            f"higher budget, accuracy on low incomes falls in {down} of {steps}."
            for name, (up, down, steps) in trends.items()
        ],
        about="Only people of the class with high incomes (24.8%) can have the higher budget; the columns say which "
        f"share of them has it; everybody else has ln 2. Upsampling, {len(cells[BASE])} votings per setting "
        f"({options.ensembles} ensembles); the paper's account. A teacher's and a label's accuracy is measured on "
        "public points, a student's on test points.",
    )  # fmt: skip


def _votings(workshop: Workshop, options: Options) -> dict[Key, list[Held]]:
    settings = [(higher, share) for higher in HIGHER for share in SKEW_SHARES]
    specs = {
        (higher, share): [
            Spec(setup="adult", replicate=r, shares=(1 - share, share), copies=(1, COPIES[higher]), skew=True)
            for r in range(options.ensembles)
        ]
        for higher, share in settings
    }
    base = shared("adult", options)
    workshop.need([*base, *(spec for own in specs.values() for spec in own)])
    lowest = two(LOWER, LOWER, 0.5)
    cells = {BASE: votings(map(workshop.ensemble, base), partial(standard, given=lowest), options)}
    for (higher, share), own in specs.items():
        given = two(LOWER, HIGHER[higher], share)
        cells[higher, share] = votings(map(workshop.ensemble, own), partial(upsampling, given=given), options)
    return cells


def _labels(cells: dict[Key, list[Held]]) -> Table:
    rows: list[tuple[str, list[Cell | str]]] = []
    for higher in HIGHER:
        rows.append(
            (
                higher,
                [
                    Cell(
                        ours=spread(held.voting.n_labels for held in cells[higher, share]),
                        theirs=paper.SKEW_LABELS.cells[higher, share, "N"],
                        note="a",
                    )
                    for share in SKEW_SHARES
                ],
            )
        )
    ours = spread(held.voting.n_labels for held in cells[BASE])
    rows.append(("baseline, ln 2", [Cell(ours=ours, theirs=88, note="a"), "", "", ""]))
    return Table(title=f"Labels; the paper's: {paper.SKEW_LABELS.source}", columns=_COLUMNS, rows=rows)


def _tables(title: str, measure: Measure, theirs: Published) -> list[Table]:
    """Return one table per class."""
    tables = []
    for one, name, letter in ((0, "low incomes (the majority)", "l"), (1, "high incomes", "h")):
        rows: list[tuple[str, list[Cell | str]]] = [
            (
                higher,
                [
                    Cell(
                        ours=measure((higher, share), one),
                        theirs=theirs.cells[higher, share, letter],
                        percent=True,
                        digits=2,
                        note="a",
                    )
                    for share in SKEW_SHARES
                ],
            )
            for higher in HIGHER
        ]
        base = theirs.baseline[one] if isinstance(theirs.baseline, tuple) else theirs.baseline
        first = Cell(ours=measure(BASE, one), theirs=base, percent=True, digits=2, note="a")
        rows.append(("baseline", [first, "", "", ""]))
        worst = max(
            abs(cell.ours.mean - cell.theirs)
            for _, cells in rows
            for cell in cells
            if isinstance(cell, Cell) and cell.theirs is not None
        )
        note = f"a: other forests; the cells differ by {worst:.1f} points at most."
        source = f"{title} on {name}, %; the paper's: {theirs.source}"
        tables.append(Table(title=source, columns=_COLUMNS, rows=rows, notes=[note]))
    return tables


def _trends(measure: Measure) -> tuple[int, int, int]:
    """Count the steps to a larger share or a higher budget in which high incomes gain, and low incomes lose."""
    budgets = list(HIGHER)
    steps = [((h, a), (h, b)) for h in budgets for a, b in itertools.pairwise(SKEW_SHARES)]
    steps += [((a, s), (b, s)) for s in SKEW_SHARES for a, b in itertools.pairwise(budgets)]
    steps += [(BASE, (budgets[0], SKEW_SHARES[0]))]
    up = sum(measure(after, 1).mean > measure(before, 1).mean for before, after in steps)
    down = sum(measure(after, 0).mean < measure(before, 0).mean for before, after in steps)
    return up, down, len(steps)
