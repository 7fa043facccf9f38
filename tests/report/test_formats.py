"""Number formatting: printed bounds hold after rounding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate.report.formats import down, percent, plain, signed_points, small, up, used


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (plain(1.0), "1"),
        (plain(0.25), "0.25"),
        (plain(199.79999999999998), "199.8"),
        (plain(163000.0), "163,000"),
        (plain(2.5e-6), "2.5·10⁻⁶"),
        (small(1e-5), "10⁻⁵"),
        (small(0.0), "0"),
        (up(2.71828), "2.72"),
        (up(2.72), "2.72"),
        (down(3.678), "3.67"),
        (up(485165195.4), "4.86·10⁸"),
        (percent(None), "—"),
        (percent(0.8148), "81.5%"),
        (used(0.99985), "99.9%"),
        (used(1.0), "100.0%"),
        (signed_points(-0.0114), "−1.1"),
        (signed_points(0.0001), "±0.0"),
    ],
)
def test_numbers_are_formatted_as_expected(shown, expected):
    assert shown == expected


@given(st.floats(1e-3, 9e6))
def test_printed_bounds_hold_after_rounding(value):
    assert float(up(value).replace(",", "")) >= value * (1 - 1e-11)
    assert float(down(value).replace(",", "")) <= value * (1 + 1e-11)
