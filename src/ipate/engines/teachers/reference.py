"""Public references for graded propose-test-release: expected votes that do not depend on the private votes.

A design needs an estimate of how clearly teachers will agree. It comes from votes of other teachers on public data or
from a simulator with a few public parameters, never from the private votes: a design is published, and what it was made
from with it. If the reference is independent of the people behind the votes, privacy does not depend on how good the
estimate is; the probability of passing the test does, so a *reserve* is added to its costs.

In the simulator, a query's difficulty is normal on the logit scale: a teacher votes for the truth with probability
p = 1/(1 + e^{−(c + spread·z)}), z ~ N(0, 1) per query, with c such that the mean of p is the teachers' accuracy. Every
query has a random order of its wrong classes: the first gets the share `confusion` of the wrong votes, the next that
share of the rest, and so on; the last gets the remainder. Given the query, teachers vote independently.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from ipate.accounting.bounds import Meter
from ipate.accounting.ladder import Design, Profile, hash_queries, make_design, most_queries, profile_of
from ipate.accounting.ptr import Setting
from ipate.engines.teachers.aggregators import Mechanism
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.plan import Plan, VariantPlan, afforded, labels_in
from ipate.engines.teachers.tested import count_blocks, on_lattice, setting_for, votes_hash
from ipate.engines.teachers.votes import Votes, sketch
from ipate.errors import InputError
from ipate.files import write_text


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """A public model of how teachers vote, described in the module's docstring."""

    accuracy: float  # mean accuracy of a teacher over queries
    spread: float = 2.0  # standard deviation of the queries' difficulty on the logit scale; 0: all are equal
    confusion: float = 0.65  # share of the wrong votes for a query's most likely wrong class, then of the rest
    queries: int = 2000  # number of simulated queries; more give a less noisy profile
    seed: int = 0  # public: no privacy depends on it

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
        """Return c such that the mean of expit(c + spread·z) is the accuracy (Gauss–Hermite, 64 nodes)."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        weights = weights / weights.sum()
        return float(brentq(lambda c: weights @ expit(c + self.spread * nodes) - self.accuracy, -200, 200))

    def __str__(self) -> str:
        return (
            f"simulator: accuracy {self.accuracy:g}, spread {self.spread:g}, confusion {self.confusion:g}, "
            f"{self.queries} queries, seed {self.seed}"
        )


def votes_profile(
    setting: Setting, panel: Panel, votes: Votes, *, source: str, queries: str = "", radii: int | None = None
) -> Profile:
    """Make a profile from reference votes of as many teachers as the panel has, with the panel's weights.

    `queries` is the sketch of votes that are not simulated, by which copies of them are recognised.
    """
    if votes.n_teachers != panel.n_teachers:
        raise InputError(
            f"the reference has {votes.n_teachers} teachers, the panel {panel.n_teachers}: the numbers must be equal"
        )
    if votes.n_classes != setting.classes:
        raise InputError(f"the reference has {votes.n_classes} classes: it must have {setting.classes}")
    counts = np.concatenate([*count_blocks(votes, on_lattice(panel, setting.lattice))])
    return profile_of(
        setting, counts, source=source, source_hash=votes_hash(votes), source_queries=queries, radii=radii
    )


def simulated_profile(setting: Setting, panel: Panel, simulator: Simulator, *, radii: int | None = None) -> Profile:
    """Make a profile from simulated votes."""
    votes = simulator.votes(n_teachers=panel.n_teachers, n_classes=setting.classes)
    return votes_profile(setting, panel, votes, source=str(simulator), radii=radii)


RESERVE = 0.1


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The source of a design: a simulator, or the votes of equally many other teachers on public data."""

    simulator: Simulator | None = None
    votes: Votes | None = None
    source: str = "votes"  # description of the votes' origin; part of the design
    reserve: float = RESERVE  # relative margin by which the private votes may cost more than the reference and pass
    fallback: bool = False  # reserve (ε/2, δ/10) for a data-independent run after a failed test

    def __post_init__(self) -> None:
        if (self.simulator is None) == (self.votes is None):
            raise InputError(
                "a design needs one reference: the expected accuracy of a teacher, or votes of other teachers on "
                "public data; never the private votes"
            )

    def votes_of(self, n_teachers: int, n_classes: int) -> Votes:
        """Return the reference's votes, which are simulated for `n_teachers` teachers if there is a simulator."""
        if self.votes is not None:
            return self.votes
        return cast("Simulator", self.simulator).votes(n_teachers=n_teachers, n_classes=n_classes)


def as_reference(given: "Reference | float | None") -> Reference | None:
    """Return a reference unchanged, or a simulator with the given accuracy, or None."""
    if given is None or isinstance(given, Reference):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"reference is {given!r}: it must be an accuracy between 0 and 1, or a Reference")
    return Reference(simulator=Simulator(accuracy=float(given)))


def design_for(
    reference: Reference, panel: Panel, mechanism: Mechanism, *, n_classes: int, queries: Sequence[str]
) -> Design:
    """Return the design for as many of these queries, in this order, as the reference affords."""
    setting = setting_for(panel, mechanism, n_classes=n_classes)
    votes = reference.votes_of(panel.n_teachers, n_classes)
    known = "" if reference.votes is None else sketch(votes)
    source = str(reference.simulator or reference.source)
    profile = votes_profile(setting, panel, votes, source=source, queries=known)
    most = most_queries(profile, pool=len(queries), reserve=reference.reserve, fallback=reference.fallback)
    if most == 0:
        raise InputError(
            "the reference affords no query: its teachers agree too little, or are too few, for these budgets and this "
            "noise; use the bound gdp or sup, more noise, more teachers, or a lower threshold"
        )
    asked, reserve = hash_queries(queries[:most]), reference.reserve
    return make_design(profile, n_queries=most, queries_hash=asked, reserve=reserve, fallback=reference.fallback)


def write_design(path: Path, design: Design) -> None:
    """Write a design, which is public, atomically."""
    write_text(path, design.to_json() + "\n")


def read_design(path: Path) -> Design:
    """Read a design and verify all its conditions, so that privacy does not depend on who wrote the file."""
    try:
        return Design.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable design ({error}); make one with ipate design") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The expected numbers of queries and labels of one variant, by bound."""

    variant: str
    answer_rate: float  # the expected share of the reference's queries that pass the check
    queries: dict[str, int]
    labels: dict[str, int]


def expectations(
    plan: Plan, reference: Reference, *, pool: int, progress: Callable[[int], None] | None = None
) -> tuple[Expectation, ...]:
    """Return what to expect of each variant except vanishing for `pool` points, if votes are like the reference's.

    `progress` receives the number of variants that are done. Reference votes have a fixed number of teachers, so
    variants with another number (upsampling) are skipped.
    """
    if plan.n_classes is None:
        raise InputError("classes is not given: a reference needs the number of classes")
    found = []
    for done, variant in enumerate(plan.variants):
        if progress is not None:
            progress(done)
        if variant.layout.participation is not None:
            continue
        votes = reference.votes_of(variant.n_teachers, plan.n_classes)
        if votes.n_teachers == variant.n_teachers:
            found.append(_of_variant(variant, votes, plan.n_classes, reference, pool))
    return tuple(found)


def _of_variant(variant: VariantPlan, votes: Votes, n_classes: int, reference: Reference, pool: int) -> Expectation:
    panel, mechanism = Panel.of(variant.layout), variant.mechanism
    rate = _answer_rate(panel, votes, variant)
    queries = {
        bound: min(pool, *(afforded(group, mechanism, Meter(bound), rate) for group in panel.groups))
        for bound in ("gdp", "sup")
    }
    setting = setting_for(panel, mechanism, n_classes=n_classes)
    profile = votes_profile(setting, panel, votes, source="a plan")
    queries["ptr"] = most_queries(profile, pool=pool, reserve=reference.reserve, fallback=reference.fallback)
    labels = {bound: min(labels_in(asked, rate), asked) for bound, asked in queries.items()}
    return Expectation(variant=variant.variant, answer_rate=rate, queries=queries, labels=labels)


def _answer_rate(panel: Panel, votes: Votes, variant: VariantPlan) -> float:
    """Return the probability of passing the check, averaged over the reference's queries."""
    mechanism = variant.mechanism
    if mechanism.check_sigma is None or mechanism.threshold is None:
        return 1.0
    passed = 0.0
    for counts in count_blocks(votes, panel):
        passed += float(ndtr((counts.max(axis=1) - mechanism.threshold) / mechanism.check_sigma).sum())
    return passed / votes.n_queries


def read_reference(given: Any) -> tuple[Reference | None, Design | None]:
    """Return the source of a design and the design, at most one of which is given."""
    return (None, given) if isinstance(given, Design) else (as_reference(given), None)
