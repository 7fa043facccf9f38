"""SVHN, cropped digits: the official Matlab files, in which the digit 0 is stored as 10."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ipate.data.dataset import Dataset
from ipate.data.fetch import Fetch, OfficialFile
from ipate.errors import InputError

__all__ = ["FILES", "ROWS", "load_svhn", "read_mat"]

_URL: Final = "http://ufldl.stanford.edu/housenumbers/"

FILES: Final = tuple(
    OfficialFile(name=name, urls=(_URL + name,), size=size, sha256=sha256)
    for name, size, sha256 in (
        ("train_32x32.mat", 182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        ("test_32x32.mat", 64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
    )
)
ROWS: Final = (73_257, 26_032)


def read_mat(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one file: X (32, 32, 3, N) and y (N, 1) with 1 to 10, as images (N, 32, 32, 3) and digits 0 to 9."""
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(str(path), variable_names=["X", "y"])
    except Exception as error:  # scipy has no exception of its own for a broken file
        raise InputError(f"{path} is no readable Matlab file: {' '.join(str(error).split())}") from None
    if missing := [name for name in ("X", "y") if name not in content]:
        raise InputError(f"{path} has no {missing[0]!r}: SVHN's cropped digits have X and y")
    X, y = content["X"], content["y"].ravel()
    if X.dtype != np.uint8 or X.ndim != 4 or X.shape[:3] != (32, 32, 3):
        raise InputError(f"{path} holds {X.dtype} images of the shape {X.shape}: it must be uint8 and (32, 32, 3, N)")
    if len(y) != X.shape[3]:
        raise InputError(f"{path} holds {X.shape[3]} images and {len(y)} labels: there must be as many")
    if len(y) and (y.min() < 1 or y.max() > 10):
        bad = int(np.flatnonzero((y < 1) | (y > 10))[0])
        raise InputError(f"{path}, row {bad}: the label is {y[bad]}: it must lie between 1 and 10, which means 0")
    return np.ascontiguousarray(X.transpose(3, 0, 1, 2)), y.astype(np.int64) % 10


def load_svhn(fetch: Fetch) -> Dataset:
    """Load all rows, the official test part last; images stay 8-bit (N, 32, 32, 3)."""
    paths = fetch.find("svhn", FILES)
    parts = [read_mat(path) for path in paths]
    for path, (images, _), rows in zip(paths, parts, ROWS, strict=True):
        if len(images) != rows:
            raise InputError(f"{path} holds {len(images):,} images: the official file has {rows:,}; fetch it again")
    return Dataset(
        name="svhn",
        X=np.concatenate([images for images, _ in parts]),
        y=np.concatenate([digits for _, digits in parts]),
        classes=tuple("0123456789"),
        kind="image",
        test_rows=np.arange(ROWS[0], sum(ROWS), dtype=np.int64),
        source="Y. Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning (2011)",
        licence="non-commercial use only",
    )
