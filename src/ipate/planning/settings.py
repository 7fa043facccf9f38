"""What the classifier and `ipate run` share: settings from public facts, and labels from an allocation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter, find_bound, queries_afforded
from ipate.accounting.ptr.design import Design
from ipate.allocation import find_variant
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.labelling.aggregators import NamedAggregator, build_aggregator, find_aggregator
from ipate.labelling.loop import Stop, label, open_ledger
from ipate.labelling.noise import make_noise
from ipate.labelling.results import Labelling
from ipate.labelling.tested import label_tested
from ipate.ledger.records import Ledger
from ipate.people.people import People
from ipate.planning.choose import Choice, choose, proxy_profiles
from ipate.planning.reference import Reference, design_for
from ipate.votes import Votes

PROXY_SIZES = (15, 30, 60, 120, 240, 480)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that labelling needs beside votes and people, and why it is what it is.

    σ, σ_T and T are stated for k teachers; an upsampled ensemble scales them with its own number. Under ptr a
    `reference` says what a design is made from, or the `design` is there already.
    """

    n_teachers: int
    sigma: float
    check_sigma: float | None
    threshold: float | None
    meter: Meter
    stop: Stop
    max_labels: int | None
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)
    aggregator_name: str = "auto"
    reference: Reference | None = None
    design: Design | None = None

    def aggregator(self, scale: float = 1.0) -> NamedAggregator:
        """Return the aggregator, with noise and threshold multiplied by `scale`."""
        made = build_aggregator(
            self.aggregator_name, sigma=self.sigma, check_sigma=self.check_sigma, threshold=self.threshold
        )
        return made.scaled(scale)


def choose_settings(
    *,
    people: People,
    n_public: int,
    n_classes: int,
    variant: str,
    teacher: Any,
    n_teachers: int | str = "auto",
    aggregator: str = "auto",
    sigma: float | str = "auto",
    check_sigma: float | str | None = "auto",
    threshold: float | str | None = "auto",
    points_per_teacher: int | None = None,
    proxy: tuple[NDArray[Any], NDArray[np.int64]] | None = None,
    bound: str = "gdp",
    conversion: str = "improved",
    stop: str = "budget",
    max_labels: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    reference: Reference | None = None,
    design: Design | None = None,
) -> Settings:
    """Fill in whatever is "auto" from public information alone: sizes, classes, budgets, a public proxy."""
    for name, value in (
        ("n_teachers", n_teachers), ("sigma", sigma), ("check_sigma", check_sigma), ("threshold", threshold),
    ):  # fmt: skip
        if isinstance(value, str) and value != "auto":
            raise InputError(f"{name} is {value!r}: it must be a number or 'auto'")
    _check_request(variant, stop, max_labels, points_per_teacher, n_teachers)
    _check_test(bound, variant, stop, max_labels, reference=reference, design=design)
    used = find_aggregator(aggregator)
    if used.run_refusal is not None:
        raise InputError(f"aggregator is {aggregator!r}: {used.run_refusal}")
    if None in (check_sigma, threshold) if aggregator == "auto" else "check_sigma" not in used.needs:  # no check
        check_sigma = None if check_sigma == "auto" else check_sigma
        threshold = None if threshold == "auto" else threshold
    k = None if n_teachers == "auto" else int(n_teachers)
    if k is not None and k > people.n_people:
        raise InputError(f"n_teachers is {k} and there are {people.n_people} people: every teacher needs one at least")
    extra = dict(options or {})
    choice: Choice | None = None
    if "auto" in (n_teachers, sigma, check_sigma, threshold):
        profiles = None
        if proxy is not None:
            sizes = PROXY_SIZES if k is None else (max(1, people.n_people // k),)
            fitting = [size for size in sizes if size * 2 <= people.n_people] or [1]
            profiles = proxy_profiles(teacher, *proxy, n_classes=n_classes, sizes=fitting, seed=seed)
        choice = choose(
            groups=people.groups,
            n_public=n_public,
            n_classes=n_classes,
            profiles=profiles,
            points_per_teacher=points_per_teacher,
            n_teachers=k,
            variant=variant,
            **extra,
        )

    def filled(value: float | str | None, chosen: float | None) -> float | None:
        return chosen if value == "auto" else None if value is None else float(value)

    count = choice.n_teachers if choice is not None and k is None else k
    noise = filled(sigma, choice.sigma if choice else None)
    if count is None or noise is None:
        raise InputError("sigma and n_teachers must be numbers or 'auto'")
    given = [name for name, value in (("σ", sigma), ("σ_T", check_sigma), ("T", threshold)) if value != "auto"]
    reason = "parameters as given"
    if choice is not None:
        reason = (
            f"auto chose {choice.reason}" if not given else f"auto chose {count} teachers; {', '.join(given)} as given"
        )
    settings = Settings(
        n_teachers=count,
        sigma=noise,
        check_sigma=filled(check_sigma, choice.check_sigma if choice else None),
        threshold=filled(threshold, choice.threshold if choice else None),
        meter=Meter(bound, conversion),
        stop=cast("Stop", stop),
        max_labels=max_labels,
        reason=reason,
        options=extra,
        aggregator_name=aggregator,
        reference=reference,
        design=design,
    )
    settings.aggregator()  # refuses noise that cannot be, before anybody trains
    return settings


def _check_request(variant: str, stop: str, max_labels: int | None, points: int | None, n_teachers: int | str) -> None:
    """Refuse before training what could only fail after it."""
    if stop not in ("budget", "drop", "count"):
        raise InputError(f"stop is {stop!r}: it must be budget, drop or count")
    if stop == "count" and max_labels is None:
        raise InputError("stop is 'count' without max_labels: say how many labels, fixed beforehand")
    if stop == "drop" and not find_variant(variant).groups_can_leave:
        raise InputError(f"stop is 'drop' under {variant}: groups can leave only where each teacher has one and votes")
    for name, value in (("max_labels", max_labels), ("points_per_teacher", points), ("n_teachers", n_teachers)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1
        if value is not None and value != "auto" and not whole:
            raise InputError(f"{name} is {value!r}: it must be a whole number of at least 1")


def _check_test(
    bound: str,
    variant: str,
    stop: str,
    max_labels: int | None,
    *,
    reference: Reference | None,
    design: Design | None,
) -> None:
    """Refuse, before training, a tested release that lacks its reference, and a reference that nothing uses."""
    if not find_bound(bound).whole:
        if reference is not None or design is not None:
            raise InputError(f"bound is {bound!r}: a reference or a design is for the bound ptr")
        return
    if reference is None and design is None:
        raise InputError(
            "bound is 'ptr' without a reference: say how often a teacher is expected to be right (accuracy), from "
            "public knowledge, or give votes of other teachers on public data"
        )
    turns = find_variant(variant).takes_turns
    if turns or stop != "budget" or max_labels is not None:
        what = f"variant {variant!r}" if turns else f"stop {stop!r}, max_labels {max_labels}"
        raise InputError(f"bound is 'ptr' with {what}: a design asks a fixed list of queries of teachers that all vote")


def designed(settings: Settings, allocation: Allocation, *, n_classes: int, queries: Sequence[str]) -> Settings:
    """Return the settings with their design, made from the reference unless it is there; others as they are."""
    if settings.reference is None or settings.design is not None:
        return settings
    mechanism = settings.aggregator(allocation.scale).mechanism
    made = design_for(settings.reference, allocation.panel(), mechanism, n_classes=n_classes, queries=queries)
    return replace(settings, design=made)


def run_labelling(
    votes: Votes,
    allocation: Allocation,
    settings: Settings,
    *,
    noise_seed: int | None = None,
    ledger: Ledger | None = None,
    order: NDArray[np.int64] | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Labelling, Ledger]:
    """Label the pool with the votes of an allocation's teachers; return the labelling and its ledger."""
    aggregator = settings.aggregator(allocation.scale)
    ballot = replace(votes, groups=allocation.teacher_groups, weights=allocation.weights)
    if allocation.participation is not None:
        present = allocation.participation.in_order(votes.n_queries, order)
        ballot = replace(ballot, participation=present, weights=None)
    panel = allocation.panel()
    book = open_ledger(panel, settings.meter, aggregator) if ledger is None else ledger
    if settings.meter.whole:
        asked = np.arange(votes.n_queries) if order is None else order
        chosen = designed(settings, allocation, n_classes=votes.n_classes, queries=[str(i) for i in asked.tolist()])
        if chosen.design is None:
            raise InputError("bound is 'ptr' without a design or a reference to make one from")
        tested = label_tested(
            ballot, panel, aggregator, chosen.design,
            order=order, noise=make_noise(noise_seed), ledger=book, progress=progress,
        )  # fmt: skip
        return tested, book
    result = label(
        ballot,
        panel,
        aggregator,
        settings.meter,
        stop=settings.stop,
        max_labels=settings.max_labels,
        order=order,
        noise=make_noise(noise_seed),
        ledger=book,
        progress=progress,
    )
    return result, book


def standard_labels(settings: Settings, people: People, *, answer_rate: float, n_public: int) -> int:
    """Return how many labels standard PATE at the strictest budget would have had, by the account alone."""
    known = settings.meter.data_independent and not settings.meter.whole
    meter = settings.meter if known else Meter("gdp")
    queries = queries_afforded(
        meter,
        epsilon=min(group.epsilon for group in people.groups),
        delta=min(group.delta for group in people.groups),
        sensitivity=1.0,
        sigma=settings.sigma,
        check_sigma=settings.check_sigma,
        answer_rate=answer_rate,
    )
    labels = int(min(queries, n_public) * answer_rate)
    return labels if settings.max_labels is None else min(labels, settings.max_labels)
