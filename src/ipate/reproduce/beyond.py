"""`beyond`: the paper's settings under better accounts, a releasable account, and more and stronger teachers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.reproduce import paper
from ipate.reproduce.grid import Options, ensembles_of, label_accuracies, label_counts, run_votings, shared_ensembles
from ipate.reproduce.models import Ensemble, Student, TrainedModels
from ipate.reproduce.pages import Cell, Page, Row, Spread, Table, spread
from ipate.reproduce.paper import SETUPS
from ipate.reproduce.schemes import (
    BASELINE_BUDGETS,
    THREE_GROUPS,
    TWO_GROUPS,
    Budgets,
    Scheme,
    setting_name,
    standard,
    weighting,
)
from ipate.reproduce.voting import PAPER, Voting

_EXACT, _GDP = Meter("exact", "improved"), Meter("gdp")
_COLUMNS = ("paper's account", "exact, improved, gdp weights", "ratio", "gdp, releasable", "ratio ")
_STRONG = ("mnist-1000", "mnist-2000")
_BASELINE = "baseline, ln 2"
_PAIRS: Mapping[str, Budgets] = {
    _BASELINE: BASELINE_BUDGETS, **{setting_name(*key): given for key, given in TWO_GROUPS.items()},
}  # fmt: skip
_PRINTED = {
    setting_name(*key): (paper.MNIST_LABELS.cells[*key, "W"], paper.MNIST_STUDENTS.cells[*key, "W"])
    for key in TWO_GROUPS
} | {_BASELINE: (paper.MNIST_LABELS.baseline[0], paper.MNIST_STUDENTS.baseline[0])}
"""The paper's labels and student accuracies: the final version's weighting."""
Votings = dict[tuple[str, str], list[Voting]]
"""(setup, setting) → votings."""


def beyond(models: TrainedModels, options: Options) -> Page:
    """Measure what better accounts and better teachers add."""
    parts: tuple[tuple[str, str, Mapping[str, Budgets]], ...] = (
        ("Table 1, MNIST", "mnist-official", THREE_GROUPS),
        ("Table 1, SVHN", "svhn", THREE_GROUPS),
        ("MNIST, two groups", "mnist", _PAIRS),
        ("Adult, two groups", "adult", _PAIRS),
    )
    setups = [*_STRONG, *(setup for _, setup, _ in parts)]
    models.require(spec for setup in setups for spec in shared_ensembles(setup, options))
    strong, findings = _strong(models, options)
    tables = []
    for title, setup, cases in parts:
        tables.append(_accounts(title, models.ensembles(shared_ensembles(setup, options)), cases, options))
        models.log(f"{title}: counted under three accounts")
    return Page(
        name="beyond", title="Beyond the paper: exact costs, releasable guarantees, more teachers",
        tables=[*tables, *strong], findings=[*_gains(tables), *findings],
        about="The same votes under three accounts: the paper's (tight, classic, weights in the ratio of budgets), the "
        "exact divergence with the improved conversion and gdp weights (also private: it depends on the votes), and "
        "the releasable gdp account, under which everybody has (ε, δ)-DP with their own budget. Weighting throughout; "
        f"{options.ensembles} ensembles (SVHN: {options.ensembles}) × {options.votings} votings.",
    )  # fmt: skip


def _scheme(given: Budgets, rule: str) -> Callable[[Ensemble], Scheme]:
    if len({epsilon for epsilon, _ in given.values()}) == 1:
        return partial(standard, given=given)
    return partial(weighting, given=given, rule=rule)


def _accounts(title: str, ensembles: Sequence[Ensemble], cases: Mapping[str, Budgets], options: Options) -> Table:
    rows: list[Row] = []
    for name, given in cases.items():
        paper_account, exact, gdp = (
            label_counts(run_votings(ensembles, _scheme(given, rule), options, meter))
            for rule, meter in (("proportional", PAPER), ("gdp", _EXACT), ("gdp", _GDP))
        )
        cells: list[Cell | str] = [Cell(ours=paper_account)]
        for counts in (exact, gdp):
            cells += [Cell(ours=counts), f"{counts.mean / paper_account.mean:.2f}"]
        rows.append((name, cells))
    return Table(title=f"Labels, {title}", columns=_COLUMNS, rows=rows)


def _gains(tables: Sequence[Table]) -> list[str]:
    sentences = []
    for table in tables:
        exact = [float(str(cells[2])) for _, cells in table.rows]
        gdp = [float(str(cells[4])) for _, cells in table.rows]
        sentences.append(
            f"{table.title.removeprefix('Labels, ')}: exact costs give {min(exact):.2f} to {max(exact):.2f} times the "
            f"labels of the paper's account; the releasable account {min(gdp):.2f} to {max(gdp):.2f} times."
        )
    return sentences


def _strong(models: TrainedModels, options: Options) -> tuple[list[Table], list[str]]:
    """Count labels, their accuracy and their students for 1,000 and 2,000 strong teachers, releasable."""
    votings: Votings = {}
    for setup in _STRONG:
        ensembles = models.ensembles(shared_ensembles(setup, options))
        for name, given in _PAIRS.items():
            votings[setup, name] = run_votings(ensembles, _scheme(given, "gdp"), options, _GDP)
    right = _student_accuracies(models, votings)
    tables = []
    for setup in _STRONG:
        rows: list[Row] = []
        for name in _PAIRS:
            labels, student = _PRINTED[name]
            cells: list[Cell | str] = [
                Cell(ours=label_counts(votings[setup, name])), f"{labels:,.0f}",
                Cell(ours=label_accuracies(votings[setup, name]), digits=2), Cell(ours=right[setup, name], digits=2),
                f"{student:.2f}",
            ]  # fmt: skip
            rows.append((name, cells))
        mechanism, k = SETUPS[setup].mechanism, SETUPS[setup].n_teachers
        tables.append(
            Table(
                title=f"{k:,} strong teachers, releasable gdp account, MNIST", rows=rows,
                columns=("labels", "the paper's labels", "right, %", "student, %", "the paper's student, %"),
                notes=[
                    (f"σ = {mechanism.sigma:g}, σ_T = {mechanism.check_sigma:g}, T = {mechanism.threshold:g}, fixed "
                    "before these teachers were trained; weighting by the gdp rule. The paper's figures are those of "
                    "its final weighting column, whose account is private. The pool of 9,000 points bounds the labels. "
                    f"{options.ensembles} ensembles × {options.votings} votings.")
                ],
            )
        )  # fmt: skip
    return tables, _strong_findings(votings, right)


def _student_accuracies(models: TrainedModels, votings: Votings) -> dict[tuple[str, str], Spread]:
    """Train the students, one batch per replicate: a further ensemble leaves the kept ones as they are."""
    batches: dict[str, list[Student]] = {}
    for key, own in votings.items():
        for voting in own:
            batches.setdefault(f"beyond-e{voting.ensemble.spec.replicate}", []).append(voting.student(key))
    found: dict[tuple[str, str], list[float]] = {key: [] for key in votings}
    for key, (predicted, truth) in models.student_predictions(SETUPS["mnist"], batches).items():
        found[key[:2]].append(100 * float(np.mean(predicted == truth)))
    return {key: spread(values) for key, values in found.items()}


def _strong_findings(votings: Votings, right: dict[tuple[str, str], Spread]) -> list[str]:
    sentences = []
    for setup in _STRONG:
        more = sum(label_counts(votings[setup, name]).mean > _PRINTED[name][0] for name in _PAIRS)
        gain = [(right[setup, name].mean - _PRINTED[name][1], right[setup, name].sd) for name in _PAIRS]
        better, clearly = sum(by > 0 for by, _ in gain), sum(by > sd for by, sd in gain)
        alone = spread(100 * e.teacher_accuracy for e in ensembles_of(votings[setup, _BASELINE]))
        sentences.append(
            f"{SETUPS[setup].n_teachers:,} strong teachers ({alone.mean:.1f}% right alone): under a guarantee that may "
            f"be released they give more labels than the paper's private account in {more} of {len(_PAIRS)} settings, "
            f"and better students than the paper's in {better}, in {clearly} by more than a standard deviation."
        )
    return sentences
