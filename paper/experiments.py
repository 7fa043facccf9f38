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
from typing import TypeAlias

from ipate.engines.teachers.aggregators import Mechanism

DELTA = 1e-5  # table 'PATE Parameters'
LOWER = math.log(2)  # section 'Uniform Assignment of Privacy Budgets'
HIGHER: Mapping[str, float] = {f"ln {s}": math.log(s) for s in (4, 8, 16)}
SHARES = (0.25, 0.5, 0.75)
SKEW_SHARES = (0.25, 0.5, 0.75, 1.0)  # section 'Non-Uniform Assignment of Privacy Budgets'
TABLE1: Mapping[str, tuple[float, ...]] = {"34/43/23%": (0.34, 0.43, 0.23), "54/37/9%": (0.54, 0.37, 0.09)}
"""Table 1: the shares of people at ε = 1, 2 and 3."""
COPIES: Mapping[str, int] = {"ln 4": 2, "ln 8": 3, "ln 16": 4}
"""Copies of people with the higher budget: its ratio to ln 2, as in the paper's 'Details of Upsampling'."""
_MNIST = Mechanism(sigma=40, check_sigma=150, threshold=200)  # also SVHN's; table 'PATE Parameters'


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One of the paper's experiments: the sizes of its data, the parameters of Confident-GNMax, and its models."""

    name: str
    dataset: str
    public: int
    test: int | None  # None: the official test part; MNIST then keeps its first 50,000 rows private
    teacher: str  # a torch preset, or "forest"
    mechanism: Mechanism = _MNIST
    student: str = "paper-mnist"  # named likewise
    n_teachers: int = 250  # before upsampling scales it
    epochs: float | None = None  # None: as long as the preset says


_SETUPS = (
    # table 'PATE Parameters'
    Setup(name="mnist", dataset="mnist", public=9_000, test=1_000, teacher="paper-mnist"),
    Setup(
        name="adult",
        dataset="adult",
        public=7_000,
        test=1_000,
        teacher="forest",
        student="forest",
        mechanism=Mechanism(sigma=40, check_sigma=200, threshold=300),
    ),
    # Table 1: its caption gives the splits
    Setup(name="mnist-official", dataset="mnist", public=10_000, test=None, teacher="paper-mnist"),
    Setup(name="svhn", dataset="svhn", public=10_000, test=None, teacher="vgg", epochs=60),
    # the same net without augmentation and dropout, neither of which the paper mentions: measures their effect
    Setup(name="svhn-plain", dataset="svhn", public=10_000, test=None, teacher="vgg-plain", epochs=60),
    # beyond the paper: stronger teachers under the paper's parameters, to measure the effect of the teachers
    Setup(name="mnist-strong", dataset="mnist", public=9_000, test=1_000, teacher="small"),
    # beyond the paper: many strong teachers; σ, σ_T and T as in benchmarks/strong_teachers.py, fixed beforehand
    *(
        Setup(
            name=f"mnist-{k}",
            dataset="mnist",
            public=9_000,
            test=1_000,
            teacher="small",
            n_teachers=k,
            mechanism=Mechanism(sigma=0.205 * k, check_sigma=0.4 * k, threshold=0.95 * k),
        )
        for k in (1_000, 2_000)
    ),
)
SETUPS: Mapping[str, Setup] = {setup.name: setup for setup in _SETUPS}

Budgets: TypeAlias = Mapping[str, tuple[float, float]]
"""Group id → (ε, share of the people)."""


def two_groups(lower: float, higher: float, share: float) -> Budgets:
    """Return two groups; `share` of the people have the higher budget."""
    return {"low": (lower, 1 - share), "high": (higher, share)}


BASELINE_BUDGETS = two_groups(LOWER, LOWER, 0.5)
TWO_GROUPS: Mapping[tuple[str, float], Budgets] = {
    (higher, share): two_groups(LOWER, HIGHER[higher], share) for higher in HIGHER for share in SHARES
}
"""(higher budget, share of the people who have it) → the two groups of the main experiments."""
THREE_GROUPS: Mapping[str, Budgets] = {
    name: dict(zip("123", zip((1.0, 2.0, 3.0), shares, strict=True), strict=True)) for name, shares in TABLE1.items()
}
"""Table 1's shares → its groups at ε = 1, 2 and 3, whose ids are their budgets."""


def setting_name(higher: str, share: float) -> str:
    """Name one of `TWO_GROUPS` for a table's row."""
    return f"{share:.0%} at {higher}"


Key: TypeAlias = tuple[str, float, str]
"""(higher budget, share of the people who have it, variant)."""
BASELINE: Key = ("baseline", 0.0, "S")
_PRINTED_AS = {"P": "W", "Q": "V"}  # the paper's column of a variant, where it has another letter


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table of the paper: where it is printed, its cells and its baseline."""

    source: str
    cells: Mapping[Key, float]
    baseline: tuple[float, ...]  # one value, or accuracy on low and on high incomes

    def printed(self, key: Key) -> float:
        """Return the paper's value of a cell, by our letter of the variant."""
        return self.cells[*key[:2], _PRINTED_AS.get(key[2], key[2])]


def _published(
    source: str, baseline: tuple[float, ...], shares: tuple[float, ...], variants: str, *rows: tuple[float, ...]
) -> Published:
    """Read a table as printed: one row per higher budget, with the variants of every share."""
    keys = itertools.product(HIGHER, shares, variants)
    return Published(source=source, baseline=baseline, cells=dict(zip(keys, itertools.chain(*rows), strict=True)))


MNIST_LABELS = _published(
    "table 'Number of labels returned by individualized PATE', with vanishing as in its commented-out twin",
    (257,),
    SHARES,
    "UVW",
    (158, 25, 433, 237, 67, 492, 326, 157, 564),
    (231, 22, 474, 414, 84, 890, 636, 285, 1163),
    (308, 28, 648, 623, 115, 1239, 1038, 477, 1787),
)
MNIST_EARLY_LABELS = _published(
    "the same table, 'version before our reweighting algo', commented out",
    (99,),
    SHARES,
    "UVW",
    (158, 25, 158, 237, 67, 239, 326, 157, 326),
    (231, 0, 229, 414, 84, 414, 636, 285, 638),
    (308, 0, 308, 623, 115, 623, 1038, 477, 1041),
)
MNIST_STUDENTS = _published(
    "table 'Student accuracy per individualization (MNIST)'",
    (88.70,),
    SHARES,
    "UW",
    (92.32, 93.26, 92.52, 93.08, 94.38, 93.70),
    (93.12, 88.94, 94.48, 94.68, 96.20, 95.74),
    (93.96, 90.24, 96.38, 96.32, 96.90, 96.60),
)
MNIST_EARLY_STUDENTS = _published(
    "the same table, the version commented out above it",
    (84.51,),
    SHARES,
    "UVW",
    (88.68, 60.18, 88.21, 90.44, 78.83, 90.78, 91.94, 88.58, 91.70),
    (90.56, 0, 90.40, 92.44, 82.42, 92.34, 93.30, 90.84, 93.39),
    (91.57, 0, 91.39, 93.56, 85.85, 93.27, 94.31, 92.78, 94.28),
)
ADULT_LABELS = _published(
    "table 'Number of labels generated per individualization (Adult)'",
    (88,),
    SHARES,
    "UW",
    (140, 139, 202, 203, 272, 273),
    (198, 198, 346, 349, 541, 543),
    (264, 259, 530, 530, 868, 872),
)
ADULT_STUDENTS = _published(
    "table 'Student accuracy per individualization (Adult)', with vanishing as in its commented-out twin",
    (79.85,),
    SHARES,
    "UVW",
    (81.02, 76.17, 80.87, 81.76, 78.62, 81.76, 82.16, 80.70, 82.26),
    (81.79, 75.73, 81.67, 82.52, 79.32, 82.60, 82.87, 82.09, 82.89),
    (82.30, 75.31, 82.25, 82.82, 79.97, 82.84, 83.07, 82.72, 83.04),
)
SKEW_LABELS = _published(
    "table 'Labels generated per unbalanced individualization (Adult)'",
    (88,),
    SKEW_SHARES,
    "N",
    (90, 95, 101, 109),
    (93, 108, 132, 162),
    (96, 129, 172, 225),
)
# l and h: accuracy on low incomes (the majority) and on high incomes
SKEW_STUDENTS = _published(
    "table 'Per-group student accuracy for unbalanced individualization (Adult)'",
    (98.01, 24.78),
    SKEW_SHARES,
    "lh",
    (95.93, 36.77, 93.11, 45.93, 90.13, 54.74, 86.24, 63.39),
    (93.25, 45.91, 86.82, 62.25, 80.57, 72.61, 77.91, 77.36),
    (90.42, 54.00, 80.74, 72.68, 76.68, 79.42, 73.82, 83.59),
)
SKEW_TEACHERS = _published(
    "table 'Per-group teacher and voting accuracy', part 'Teacher Accuracy'",
    (92.55, 48.82),
    SKEW_SHARES,
    "lh",
    (90.08, 56.05, 87.75, 61.70, 85.58, 66.24, 83.62, 69.68),
    (87.74, 61.73, 83.57, 69.84, 79.99, 75.46, 76.86, 79.44),
    (85.58, 66.12, 79.93, 75.48, 75.48, 81.01, 71.57, 84.79),
)
SKEW_VOTINGS = _published(
    "table 'Per-group teacher and voting accuracy', part 'Voting Accuracy'",
    (97.13, 46.29),
    SKEW_SHARES,
    "lh",
    (95.21, 55.99, 93.02, 64.11, 91.24, 68.93, 88.59, 74.11),
    (93.19, 64.11, 88.71, 73.91, 84.42, 81.14, 81.41, 85.23),
    (91.02, 68.55, 84.47, 81.36, 79.99, 86.49, 75.32, 90.22),
)
TABLE1_PRINTED: Mapping[tuple[str, str], tuple[tuple[float, float, float], ...]] = {
    ("mnist-official", "34/43/23%"): ((365, 2, 97.40), (1333, 1, 97.20), (1312, 8, 97.24)),
    ("mnist-official", "54/37/9%"): ((361, 3, 97.32), (949, 18, 97.18), (1894, 10, 97.33)),
    ("svhn", "34/43/23%"): ((90, 1, 64.55), (394, 5, 64.33), (409, 3, 66.40)),
    ("svhn", "54/37/9%"): ((96, 2, 62.90), (284, 1, 62.85), (558, 1, 65.65)),
}
"""Table 1, standard PATE, upsampling and weighting: N (mean, standard deviation over three runs) and A in per cent."""
COST_HISTORY = {("standard", "everybody"): 257, ("upsampling", "high"): 890, ("upsampling", "low"): 957}
"""Figure 'Individualized upsampling outperforms standard PATE': labels when each line meets its budget
(MNIST, half of the people at ln 8); the same figures as weighting's in the table of labels."""
