"""The paper's own figures, as data: every number with the table or section of the source it stands in.

The paper: F. Boenisch, C. Mühl, R. Rinberg, J. Ihrig, A. Dziedzic, "Individualized PATE: Differentially Private
Machine Learning with Individual Privacy Guarantees", PETS 2023. Tables that are commented out in its source, and
an earlier version of the MNIST table, are the only place where vanishing's figures stand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ipate.reproduce.settings import HIGHER, SHARES, SKEW_SHARES

Cells = Mapping[tuple[str, float, str], float]
"""(higher budget, share of the people who have it, variant) → value."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table of the paper: its cells, its baseline, and where it stands."""

    source: str
    cells: Cells
    baseline: float | tuple[float, float]


def per_cell(shares: tuple[float, ...], variants: str, rows: tuple[tuple[float, ...], ...]) -> Cells:
    """Read a table row by row as printed: a row per higher budget, in it the variants of every share."""
    cells = {}
    for higher, row in zip(HIGHER, rows, strict=True):
        places = [(share, variant) for share in shares for variant in variants]
        for (share, variant), value in zip(places, row, strict=True):
            cells[higher, share, variant] = value
    return MappingProxyType(cells)


MNIST_LABELS = Published(
    source="table 'Number of labels returned by individualized PATE', with vanishing as in its commented-out twin",
    baseline=257,
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
    baseline=99,
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
    baseline=88.70,
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
    baseline=84.51,
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
    baseline=88,
    cells=per_cell(
        SHARES, "UW",
        ((140, 139, 202, 203, 272, 273), (198, 198, 346, 349, 541, 543), (264, 259, 530, 530, 868, 872)),
    ),
)  # fmt: skip
ADULT_STUDENTS = Published(
    source="table 'Student accuracy per individualization (Adult)', with vanishing as in its commented-out twin",
    baseline=79.85,
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
    baseline=88,
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
