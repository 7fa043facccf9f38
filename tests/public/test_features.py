"""Features: fitted on the pool alone, the same for a row in any company, and following the stated rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ipate.errors import InputError
from ipate.public.cells import LARGEST, make_cells
from ipate.public.features import DIMENSIONS, Features, fit_features

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((200, 6)) * [1, 10, 0.1, 1, 1, 1] + np.repeat([[0.0], [4.0]], 100, axis=0) * [
    1,
    10,
    0,
    0,
    0,
    0,
]
WIDE = RNG.standard_normal((150, 80))
IMAGES = RNG.integers(0, 256, (60, 20, 20), dtype=np.uint8)
SMALL = RNG.random((60, 8, 8))
FITTED = {
    "table": fit_features(TABLE, n_classes=2),
    "wide": fit_features(WIDE, n_classes=2),
    "images": fit_features(IMAGES, n_classes=2),
    "pixels": fit_features(SMALL, n_classes=2),
    "given": fit_features(TABLE, n_classes=2, kind="given"),
}
POOLS = {"table": TABLE, "wide": WIDE, "images": IMAGES, "pixels": SMALL, "given": TABLE}


@pytest.mark.parametrize("name", FITTED)
def test_features_of_a_row_do_not_depend_on_others(name):
    features, pool = FITTED[name], POOLS[name]
    cells = make_cells(features.transform(pool), cells=4, partitions=2)
    together = features.transform(pool)
    for start, size in ((0, 1), (3, 2), (7, 13), (20, 37)):
        alone = features.transform(pool[start : start + size])
        np.testing.assert_array_equal(alone, together[start : start + size])
        np.testing.assert_array_equal(cells.assign(alone), cells.assign(together)[start : start + size])


@given(arrays.arrays(np.float64, (3, 6), elements=st.floats(allow_nan=True, allow_infinity=True, width=64)))
def test_any_private_row_becomes_a_point_on_the_grid(rows):
    found = FITTED["table"].transform(rows)
    assert np.abs(found).max() <= LARGEST
    np.testing.assert_array_equal(found, np.rint(found))
    np.testing.assert_array_equal(FITTED["table"].readable(rows), np.isfinite(rows).any(axis=1))


def test_missing_values_of_tables_become_the_mean():
    pool = TABLE.copy()
    pool[::7, 1] = np.nan
    pool[1::7, 2] = np.inf
    features = fit_features(pool, n_classes=2)
    gone = pool[3:4].copy()
    gone[0, 1] = np.nan
    mean = gone.copy()
    mean[0, 1] = np.nanmean(pool[:, 1])
    np.testing.assert_array_equal(features.transform(gone), features.transform(mean))
    assert features.readable(np.vstack([gone, np.full_like(gone, np.nan)])).tolist() == [True, False]


def test_columns_without_structure_weigh_less():
    clustered = RNG.standard_normal((600, 40))
    clustered[:, :8] += 4 * RNG.integers(0, 2, (600, 1))  # eight columns that tell two kinds of points apart
    spread = fit_features(clustered, n_classes=2).transform(clustered).std(axis=0)
    assert spread[:8].min() > 1.5 * spread[8:].max()


def test_units_of_columns_do_not_matter():
    rescaled = fit_features(TABLE * [1, 1e-3, 1e3, 1, 1, 1] + 7, n_classes=2)
    np.testing.assert_allclose(
        rescaled.transform(TABLE * [1, 1e-3, 1e3, 1, 1, 1] + 7), FITTED["table"].transform(TABLE), atol=1
    )


def test_columns_of_two_values_keep_their_distance():
    rare = (np.arange(200) < 4).astype(float)
    mixed = np.column_stack([TABLE[:, 0], rare, 5 * (np.arange(200) % 2)])
    found = fit_features(mixed, n_classes=2).transform(mixed)
    apart = np.ptp(found, axis=0)
    assert apart[1] == pytest.approx(apart[2], abs=1)
    assert apart[1] == pytest.approx(found[:, 0].std(), rel=0.01)


def test_constant_columns_are_ignored():
    constant = np.column_stack([TABLE, np.full(200, 3.0)])
    assert not fit_features(constant, n_classes=2).transform(constant)[:, -1].any()
    assert not fit_features(np.ones((30, 2)), n_classes=2).transform(np.ones((4, 2))).any()


def test_wide_tables_and_images_get_principal_components():
    assert FITTED["wide"].dimensions <= DIMENSIONS
    assert FITTED["wide"].components is not None
    assert FITTED["images"].gradients
    assert not FITTED["pixels"].gradients
    assert FITTED["pixels"].describe()["principal_components"]
    assert FITTED["table"].components is None
    assert FITTED["given"].components is None


def test_principal_components_keep_distances():
    low = RNG.standard_normal((300, 5)) @ RNG.standard_normal((5, 90))
    features = fit_features(low, n_classes=2)
    assert features.dimensions <= 5
    plain = (low - features.centre) * features.gain
    found = features.transform(low)
    before = np.linalg.norm(plain[:100] - plain[100:200], axis=1)
    after = np.linalg.norm(found[:100] - found[100:200], axis=1)
    assert np.median(np.abs(after / before - 1)) < 0.1


def test_flat_images_with_a_shape_equal_images():
    flat = fit_features(IMAGES.reshape(60, -1), n_classes=2, shape=(20, 20))
    np.testing.assert_array_equal(flat.transform(IMAGES.reshape(60, -1)), FITTED["images"].transform(IMAGES))


def test_channels_first_and_last_have_the_same_features():
    colour = np.stack([IMAGES, IMAGES[::-1], IMAGES], axis=3)
    last, first = fit_features(colour, n_classes=2), fit_features(np.moveaxis(colour, 3, 1), n_classes=2)
    assert last.gradients
    assert first.gradients
    np.testing.assert_array_equal(last.transform(colour), first.transform(np.moveaxis(colour, 3, 1)))


@pytest.mark.parametrize("name", FITTED)
def test_stored_features_are_the_same_map(name):
    again = Features.from_arrays(FITTED[name].arrays())
    np.testing.assert_array_equal(again.transform(POOLS[name]), FITTED[name].transform(POOLS[name]))
    assert again.describe() == FITTED[name].describe()


def test_pool_with_missing_values_is_refused_unless_a_table():
    with pytest.raises(InputError, match="not finite"):
        fit_features(np.array([[1.0, np.nan], [0.0, 1.0]]), n_classes=2, kind="given")
    with pytest.raises(InputError, match="shape"):
        fit_features(TABLE, n_classes=2, shape=(2, 2))
    with pytest.raises(InputError, match="these features are for"):
        FITTED["table"].transform(np.ones((2, 5)))
