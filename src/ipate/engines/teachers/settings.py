"""The settings of a labelling, which are chosen once from public information and stored as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from ipate.accounting.bounds import Meter, find_bound
from ipate.accounting.ladder import Design
from ipate.allocation.allocation import Allocation
from ipate.engines.base import Means
from ipate.engines.context import Settings
from ipate.engines.teachers.aggregators import NamedAggregator, build_aggregator, find_aggregator
from ipate.engines.teachers.costs import check_supported
from ipate.engines.teachers.loop import Stop
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.plan import first_round, state_teachers
from ipate.engines.teachers.reference import Reference, Simulator, design_for, read_reference
from ipate.engines.teachers.tested import check_tested
from ipate.engines.teachers.tuning import Choice, choose, choose_few, proxy_profiles
from ipate.engines.teachers.variants import find_variant
from ipate.errors import InputError, refuse_name
from ipate.ledger.records import Noise
from ipate.models.named import DEFAULT, as_teacher
from ipate.public.queries import RULES
from ipate.students.student import Student

PROXY_SIZES = (15, 30, 60, 120, 240, 480)


@dataclass(frozen=True, kw_only=True)
class TeacherSettings(Settings):
    """All public parameters of a labelling by teachers, and the reason for them.

    Attributes
    ----------
    variant, n_teachers
        The variant's name, and the number of teachers before the variant scales it.
    sigma, check_sigma, threshold, scale : float
        Noise and threshold for `n_teachers` teachers; upsampling scales them (`Allocation.scale`). `check_sigma` and
        `threshold` are None without a check. `scale` is that of Laplace noise, which has no `sigma`.
    meter, reason
        The bound, conversion and orders; and why these values were chosen.
    stop, max_labels
        The stopping rule, "budget", "drop" or "count", and the largest number of labels or None.
    options, aggregator_options : mapping
        Further options of the variant and of the aggregator.
    aggregator_name : str
        The aggregator; "auto" means confident with a check and gnmax without.
    reference, design
        The source of a design, and the design (bound ptr).
    queries, n_queries
        The rule of `ipate.public.queries` by which points are asked, and how many of them; None for as many as the
        budgets afford.
    n_first
        How many points are asked before a student that the aggregator needs is trained on their labels; else None.
    """

    engine: ClassVar[str] = "teachers"
    n_teachers: int
    sigma: float | None
    check_sigma: float | None
    threshold: float | None
    scale: float | None = None
    stop: Stop
    max_labels: int | None
    options: Mapping[str, Any] = field(default_factory=dict)
    aggregator_name: str = "auto"
    aggregator_options: Mapping[str, Any] = field(default_factory=dict)
    reference: Reference | None = None
    design: Design | None = None
    queries: str = "random"
    n_queries: int | None = None
    n_first: int | None = None

    @property
    def counts(self) -> bool:
        """Whether noisy counts are released with the labels."""
        return bool(self.aggregator_options.get("counts"))

    def aggregator(self, scale: float = 1.0) -> NamedAggregator:
        """Return the aggregator, with noise and threshold multiplied by `scale`."""
        made = build_aggregator(
            self.aggregator_name,
            sigma=self.sigma,
            check_sigma=self.check_sigma,
            threshold=self.threshold,
            scale=self.scale,
            **self.aggregator_options,
        )
        return made.scaled(scale)

    @property
    def individual(self) -> bool:
        """Whether budgets decide about influence."""
        return find_variant(self.variant).individual

    @property
    def asks_student(self) -> bool:
        """Whether votes on later points are compared with a student of the first ones."""
        return self.n_first is not None

    @property
    def pages(self) -> Mapping[str, str]:
        """The design of a tested release, which is public."""
        return {} if self.design is None else {"design.json": self.design.to_json() + "\n"}

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain data; votes of a reference are omitted, the design replaces them."""
        values = super().plain()
        if (used := self.reference) is not None:
            known = None if used.simulator is None else asdict(used.simulator)
            values["reference"] = known and {"simulator": known, "reserve": used.reserve, "fallback": used.fallback}
        design = None if self.design is None else json.loads(self.design.to_json())
        options = {"options": dict(self.options), "aggregator_options": dict(self.aggregator_options)}
        return {**values, **options, "design": design}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Self:
        """Return the settings that `plain` described; a design is verified again."""
        if values["reference"] is not None:
            simulator = Simulator(**values["reference"].pop("simulator"))
            values["reference"] = Reference(simulator=simulator, **values["reference"])
        if values["design"] is not None:
            values["design"] = Design.from_json(json.dumps(values["design"]))
        made = super().from_plain(values)
        made.aggregator()
        return made


@dataclass(kw_only=True)
class TeacherOptions:
    """What may be asked of teachers: numbers, names, or "auto", which public facts resolve."""

    model: Any = DEFAULT
    """logistic, forest, boosting, bayes, a net of the extra torch, or module:attribute."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the model."""
    number: int | str = "auto"
    """The number of teachers."""
    points: int | None = None
    """People per teacher, where the number of teachers is auto."""
    variant: str = "weighting"
    """How budgets become influence: weighting, upsampling, vanishing or standard."""
    rule: str | None = None
    """The rule of weights: gdp, proportional, classic, uniform or algorithm2."""
    power: float | None = None
    """The power of vanishing."""
    aggregator: str = "auto"
    """gnmax, confident, interactive (with a student of the first labels) or lnmax; auto: a scale selects lnmax."""
    sigma: float | str = "auto"
    """σ, the standard deviation of the noise of a label."""
    check_sigma: float | str | None = "auto"
    """σ_T, the standard deviation of the noise of a check."""
    threshold: float | str | None = "auto"
    """T, the threshold of the check."""
    scale: float | str | None = "auto"
    """b, the scale of the Laplace noise of a label, for lnmax alone; with it, the bound loose mostly affords more."""
    bound: str = "gdp"
    """What a release is charged: gdp, loose, sup, tight, exact or ptr."""
    conversion: str = "improved"
    """How Rényi costs become ε: improved or classic."""
    stop: str = "budget"
    """What ends the labelling: the first budget that is exhausted, the last one (drop), or max_labels (count)."""
    max_labels: int | None = None
    """The most labels."""
    queries: str = "auto"
    """Which points of the pool are asked: random, typical or coverage; auto is what suits the student."""
    counts: bool | str = "auto"
    """Whether noisy counts are released with labels; auto is what suits the student."""
    embedding: str = "auto"
    """The features in which queries are near each other: auto, given (the columns as they are) or learnt (images)."""
    reference: Any = None
    """For the bound ptr: the expected accuracy of a teacher, from public knowledge, a reference or a design."""
    proxy: Any = None
    """A public labelled task (X, y), similar to the private one, on which auto compares sizes of teachers."""

    @property
    def variant_options(self) -> dict[str, Any]:
        """The further options of the variant that are given."""
        return {name: value for name in ("rule", "power") if (value := getattr(self, name)) is not None}

    @property
    def pinned(self) -> dict[str, Any]:
        """What is asked for that teachers alone have."""
        names = ("aggregator", *_NOISE.values(), "points", "max_labels", "reference", "proxy")
        given = {name: getattr(self, name) for name in names} | self.variant_options
        given["stop"] = None if self.stop == "budget" else self.stop
        return {name: value for name, value in given.items() if value is not None and str(value) != "auto"}


def changed(asked: TeacherOptions, **options: Any) -> TeacherOptions:
    """Return options of teachers with some of them changed."""
    kept = {entry.name: getattr(asked, entry.name) for entry in fields(TeacherOptions)}
    return TeacherOptions(**{**kept, **options})


# the fields of `TeacherSettings` that are numbers, and the options that ask for them
_NOISE = {name: name for name in ("sigma", "check_sigma", "threshold", "scale")} | {"n_teachers": "number"}


def choose_settings(asked: TeacherOptions, means: Means) -> TeacherSettings:
    """Return the settings of teachers; every "auto" is resolved from public information alone.

    Plans, runs, the classifier and sites all use this function, so that they make equal choices. A student that spreads
    labels over the pool gets a few labels with their counts.
    """
    groups, n_people, standing = means.groups, means.n_people, means.standing
    source, design = read_reference(asked.reference)
    variant, bound, stop, max_labels = asked.variant, asked.bound, asked.stop, asked.max_labels
    student, n_classes = means.student, means.n_classes
    requested: dict[str, Any] = {name: getattr(asked, option) for name, option in _NOISE.items()}
    for name, value in requested.items():
        if isinstance(value, str) and value != "auto":
            raise InputError(f"{name} is {value!r}: it must be a number or 'auto'")
    _check_request(asked)
    _check_test(asked)
    aggregator, kind = _kind_of_noise(asked.aggregator, requested)
    own, other = ("sigma", "scale") if kind == "gaussian" else ("scale", "sigma")
    checks = _has_check(aggregator, bound) and (
        aggregator != "auto" or None not in (asked.check_sigma, asked.threshold)
    )
    for name in (other,) if checks else (other, "check_sigma", "threshold"):
        requested[name] = None if requested[name] == "auto" else requested[name]
    k = None if asked.number == "auto" else int(asked.number)
    if k is not None and k > n_people:
        raise InputError(f"n_teachers is {k} and there are {n_people} people: every teacher needs at least one")
    extra = asked.variant_options
    choice: Choice | None = None
    spreads = student is not None and student.labels_wanted(1, 1.0, n_classes=n_classes) is not None
    few = spreads and bound == "gdp" and stop == "budget" and max_labels is None and aggregator in ("auto", "gnmax")
    if few and requested["sigma"] == "auto":
        requested |= {name: None for name in ("check_sigma", "threshold") if requested[name] == "auto"}
        few = requested["check_sigma"] is None
    if "auto" in requested.values():
        profiles = None
        if asked.proxy is not None:
            sizes = PROXY_SIZES if k is None else (max(1, n_people // k),)
            fitting = [size for size in sizes if size * 2 <= n_people] or [1]
            profiles = proxy_profiles(
                as_teacher(asked.model), *asked.proxy, n_classes=n_classes, sizes=fitting, seed=means.seed
            )
        alone: dict[str, Any] = {"check": checks, "noise": kind}
        facts: dict[str, Any] = {
            "groups": groups,
            "n_public": means.n_pool,
            "n_classes": n_classes,
            "profiles": profiles,
            "points_per_teacher": asked.points,
            "n_teachers": k,
            "variant": variant,
            "standing": standing,
            **extra,
        }
        few = few and requested["sigma"] == "auto"
        choice = choose_few(**facts, student=student) if few and student is not None else choose(**facts, **alone)
    found = {name: getattr(choice, name) if value == "auto" else value for name, value in requested.items()}
    if found[own] is None:
        raise InputError(f"{own} is None: it must be a number or 'auto'")
    n_found = int(found.pop("n_teachers"))
    noise: dict[str, Any] = {name: None if value is None else float(value) for name, value in found.items()}
    with_counts = {"counts": True} if _has_counts(asked.counts, spreads, bound, aggregator) else {}
    settings = TeacherSettings(
        variant=variant,
        n_teachers=n_found,
        **noise,
        meter=Meter(bound, asked.conversion),
        stop=cast("Stop", stop),
        max_labels=None if max_labels is None else int(max_labels),
        options=extra,
        reference=source,
        design=design,
        reason="",
        aggregator_name=aggregator,
        aggregator_options={**find_aggregator(aggregator).run_options, **with_counts},
        queries=_query_rule(asked.queries, student, bound),
        n_queries=choice.n_queries if choice is not None and few else None,
    )
    check_supported(settings.meter, settings.aggregator().mechanism)  # and refuse invalid noise, before training
    reason = state_teachers(settings, choice, means, requested=requested)
    return replace(settings, reason=reason, n_first=first_round(settings, means))


def _has_counts(asked: bool | str, spreads: bool, bound: str, aggregator: str) -> bool:
    """Return whether noisy counts are released; "auto": for a student that uses them, where they cost nothing more."""
    suits = spreads and bound == "gdp" and "counts" in find_aggregator(aggregator).takes
    return suits if asked == "auto" else bool(asked)


def _query_rule(asked: str, student: Student | None, bound: str) -> str:
    """Return the rule by which points are asked; "auto" is the student's own, or random under ptr."""
    whole = find_bound(bound).whole
    if asked == "auto":
        return "random" if student is None or whole else student.queries
    if asked not in RULES:
        refuse_name("queries", asked, ("auto", *RULES))
    if whole and asked != "random":
        raise InputError(f"queries is {asked!r}: under the bound {bound} the design lists the queries; use random")
    return asked


def _kind_of_noise(aggregator: str, requested: Mapping[str, Any]) -> tuple[str, Noise]:
    """Return the aggregator and its noise; under "auto" a scale decides. Nothing of Gaussian noise may go with it."""
    scale = requested["scale"]
    if scale in ("auto", None):
        return aggregator, find_aggregator(aggregator).noise
    for name in ("sigma", "check_sigma", "threshold"):
        if (value := requested[name]) not in ("auto", None):
            why = f"a scale is for Laplace noise (lnmax), which has no {name}; leave one of them out"
            raise InputError(f"scale is {scale} and {name} is {value}: {why}")
    used = find_aggregator(aggregator, scale=scale)
    return used.name, used.noise


def _has_check(aggregator: str, bound: str) -> bool:
    """Refuse an aggregator that the bound does not cover, and return whether it checks; "auto" counts as confident."""
    if aggregator == "auto":
        return True
    used = find_aggregator(aggregator)
    if find_bound(bound).whole:
        check_tested(used)
    return "check_sigma" in used.needs


def _check_request(asked: TeacherOptions) -> None:
    """Refuse invalid requests before training."""
    variant, stop, max_labels = asked.variant, asked.stop, asked.max_labels
    if stop not in ("budget", "drop", "count"):
        raise InputError(f"stop is {stop!r}: it must be budget, drop or count")
    if stop == "count" and max_labels is None:
        raise InputError("stop is 'count' without max_labels: give the number of labels")
    if stop == "drop" and not find_variant(variant).groups_can_leave:
        why = "groups can leave only if each teacher has one group and always votes"
        raise InputError(f"stop is 'drop' under {variant}: {why}")
    for name, value in (
        ("max_labels", max_labels),
        ("points", asked.points),
        ("number", asked.number),
    ):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1
        if value is not None and value != "auto" and not whole:
            raise InputError(f"{name} is {value!r}: it must be a whole number of at least 1")


def _check_test(asked: TeacherOptions) -> None:
    """Refuse the bound ptr without a reference or design, and a reference or design with another bound."""
    bound, variant, stop, max_labels = asked.bound, asked.variant, asked.stop, asked.max_labels
    described = asked.reference is not None
    if not find_bound(bound).whole:
        if described:
            raise InputError(f"bound is {bound!r}: a reference or a design is for the bound ptr")
        return
    if not described:
        wanted = "the expected accuracy of a teacher, from public knowledge, or votes of other teachers on public data"
        raise InputError(f"bound is 'ptr' without a reference: give {wanted}")
    turns = find_variant(variant).takes_turns
    if turns or stop != "budget" or max_labels is not None:
        what = f"variant {variant!r}" if turns else f"stop {stop!r}, max_labels {max_labels}"
        why = "a design needs a fixed list of queries on which all teachers vote"
        raise InputError(f"bound is 'ptr' with {what}: {why}")


def designed(
    settings: TeacherSettings, allocation: Allocation, *, n_classes: int, queries: Sequence[str]
) -> TeacherSettings:
    """Return the settings with a design made from the reference; unchanged if there is a design or no reference."""
    reference = settings.reference
    if reference is None or settings.design is not None:
        return settings
    mechanism = settings.aggregator(allocation.scale).mechanism
    made = design_for(reference, Panel.of(allocation.layout), mechanism, n_classes=n_classes, queries=queries)
    return replace(settings, design=made, reference=reference if reference.simulator is not None else None)
