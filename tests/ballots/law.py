"""The exact law of what ballots release in tiny cases, computed without the package: the oracle of these tests.

Everything that is read off two noisy scores of two classes is a function of their difference, which is normal. So the
probability of every outcome is a difference of two values of Φ, and the outcomes of several cells are independent.
"""

from itertools import combinations

import numpy as np
from scipy.special import ndtr

LABEL = (0.0,)  # the label alone: is the difference above 0?
BINS = (-1.0, 0.0, 1.0)  # label and two bins of confidence


def outcomes(gaps, edges):
    """The probabilities of all outcomes of independent cells, whose scores differ by `gaps` in the mean.

    The noise of a score has the deviation 1, and that of a difference √2.
    """
    cuts = np.concatenate([[-np.inf], np.asarray(edges), [np.inf]])
    law = np.ones(1)
    for part in np.diff(ndtr((cuts - np.asarray(gaps)[:, None]) / np.sqrt(2)), axis=1):
        law = np.outer(law, part).ravel()
    return law


def reached(law, other, epsilon):
    """The larger δ of both directions: Σ max(0, P − e^ε·Q)."""
    return max(np.maximum(p - np.exp(epsilon) * q, 0).sum() for p, q in ((law, other), (other, law)))


def worst(records, histogram, epsilon, *, backgrounds, edges=LABEL, draws=1):
    """The largest δ over all pairs of records of one person and all backgrounds.

    `histogram(record)` is the mean of the person's part, (cells, 2 classes), in σ; a background is the mean difference
    of the two classes in every cell, from all other people.
    """
    gaps = [histogram(record) @ np.array([1.0, -1.0]) for record in records]
    found = 0.0
    for background in backgrounds:
        laws = [outcomes(np.tile(own + background, draws), edges) for own in gaps]
        found = max(found, *(reached(*pair, epsilon) for pair in combinations(laws, 2)))
    return found


def adversarial(epsilon, mu, cells=2, fine=9):
    """Backgrounds around the gap t = √2·σ·ε/μ at which the bound is reached, in one cell; the other one is far away."""
    tops = np.sqrt(2) * epsilon / mu * np.linspace(-1.25, 1.25, 2 * fine + 1)
    tops = np.concatenate([tops, [0.0, np.sqrt(2) * epsilon / mu, -np.sqrt(2) * epsilon / mu]])
    return [np.array([top, rest][:cells]) for top in tops for rest in (0.0, 3.0, 40.0)]
