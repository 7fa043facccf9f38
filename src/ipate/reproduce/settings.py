"""The paper's experiments as values: data sets, sizes, noise, budgets, each with its place in the paper."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ipate.data.dataset import Dataset
from ipate.data.partition import Partition, partition
from ipate.errors import InputError
from ipate.labelling.aggregators import Mechanism

DELTA = 1e-5  # table 'PATE Parameters'


LOWER = math.log(2)  # section 'Uniform Assignment of Privacy Budgets'


HIGHER: Mapping[str, float] = MappingProxyType({f"ln {s}": math.log(s) for s in (4, 8, 16)})


SHARES = (0.25, 0.5, 0.75)


SKEW_SHARES = (0.25, 0.5, 0.75, 1.0)  # section 'Non-Uniform Assignment of Privacy Budgets'


TABLE1: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {"34/43/23%": (0.34, 0.43, 0.23), "54/37/9%": (0.54, 0.37, 0.09)}
)
"""Table 1: the shares of people at ε = 1, 2 and 3."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One of the paper's experiments: the data's sizes and the parameters of Confident-GNMax.

    Attributes
    ----------
    name, dataset : str
    n_teachers : int
        Before upsampling scales it.
    public : int
    test : int or None
        None: the data set's official test part; MNIST then keeps its first 50,000 rows private.
    mechanism : Mechanism
    teacher : str
        A torch preset, or "forest".
    student : str
        The student's model, named likewise.
    epochs : optional
        Another length of training than the preset's.
    """

    name: str
    dataset: str
    public: int
    test: int | None
    mechanism: Mechanism
    teacher: str
    student: str = "paper-mnist"
    n_teachers: int = 250
    epochs: float | None = None


_MNIST = Mechanism(sigma=40, check_sigma=150, threshold=200)


_MADE = (
    # table 'PATE Parameters'
    Setup(name="mnist", dataset="mnist", public=9_000, test=1_000, mechanism=_MNIST, teacher="paper-mnist"),
    Setup(
        name="adult", dataset="adult", public=7_000, test=1_000, teacher="forest", student="forest",
        mechanism=Mechanism(sigma=40, check_sigma=200, threshold=300),
    ),
    # table 1: its caption gives the splits
    Setup(name="mnist-official", dataset="mnist", public=10_000, test=None, mechanism=_MNIST, teacher="paper-mnist"),
    Setup(name="svhn", dataset="svhn", public=10_000, test=None, mechanism=_MNIST, teacher="vgg", epochs=60),
    # the same net without augmentation and dropout, which the paper mentions neither: what they are worth
    Setup(
        name="svhn-plain", dataset="svhn", public=10_000, test=None, mechanism=_MNIST, teacher="vgg-plain", epochs=60
    ),
    # beyond the paper: stronger teachers under the paper's parameters, to see what teachers are worth
    Setup(name="mnist-strong", dataset="mnist", public=9_000, test=1_000, mechanism=_MNIST, teacher="small"),
    # beyond the paper: many strong teachers; σ, σ_T and T as in benchmarks/strong_teachers.py, fixed beforehand
    *(
        Setup(
            name=f"mnist-{k}", dataset="mnist", public=9_000, test=1_000, teacher="small", n_teachers=k,
            mechanism=Mechanism(sigma=0.205 * k, check_sigma=0.4 * k, threshold=0.95 * k),
        )
        for k in (1_000, 2_000)
    ),
)  # fmt: skip


SETUPS: Mapping[str, Setup] = MappingProxyType({setup.name: setup for setup in _MADE})


def split(setup: Setup, dataset: Dataset, *, seed: int) -> Partition:
    """Split a data set as the paper does: at random, or by the official parts in Table 1.

    Table 1 trains on MNIST's first 50,000 rows and keeps the other 10,000 of the training part public.
    """
    if setup.test is not None:
        return partition(dataset.n_rows, public=setup.public, test=setup.test, seed=seed)
    if dataset.test_rows is None:
        raise InputError(f"{setup.name}: the data set {dataset.name!r} has no official test part")
    if setup.dataset == "mnist":
        train = np.setdiff1d(np.arange(dataset.n_rows), dataset.test_rows)
        private: NDArray[np.int64] = train[: -setup.public]
        return Partition(private=private, public=train[-setup.public :], test=dataset.test_rows.copy())
    return partition(dataset.n_rows, public=setup.public, test=dataset.test_rows, seed=seed)
