import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from ipate import data as registry
from ipate.data import adult, load
from ipate.data import images as idx
from ipate.data import images as svhn
from ipate.errors import DataUnavailableError, InputError

PARTS = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("IPATE_DATA", str(tmp_path / "cache"))


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def arrays():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(12, 28, 28), dtype=np.uint8)
    labels = (np.arange(12) % 10).astype(np.uint8)
    return [images[:8], labels[:8], images[8:], labels[8:]]


def digest(labels):
    return hashlib.sha256(labels.tobytes()).hexdigest()


@pytest.fixture
def tiny(monkeypatch):
    """MNIST as a set of 8 and 4 images."""
    made = replace(idx.MNIST, rows=(8, 4), first_labels=digest(arrays()[1]))
    monkeypatch.setattr(registry, "MNIST", made)
    fashion = replace(idx.FASHION, rows=(8, 4), others=(("MNIST", digest(arrays()[1])),))
    monkeypatch.setattr(registry, "FASHION", fashion)


def write_set(folder, *, packed=True, rename=str):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(PARTS, arrays(), strict=True):
        content = idx_bytes(array)
        (folder / rename(name + ".gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_mnist_from_flat_folders_and_subfolders(tiny, tmp_path, packed, inside):
    write_set(tmp_path / "d" / inside, packed=packed)
    data = load("mnist", data_dir=tmp_path / "d", download=False)
    images, labels, more_images, more_labels = arrays()
    assert np.array_equal(data.X, np.concatenate([images, more_images]))
    assert data.y.tolist() == [*labels, *more_labels]
    assert data.test_rows.tolist() == [8, 9, 10, 11]
    assert data.kind == "image"


def test_mnist_from_the_cache_and_under_other_common_names(tiny, tmp_path):
    write_set(tmp_path / "cache" / "mnist", packed=False, rename=lambda name: name.replace("-idx", ".idx"))
    assert load("mnist", download=False).n_rows == 12


def test_files_of_a_lookalike_are_refused(tiny, tmp_path, monkeypatch):
    write_set(tmp_path / "d")
    with pytest.raises(InputError, match="holds the labels of MNIST, not of Fashion-MNIST"):
        load("fashion-mnist", data_dir=tmp_path / "d", download=False)
    monkeypatch.setattr(registry, "MNIST", replace(registry.MNIST, first_labels="0" * 64))
    with pytest.raises(InputError, match="does not hold the labels of MNIST"):
        load("mnist", data_dir=tmp_path / "d", download=False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is no idx file"),
        (b"\0\0\x08", "it is no idx file"),
        (b"<html>not here</html>", "starts with b'<htm'"),
        (idx_bytes(np.zeros(3, np.uint8))[:-1], "has 10 bytes: its header .* says 11"),
        (idx_bytes(np.zeros(3, np.uint8)) + b"x", "has 12 bytes"),
        (b"\0\0\x08\x03\0\0\0\x01", "its header"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x00", mtime=0)[:-4], "cannot be read"),
        (b"\x1f\x8bnonsense", "cannot be read"),
    ],
    ids=["empty", "short", "html", "cut", "long", "header-only", "cut-gzip", "no-gzip"],
)
def test_broken_idx_files_are_refused(tmp_path, content, words):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        idx.read_idx(path)


def test_idx_numbers_of_several_bytes_are_big_endian(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\0\0\x0c\x01\0\0\0\x02" + np.array([1, 256], ">i4").tobytes())
    assert idx.read_idx(path).tolist() == [1, 256]


def test_wrong_shapes_and_labels_are_refused(tiny, tmp_path, monkeypatch):
    write_set(tmp_path / "d")
    (tmp_path / "d" / (PARTS[3] + ".gz")).write_bytes(gzip.compress(idx_bytes(np.full(4, 10, np.uint8))))
    with pytest.raises(InputError, match="up to 10: MNIST has"):
        load("mnist", data_dir=tmp_path / "d", download=False)
    monkeypatch.setattr(registry, "MNIST", idx.MNIST)
    with pytest.raises(InputError, match=r"\(8, 28, 28\): MNIST has uint8 and \(60000, 28, 28\)"):
        load("mnist", data_dir=tmp_path / "d", download=False)


def write_svhn(folder, monkeypatch, *, rows=(5, 3), labels=None):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    images = []
    for name, n in zip(("train", "test"), rows, strict=True):
        X = rng.integers(0, 256, size=(32, 32, 3, n), dtype=np.uint8)
        y = np.array(labels or [10, 1, 2, 3, 9], dtype=np.uint8)[:n, None]
        savemat(folder / f"{name}_32x32.mat", {"X": X, "y": y})
        images.append(X)
    monkeypatch.setattr(svhn, "ROWS", (5, 3))
    return images


def test_svhn_calls_ten_zero(tmp_path, monkeypatch):
    images = write_svhn(tmp_path / "svhn", monkeypatch)
    data = load("svhn", data_dir=tmp_path, download=False)
    assert data.y.tolist() == [0, 1, 2, 3, 9, 0, 1, 2]
    assert data.X.shape == (8, 32, 32, 3)
    assert np.array_equal(data.X[1], images[0][:, :, :, 1])
    assert data.test_rows.tolist() == [5, 6, 7]


def test_svhn_files_that_cannot_be_used(tmp_path, monkeypatch):
    write_svhn(tmp_path, monkeypatch, rows=(4, 3))
    with pytest.raises(InputError, match="holds 4 images: the official file has 5"):
        load("svhn", data_dir=tmp_path, download=False)
    write_svhn(tmp_path, monkeypatch, labels=[1, 2, 3, 0, 11])
    with pytest.raises(InputError, match="row 3: the label is 0"):
        load("svhn", data_dir=tmp_path, download=False)
    path = tmp_path / "x.mat"
    path.write_bytes(b"no matlab")
    with pytest.raises(InputError, match="no readable Matlab file"):
        svhn.read_mat(path)
    for content, words in (
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "has no 'y'"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))}, "float64 images"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))}, "2 images and 3 labels"),
    ):
        savemat(path, content)
        with pytest.raises(InputError, match=words):
            svhn.read_mat(path)


ROW = "39, State-gov, 77516, Masters, 13, Divorced, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K"
LAX = "90, Private, 9999999, HS-grad, 16, Widowed, Sales, Wife, Black, Female, 99999, 4356, 99, United-States, >50K"
GAP = ROW.replace("State-gov", "?")


def write_adult(folder, monkeypatch, *, data=(ROW, GAP, LAX), test=(ROW + ".", LAX + ".")):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adult.data").write_text("\n".join(data) + "\n\n")
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + "\n".join(test) + "\n\n")
    monkeypatch.setattr(adult, "ROWS", (len(data), len(test)))


def test_adult_is_encoded_by_public_lists_and_bounds(tmp_path, monkeypatch):
    write_adult(tmp_path, monkeypatch)
    data = load("adult", data_dir=tmp_path, download=False)
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.test_rows.tolist() == [2, 3]
    assert data.notes[0] == "1 of 5 rows have a missing value and were dropped."
    row = dict(zip(data.feature_names, data.X[0].tolist(), strict=True))
    assert row["age"] == pytest.approx(0.39)
    assert row["workclass"] == pytest.approx(5 / 7)
    assert row["education-num"] == pytest.approx(12 / 15)
    assert row["sex"] == 1.0
    assert data.X[1][data.feature_names.index("fnlwgt")] == 1.0  # cut at the bound
    assert data.X.dtype == np.float32


def test_adult_one_hot(tmp_path, monkeypatch):
    write_adult(tmp_path, monkeypatch)
    data = load("adult", data_dir=tmp_path, download=False, encoding="onehot")
    assert data.X.shape == (4, 105)
    hot = [name for name, value in zip(data.feature_names, data.X[0], strict=True) if "=" in name and value == 1]
    assert hot[0] == "workclass=State-gov"
    assert hot[-1] == "native-country=Cuba"
    assert len(hot) == 8


def test_what_one_row_says_does_not_change_another(tmp_path, monkeypatch):
    write_adult(tmp_path, monkeypatch)
    before = load("adult", data_dir=tmp_path, download=False).X
    write_adult(tmp_path, monkeypatch, data=(ROW, GAP, LAX.replace("90", "17", 1).replace("Widowed", "Divorced")))
    after = load("adult", data_dir=tmp_path, download=False).X
    assert np.array_equal(before[[0, 2, 3]], after[[0, 2, 3]])
    assert not np.array_equal(before[1], after[1])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ROW.replace("<=50K", "<50K"), "line 3: the label is '<50K'"),
        (ROW.replace("39, ", ""), "line 3 has 14 cells: it must have 15"),
        (ROW.replace("Cuba", "Atlantis"), "native-country is 'Atlantis'"),
        (ROW.replace("39", "old"), "age is 'old': it must be a whole number"),
        (ROW.replace("Cuba", "Cub\u00e4"), "is no plain text"),
    ],
)
def test_adult_rows_that_cannot_be_used(tmp_path, monkeypatch, row, words):
    write_adult(tmp_path, monkeypatch)
    (tmp_path / "adult.data").write_text(f"{ROW}\n{ROW}\n{row}\n", encoding="utf-8")
    with pytest.raises(InputError, match=words):
        load("adult", data_dir=tmp_path, download=False)


def test_a_truncated_adult_file_is_refused(tmp_path, monkeypatch):
    write_adult(tmp_path, monkeypatch)
    monkeypatch.setattr(adult, "ROWS", (32_561, 16_281))
    with pytest.raises(InputError, match="has 3 rows: the official file has 32,561"):
        load("adult", data_dir=tmp_path, download=False)
    with pytest.raises(InputError, match="encoding is 'hot'"):
        load("adult", data_dir=tmp_path, download=False, encoding="hot")


REAL = os.environ.get("IPATE_DATA", "")  # read before the fixture replaces it


def real(name, **options):
    if not Path(REAL or "none").is_dir():
        pytest.skip("IPATE_DATA names no folder")
    try:
        return load(name, data_dir=REAL, download=False, **options)
    except DataUnavailableError:
        pytest.skip(f"the folder that IPATE_DATA names has no {name}")


def test_real_mnist():
    data = real("mnist")
    assert np.bincount(data.y).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    assert len(data.test_rows) == 10_000


def test_real_fashion_mnist():
    assert np.bincount(real("fashion-mnist").y).tolist() == [7000] * 10


def test_real_svhn():
    data = real("svhn")
    train = data.y[: data.n_rows - len(data.test_rows)]
    assert np.bincount(train).tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    assert len(data.test_rows) == 26_032


@pytest.mark.parametrize(("encoding", "width"), [("ordinal", 14), ("onehot", 105)])
def test_real_adult(encoding, width):
    data = real("adult", encoding=encoding)
    assert data.X.shape == (45_222, width)
    assert round(float(np.mean(data.y == 0)), 3) == 0.752
    assert data.notes[0] == "3,620 of 48,842 rows have a missing value and were dropped."
    assert (float(data.X.min()), float(data.X.max())) == (0.0, 1.0)
    assert len(data.test_rows) == 15_060
