"""The empirical law of every aggregator against quadrature, with tests that prove their own power.

A test accepts where its p-value is above `LEVEL`, so a correct aggregator fails it at most once in a million
seeds. The seeds are fixed. Draws from the secure source cannot repeat: they are held to `SECURE_LEVEL`.
"""

import numpy as np
import pytest
from scipy import stats

from ipate.engines.teachers.aggregators import Confident, GNMax, Interactive, LNMax, Mechanism
from ipate.errors import InputError
from ipate.release.noise import SecureNoise, SeededNoise
from oracles import argmax_law

LEVEL = 1e-6
SECURE_LEVEL = 1e-9
SHRUNK = 2 / 3
REPEATS = 30_000
IDS = [str(number) for number in range(REPEATS)]
SIGMA = 12.0
COUNTS = [
    pytest.param([60.0, 52.0], id="two classes"),
    pytest.param([40.0, 36.5, 31.25, 0.0], id="fractional weights and an empty class"),
    pytest.param([30.0, 28.0, 25.0, 22.0, 20.0, 20.0, 15.0, 12.0, 10.0, 8.0], id="ten classes"),
]


class Recorder:
    """A noise source that keeps every draw it hands out, by purpose."""

    def __init__(self, source):
        self.source, self.seeded = source, source.seeded
        self.draws = {}

    def normal(self, purpose, queries, width):
        draws = self.source.normal(purpose, queries, width)
        self.draws.setdefault(purpose, []).append((list(queries), draws))
        return draws

    def laplace(self, purpose, queries, width):
        return self.source.laplace(purpose, queries, width)


class SameForEveryClass:
    """Broken on purpose: what the paper's note says, one draw for all classes of a query."""

    seeded = True

    def __init__(self, source):
        self.source = source

    def normal(self, purpose, queries, width):
        return np.repeat(self.source.normal(purpose, queries, 1), width, axis=1)

    def laplace(self, purpose, queries, width):
        return np.repeat(self.source.laplace(purpose, queries, 1), width, axis=1)


class OneStream:
    """Broken on purpose: the check and the label of a query read the same stream."""

    seeded = True

    def __init__(self, source):
        self.source = source

    def normal(self, purpose, queries, width):
        return self.source.normal("all", queries, width)


def ask(aggregator, counts, *, noise, ids=IDS, probs=None):
    tiled = np.tile(counts, (len(ids), 1))
    known = None if probs is None else np.tile(probs, (len(ids), 1))
    total = float(np.sum(counts))
    return aggregator.ask(tiled, queries=ids, noise=noise, total_weight=total, probs=known)


def gnmax(sigma=SIGMA):
    return GNMax(mechanism=Mechanism(sigma=sigma))


def with_check(kind, *, sigma=SIGMA, check_sigma=20.0, threshold=45.0, **more):
    mechanism = Mechanism(sigma=sigma, check_sigma=check_sigma, threshold=threshold)
    return kind(mechanism=mechanism, **more)


def gaussian_law(counts, sigma=SIGMA):
    law = np.exp(argmax_law(counts, sigma))
    assert law.sum() == pytest.approx(1, abs=1e-9)
    return law


def laplace_law(counts, scale):
    """P(argmax = j) by a fine trapezoid rule over every class by itself."""
    n = np.asarray(counts)
    t = np.linspace(n.min() - 40 * scale, n.max() + 40 * scale, 400_001)
    cdf = stats.laplace.cdf((t - n[:, None]) / scale)
    law = np.empty(n.size)
    for j in range(n.size):
        others = np.prod(np.delete(cdf, j, axis=0), axis=0)
        law[j] = np.trapezoid(stats.laplace.pdf((t - n[j]) / scale) / scale * others, t)
    assert law.sum() == pytest.approx(1, abs=1e-6)
    return law / law.sum()


def p_of_labels(labels, law):
    """Chi-square p-value of labels against a law; classes expected fewer than 5 times are merged."""
    seen, expected = np.bincount(labels, minlength=law.size).astype(float), law * len(labels)
    rare = expected < 5
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return stats.chisquare(seen, expected).pvalue


def p_of_rate(passed, chance):
    return stats.binomtest(int(passed.sum()), passed.size, chance).pvalue


def p_of_correlation(x, y):
    """Smallest p-value of any correlation between columns of x and y, corrected for their number."""
    return min(min(1.0, stats.pearsonr(left, right).pvalue * x.shape[1] * y.shape[1]) for left in x.T for right in y.T)


def p_within(draws):
    """The same between different columns of one array."""
    columns = draws.shape[1]
    pairs = [(i, j) for i in range(columns) for j in range(i)]
    values = [stats.pearsonr(draws[:, i], draws[:, j]).pvalue for i, j in pairs]
    return min(1.0, min(values) * len(pairs))


@pytest.mark.parametrize("counts", COUNTS)
def test_gnmax_label_law_matches_quadrature(counts):
    law = gaussian_law(counts)
    assert p_of_labels(ask(gnmax(), counts, noise=SeededNoise(1)).labels, law) > LEVEL
    assert p_of_labels(ask(gnmax(SIGMA * SHRUNK), counts, noise=SeededNoise(1)).labels, law) < LEVEL


@pytest.mark.parametrize("counts", COUNTS)
def test_gnmax_label_law_holds_with_secure_noise(counts):
    law = gaussian_law(counts)
    assert p_of_labels(ask(gnmax(), counts, noise=SecureNoise()).labels, law) > SECURE_LEVEL
    assert p_of_labels(ask(gnmax(SIGMA * SHRUNK), counts, noise=SecureNoise()).labels, law) < SECURE_LEVEL


def test_gnmax_answers_every_query():
    outcome = ask(gnmax(), [3.0, 1.0], noise=SeededNoise(1), ids=IDS[:50])
    assert outcome.answered.all()
    assert not outcome.reinforced.any()


@pytest.mark.parametrize("counts", COUNTS)
def test_label_law_rejects_one_draw_per_query(counts):
    law = gaussian_law(counts)
    assert p_of_labels(ask(gnmax(), counts, noise=SameForEveryClass(SeededNoise(1))).labels, law) < LEVEL


@pytest.mark.parametrize("counts", COUNTS)
def test_confident_pass_rate_matches_the_normal_law(counts):
    threshold = max(counts) + 15
    chance = stats.norm.cdf(-15 / 20)
    outcome = ask(with_check(Confident, threshold=threshold), counts, noise=SeededNoise(2))
    assert p_of_rate(outcome.answered, chance) > LEVEL
    shrunk = with_check(Confident, threshold=threshold, check_sigma=20 * SHRUNK)
    assert p_of_rate(ask(shrunk, counts, noise=SeededNoise(2)).answered, chance) < LEVEL


@pytest.mark.parametrize("counts", COUNTS)
def test_confident_label_law_matches_quadrature(counts):
    law, threshold = gaussian_law(counts), max(counts)
    outcome = ask(with_check(Confident, threshold=threshold), counts, noise=SeededNoise(3))
    assert (outcome.labels[~outcome.answered] == -1).all()
    assert p_of_labels(outcome.labels[outcome.answered], law) > LEVEL
    shrunk = ask(with_check(Confident, threshold=threshold, sigma=SIGMA * SHRUNK), counts, noise=SeededNoise(3))
    assert p_of_labels(shrunk.labels[shrunk.answered], law) < LEVEL


@pytest.mark.parametrize("counts", COUNTS)
def test_confident_laws_hold_with_secure_noise(counts):
    outcome = ask(with_check(Confident, threshold=max(counts) - 10), counts, noise=SecureNoise())
    assert p_of_rate(outcome.answered, stats.norm.cdf(10 / 20)) > SECURE_LEVEL
    assert p_of_labels(outcome.labels[outcome.answered], gaussian_law(counts)) > SECURE_LEVEL


def test_label_law_rejects_the_stream_of_the_check():
    counts = COUNTS[1].values[0]
    outcome = ask(with_check(Confident, threshold=max(counts) + 15), counts, noise=OneStream(SeededNoise(3)))
    assert p_of_labels(outcome.labels[outcome.answered], gaussian_law(counts)) < LEVEL


PROBS = np.array([0.7, 0.1, 0.15, 0.05])
VOTES = np.array([60.0, 50.0, 45.0, 20.0])
LEAD = 50 - 175 * 0.1


def test_interactive_pass_rate_follows_lead_over_student():
    chance = stats.norm.cdf((LEAD - 45) / 20)
    outcome = ask(with_check(Interactive), VOTES, noise=SeededNoise(4), probs=PROBS)
    assert p_of_rate(outcome.answered, chance) > LEVEL
    shrunk = ask(with_check(Interactive, check_sigma=20 * SHRUNK), VOTES, noise=SeededNoise(4), probs=PROBS)
    assert p_of_rate(shrunk.answered, chance) < LEVEL
    confident = ask(with_check(Confident), VOTES, noise=SeededNoise(4))
    assert p_of_rate(confident.answered, chance) < LEVEL


def test_interactive_label_law_ignores_the_student():
    law = gaussian_law(VOTES)
    outcome = ask(with_check(Interactive), VOTES, noise=SeededNoise(5), probs=PROBS)
    given = outcome.labels[outcome.answered]
    assert p_of_labels(given, law) > LEVEL
    assert p_of_labels(given, gaussian_law(VOTES - VOTES.sum() * PROBS)) < LEVEL
    shrunk = ask(with_check(Interactive, sigma=SIGMA * SHRUNK), VOTES, noise=SeededNoise(5), probs=PROBS)
    assert p_of_labels(shrunk.labels[shrunk.answered], law) < LEVEL


@pytest.mark.parametrize(("gamma", "sure"), [(0.69, True), (0.7, False), (0.9, False)])
def test_sure_student_is_reinforced_where_check_fails(gamma, sure):
    outcome = ask(with_check(Interactive, gamma=gamma), VOTES, noise=SeededNoise(6), probs=PROBS)
    failed = ~outcome.answered
    assert 0 < failed.sum() < failed.size
    np.testing.assert_array_equal(outcome.reinforced, failed & sure)
    assert (outcome.labels[failed] == (0 if sure else -1)).all()


def test_interactive_without_student_probabilities_is_refused():
    with pytest.raises(InputError, match="student_probs"):
        ask(with_check(Interactive), VOTES, noise=SeededNoise(0), ids=IDS[:1])


@pytest.mark.parametrize("counts", COUNTS)
def test_lnmax_label_law_matches_quadrature(counts):
    def lnmax(scale):
        return LNMax(mechanism=Mechanism(sigma=scale, noise="laplace"))

    law = laplace_law(counts, SIGMA)
    assert p_of_labels(ask(lnmax(SIGMA), counts, noise=SeededNoise(7)).labels, law) > LEVEL
    assert p_of_labels(ask(lnmax(SIGMA), counts, noise=SecureNoise()).labels, law) > SECURE_LEVEL
    assert p_of_labels(ask(lnmax(SIGMA * SHRUNK), counts, noise=SeededNoise(7)).labels, law) < LEVEL
    same = ask(lnmax(SIGMA), counts, noise=SameForEveryClass(SeededNoise(7)))
    assert p_of_labels(same.labels, law) < LEVEL


def recorded(noise, *, ids=IDS, classes=5):
    """Check and label draws of one run in which every query passes."""
    source = Recorder(noise)
    ask(with_check(Confident, threshold=-1e9), np.arange(classes, dtype=float), noise=source, ids=ids)
    assert set(source.draws) == {"check", "label"}
    (checked, check), (labelled, label) = source.draws["check"][0], source.draws["label"][0]
    assert checked == labelled == list(ids)
    assert check.shape == (len(ids), 1)
    assert label.shape == (len(ids), classes)
    return check, label


SOURCES = [pytest.param(lambda: SeededNoise(8), LEVEL, id="seeded"), pytest.param(SecureNoise, SECURE_LEVEL)]


@pytest.mark.parametrize(("source", "level"), SOURCES)
def test_noise_is_independent_across_classes(source, level):
    _, label = recorded(source())
    assert p_within(label) > level
    assert p_within(label**2) > level
    blended = label.copy()
    blended[:, 1] += 0.1 * blended[:, 0]
    assert p_within(blended) < level


def test_independence_test_rejects_one_draw_per_query():
    draws = SameForEveryClass(SeededNoise(8)).normal("label", IDS, 5)
    assert p_within(draws) < LEVEL


@pytest.mark.parametrize(("source", "level"), SOURCES)
def test_check_and_label_noise_are_independent(source, level):
    check, label = recorded(source())
    assert p_of_correlation(check, label) > level
    assert p_of_correlation(check**2, label**2) > level


@pytest.mark.parametrize(("source", "level"), SOURCES)
def test_noise_of_consecutive_queries_is_independent(source, level):
    check, label = recorded(source())
    assert p_of_correlation(label[1:], label[:-1]) > level
    assert p_of_correlation(check[1:], label[:-1]) > level


def test_independence_test_rejects_a_shared_stream():
    check, label = recorded(OneStream(SeededNoise(8)))
    assert p_of_correlation(check, label) < LEVEL


@pytest.mark.parametrize(("source", "level"), SOURCES)
def test_check_and_label_never_draw_the_same_number(source, level):
    check, label = recorded(source())
    assert np.unique(np.append(check, label)).size == check.size + label.size
    shared, again = recorded(OneStream(SeededNoise(8)))
    assert np.unique(np.append(shared, again)).size < shared.size + again.size


def test_seeded_labels_do_not_depend_on_chunks():
    counts = np.tile(COUNTS[2].values[0], (500, 1))
    whole = ask(gnmax(), COUNTS[2].values[0], noise=SeededNoise(9), ids=IDS[:500]).labels
    for size in (1, 7, 499):
        parts = [
            gnmax().ask(
                counts[start : start + size],
                queries=IDS[:500][start : start + size],
                noise=SeededNoise(9),
                total_weight=1.0,
            )
            for start in range(0, 500, size)
        ]
        np.testing.assert_array_equal(np.concatenate([part.labels for part in parts]), whole)


def test_secure_label_law_is_equal_across_chunks():
    counts, noise = COUNTS[2].values[0], SecureNoise()
    chunks = [ask(gnmax(), counts, noise=noise, ids=IDS[:6000]).labels for _ in range(8)]
    table = np.array([np.bincount(chunk, minlength=len(counts)) for chunk in chunks])
    assert stats.chi2_contingency(table).pvalue > SECURE_LEVEL
    assert p_of_labels(np.concatenate(chunks), gaussian_law(counts)) > SECURE_LEVEL
    agreement = np.mean(chunks[0] == chunks[1])
    assert stats.binomtest(int(agreement * 6000), 6000, float((gaussian_law(counts) ** 2).sum())).pvalue > SECURE_LEVEL
    table[0] = np.bincount(ask(gnmax(SIGMA * SHRUNK), counts, noise=noise, ids=IDS[:6000]).labels, minlength=10)
    assert stats.chi2_contingency(table).pvalue < SECURE_LEVEL
