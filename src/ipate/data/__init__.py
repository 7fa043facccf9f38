"""Data: sets by name, files of the user's own, partition into private, public and test, public scaling."""

from ipate.data.dataset import Dataset
from ipate.data.fetch import Progress, cache_folder
from ipate.data.files import ClassesWarning, read_data
from ipate.data.partition import Partition, partition
from ipate.data.registry import DATASETS, load
from ipate.data.scaling import Scaler, images_to_float, make_scaler

__all__ = [
    "DATASETS",
    "ClassesWarning",
    "Dataset",
    "Partition",
    "Progress",
    "Scaler",
    "cache_folder",
    "images_to_float",
    "load",
    "make_scaler",
    "partition",
    "read_data",
]
