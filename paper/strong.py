"""`beyond`, 1,000 and 2,000 strong teachers: the paper's student, and ipate's own with the defaults of a run.

The paper's student learns from random queries with a check. ipate's students ask as many points as suits them, by
coverage of the pool, without a check, and learn from the noisy counts; the account is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.engines.base import Means
from ipate.engines.teachers.settings import TeacherOptions, TeacherSettings, choose_settings
from ipate.errors import IpateError
from ipate.students.student import STUDENTS
from paper import experiments
from paper.experiments import BASELINE_BUDGETS, SETUPS, TWO_GROUPS, Budgets, setting_name
from paper.grid import Options, Votings, run_votings, shared_ensembles
from paper.jobs import GRAPH, SEMI, Counts, Job
from paper.models import Ensemble, Student, TrainedModels, teacher_accuracy
from paper.pages import Cell, Row, Spread, Table, spread
from paper.voting import by_rule, groups_of, voting_noise, weighting

GDP = Meter("gdp")
STRONG = ("mnist-1000", "mnist-2000")
_OWN = (GRAPH, SEMI)
_BASELINE = "baseline, ln 2"
PAIRS: Mapping[str, Budgets] = {
    _BASELINE: BASELINE_BUDGETS,
    **{setting_name(*key): given for key, given in TWO_GROUPS.items()},
}
"""The baseline and the settings of two groups, by the name of their row."""
_PRINTED = {_BASELINE: (experiments.MNIST_LABELS.baseline[0], experiments.MNIST_STUDENTS.baseline[0])} | {
    setting_name(*key): (experiments.MNIST_LABELS.cells[*key, "W"], experiments.MNIST_STUDENTS.cells[*key, "W"])
    for key in TWO_GROUPS
}
"""The paper's labels and student accuracies: the final version's weighting."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnStudent:
    """One of ipate's students of one voting, as a training job."""

    setup: str
    setting: str  # a key of `PAIRS`
    job: Job

    @property
    def queries(self) -> int:
        """The number of points that it asks; each gets a label."""
        return 0 if self.job.asking is None else self.job.asking.queries


def strong_teachers(
    models: TrainedModels, options: Options, *, setups: Sequence[str] = STRONG
) -> tuple[list[Table], list[str]]:
    """Count labels, their accuracy and their students for 1,000 and 2,000 strong teachers, releasable.

    With fewer `setups`, use another cache than for all: the paper's students of all setups are trained together.
    """
    models.require(spec for setup in setups for spec in shared_ensembles(setup, options))
    votings: dict[tuple[str, str], Votings] = {}
    own: list[OwnStudent] = []
    for setup in setups:
        ensembles = models.ensembles(shared_ensembles(setup, options))
        for name, given in PAIRS.items():
            votings[setup, name] = run_votings(ensembles, partial(by_rule, rule="gdp"), given, options, GDP)
        own += own_students(models, ensembles, options)
    batches: dict[str, list[Student]] = {}  # one per replicate: a further ensemble leaves the kept ones as they are
    for key, of_setting in votings.items():
        for voting in of_setting:
            batches.setdefault(f"beyond-e{voting.ensemble.spec.replicate}", []).append(voting.student(key))
    theirs = [job for job, _ in models.student_jobs(SETUPS["mnist"], batches)]
    models.complete([*theirs, *(student.job for student in own)])
    found = models.student_accuracies("mnist", batches)
    scores = dict(zip(own, models.accuracies([student.job for student in own]), strict=True))
    tables, findings = [], []
    for setup in setups:
        right = {name: spread(found[setup, name]) for name in PAIRS}
        by_name = {name: votings[setup, name] for name in PAIRS}
        of_setup = {student: score for student, score in scores.items() if student.setup == setup}
        tables.append(_table(setup, by_name, right, of_setup, options))
        findings += [_finding(setup, by_name, right), *_own_findings(setup, right, of_setup)]
    return tables, findings


def own_students(models: TrainedModels, ensembles: Sequence[Ensemble], options: Options) -> list[OwnStudent]:
    """Return ipate's students of all votings, those of one pool after each other."""
    found = []
    for ensemble in ensembles:
        for name, given in PAIRS.items():
            panel = weighting(ensemble, given, rule="gdp").panel
            n_classes = models.dataset(ensemble.setup.dataset).n_classes
            tally = panel.tally(np.asarray(ensemble.votes), n_classes)
            for student in _OWN:
                means = Means(
                    groups=tuple(groups_of(given)),
                    n_pool=len(ensemble.truth),
                    n_classes=n_classes,
                    student=STUDENTS[student],
                )
                settings = choose_settings(TeacherOptions(number=ensemble.n_teachers), means)
                for number in range(options.votings):
                    job = _job(
                        models,
                        ensemble,
                        settings,
                        tally.counts,
                        student=student,
                        setting=name,
                        number=number,
                        total_weight=panel.total_weight,
                    )
                    found.append(OwnStudent(setup=ensemble.spec.setup, setting=name, job=job))
    return sorted(found, key=lambda student: student.job.name)


def _job(
    models: TrainedModels,
    ensemble: Ensemble,
    settings: TeacherSettings,
    counts: NDArray[Any],
    *,
    student: str,
    setting: str,
    number: int,
    total_weight: float,
) -> Job:
    """Return the training job of one student: the noisy counts of every point, and how many of them it asks for."""
    setup, replicate = ensemble.setup, ensemble.spec.replicate
    aggregator = settings.aggregator()
    outcome = aggregator.ask(
        counts,
        queries=[str(place) for place in range(len(counts))],
        noise=voting_noise(ensemble, number),
        total_weight=total_weight,
    )
    if settings.n_queries is None or outcome.noisy_votes is None:
        raise IpateError(f"the settings of the student {student!r} fix no number of queries, or release no counts")
    short = "".join(filter(str.isalnum, setting))
    return Job(
        name=f"{setup.name}-{student}-e{replicate}-v{number}-{short}",
        kind="students",
        dataset=setup.dataset,
        preset=student,
        n_classes=counts.shape[1],
        seed=1000 * replicate + number,
        offsets=np.array([0, len(counts)]),
        indices=ensemble.public,
        asked=models.partition(setup, replicate).test[None],
        pool=np.array([0]),
        counts=outcome.noisy_votes,
        asking=Counts(queries=settings.n_queries, seed=replicate, signal=total_weight / aggregator.mechanism.sigma),
    )


Scores = Mapping[OwnStudent, float]  # test accuracies in per cent, NaN where a student is not trained


def _accuracies(scores: Scores, student: str, setting: str) -> list[float]:
    return [score for own, score in scores.items() if (own.job.preset, own.setting) == (student, setting)]


def _table(
    setup: str, votings: Mapping[str, Votings], right: Mapping[str, Spread], scores: Scores, options: Options
) -> Table:
    rows: list[Row] = []
    asked = {(own.job.preset, own.setting): own.queries for own in scores}
    for name, (labels, student) in _PRINTED.items():
        cells: list[Cell | str] = [
            Cell(ours=votings[name].labels),
            f"{labels:,.0f}",
            Cell(ours=votings[name].accuracies, digits=2),
            Cell(ours=right[name], digits=2),
            f"{student:.2f}",
        ]
        for own in _OWN:
            cells += [f"{asked[own, name]:,}", Cell(ours=spread(_accuracies(scores, own, name)), digits=2)]
        rows.append((name, cells))
    mechanism = SETUPS[setup].mechanism
    note = (
        f"labels, right, student: σ = {mechanism.sigma:g}, σ_T = {mechanism.check_sigma:g}, T = "
        f"{mechanism.threshold:g}, fixed before these teachers were trained; weighting by the gdp rule. The paper's "
        "figures are those of its final weighting column, whose account is private. The pool of 9,000 points bounds "
        f"the labels. {options.ensembles} ensembles × {options.votings} votings."
    )
    return Table(
        title=f"{SETUPS[setup].n_teachers:,} strong teachers, releasable gdp account, MNIST",
        rows=rows,
        notes=[note, _OWN_NOTE, *_untrained(scores)],
        columns=(
            "labels",
            "the paper's labels",
            "right, %",
            "student, %",
            "the paper's student, %",
            *(column for own in _OWN for column in (f"labels of {own}", f"student {own}, %")),
        ),
    )


_OWN_NOTE = (
    "graph and semi: ipate's students with the defaults of `ipate run`, on the same votes and weights and under the "
    "same account. They ask other points than the paper's student: as many as suits the student (m), three quarters by "
    "coverage of the pool and the rest where the first answers leave most doubt, without a check, σ = √(2m)/q with the "
    "least μ/w of a group as q; they learn from the noisy counts, in steps of σ/8, and from the whole pool. All "
    "students of this table are tested on the same 1,000 points of each split, which no teacher and no student saw. "
    "The choice of queries has one seed per ensemble."
)


def _untrained(scores: Scores) -> list[str]:
    """Return a note on students that are missing, if there are any."""
    missing = int(np.isnan(list(scores.values())).sum())
    wanted = sum(own.job.preset == SEMI for own in scores)
    if not missing:
        return []
    note = (
        f"semi: {wanted - missing} of {wanted} students are trained, the others need a GPU (`--device cuda` or "
        "`--job-files`); a mean is over those that are there, and a dash says that none is."
    )
    return [note]


def _finding(setup: str, votings: Mapping[str, Votings], right: Mapping[str, Spread]) -> str:
    more = sum(votings[name].labels.mean > labels for name, (labels, _) in _PRINTED.items())
    gain = [(right[name].mean - student, right[name].sd) for name, (_, student) in _PRINTED.items()]
    better, clearly = sum(by > 0 for by, _ in gain), sum(by > sd for by, sd in gain)
    alone = teacher_accuracy(votings[_BASELINE].ensembles)
    return (
        f"{SETUPS[setup].n_teachers:,} strong teachers ({alone:.1f}% right alone): under a guarantee that may "
        f"be released they give more labels than the paper's private account in {more} of {len(PAIRS)} settings, "
        f"and better students than the paper's in {better}, in {clearly} by more than a standard deviation."
    )


def _own_findings(setup: str, right: Mapping[str, Spread], scores: Scores) -> list[str]:
    """Compare ipate's students with the paper's student on the same votes, where all settings have one."""
    sentences = []
    for own in _OWN:
        means = {name: spread(_accuracies(scores, own, name)).mean for name in PAIRS}
        if np.isnan(list(means.values())).any():
            continue
        better = sum(mean > right[name].mean for name, mean in means.items())
        sentences.append(
            f"{SETUPS[setup].n_teachers:,} strong teachers with the student {own}: {min(means.values()):.2f} to "
            f"{max(means.values()):.2f}% ({means[_BASELINE]:.2f}% at ln 2 for everybody), better than the paper's "
            f"student on the same votes in {better} of {len(PAIRS)} settings."
        )
    return sentences
