"""Public references for graded propose-test-release: what the votes may look like, without looking at them.

A design needs a guess of how clearly teachers will agree. It comes from votes of other teachers (a public proxy
task) or from a simulator with a few public parameters; never from the private votes. Privacy does not depend on the
guess, only the chance to pass the test does, so a *reserve* raises its costs.

The simulator. A query's difficulty is normal on the logit scale: a teacher votes for the truth with probability
p = 1/(1 + e^{−(c + spread·z)}), z ~ N(0, 1) per query, with c such that the mean of p is the teachers' accuracy. Wrong
votes go to the query's own list of wrong classes: the first takes the share `confusion` of them, the next that share
of what is left, and so on, the last what remains. Given the query, teachers vote independently.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from ipate.accounting.ptr import ORDERS, Design, Profile, PtrGroup, Setting, hash_queries, profile_of
from ipate.errors import InputError
from ipate.mechanism import Mechanism
from ipate.panel import Panel
from ipate.votes import Votes, count_votes

__all__ = [
    "Simulator",
    "check_design",
    "query_ids",
    "refuse_own_votes",
    "setting_for",
    "simulated_profile",
    "votes_hash",
    "votes_profile",
]

_BLOCK = 2048  # queries counted at a time
_WEIGHT_GRID = 0.25


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """A public guess of how teachers vote.

    Attributes
    ----------
    accuracy : float
        How often one teacher is right, on average over queries.
    spread : float
        Standard deviation of the queries' difficulty on the logit scale; 0: all are alike.
    confusion : float
        Share of the wrong votes that go to a query's most likely wrong class, and so on down its list.
    queries : int
        How many queries are simulated: more make the profile steadier.
    seed : int
        The simulator is no source of privacy; its seed is public.
    """

    accuracy: float
    spread: float = 2.0
    confusion: float = 0.65
    queries: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("accuracy", self.accuracy), ("confusion", self.confusion)):
            if not 0 < value < 1:
                raise InputError(f"{name} is {value}: it must lie strictly between 0 and 1")
        if not (np.isfinite(self.spread) and 0 <= self.spread <= 20):
            raise InputError(f"spread is {self.spread}: it must lie between 0 and 20")
        if self.queries < 1:
            raise InputError(f"queries is {self.queries}: at least one must be simulated")
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}: it must be 0 or above")

    def votes(self, *, n_teachers: int, n_classes: int) -> Votes:
        """Simulate the votes of `n_teachers` teachers, with the truth as labels."""
        rng = np.random.default_rng(self.seed)
        right = expit(self._centre() + self.spread * rng.standard_normal(self.queries))
        order = np.argsort(rng.random((self.queries, n_classes)), axis=1)  # the truth, then wrong classes by likelihood
        shares = self.confusion * (1 - self.confusion) ** np.arange(n_classes - 1)
        shares[-1] = 1 - shares[:-1].sum()
        law = np.concatenate([right[:, None], (1 - right)[:, None] * shares], axis=1)
        limits = np.cumsum(law, axis=1)[:, :-1]
        draws = rng.random((n_teachers, self.queries))
        votes = np.empty((n_teachers, self.queries), dtype=np.int16)
        for teacher, draw in enumerate(draws):
            place = (draw[:, None] >= limits).sum(axis=1)
            votes[teacher] = order[np.arange(self.queries), place]
        return Votes(votes=votes, n_classes=n_classes, labels=order[:, 0])

    def _centre(self) -> float:
        """Return c: the mean of expit(c + spread·z) is the accuracy (Gauss–Hermite, 64 nodes)."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        weights = weights / weights.sum()
        return float(brentq(lambda c: weights @ expit(c + self.spread * nodes) - self.accuracy, -200, 200))

    def __str__(self) -> str:
        return (
            f"simulator: accuracy {self.accuracy:g}, spread {self.spread:g}, confusion {self.confusion:g}, "
            f"{self.queries} queries, seed {self.seed}"
        )


def setting_for(
    panel: Panel,
    mechanism: Mechanism,
    *,
    n_classes: int,
    grid: float | None = None,
    orders: tuple[float, ...] = ORDERS,
) -> Setting:
    """What is public of a panel and a mechanism, as graded propose-test-release needs it.

    Parameters
    ----------
    panel : Panel
        Teachers' weights and the groups with their sensitivities. Teachers that take turns (vanishing) are refused.
    mechanism : Mechanism
        Gaussian noise, with or without the check of votes (Confident); Interactive has no bound here.
    n_classes : int
        C.
    grid : float, optional
        Steps of moved weight: 1 where every weight is a whole number, .25 otherwise.
    orders : tuple of float
        Rényi orders that the design may use.
    """
    if panel.rotating:
        raise InputError("bound 'ptr' does not cover teachers that take turns: use gdp or sup with vanishing")
    if mechanism.noise != "gaussian":
        raise InputError(f"bound 'ptr' does not cover {mechanism.noise} noise: use gnmax or confident")
    still = [group.id for group in panel.groups if group.sensitivity == 0]
    if still:
        raise InputError(f"group {still[0]!r} moves no weight: leave it out of a design, it pays nothing")
    step = (1.0 if np.all(panel.weights == np.rint(panel.weights)) else _WEIGHT_GRID) if grid is None else grid
    return Setting(
        sigma=mechanism.sigma,
        check_sigma=mechanism.check_sigma,
        threshold=mechanism.threshold,
        classes=n_classes,
        total_weight=panel.total_weight,
        groups=tuple(
            PtrGroup(id=g.id, epsilon=g.epsilon, delta=g.delta, sensitivity=g.sensitivity) for g in panel.groups
        ),
        grid=step,
        lattice=bool(np.all(panel.weights / step == np.rint(panel.weights / step))),
        orders=orders,
    )


def votes_profile(
    setting: Setting,
    panel: Panel,
    votes: Votes,
    *,
    source: str,
    radii: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Profile:
    """Make a profile of reference votes: as many teachers as the panel has, weighted as it says."""
    if votes.n_teachers != panel.n_teachers:
        raise InputError(
            f"the reference has {votes.n_teachers} teachers, the panel {panel.n_teachers}: it must have as many"
        )
    if votes.n_classes != setting.classes:
        raise InputError(f"the reference has {votes.n_classes} classes: it must have {setting.classes}")
    counts = np.concatenate(
        [
            panel.tally(votes.votes[:, start : start + _BLOCK], votes.n_classes).counts
            for start in range(0, votes.n_queries, _BLOCK)
        ]
    )
    return profile_of(setting, counts, source=source, source_hash=votes_hash(votes), radii=radii, progress=progress)


def simulated_profile(
    setting: Setting,
    panel: Panel,
    simulator: Simulator,
    *,
    radii: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Profile:
    """Make a profile of simulated votes."""
    votes = simulator.votes(n_teachers=panel.n_teachers, n_classes=setting.classes)
    return votes_profile(setting, panel, votes, source=str(simulator), radii=radii, progress=progress)


def votes_hash(votes: Votes) -> str:
    """Hash of what teachers voted, whatever the order of teachers and queries: the sorted rows of unweighted counts."""
    parts = [
        count_votes(votes.votes[:, start : start + _BLOCK], votes.n_classes)
        for start in range(0, votes.n_queries, _BLOCK)
    ]
    counts: NDArray[np.int64] = np.concatenate(parts)
    ordered = counts[np.lexsort(counts.T)].astype("<i8")
    return hashlib.sha256(repr(ordered.shape).encode() + ordered.tobytes()).hexdigest()


def refuse_own_votes(design: Design, votes: Votes) -> None:
    """Refuse a design that was made from the very votes it is to be used on: it would know them."""
    if design.reference_hash == votes_hash(votes):
        raise InputError(
            "the design was made from these very votes: a reference must be public, "
            "votes of other teachers or a simulator's"
        )


def query_ids(votes: Votes) -> tuple[str, ...]:
    """Ids of the queries: as the file says, else their row numbers."""
    return votes.queries if votes.queries is not None else tuple(str(i) for i in range(votes.n_queries))


def check_design(design: Design, setting: Setting, ids: tuple[str, ...]) -> None:
    """Refuse a design for another mechanism, other groups or other queries (`ids`, in the order asked)."""
    for name in ("sigma", "check_sigma", "threshold", "classes", "total_weight", "grid", "lattice"):
        made, used = getattr(design.setting, name), getattr(setting, name)
        if made != used:
            raise InputError(f"the design was made for {name} {made}, the run has {used}: make a design for this run")
    for group in setting.groups:
        if design.setting.group(group.id) != group:
            raise InputError(f"the design has other figures for group {group.id!r} than the run: make a new design")
    if len(design.setting.groups) != len(setting.groups):
        raise InputError("the design has groups that the run does not: make a design for this run")
    if len(ids) != design.n_queries or hash_queries(ids) != design.queries_hash:
        raise InputError(f"the design is for other queries: it asks {design.n_queries}, fixed beforehand, in order")
