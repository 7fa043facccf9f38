"""Teachers and students in PyTorch; the package needs numpy and torch alone.

`train_ensemble` trains all teachers of an ensemble at once on a GPU, or in processes on a CPU;
`Ensemble.write_votes` writes their votes on public points; `train_student` trains a student.
`train_encoder` learns features from images without labels, and `train_fixmatch` a student from the whole pool.
`FixMatchClassifier`, `TorchClassifier` and `module_classifier`, which need scikit-learn and skorch, are imported on
first use.
"""

from typing import TYPE_CHECKING, Any

from ipate.errors import InputError, TeacherFailure, TrainingError
from ipate.torch.contrastive import Encoder, train_encoder
from ipate.torch.ensemble import Ensemble, Members, Student
from ipate.torch.fixmatch import train_fixmatch
from ipate.torch.loop import Compute
from ipate.torch.nets import NETS, PRESETS, Augmentation, Net, Optimiser, Preset, single
from ipate.torch.training import train_ensemble, train_student

if TYPE_CHECKING:
    from ipate.torch.estimator import FixMatchClassifier, TorchClassifier, module_classifier

__all__ = [
    "NETS",
    "PRESETS",
    "Augmentation",
    "Compute",
    "Encoder",
    "Ensemble",
    "FixMatchClassifier",
    "InputError",
    "Members",
    "Net",
    "Optimiser",
    "Preset",
    "Student",
    "TeacherFailure",
    "TorchClassifier",
    "TrainingError",
    "module_classifier",
    "single",
    "train_encoder",
    "train_ensemble",
    "train_fixmatch",
    "train_student",
]


def __getattr__(name: str) -> Any:
    if name in ("FixMatchClassifier", "TorchClassifier", "module_classifier"):
        from ipate.torch import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
