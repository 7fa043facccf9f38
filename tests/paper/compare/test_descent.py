import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from ipate.accounting.gdp import epsilon_of, mu_of
from ipate.errors import InputError
from ipate.release.noise import SeededNoise
from paper.compare import descent
from paper.compare.descent import (
    Scale,
    Settings,
    clipped_sum,
    fit_descent,
    spent_epsilon,
    total_mu,
    weights_for,
)


class Still:
    """A source of noise that always draws the same number, and remembers for what."""

    seeded = True

    def __init__(self, value: float) -> None:
        self.value, self.asked = value, []

    def normal(self, purpose, queries, width):
        self.asked.append((purpose, *queries, width))
        return np.full((len(queries), width), self.value)


def blobs(n=400, *, seed=0):
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, n)
    return generator.normal(size=(n, 4)) + 4 * np.eye(3, 4)[y], y


def test_weights_spend_exactly_their_budget():
    settings = Settings(steps=25, clip=0.3)
    mu = mu_of([0.1, 1.0, 3.0], 1e-5)
    weight = weights_for(mu, settings)
    assert total_mu(weight, settings) == pytest.approx(mu, rel=1e-12)
    assert spent_epsilon(weight, 1e-5, settings) == pytest.approx([0.1, 1.0, 3.0], rel=1e-6)


def test_account_agrees_with_another_library():
    settings = Settings(steps=25, clip=0.3)
    weight = float(weights_for(mu_of(1.0, 1e-5), settings))
    step = dp_accounting.GaussianDpEvent(1.0 / (2 * settings.clip * weight))  # noise 1 over the largest move
    accountant = PLDAccountant()
    accountant.compose(step, settings.steps)
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)


def test_replaced_person_moves_sum_within_sensitivity():
    generator, clip = np.random.default_rng(1), 0.5
    rows, y = generator.normal(size=(30, 5)), generator.integers(0, 3, 30)
    weight = generator.uniform(0.1, 2.0, 30)
    largest = 0.0
    for trial in range(200):
        theta = generator.normal(size=(5, 3)) * generator.choice([0.0, 1.0, 10.0])
        changed, other = rows.copy(), y.copy()
        changed[0], other[0] = 10.0 ** generator.uniform(-3, 3) * generator.normal(size=5), trial % 3
        moved = clipped_sum(rows, y, theta, row_weight=weight, clip=clip) - clipped_sum(
            changed, other, theta, row_weight=weight, clip=clip
        )
        largest = max(largest, float(np.linalg.norm(moved)) / float(descent.step_sensitivity(weight[0], clip)))
    assert 0.5 < largest <= 1 + 1e-12


def test_opposite_gradients_reach_the_sensitivity():
    x = np.array([[3.0, 4.0]])
    first, second = (
        clipped_sum(x, np.array([c]), np.zeros((2, 2)), row_weight=np.array([0.7]), clip=0.2) for c in (0, 1)
    )
    assert np.linalg.norm(first - second) == pytest.approx(descent.step_sensitivity(0.7, 0.2))


def test_rows_of_one_person_share_one_weight(monkeypatch):
    seen = {}

    def record(rows, y, theta, *, row_weight, clip):
        seen["weight"] = row_weight
        return np.zeros_like(theta)

    monkeypatch.setattr(descent, "clipped_sum", record)
    X, y = blobs(6)
    person, mu = np.array([0, 0, 0, 1, 1, 2]), np.array([0.5, 0.1, 2.0])
    scale = Scale.fit(X, whiten=False)
    fit_descent(X, y, mu=mu, n_classes=3, scale=scale, person_of_row=person, noise=Still(0.0))
    own = np.bincount(person, weights=seen["weight"])
    assert own == pytest.approx(weights_for(mu, Settings()))


def test_every_step_draws_its_own_noise():
    X, y = blobs()
    noise, scale, settings = Still(0.0), Scale.fit(X, whiten=False), Settings(steps=4)
    fit_descent(X, y, mu=np.full(len(y), 0.3), n_classes=3, scale=scale, settings=settings, noise=noise)
    assert noise.asked == [("gradient", str(step), 5 * 3) for step in range(4)]


def test_noise_enters_every_entry_in_full():
    X, y = blobs()
    scale, settings = Scale.fit(X, whiten=False), Settings(steps=1, average=1.0)
    mu = np.full(len(y), 0.3)
    still, moved = (
        fit_descent(X, y, mu=mu, n_classes=3, scale=scale, settings=settings, noise=Still(value)).theta
        for value in (0.0, 1.0)
    )
    step = settings.rate / settings.clip / float(weights_for(mu, settings).sum())
    assert still - moved == pytest.approx(np.full(still.shape, step))  # noise of deviation 1 is 8 steps of the grid


def test_released_sums_are_whole_steps(monkeypatch):
    given = []
    monkeypatch.setattr(descent, "in_steps", lambda noisy, sigma: given.append(sigma) or np.rint(noisy * 8).astype(int))
    X, y = blobs()
    fit_descent(X, y, mu=np.ones(len(y)), n_classes=3, scale=Scale.fit(X, whiten=False), noise=SeededNoise(0))
    assert given == [1.0] * Settings().steps


def test_unreadable_row_counts_as_no_row():
    X, y = blobs(60)
    broken, labels = X.copy(), y.copy()
    broken[0, 0], labels[1] = np.nan, 7
    rows = Scale.fit(X, whiten=False)
    mu = np.full(60, 0.5)
    found = fit_descent(broken, labels, mu=mu, n_classes=3, scale=rows, noise=Still(0.0))
    without = np.arange(60) > 1
    person = np.flatnonzero(without)
    same = fit_descent(X[without], y[without], mu=mu, n_classes=3, scale=rows, person_of_row=person, noise=Still(0.0))
    assert found.theta == pytest.approx(same.theta)


@pytest.mark.parametrize("whiten", [False, True])
def test_descent_learns_with_large_budgets(whiten):
    X, y = blobs(2000)
    scale = Scale.fit(X[:500], whiten=whiten)
    settings = Settings(whiten=whiten)
    model = fit_descent(X, y, mu=np.ones(2000), n_classes=3, scale=scale, settings=settings, noise=SeededNoise(0))
    assert (model.predict(X) == y).mean() > 0.95
    assert epsilon_of(total_mu(weights_for(1.0, settings), settings), 1e-5) < 4.5


def test_scale_ignores_constant_columns():
    pool = np.column_stack([np.arange(10.0), np.full(10, 3.0)])
    assert Scale.fit(pool, whiten=True).transform(pool).shape == (10, 2)


@pytest.mark.parametrize(("name", "value"), [("steps", 0), ("clip", 0.0), ("rate", float("nan")), ("average", 0.0)])
def test_invalid_settings_are_refused(name, value):
    with pytest.raises(InputError, match=name):
        Settings(**{name: value})


def test_mu_of_people_is_checked():
    X, y = blobs(10)
    with pytest.raises(InputError, match="mu"):
        fit_descent(X, y, mu=np.zeros(10), n_classes=3, scale=Scale.fit(X, whiten=False))
