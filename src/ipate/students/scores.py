"""What released labels say about a student, and scores of predictions against true labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipate._types import Ints

_SHOWN = 10  # classes that a note names


def label_counts(labels: Ints, classes: Sequence[Any]) -> dict[str, int]:
    """Return the number of released labels of each class; `labels` has class ids, −1 for none."""
    counts = np.bincount(labels[labels >= 0], minlength=len(classes)).tolist()
    return dict(zip(map(str, classes), counts, strict=True))


def label_notes(labels: Ints, classes: Sequence[Any], *, n_features: int | None = None) -> tuple[str, ...]:
    """Return what a user should know about the released labels before relying on a student of them.

    The notes follow from released labels and public figures alone, so they may be published whenever the labels may.
    """
    counts = label_counts(labels, classes)
    total, notes = sum(counts.values()), []
    if not total:
        return ()
    absent = [name for name, count in counts.items() if not count]
    if absent:
        names = ", ".join(absent[:_SHOWN]) + (", …" if len(absent) > _SHOWN else "")
        one = len(absent) == 1
        notes.append(
            f"no label was released for the {'class' if one else 'classes'} {names}: the student never predicts "
            f"{'it' if one else 'them'}"
        )
    most = max(counts, key=lambda name: counts[name])
    share = counts[most] / total
    if share > (1 + 1 / len(counts)) / 2:  # closer to a single class than to equal shares
        notes.append(
            f"{counts[most]:,} of {total:,} labels ({share:.1%}) are {most}: a student that always says {most} agrees "
            f"with {share:.1%} of the labels, so judge this one by its recall of each class"
        )
    if n_features is not None and total < n_features:
        notes.append(
            f"there are {total:,} labels for {n_features:,} features: a student with fewer labels than features "
            "hardly generalises; use fewer features, a stronger regularisation, or budgets that afford more labels"
        )
    return tuple(notes)


def score(truth: Ints, predicted: Ints, classes: Sequence[str], *, majority: int | None = None) -> dict[str, Any]:
    """Return accuracy, balanced accuracy, recall by class and the majority baseline; rows of truth −1 do not count.

    The baseline always says `majority`, the class id of most released labels, or of most true labels if it is None.
    """
    known = truth >= 0
    truth, predicted = truth[known], predicted[known]
    if not len(truth):
        return {"student_accuracy": None}
    right = predicted == truth
    recall = {str(name): float(right[truth == i].mean()) for i, name in enumerate(classes) if (truth == i).any()}
    constant = int(np.bincount(truth).argmax()) if majority is None else majority
    return {
        "student_accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(list(recall.values()))),
        "majority_accuracy": float(np.mean(truth == constant)),
        "by_class": recall,
    }
