"""Aggregators turn weighted votes into noisy labels.

Each aggregator is one class and one entry of `AGGREGATORS`; no other module compares aggregator names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.accounting.bounds import check_positive
from ipate.errors import InputError, import_part, refuse_name
from ipate.ledger.records import Noise
from ipate.release.noise import NoiseSource, in_steps


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Noise parameters of one query: its label and, where σ_T and T are given, the check before it.

    Attributes
    ----------
    sigma : float
        Standard deviation of the label's noise; the scale b under Laplace noise.
    check_sigma, threshold : float, optional
        σ_T and T of the check; both or neither.
    noise : {"gaussian", "laplace"}
        The label's noise. Laplace is the historical LNMax, which has no check.
    counts : bool
        Whether the noisy counts are released with each label, rounded to multiples of σ/8. The label is then the
        argmax of the rounded counts, the lower class on a tie. So everything released is a function of them alone:
        the price of the Gaussian mechanism on the vector covers it, also where doubles are not real numbers, and
        whoever reads a label off the counts finds the released one.
    """

    sigma: float
    check_sigma: float | None = None
    threshold: float | None = None
    noise: Noise = "gaussian"
    counts: bool = field(default=False, repr=False)  # names of runs are made of the other fields

    def __post_init__(self) -> None:
        check_positive("sigma" if self.noise == "gaussian" else "scale", self.sigma)
        if (self.check_sigma is None) != (self.threshold is None):
            missing = "threshold" if self.threshold is None else "check_sigma"
            raise InputError(f"{missing} is not given: a check needs both check_sigma and threshold")
        if self.check_sigma is not None and self.threshold is not None:
            check_positive("check_sigma", self.check_sigma)
            if not np.isfinite(self.threshold):
                raise InputError(f"threshold is {self.threshold}: it must be a finite number of votes")
            if self.noise == "laplace":
                raise InputError("check_sigma is given: LNMax has no check; use the confident aggregator")
        if self.counts and self.noise != "gaussian":
            raise InputError(f"counts is True: noisy counts are released with Gaussian noise, not {self.noise} noise")

    @property
    def has_check(self) -> bool:
        """Whether a consensus check precedes the label."""
        return self.check_sigma is not None

    @property
    def parameters(self) -> dict[str, float | None]:
        """The parameters by the names of results and reports: σ is `sigma`, the scale of Laplace noise never is."""
        normal = self.noise == "gaussian"
        label = {"sigma": self.sigma if normal else None, "laplace_scale": None if normal else self.sigma}
        return {**label, "check_sigma": self.check_sigma, "threshold": self.threshold}

    def scaled(self, factor: float) -> "Mechanism":
        """Return the mechanism with noise and threshold multiplied by `factor`, for `factor` times as many teachers."""
        return replace(
            self,
            sigma=self.sigma * factor,
            check_sigma=None if self.check_sigma is None else self.check_sigma * factor,
            threshold=None if self.threshold is None else self.threshold * factor,
        )


NO_LABEL = -1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The labels of B queries, and the releases that produced them."""

    labels: NDArray[np.int64]  # the class, or −1 for none
    answered: NDArray[np.bool_]  # a noisy label was released and must be paid; a check is released for every query
    reinforced: NDArray[np.bool_]  # the student's own class was returned; it cost no label
    noisy_votes: NDArray[np.int64] | None = None  # (answered, C): what the labels are read off, in multiples of σ/8


def lead_over_student(counts: Floats, total_weight: float, probs: Floats) -> Floats:
    """Return the largest lead max_j (n_j − M·p_j) of the votes over what the student expects, shape (B,)."""
    return np.asarray((counts - total_weight * probs).max(axis=1))


@dataclass(frozen=True, kw_only=True)
class NamedAggregator:
    """An aggregator that commands, runs and the classifier look up by name in `AGGREGATORS`.

    A subclass overrides `name`, `summary` and the defaults that do not apply to it. Its mechanism determines the costs,
    so votes may affect the output only through `maxima` with noise σ_T and through the noisy argmax.
    """

    mechanism: Mechanism
    name: ClassVar[str]
    summary: ClassVar[str]  # one line
    noise: ClassVar[Noise] = "gaussian"
    needs: ClassVar[tuple[str, ...]] = ("sigma",)  # required options
    takes: ClassVar[tuple[str, ...]] = ()  # optional ones
    marks: ClassVar[tuple[str, ...]] = ()  # options that select this aggregator under "auto"
    tested: ClassVar[bool] = False  # whether the test of the bound ptr covers it
    run_options: ClassVar[Mapping[str, Any]] = {}  # options that a run gives it by itself

    def __post_init__(self) -> None:
        if self.mechanism.noise != self.noise or self.mechanism.has_check != ("check_sigma" in self.needs):
            raise InputError(f"{self.name} has {self.noise} noise and needs {', '.join(self.needs)}: give these alone")
        if self.mechanism.counts and "counts" not in self.takes:
            raise InputError(f"counts is True: {self.name} has no {_LACKS['counts']}")

    @classmethod
    def build(cls, *args: Any, **options: Any) -> Self:
        """Build the aggregator from keyword options: all of `needs`, and any of `takes`."""
        return cls(mechanism=Mechanism(**options))

    def scaled(self, factor: float) -> Self:
        """Return the aggregator for `factor` times as many teachers at the same signal-to-noise ratio."""
        return replace(self, mechanism=self.mechanism.scaled(factor))

    def without_student(self) -> "NamedAggregator":
        """Return the aggregator of the same mechanism that needs no student's probabilities."""
        return self

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        """Return what the check compares with the threshold, before noise: the largest counts, shape (B,)."""
        return np.asarray(counts.max(axis=1))

    def label_noise(self, queries: Sequence[str], width: int, noise: NoiseSource) -> Floats:
        """Return the noise that is added to the counts of labels, shape (B, C)."""
        return self.mechanism.sigma * noise.normal("label", queries, width)

    def ask(
        self,
        counts: Floats,
        *,
        queries: Sequence[str],
        noise: NoiseSource,
        total_weight: float,
        probs: Floats | None = None,
    ) -> Outcome:
        """Run the check, if there is one, on B queries with counts (B, C); the noisy argmax labels those that pass."""
        passed = np.ones(len(counts), dtype=bool)
        check_sigma, threshold = self.mechanism.check_sigma, self.mechanism.threshold
        if check_sigma is not None and threshold is not None:
            lead = self.maxima(counts, total_weight=total_weight, probs=probs)
            draws = noise.normal("check", queries, 1)[:, 0]
            passed = np.asarray(lead + check_sigma * draws >= threshold)
        chosen = [query for query, wanted in zip(queries, passed, strict=True) if wanted]
        labels, reinforced = np.full(len(counts), NO_LABEL, dtype=np.int64), np.zeros(len(counts), dtype=bool)
        noisy = counts[passed] + self.label_noise(chosen, counts.shape[1], noise)
        if not self.mechanism.counts:
            labels[passed] = noisy.argmax(axis=1)
            return Outcome(labels=labels, answered=passed, reinforced=reinforced)
        released = in_steps(noisy, sigma=self.mechanism.sigma)
        labels[passed] = released.argmax(axis=1)
        return Outcome(labels=labels, answered=passed, reinforced=reinforced, noisy_votes=released)


class GNMax(NamedAggregator):
    """argmax_j (n_j + N(0, σ²)) for every query, without a check."""

    name = "gnmax"
    summary = "a label for every query, with Gaussian noise"
    takes = ("counts",)
    tested = True


class Confident(NamedAggregator):
    """A noisy label only where max_j n_j + N(0, σ_T²) ≥ T."""

    name = "confident"
    summary = "a label where a noisy check finds that the teachers agree"
    needs = ("sigma", "check_sigma", "threshold")
    takes = ("counts",)
    marks = ("check_sigma", "threshold")
    tested = True


@dataclass(frozen=True, kw_only=True)
class Interactive(NamedAggregator):
    """A noisy label where the teachers contradict the student, and the student's class where it is confident.

    The check is max_j (n_j − M·p_j) + N(0, σ_T²) ≥ T with M the total weight, a public constant.
    Where it fails and max_j p_j > γ, the student's class is returned, and only the check is charged.
    """

    gamma: float = 0.9
    name = "interactive"
    summary = "a label where the teachers contradict a student"
    needs = ("sigma", "check_sigma", "threshold", "student_probs")
    takes = ("gamma", "counts")
    marks = ("student_probs",)
    run_options: ClassVar[Mapping[str, Any]] = {"student_probs": "those of a student of the first round's labels"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma <= 1:
            raise InputError(f"gamma is {self.gamma:g}: it must lie between 0 and 1")

    @classmethod
    def build(cls, *, student_probs: Any, gamma: float = 0.9, **options: Any) -> Self:
        """Build the aggregator; `student_probs` is required here but passed to `ask` with the votes."""
        del student_probs
        return cls(mechanism=Mechanism(**options), gamma=gamma)

    def without_student(self) -> Confident:
        """Return Confident with the same mechanism, whose check and label cost the same."""
        return Confident(mechanism=self.mechanism)

    def maxima(self, counts: Floats, *, total_weight: float, probs: Floats | None = None) -> Floats:
        """Return the largest lead of the votes over what the student expects."""
        if probs is None:
            raise InputError("student_probs is not given: interactive needs the student's probabilities")
        return lead_over_student(counts, total_weight, probs)

    def ask(self, counts: Floats, *, probs: Floats | None = None, **others: Any) -> Outcome:
        """Return a noisy label, the student's own class, or none."""
        found = super().ask(counts, probs=probs, **others)
        known = np.asarray(probs)
        sure = ~found.answered & (known.max(axis=1) > self.gamma)
        return replace(found, labels=np.where(sure, known.argmax(axis=1), found.labels), reinforced=sure)


class LNMax(NamedAggregator):
    """argmax_j (n_j + Laplace(b)) for every query: the historical baseline."""

    name = "lnmax"
    summary = "a label for every query, with Laplace noise: the historical baseline"
    noise = "laplace"
    needs = ("scale",)
    marks = ("scale",)

    @classmethod
    def build(cls, *, scale: float) -> Self:
        """Build the aggregator from the scale b of the noise."""
        return cls(mechanism=Mechanism(sigma=scale, noise="laplace"))

    def label_noise(self, queries: Sequence[str], width: int, noise: NoiseSource) -> Floats:
        """Return Laplace noise with scale b, shape (B, C)."""
        return self.mechanism.sigma * noise.laplace("label", queries, width)


AGGREGATORS: dict[str, type[NamedAggregator]] = {made.name: made for made in (GNMax, Confident, Interactive, LNMax)}
"""Every aggregator by name; a new one is added with `AGGREGATORS[Mine.name] = Mine`."""

_LACKS = {
    "check_sigma": "check; use confident",
    "threshold": "check; use confident",
    "student_probs": "student; use interactive",
    "gamma": "student; use interactive",
    "sigma": "Gaussian noise; give scale",
    "scale": "Laplace noise; give sigma",
    "counts": "vector of counts with Gaussian noise; use gnmax or confident",
}


def find_aggregator(name: str, **options: Any) -> type[NamedAggregator]:
    """Return the aggregator class of this name, or one from outside; "auto" selects by options, or else gnmax."""
    if name == "auto":
        given = {option for option, value in options.items() if value is not None}
        return next((made for made in reversed(AGGREGATORS.values()) if given.intersection(made.marks)), GNMax)
    if name in AGGREGATORS:
        return AGGREGATORS[name]
    if ":" not in name:
        refuse_name("aggregator", name, ("auto", *AGGREGATORS, "module:attribute"))
    found = import_part("aggregator", name)
    if not (isinstance(found, type) and issubclass(found, NamedAggregator)):
        raise InputError(f"aggregator is {name!r}: it must be a NamedAggregator of ipate.engines.teachers.aggregators")
    return found


def build_aggregator(name: str, **options: Any) -> NamedAggregator:
    """Build the aggregator that `find_aggregator` selects; an option that is None counts as not given.

    Unused options are refused, because ignoring one could leave out a check, and so are missing ones.
    """
    chosen = find_aggregator(name, **options)
    given = {option: value for option, value in options.items() if value is not None}
    for option in sorted(given, key=[*_LACKS, *given].index):
        if option not in (*chosen.needs, *chosen.takes):
            raise InputError(f"{option} is {given[option]}: {chosen.name} has no {_LACKS.get(option, 'such option')}")
    for option in chosen.needs:
        if option not in given:
            raise InputError(f"{option} is not given: {chosen.name} needs it (--{option.replace('_', '-')})")
    return chosen.build(**given)
