"""What this package raises on purpose; the tree's root needs the standard library alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipate.errors import InputError, IpateError

if TYPE_CHECKING:
    from ipate.torch.ensemble import Ensemble

__all__ = ["InputError", "TeacherFailure", "TrainingError"]


@dataclass(frozen=True, kw_only=True)
class TeacherFailure:
    """A teacher that could not be trained: its index, the rows it should have learnt from, and why."""

    teacher: int
    points: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.points[:8])) + (", …" if len(self.points) > 8 else "")
        return f"teacher {self.teacher} ({len(self.points)} points: {shown}): {self.reason}"


class TrainingError(IpateError, RuntimeError):
    """Some teachers failed; the others are trained and not lost.

    Attributes
    ----------
    failures : tuple of TeacherFailure
    ensemble : Ensemble
        All teachers; those that failed vote the fixed class.
    """

    def __init__(self, failures: Sequence[TeacherFailure], ensemble: "Ensemble") -> None:
        self.failures = tuple(failures)
        self.ensemble = ensemble
        rest = f"; and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
        named = "; ".join(str(failure) for failure in self.failures[:3])
        super().__init__(f"{len(self.failures)} of {ensemble.n_teachers} teachers failed: {named}{rest}")
