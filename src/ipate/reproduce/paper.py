"""The paper's experiments as data: its budgets, sizes and noise, and the figures that it prints.

The paper: F. Boenisch, C. Mühl, R. Rinberg, J. Ihrig, A. Dziedzic, "Individualized PATE: Differentially Private
Machine Learning with Individual Privacy Guarantees", PETS 2023. Every value names the table or section of the source
that it comes from. Vanishing's figures appear only in tables that are commented out in the source and in an earlier
version of the MNIST table.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
COPIES: Mapping[str, int] = MappingProxyType({"ln 4": 2, "ln 8": 3, "ln 16": 4})
"""Copies of people with the higher budget: its ratio to ln 2, as in the paper's 'Details of Upsampling'."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One of the paper's experiments: the sizes of its data, the parameters of Confident-GNMax, and its models."""

    name: str
    dataset: str
    public: int
    test: int | None  # None: the official test part; MNIST then keeps its first 50,000 rows private
    mechanism: Mechanism
    teacher: str  # a torch preset, or "forest"
    student: str = "paper-mnist"  # named likewise
    n_teachers: int = 250  # before upsampling scales it
    epochs: float | None = None  # None: as long as the preset says


_MNIST = Mechanism(sigma=40, check_sigma=150, threshold=200)
_SETUPS = (
    # table 'PATE Parameters'
    Setup(name="mnist", dataset="mnist", public=9_000, test=1_000, mechanism=_MNIST, teacher="paper-mnist"),
    Setup(
        name="adult", dataset="adult", public=7_000, test=1_000, teacher="forest", student="forest",
        mechanism=Mechanism(sigma=40, check_sigma=200, threshold=300),
    ),
    # Table 1: its caption gives the splits
    Setup(name="mnist-official", dataset="mnist", public=10_000, test=None, mechanism=_MNIST, teacher="paper-mnist"),
    Setup(name="svhn", dataset="svhn", public=10_000, test=None, mechanism=_MNIST, teacher="vgg", epochs=60),
    # the same net without augmentation and dropout, neither of which the paper mentions: measures their effect
    Setup(
        name="svhn-plain", dataset="svhn", public=10_000, test=None, mechanism=_MNIST, teacher="vgg-plain", epochs=60
    ),
    # beyond the paper: stronger teachers under the paper's parameters, to measure the effect of the teachers
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
SETUPS: Mapping[str, Setup] = MappingProxyType({setup.name: setup for setup in _SETUPS})

Cells = Mapping[tuple[str, float, str], float]
"""(higher budget, share of the people who have it, variant) → value."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table of the paper: where it is printed, its cells and its baseline."""

    source: str
    cells: Cells
    baseline: tuple[float, ...]  # one value, or accuracy on low and on high incomes


def per_cell(shares: tuple[float, ...], variants: str, rows: tuple[tuple[float, ...], ...]) -> Cells:
    """Read a table as printed: one row per higher budget, with the variants of every share."""
    keys = [(higher, share, variant) for higher in HIGHER for share in shares for variant in variants]
    return MappingProxyType(dict(zip(keys, itertools.chain(*rows), strict=True)))


MNIST_LABELS = Published(
    source="table 'Number of labels returned by individualized PATE', with vanishing as in its commented-out twin",
    baseline=(257,),
    cells=per_cell(
        SHARES, "UVW",
        (
            (158, 25, 433, 237, 67, 492, 326, 157, 564),
            (231, 22, 474, 414, 84, 890, 636, 285, 1163),
            (308, 28, 648, 623, 115, 1239, 1038, 477, 1787),
        ),
    ),
)  # fmt: skip
MNIST_EARLY_LABELS = Published(
    source="the same table, 'version before our reweighting algo', commented out",
    baseline=(99,),
    cells=per_cell(
        SHARES, "UVW",
        (
            (158, 25, 158, 237, 67, 239, 326, 157, 326),
            (231, 0, 229, 414, 84, 414, 636, 285, 638),
            (308, 0, 308, 623, 115, 623, 1038, 477, 1041),
        ),
    ),
)  # fmt: skip
MNIST_STUDENTS = Published(
    source="table 'Student accuracy per individualization (MNIST)'",
    baseline=(88.70,),
    cells=per_cell(
        SHARES, "UW",
        (
            (92.32, 93.26, 92.52, 93.08, 94.38, 93.70),
            (93.12, 88.94, 94.48, 94.68, 96.20, 95.74),
            (93.96, 90.24, 96.38, 96.32, 96.90, 96.60),
        ),
    ),
)  # fmt: skip
MNIST_EARLY_STUDENTS = Published(
    source="the same table, the version commented out above it",
    baseline=(84.51,),
    cells=per_cell(
        SHARES, "UVW",
        (
            (88.68, 60.18, 88.21, 90.44, 78.83, 90.78, 91.94, 88.58, 91.70),
            (90.56, 0, 90.40, 92.44, 82.42, 92.34, 93.30, 90.84, 93.39),
            (91.57, 0, 91.39, 93.56, 85.85, 93.27, 94.31, 92.78, 94.28),
        ),
    ),
)  # fmt: skip
ADULT_LABELS = Published(
    source="table 'Number of labels generated per individualization (Adult)'",
    baseline=(88,),
    cells=per_cell(
        SHARES, "UW",
        ((140, 139, 202, 203, 272, 273), (198, 198, 346, 349, 541, 543), (264, 259, 530, 530, 868, 872)),
    ),
)  # fmt: skip
ADULT_STUDENTS = Published(
    source="table 'Student accuracy per individualization (Adult)', with vanishing as in its commented-out twin",
    baseline=(79.85,),
    cells=per_cell(
        SHARES, "UVW",
        (
            (81.02, 76.17, 80.87, 81.76, 78.62, 81.76, 82.16, 80.70, 82.26),
            (81.79, 75.73, 81.67, 82.52, 79.32, 82.60, 82.87, 82.09, 82.89),
            (82.30, 75.31, 82.25, 82.82, 79.97, 82.84, 83.07, 82.72, 83.04),
        ),
    ),
)  # fmt: skip
SKEW_LABELS = Published(
    source="table 'Labels generated per unbalanced individualization (Adult)'",
    baseline=(88,),
    cells=per_cell(SKEW_SHARES, "N", ((90, 95, 101, 109), (93, 108, 132, 162), (96, 129, 172, 225))),
)
# l and h: accuracy on low incomes (the majority) and on high incomes
SKEW_STUDENTS = Published(
    source="table 'Per-group student accuracy for unbalanced individualization (Adult)'",
    baseline=(98.01, 24.78),
    cells=per_cell(
        SKEW_SHARES, "lh",
        (
            (95.93, 36.77, 93.11, 45.93, 90.13, 54.74, 86.24, 63.39),
            (93.25, 45.91, 86.82, 62.25, 80.57, 72.61, 77.91, 77.36),
            (90.42, 54.00, 80.74, 72.68, 76.68, 79.42, 73.82, 83.59),
        ),
    ),
)  # fmt: skip
SKEW_TEACHERS = Published(
    source="table 'Per-group teacher and voting accuracy', part 'Teacher Accuracy'",
    baseline=(92.55, 48.82),
    cells=per_cell(
        SKEW_SHARES, "lh",
        (
            (90.08, 56.05, 87.75, 61.70, 85.58, 66.24, 83.62, 69.68),
            (87.74, 61.73, 83.57, 69.84, 79.99, 75.46, 76.86, 79.44),
            (85.58, 66.12, 79.93, 75.48, 75.48, 81.01, 71.57, 84.79),
        ),
    ),
)  # fmt: skip
SKEW_VOTINGS = Published(
    source="table 'Per-group teacher and voting accuracy', part 'Voting Accuracy'",
    baseline=(97.13, 46.29),
    cells=per_cell(
        SKEW_SHARES, "lh",
        (
            (95.21, 55.99, 93.02, 64.11, 91.24, 68.93, 88.59, 74.11),
            (93.19, 64.11, 88.71, 73.91, 84.42, 81.14, 81.41, 85.23),
            (91.02, 68.55, 84.47, 81.36, 79.99, 86.49, 75.32, 90.22),
        ),
    ),
)  # fmt: skip
TABLE1_LABELS: Mapping[tuple[str, str], tuple[tuple[float, float], ...]] = MappingProxyType(
    {
        ("mnist-official", "34/43/23%"): ((365, 2), (1333, 1), (1312, 8)),
        ("mnist-official", "54/37/9%"): ((361, 3), (949, 18), (1894, 10)),
        ("svhn", "34/43/23%"): ((90, 1), (394, 5), (409, 3)),
        ("svhn", "54/37/9%"): ((96, 2), (284, 1), (558, 1)),
    }
)
"""Table 1, N: (mean, standard deviation over three runs) of standard PATE, upsampling and weighting."""
TABLE1_ACCURACY: Mapping[tuple[str, str], tuple[float, float, float]] = MappingProxyType(
    {
        ("mnist-official", "34/43/23%"): (97.40, 97.20, 97.24),
        ("mnist-official", "54/37/9%"): (97.32, 97.18, 97.33),
        ("svhn", "34/43/23%"): (64.55, 64.33, 66.40),
        ("svhn", "54/37/9%"): (62.90, 62.85, 65.65),
    }
)
"""Table 1, A, in per cent."""
COST_HISTORY: Mapping[str, int] = MappingProxyType({"standard": 257, "high": 890, "low": 957})
"""Figure 'Individualized upsampling outperforms standard PATE': labels when each line meets its budget
(MNIST, half of the people at ln 8); the same figures as weighting's in the table of labels."""
