"""Attacks on a run with teachers: checks, labels and counts on tied votes, which the canary of each group moves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ipate._types import Floats
from ipate.accounting._argmax import argmax_log_law
from ipate.audit.canaries import Pair, check_pair, label_pair
from ipate.audit.law import Part, bit, projected, shown_epsilon, vector_epsilon
from ipate.audit.noise import measure_check, measure_label
from ipate.audit.student import Trials, attack_labels
from ipate.audit.subject import Attack, Charged, Copy, GroupAudit, Measured, silent
from ipate.runs.ledgers import Bar

LABELS, CHECKS, ALL = "labels", "checks", "all releases"
_WIDEST = 1.0  # largest lead of an attack on labels, in deviations of a difference


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
