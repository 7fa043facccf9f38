import copy
import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from ipate.errors import InputError
from ipate.release.noise import SecureNoise, SeededNoise, make_noise

LEVEL = 1e-6  # false positives of a seeded test, over seeds
SECURE_LEVEL = 1e-9  # and of a test whose draws differ on every run
IDS = [str(number) for number in range(50_000)]
KINDS = ["normal", "laplace"]
CDF = {"normal": stats.norm.cdf, "laplace": stats.laplace.cdf}
VARIANCE = {"normal": 1.0, "laplace": 2.0}


def draw(source, kind, purpose="label", ids=IDS, width=1):
    return getattr(source, kind)(purpose, ids, width)


def p_of_law(draws, kind):
    return stats.kstest(draws.ravel(), CDF[kind]).pvalue


@pytest.mark.parametrize("kind", KINDS)
def test_secure_noise_matches_its_law_at_full_scale(kind):
    draws = draw(SecureNoise(), kind)
    assert p_of_law(draws, kind) > SECURE_LEVEL
    assert p_of_law(draws * 2 / 3, kind) < SECURE_LEVEL
    assert p_of_law(draws + 0.05, kind) < SECURE_LEVEL


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_noise_matches_its_law_at_full_scale(kind):
    draws = draw(SeededNoise(3), kind)
    assert p_of_law(draws, kind) > LEVEL
    assert p_of_law(draws * 2 / 3, kind) < LEVEL
    assert p_of_law(draws + 0.05, kind) < LEVEL


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(4)], ids=["secure", "seeded"])
def test_noise_has_zero_mean_and_correct_variance(kind, source):
    draws = draw(source, kind, width=4)
    spread = 7 / np.sqrt(draws.size)  # seven standard errors: about 1e-11 of normal means
    assert abs(draws.mean()) < spread * np.sqrt(VARIANCE[kind])
    kurtosis = {"normal": 3.0, "laplace": 6.0}[kind]
    assert abs(draws.var() / VARIANCE[kind] - 1) < spread * np.sqrt(kurtosis - 1)
    assert abs((2 / 3 * draws).var() / VARIANCE[kind] - 1) > spread * np.sqrt(kurtosis - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_tails_match_those_of_its_law(kind):
    draws = np.abs(draw(SeededNoise(5), kind, width=4).ravel())
    for bound in (2.0, 3.0):
        chance = float(2 * CDF[kind](-bound))
        assert stats.binomtest(int((draws > bound).sum()), draws.size, chance).pvalue > LEVEL
        assert stats.binomtest(int((draws > 1.1 * bound).sum()), draws.size, chance).pvalue < LEVEL


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(4)], ids=["secure", "seeded"])
def test_draws_have_one_row_per_query(kind, source):
    assert draw(source, kind, ids=["a", "b"], width=3).shape == (2, 3)
    assert draw(source, kind, ids=[], width=3).shape == (0, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_two_secure_sources_draw_different_noise(kind):
    one, two = (draw(SecureNoise(), kind, ids=IDS[:1000]) for _ in range(2))
    assert np.intersect1d(one, two).size == 0


@pytest.mark.parametrize("kind", KINDS)
def test_secure_streams_differ_by_purpose_and_never_repeat(kind):
    source = SecureNoise()
    parts = [draw(source, kind, purpose, ids=IDS[:1000]) for purpose in ("check", "label", "check", "label")]
    assert np.unique(np.concatenate(parts)).size == 4000
    assert abs(stats.pearsonr(parts[0].ravel(), parts[1].ravel()).statistic) < 7 / np.sqrt(1000)


def test_global_seeds_do_not_affect_secure_noise():
    drawn = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        drawn.append(draw(SecureNoise(), "normal", ids=IDS[:1000]))
    assert np.intersect1d(*drawn).size == 0


def test_secure_noise_does_not_change_global_state():
    before = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    draw(SecureNoise(), "normal", ids=IDS[:10])
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


FORK = """
import os
import numpy as np
from ipate.release.noise import SecureNoise

source, plain = SecureNoise(), np.random.default_rng()
source.normal("label", ["warm"], 4)
source.normal("check", ["warm"], 1)
read, write = os.pipe()
child = os.fork()
drawn = np.concatenate(
    [plain.standard_normal(4), *(source.normal(name, ["a"] * 4, 4).ravel() for name in ("label", "check"))]
)
if child == 0:
    os.write(write, drawn.tobytes())
    os._exit(0)
os.waitpid(child, 0)
theirs = np.frombuffer(os.read(read, 1 << 16))
assert theirs.size == drawn.size == 36
print(np.intersect1d(drawn[:4], theirs[:4]).size, np.intersect1d(drawn[4:], theirs[4:]).size)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_child_and_parent_draw_different_noise():
    calm = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], check=False, capture_output=True, text=True, env=calm, timeout=60
    )
    assert done.returncode == 0, done.stderr
    ordinary, ours = map(int, done.stdout.split())
    assert ordinary == 4  # a plain generator repeats itself in the child, so the comparison can see it
    assert ours == 0


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_noise_repeats_for_seed_purpose_and_query(kind):
    one, two = (draw(SeededNoise(6), kind, ids=IDS[:100], width=3) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_noise_is_independent_of_chunks_and_order(kind):
    source, ids = SeededNoise(7), IDS[:60]
    whole = draw(source, kind, ids=ids, width=3)
    chunked = np.concatenate([draw(source, kind, ids=ids[start : start + 7], width=3) for start in range(0, 60, 7)])
    np.testing.assert_array_equal(chunked, whole)
    np.testing.assert_array_equal(draw(source, kind, ids=ids[::-1], width=3)[::-1], whole)
    np.testing.assert_array_equal(draw(SeededNoise(np.int64(7)), kind, ids=ids, width=3), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_noise_differs_between_seeds_purposes_queries_and_classes(kind):
    parts = [
        draw(SeededNoise(seed), kind, purpose, ids=IDS[:200], width=5)
        for seed in (0, 1, 10, 11)
        for purpose in ("check", "label", "")
    ]
    everything = np.concatenate([part.ravel() for part in parts])
    assert np.unique(everything).size == everything.size
    correlation = np.corrcoef(np.array([part.ravel() for part in parts]))
    assert np.abs(correlation - np.eye(len(parts))).max() < 7 / np.sqrt(1000)


def test_ambiguous_seed_and_id_concatenations_have_separate_streams():
    one = SeededNoise(1).normal("label", ["23", "2", "3"], 2)
    two = SeededNoise(12).normal("label", ["3", "32", ""], 2)
    three = SeededNoise(1).normal("label2", ["3", "", "x"], 2)
    assert np.unique(np.concatenate([one, two, three])).size == 18


def test_normal_and_laplace_draws_have_separate_streams():
    source = SeededNoise(8)
    normal, laplace = source.normal("label", IDS[:1000], 1), source.laplace("label", IDS[:1000], 1)
    ranks = stats.spearmanr(normal.ravel(), laplace.ravel()).statistic
    assert abs(ranks) < 7 / np.sqrt(1000)


def test_seeded_streams_match_their_recorded_values():
    normal = SeededNoise(42).normal("label", ["7"], 2)[0]
    np.testing.assert_allclose(normal, [0.71614842185468, 0.954705118075931], rtol=0, atol=1e-12)
    laplace = SeededNoise(42).laplace("label", ["7"], 2)[0]
    np.testing.assert_allclose(laplace, [-0.0572001717308173, -0.2346116519797006], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True, False, None, np.float64(3), [1]])
def test_seed_must_be_a_whole_nonnegative_number(seed):
    with pytest.raises(InputError, match="seed is"):
        SeededNoise(seed)


def test_noise_is_secure_unless_a_seed_is_given():
    assert isinstance(make_noise(), SecureNoise)
    assert isinstance(make_noise(None), SecureNoise)
    assert isinstance(make_noise(0), SeededNoise)
    assert make_noise().seeded is False
    assert make_noise(0).seeded is True
    assert np.intersect1d(*(draw(make_noise(), "normal", ids=IDS[:100]) for _ in range(2))).size == 0


def test_copied_or_pickled_secure_source_draws_new_noise():
    source = SecureNoise()
    source.normal("label", ["a"], 4)  # the stream exists before it is copied
    copies = [copy.copy(source), copy.deepcopy(source), pickle.loads(pickle.dumps(source))]
    draws = [noise.normal("label", ["a"], 4) for noise in (source, *copies)]
    assert len({tuple(row.ravel().tolist()) for row in draws}) == 4


def test_seeded_uniform_draws_exclude_zero_and_one():
    everything = SeededNoise(0)
    largest = (np.array([2**64 - 1], dtype=np.uint64) >> np.uint64(64 - 52)) + 0.5
    assert float(largest[0] * 2.0**-52) < 1
    assert np.all(np.isfinite(everything.normal("label", [str(i) for i in range(2000)], 3)))
