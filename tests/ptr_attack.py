"""Attacks on the envelope of graded propose-test-release: random votes, and votes that climb towards the bound.

A batch of B attacks on one setting and one radius: histograms n, others within the radius, and where one person can
take those. The exact divergence of the release comes from `oracles`.
"""

from dataclasses import dataclass

import numpy as np

from ipate.accounting import ptr as envelope
from ipate.accounting.ptr import PtrGroup, Setting, inflation, tables_for
from oracles import argmax_law, divergence, log_cdf

# Below this the oracle's divergence is the square of a rounding error.
FLOOR = 1e-27


def query_costs(setting, group, counts, radii):
    """g_r of weighted votes (Q, C) for radii (R,) in steps of the grid: (Q, R, A)."""
    tables, (gaps, top) = tables_for(setting, group), envelope.rank_votes(setting.check_counts(counts))
    return np.stack([envelope.query_costs(setting, tables, gaps, top, step) for step in radii.tolist()], axis=1)


@dataclass
class Attacks:
    """`votes` (B, C); `drift` (B, C), what the radius moves; `move` (B, C), what the person moves."""

    votes: np.ndarray
    drift: np.ndarray
    move: np.ndarray

    def pick(self, better: np.ndarray, other: "Attacks") -> "Attacks":
        choose = better[:, None]
        return Attacks(
            *(np.where(choose, getattr(other, name), getattr(self, name)) for name in ("votes", "drift", "move"))
        )


def random_setting(rng: np.random.Generator, kind: str) -> Setting:
    """A mechanism and a person's weight: `unit`, `weighted` (a fine lattice) or `upsampled` (several votes)."""
    k = int(rng.choice([5, 12, 30, 100, 250]))
    sigma = float(np.exp(rng.uniform(np.log(0.02), np.log(0.5))) * k)
    sensitivity = {"unit": 1.0, "weighted": rng.integers(5, 49) / 16, "upsampled": float(rng.integers(2, 5))}[kind]
    checked = rng.random() < 0.6
    return Setting(
        sigma=sigma,
        check_sigma=float(rng.uniform(0.1, 1.0) * k) if checked else None,
        threshold=float(rng.uniform(0.2, 1.0) * k) if checked else None,
        classes=int(rng.choice([2, 3, 5, 10])),
        total_weight=float(k),
        groups=(PtrGroup(id="all", epsilon=1.0, delta=1e-5, sensitivity=sensitivity),),
        grid=0.25 if kind == "weighted" else 1.0,
        lattice=float(rng.choice([2.0**-4, 2.0**-6, 2.0**-8])) if kind == "weighted" else 1.0,
    )


def random_votes(rng: np.random.Generator, setting: Setting, size: int) -> np.ndarray:
    """Histograms from unanimous to tied, some with abstentions or few votes, on the lattice."""
    c, k = setting.classes, setting.total_weight
    shares = rng.dirichlet(np.ones(c), size)
    lead = rng.choice([0.0, 0.5, 0.8, 0.95, 1.0], size)[:, None]
    votes = (lead * np.eye(c)[0] + (1 - lead) * shares) * k * rng.choice([1.0, 1.0, 0.9, 0.3], size)[:, None]
    tied = rng.random(size) < 0.1
    votes[tied, 1] = votes[tied, 0] = (votes[tied, 0] + votes[tied, 1]) / 2
    votes = np.take_along_axis(votes, np.argsort(rng.random((size, c)), axis=1), axis=1)
    return np.floor(votes / setting.lattice) * setting.lattice


def shift(rng: np.random.Generator, votes: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """What leaves one class (or none) for another (or none), at most `amount` and at most what is there."""
    size, c = votes.shape
    out = np.zeros_like(votes)
    ranked = np.argsort(-votes, axis=1)
    usual = rng.random(size)
    source = np.where(usual < 0.5, ranked[:, 0], np.where(usual < 0.75, ranked[:, 1], rng.integers(0, c + 1, size)))
    target = np.where(usual < 0.5, ranked[:, 1], np.where(usual < 0.75, ranked[:, 0], rng.integers(0, c + 1, size)))
    rows = np.arange(size)
    there = np.where(source < c, votes[rows, np.minimum(source, c - 1)], amount)
    moved = np.minimum(amount, there)
    moved = np.where(source == target, 0.0, moved)
    np.add.at(out, (rows[source < c], source[source < c]), -moved[source < c])
    np.add.at(out, (rows[target < c], target[target < c]), moved[target < c])
    return out


def several(rng: np.random.Generator, votes: np.ndarray, amount: float, setting: Setting, parts: int) -> np.ndarray:
    """Up to `parts` shifts that together move at most `amount`, without passing the total weight."""
    left = np.full(len(votes), amount)
    total = np.zeros_like(votes)
    for part in range(parts):
        share = left if part == parts - 1 else left * rng.choice([0.0, 0.5, 1.0], len(votes))
        share = np.floor(share / setting.lattice) * setting.lattice
        step = shift(rng, votes + total, share)
        over = (votes + total + step).sum(axis=1) > setting.total_weight
        step[over] = 0
        total += step
        left = left - share
    return total


def make(rng: np.random.Generator, setting: Setting, radius: int, size: int, kind: str) -> Attacks:
    """Random attacks."""
    votes = random_votes(rng, setting, size)
    drift = several(rng, votes, radius * setting.grid, setting, 3)
    parts = 3 if kind == "upsampled" else 1
    move = several(rng, votes + drift, setting.groups[0].sensitivity, setting, parts)
    return Attacks(votes, drift, move)


def ratios(setting: Setting, radius: int, attacks: Attacks) -> np.ndarray:
    """Exact divergence over the envelope, the largest over orders, (B,)."""
    bound = query_costs(setting, setting.groups[0], attacks.votes, np.array([radius]))[:, 0]
    here = np.maximum(attacks.votes + attacks.drift, 0)
    there = np.maximum(here + attacks.move, 0)
    logs = [release_law(setting, counts) for counts in (here, there)]
    exact = divergence(*logs, setting.orders) / inflation(np.array([radius]))  # as the totals are raised
    return np.asarray(np.where(exact > FLOOR, exact / bound, 0.0).max(axis=1))


def release_law(setting: Setting, counts: np.ndarray) -> np.ndarray:
    """Log-probabilities of no answer and of every label, (B, C + 1) or (B, C)."""
    step = 0.1 if setting.total_weight / setting.sigma < 60 else 0.2
    label = argmax_law(counts, setting.sigma, step)
    if setting.check_sigma is None:
        return label
    z = (counts.max(axis=1, keepdims=True) - setting.threshold) / setting.check_sigma
    return np.concatenate([log_cdf(-z), log_cdf(z) + label], axis=1)


def climb(rng: np.random.Generator, setting: Setting, radius: int, size: int, kind: str, steps: int) -> np.ndarray:
    """Chains that keep whatever comes closer to the bound; the best ratio of each, (B,)."""
    best = make(rng, setting, radius, size, kind)
    value = ratios(setting, radius, best)
    group = setting.groups[0]
    for _ in range(steps):
        votes = best.votes + several(rng, best.votes, rng.choice([1, 2, 5, 20]) * setting.grid, setting, 1)
        votes = np.maximum(votes, 0)
        keep = rng.random(size)[:, None] < 0.5
        drift = np.where(keep, several(rng, votes, radius * setting.grid, setting, 2), best.drift)
        drift = np.where((votes + drift < 0).any(axis=1, keepdims=True), 0, drift)
        parts = 2 if kind == "upsampled" else 1
        move = np.where(~keep, several(rng, votes + drift, group.sensitivity, setting, parts), best.move)
        move = np.where((votes + drift + move < 0).any(axis=1, keepdims=True), 0, move)
        outside = ((votes + drift).sum(axis=1) > setting.total_weight) | (
            (votes + drift + move).sum(axis=1) > setting.total_weight
        )
        tried = Attacks(votes, drift, move)
        found = np.where(outside, 0.0, ratios(setting, radius, tried))
        best, value = best.pick(found > value, tried), np.maximum(value, found)
    return value


def ladder(rng: np.random.Generator, setting: Setting, size: int, radii: list[int], kind: str) -> tuple[int, float]:
    """How many neighbour pairs were tried, and the largest g_r(n′)/g_{r+j}(n), rounding raised as in the totals."""
    group = setting.groups[0]
    steps = setting.steps(group)
    votes = random_votes(rng, setting, size)
    moved = np.maximum(votes + several(rng, votes, group.sensitivity, setting, 3 if kind == "upsampled" else 1), 0)
    radius = np.array(radii)
    low = query_costs(setting, group, moved, radius) * (1 + 1e-10 * radius)[:, None]
    high = query_costs(setting, group, votes, radius + steps) * (1 + 1e-10 * (radius + steps))[:, None]
    finite = np.isfinite(high)
    over = np.where(low <= high, low, np.inf)[finite] / high[finite]
    return size, float(over.max(initial=0.0))
