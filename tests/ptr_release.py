"""The whole graded propose-test-release of a small ensemble, exactly: every data set, every neighbour, every outcome.

A data set is, for every query, how many teachers of each group voted for each class (or abstained). Its release is a
bit and, after a pass, the check and label of every query; its law is a product of laws that `oracles` computes. Only
the level comes from the code under test.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from ipate.accounting.ladder import Design, level
from ipate.accounting.ptr import Setting
from oracles import argmax_law


def histograms(voters: int, classes: int) -> list[tuple[int, ...]]:
    """All ways in which voters spread over classes."""
    if classes == 1:
        return [(voters,)]
    return [(first, *rest) for first in range(voters + 1) for rest in histograms(voters - first, classes - 1)]


@dataclass(frozen=True)
class Ensemble:
    """Groups of teachers (how many, of which weight), queries, and whether teachers may abstain."""

    setting: Setting
    teachers: tuple[int, ...]
    weights: tuple[float, ...]
    queries: int
    abstain: bool = False
    moves: tuple[int, ...] | None = None  # votes that one person moves at once (upsampling)

    def states(self) -> list[tuple[tuple[int, ...], ...]]:
        """All states of one query: a histogram per group."""
        width = self.setting.classes + self.abstain
        return list(itertools.product(*(histograms(count, width) for count in self.teachers)))

    def counts(self, state: tuple[tuple[int, ...], ...]) -> np.ndarray:
        """Weighted votes by class."""
        total = sum(w * np.array(h, dtype=float) for w, h in zip(self.weights, state, strict=True))
        return total[: self.setting.classes]

    def near(self, states: list[tuple[tuple[int, ...], ...]], group: int) -> list[list[int]]:
        """For every state those that one person of a group can turn it into, itself among them."""
        place = {state: index for index, state in enumerate(states)}
        return [[place[other] for other in self._moved(state, group)] for state in states]

    def _moved(self, state: tuple[tuple[int, ...], ...], group: int) -> set[tuple[tuple[int, ...], ...]]:
        # Upsampling: teachers are one pool (the only entry of `teachers`), and a person moves several votes.
        pool = 0 if self.moves else group
        reached = {state}
        for _ in range(self.moves[group] if self.moves else 1):
            for each in list(reached):
                own = each[pool]
                for a, b in itertools.permutations(range(len(own)), 2):
                    if own[a]:
                        changed = list(own)
                        changed[a] -= 1
                        changed[b] += 1
                        reached.add((*each[:pool], tuple(changed), *each[pool + 1 :]))
        return reached


def query_law(setting: Setting, counts: np.ndarray) -> np.ndarray:
    """Probabilities of one query's outcomes: no answer, or each class."""
    label = np.exp(argmax_law(counts, setting.sigma))
    label /= label.sum()
    if setting.check_sigma is None:
        return np.concatenate([[0.0], label])
    passing = ndtr((counts.max() - setting.threshold) / setting.check_sigma)
    return np.concatenate([[1 - passing], passing * label])


def levels_of(ensemble: Ensemble, design: Design) -> dict[tuple[int, ...], int]:
    """The level of every data set, up to the order of its queries."""
    votes = np.array([ensemble.counts(state) for state in ensemble.states()])
    sets = itertools.combinations_with_replacement(range(len(votes)), ensemble.queries)
    return {each: level(design, votes[list(each)]) for each in sets}


def divergences(
    ensemble: Ensemble, design: Design, levels: dict[tuple[int, ...], int]
) -> Iterator[tuple[str, int, float]]:
    """(group, level, largest hockey-stick divergence over δ) for every data set, over all its neighbours.

    With a fallback a failure is followed by the worst mechanism that (ε/2, δ/10) allows.
    """
    states = ensemble.states()
    laws = np.array([query_law(ensemble.setting, ensemble.counts(state)) for state in states])
    pi = np.exp(-np.array(design.losses))
    for index, group in enumerate(design.setting.groups):
        near = ensemble.near(states, index)
        after = _after_failure(design, index)
        for each, own in levels.items():
            others = list(itertools.product(*(near[q] for q in each)))
            p = _product(laws, np.array([each]))
            q = _product(laws, np.array(others))
            theirs = np.array([levels[tuple(sorted(o))] for o in others])
            e = math.exp(group.epsilon)
            passed = np.maximum(pi[own] * p - e * pi[theirs, None] * q, 0).sum(axis=1)
            failed = np.maximum((1 - pi[own]) * after[0] - e * (1 - pi[theirs, None]) * after[1], 0).sum(axis=1)
            yield group.id, own, float((passed + failed).max()) / group.delta


def _after_failure(design: Design, index: int) -> np.ndarray:
    """Two laws at exactly (ε/2, δ/10), or the lone outcome 'failed'."""
    if not design.fallback:
        return np.ones((2, 1))
    epsilon, delta = design.setting.groups[index].epsilon / 2, design.setting.groups[index].delta / 10
    big, small = np.array([math.exp(epsilon), 1.0]) * (1 - delta) / (1 + math.exp(epsilon))
    return np.array([[delta, big, small, 0.0], [0.0, small, big, delta]])


def _product(laws: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Laws of data sets (n, queries) over all combinations of outcomes, (n, outcomes^queries)."""
    out = laws[sets[:, 0]]
    for column in range(1, sets.shape[1]):
        out = (out[:, :, None] * laws[sets[:, column]][:, None, :]).reshape(len(sets), -1)
    return out
