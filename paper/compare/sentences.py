"""What the results show, in plain sentences; every figure in them is computed from the kept runs."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from paper.compare.methods import ADD, METHODS
from paper.compare.verdicts import Board, Cell, Row, beats, lead
from paper.compare.worlds import BUDGETS, SPECS

_INDIVIDUAL = {
    "ballots": "ballots",
    "teachers": "teachers",
    "descent": "descent",
    "dpsgd": "idpsgd",
    "pate": "ipate-paper",
}
_SHORT = {
    "ballots": "ballots",
    "teachers": "teachers",
    "descent": "noisy gradient descent",
    "dpsgd": "DP-SGD",
    "idpsgd": "individual DP-SGD",
    "pate": "standard PATE",
    "ipate-paper": "Individualized PATE of the paper",
    "descent-untuned": "noisy gradient descent at one fixed setting",
    "ballots-cpu": "ballots without a GPU",
    "teachers-cpu": "teachers without a GPU",
}


def short(row: Row) -> str:
    """Return the name of a row inside a sentence or a cell of winners."""
    own = row.method
    name = f"ipate {_SHORT[own.name]}" if own.ours else _SHORT[own.name]
    return f"{name} (strictest ε)" if row.strictest else name


def headline(board: Board) -> list[str]:
    """Return the three sentences that stand beside the figure."""
    uniform = [c for c in board.judged() if not c.spec.images and not BUDGETS[c.budget].individual]
    return [*_counted(uniform), *_largest_loss(uniform), *_on_images(board)]


def findings(board: Board) -> list[str]:
    """Return all sentences of the page: those of the figure, where ipate loses and why, groups and seconds."""
    return [
        *headline(board),
        *_losses(board),
        *_why(board),
        *_no_label(board),
        *_gains(board),
        *_groups(board),
        *_relation(board),
        *_untuned(board),
    ]


def _counted(cells: Sequence[Cell]) -> list[str]:
    if not cells:
        return []
    counts = {
        name: sum(any(row.method.name == name for row in cell.winners) for cell in cells)
        for name in ("ballots", "teachers", "descent", "dpsgd", "pate")
    }
    tables = len({cell.spec.name for cell in cells})
    shown = (
        f"ipate's ballots with their defaults are the best method or within noise of it in {counts['ballots']}",
        f"ipate's teachers in {counts['teachers']}",
        f"noisy gradient descent with the best of 24 settings in {counts['descent']}",
        f"DP-SGD with the best of 8 in {counts['dpsgd']} and standard PATE in {counts['pate']}",
    )
    whole = f"On {tables} tables with one ε for everybody ({len(cells)} pairs of data set and ε, {_runs(cells)} each), "
    lacking = [
        spec.title for spec in SPECS.values() if not spec.images and spec.name not in {c.spec.name for c in cells}
    ]
    apart = f" Not counted, because not every method was run on them: {'; '.join(lacking)}." if lacking else ""
    return [whole + ", ".join(shown) + "." + apart]


def _best_ours(cell: Cell) -> Row | None:
    own = [row for row in cell.rows if row.method.ours and not row.strictest and row.complete]
    return max(own, key=lambda row: row.spread.mean) if own else None


def _largest_loss(cells: Sequence[Cell]) -> list[str]:
    lost = _lost(cells)
    won = [
        (min(lead(own, rival)[0] for rival in rivals), cell)
        for cell in cells
        if (own := _best_ours(cell)) is not None
        and (rivals := _rivals(cell))
        and all(beats(own, rival) for rival in rivals)
    ]
    if not lost and not won:
        return []
    parts = []
    if won:
        most, cell = max(won, key=lambda pair: pair[0])
        parts.append(
            f"ahead of every rival beyond noise in {len(won)} of these {len(cells)} pairs, by up to {most:.1f} points "
            f"({cell.spec.title}, ε = {cell.budget})"
        )
    if lost:
        most, cell, rival = max(((gap, cell, rival) for cell, _, rival, gap in lost), key=lambda entry: entry[0])
        parts.append(
            f"behind one in {len(lost)}, by up to {most:.1f} points ({cell.spec.title}, ε = {cell.budget}, "
            f"{short(rival)})"
        )
    return [f"The better of ipate's engines in each pair, by the test rows, is {' and '.join(parts)}."]


def _rivals(cell: Cell) -> list[Row]:
    return [row for row in cell.rows if not row.method.ours and row.complete]


def _lost(cells: Iterable[Cell]) -> list[tuple[Cell, Row, Row, float]]:
    """Return the cells in which a rival beats ipate's better engine beyond noise; of several the one furthest ahead."""
    found = []
    for cell in cells:
        own = _best_ours(cell)
        ahead = [] if own is None else [(lead(rival, own)[0], rival) for rival in _rivals(cell) if beats(rival, own)]
        if own is not None and ahead:
            most, rival = max(ahead, key=lambda pair: pair[0])
            found.append((cell, own, rival, most))
    return found


def _on_images(board: Board) -> list[str]:
    cells = [c for c in board.of_data(SPECS["mnist"], individual=False) if c.measured]
    if not cells:
        return ["MNIST was not run: its trainings need a GPU."]
    parts = []
    for name in ("ballots", "teachers", "ballots-cpu", "teachers-cpu", "dpsgd", "pate"):
        rows = [cell.row(name) for cell in cells]
        if any(row is not None for row in rows):
            shown = " / ".join(
                "–" if row is None or not row.complete else f"{row.spread.mean:.1f} ± {row.spread.sd:.1f}"
                for row in rows
            )
            ours = "ipate's " if METHODS[name].ours else ""
            parts.append(f"{ours}{_SHORT[name]} {shown}%")
    budgets = " / ".join(cell.budget for cell in cells)
    tied = [f"{' = '.join(map(short, cell.winners))} at {cell.budget}" for cell in cells if len(cell.winners) > 1]
    within = f" Within noise of the best, which is named first: {'; '.join(tied)}." if tied else ""
    shown = f"mean ± standard deviation of {_runs(cells)}: {', '.join(parts)}"
    return [f"On MNIST at ε = {budgets}, {shown}, on 1,000 test points that no training used.{within}"]


def _runs(cells: Sequence[Cell]) -> str:
    counts = sorted({len(row.outcomes) for cell in cells for row in cell.rows})
    return f"{counts[0]} runs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} runs"


def _losses(board: Board) -> list[str]:
    found = []
    for spec in SPECS.values():
        for individual in (False, True):
            cells = [cell for cell in board.of_data(spec, individual=individual) if cell.measured]
            lost = _lost(cells)
            if not lost:
                continue
            names = ", ".join(dict.fromkeys(short(rival) for _, _, rival, _ in lost))
            gaps = sorted(gap for *_, gap in lost)
            where = ", ".join(cell.budget for cell, *_ in lost)
            span = f"{gaps[0]:.1f}" if len(gaps) == 1 else f"{gaps[0]:.1f} to {gaps[-1]:.1f}"
            found.append(f"ipate loses on {spec.title} at {where}: its better engine is {span} points behind {names}.")
    return found


def _why(board: Board) -> list[str]:
    ahead: list[float] = []
    behind: list[float] = []
    for cell in board.judged():
        own, rival = cell.row("ballots"), cell.row("descent")
        if cell.spec.images or own is None or rival is None:
            continue
        if beats(own, rival):
            ahead.append(cell.per_parameter)
        elif beats(rival, own):
            behind.append(cell.per_parameter)
    found = []
    if ahead and behind:
        found.append(
            "Why, on tables: all people together weigh Σw/σ noise deviations. Where ballots beat noisy gradient "
            f"descent beyond noise ({len(ahead)} cells, mixes included), Σw/σ is {min(ahead):.3g} to {max(ahead):.3g} "
            f"times the number of parameters of a linear model, in the middle {np.median(ahead):.3g}; where they lose "
            f"({len(behind)} cells) {min(behind):.3g} to {max(behind):.3g}, in the middle {np.median(behind):.3g}. "
            "With much weight per parameter the noise is small against the gradient, and the model learns from the "
            "people's own rows, not from labels of cells."
        )
    gaps = []
    for spec in SPECS.values():
        widest, truth = board.cells.get((spec.name, "3")), board.reference(spec, "pool-truth")
        row = None if widest is None or not widest.measured else widest.row("ballots")
        if row is not None and truth is not None and row.complete:
            gaps.append(f"{spec.title} {truth.spread.mean - row.spread.mean:.1f}")
    if gaps:
        found.append(
            "Ballots name one class per cell of the pool's space, and their student learns these labels: at ε = "
            "3, where "
            "noise matters least, it is below the same student on the pool's true labels by so many points: "
            f"{'; '.join(gaps)}. This is what labels of cells cost in place of true ones."
        )
    return found


def _no_label(board: Board) -> list[str]:
    found = []
    cells = [cell for cell in board.judged() if not cell.spec.images]
    for name in ("teachers", "pate", "ipate-paper"):
        rows = [row for cell in cells if (row := cell.row(name)) is not None]
        none = sum(not row.accuracies for row in rows)
        if none:
            ours = "ipate's " if METHODS[name].ours else ""
            title = f"{ours}{_SHORT[name]}"
            found.append(
                f"{title[0].upper() + title[1:] if not ours else title} gave no model in any run of {none} of "
                f"{len(rows)} cells on tables: every label is charged to everybody, and the budgets pay for too few."
            )
    return found


def _gains(board: Board) -> list[str]:
    parts = []
    for uniform, individual in _INDIVIDUAL.items():
        gains = []
        for cell in board.judged():
            strict, own = cell.row(uniform, strictest=True), cell.row(individual)
            if strict is not None and own is not None and strict.complete and own.complete:
                gains.append(lead(own, strict)[0])
        if gains:
            parts.append(f"{_SHORT[individual]} {np.mean(gains):+.1f} ({min(gains):+.1f} to {max(gains):+.1f})")
    if not parts:
        return []
    return [
        (
            "Individual budgets against the strictest ε for everybody, mean over the cells with both and range, "
            "in points: "
            f"{'; '.join(parts)}."
        )
    ]


def _groups(board: Board) -> list[str]:
    parts = []
    for method in METHODS.values():
        gaps = [
            row.groups[-1] - row.groups[0]
            for cell in board.judged()
            if (row := cell.row(method.name)) is not None and row.groups
        ]
        if gaps and not method.name.endswith(("-cpu", "-untuned")):
            parts.append(f"{_SHORT[method.name]} {np.mean(gaps):+.1f}")
    if not parts:
        return []
    return [
        (
            "Strict people do not pay with their accuracy where this figure is near 0: accuracy on the rows of the "
            "people with the largest budget minus that on the rows of the strictest people, in points, mean over all "
            f"mixes (budgets are dealt at random): {', '.join(parts)}."
        )
    ]


def _relation(board: Board) -> list[str]:
    best = sum(cell.best is not None and cell.best.method.relation == ADD for cell in board.judged())
    return [
        (
            f"In {best} cells the best mean is that of DP-SGD or individual DP-SGD, which promise less: they "
            f"protect against "
            "adding or removing a person. For replacing a person, the relation of all other rows, the same runs "
            "promise "
            "(2ε, (1 + e^ε)·δ), by removing and then adding."
        )
    ]


def _untuned(board: Board) -> list[str]:
    gaps = _differences(board, lambda cell: (cell.row("descent"), cell.row("descent-untuned")))
    if not gaps:
        return []
    return [
        (
            "Choosing the best setting by the test rows is worth "
            f"{np.mean(gaps):.1f} points to noisy gradient descent on average, {max(gaps):.1f} at most, against "
            f"the one "
            "setting that was fixed for all data sets and budgets. Nobody can choose so in practice."
        )
    ]


def _differences(board: Board, pick: Callable[[Cell], tuple[Row | None, Row | None]]) -> list[float]:
    pairs = (pick(cell) for cell in board.judged())
    return [lead(a, b)[0] for a, b in pairs if a is not None and b is not None and a.complete and b.complete]
