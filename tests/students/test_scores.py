"""Notes on released labels, and scores that a majority class cannot hide."""

import numpy as np
import pytest

from ipate.students.scores import label_counts, label_notes, score


def released(**counts):
    return np.concatenate([[-1, -1], *(np.full(count, int(name[1:])) for name, count in counts.items())])


def test_labels_are_counted_by_class():
    assert label_counts(released(c0=3, c2=1), ["a", "b", "c"]) == {"a": 3, "b": 0, "c": 1}


def test_classes_without_labels_are_named():
    (note,) = label_notes(released(c0=5, c2=5), ["home", "ward", "clinic"])
    assert "the class ward: the student never predicts it" in note
    (one, _) = label_notes(released(c0=5), ["a", "b", "c"])
    assert "the classes b, c: the student never predicts them" in one


@pytest.mark.parametrize(("counts", "said"), [((289, 6), True), ((74, 26), False), ((76, 24), True)])
def test_dominant_class_is_reported(counts, said):
    notes = label_notes(released(c0=counts[0], c1=counts[1]), ["home", "readmitted"])
    assert bool(notes) is said
    if said:
        assert f"{counts[0]} of {sum(counts)} labels" in notes[0]
        assert "a student that always says home" in notes[0]


def test_fewer_labels_than_features_are_reported():
    labels = released(c0=10, c1=10)
    assert not label_notes(labels, ["a", "b"], n_features=20)
    (note,) = label_notes(labels, ["a", "b"], n_features=21)
    assert "20 labels for 21 features" in note


def test_no_labels_give_no_notes():
    assert label_notes(np.full(9, -1), ["a", "b"], n_features=3) == ()


def test_scores_show_a_useless_student():
    truth = np.array([0] * 98 + [1] * 2 + [-1] * 5)
    found = score(truth, np.zeros(105, dtype=int), ["home", "readmitted"], majority=0)
    assert found["student_accuracy"] == found["majority_accuracy"] == 0.98
    assert found["balanced_accuracy"] == 0.5
    assert found["by_class"] == {"home": 1.0, "readmitted": 0.0}


def test_baseline_says_the_majority_of_released_labels():
    truth = np.array([0, 0, 0, 1])
    assert score(truth, truth, ["a", "b"], majority=1)["majority_accuracy"] == 0.25
    assert score(truth, truth, ["a", "b"])["majority_accuracy"] == 0.75


def test_rows_without_truth_have_no_score():
    assert score(np.array([-1]), np.array([0]), ["a", "b"]) == {"student_accuracy": None}
