"""The exact law of a label and its noisy counts, on tiny cases: δ is never passed, and each known mistake passes it.

The law is computed here, without the package: every class by itself falls into the step c with the probability
Φ((c + ½)·σ/8 − n) − Φ((c − ½)·σ/8 − n), and classes are independent.
"""

from functools import reduce

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from ipate.accounting.bounds import Meter
from ipate.accounting.gdp import epsilon_of
from ipate.engines.teachers.aggregators import Confident, GNMax, Mechanism
from ipate.engines.teachers.loop import label, open_ledger
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.release.noise import SeededNoise
from oracles import argmax_law

WEIGHTS = {"own": 1.5, "other": 0.5}
CASES = [(6.0, 1e-2), (3.0, 1e-3), (9.0, 1e-4)]  # σ and δ
COUNTS = [(1.5, 2.0), (0.0, 3.5), (1.5, 0.5, 1.5)]
DEEP = 8  # deviations on each side


def cells(counts, sigma):
    """The probabilities of all rounded counts, one axis per class: the same grid for neighbouring counts."""
    top = int(8 * (DEEP + 6 / sigma))
    edges = (np.arange(-top, top + 2) - 0.5) / 8
    edges[[0, -1]] = -np.inf, np.inf
    return reduce(np.multiply.outer, (np.diff(ndtr(edges - n / sigma)) for n in counts)), np.arange(-top, top + 1)


def law(counts, sigma, check=None):
    """All outcomes of one query: (class, counts) or, with a check (σ_T, T) in front, also that nothing is released."""
    found = cells(counts, sigma)[0].ravel()
    if check is None:
        return found
    passed = ndtr((max(counts) - check[1]) / check[0])
    return np.append(passed * found, 1 - passed)


def reached(p, q, epsilon):
    """The larger δ of both directions: Σ max(0, P − e^ε·Q)."""
    return max(np.maximum(a - np.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


def neighbours(counts, weight):
    """What the counts can be if one vote of this weight is replaced, or is not cast any more."""
    for a in (j for j, n in enumerate(counts) if n >= weight):
        for b in (None, *range(len(counts))):
            moved = np.array(counts)
            moved[a] -= weight
            if b is not None:
                moved[b] += weight
            yield tuple(moved)


def charged(sigma, delta, check=None):
    """ε that a run of one answered query with its counts charges to each group."""
    sure = {} if check is None else {"check_sigma": check[0], "threshold": -1e6}
    made = (GNMax if check is None else Confident)(mechanism=Mechanism(sigma=sigma, counts=True, **sure))
    votes = Votes(votes=np.array([[0], [1]]), n_classes=2, groups=tuple(WEIGHTS))
    panel = Panel.from_votes(votes, [(name, 50.0, delta, None) for name in WEIGHTS], weights=[*WEIGHTS.values()])
    book = open_ledger(panel, Meter(), made)
    assert label(votes, panel, made, Meter(), noise=SeededNoise(1), ledger=book).n_labels == 1
    return {name: book.epsilon(name) for name in WEIGHTS}


@pytest.mark.parametrize(("sigma", "delta"), CASES)
@pytest.mark.parametrize("check", [None, (20.0, 2.0)], ids=["gnmax", "confident"])
def test_exact_law_of_label_and_counts_stays_within_delta(sigma, delta, check):
    claimed, shares = charged(sigma, delta, check), []
    for name, weight in WEIGHTS.items():
        for counts in COUNTS:
            own = law(counts, sigma, check)
            assert own.sum() == pytest.approx(1, abs=1e-12)
            others = [law(moved, sigma, check) for moved in neighbours(counts, weight)]
            shares += [reached(own, other, claimed[name]) / delta for other in others]
    assert max(shares) <= 1
    assert max(shares) > (0.8 if check is None else 0.6)


@pytest.mark.parametrize(("sigma", "delta"), CASES)
def test_oracle_sees_the_price_of_an_argmax(sigma, delta):
    cheap = float(epsilon_of(np.sqrt(2 / np.pi * 2) * 1.5 / sigma, delta))  # about what sup charges
    own, other = law((1.5, 2.0), sigma), law((0.0, 3.5), sigma)
    assert reached(own, other, cheap) > 1.5 * delta


def test_oracle_sees_a_label_of_a_second_draw():
    sigma, delta = 6.0, 1e-3
    epsilon = charged(sigma, delta)["own"]
    both = []
    for counts in ((1.5, 2.0), (0.0, 3.5)):
        both.append(np.multiply.outer(law(counts, sigma), np.exp(argmax_law(counts, sigma))).ravel())
    assert reached(*both, epsilon) > 1.5 * delta


@pytest.mark.parametrize("counts", [(1.5, 2.0), (1.5, 0.5, 1.5)], ids=str)
def test_released_counts_follow_their_exact_law(counts):
    sigma, repeats = 6.0, 30_000
    made = GNMax(mechanism=Mechanism(sigma=sigma, counts=True))
    ids = [str(i) for i in range(repeats)]
    found = made.ask(np.tile(counts, (repeats, 1)), queries=ids, noise=SeededNoise(2), total_weight=sum(counts))
    exact, steps = cells(counts, sigma)
    bins = np.searchsorted([-7, -3, 0, 2, 4, 7, 11], steps, side="right")
    wanted = np.zeros((8,) * len(counts))
    np.add.at(wanted, np.ix_(*[bins] * len(counts)), exact)
    where = np.searchsorted([-7, -3, 0, 2, 4, 7, 11], found.noisy_votes, side="right")
    seen = np.zeros(wanted.shape)
    np.add.at(seen, tuple(where.T), 1)
    assert stats.chisquare(seen.ravel(), wanted.ravel() * repeats).pvalue > 1e-6
    winners = np.argmax(np.meshgrid(*[steps] * len(counts), indexing="ij"), axis=0)  # the lower class on a tie
    shares = [exact[winners == j].sum() * repeats for j in range(len(counts))]
    assert stats.chisquare(np.bincount(found.labels, minlength=len(counts)), shares).pvalue > 1e-6
