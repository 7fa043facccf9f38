"""Posterior and confidence from released counts, against Bayes' rule written out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.naive_bayes import GaussianNB

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import GNMax, Mechanism
from ipate.engines.teachers.loop import label
from ipate.errors import InputError
from ipate.release.lesson import Lesson
from ipate.release.noise import SeededNoise
from ipate.release.results import Record
from ipate.students.confidence import confidence, guess, label_distributions, posterior
from ipate.students.student import find_student
from ledger.making import voting

VOTES = np.array([[40, 12, -3], [7, 7, 7], [-90, 400, 380]])


def bayes(votes, step, total_weight, lead):
    """P(winner j | N) from the densities of N under each winner, who leads by lead·Σw; the others have equal counts."""
    noisy, sigma = votes * step, 8 * step
    likelihood = [
        stats.norm.logpdf(noisy, loc=lead * total_weight * np.eye(len(noisy))[j], scale=sigma).sum()
        for j in range(len(noisy))
    ]
    found = np.exp(likelihood - np.max(likelihood))
    return found / found.sum()


@pytest.mark.parametrize(("step", "total_weight", "lead"), [(5.0, 250.0, 0.5), (0.25, 10.0, 0.8), (40.0, 1000.0, 1.0)])
def test_posterior_equals_bayes_rule_of_densities(step, total_weight, lead):
    wanted = [bayes(row, step, total_weight, lead) for row in VOTES]
    np.testing.assert_allclose(posterior(VOTES, step=step, total_weight=total_weight, lead=lead), wanted, rtol=1e-9)


def test_posterior_uses_the_step_of_each_query():
    steps = np.array([5.0, 2.0, 0.5])
    wanted = [bayes(row, step, 100.0, 0.5) for row, step in zip(VOTES, steps, strict=True)]
    np.testing.assert_allclose(posterior(VOTES, step=steps, total_weight=100.0), wanted, rtol=1e-9)


def test_released_label_is_the_most_probable_class():
    votes, panel = voting(50)
    run = label(votes, panel, GNMax(mechanism=Mechanism(sigma=60.0, counts=True)), Meter(), noise=SeededNoise(1))
    found = posterior(run.noisy_votes, step=run.step, total_weight=panel.total_weight)
    np.testing.assert_array_equal(found.argmax(axis=1), run.labels)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_labels_without_counts_are_taken_as_certain():
    labels, steps = np.array([0, -1, 2, 1]), np.array([5.0, 0, 0, 5.0])
    votes = np.array([[9, 1, 0], [0, 0, 0], [0, 0, 0], [1, 3, 2]])
    found = label_distributions(labels, n_classes=3, noisy_votes=votes, step=steps, total_weight=100.0)
    np.testing.assert_allclose(found[[0, 3]], posterior(votes[[0, 3]], step=5.0, total_weight=100.0))
    np.testing.assert_array_equal(found[[1, 2]], [[0, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(confidence(found), [found[0].max(), 0, 1, found[3].max()])
    np.testing.assert_array_equal(label_distributions(labels, n_classes=3)[[0, 1]], [[1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 0.0}, "step is 0 where no counts were released"),
        ({"step": np.ones(2)}, r"step has the shape \(2,\)"),
        ({"total_weight": 0.0}, "total_weight is 0.0"),
        ({"total_weight": np.inf}, "total_weight is inf"),
        ({"lead": 0.0}, "lead is 0.0"),
        ({"lead": 1.5}, "lead is 1.5"),
        ({"noisy_votes": VOTES / 2}, "noisy_votes are float64"),
        ({"noisy_votes": VOTES[0]}, r"of shape \(3,\)"),
    ],
    ids=str,
)
def test_unusable_counts_are_refused(change, message):
    given = {"noisy_votes": VOTES, "step": 5.0, "total_weight": 10.0, **change}
    with pytest.raises(InputError, match=message):
        posterior(given.pop("noisy_votes"), **given)


def test_counts_without_their_step_are_refused():
    with pytest.raises(InputError, match="without step or total_weight"):
        label_distributions([0, 1, 2], n_classes=3, noisy_votes=VOTES)
    with pytest.raises(InputError, match="there are 2 points and 3 classes"):
        label_distributions([0, 1], n_classes=3, noisy_votes=VOTES, step=np.ones(3), total_weight=1.0)


def guessed(labels, student="bayes", classes=("a", "b", "c")):
    votes, panel = voting(60)
    found = label(votes, panel, GNMax(mechanism=Mechanism(sigma=20.0)), Meter(), noise=SeededNoise(1), max_queries=12)
    found = replace(found, labels=np.asarray(labels), answered=np.asarray(labels) >= 0)
    pool = np.random.default_rng(0).normal(size=(60, 2))
    pool[found.queries] += 9.0 * np.asarray(labels)[:, None]
    chosen = find_student(student)
    lesson = Lesson(record=Record.of(found, n_public=len(pool)))
    return guess(chosen, chosen.make({}, seed=0), pool, lesson, classes=classes)


@pytest.mark.parametrize("student", ["bayes", "logistic", "graph"])
def test_guess_has_a_column_for_every_class(student):
    found = guessed([0, 2] * 6, student)
    assert found.shape == (60, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(found[:, 1], 0)
    assert (found[:12].argmax(axis=1) == [0, 2] * 6).all()


@pytest.mark.parametrize("labels", [[-1] * 12, [1] * 12, [-1, 2] * 6])
def test_guess_needs_labels_of_two_classes(labels):
    assert guessed(labels) is None


class Improper(GaussianNB):
    """Its probabilities do not sum to 1, and those of the first point are not numbers."""

    def predict_proba(self, X):
        return np.where(np.arange(len(X))[:, None] == 0, np.nan, 2 * super().predict_proba(X))


def test_improper_probabilities_of_a_student_are_scaled():
    """The labels that taught it are paid for, so that a run must not end here."""
    found = guessed([0, 1] * 6, Improper())
    np.testing.assert_allclose(found[0], 1 / 3)
    np.testing.assert_allclose(found[1:], guessed([0, 1] * 6, GaussianNB())[1:])
