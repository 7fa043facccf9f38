"""The methods on tables, one function each: a world and budgets in, an outcome out."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.accounting.bounds import Meter
from ipate.accounting.gdp import mu_of
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.variants import lay_out
from ipate.engines.teachers.votes import Votes
from ipate.errors import IpateError
from ipate.models.named import DEFAULT
from ipate.people.budgets import Budget, Group
from ipate.release.noise import SeededNoise
from ipate.students.student import find_student
from paper.compare import dpsgd
from paper.compare.descent import Scale, Settings, fit_descent
from paper.compare.outcome import Clock, Outcome, Studio, scored
from paper.compare.worlds import Mix, World
from paper.experiments import SETUPS

_POINTS = 132  # people per teacher in the paper's experiment on Adult
_FEWEST = 25  # teachers, where there are not enough people for the paper's 250
REFUSED = "no label"


def ceiling(world: World, mix: Mix | None, studio: Studio) -> Outcome:
    """Train ipate's default student on all private rows, without privacy."""
    return _student(world, *world.private, public=False)


def pool_truth(world: World, mix: Mix | None, studio: Studio) -> Outcome:
    """Train ipate's default student on the true labels of the pool, which nobody has."""
    return _student(world, *world.pool, public=True)


def _student(world: World, X: NDArray[Any], y: NDArray[Any], *, public: bool) -> Outcome:
    clock, student = Clock(), find_student(DEFAULT)
    model = student.teach(student.make({}, seed=world.seed), X, y, classes=range(world.n_classes))
    return clock.on(scored(model.predict, world, None, public=public))


def by_ipate(world: World, mix: Mix, voting: str) -> Outcome:
    """Fit `PATEClassifier` with nothing but its engine chosen; teachers accept one label per class."""
    from ipate import PATEClassifier

    clock = Clock()
    model = PATEClassifier(
        voting=voting,
        classes=range(world.n_classes),
        random_state=world.seed,
        noise_seed=world.seed,
        verbose=0,
        min_labels=world.n_classes,
    )
    budgets = mix.of_people(world.people, world.seed)
    try:
        model.fit(*world.private, budgets=budgets, X_public=world.pool[0])
    except IpateError:  # fewer labels are expected than there are classes
        return clock.on(Outcome(accuracy=None), note=REFUSED)
    return clock.on(scored(model.predict, world, mix, public=True), note=f"{int((model.labels_ >= 0).sum())} labels")


def ballots(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use ipate's ballots with their defaults."""
    return by_ipate(world, mix, "ballots")


def teachers(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use ipate's teachers with their defaults."""
    return by_ipate(world, mix, "teachers")


def descent(world: World, mix: Mix, setting: Settings) -> Outcome:
    """Train by noisy gradient descent, everybody weighted by their own budget."""
    clock = Clock()
    mu = mu_of(mix.of_people(world.people, world.seed), world.delta)
    scale = Scale.fit(world.pool[0], whiten=setting.whiten)
    model = fit_descent(
        *world.private, mu=mu, n_classes=world.n_classes, scale=scale, settings=setting, noise=SeededNoise(world.seed)
    )
    return clock.on(scored(model.predict, world, mix))


def by_dpsgd(world: World, mix: Mix, setting: dpsgd.Setting) -> Outcome:
    """Train by DP-SGD on features that the pool scales; with several budgets, by individual DP-SGD."""
    scale = Scale.fit(world.pool[0], whiten=False)
    return trained_by_dpsgd(world, mix, setting, lambda X: scale.transform(X)[:, :-1], device="cpu")


def trained_by_dpsgd(world: World, mix: Mix, setting: dpsgd.Setting, prepare: Any, *, device: str) -> Outcome:
    """Train by DP-SGD on prepared rows."""
    clock = Clock()
    group = mix.groups(world.people, world.seed)
    noise = dpsgd.individual_noise(mix.epsilon, np.bincount(group).tolist(), delta=world.delta, setting=setting)
    model = dpsgd.train(
        prepare(world.private[0]),
        world.private[1],
        clips=np.asarray(noise.clips)[group],
        deviation=noise.deviation,
        setting=setting,
        n_classes=world.n_classes,
        seed=world.seed,
        device=device,
    )
    found = scored(lambda X: dpsgd.predict(model, prepare(X), device=device), world, mix)
    return clock.on(found, where="CPU" if device == "cpu" else "GPU")


def paper_pate(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use PATE as in the paper's experiment on Adult (forests), with weights by budgets, under the gdp account.

    Where there are too few people for 250 teachers there are as many as have 132 people each, at least 25, and σ, σ_T
    and T are scaled with their number. With one budget this is standard PATE.
    """
    from sklearn.ensemble import RandomForestClassifier

    clock = Clock()
    votes = studio.load("forests", world)["votes"]
    base, k = SETUPS["adult"].mechanism, len(votes)
    asked, labels = paper_labels(world, mix, votes, _scaled(base, k / SETUPS["adult"].n_teachers))
    if not len(labels):
        return clock.on(Outcome(accuracy=None), note=REFUSED)
    if len(set(labels.tolist())) == 1:
        found = scored(lambda X: np.full(len(X), labels[0]), world, mix, public=True)
    else:
        model = RandomForestClassifier(n_estimators=100, random_state=world.seed).fit(world.pool[0][asked], labels)
        found = scored(model.predict, world, mix, public=True)
    return clock.on(found, note=f"{len(labels)} labels")


def _scaled(base: Mechanism, factor: float) -> Mechanism:
    return Mechanism(
        sigma=base.sigma * factor,
        check_sigma=(base.check_sigma or 0) * factor,
        threshold=(base.threshold or 0) * factor,
    )


def paper_labels(world: World, mix: Mix, votes: Ints, mechanism: Mechanism) -> tuple[Ints, Ints]:
    """Return the points that Confident-GNMax labels within everybody's budget under gdp, and their labels.

    Budgets are dealt at random, so teachers are exchangeable, and the first ones belong to the first group.
    """
    groups = [
        Group(id=str(place), budget=Budget(epsilon, world.delta), people=round(share * world.people))
        for place, (epsilon, share) in enumerate(zip(mix.epsilon, mix.shares, strict=True))
    ]
    options: dict[str, Any] = {"rule": "proportional"} if mix.individual else {}
    layout = lay_out("weighting" if mix.individual else "standard", groups=groups, n_teachers=len(votes), **options)
    order = np.random.default_rng([world.seed, 3]).permutation(votes.shape[1])
    done = label(
        Votes(votes=votes[:, order], n_classes=world.n_classes),
        Panel.of(layout),
        Confident(mechanism=mechanism),
        Meter("gdp"),
        noise=SeededNoise(world.seed),
    )
    return order[done.queries[done.answered]], done.labels[done.answered]


def deal(world: World, k: int) -> list[Ints]:
    """Deal all people to k teachers at random."""
    return np.array_split(np.random.default_rng([world.seed, 4]).permutation(world.people), k)


def prepare_forests(world: World, studio: Studio) -> None:
    """Train forests on disjoint people and keep their votes on the pool, which all budgets share."""
    from sklearn.ensemble import RandomForestClassifier

    k = max(_FEWEST, min(SETUPS["adult"].n_teachers, world.people // _POINTS))
    trees = 100 if studio.steps is None else studio.steps
    X, y = world.private
    votes = [
        RandomForestClassifier(n_estimators=trees, random_state=number).fit(X[rows], y[rows]).predict(world.pool[0])
        for number, rows in enumerate(deal(world, k))
    ]
    studio.store("forests", world, {"votes": np.stack(votes).astype(np.uint8)})


@lru_cache(maxsize=1)
def descent_grid() -> dict[str, Settings]:
    """Return the stated grid of noisy gradient descent by the name of each setting; the first is the default."""
    every = [Settings()] + [
        Settings(steps=steps, rate=rate, whiten=whiten)
        for whiten in (False, True)
        for steps in (10, 30, 100)
        for rate in (0.5, 2.0, 8.0, 32.0)
    ]
    return {f"{s.steps} steps, rate {s.rate:g}, {'whitened' if s.whiten else 'standardised'}": s for s in every}
