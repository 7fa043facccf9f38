"""Loading of data sets by name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipate.data.dataset import Dataset
from ipate.data.digits import load_digits
from ipate.data.synthetic import load_synthetic
from ipate.errors import InputError, show, unknown_name


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set by name.

    Attributes
    ----------
    load : callable
        Returns the `Dataset`; it takes its options by keyword.
    shape : tuple of int
        The shape of one image; empty for a table.
    """

    load: Callable[..., Dataset]
    shape: tuple[int, ...] = ()


DATASETS: dict[str, Source] = {
    "synthetic": Source(load=load_synthetic),
    "digits": Source(load=load_digits, shape=(8, 8)),
}
"""The data sets by name; another one is added with `DATASETS[name] = Source(load=function)`."""
_OTHERS = (
    "the data sets of the paper (mnist, fashion-mnist, svhn, adult) are in the folder paper of ipate's repository: "
    "python -m paper --help"
)


def load(name: str, **options: Any) -> Dataset:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        "synthetic", "digits", or the name of a data set that was added to `ipate.data.DATASETS`.
    **options
        Options of the data set: `n_people`, `seed` and `correlation` of "synthetic".

    Returns
    -------
    Dataset

    Raises
    ------
    InputError
        The name or an option is invalid.
    """
    if name not in DATASETS:
        raise InputError(f"{unknown_name('dataset', name, DATASETS)}; {_OTHERS}")
    loader = DATASETS[name].load
    allowed = list(inspect.signature(loader).parameters)
    for option in options:
        if option not in allowed:
            known = f"its options are {', '.join(allowed)}" if allowed else "it has no options"
            raise InputError(f"option {show(option)} is unknown to {name!r}: {known}")
    return loader(**options)
