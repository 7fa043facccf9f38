"""How sure a released label is, from the noisy counts that were released with it: post-processing, at no cost.

Bayes' rule for the stated lead a: a winner j has a·Σw votes more than each other class, every class is as likely to be
the winner, and the noise of the counts N is independent N(0, σ²). Then P(j | N) ∝ exp(a·Σw·N_j/σ²).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from ipate._types import Floats
from ipate.errors import InputError
from ipate.release.lesson import Lesson
from ipate.release.noise import STEPS
from ipate.students.student import Student, class_names, over_all_classes

LEAD = 0.5  # the winner's stated lead as a share of the total weight


def posterior(noisy_votes: ArrayLike, *, step: ArrayLike, total_weight: float, lead: float = LEAD) -> Floats:
    """Return the probability of every class, softmax(a·Σw·N/σ²), shape (queries, classes).

    Parameters
    ----------
    noisy_votes : integer array of shape (queries, classes)
        The released counts in whole multiples of `step`, as in `Labelling.noisy_votes`.
    step : float or array of shape (queries,)
        σ/8 of every query; above 0.
    total_weight : float
        Σw, the weight of all teachers (`Panel.total_weight`), a public constant.
    lead : float
        a, the lead of the winner that is assumed, as a share of Σw: above 0, at most 1.
    """
    votes, steps = np.asarray(noisy_votes), np.asarray(step, dtype=np.float64)
    if votes.ndim != 2 or votes.dtype.kind not in "iu":
        raise InputError(f"noisy_votes are {votes.dtype} of shape {votes.shape}: give integers (queries, classes)")
    if steps.shape not in ((), votes.shape[:1]):
        raise InputError(f"step has the shape {steps.shape}: give one number, or one for each of {len(votes)} queries")
    if not np.all(steps > 0):
        raise InputError("step is 0 where no counts were released: give the queries that have counts")
    if not (np.isfinite(total_weight) and total_weight > 0):
        raise InputError(f"total_weight is {total_weight}: it must be a finite number above 0")
    if not 0 < lead <= 1:
        raise InputError(f"lead is {lead}: it must be a share of the total weight, above 0 and at most 1")
    sigma = STEPS * np.broadcast_to(steps, votes.shape[:1])[:, None]
    counts = votes * (sigma / STEPS)
    return np.asarray(softmax(lead * total_weight * counts / sigma**2, axis=1))


def label_distributions(
    labels: ArrayLike,
    *,
    n_classes: int,
    noisy_votes: ArrayLike | None = None,
    step: ArrayLike | None = None,
    total_weight: float | None = None,
    lead: float = LEAD,
) -> Floats:
    """Return what is known of every point's class, shape (points, classes).

    The posterior where counts were released (`step` is above 0), certainty where there is a label alone, and zeros
    where there is none (−1). `noisy_votes` and `step` are those of a `Labelling` or a `Record`, and `total_weight` is
    needed with them.
    """
    given = np.asarray(labels)
    found = np.zeros((len(given), n_classes))
    known = np.flatnonzero(given >= 0)
    found[known, given[known]] = 1.0
    if noisy_votes is not None:
        if step is None or total_weight is None:
            raise InputError("noisy_votes are given without step or total_weight: they need both")
        votes, steps = np.asarray(noisy_votes), np.asarray(step, dtype=np.float64)
        if votes.shape != found.shape or steps.shape != given.shape:
            raise InputError(
                f"noisy_votes have the shape {votes.shape} and step {steps.shape}: there are {len(given)} points and "
                f"{n_classes} classes"
            )
        counted = np.flatnonzero(steps)
        found[counted] = posterior(votes[counted], step=steps[counted], total_weight=total_weight, lead=lead)
    return found


def guess(student: Student, model: Any, pool: Any, lesson: Lesson, *, classes: Sequence[Any]) -> Floats | None:
    """Return the probabilities at every point of the pool of a student that learnt the labels released so far.

    None where these have fewer than two classes, which teach nothing. The labels are released, so this costs nothing.
    Rows are scaled to 1, because the labels are paid for and must not be lost to a student whose rows are not (naive
    Bayes with a feature that does not vary); a row without a finite probability above 0 has equal ones.
    """
    labels = lesson.record.labels
    if np.unique(labels[labels >= 0]).size < 2:
        return None
    trained = student.learn(model, pool, lesson, classes=classes)
    seen = np.asarray(trained.classes_)
    probs = over_all_classes(trained.predict_proba(pool), seen, class_names(classes), empty=0.0)
    probs = np.where(np.isfinite(probs) & (probs > 0), probs, 0.0)
    total = probs.sum(axis=1, keepdims=True)
    equal = np.full(probs.shape, 1 / len(classes))
    return np.asarray(np.divide(probs, total, out=equal, where=total > 0))


def check_guesses(student: Student, model: Any) -> None:
    """Refuse a model that has no probabilities, which `guess` needs, before anything is charged."""
    if not hasattr(model, "predict_proba"):
        raise InputError(
            f"student is {student.name!r}: it has no probabilities (predict_proba), with which the aggregator compares "
            "the votes; choose a student that has them, such as logistic, or the aggregator confident"
        )


def confidence(distributions: Floats) -> Floats:
    """Return the probability of every point's label: the largest of its distribution, 0 without a label."""
    return np.asarray(np.max(distributions, axis=1, initial=0.0))
