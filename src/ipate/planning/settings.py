"""The settings of a labelling, which are chosen once from public information and stored as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import PAPER_ORDERS, Meter, find_bound
from ipate.accounting.ladder import Design
from ipate.allocation.allocation import Allocation
from ipate.engines.ballots.design import SIGMA, ballot_layout
from ipate.engines.teachers.aggregators import NamedAggregator, build_aggregator, find_aggregator
from ipate.engines.teachers.costs import check_supported
from ipate.engines.teachers.loop import Stop
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.tested import check_tested
from ipate.engines.teachers.variants import find_variant
from ipate.errors import BudgetExceededError, InputError, refuse_name, show
from ipate.files import write_text
from ipate.ledger.records import Noise
from ipate.people.budgets import Group
from ipate.planning.choose import Choice, choose, choose_few, proxy_profiles
from ipate.planning.forecast import first_round, state_ballots, state_teachers
from ipate.planning.reference import Reference, Simulator, design_for
from ipate.planning.standing import Standing
from ipate.planning.voting import BALLOTS, Voting, ballot_design, choose_voting, suits_ballots
from ipate.public.queries import RULES
from ipate.students.student import Student

FORMAT = "ipate settings 1"
PROXY_SIZES = (15, 30, 60, 120, 240, 480)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All public parameters of a labelling, and the reason for them.

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
    voting : {"teachers", "ballots"}
        The engine. Ballots have no teachers, and their noise has σ = 1; weights and cells follow from the budgets.
    queries, n_queries
        The rule of `ipate.public.queries` by which points are asked, and how many of them; None for as many as the
        budgets afford.
    n_first
        How many points are asked before a student that the aggregator needs is trained on their labels; else None.
    """

    variant: str
    n_teachers: int
    sigma: float | None
    check_sigma: float | None
    threshold: float | None
    scale: float | None = None
    meter: Meter
    stop: Stop
    max_labels: int | None
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)
    aggregator_name: str = "auto"
    aggregator_options: Mapping[str, Any] = field(default_factory=dict)
    reference: Reference | None = None
    design: Design | None = None
    voting: Voting = "teachers"
    queries: str = "random"
    n_queries: int | None = None
    n_first: int | None = None

    @property
    def counts(self) -> bool:
        """Whether noisy counts are released with the labels."""
        return bool(self.aggregator_options.get("counts"))

    @property
    def ballots(self) -> bool:
        """Whether people cast ballots instead of teaching teachers."""
        return self.voting == BALLOTS

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

    def to_json(self) -> str:
        """Return the settings as JSON in full precision; votes of a reference are omitted, the design replaces them."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if (used := self.reference) is not None:
            known = None if used.simulator is None else asdict(used.simulator)
            values["reference"] = known and {"simulator": known, "reserve": used.reserve, "fallback": used.fallback}
        values |= {
            "meter": asdict(self.meter),
            "options": dict(self.options),
            "aggregator_options": dict(self.aggregator_options),
            "design": None if self.design is None else json.loads(self.design.to_json()),
        }
        return json.dumps({"format": FORMAT, **values}, indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the output of `to_json`; a design is verified again."""
        try:
            values = json.loads(text)
            stated = values.pop("format", None)
            if stated != FORMAT:
                raise InputError(f"the format is {show(stated)}, but this version of ipate reads {FORMAT!r}")
            values["meter"] = Meter(**values["meter"])
            if values["reference"] is not None:
                simulator = Simulator(**values["reference"].pop("simulator"))
                values["reference"] = Reference(simulator=simulator, **values["reference"])
            if values["design"] is not None:
                values["design"] = Design.from_json(json.dumps(values["design"]))
            made = cls(**values)
            made.aggregator()
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"these are not settings ({type(error).__name__}: {error})") from None
        return made

    def write(self, path: Path) -> None:
        """Write the settings atomically."""
        write_text(path, self.to_json() + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the settings of a run; errors name the file and the remedy."""
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, InputError) as error:
            raise InputError(
                f"{path}: the settings of the run cannot be read: {error}; restore the file, or start a new run in "
                "another folder"
            ) from None


def choose_settings(
    *,
    groups: Sequence[Group],
    n_public: int,
    n_classes: int,
    variant: str = "weighting",
    options: Mapping[str, Any] | None = None,
    n_teachers: int | str = "auto",
    points_per_teacher: int | None = None,
    aggregator: str = "auto",
    sigma: float | str = "auto",
    check_sigma: float | str | None = "auto",
    threshold: float | str | None = "auto",
    scale: float | str | None = "auto",
    bound: str = "gdp",
    conversion: str = "improved",
    orders: Sequence[float] = PAPER_ORDERS,
    stop: str = "budget",
    max_labels: int | None = None,
    reference: Reference | None = None,
    design: Design | None = None,
    proxy: tuple[NDArray[Any], NDArray[np.int64]] | None = None,
    teacher: Any = None,
    seed: int = 0,
    voting: str = "teachers",
    nets: bool = False,
    queries: str = "auto",
    counts: bool | str = "auto",
    student: Student | None = None,
    standing: Standing | None = None,
) -> Settings:
    """Return the settings; every "auto" is resolved from public information alone.

    Plans, runs, the classifier and sites all use this function, so that they make equal choices.

    Parameters
    ----------
    groups, n_public, n_classes
        The groups, each with its number of people, the size of the public pool, and the number of classes.
    variant, options
        The variant's name and its further options.
    n_teachers, sigma, check_sigma, threshold, scale : number or "auto"
        The number of teachers, the noise and the threshold; `check_sigma` and `threshold` are None without a check.
        `scale` is that of Laplace noise, for lnmax alone.
    points_per_teacher : int, optional
        The number of people per teacher if `n_teachers` is "auto".
    aggregator : str
        The name of an aggregator, or "auto": confident with a check, gnmax without, lnmax with a scale.
    bound, conversion, orders
        The arguments of `Meter`.
    stop, max_labels
        The stopping rule, and the largest number of labels.
    reference, design
        For the bound ptr: the source of a design, or a design.
    proxy, teacher, seed
        A public labelled task (X, y), on which copies of `teacher` are trained to measure their agreement; its seed.
    voting, nets
        The engine, "teachers", "ballots" or "auto", and whether the teachers are nets (`choose_voting`).
    queries, counts
        Which points are asked, and whether noisy counts are released with labels; "auto" is what suits the student.
    student : Student, optional
        The student that will learn from the labels. One that spreads them gets a few labels with their counts.
    standing : Standing, optional
        What earlier runs on the ledger left of the budgets. Default: all of them.
    """
    given: dict[str, Any] = {
        "aggregator": aggregator,
        "sigma": sigma,
        "check_sigma": check_sigma,
        "threshold": threshold,
        "scale": scale,
        "n_teachers": n_teachers,
        "points_per_teacher": points_per_teacher,
        "max_labels": max_labels,
        "reference": reference,
        "design": design,
        "proxy": proxy,
        "stop": None if stop == "budget" else stop,
    }
    for_teachers = {name: value for name, value in given.items() if value is not None and str(value) != "auto"}
    suited = not for_teachers and suits_ballots(variant, bound)
    engine, why = choose_voting(
        voting, groups, n_public=n_public, n_classes=n_classes, nets=nets, suited=suited, standing=standing
    )
    if engine == BALLOTS:
        for name, value in for_teachers.items():
            stated = f"{name} is {show(value)}" if isinstance(value, str | int | float) else f"{name} is given"
            raise InputError(f"{stated}: it is for teachers, and ballots have none; leave it out")
        meter = Meter(bound, conversion, orders)
        ballot_layout(variant, groups, meter, **(options or {}))  # refuses what ballots do not know
        return _ballot_settings(
            groups, n_public, n_classes, variant=variant, meter=meter, reason=why, standing=standing
        )
    requested = {name: given[name] for name in ("n_teachers", "sigma", "check_sigma", "threshold", "scale")}
    for name, value in requested.items():
        if isinstance(value, str) and value != "auto":
            raise InputError(f"{name} is {value!r}: it must be a number or 'auto'")
    _check_request(variant, stop, max_labels, points_per_teacher, n_teachers)
    _check_test(bound, variant, stop, max_labels, described=reference is not None or design is not None)
    aggregator, kind = _kind_of_noise(aggregator, requested)
    own, other = ("sigma", "scale") if kind == "gaussian" else ("scale", "sigma")
    checks = _has_check(aggregator, bound) and (aggregator != "auto" or None not in (check_sigma, threshold))
    for name in (other,) if checks else (other, "check_sigma", "threshold"):
        requested[name] = None if requested[name] == "auto" else requested[name]
    n_people, k = sum(group.people or 0 for group in groups), None if n_teachers == "auto" else int(n_teachers)
    if k is not None and k > n_people:
        raise InputError(f"n_teachers is {k} and there are {n_people} people: every teacher needs at least one")
    extra = dict(options or {})
    choice: Choice | None = None
    spreads = student is not None and student.labels_wanted(1, 1.0, n_classes=n_classes) is not None
    few = spreads and bound == "gdp" and stop == "budget" and max_labels is None and aggregator in ("auto", "gnmax")
    if few and requested["sigma"] == "auto":
        requested |= {name: None for name in ("check_sigma", "threshold") if requested[name] == "auto"}
        few = requested["check_sigma"] is None
    if "auto" in requested.values():
        profiles = None
        if proxy is not None:
            sizes = PROXY_SIZES if k is None else (max(1, n_people // k),)
            fitting = [size for size in sizes if size * 2 <= n_people] or [1]
            profiles = proxy_profiles(teacher, *proxy, n_classes=n_classes, sizes=fitting, seed=seed)
        alone: dict[str, Any] = {"check": checks, "noise": kind}
        facts: dict[str, Any] = {
            "groups": groups,
            "n_public": n_public,
            "n_classes": n_classes,
            "profiles": profiles,
            "points_per_teacher": points_per_teacher,
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
    with_counts = {"counts": True} if _has_counts(counts, spreads, bound, aggregator) else {}
    settings = Settings(
        variant=variant,
        n_teachers=n_found,
        **noise,
        meter=Meter(bound, conversion, orders),
        stop=cast("Stop", stop),
        max_labels=None if max_labels is None else int(max_labels),
        options=extra,
        reference=reference,
        design=design,
        reason="",
        aggregator_name=aggregator,
        aggregator_options={**find_aggregator(aggregator).run_options, **with_counts},
        queries=_query_rule(queries, student, bound),
        n_queries=choice.n_queries if choice is not None and few else None,
    )
    check_supported(settings.meter, settings.aggregator().mechanism)  # and refuse invalid noise, before training
    known: dict[str, Any] = {"n_public": n_public, "seed": seed, "standing": standing}
    reason = "; ".join(filter(None, (why, state_teachers(settings, choice, groups, requested=requested, **known))))
    return replace(settings, reason=reason, n_first=first_round(settings, groups, **known))


def _ballot_settings(
    groups: Sequence[Group],
    n_public: int,
    n_classes: int,
    *,
    variant: str,
    meter: Meter,
    reason: str,
    standing: Standing | None,
) -> Settings:
    """Return the settings of a release of ballots; weights and cells follow from what is left of the budgets."""
    try:
        design = ballot_design(
            groups, n_public=n_public, n_classes=n_classes, variant=variant, meter=meter, standing=standing
        )
        design.check_useful()
    except BudgetExceededError as error:
        if standing is not None:  # earlier runs have spent the budgets
            raise
        raise InputError(f"voting is 'ballots': {error}") from None
    return Settings(
        variant=variant,
        n_teachers=0,
        sigma=SIGMA,
        check_sigma=None,
        threshold=None,
        meter=meter,
        stop="budget",
        max_labels=None,
        reason="; ".join(filter(None, (reason, state_ballots(design, standing)))),
        aggregator_name="gnmax",
        voting="ballots",
    )


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


def _check_request(variant: str, stop: str, max_labels: int | None, points: int | None, n_teachers: int | str) -> None:
    """Refuse invalid requests before training."""
    if stop not in ("budget", "drop", "count"):
        raise InputError(f"stop is {stop!r}: it must be budget, drop or count")
    if stop == "count" and max_labels is None:
        raise InputError("stop is 'count' without max_labels: give the number of labels")
    if stop == "drop" and not find_variant(variant).groups_can_leave:
        why = "groups can leave only if each teacher has one group and always votes"
        raise InputError(f"stop is 'drop' under {variant}: {why}")
    for name, value in (("max_labels", max_labels), ("points_per_teacher", points), ("n_teachers", n_teachers)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1
        if value is not None and value != "auto" and not whole:
            raise InputError(f"{name} is {value!r}: it must be a whole number of at least 1")


def _check_test(bound: str, variant: str, stop: str, max_labels: int | None, *, described: bool) -> None:
    """Refuse the bound ptr without a reference or design, and a reference or design with another bound."""
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


def designed(settings: Settings, allocation: Allocation, *, n_classes: int, queries: Sequence[str]) -> Settings:
    """Return the settings with a design made from the reference; unchanged if there is a design or no reference."""
    reference = settings.reference
    if reference is None or settings.design is not None:
        return settings
    mechanism = settings.aggregator(allocation.scale).mechanism
    made = design_for(reference, Panel.of(allocation.layout), mechanism, n_classes=n_classes, queries=queries)
    return replace(settings, design=made, reference=reference if reference.simulator is not None else None)
