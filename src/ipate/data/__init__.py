"""Data sets by name."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ipate.data.adult import load_adult
from ipate.data.dataset import Dataset
from ipate.data.fetch import Fetch, Progress
from ipate.data.images import FASHION, MNIST, load_idx_set, load_svhn
from ipate.data.synthetic import load_synthetic
from ipate.errors import InputError, refuse_name, show
from ipate.files import FilePath


def _digits() -> Dataset:
    """Load scikit-learn's 1,797 digits of 8 × 8 pixels; they come with the library."""
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    return Dataset(
        name="digits",
        X=(pixels.reshape(-1, 8, 8) / 16).astype(np.float32),
        y=y.astype(np.int64),
        classes=tuple("0123456789"),
        kind="image",
        notes=("Pixels from 0 to 16 are divided by 16.",),
        source="E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI (1998), by scikit-learn",
        licence="CC BY 4.0",
    )


def _mnist(fetch: Fetch) -> Dataset:
    return load_idx_set(MNIST, fetch)


def _fashion(fetch: Fetch) -> Dataset:
    return load_idx_set(FASHION, fetch)


DATASETS: Final[Mapping[str, Callable[..., Dataset]]] = MappingProxyType(
    {
        "synthetic": load_synthetic,
        "digits": _digits,
        "mnist": _mnist,
        "fashion-mnist": _fashion,
        "svhn": load_svhn,
        "adult": load_adult,
    }
)
"""The loaders by name; one that takes a `Fetch` first needs files."""


def load(
    name: str,
    *,
    data_dir: FilePath | None = None,
    download: bool = True,
    timeout: float = 30.0,
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Load a data set by its name.

    Files are looked for in `data_dir`, then in the cache (see `cache_folder`), in both first in a subfolder of
    the set's name; what is not there is downloaded into the cache, unless `download` is off.

    Parameters
    ----------
    name
        "synthetic" and "digits" need no files; "mnist", "fashion-mnist", "svhn" and "adult" do.
    timeout
        The longest silence of a server, in seconds.
    progress
        Called with a file's name, the bytes that have arrived, and the bytes there will be.
    **options
        The loader's own: `n_people`, `seed` and `correlation` of "synthetic"; `encoding` of "adult".

    Raises
    ------
    DataUnavailableError
        The files are neither here nor to be had; the message names them, their source and where they belong.
    InputError
        A name, an option or a file's contents cannot be used.
    """
    if name not in DATASETS:
        refuse_name("dataset", name, DATASETS)
    loader = DATASETS[name]
    parameters = inspect.signature(loader).parameters
    allowed = [parameter for parameter in parameters if parameter != "fetch"]
    for option in options:
        if option not in allowed:
            known = f"its options are {', '.join(allowed)}" if allowed else "it has no options"
            raise InputError(f"option {show(option)} is unknown to {name!r}: {known}")
    fetch = Fetch(data_dir=data_dir, download=download, timeout=timeout, progress=progress)
    return loader(fetch, **options) if "fetch" in parameters else loader(**options)
