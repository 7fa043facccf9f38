"""Attacks on a run with teachers: checks, labels and counts on tied votes, which the canary of each group moves.

Every made-up person's row is their number. A teacher of the class `Roll` says which people it was trained on, so its
votes show whom its training reached, whatever went wrong on the way. The votes that are labelled afterwards are tied
among all teachers that the canary does not reach: no consensus hides what the canary's own votes do.

The votes are known, and so is the exact law of an answer for every σ, or for every scale of Laplace noise. An answer
that consensus makes likely becomes less likely as σ grows: the lower limit of Clopper and Pearson for its probability
is an upper limit of σ.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin

from ipate._types import Floats, Ints
from ipate.accounting._argmax import argmax_log_law
from ipate.allocation.allocation import Allocation
from ipate.audit.auditing import Attack, Attacked, GroupAudit, Measured, Subject, Trials
from ipate.audit.canaries import MadeUp, attack_student, charging, copied
from ipate.audit.law import (
    FAR,
    Part,
    bit,
    independent,
    least_success,
    projected,
    shown_epsilon,
    uncorrelated,
    upper_limit,
    vector_epsilon,
    within_steps,
)
from ipate.engines.base import Round
from ipate.engines.context import Bar, silent
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.asking import Asking
from ipate.engines.teachers.engine import Teachers
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.settings import TeacherSettings
from ipate.engines.teachers.votes import Votes
from ipate.errors import MOST_EPSILON
from ipate.ledger.base import Ledger, MemoryLedger
from ipate.ledger.records import Terms
from ipate.people.budgets import Budget
from ipate.release.lesson import Lesson
from ipate.release.noise import STEPS
from ipate.release.results import Record

LABELS, CHECKS, ALL = "labels", "checks", "all releases"
_WIDEST = 1.0  # largest lead of an attack on labels, in deviations of a difference
_SURE = 1.3  # deviations of the noise between a count and what it is compared with, where that is possible
_AWAY = 6.0  # where the canary's row lies, in deviations of the pool's points
_ENTRIES = 40_000_000  # teachers × people whose numbers are asked
_POOL = 200_000  # largest made-up pool


class Roll(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A teacher that votes 1 on a point that is the number of a person among its rows, and 0 on all others."""

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Remember whose rows these are."""
        self.classes_ = np.unique(y)
        self.seen_ = np.unique(np.asarray(X)[:, 0])
        return self

    def predict(self, X: NDArray[Any]) -> Ints:
        """Return whether each point is the number of somebody in the rows."""
        return np.isin(np.asarray(X)[:, 0], self.seen_).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """The votes of all teachers on every query, (k,), with the canary's rows and with its rows replaced."""

    here: Ints
    there: Ints


def lean(weights: Floats, gap: float) -> Ints:
    """Return votes for the classes 0 and 1 such that 0 leads by about `gap`, as nearly as the weights permit."""
    votes, lead = np.ones(len(weights), dtype=np.int64), 0.0
    for index in np.argsort(-weights, kind="stable"):
        if lead < gap:
            votes[index] = 0
        lead += weights[index] if lead < gap else -weights[index]
    return votes


def rise(weights: Floats, top: float, n_classes: int) -> Ints:
    """Return votes in which class 0 has about `top`, and the others share the rest evenly."""
    votes, counts = np.zeros(len(weights), dtype=np.int64), np.zeros(n_classes)
    for index in np.argsort(-weights, kind="stable"):
        own = 0 if counts[0] + weights[index] / 2 <= top else 1 + int(np.argmin(counts[1:]))
        votes[index] = own
        counts[own] += weights[index]
    return votes


def label_pair(weights: Floats, canary: NDArray[np.bool_], *, gap: float) -> Pair:
    """Return tied votes (or a lead of `gap`) in which the canary's teachers vote 0, or 1 without its rows."""
    votes = lean(np.where(canary, 0.0, weights), gap)
    return Pair(here=np.where(canary, 0, votes), there=np.where(canary, 1, votes))


def check_pair(weights: Floats, canary: NDArray[np.bool_], *, top: float, n_classes: int) -> Pair:
    """Return votes whose largest count is about `top` with the canary, and smaller by its weight without it."""
    own = float(weights[canary].sum())
    rest = np.where(canary, 0.0, weights)
    votes = rise(rest, top - own, n_classes)
    counts = np.bincount(votes, weights=rest, minlength=n_classes)
    return Pair(here=np.where(canary, 0, votes), there=np.where(canary, 1 + int(np.argmin(counts[1:])), votes))


@dataclass(frozen=True, kw_only=True, eq=False)
class Charged:
    """One labelling of a copy: how many queries were asked and answered, and what its ledger charged, by account.

    Queries in which an account's teachers had no vote, because they were dropped or not their turn, do not count.
    """

    asked: Mapping[str, int]
    answered: Mapping[str, int]
    spent: Mapping[str, Floats]
    constant: bool  # whether every query had the same price


@dataclass(frozen=True, kw_only=True, eq=False)
class Copy:
    """The copy of a run: the run's engine with made-up teachers, on made-up people."""

    subject: Subject[TeacherSettings]
    where: Path
    number: Iterator[int] = field(default_factory=count)

    @cached_property
    def engine(self) -> Teachers:
        """The engine of the run, whose teachers say whom they were trained on."""
        return replace(cast("Teachers", self.subject.engine), model=Roll(), options={})

    @property
    def allocation(self) -> Allocation:
        """Who learns from whom in the copy."""
        return self.subject.allocation

    @property
    def mechanism(self) -> Mechanism:
        """The noise parameters that the run states."""
        return self.subject.settings.aggregator(self.allocation.scale).mechanism

    def folder(self) -> Path:
        """Return a new folder."""
        return self.where / f"copy-{next(self.number)}"

    def reached(self, bar: Bar = silent) -> tuple[Ints, NDArray[np.bool_]]:
        """Return people and, (k, people), which teachers' votes show that they were trained on their rows."""
        people = self.subject.people
        most = max(1, _ENTRIES // max(1, self.allocation.n_teachers))
        asked = np.arange(people.n_people)
        if len(asked) > most:
            asked = np.sort(np.random.default_rng(0).choice(asked, size=most, replace=False))
        rows = people.person_of_row.astype(np.float64)[:, None]
        task = MadeUp(
            people=people,
            X=rows,
            y=np.arange(len(rows)) % 2,
            points_=asked.astype(np.float64)[:, None],
            classes=("no", "yes"),
            seed=self.subject.config.split_seed,
        )
        run = replace(copied(self.subject, task, self.folder()), bar=bar)
        self.engine.try_out(run)
        votes = self.engine.prepare(run, Asking(first=asked))
        return asked, np.asarray(votes.votes, dtype=bool)

    def votes(self, own: Ints, n_queries: int) -> Votes:
        """Return the same votes (k,) on so many queries."""
        small = own.astype(np.int16 if self.subject.n_classes > 127 else np.int8)
        return Votes(votes=np.broadcast_to(small[:, None], (len(own), n_queries)), n_classes=self.subject.n_classes)

    def counts(self, own: Ints, n_queries: int) -> Floats:
        """Return the weighted counts of these votes, (queries, classes), as the labelling counts them."""
        votes, panel = self.votes(own, n_queries), Panel.of(self.allocation.layout)
        turns = self.allocation.participation
        if turns is None:
            counted = panel.tally(np.asarray(own)[:, None], votes.n_classes, blocs=False).counts
            return np.broadcast_to(counted, (n_queries, votes.n_classes))
        return panel.tally(np.asarray(votes.votes), votes.n_classes, turns.in_order(n_queries, None)).counts

    def run(self, n_queries: int, **changed: Any) -> Round[TeacherSettings]:
        """Return a round with so many made-up points; `changed` are another allocation or other settings."""
        task = MadeUp(
            people=self.subject.people,
            X=np.zeros((0, 1)),
            y=np.zeros(0, dtype=np.int64),
            points_=np.broadcast_to(0.0, (n_queries, 1)),
            classes=self.subject.classes,
        )
        return copied(self.subject, task, self.folder(), **changed)

    def released(self, own: Ints, run: Round[TeacherSettings], ledger: Ledger | None = None) -> Lesson:
        """Label the points of a round with these votes, on a ledger or on one in memory."""
        n_queries = run.task.shape[0]
        book = ledger or MemoryLedger(self.engine.terms(run))
        return self.engine.release(run, Asking(first=np.arange(n_queries)), self.votes(own, n_queries), book)

    def charged(self, own: Ints) -> Charged:
        """Label made-up points with these votes until the copy's own ledger stops it, or the pool ends."""
        settings = self.subject.settings
        n_pool = 2 * self.subject.n_queries + 100
        while True:
            run = self.run(n_pool if settings.n_queries is None else settings.n_queries)
            with charging(run, self.engine.terms(run), self.folder()) as ledger:
                found = self.released(own, run, ledger).record
                spent, charges = {account: ledger.spent(account) for account in ledger.terms}, ledger.charges
            if found.stopped_by != "pool" or settings.n_queries is not None or n_pool >= _POOL:
                break
            n_pool *= 4
        constant = settings.stop != "drop" and self.allocation.participation is None
        asked, answered = dict.fromkeys(spent, found.n_queries), dict.fromkeys(spent, found.n_labels)
        if not constant:
            for name in spent:
                moving = [np.broadcast_to(c.sensitivity[name], len(c.keys)) > 0 for c in charges]
                asked[name] = sum(int(part.sum()) for part in moving)
                answered[name] = sum(int((m & c.answered).sum()) for m, c in zip(moving, charges, strict=True))
        return Charged(asked=asked, answered=answered, spent=spent, constant=constant)

    @cached_property
    def terms(self) -> Mapping[str, Terms]:
        """The accounts of the copy."""
        return {entry.account.id: entry for entry in self.engine.terms(self.run(1))}

    def sampled(self, own: Ints, n_queries: int) -> Iterator[Record]:
        """Label so many queries with these votes, in as many labellings as the largest budgets need."""
        layout = self.allocation.layout
        rich = tuple(account.with_budget(Budget(MOST_EPSILON, account.delta)) for account in layout.groups)
        allocation = replace(self.allocation, layout=replace(layout, groups=rich))
        settings = replace(self.subject.settings, stop="budget", max_labels=None, n_queries=None)
        left = n_queries
        while left > 0:
            found = self.released(own, self.run(left, allocation=allocation, settings=settings)).record
            yield found
            left -= max(1, found.n_queries)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Answers to the same votes in two labellings, with the distinct counts of the votes, and which ones each had."""

    rows: Floats  # (distinct, C)
    row: NDArray[np.intp]  # (queries,)
    answered: NDArray[np.bool_]
    labels: Ints
    steps: Ints | None  # (answered, C): released counts

    @classmethod
    def draw(cls, copy: Copy, own: Ints, queries: int) -> Self:
        """Label so many queries with the same votes, half of them in one labelling and half in another."""
        found = [record for _ in range(2) for record in copy.sampled(own, queries // 2)]
        if copy.allocation.participation is None:
            rows, row = copy.counts(own, 1), np.zeros(sum(part.n_queries for part in found), dtype=np.intp)
        else:
            counts = np.concatenate([copy.counts(own, part.n_queries) for part in found])
            rows, row = np.unique(counts, axis=0, return_inverse=True)
        noisy = [part.noisy_votes[part.labels >= 0] for part in found if part.noisy_votes is not None]
        labels = np.concatenate([part.labels[: part.n_queries] for part in found])  # asked in the order of the pool
        return cls(
            rows=rows,
            row=row.ravel(),
            answered=labels >= 0,
            labels=labels,
            steps=np.concatenate(noisy) if noisy else None,
        )

    def limit(
        self,
        used: NDArray[np.bool_],
        hit: NDArray[np.bool_],
        chances: Callable[[float], Floats],
        *,
        stated: float,
        error: float,
    ) -> Measured:
        """Return an upper limit of σ from the `used` queries, in which `hit` has these chances, row by row, under σ.

        The chances of the rows that are used fall with σ. Different chances only make the number of hits less variable
        than the binomial law of their mean, for which the limits of Clopper and Pearson hold.
        """
        if not used.any():
            return Measured(kind="", stated=stated, most=stated * FAR, draws=0)
        rows, places = np.unique(self.row[used], return_inverse=True)
        times = np.bincount(places.ravel(), minlength=len(rows))
        least = least_success(int(hit[used].sum()), int(used.sum()), error=error)
        most = upper_limit(lambda sigma: float(chances(sigma)[rows] @ times) / times.sum(), least, stated)
        surprise = hit[used] - chances(stated)[self.row[used]]
        return Measured(kind="", stated=stated, most=most, draws=int(used.sum()), fresh=independent(surprise))


def measure_label(copy: Copy, *, queries: int, error: float) -> Measured:
    """Return an upper limit of σ from labels of votes in which class 0 leads by a little more than the noise.

    Under Laplace noise it is a limit of the scale.
    Where counts are released, they are measured instead: their rounding makes ties, which change the law of labels.
    """
    weights, stated, kind = copy.allocation.weights, copy.mechanism.sigma, copy.mechanism.noise
    gap = min(float(weights.sum()), math.sqrt(2) * _SURE * stated)
    own = lean(weights, gap)
    sample = Sample.draw(copy, own, queries)
    if sample.steps is not None:
        return _measure_counts(sample, sample.steps, stated=stated, error=error)
    leads = (sample.rows[:, 0] >= sample.rows[:, 1:].max(axis=1) + gap / 4)[sample.row]
    found = sample.limit(
        sample.answered & leads,
        sample.labels == 0,
        lambda sigma: np.exp(argmax_log_law(sample.rows, sigma, kind)[:, 0]),
        stated=stated,
        error=error,
    )
    return replace(found, kind="labels", noise=kind)


def _measure_counts(sample: Sample, steps: Ints, *, stated: float, error: float) -> Measured:
    """Return an upper limit of σ from how often a released count is within one deviation of the votes."""
    step = stated / STEPS
    means = sample.rows[sample.row[sample.answered]]
    off = steps - np.rint(means / step)
    least = least_success(int((np.abs(off) <= STEPS).sum()), off.size, error=error)
    most = upper_limit(lambda sigma: within_steps(sample.rows, sigma, step=step, reach=STEPS), least, stated)
    apart = all(uncorrelated(off[:, one], off[:, one + 1]) for one in range(off.shape[1] - 1))
    return Measured(kind="labels", stated=stated, most=most, draws=off.size, fresh=apart and independent(off[:, 0]))


def measure_check(copy: Copy, *, queries: int, error: float) -> Measured:
    """Return an upper limit of σ_T from checks whose largest count is far from the threshold."""
    weights, mechanism = copy.allocation.weights, copy.mechanism
    stated, threshold = float(mechanism.check_sigma or 0), float(mechanism.threshold or 0)
    total, least = float(weights.sum()), float(weights.sum()) / copy.subject.n_classes
    above = total - threshold >= threshold - least
    top = min(total, threshold + _SURE * stated) if above else max(least, threshold - _SURE * stated)
    if copy.allocation.participation is not None and total > threshold:  # unanimous votes count alike in every turn
        above, top = True, total
    sample = Sample.draw(copy, rise(weights, top, copy.subject.n_classes), queries)
    maxima = sample.rows.max(axis=1)
    side = 1 if above else -1
    found = sample.limit(
        (side * (maxima - threshold) >= abs(top - threshold) / 4)[sample.row],
        sample.answered if above else ~sample.answered,
        lambda sigma: ndtr(side * (maxima - threshold) / sigma),
        stated=stated,
        error=error,
    )
    return replace(found, kind="checks")


def attack(subject: Subject[TeacherSettings], where: Path, *, trials: Trials, bar: Bar = silent) -> Attacked:
    """Measure the noise of a run in a copy, and attack the canary of every group."""
    copy = Copy(subject=subject, where=where)
    noise = measure_noise(copy, queries=trials.draws, error=trials.error, bar=bar)
    notes = []
    if subject.settings.asks_student:
        notes.append(
            "The check compares the votes with a student in the run, and among themselves here; it costs the same."
        )
    if cast("Teachers", subject.engine).nets:
        notes.append(
            "Nets are trained in batches of their own, which the audit does not attack; its teachers are of one kind."
        )
    groups = attack_teachers(copy, noise, trials=trials, bar=bar)
    return Attacked(groups=groups, noise=noise, notes=tuple(notes))


def measure_noise(copy: Copy, *, queries: int, error: float, bar: Bar = silent) -> tuple[Measured, ...]:
    """Return upper limits of σ (of the scale under Laplace noise) and of the σ_T of a check.

    All of them are right but with probability `error`.
    """
    kinds = (measure_label, measure_check) if copy.mechanism.has_check else (measure_label,)
    found = []
    with bar("kinds of noise measured", len(kinds)) as progress:
        for done, measure in enumerate(kinds):
            found.append(measure(copy, queries=queries, error=error / len(kinds)))
            progress(done + 1)
    return tuple(found)


def find_canaries(copy: Copy, bar: Bar) -> dict[str, tuple[str, NDArray[np.bool_]]]:
    """Return, by group of consent, the id of the person whose rows reach the largest weight, and these teachers."""
    people = copy.subject.people
    asked, reached = copy.reached(bar)
    moved = copy.allocation.weights @ reached
    found = {}
    for place, group in enumerate(people.groups):
        own = np.flatnonzero((people.group_of_person[asked] == place) & (moved > 0))
        if own.size:  # a group of which everybody has withdrawn reaches nobody
            worst = own[int(np.argmax(moved[own]))]
            found[group.id] = str(people.ids[asked[worst]]), reached[:, worst]
    return found


def attack_teachers(
    copy: Copy, noise: Sequence[Measured], *, trials: Trials, bar: Bar = silent
) -> tuple[GroupAudit, ...]:
    """Attack the canary of every group; `noise` has the measured upper limits."""
    canaries = find_canaries(copy, bar)
    payer = copy.allocation.members()
    pairs = {group: pairs_of(copy, teachers) for group, (_, teachers) in canaries.items()}
    runs: dict[str, dict[str, Charged]] = {}
    with bar("groups attacked", len(pairs)) as progress:
        for done, (group, own) in enumerate(pairs.items()):
            runs[group] = {kind: copy.charged(pair.here) for kind, pair in own.items()}
            progress(done + 1)
    prices = price_list([run for own in runs.values() for run in own.values()], checks=copy.mechanism.has_check)
    limits = {measured.kind: measured.most for measured in noise}
    found = []
    for group, (person, teachers) in canaries.items():
        promised = copy.subject.promised[group]
        attacks = [
            _attack(
                copy,
                kind,
                pair,
                runs[group][kind],
                account=payer[person],
                prices=prices,
                limits=limits,
                delta=promised.delta,
            )
            for kind, pair in pairs[group].items()
        ]
        if trials.runs:
            attacks.append(attack_labels(copy, pairs[group][LABELS], trials=trials, delta=promised.delta))
        told: dict[str, Any] = {"group": group, "promised": promised.epsilon, "delta": promised.delta}
        moved = float(copy.allocation.weights[teachers].sum())
        found.append(GroupAudit(**told, teachers=int(teachers.sum()), moved=moved, attacks=tuple(attacks)))
    return tuple(found)


def pairs_of(copy: Copy, teachers: NDArray[np.bool_]) -> dict[str, Pair]:
    """Return the neighbouring votes of every attack on a canary that these teachers learnt from.

    Labels are attacked at a tie, checks where the largest count is at the threshold, and both together where class 0
    leads by so little that the canary moves the largest count as well as the label.
    """
    weights, mechanism = copy.allocation.weights, copy.mechanism
    total, own = float(weights.sum()), float(weights[teachers].sum())
    threshold = mechanism.threshold
    if threshold is None:
        return {LABELS: label_pair(weights, teachers, gap=0.0)}
    gap = min(max(0.0, 2 * threshold - total), _WIDEST * math.sqrt(2) * mechanism.sigma)
    ahead = 2 * own + float(weights.max())
    top = min(total, max(threshold, total / copy.subject.n_classes + ahead))
    return {
        LABELS: label_pair(weights, teachers, gap=gap),
        CHECKS: check_pair(weights, teachers, top=top, n_classes=copy.subject.n_classes),
        ALL: label_pair(weights, teachers, gap=max(gap, ahead)),
    }


def price_list(runs: Sequence[Charged], *, checks: bool) -> dict[str, dict[str, Floats]] | None:
    """Return what the ledger charges every account for a label and a check; None where prices vary.

    Prices are found from charges: asked·check + answered·label, over runs with different shares of answers.
    """
    if not all(run.constant for run in runs):
        return None
    found: dict[str, dict[str, Floats]] = {}
    for account in runs[0].spent:
        spent = np.stack([run.spent[account] for run in runs])
        answered = np.array([[run.answered[account]] for run in runs], dtype=np.float64)
        counted = answered
        if checks:
            counted = np.hstack([answered, [[run.asked[account]] for run in runs]])
            if np.linalg.matrix_rank(counted) < 2:
                return None
        price = np.maximum(np.linalg.lstsq(counted, spent, rcond=None)[0], 0.0)
        price = np.where(price > 1e-9 * spent.max(initial=0.0), price, 0.0)  # rounding errors of the solution
        found[account] = dict(zip((LABELS, CHECKS), price, strict=False))
    return found


def _attack(
    copy: Copy,
    kind: str,
    pair: Pair,
    run: Charged,
    *,
    account: str,
    prices: Mapping[str, Mapping[str, Floats]] | None,
    limits: Mapping[str, float],
    delta: float,
) -> Attack:
    """Return the ε that the releases of one kind, or of all kinds, show in one labelling, and what was charged."""
    here, there = _moved(copy, pair)
    asked, answered, mechanism = run.asked[account], run.answered[account], copy.mechanism
    parts, counts = [], copy.subject.settings.counts
    if kind != CHECKS and counts:
        laws = projected(float(np.linalg.norm(here - there)), limits[LABELS])
        parts.append(Part(times=answered, here=laws[0], there=laws[1]))
    elif kind != CHECKS:
        here_law, there_law = (np.exp(argmax_log_law(row, limits[LABELS], mechanism.noise)) for row in (here, there))
        parts.append(Part(times=answered, here=here_law, there=there_law))
    if kind != LABELS:
        chances = [float(ndtr((row.max() - float(mechanism.threshold or 0)) / limits[CHECKS])) for row in (here, there)]
        parts.append(Part(times=asked, here=bit(chances[0]), there=bit(chances[1])))
    cost, releases = run.spent[account], sum(part.times for part in parts)
    if kind != ALL and prices is not None:
        cost = releases * prices[account][kind]
    if kind == LABELS and counts:
        distance = math.sqrt(answered) * float(np.linalg.norm(here - there))
        reached = vector_epsilon(distance, limits[LABELS], delta=delta)
    else:
        reached = shown_epsilon(parts, delta=delta)
    return Attack(
        name="counts" if kind == LABELS and counts else kind,
        releases=releases,
        reached=reached,
        charged=copy.terms[account].epsilon(cost) if cost.any() else 0.0,
    )


def _moved(copy: Copy, pair: Pair) -> tuple[Floats, Floats]:
    """Return the counts of a query, with the canary and without; where teachers take turns, the least that it moves."""
    n_queries = 1 if copy.allocation.participation is None else copy.subject.n_queries
    here, there = copy.counts(pair.here, n_queries), copy.counts(pair.there, n_queries)
    moved = np.abs(here - there).sum(axis=1)
    place = int(np.argmin(np.where(moved > 0, moved, np.inf)))
    return here[place], there[place]


def attack_labels(copy: Copy, pair: Pair, *, trials: Trials, delta: float) -> Attack:
    """Attack the student of a run: the canary's votes go to class 0, or to class 1 without its rows."""
    subject, settings = copy.subject, copy.subject.settings
    size = 2 * subject.n_queries + 100 if settings.n_queries is None else settings.n_queries
    pool = np.random.default_rng(subject.config.split_seed).normal(size=(size, 2))
    run = copy.run(size)

    def released(label: int) -> Lesson:
        return copy.released(pair.there if label else pair.here, run)

    return attack_student(subject, pool, np.full(2, _AWAY), released, trials=trials, delta=delta)
