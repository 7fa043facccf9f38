import numpy as np
import pytest
from scipy import sparse

from ipate.data.overlap import check_overlap, row_hashes
from ipate.errors import InputError

rng = np.random.default_rng(0)
PRIVATE = rng.normal(size=(200, 4))


def refused(private, public, **ids):
    try:
        check_overlap(private, public, what="public.csv", **ids)
    except InputError:
        return True
    return False


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_copies_in_any_order_are_refused(kind):
    private = np.where(rng.random(PRIVATE.shape) < 0.3, 0, PRIVATE)
    assert refused(kind(private), kind(private[rng.permutation(200)[:50]]))
    assert refused(kind(private), kind(np.vstack([private[:60], rng.normal(size=(50, 4))])))
    assert not refused(kind(private), kind(rng.normal(size=(50, 4))))


def test_half_of_copies_and_few_copies_pass():
    assert not refused(PRIVATE, np.vstack([PRIVATE[:50], rng.normal(size=(50, 4))]))
    assert not refused(PRIVATE, PRIVATE[:9])
    assert refused(PRIVATE, PRIVATE[:10])


def test_repeated_and_rounded_copies_are_refused():
    assert refused(PRIVATE, np.vstack([PRIVATE, PRIVATE]))
    assert refused(np.vstack([PRIVATE, PRIVATE]), np.vstack([PRIVATE, PRIVATE]))
    assert refused(PRIVATE, PRIVATE.astype(np.float32))


@pytest.mark.parametrize("values", [2, 3, 5, 8, 12, 30])
@pytest.mark.parametrize("sizes", [(3000, 300), (300, 3000), (1000, 1000)])
def test_independent_samples_with_few_values_pass(values, sizes):
    """Rows that coincide because there are few possible rows are no copies."""
    private, public = (rng.integers(values, size=(size, 3)) for size in sizes)
    assert not refused(private, public)


def test_whole_copy_with_few_values_is_refused():
    private = rng.integers(8, size=(1000, 3))
    assert refused(private, private[::-1])


def test_frames_are_compared_by_name():
    pandas = pytest.importorskip("pandas")
    private = pandas.DataFrame({"a": rng.normal(size=50), "b": [f"t{i % 7}" for i in range(50)]})
    assert refused(private, private[["b", "a"]].sample(frac=1, random_state=0))
    assert not refused(private, private.assign(a=private["a"] + 1))


def test_shared_person_is_refused():
    ids = np.array([f"p{i}" for i in range(200)])
    other = np.array([f"q{i}" for i in range(20)])
    assert not refused(PRIVATE, rng.normal(size=(20, 4)), private_ids=ids, public_ids=other)
    other[3] = "p7"
    assert refused(PRIVATE, rng.normal(size=(20, 4)), private_ids=ids, public_ids=other)


def test_hashes_of_zeros_and_missing_values_are_equal():
    one, two = np.array([[0.0, np.nan, 1]]), np.array([[-0.0, -np.nan, 1]])
    assert row_hashes(one) == row_hashes(two)
    assert row_hashes(row_hashes(one)) == row_hashes(one)


def test_text_that_is_no_unicode_is_hashed():
    table = {"a": np.array(["x", "\ud800", "x"], dtype=object)}
    first, second, third = row_hashes(table)
    assert first == third != second
