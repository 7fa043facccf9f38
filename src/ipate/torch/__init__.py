"""Teachers and students in PyTorch; imports with numpy and torch alone.

`train_ensemble` trains all teachers of an ensemble at once on a GPU, or in processes on a CPU;
`Ensemble.write_votes` writes what they say about public points; `train_student` trains a student.
`TorchClassifier` (needs scikit-learn) and `module_classifier` (needs skorch) are loaded when asked for.
"""

from typing import TYPE_CHECKING, Any

from ipate.errors import InputError, TeacherFailure, TrainingError
from ipate.torch.compute import Compute
from ipate.torch.ensemble import Ensemble
from ipate.torch.nets import NETS, Members, Net, single
from ipate.torch.presets import PRESETS, Augmentation, Optimiser, Preset
from ipate.torch.student import Student, train_student
from ipate.torch.training import train_ensemble

if TYPE_CHECKING:
    from ipate.torch.estimator import TorchClassifier, module_classifier

__all__ = [
    "NETS",
    "PRESETS",
    "Augmentation",
    "Compute",
    "Ensemble",
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
    "train_ensemble",
    "train_student",
]


def __getattr__(name: str) -> Any:
    if name == "TorchClassifier":
        from ipate.torch.estimator import TorchClassifier

        return TorchClassifier
    if name == "module_classifier":
        from ipate.torch.estimator import module_classifier

        return module_classifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
