"""Choose the number of teachers and the noise from public information alone.

Under the gdp bound, labels grow with k² at equal σ/k, until teachers have too little data. The best choice depends on
how well teachers with p points agree. Private votes must not be used for that, so the agreement is measured on a public
proxy task or taken from fixed reference profiles of vote shares.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import beta

from ipate._types import Floats
from ipate.accounting import gdp
from ipate.accounting._argmax import argmax_log_law
from ipate.data.frames import take
from ipate.engines.teachers.variants import lay_out
from ipate.errors import InputError
from ipate.ledger.records import Noise
from ipate.ledger.standing import Left, Standing, left_in
from ipate.people.budgets import Account, Group
from ipate.students.student import Student

SIGMAS = (0.04, 0.06, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3)  # or scales of Laplace noise
PRICES: dict[Noise, float] = {"gaussian": 2.0, "laplace": 2 * float(np.pi)}  # μ² of a label at most, times (Δ/σ)²
CHECK_SIGMAS = (0.15, 0.2, 0.3, 0.4, 0.6)
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BLIND_THRESHOLD = 0.5  # largest threshold without a proxy: teachers weaker than assumed would never pass a higher one
SKILLS = (0.2, 0.4, 0.6, 0.8, 0.95)  # assumed skills of teachers if there is no proxy
FEWEST_TEACHERS = 25
LARGEST_SHARE = 9  # a student that spreads a few labels gets at most a ninth of the pool labelled
PROXY_TEACHERS = 40
FEW_GROUPS, MOST_GROUPS = 8, 32  # so many groups are never merged, and more never remain, unless asked for


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The shares of the votes per public point and class, for teachers with a given number of points."""

    shares: Floats  # (points, C); each row sums to 1, the first column is the true class
    points_per_teacher: int
    source: str  # description of the origin
    measured: bool = False  # whether it was measured with teachers trained on public data


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen parameters and the reason, which depend on public information alone."""

    n_teachers: int
    sigma: float | None  # None under Laplace noise
    check_sigma: float | None
    threshold: float | None
    reason: str
    scale: float | None = None  # of Laplace noise
    n_queries: int | None = None  # how many points to ask; None: as many as the budgets afford
    profiles: tuple[Profile, ...] = field(default=(), compare=False, repr=False)  # by which it was chosen


def reference_profile(n_classes: int, points_per_teacher: int, *, skill: float = 0.6) -> Profile:
    """Return a fixed profile in which a teacher's probability of being right varies from point to point.

    It follows a Beta distribution of concentration 3, whose mean is 1/C + skill·(1 − 1/C). Half of the errors fall on
    one class, the rest evenly on all wrong classes.
    """
    accuracy = 1 / n_classes + skill * (1 - 1 / n_classes)
    chance = beta.ppf((np.arange(200) + 0.5) / 200, 3 * accuracy, 3 * (1 - accuracy))
    shares = np.empty((200, n_classes))
    shares[:, 0] = chance
    shares[:, 1:] = (1 - chance)[:, None] / (n_classes - 1)
    if n_classes > 2:
        shares[:, 1:] /= 2
        shares[:, 1] += (1 - chance) / 2
    return Profile(
        shares=shares,
        points_per_teacher=points_per_teacher,
        source=f"reference profiles (teachers from {SKILLS[0]:.0%} to {SKILLS[-1]:.0%} of the way to perfect)",
    )


def proxy_profiles(
    estimator: Any, X: Any, y: NDArray[np.int64], *, n_classes: int, sizes: Sequence[int], seed: int = 0
) -> tuple[Profile, ...]:
    """Train a few teachers of each size that fits on half of a public labelled task; they vote on the other half."""
    from sklearn.base import clone

    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, hold = order[: len(order) // 2], order[len(order) // 2 :][:1000]
    profiles = []
    asked = take(X, hold)
    for size in sizes:
        if size > len(train):
            continue
        votes = np.zeros((len(hold), n_classes))
        for _ in range(PROXY_TEACHERS):
            rows = rng.choice(train, size=size, replace=False)
            known = np.unique(y[rows])
            heard = known[0] if known.size == 1 else clone(estimator).fit(take(X, rows), y[rows]).predict(asked)
            votes[np.arange(len(hold)), heard] += 1
        shares = votes / PROXY_TEACHERS
        truth = shares[np.arange(len(hold)), y[hold]][:, None]
        others = np.sort(np.where(np.arange(n_classes) == y[hold][:, None], -1.0, shares), axis=1)[:, :0:-1]
        profiles.append(
            Profile(
                shares=np.hstack([truth, others]),
                points_per_teacher=size,
                source=f"a public proxy task of {len(y)} points",
                measured=True,
            )
        )
    if not profiles:
        raise InputError(f"the proxy task has {len(y)} points: half of it must hold at least {min(sizes)}")
    return tuple(profiles)


def choose(
    *,
    groups: Sequence[Group],
    n_public: int,
    n_classes: int,
    profiles: Sequence[Profile] | None = None,
    points_per_teacher: int | None = None,
    n_teachers: int | None = None,
    check: bool = True,
    noise: Noise = "gaussian",
    variant: str = "weighting",
    standing: Standing | None = None,
    **options: Any,
) -> Choice:
    """Return k, σ, σ_T and T with the best expected student under the releasable gdp bound.

    The score of a candidate is the number of labels it affords times ((a − 1/C)/(1 − 1/C))², where a is the expected
    accuracy of the labels: the equivalent number of clean labels. The number of labels is that of the group that is
    exhausted first, and at most the answered part of the pool. Without `profiles`, the candidate is best on average
    over reference profiles of several skills, at `points_per_teacher` or `usual_points`. `n_teachers` fixes k.
    Without a `check`, only σ is chosen, or the scale b of Laplace noise, whose label costs a μ² of at most 2π(Δ/b)²:
    μ = 2Φ⁻¹(e^ε₀/(1 + e^ε₀)) with ε₀ = 2Δ/b is concave in ε₀ with the slope √(π/2) at 0. `standing` is what earlier
    runs left of the budgets. `options` are those of `ipate.engines.teachers.variants.lay_out`.
    """
    scored = []
    for known, base, worth in _candidates(
        groups, n_classes, profiles, points_per_teacher, n_teachers, variant=variant, standing=standing, **options
    ):
        scored.append(_best_noise(known, base, worth, n_public, check=check, noise=noise))
    return max(scored, key=lambda found: found[0])[1]


def choose_few(
    *,
    groups: Sequence[Group],
    n_public: int,
    n_classes: int,
    profiles: Sequence[Profile] | None = None,
    points_per_teacher: int | None = None,
    n_teachers: int | None = None,
    student: Student,
    variant: str = "weighting",
    standing: Standing | None = None,
    **options: Any,
) -> Choice:
    """Return k, σ and the number of queries for a student that spreads a few labels with their counts over the pool.

    The whole budget goes to m labels without a check: counts say how sure each one is. m is what the student wants, at
    most a ninth of the pool, and σ = √(2m)/q, where q is the least μ/Δ of a group. k is the candidate with the largest
    k times the mean lead of the winner.
    """
    best: tuple[float, Choice] | None = None
    for known, base, worth in _candidates(
        groups, n_classes, profiles, points_per_teacher, n_teachers, variant=variant, standing=standing, **options
    ):
        top = np.concatenate([np.sort(profile.shares, axis=1)[:, -2:] for profile in known])
        lead = float(np.mean(top[:, 1] - top[:, 0]))
        wanted = student.labels_wanted(base, float(np.sqrt(worth)), n_classes=n_classes) or n_public
        m = max(1, min(wanted, max(n_classes, n_public // LARGEST_SHARE), n_public))
        sigma = (1 + 1e-6) * float(np.sqrt(2 * m / worth))  # m labels stay within a budget after rounding
        reason = (
            f"{base} teachers of about {known[0].points_per_teacher} people each, {m} labels with "
            f"σ = {sigma / base:.2g}k and no check, to be spread over the pool with their noisy counts"
        )
        made = Choice(n_teachers=base, sigma=sigma, check_sigma=None, threshold=None, reason=reason, n_queries=m)
        if best is None or base * lead > best[0]:
            best = base * lead, made
    if best is None:
        raise InputError("there is no candidate for the number of teachers")
    return best[1]


def _candidates(
    groups: Sequence[Group],
    n_classes: int,
    profiles: Sequence[Profile] | None,
    points_per_teacher: int | None,
    n_teachers: int | None,
    *,
    variant: str,
    standing: Standing | None,
    **options: Any,
) -> Iterator[tuple[list[Profile], int, float]]:
    """Yield profiles of one size, the number of teachers before scaling, and the least μ²/Δ² of a group.

    The last figure is for noise in units of the teachers before scaling.
    """
    people = sum(group.people or 0 for group in groups)
    if people < 1:
        raise InputError("the groups have no people: at least one person is needed")
    usual = points_per_teacher
    if n_teachers is not None:
        usual = max(1, people // n_teachers)
    elif usual is None:
        usual = usual_points(people, n_classes)
    candidates: dict[int, list[Profile]] = {}
    for profile in profiles or [reference_profile(n_classes, usual, skill=skill) for skill in SKILLS]:
        candidates.setdefault(profile.points_per_teacher, []).append(profile)
    for points, known in candidates.items():
        k = n_teachers or max(1, people // points)
        layout = lay_out(variant, groups=groups, n_teachers=k, **options)
        left = left_in(standing, layout.groups, layout.home)
        worth = min(
            float(gdp.mu_of(g.epsilon, g.delta)) ** 2 * _share(left.get(g.id), g) / g.sensitivity**2
            for g in layout.groups
            if g.sensitivity > 0
        )
        yield known, round(layout.n_teachers / layout.scale), worth * layout.scale**2


def _share(left: Left | None, account: Account) -> float:
    """Return the share of a budget that earlier runs left, above 0 so that the scores of spent budgets differ."""
    return 1.0 if left is None else max(left.share(account.group.budget), 1e-12)


def usual_points(n_people: int, n_classes: int) -> int:
    """Return the default number of people per teacher: max(50, 10·C), or fewer if needed to have 25 teachers."""
    return max(1, min(max(50, 10 * n_classes), n_people // FEWEST_TEACHERS))


def group_limit(
    asked: int | str,
    *,
    n_people: int,
    n_classes: int,
    n_teachers: int | str = "auto",
    points_per_teacher: int | None = None,
    voting: str = "teachers",
) -> int:
    """Return the largest number of groups: as asked for, or for "auto" what the expected k teachers can serve.

    That is a tenth of the teachers, at least 8 and at most 32, and never more than there are teachers. For ballots it
    is 32.
    """
    if not isinstance(asked, str):
        return asked
    if asked != "auto":
        raise InputError(f"max_groups is {asked!r}: it must be a number or 'auto'")
    if voting == "ballots":
        return MOST_GROUPS
    k = int(n_teachers) if isinstance(n_teachers, int | np.integer) else 0
    if k < 1:
        k = n_people // (points_per_teacher or usual_points(n_people, n_classes))
    return max(1, min(k, max(FEW_GROUPS, min(k // 10, MOST_GROUPS))))


def _best_noise(
    profiles: Sequence[Profile], k: int, worth: float, n_public: int, *, check: bool, noise: Noise
) -> tuple[float, Choice]:
    """Return the noise and threshold whose score, relative to the best, is largest on average over the profiles."""
    grids = np.stack([_score(profile, k, worth, n_public, check=check, noise=noise) for profile in profiles])
    allowed = np.array(THRESHOLDS)[None, :, None] <= (1.0 if profiles[0].measured else BLIND_THRESHOLD)
    regret = allowed * np.mean([score / max(float(score.max()), 1e-300) for score in grids], axis=0)
    place = np.unravel_index(int(np.argmax(regret)), regret.shape)
    check_sigma, threshold, sigma = CHECK_SIGMAS[place[0]], THRESHOLDS[place[1]], SIGMAS[place[2]]
    score = float(grids[:, place[0], place[1], place[2]].mean())
    points, symbol = profiles[0].points_per_teacher, "σ" if noise == "gaussian" else "Laplace noise with b"
    choice = Choice(
        n_teachers=k,
        sigma=sigma * k if noise == "gaussian" else None,
        scale=sigma * k if noise == "laplace" else None,
        check_sigma=check_sigma * k if check else None,
        threshold=threshold * k if check else None,
        reason=(
            f"{k} teachers of about {points} people each, {symbol} = {sigma:g}k"
            + (f", σ_T = {check_sigma:g}k, T = {threshold:g}k" if check else "")
        ),
        profiles=tuple(profiles),
    )
    return score, choice


def _score(profile: Profile, k: int, worth: float, n_public: int, *, check: bool, noise: Noise) -> Floats:
    """Return the scores of all (σ_T, T, σ) at k teachers; `worth` is the smallest μ²/Δ²."""
    n_classes = profile.shares.shape[1]
    right = np.stack([np.exp(argmax_log_law(profile.shares, sigma, noise)[:, 0]) for sigma in SIGMAS], axis=1)
    top = profile.shares.max(axis=1)
    check_sigma = np.array(CHECK_SIGMAS)[:, None]
    passed = ndtr((top - np.array(THRESHOLDS)[:, None, None]) / check_sigma[None]).transpose(1, 0, 2)
    if not check:
        passed = np.ones_like(passed)
    rate = passed.mean(axis=2)[..., None]
    sigma = np.array(SIGMAS)
    per_query = (check / check_sigma[..., None] ** 2 + PRICES[noise] * rate / sigma**2) / k**2
    labels = rate * np.minimum(worth / per_query, n_public)
    accuracy = (passed @ right) / np.maximum(passed.sum(axis=2), 1e-300)[..., None]
    skill = np.maximum(0.0, (accuracy - 1 / n_classes) / (1 - 1 / n_classes))
    return np.asarray(labels * skill**2)
