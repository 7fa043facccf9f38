"""Votes files: strict validation, memory mapping of large files, and counts that match a plain loop."""

import struct
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate import files as npz
from ipate.engines.teachers import votes as counting
from ipate.engines.teachers.store import VoteStore, erase_votes, voted_in
from ipate.engines.teachers.votes import Votes, count_votes, read_votes
from ipate.errors import ClassesWarning, InputError

PLAIN = np.array([[0, 1, 2, -1], [2, 2, 0, 1], [1, 1, 1, 1]])


def save(path, *, compressed=False, **arrays):
    """Write an npz with three classes by default."""
    arrays = {"votes": PLAIN, "classes": 3, **arrays}
    write = np.savez_compressed if compressed else np.savez
    write(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "votes.npz"


# Reading


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", ">i8", ">i2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_votes_are_read_in_every_array_layout(file, compressed, dtype, order):
    save(file, compressed=compressed, votes=np.array(PLAIN, dtype=dtype, order=order))
    read = read_votes(file)
    assert read.votes.tolist() == PLAIN.tolist()
    assert (read.n_teachers, read.n_queries, read.n_classes) == (3, 4, 3)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_votes_have_no_abstentions(file, dtype):
    read = read_votes(save(file, votes=np.array([[0, 2], [1, 1]], dtype=dtype)))
    assert read.votes.tolist() == [[0, 2], [1, 1]]
    assert not read.abstains


def test_vote_of_minus_one_abstains(file):
    assert read_votes(save(file)).abstains
    assert not read_votes(save(file, votes=np.abs(PLAIN))).abstains


def test_wide_integers_are_narrowed_while_reading(file, monkeypatch):
    monkeypatch.setattr(npz, "_BLOCK", 1 << 10)  # several blocks of rows
    wide = np.arange(40 * 50).reshape(40, 50)
    read = read_votes(save(file, compressed=True, votes=wide, classes=2000))
    assert read.votes.dtype == np.int16
    assert np.array_equal(read.votes, wide)


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_uncompressed_members_are_memory_mapped(file, monkeypatch, dtype, order):
    monkeypatch.setattr(npz, "_BLOCK", 1000)
    monkeypatch.setattr(counting, "_BLOCK", 1000)
    rng = np.random.default_rng(1)
    large = np.array(rng.integers(0, 3, (30, 100)), dtype=dtype, order=order)
    present = rng.random((30, 100)) < 0.5
    read = read_votes(save(file, votes=large, participation=present, groups=np.array(["a"] * 30)))
    assert isinstance(read.votes, np.memmap)
    assert isinstance(read.participation, np.memmap)
    assert np.array_equal(read.votes, large)
    assert np.array_equal(read.participation, present)


def test_large_file_is_mapped_at_default_threshold(file):
    large = np.zeros((20, 900_000), dtype=np.uint8)
    large[3, 7], large[19, 899_999] = 2, 1
    read = read_votes(save(file, votes=large))
    assert isinstance(read.votes, np.memmap)
    assert (int(read.votes[3, 7]), int(read.votes[19, 899_999]), int(read.votes.sum())) == (2, 1, 3)


def test_large_compressed_file_is_not_mapped(file, monkeypatch):
    monkeypatch.setattr(npz, "_BLOCK", 10)
    assert not isinstance(read_votes(save(file, compressed=True)).votes, np.memmap)


def test_invalid_vote_in_last_mapped_block_is_refused(file, monkeypatch):
    monkeypatch.setattr(npz, "_BLOCK", 100)
    monkeypatch.setattr(counting, "_BLOCK", 100)
    large = np.zeros((30, 100), dtype=np.int8)
    large[29, 99] = 3
    with pytest.raises(InputError, match="votes contain 3: class ids go from 0 to 2, and −1 abstains"):
        read_votes(save(file, votes=large))


def test_optional_arrays_of_votes_file_are_read(file):
    save(
        file,
        weights=np.array([1, 2, 3]),
        groups=np.array([1, 1, 20]),
        participation=np.ones((3, 4), bool),
        labels=np.array([0, 1, 2, 0], dtype=np.uint8),
        queries=np.array([b"q1", b" q2", "q\u00e9".encode(), b"q4"]),
        note=np.array("members of other names are not ours"),
    )
    read = read_votes(file)
    assert read.weights is not None
    assert read.weights.dtype == np.float64
    assert read.weights.tolist() == [1, 2, 3]
    assert read.groups == ("1", "1", "20")
    assert read.queries == ("q1", "q2", "qé", "q4")
    assert read.labels is not None
    assert read.labels.tolist() == [0, 1, 2, 0]
    assert read.participation is not None
    assert read.participation.all()


def test_missing_optional_arrays_are_none(file):
    read = read_votes(save(file))
    assert (read.weights, read.groups, read.participation, read.labels, read.queries) == (None,) * 5


# Classes


def test_classes_argument_overrides_classes_in_file(file):
    assert read_votes(save(file, classes=3), classes=7).n_classes == 7


@pytest.mark.parametrize(("stored", "expected"), [(5, 5), (np.array(["cat", "dog", "owl", "elk"]), 4)])
def test_stored_classes_may_be_number_or_names(file, stored, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClassesWarning)
        assert read_votes(save(file, classes=stored)).n_classes == expected


def test_inferred_classes_warn_that_they_are_public(file):
    with pytest.warns(ClassesWarning, match="the classes 0 to 2 are inferred .*public"):
        assert read_votes(save(file, classes=None)).n_classes == 3


@pytest.mark.parametrize(
    ("arrays", "given", "message"),
    [
        ({}, 1, "classes is 1: there must be at least 2"),
        ({"classes": 1}, None, "it must be a number of at least 2"),
        ({"classes": 2.5}, None, "it must be a number of at least 2"),
        ({"classes": np.array(["only"])}, None, "or a list of names"),
        ({"classes": None, "votes": np.zeros((2, 2), int)}, None, r"no vote is for a class above 0.*--classes N"),
    ],
)
def test_impossible_number_of_classes_is_refused(file, arrays, given, message):
    with pytest.raises(InputError, match=message):
        read_votes(save(file, **arrays), classes=given)


# Refusals


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"votes": None}, r"contains classes; it must contain 'votes' \(teachers × queries"),
        ({"votes": PLAIN.astype(float)}, "votes are float64; they must be integers"),
        ({"votes": PLAIN > 0}, "votes are bool; they must be integers"),
        ({"votes": np.array([["a", "b"]])}, "they must be integers"),
        ({"votes": PLAIN[0]}, r"votes have the shape \(4,\); it must be teachers × queries"),
        ({"votes": PLAIN[None]}, r"votes have the shape \(1, 3, 4\)"),
        ({"votes": np.empty((0, 4), int)}, r"votes have the shape \(0, 4\); .*not empty"),
        ({"votes": np.empty((3, 0), int)}, r"votes have the shape \(3, 0\); .*not empty"),
        ({"votes": PLAIN + 1}, "votes contain 3: class ids go from 0 to 2, and −1 abstains"),
        ({"votes": PLAIN - 1}, "votes contain -2: class ids go from 0 to 2"),
        ({"votes": np.array([[255, 0]], np.uint8)}, "votes contain 255"),
        ({"votes": np.array([[1 << 40, 0]])}, "hold 1099511627776: class ids go from 0 up to 32767"),
        ({"weights": np.array([1, np.nan, 1])}, "weights contain nan: each must be a finite number, 0 or above"),
        ({"weights": np.array([1, 1, np.inf])}, "weights contain inf"),
        ({"weights": np.array([1, -0.5, 1])}, "weights contain -0.5"),
        ({"weights": np.array(["1", "1", "1"])}, "weights are <U1: they must be numbers"),
        ({"weights": np.ones(4)}, r"weights have the shape \(4,\): it must be \(3,\), one per teacher"),
        ({"weights": np.ones((3, 1))}, r"weights have the shape \(3, 1\)"),
        ({"groups": np.array(["a", "b"])}, r"groups have the shape \(2,\): it must be \(3,\)"),
        ({"groups": np.array([0.5, 1, 2])}, "groups are float64 .*: they must be a list of ids"),
        ({"groups": np.array([["a"], ["b"], ["c"]])}, "they must be a list of ids"),
        ({"groups": np.array([b"\xff", b"a", b"b"])}, r"groups contain .*xff.*: ids must be text in UTF-8"),
        ({"participation": np.ones((3, 4), int)}, "participation is int64: it must be bool"),
        ({"participation": np.ones((4, 3), bool)}, r"participation have the shape \(4, 3\)"),
        ({"labels": np.zeros(3, int)}, r"labels have the shape \(3,\): it must be \(4,\), one per query"),
        ({"labels": np.zeros(4)}, "labels are float64: they must be integers"),
        ({"queries": np.array(["a"] * 3)}, r"queries have the shape \(3,\): it must be \(4,\)"),
        ({"queries": np.array([0.1, 1, 2, 3])}, "queries are float64"),
    ],
)
def test_ambiguous_or_invalid_arrays_are_refused_by_name(file, arrays, message):
    save(file, **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_votes(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["votes", "groups", "weights"])
def test_pickled_python_objects_are_never_loaded(file, name):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    save(file, **{name: np.array([Trap(), None, 1], dtype=object)})
    with pytest.raises(InputError, match=f"'{name}' holds Python objects and would need pickle, which is refused"):
        read_votes(file)


def test_missing_votes_file_is_refused_by_name(file):
    with pytest.raises(InputError, match="no such file; a votes file is an npz with an array 'votes'"):
        read_votes(file)


@pytest.mark.parametrize("content", [b"", b"PK", b"group,epsilon\na,1\n", b"\x93NUMPY\x01\x00", b"\x80\x04N."])
def test_file_that_is_not_zip_is_refused(file, content):
    file.write_bytes(content)
    with pytest.raises(InputError, match="not a readable npz file"):
        read_votes(file)


@pytest.mark.parametrize("compressed", [False, True])
def test_truncated_file_is_refused_at_every_length(file, compressed):
    whole = save(file, compressed=compressed).read_bytes()
    for length in range(0, len(whole), 37):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match="not a readable npz file"):
            read_votes(file)


def test_corrupt_bytes_raise_input_error_only(file):
    rng = np.random.default_rng(2)
    whole = save(file, compressed=True, votes=rng.integers(0, 3, (30, 300))).read_bytes()
    refused = 0
    for start in range(60, 1200, 60):
        file.write_bytes(whole[:start] + bytes(255 - byte for byte in whole[start : start + 20]) + whole[start + 20 :])
        with pytest.raises(InputError):
            read_votes(file)
        refused += 1
    assert refused == 19


def member(header, data=b""):
    """Return an npy member with a header that numpy would not write."""
    text = header.encode() + b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    ("dtype", "shape"), [("|u1", (3, 400)), ("<i8", (3, 400)), ("<i8", (1 << 40, 1 << 40)), ("|u1", (1 << 36, 1))]
)
def test_member_shorter_than_its_header_is_refused(file, method, dtype, shape):
    with zipfile.ZipFile(file, "w", method) as archive:
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
        archive.writestr("votes.npy", member(header, b"\x01" * 100))
    with pytest.raises(InputError, match="not a readable npz file"):
        read_votes(file)


def test_zip_without_votes_array_is_refused(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("votes.npy", "0,1,2\n")
    with pytest.raises(InputError, match="not a readable npz file"):
        read_votes(file)


def test_empty_zip_file_is_refused(file):
    with zipfile.ZipFile(file, "w"):
        pass
    with pytest.raises(InputError, match="contains nothing; it must contain 'votes'"):
        read_votes(file)


# Counting


MATRICES = st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(2, 7)).flatmap(
    lambda size: st.tuples(
        st.lists(
            st.lists(st.integers(-1, size[2] - 1), min_size=size[1], max_size=size[1]),
            min_size=size[0],
            max_size=size[0],
        ),
        st.just(size[2]),
    )
)


@given(MATRICES, st.sampled_from(["int8", "int16", "int64"]), st.sampled_from("CF"))
def test_counting_votes_matches_a_plain_loop(matrix, dtype, order):
    rows, n_classes = matrix
    expected = [[sum(row[query] == c for row in rows) for c in range(n_classes)] for query in range(len(rows[0]))]
    given_votes = np.array(rows, dtype=dtype, order=order)
    assert count_votes(given_votes, n_classes).tolist() == expected
    assert given_votes.tolist() == rows  # and the votes are left as they were


def test_counting_does_not_overflow_narrow_integers():
    many = np.full((300, 2), 9, dtype=np.uint8)
    assert count_votes(many, 10)[:, 9].tolist() == [300, 300]
    assert count_votes(np.full((1, 5000), 1, dtype=np.int8), 2)[:, 1].sum() == 5000


@given(MATRICES)
def test_abstains_is_true_iff_any_vote_negative(matrix):
    rows, n_classes = matrix
    made = Votes(votes=np.array(rows), n_classes=n_classes)
    assert made.abstains == any(vote < 0 for row in rows for vote in row)


# A folder of npy files


def make_store(folder, **arrays):
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def test_folder_is_read_like_an_npz_file(tmp_path):
    arrays = {
        "votes": np.array([[0, 1, 2], [1, 1, 0]], dtype=np.uint8),
        "groups": np.array(["a", "b"]),
        "weights": np.array([0.5, 1.5]),
        "labels": np.array([0, 1, 2]),
        "queries": np.array(["x", "y", "z"]),
        "classes": np.array(3),
    }
    np.savez(tmp_path / "votes.npz", **arrays)
    packed, folder = read_votes(tmp_path / "votes.npz"), read_votes(make_store(tmp_path / "store", **arrays))
    for name in ("n_classes", "groups", "queries"):
        assert getattr(packed, name) == getattr(folder, name)
    for name in ("votes", "weights", "labels"):
        assert np.array_equal(getattr(packed, name), getattr(folder, name))
    alone = read_votes(tmp_path / "store" / "votes.npy", classes=3)
    assert np.array_equal(alone.votes, packed.votes)
    assert alone.groups is None


def test_votes_in_large_folder_are_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_BLOCK", 100)
    read = read_votes(make_store(tmp_path / "store", votes=np.ones((30, 100), dtype=np.uint8)), classes=2)
    assert isinstance(read.votes, np.memmap)
    assert read.votes.mode == "r"


def test_store_whose_making_was_killed_is_no_store(tmp_path):
    (tmp_path / "done.npy").touch()  # numpy makes an empty file before it writes to it
    assert voted_in(tmp_path).size == 0
    erase_votes(tmp_path, [0])
    VoteStore(tmp_path, n_teachers=2, n_queries=3, n_classes=2, fingerprint="a").put(1, np.array([0, 1, 1]))
    assert voted_in(tmp_path).tolist() == [False, True]
    erase_votes(tmp_path, [1])
    assert not voted_in(tmp_path).any()


def test_vote_store_is_readable_once_complete(tmp_path):
    store = VoteStore(tmp_path / "store", n_teachers=2, n_queries=3, n_classes=5, fingerprint="x")
    store.put(0, np.array([4, 0, 1]))
    with pytest.raises(InputError, match="1 of 2 teachers have not voted"):
        read_votes(tmp_path / "store")
    store.put(1, np.array([2, 0, 1]))
    store.describe(groups=("high", "low"))
    read = read_votes(tmp_path / "store")
    assert (read.n_classes, read.groups) == (5, ("high", "low"))
    assert read.votes.tolist() == [[4, 0, 1], [2, 0, 1]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, r"contains nothing; it must contain 'votes'"),
        ({"votes": np.array([[None]])}, "would need pickle"),
        ({"votes": np.array([[0.5]])}, "they must be integers"),
        ({"votes": np.array([[0, 1]]), "groups": np.array(["a", "b"])}, "groups have the shape"),
    ],
    ids=["empty", "objects", "fractions", "too many groups"],
)
def test_unreadable_votes_folder_is_refused(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_votes(make_store(tmp_path / "store", **content), classes=3)


def test_truncated_npy_file_is_refused(tmp_path):
    np.save(tmp_path / "votes.npy", np.zeros((30, 100), dtype=np.uint8))
    whole = (tmp_path / "votes.npy").read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        (tmp_path / "votes.npy").write_bytes(whole[:length])
        with pytest.raises(InputError, match="not a readable npy file"):
            read_votes(tmp_path / "votes.npy", classes=2)
    (tmp_path / "store.json").write_text("{}")
    (tmp_path / "votes.npy").write_bytes(whole)
    with pytest.raises(InputError, match=r"store\.json: not readable"):
        read_votes(tmp_path)
