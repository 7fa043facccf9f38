"""The tables against mpmath, against integrals of their definitions, and the shapes that the proof needs."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from ipate.accounting.ptr import PtrGroup, Setting, convexified, kappa, tables_for, top_excess

ORDERS = np.array([1.25, 2.0, 8.0, 20.0])


def setting(sensitivity=1.0, *, sigma=40.0, lattice=1.0, grid=1.0, total=250.0):
    return Setting(
        sigma=sigma,
        check_sigma=150.0,
        threshold=200.0,
        classes=10,
        total_weight=total,
        groups=(PtrGroup(id="a", epsilon=1.0, delta=1e-5, sensitivity=sensitivity),),
        grid=grid,
        lattice=lattice,
        orders=tuple(ORDERS.tolist()),
    )


def integral(gap, tau, alpha, sigma):
    """∫ f(p, q) over {x_j > x_top}: the difference y of the two scores, and what of the move is orthogonal to it."""
    spread = np.sqrt(2) * sigma
    side = np.sqrt(2 - tau**2 / 2) / sigma  # ‖v‖² = 2; the difference moves by τ, of length |τ|/√2
    y = np.linspace(-14 * spread + min(0, (alpha - 1) * tau), 0, 4001)
    u = np.linspace(-12 - (alpha - 1) * side, 12 + side, 1201)
    log_y = [-(((y - gap - move) / spread) ** 2) / 2 for move in (0, tau)]
    log_u = [-((u - move) ** 2) / 2 for move in (0, side)]
    p, q = (np.exp(a[:, None] + b - np.log(2 * np.pi * spread)) for a, b in zip(log_y, log_u, strict=True))
    r = (log_y[0] - log_y[1])[:, None] + (log_u[0] - log_u[1])
    f = q * (np.exp(alpha * r) - 1) - alpha * (p - q)
    return np.trapezoid(np.trapezoid(f, u, axis=1), y)


@pytest.mark.parametrize(("tau", "alpha"), [(2, 3.0), (-2, 3.0), (1, 4.0), (-1, 2.0), (0, 5.0)])
def test_kappa_matches_its_integral(tau, alpha):
    sigma, gap = 5.0, 8.0
    value = kappa(np.array([gap]), tau, np.array([alpha]), sigma=sigma)[0, 0]
    assert value == pytest.approx(integral(gap, tau, alpha, sigma), rel=1e-4)


@settings(deadline=None, max_examples=50)
@given(
    gap=st.floats(0, 250), tau=st.sampled_from([-2, -1, 0, 1, 2]), alpha=st.floats(1.05, 40), sigma=st.floats(5, 100)
)
def test_kappa_rounds_up_from_fifty_digits(gap, tau, alpha, sigma):
    if alpha * (alpha - 1) / sigma**2 > 100:
        return
    with mp.workdps(50):
        g, a, s = mp.mpf(gap), mp.mpf(alpha), mp.mpf(sigma)
        root = mp.sqrt(2) * s
        first = mp.exp(a * (a - 1) / s**2) * mp.ncdf(-(g - (a - 1) * tau) / root)
        exact = first - a * mp.ncdf(-g / root) + (a - 1) * mp.ncdf(-(g + tau) / root)
        scale = first + a * mp.ncdf(-g / root) + a * mp.ncdf(-(g + tau) / root)
    value = kappa(np.array([gap]), tau, np.array([alpha]), sigma=sigma)[0, 0]
    assert exact <= value <= exact + 1e-11 * scale


@settings(deadline=None, max_examples=50)
@given(tau=st.sampled_from([-2, -1, 0, 1, 2]), sigma=st.floats(2, 100))
def test_kappa_decreases_in_the_gap(tau, sigma):
    orders = ORDERS[ORDERS * (ORDERS - 1) / sigma**2 <= 100]
    values = kappa(np.linspace(-2, 6 * sigma, 300), tau, orders, sigma=sigma)
    assert (np.diff(values, axis=0) <= 1e-12 * values[:-1]).all()


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e3), min_size=3, max_size=30))
def test_convexified_is_convex_decreasing_and_above(values):
    given_values = np.array(values)[:, None]
    found = convexified(given_values)
    assert (found >= given_values).all()
    assert (np.diff(found, axis=0) <= 0).all()
    exact = [Fraction(float(value)) for value in found[:, 0]]  # no rounding: the stored numbers are convex
    assert all(a + c >= 2 * b for a, b, c in zip(exact, exact[1:], exact[2:], strict=False))


@pytest.mark.parametrize("sensitivity", [1.0, 1.375])
def test_tables_cover_every_gap_of_the_lattice(sensitivity):
    spec = setting(sensitivity, lattice=2.0**-4, grid=0.25)
    tables = tables_for(spec, spec.groups[0])
    gaps = np.arange(16 * 250 + 1) / 16
    for table, taus in ((tables.single, (-1, 0, 1)), (tables.double, (-2, -1, 0, 1, 2))):
        assert table.shape == (gaps.size, ORDERS.size)
        for tau in taus:
            assert (table >= kappa(gaps / sensitivity, tau, ORDERS, sigma=40 / sensitivity)).all()


@pytest.mark.parametrize("sigma", [1.0, 8.0, 40.0])
def test_top_table_bounds_both_trade_off_ends(sigma):
    spec = setting(sigma=sigma)
    tables = tables_for(spec, spec.groups[0])
    q = np.exp(np.random.default_rng(1).uniform(-30, np.log(0.4999), 400))
    read = tables.top_at(np.log(q))
    usable = tables.usable
    for share in (1.0, 0.7, 0.1):
        for sign in (1, -1):
            other = ndtr(ndtri(q * share) + sign * np.sqrt(2) / sigma)
            true = top_excess(np.log1p(-q * share), np.log1p(-other), ORDERS)
            assert (read[:, usable] >= true[:, usable] * (1 - 1e-9)).all()


def test_top_table_covers_the_cell_that_begins_at_zero():
    spec = setting()
    tables = tables_for(spec, spec.groups[0])
    other = ndtr(ndtri(np.exp(-30.0)) + np.sqrt(2) / 40)
    assert (tables.top[0] >= top_excess(np.array(0.0), np.log1p(-other), ORDERS)).all()  # P = 1 and the smallest Q
    assert tables.top_at(np.array([-200.0]))[0] == pytest.approx(tables.top[0])


@settings(deadline=None, max_examples=60)
@example(p=0.671875, q=0.05, alpha=9.0)
@given(p=st.floats(0.05, 0.999), q=st.floats(0.05, 0.999), alpha=st.floats(1.05, 30))
def test_top_excess_is_f_rounded_up(p, q, alpha):
    with mp.workdps(50):
        a, x, y = mp.mpf(alpha), mp.exp(mp.mpf(float(np.log(p)))), mp.exp(mp.mpf(float(np.log(q))))
        exact = x**a * y ** (1 - a) - a * x + (a - 1) * y
        scale = x**a * y ** (1 - a) + a * x + a * y
    value = top_excess(np.log(np.array(p)), np.log(np.array(q)), np.array([alpha]))[0]
    assert exact - 1e-30 * scale <= value <= exact * 1.0002 + 1e-9 * scale


@pytest.mark.parametrize("lattice", [1.0, 0.125])
def test_passing_table_bounds_all_smaller_maxima(lattice):
    spec = setting(1.0 if lattice == 1 else 1.75, lattice=lattice)
    unit = spec.groups[0].sensitivity
    tables = tables_for(spec, spec.groups[0])
    places = np.random.default_rng(2).integers(0, int(250 / lattice) + 1, 300)
    maxima, read = places * lattice, tables.passing[places]
    z = (maxima - 200) / 150
    for lower in (0.0, 5.0, 50.0):
        true = ndtr(z - lower / 150)[:, None] ** ORDERS * ndtr(z - (lower + unit) / 150)[:, None] ** (1 - ORDERS)
        assert (read[maxima >= lower] >= true[maxima >= lower]).all()


def test_too_large_orders_are_marked_unusable():
    spec = setting(sigma=0.01)
    with np.errstate(all="raise", under="ignore"):
        tables = tables_for(spec, spec.groups[0])
    assert not tables.usable.any()
