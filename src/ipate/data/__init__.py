"""Loading of data sets by name."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from ipate.data.dataset import Dataset
from ipate.data.fetch import Fetch, Progress
from ipate.data.official import FASHION, MNIST, load_adult, load_digits, load_idx_set, load_svhn
from ipate.data.synthetic import load_synthetic
from ipate.errors import InputError, refuse_name, show
from ipate.files import FilePath

DATASETS: dict[str, Callable[..., Dataset]] = {
    "synthetic": load_synthetic,
    "digits": load_digits,
    "mnist": partial(load_idx_set, MNIST),
    "fashion-mnist": partial(load_idx_set, FASHION),
    "svhn": load_svhn,
    "adult": load_adult,
}
"""The loaders by name; a loader with a parameter `fetch` needs files."""

IMAGES: dict[str, tuple[int, ...]] = {
    "digits": (8, 8), "mnist": (28, 28), "fashion-mnist": (28, 28), "svhn": (32, 32, 3),
}  # fmt: skip
"""The shape of one image, for data sets of images; all others are tables."""


def load(
    name: str,
    *,
    data_dir: FilePath | None = None,
    download: bool = True,
    timeout: float = 30.0,
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Load a data set by name.

    Files are searched in `data_dir`, then in the cache (`IPATE_DATA`, else `~/.cache/ipate`), each time first in the
    subfolder `name`. Missing files are downloaded into the cache.

    Parameters
    ----------
    name : str
        "synthetic" and "digits" need no files; "mnist", "fashion-mnist", "svhn" and "adult" do.
    data_dir : path, optional
        A folder to search before the cache.
    download : bool
        Whether missing files may be downloaded.
    timeout : float
        How long to wait for a server's next bytes, in seconds.
    progress : callable, optional
        Called with a file's name, the bytes received so far, and the bytes expected.
    **options
        Options of the loader: `n_people`, `seed` and `correlation` of "synthetic"; `encoding` of "adult".

    Returns
    -------
    Dataset

    Raises
    ------
    DataUnavailableError
        The files are not cached and not downloadable; the message names them, their source and where to put them.
    InputError
        The name, an option or the contents of a file are invalid.
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
