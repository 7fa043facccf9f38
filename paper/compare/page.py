"""`compare`: the page of the comparison, from kept results and from what is missing and can be run here."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from paper.compare import dpsgd, tables
from paper.compare.figure import NAME, compare_figure
from paper.compare.kept import Kept
from paper.compare.methods import METHODS
from paper.compare.runs import Options, Task, missing_tasks, run_missing
from paper.compare.sentences import findings, short
from paper.compare.verdicts import Board, Cell, Row
from paper.compare.worlds import BUDGETS, SPECS, Spec
from paper.fetch import cache_folder
from paper.grid import Options as GridOptions
from paper.jobs import PendingError
from paper.models import TrainedModels
from paper.pages import Cell as Figure
from paper.pages import Page, Spread, Table, number
from paper.pages import Row as TableRow
from paper.times import announce, cores

KEPT = "compare-runs.json"
STORED = Path(__file__).parents[2] / "docs" / "results" / KEPT
"""Where the cache has no results, these are read; nothing is written there."""
_GPU_WORKERS = 7


_ABOUT = """\
ipate's two engines beside what their users would otherwise run: the same private rows, the same public pool, the same \
test rows, the same ε, and δ = min(1e-5, 1/(10·people)) everywhere. Cells are per cent right on the test rows, mean ± \
standard deviation; runs ({runs}) differ in split, noise and training. All noise is seeded, so nothing here is a \
private release.

- *ipate* has the defaults that a new user gets, the same in every cell, except that its teachers accept one label per \
class (`min_labels`), where the default refuses fewer than three. They were developed on these data sets, mostly on \
other splits (docs/ballots.md and docs/students.md of the project): no cell has settings of its own, but the defaults \
have seen such data. On MNIST with a GPU its teachers are the small net and its student is semi-supervised; \
without one they are logistic regression and the graph student. One ensemble of teachers serves all runs and budgets \
there.
- *DP-SGD* (Opacus, Poisson sampling, its PRV accountant) and *noisy gradient descent* on logistic regression have the \
best of a stated grid, chosen on the test rows of the first two runs (MNIST: of the first), in their favour: nobody \
can do that in practice. Features are scaled by the pool. *Individual DP-SGD* has a clip norm per group and is \
accounted per group; noisy gradient descent has a weight per person.
- *PATE* and *Individualized PATE of the paper* have the paper's teachers, noise and student under the releasable gdp \
account; on tables they are forests of its experiment on Adult.
- *promise if* says between which data sets the promise holds. Replacing a person is the stronger promise at the same ε.
- A row is **best** if its mean is the largest, and *tied* with the best if the 95% confidence interval of the \
difference, run by run, contains 0.
- Figures in brackets under individual budgets are per cent right on the rows of the people themselves, by group from \
the strictest to the laxest.
- *no label*: the budgets pay for no label, or for too few, and the method refuses.
- *GPU* is one NVIDIA H200 that seven processes share, *CPU* one core of a busy machine; seconds are the middle of all \
runs of the row, without what is prepared once (ensembles and features of MNIST, forests)."""


def compare(models: TrainedModels, options: GridOptions) -> Page:
    """Run what the kept results lack, as far as this machine can, and make the page."""
    file = models.cache / KEPT
    kept = Kept() if options.quick else Kept.read(file if file.is_file() else STORED)
    folder = None if models.data_dir is None else Path(models.data_dir)
    wanted = Options(quick=options.quick, data_dir=folder, places=("cpu", "gpu") if models.has_gpu else ("cpu",))
    elsewhere = missing_tasks(kept, Options(quick=options.quick, places=("gpu",)))
    problems: list[str] = []
    if missing := missing_tasks(kept, wanted):
        _say_how_long(missing, wanted, models.log)
        with tempfile.TemporaryDirectory() as new:
            problems = run_missing(
                kept,
                wanted,
                workers=_GPU_WORKERS if "gpu" in wanted.places else 1 if options.quick else cores(),
                cpu_workers=cores() if "gpu" in wanted.places else 0,
                folder=Path(new) if options.quick else cache_folder() / "paper" / "compare",
                save=lambda found: None if options.quick else found.write(file),
                log=models.log,
            )
    if elsewhere and "gpu" not in wanted.places and models.jobs is not None:
        kept.write(models.jobs / KEPT)
        raise PendingError([task.name for task in elsewhere], models.jobs)
    return make_page(kept, problems=problems, quick=options.quick)


def _say_how_long(tasks: Sequence[Task], options: Options, log: Callable[[str], None]) -> None:
    """Estimate the time of missing runs from the seconds of the stored ones, which took one core or a shared GPU."""
    if options.quick:
        return
    stored, total = Kept.read(STORED), 0.0
    for task in tasks:
        for budget in task.budgets:
            own = [outcome.seconds for outcome in stored.outcomes(task.method, task.data, budget).values()]
            total += len(task.seeds) * (float(np.median(own)) if own else 0.0)
    announce(log, f"{len(tasks)} missing runs", total / (_GPU_WORKERS if "gpu" in options.places else cores()))


def make_page(kept: Kept, *, problems: Sequence[str] = (), quick: bool = False) -> Page:
    """Make the page of kept results; the same results give the same page, byte for byte."""
    board = Board.of(kept)
    shown: list[Table] = [_winners(board)]
    for spec in SPECS.values():
        shown += _of_data(board, spec)
    shown += [_settings(board), _elsewhere()]
    return Page(
        name="compare",
        title="What you would use instead",
        about=_about(board, quick=quick),
        tables=[table for table in shown if table.rows],
        findings=[*findings(board), *_left_out(board), *problems],
        figures={NAME: compare_figure(board)} if board.cells else {},
        facts={"methods": {m.name: {"title": m.title, "neighbours": m.relation} for m in METHODS.values()}},
    )


def _about(board: Board, *, quick: bool) -> str:
    counts = {spec.name: _runs(board, spec) for spec in SPECS.values()}
    stated = ", ".join(f"{SPECS[name].title}: {n}" for name, n in counts.items() if n)
    text = _ABOUT.format(runs=stated)
    return "This is a quick try on small parts of the data: its figures mean nothing.\n\n" + text if quick else text


def _runs(board: Board, spec: Spec) -> int:
    return max(
        (len(row.outcomes) for (data, _), c in board.cells.items() if data == spec.name for row in c.rows), default=0
    )


def _winners(board: Board) -> Table:
    rows: list[TableRow] = []
    for budget in BUDGETS:
        cells = [board.cells.get((spec.name, budget)) for spec in SPECS.values()]
        if any(cell is not None and cell.measured for cell in cells):
            rows.append((budget, [_winner(cell) for cell in cells]))
    return Table(
        title="Who is best",
        columns=[spec.title for spec in SPECS.values()],
        rows=rows,
        notes=["The best first, then all that are tied with it; no correction for the number of comparisons."],
    )


def _winner(cell: Cell | None) -> str:
    if cell is None or not cell.measured:
        return "–"
    return " = ".join(short(row) for row in cell.winners)


def _of_data(board: Board, spec: Spec) -> list[Table]:
    found = []
    notes = _references(board, spec)
    for individual, what in ((False, "one ε for everybody"), (True, "individual budgets")):
        cells = board.of_data(spec, individual=individual)
        order = list(METHODS)
        every = {row.title: row for cell in cells for row in cell.rows}
        titles = sorted(every, key=lambda title: (order.index(every[title].method.name), not every[title].strictest))
        rows: list[TableRow] = []
        for title in titles:
            own = [next((row for row in cell.rows if row.title == title), None) for cell in cells]
            first = next(row for row in own if row is not None)
            extra = [_seconds(own), _where(own), first.method.relation]
            rows.append((title, [*(_text(row, cell) for row, cell in zip(own, cells, strict=True)), *extra]))
        columns = [*(cell.budget for cell in cells), "seconds", "ran on", "promise if"]
        if rows:
            found.append(Table(title=f"{spec.title}: {what}", columns=columns, rows=rows, notes=notes))
    if spec.images:
        found += _outside(board, spec)
    return found


def _references(board: Board, spec: Spec) -> list[str]:
    parts = [
        f"{row.method.title.removeprefix('without privacy, ')} {_spread(row.spread)}%"
        for name in ("ceiling", "pool-truth", "pool-truth-cpu")
        if (row := board.reference(spec, name)) is not None
    ]
    return [f"Without privacy, ipate's student: {'; '.join(parts)}."] if parts else []


def _spread(value: Spread) -> str:
    return Figure(ours=value, digits=1).text()


def _text(row: Row | None, cell: Cell) -> str:
    """Return a cell: bold if best, with a star if tied, with the accuracy of every group in brackets."""
    if row is None:
        return "–"
    if not row.accuracies:
        return tables.REFUSED
    text = _spread(row.spread)
    if not row.complete:
        return f"{text}, {tables.REFUSED} in {len(row.outcomes) - len(row.accuracies)} of {len(row.outcomes)}"
    if cell.measured and row is cell.best:
        text = f"**{text}**"
    elif cell.measured and row in cell.winners:
        text = f"{text} *tied*"
    groups = " / ".join(number(value, 1) for value in row.groups)
    return f"{text} ({groups})" if groups and not row.strictest else text


def _seconds(rows: Iterable[Row | None]) -> str:
    """Return the middle of the seconds of all runs of a row."""
    every = [own.seconds for row in rows if row is not None for own in row.outcomes.values()]
    value = float(np.median(every)) if every else float("nan")
    return number(value, 0 if value >= 10 else 1)


def _where(rows: Iterable[Row | None]) -> str:
    return ", ".join(dict.fromkeys(own.where for row in rows if row is not None for own in row.outcomes.values()))


def _outside(board: Board, spec: Spec) -> list[Table]:
    """Return the accuracy of students that saw no private row, on all rows outside the pool."""
    cells = [board.cells[spec.name, budget] for budget in spec.budgets if (spec.name, budget) in board.cells]
    names = [m for m in METHODS if any((r := c.row(m)) is not None and r.outside.n for c in cells)]
    rows: list[TableRow] = [
        (METHODS[name].title, [_spread(row.outside) if (row := c.row(name)) else "–" for c in cells]) for name in names
    ]
    title = f"{spec.title}: students that saw no private row, on the 61,000 points outside the pool"
    return [Table(title=title, columns=[cell.budget for cell in cells], rows=rows)] if rows else []


def _settings(board: Board) -> Table:
    """Return the settings that were chosen, with the grids in the notes."""
    rows: list[TableRow] = []
    for spec in SPECS.values():
        for budget in spec.budgets:
            cell = board.cells.get((spec.name, budget))
            if cell is None:
                continue
            found = {
                name: next(iter(row.outcomes.values())).note
                for name in ("dpsgd", "idpsgd", "descent")
                if (row := cell.row(name)) is not None
            }
            if found:
                chosen = found.get("dpsgd") or found.get("idpsgd") or "–"
                rows.append((f"{spec.title}, {budget}", [chosen, found.get("descent", "–")]))
    of_tables = "; ".join(setting.name for setting in dpsgd.TABLES)
    of_images = "; ".join(s.name.removeprefix("cnn16, ") for s in dpsgd.IMAGES if s.model == "cnn16")
    return Table(
        title="Settings chosen for the rivals",
        columns=["DP-SGD, individual DP-SGD", "noisy gradient descent"],
        rows=rows,
        notes=[
            f"The grid of DP-SGD on tables, with momentum .9 for the MLP of 32 tanh units: {of_tables}.",
            f"On images, momentum .9, a tanh CNN of 16 and one of 32 filters, each with: {of_images}.",
            (
                "The grid of noisy gradient descent, clip .2, mean of the last half of the steps: 10, 30 or 100 steps; "
                "rate .5, 2, 8 or 32; features standardised or whitened by the pool."
            ),
        ],
    )


def _elsewhere() -> Table:
    rows: list[TableRow] = [
        ("DPSUR: Fu et al., 2024", ["1 / 2 / 3", "97.93 / 98.70 / 98.88", "disputed accounting (arXiv 2606.04384)"]),
        ("ScatterNet features: Tramèr and Boneh, ICLR 2021", ["3", "98.7", "add or remove"]),
        ("PATE: Papernot et al., ICLR 2018", ["1.97", "98.5", "data-dependent account, itself private"]),
        ("LP-2ST: Ghazi et al., NeurIPS 2021", ["1 / 2", "95.82 / 98.78", "protects labels only"]),
        ("RKNN: arXiv 2207.13253, its code", [".1 (pure)", "99.1", "the best epoch by test accuracy"]),
    ]
    return Table(
        title="MNIST, measured elsewhere",
        columns=["ε", "accuracy, %", "remark"],
        rows=rows,
        notes=["As their authors state them; other splits, pools, δ and accounts. None of it was run here."],
    )


def _left_out(board: Board) -> list[str]:
    lacking = [
        f"{method.title} on {spec.title}"
        for spec in SPECS.values()
        for method in METHODS.values()
        if method.runs_on(spec)
        and any(data == spec.name for data, _ in board.cells)
        and not any(board.kept.outcomes(method.name, spec.name, budget) for budget in method.budgets_on(spec))
    ]
    lacking += [spec.title for spec in SPECS.values() if not any(data == spec.name for data, _ in board.cells)]
    found = [f"Not run: {'; '.join(lacking)}."] if lacking else []
    later = (
        "MNIST with a GPU was run before the features of the student semi were trained for longer; docs/torch.md of "
        "the project has its later figures, on 61,000 points."
    )
    return [*found, later, "SVHN was not run: there was no time for its trainings."]
