"""The published data sets: MNIST and Fashion-MNIST (idx), SVHN (mat) and Adult (text).

An import of this module adds them to `ipate.data.DATASETS`, so that `load` finds them by name.

Adult is encoded by the documentation's category lists and by fixed bounds. The paper 'normalizes these numerical values
to the range of zero to one' without saying by which rows; the minimum and maximum of all rows would depend on private
data.
"""

import gzip
import hashlib
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ipate.data import DATASETS, Source, load
from ipate.data.dataset import Dataset
from ipate.errors import InputError, show
from paper.fetch import Fetch, OfficialFile, official_files

__all__ = ["load"]

_TYPES: Final = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@dataclass(frozen=True, kw_only=True)
class IdxSet:
    """A data set of four idx files with the names and shapes of MNIST: training images and labels, then test ones."""

    name: str
    title: str
    files: tuple[OfficialFile, ...]
    classes: tuple[str, ...]
    source: str
    licence: str
    rows: tuple[int, int] = (60_000, 10_000)


FIRST_LABELS: Final = {"MNIST": "b03ead2884240483d956c7feac7a9b39d28685062da0a980bb73d2196dc506b8"}
"""SHA-256 of the first 1,000 training labels, which tells data sets with the same file names and shapes apart."""
MNIST: Final = IdxSet(
    name="mnist",
    title="MNIST",
    files=official_files(
        ["https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"],
        ("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    classes=tuple("0123456789"),
    source="Y. LeCun, C. Cortes, C. Burges: The MNIST database of handwritten digits",
    licence="CC BY-SA 3.0",
)
FASHION: Final = IdxSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    files=official_files(
        [
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ],
        ("train-images-idx3-ubyte.gz", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte.gz", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte.gz", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte.gz", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    source="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST (arXiv:1708.07747)",
    licence="MIT",
)


def read_idx(path: Path) -> NDArray[Any]:
    """Read an idx file, gzipped or not: two zero bytes, the type, the number of dimensions, their sizes, the values."""
    try:
        with open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES or not data[3]:
        raise InputError(f"{path} starts with {data[:4]!r}: it is not an idx file")
    start, dtype = 4 + 4 * data[3], np.dtype(_TYPES[data[2]])
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise InputError(f"{path} has {len(data):,} bytes: its header {shape} says {expected:,}; download it again")
    return np.frombuffer(data, dtype=dtype, offset=start).reshape(shape)


def load_idx_set(made: IdxSet, *, data_dir: str | Path | None = None, download: bool = True) -> Dataset:
    """Load all rows, the official test part last, as 8-bit images (N, 28, 28)."""
    paths = Fetch(data_dir=data_dir, download=download).find(made.name, made.files)
    arrays = [read_idx(path) for path in paths]
    for part, rows in enumerate(made.rows):
        images, labels = arrays[2 * part], arrays[2 * part + 1]
        if images.dtype != np.uint8 or images.shape != (rows, 28, 28):
            found = f"{images.dtype} images of the shape {images.shape}"
            raise InputError(f"{paths[2 * part]} holds {found}: {made.title} has uint8 and ({rows}, 28, 28)")
        if labels.shape != (rows,) or labels.max() >= len(made.classes):
            found = f"labels of the shape {labels.shape}, up to {labels.max(initial=0)}"
            allowed = f"{made.title} has ({rows},), up to {len(made.classes) - 1}"
            raise InputError(f"{paths[2 * part + 1]} holds {found}: {allowed}")
    _check_identity(made, arrays[1], paths[1])
    return Dataset(
        name=made.name,
        X=np.concatenate([arrays[0], arrays[2]]),
        y=np.concatenate([arrays[1], arrays[3]]).astype(np.int64),
        classes=made.classes,
        kind="image",
        test_rows=np.arange(made.rows[0], sum(made.rows), dtype=np.int64),
        source=made.source,
        licence=made.licence,
    )


def _check_identity(made: IdxSet, labels: NDArray[Any], path: Path) -> None:
    """Refuse another data set's files of the same names, which a flat folder may contain."""
    found = hashlib.sha256(labels[:1000].astype(np.uint8).tobytes()).hexdigest()
    for title, known in FIRST_LABELS.items():
        if found == known and title != made.title:
            wrong = f"{path} holds the labels of {title}, not of {made.title}"
            raise InputError(f"{wrong}: keep each data set in a folder of its own")
    if FIRST_LABELS.get(made.title, found) != found:
        raise InputError(f"{path} does not hold the labels of {made.title}: is it another data set's file?")


SVHN_FILES: Final = official_files(
    ["http://ufldl.stanford.edu/housenumbers/"],
    ("train_32x32.mat", 182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
    ("test_32x32.mat", 64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
)
SVHN_ROWS: Final = (73_257, 26_032)


def read_mat(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read X (32, 32, 3, N) and y (N, 1) from 1 to 10, and return images (N, 32, 32, 3) and digits 0 to 9."""
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(str(path), variable_names=["X", "y"])
    except Exception as error:  # scipy has no exception of its own for a broken file
        raise InputError(f"{path} is not a readable Matlab file: {' '.join(str(error).split())}") from None
    if missing := [name for name in ("X", "y") if name not in content]:
        raise InputError(f"{path} has no {missing[0]!r}: SVHN's cropped digits have X and y")
    X, y = content["X"], content["y"].ravel()
    if X.dtype != np.uint8 or X.ndim != 4 or X.shape[:3] != (32, 32, 3):
        raise InputError(f"{path} holds {X.dtype} images of the shape {X.shape}: it must be uint8 and (32, 32, 3, N)")
    if len(y) != X.shape[3]:
        raise InputError(f"{path} holds {X.shape[3]} images and {len(y)} labels: there must be one label per image")
    if len(y) and (y.min() < 1 or y.max() > 10):
        bad = int(np.flatnonzero((y < 1) | (y > 10))[0])
        raise InputError(f"{path}, row {bad}: the label is {y[bad]}: it must lie between 1 and 10 (which means 0)")
    return np.ascontiguousarray(X.transpose(3, 0, 1, 2)), y.astype(np.int64) % 10


def load_svhn(*, data_dir: str | Path | None = None, download: bool = True) -> Dataset:
    """Load all rows, the official test part last, as 8-bit images (N, 32, 32, 3)."""
    paths = Fetch(data_dir=data_dir, download=download).find("svhn", SVHN_FILES)
    parts = [read_mat(path) for path in paths]
    for path, (images, _), rows in zip(paths, parts, SVHN_ROWS, strict=True):
        if len(images) != rows:
            raise InputError(f"{path} holds {len(images):,} images: the official file has {rows:,}; download it again")
    return Dataset(
        name="svhn",
        X=np.concatenate([images for images, _ in parts]),
        y=np.concatenate([digits for _, digits in parts]),
        classes=tuple("0123456789"),
        kind="image",
        test_rows=np.arange(SVHN_ROWS[0], sum(SVHN_ROWS), dtype=np.int64),
        source="Y. Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning (2011)",
        licence="non-commercial use only",
    )


ADULT_FILES: Final = official_files(
    ["https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"],
    ("adult.data", 3_974_305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    ("adult.test", 2_003_153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)
ADULT_ROWS: Final = (32_561, 16_281)  # of the two files, incomplete rows included
ADULT_CLASSES: Final = ("<=50K", ">50K")
ADULT_COLUMNS: Final = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
ADULT_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "age": (0, 100),
    "fnlwgt": (0, 1_500_000),
    "education-num": (1, 16),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 5_000),
    "hours-per-week": (0, 99),
}
"""Each number is scaled from these bounds to [0, 1] and clipped; 99 and 99,999 are the census's own top codes."""
_ADULT_NAMES: Final = {
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
ADULT_CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = {
    column: tuple(names.split(", ")) for column, names in _ADULT_NAMES.items()
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
        if len(cells) != len(ADULT_COLUMNS) + 1:
            raise InputError(f"{where} has {len(cells)} cells: it must have {len(ADULT_COLUMNS) + 1}")
        if cells[-1] not in ADULT_CLASSES:
            raise InputError(f"{where}: the label is {show(cells[-1])}: it must be one of {', '.join(ADULT_CLASSES)}")
        rows.append(cells)
    return rows


def load_adult(
    *, encoding: Literal["ordinal", "onehot"] = "ordinal", data_dir: str | Path | None = None, download: bool = True
) -> Dataset:
    """Load all complete rows, the official test part last, with every feature in [0, 1].

    "ordinal" encodes a category as its index divided by the largest index, "onehot" as a column of its own.
    """
    if encoding not in ("ordinal", "onehot"):
        raise InputError(f"encoding is {show(encoding)}: allowed are 'ordinal' and 'onehot'")
    paths = Fetch(data_dir=data_dir, download=download).find("adult", ADULT_FILES)
    parts = [read_adult(path) for path in paths]
    for path, part, expected in zip(paths, parts, ADULT_ROWS, strict=True):
        if len(part) != expected:
            raise InputError(f"{path} has {len(part):,} rows: the official file has {expected:,}; download it again")
    train, test = ([row for row in part if "?" not in row] for part in parts)
    rows = train + test
    X, names = _adult_encode(rows, encoding)
    return Dataset(
        name="adult",
        X=X,
        y=np.array([ADULT_CLASSES.index(row[-1]) for row in rows], dtype=np.int64),
        classes=ADULT_CLASSES,
        kind="table",
        feature_names=names,
        bounds=np.tile([0.0, 1.0], (len(names), 1)),
        test_rows=np.arange(len(train), len(rows), dtype=np.int64),
        notes=(
            f"{sum(ADULT_ROWS) - len(rows):,} of {sum(ADULT_ROWS):,} rows have a missing value and were dropped.",
            "Categories are encoded by the documentation's lists and numbers scaled by fixed bounds, not by the rows.",
        ),
        source="B. Becker, R. Kohavi: Adult, UCI Machine Learning Repository (1996)",
        licence="CC BY 4.0",
    )


def _adult_encode(rows: list[list[str]], encoding: str) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    parts: list[NDArray[Any]] = []
    names: list[str] = []
    for position, column in enumerate(ADULT_COLUMNS):
        cells = [row[position] for row in rows]
        if column in ADULT_BOUNDS:
            low, high = ADULT_BOUNDS[column]
            parts.append(np.clip((_adult_numbers(cells, column) - low) / (high - low), 0, 1)[:, None])
            names.append(column)
        elif encoding == "ordinal":
            parts.append(_adult_places(cells, column)[:, None] / (len(ADULT_CATEGORIES[column]) - 1))
            names.append(column)
        else:
            parts.append(_adult_places(cells, column)[:, None] == np.arange(len(ADULT_CATEGORIES[column])))
            names.extend(f"{column}={category}" for category in ADULT_CATEGORIES[column])
    return np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe"), tuple(names)


def _adult_numbers(cells: list[str], column: str) -> NDArray[np.float64]:
    try:
        return np.array([int(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        bad = next(cell for cell in cells if not cell.lstrip("-").isdigit())
        raise InputError(f"adult: {column} is {show(bad)}: it must be a whole number") from None


def _adult_places(cells: list[str], column: str) -> NDArray[np.int64]:
    place = {category: position for position, category in enumerate(ADULT_CATEGORIES[column])}
    if unknown := set(cells) - set(place):
        raise InputError(f"adult: {column} is {show(min(unknown))}: it must be one of {', '.join(place)}")
    return np.array([place[cell] for cell in cells], dtype=np.int64)


DATASETS.update(
    {
        "mnist": Source(load=partial(load_idx_set, MNIST), shape=(28, 28)),
        "fashion-mnist": Source(load=partial(load_idx_set, FASHION), shape=(28, 28)),
        "svhn": Source(load=load_svhn, shape=(32, 32, 3)),
        "adult": Source(load=load_adult),
    }
)
