"""What an engine releases for the student: everything in it is public as far as its record's guarantee says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.release.results import Record

Review = Callable[[Floats], Floats]  # from class probabilities at the pool to weights of the classes there


@dataclass(frozen=True, kw_only=True, eq=False)
class Lesson:
    """The labels of the pool with what is known about them, and the record of their release.

    Attributes
    ----------
    record : Record
        The labels, the cost of every group and the guarantee.
    targets : array of shape (points, classes), optional
        How likely every class is at every point, where the release says more than labels.
    weights : array of shape (points,), optional
        How much every label counts in the student's training.
    review : callable, optional
        Returns the targets of a second training from the student's own probabilities after a first one.
    arrays : mapping
        What is stored beside the labels, by name of a file: arrays by their names.
    """

    record: Record
    targets: Floats | None = None
    weights: Floats | None = None
    review: Review | None = None
    arrays: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether a test failed that leaves nothing to learn from."""
        return self.record.passed is False and not self.record.n_labels

    @property
    def confidence(self) -> Floats | None:
        """The probability of every point's label: the largest of its targets, 0 without a label."""
        return None if self.targets is None else np.asarray(np.max(self.targets, axis=1, initial=0.0))
