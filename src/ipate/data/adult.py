"""Adult income: the two official files, encoded by the documentation's category lists and by fixed bounds.

The paper 'normalizes these numerical values to the range of zero to one' without saying by which rows; the minimum
and maximum of all rows would depend on private data.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ipate.data.dataset import Dataset
from ipate.data.fetch import Fetch, official_files
from ipate.errors import InputError, show

FILES: Final = official_files(
    ["https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"],
    ("adult.data", 3_974_305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    ("adult.test", 2_003_153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)
ROWS: Final = (32_561, 16_281)  # of the two files, incomplete rows included
CLASSES: Final = ("<=50K", ">50K")
COLUMNS: Final = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "age": (0, 100),
    "fnlwgt": (0, 1_500_000),
    "education-num": (1, 16),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 5_000),
    "hours-per-week": (0, 99),
}
"""Each number is scaled from these bounds to [0, 1] and clipped; 99 and 99,999 are the census's own top codes."""
_CATEGORIES: Final = {
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, "
    "Never-worked",
    "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, "
    "Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    "marital-status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, "
    "Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
    "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, "
    "Protective-serv, Armed-Forces",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "native-country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), "
    "India, Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, "
    "Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, "
    "Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands",
}
CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = {
    column: tuple(names.split(", ")) for column, names in _CATEGORIES.items()
}
"""The categories of each column, in the order and spelling of adult.names."""


def read_adult(path: Path) -> list[list[str]]:
    """Read one file: its rows as 15 cells of text, '?' if a value is missing."""
    try:
        lines = path.read_text(encoding="ascii").split("\n")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not plain text: is it compressed?") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("|"):  # adult.test starts with a comment
            continue
        cells = [cell.strip() for cell in line.split(",")]
        cells[-1] = cells[-1].removesuffix(".")  # labels of adult.test end with a full stop
        where = f"{path}, line {number}"
        if len(cells) != len(COLUMNS) + 1:
            raise InputError(f"{where} has {len(cells)} cells: it must have {len(COLUMNS) + 1}")
        if cells[-1] not in CLASSES:
            raise InputError(f"{where}: the label is {show(cells[-1])}: it must be one of {', '.join(CLASSES)}")
        rows.append(cells)
    return rows


def load_adult(fetch: Fetch, *, encoding: Literal["ordinal", "onehot"] = "ordinal") -> Dataset:
    """Load all complete rows, the official test part last, with every feature in [0, 1].

    "ordinal" encodes a category as its index divided by the largest index, "onehot" as a column of its own.
    """
    if encoding not in ("ordinal", "onehot"):
        raise InputError(f"encoding is {show(encoding)}: allowed are 'ordinal' and 'onehot'")
    paths = fetch.find("adult", FILES)
    parts = [read_adult(path) for path in paths]
    for path, part, expected in zip(paths, parts, ROWS, strict=True):
        if len(part) != expected:
            raise InputError(f"{path} has {len(part):,} rows: the official file has {expected:,}; download it again")
    train, test = ([row for row in part if "?" not in row] for part in parts)
    rows = train + test
    X, names = _encode(rows, encoding)
    return Dataset(
        name="adult",
        X=X,
        y=np.array([CLASSES.index(row[-1]) for row in rows], dtype=np.int64),
        classes=CLASSES,
        kind="table",
        feature_names=names,
        bounds=np.tile([0.0, 1.0], (len(names), 1)),
        test_rows=np.arange(len(train), len(rows), dtype=np.int64),
        notes=(
            f"{sum(ROWS) - len(rows):,} of {sum(ROWS):,} rows have a missing value and were dropped.",
            "Categories are encoded by the documentation's lists and numbers scaled by fixed bounds, not by the rows.",
        ),
        source="B. Becker, R. Kohavi: Adult, UCI Machine Learning Repository (1996)",
        licence="CC BY 4.0",
    )


def _encode(rows: list[list[str]], encoding: str) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    parts: list[NDArray[Any]] = []
    names: list[str] = []
    for position, column in enumerate(COLUMNS):
        cells = [row[position] for row in rows]
        if column in BOUNDS:
            low, high = BOUNDS[column]
            parts.append(np.clip((_numbers(cells, column) - low) / (high - low), 0, 1)[:, None])
            names.append(column)
        elif encoding == "ordinal":
            parts.append(_places(cells, column)[:, None] / (len(CATEGORIES[column]) - 1))
            names.append(column)
        else:
            parts.append(_places(cells, column)[:, None] == np.arange(len(CATEGORIES[column])))
            names.extend(f"{column}={category}" for category in CATEGORIES[column])
    return np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe"), tuple(names)


def _numbers(cells: list[str], column: str) -> NDArray[np.float64]:
    try:
        return np.array([int(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        bad = next(cell for cell in cells if not cell.lstrip("-").isdigit())
        raise InputError(f"adult: {column} is {show(bad)}: it must be a whole number") from None


def _places(cells: list[str], column: str) -> NDArray[np.int64]:
    place = {category: position for position, category in enumerate(CATEGORIES[column])}
    if unknown := set(cells) - set(place):
        raise InputError(f"adult: {column} is {show(min(unknown))}: it must be one of {', '.join(place)}")
    return np.array([place[cell] for cell in cells], dtype=np.int64)
