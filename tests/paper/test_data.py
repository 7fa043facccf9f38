import gzip
import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from ipate import data as registry
from ipate.data import Source, load
from ipate.errors import InputError
from paper import data as official
from paper.fetch import DataUnavailableError

PARTS = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("IPATE_DATA", str(tmp_path / "cache"))


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def arrays():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(12, 28, 28), dtype=np.uint8)
    labels = (np.arange(12) % 10).astype(np.uint8)
    return [pixels[:8], labels[:8], pixels[8:], labels[8:]]


def digest(labels):
    return hashlib.sha256(labels.tobytes()).hexdigest()


@pytest.fixture
def use(monkeypatch):
    """Return a function that replaces an idx data set in the registry."""

    def use(made):
        source = Source(load=partial(official.load_idx_set, made), shape=(28, 28))
        monkeypatch.setitem(registry.DATASETS, made.name, source)

    return use


@pytest.fixture
def tiny(use, monkeypatch):
    """Replace MNIST and Fashion-MNIST by sets of 8 and 4 images; returns the small MNIST."""
    monkeypatch.setitem(official.FIRST_LABELS, "MNIST", digest(arrays()[1]))
    made = replace(official.MNIST, rows=(8, 4))
    use(made)
    use(replace(official.FASHION, rows=(8, 4)))
    return made


def write_set(folder, *, packed=True, rename=str):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(PARTS, arrays(), strict=True):
        content = idx_bytes(array)
        (folder / rename(name + ".gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_mnist_is_read_from_folders_and_subfolders(tiny, tmp_path, packed, inside):
    write_set(tmp_path / "d" / inside, packed=packed)
    data = load("mnist", data_dir=tmp_path / "d", download=False)
    pixels, labels, more_pixels, more_labels = arrays()
    assert np.array_equal(data.X, np.concatenate([pixels, more_pixels]))
    assert data.y.tolist() == [*labels, *more_labels]
    assert data.test_rows.tolist() == [8, 9, 10, 11]
    assert data.kind == "image"


def test_mnist_is_read_from_cache_under_alias_names(tiny, tmp_path):
    write_set(tmp_path / "cache" / "mnist", packed=False, rename=lambda name: name.replace("-idx", ".idx"))
    assert load("mnist", download=False).n_rows == 12


def test_files_of_another_data_set_are_refused(tiny, monkeypatch, tmp_path):
    write_set(tmp_path / "d")
    with pytest.raises(InputError, match="holds the labels of MNIST, not of Fashion-MNIST"):
        load("fashion-mnist", data_dir=tmp_path / "d", download=False)
    monkeypatch.setitem(official.FIRST_LABELS, "MNIST", "0" * 64)
    with pytest.raises(InputError, match="does not hold the labels of MNIST"):
        load("mnist", data_dir=tmp_path / "d", download=False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is not an idx file"),
        (b"\0\0\x08", "it is not an idx file"),
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
        official.read_idx(path)


def test_multibyte_idx_numbers_are_read_big_endian(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\0\0\x0c\x01\0\0\0\x02" + np.array([1, 256], ">i4").tobytes())
    assert official.read_idx(path).tolist() == [1, 256]


def test_wrong_shapes_and_labels_are_refused(tiny, use, tmp_path):
    write_set(tmp_path / "d")
    (tmp_path / "d" / (PARTS[3] + ".gz")).write_bytes(gzip.compress(idx_bytes(np.full(4, 10, np.uint8))))
    with pytest.raises(InputError, match="up to 10: MNIST has"):
        load("mnist", data_dir=tmp_path / "d", download=False)
    use(official.MNIST)
    with pytest.raises(InputError, match=r"\(8, 28, 28\): MNIST has uint8 and \(60000, 28, 28\)"):
        load("mnist", data_dir=tmp_path / "d", download=False)


def write_svhn(folder, monkeypatch, *, rows=(5, 3), labels=None):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    pixels = []
    for name, n in zip(("train", "test"), rows, strict=True):
        X = rng.integers(0, 256, size=(32, 32, 3, n), dtype=np.uint8)
        y = np.array(labels or [10, 1, 2, 3, 9], dtype=np.uint8)[:n, None]
        savemat(folder / f"{name}_32x32.mat", {"X": X, "y": y})
        pixels.append(X)
    monkeypatch.setattr(official, "SVHN_ROWS", (5, 3))
    return pixels


def test_svhn_label_10_becomes_0(tmp_path, monkeypatch):
    pixels = write_svhn(tmp_path / "svhn", monkeypatch)
    data = load("svhn", data_dir=tmp_path, download=False)
    assert data.y.tolist() == [0, 1, 2, 3, 9, 0, 1, 2]
    assert data.X.shape == (8, 32, 32, 3)
    assert np.array_equal(data.X[1], pixels[0][:, :, :, 1])
    assert data.test_rows.tolist() == [5, 6, 7]


def test_invalid_svhn_files_are_refused(tmp_path, monkeypatch):
    write_svhn(tmp_path, monkeypatch, rows=(4, 3))
    with pytest.raises(InputError, match="holds 4 images: the official file has 5"):
        load("svhn", data_dir=tmp_path, download=False)
    write_svhn(tmp_path, monkeypatch, labels=[1, 2, 3, 0, 11])
    with pytest.raises(InputError, match="row 3: the label is 0"):
        load("svhn", data_dir=tmp_path, download=False)
    path = tmp_path / "x.mat"
    path.write_bytes(b"no matlab")
    with pytest.raises(InputError, match="not a readable Matlab file"):
        official.read_mat(path)
    for content, words in (
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "has no 'y'"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))}, "float64 images"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))}, "2 images and 3 labels"),
    ):
        savemat(path, content)
        with pytest.raises(InputError, match=words):
            official.read_mat(path)


ROW = "39, State-gov, 77516, Masters, 13, Divorced, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K"
LAX = "90, Private, 9999999, HS-grad, 16, Widowed, Sales, Wife, Black, Female, 99999, 4356, 99, United-States, >50K"
GAP = ROW.replace("State-gov", "?")


def write_adult(folder, monkeypatch, *, data=(ROW, GAP, LAX), test=(ROW + ".", LAX + ".")):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adult.data").write_text("\n".join(data) + "\n\n")
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + "\n".join(test) + "\n\n")
    monkeypatch.setattr(official, "ADULT_ROWS", (len(data), len(test)))


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


def test_adult_one_hot_has_one_column_per_category(tmp_path, monkeypatch):
    write_adult(tmp_path, monkeypatch)
    data = load("adult", data_dir=tmp_path, download=False, encoding="onehot")
    assert data.X.shape == (4, 105)
    hot = [name for name, value in zip(data.feature_names, data.X[0], strict=True) if "=" in name and value == 1]
    assert hot[0] == "workclass=State-gov"
    assert hot[-1] == "native-country=Cuba"
    assert len(hot) == 8


def test_one_adult_row_does_not_change_another(tmp_path, monkeypatch):
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
        (ROW.replace("Cuba", "Cub\u00e4"), "is not plain text"),
    ],
)
def test_invalid_adult_rows_are_refused(tmp_path, monkeypatch, row, words):
    write_adult(tmp_path, monkeypatch)
    (tmp_path / "adult.data").write_text(f"{ROW}\n{ROW}\n{row}\n", encoding="utf-8")
    with pytest.raises(InputError, match=words):
        load("adult", data_dir=tmp_path, download=False)


def test_truncated_adult_file_and_bad_encoding_are_refused(tmp_path, monkeypatch):
    write_adult(tmp_path, monkeypatch)
    monkeypatch.setattr(official, "ADULT_ROWS", (32_561, 16_281))
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


def test_real_mnist_has_the_known_counts():
    data = real("mnist")
    assert np.bincount(data.y).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    assert len(data.test_rows) == 10_000


def test_real_fashion_mnist_has_the_known_counts():
    assert np.bincount(real("fashion-mnist").y).tolist() == [7000] * 10


def test_real_svhn_has_the_known_counts():
    data = real("svhn")
    train = data.y[: data.n_rows - len(data.test_rows)]
    assert np.bincount(train).tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    assert len(data.test_rows) == 26_032


@pytest.mark.parametrize(("encoding", "width"), [("ordinal", 14), ("onehot", 105)])
def test_real_adult_has_the_known_shape(encoding, width):
    data = real("adult", encoding=encoding)
    assert data.X.shape == (45_222, width)
    assert round(float(np.mean(data.y == 0)), 3) == 0.752
    assert data.notes[0] == "3,620 of 48,842 rows have a missing value and were dropped."
    assert (float(data.X.min()), float(data.X.max())) == (0.0, 1.0)
    assert len(data.test_rows) == 15_060
