"""`ipate plan`: show before any training what the budgets afford, with the settings that `ipate run` chooses."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, echo

from ipate.cli import options
from ipate.cli.output import Counted, cell, print_json, print_table, progress_bar, told_chances, without_small

if TYPE_CHECKING:
    from ipate.config import RunConfig
    from ipate.engines.ballots.design import Design
    from ipate.people.budgets import Group
    from ipate.planning.outlook import Prospect
    from ipate.planning.plan import GroupPlan, Plan, VariantPlan
    from ipate.planning.reference import Forecast, Reference
    from ipate.planning.standing import Standing
    from ipate.runs.task import Task

EXAMPLE = (
    "Examples: ipate plan hospital.toml, for the people that ipate run hospital.toml would have; ipate plan --people "
    "people.csv --level consent --policy policy.toml --classes 2, with one row per person; ipate plan --groups "
    "groups.csv --people 60000 --share high=0.54 --share mid=0.37 --share low=0.09 --classes 10, with a csv that has "
    "the columns group,epsilon and optionally delta, and share or people instead of --share."
)
POOL, CLASSES = 10_000, 10


def command(
    config: Annotated[Path | None, Argument(help="A TOML file, as for ipate run.", metavar="CONFIG.toml")] = None,
    people: Annotated[
        str | None, Option(help="The number of people, or a csv file with one row per person.", metavar="N|PEOPLE.csv")
    ] = None,
    groups: Annotated[Path | None, Option(help="csv file of group budgets.", metavar="GROUPS.csv")] = None,
    share: Annotated[
        list[str] | None, Option(help="A group's share of all people; once per group.", metavar="ID=SHARE")
    ] = None,
    epsilon: Annotated[float | None, Option(help="One ε for everybody; with --people N.")] = None,
    epsilon_column: Annotated[str | None, Option(help="The people csv's column of ε.")] = None,
    level: Annotated[str | None, Option(help="The people csv's column of consent levels; needs --policy.")] = None,
    policy: Annotated[Path | None, Option(help="TOML file with the ε of each consent level.")] = None,
    person: Annotated[
        str | None, Option(help="The people csv's column of person ids, if a person has several rows.")
    ] = None,
    delta_column: Annotated[str | None, Option(help="The people csv's column of δ.")] = None,
    delta: Annotated[
        float | None, Option(help="δ where no file gives one; default: the smaller of 1e-5 and 0.1/people.")
    ] = None,
    merge_within: options.MergeWithin = None,
    max_groups: options.MaxGroups = None,
    min_group_size: options.MinGroupSize = None,
    classes: Annotated[int | None, Option(help=f"Number of classes (public); default: {CLASSES}.")] = None,
    pool: Annotated[int | None, Option(help="Number of public points; default: 10,000.")] = None,
    variant: Annotated[str | None, Option(help="Variant to choose noise for; default: weighting.")] = None,
    teachers: Annotated[str | None, Option(help="Number of teachers, k, or auto.", metavar="K|auto")] = None,
    points_per_teacher: Annotated[
        int | None, Option(help="People per teacher, if the number of teachers is auto.")
    ] = None,
    aggregator: Annotated[
        str | None, Option(help="auto, gnmax, confident or interactive (both with a check), lnmax (Laplace noise).")
    ] = None,
    sigma: Annotated[float | None, Option(help="σ at k teachers; default: as in ipate run.")] = None,
    check_sigma: Annotated[float | None, Option(help="σ_T at k teachers; default: as in ipate run.")] = None,
    threshold: Annotated[float | None, Option(help="T at k teachers; default: as in ipate run.")] = None,
    scale: Annotated[
        float | None, Option(help="The Laplace scale of lnmax at k teachers; default: as in ipate run.")
    ] = None,
    bound: Annotated[str | None, Option(help="gdp, loose or sup; default: gdp.")] = None,
    conversion: Annotated[str | None, Option(help="improved (default) or classic; ignored by gdp.")] = None,
    orders: Annotated[str | None, Option(help="Rényi orders: FIRST:LAST or a list; default: 2:50.")] = None,
    weights: Annotated[
        str | None, Option(help="The rule of weighting: gdp (default), proportional, algorithm2, classic or uniform.")
    ] = None,
    copies: Annotated[
        str | None, Option(help="The rule of upsampling: gdp (default), proportional, classic or uniform.")
    ] = None,
    tolerance: Annotated[
        float | None,
        Option(help="Tolerance of the ratios of copies; larger: fewer teachers; default: 0.02."),
    ] = None,
    max_copies: Annotated[int | None, Option(help="Maximum number of copies of a person; default: 20.")] = None,
    power: Annotated[
        float | None, Option(help="Vanishing: participate in (ε/ε_max)^power of the queries, not (μ/μ_max)².")
    ] = None,
    parties: Annotated[bool, Option("--parties", help="The groups are parties that cannot share data.")] = False,
    accuracy: options.Accuracy = None,
    spread: options.Spread = None,
    confusion: options.Confusion = None,
    reference: options.ReferenceVotes = None,
    reserve: options.Reserve = None,
    fallback: options.Fallback = False,
    split_seed: Annotated[int | None, Option(min=0, help="Vanishing: seed of the schedule; default: 0.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show before any training what the budgets afford under each variant, from public information only.

    With --accuracy or --reference it also compares the bounds gdp, sup and ptr.
    """
    from ipate.config import RunConfig
    from ipate.engines.teachers.variants import options_by_variant

    who: dict[str, Any] = {
        "people": people,
        "groups": groups,
        "share": share or None,
        "epsilon": epsilon,
        "delta": delta,
        "epsilon_column": epsilon_column,
        "level": level,
        "policy": policy,
        "person": person,
        "delta_column": delta_column,
        "merge_within": merge_within,
    }
    request: dict[str, Any] = {}
    if config is None:
        asked, n_classes, n_public, seed = options.read_groups(**who), classes or CLASSES, pool or POOL, split_seed or 0
        notes = [] if classes is not None else [f"{CLASSES} classes are assumed; give the number with --classes."]
        asked, merged = _merged(asked, n_classes, teachers, points_per_teacher, max_groups, min_group_size)
        notes += merged
        known, standing, least = None, None, min_group_size
    else:
        options.refuse_unused(
            f"{config} describes the data",
            **who,
            max_groups=max_groups,
            min_group_size=min_group_size,
            classes=classes,
            pool=pool,
            split_seed=split_seed,
        )
        read = RunConfig.from_file(config)
        asked, n_classes, n_public, seed, request, known, standing, notes = _read_config(read, bound)
        least = read.budgets.min_group_size
    given = {
        "variant": variant,
        "n_teachers": options.whole_number(teachers),
        "points_per_teacher": points_per_teacher,
        "aggregator": aggregator,
        "sigma": sigma,
        "check_sigma": check_sigma,
        "threshold": threshold,
        "scale": scale,
        "bound": bound,
        "conversion": conversion,
    }
    request |= {name: value for name, value in given.items() if value is not None}
    rules = {"copies": copies, "weights": weights, "tolerance": tolerance, "max_copies": max_copies, "power": power}
    by_variant = options_by_variant({name: value for name, value in rules.items() if value is not None})
    if orders is not None:
        request["orders"] = options.parse_orders(orders)
    testing = {
        "reference": reference,
        "accuracy": accuracy,
        "spread": spread,
        "confusion": confusion,
        "reserve": reserve,
        "fallback": fallback,
    }
    _plan(
        asked,
        n_public,
        n_classes,
        request,
        by_variant,
        seed=seed,
        parties=parties,
        testing=testing,
        known=known,
        standing=standing,
        notes=notes,
        least=least,
        as_json=as_json,
    )


def show_run(config: "RunConfig", task: "Task", *, as_json: bool) -> None:
    """Print the plan of a run that is not begun, as `ipate plan CONFIG.toml` does."""
    asked, n_classes, n_public, seed, request, known, standing, notes = _read_config(config, None, task)
    _plan(
        asked,
        n_public,
        n_classes,
        request,
        {},
        seed=seed,
        parties=False,
        testing=None,
        known=known,
        standing=standing,
        notes=notes,
        least=config.budgets.min_group_size,
        as_json=as_json,
    )


def _plan(
    groups: "tuple[Group, ...]",
    n_public: int,
    n_classes: int,
    request: dict[str, Any],
    by_variant: dict[str, Any],
    *,
    seed: int,
    parties: bool,
    testing: dict[str, Any] | None,
    known: "Reference | None",
    standing: "Standing | None",
    notes: list[str],
    least: int | None,
    as_json: bool,
) -> None:
    """Make the plan and what a student can expect, and print both."""
    from ipate.errors import check_count
    from ipate.people.budgets import MIN_GROUP_SIZE, has_small, shown_counts
    from ipate.planning.outlook import prospect
    from ipate.planning.plan import make_plan
    from ipate.planning.voting import ballot_designs

    check_count("pool", n_public)
    check_count("classes", n_classes, least=2)
    own = by_variant.setdefault(request.get("variant", "weighting"), {})
    own |= request.pop("options", {})
    with progress_bar("variants and levels computed", len(groups) + 4, quiet=as_json) as bar:
        found = prospect(
            groups,
            n_public=n_public,
            n_classes=n_classes,
            request={**request, "options": own},
            options=by_variant,
            seed=seed,
            standing=standing,
            progress=bar,
        )
    settings = found.settings
    plan = make_plan(
        groups=groups,
        n_teachers=settings.n_teachers,
        mechanism=settings.aggregator().mechanism,
        meter=settings.meter,
        n_classes=n_classes,
        parties=parties,
        seed=seed,
        options=by_variant,
        standing=standing,
    )
    expected = _forecasts(plan, n_public, testing, known, quiet=as_json)
    ballots = ballot_designs(groups, n_public=n_public, n_classes=n_classes, standing=standing)
    sizes, fewest = [group.people for group in groups], MIN_GROUP_SIZE if least is None else least
    if has_small(sizes, least=fewest):
        ballots = {}  # the weight of all ballots would tell the size of the small group

    def counted(people: int | None) -> int | str | None:
        return shown_counts([people, *sizes], least=fewest)[0]

    _show(plan, found, n_public, notes, expected, ballots, counted, as_json)


def _read_config(config: "RunConfig", bound: str | None, task: "Task | None" = None) -> tuple[Any, ...]:
    """Return the facts of a run, by the code that the run uses, and what its configuration requests."""
    from ipate.accounting.bounds import Meter
    from ipate.planning.voting import choose_voting
    from ipate.runs.outlook import told_standing
    from ipate.runs.task import prepare, requested_settings

    if bound is not None:  # what earlier runs left is counted in the unit of this bound
        config = config.model_copy(update={"labelling": config.labelling.model_copy(update={"bound": bound})})
    task = task or prepare(config)
    request = requested_settings(config, n_classes=task.data.n_classes)
    voting, nets = request.pop("voting"), request.pop("nets")
    reference = request.pop("reference")
    request.pop("design")
    standing, notes = told_standing(config, task)
    meter = Meter(request["bound"])
    if bound is None and meter.planning != meter:
        request["bound"] = meter.planning.bound
        notes.append(f"The run's bound {meter.bound} depends on the votes; this plan counts by {request['bound']}.")
    notes += task.people.notes
    n_public, n_classes = len(task.parts.public), task.data.n_classes
    chosen, why = choose_voting(
        voting, task.people.groups, n_public=n_public, n_classes=n_classes, nets=nets, standing=standing
    )
    notes.append(f"The run asks for {chosen}{f' ({why})' if why else ''}.")
    facts = (task.people.groups, task.data.n_classes, len(task.parts.public), config.split_seed)
    return *facts, request, reference, standing, notes


def _merged(
    groups: "tuple[Group, ...]",
    n_classes: int,
    teachers: str | None,
    points: int | None,
    most: str | None,
    least: int | None,
) -> "tuple[tuple[Group, ...], tuple[str, ...]]":
    """Merge groups downwards, as a run does."""
    from ipate.people.budgets import MIN_GROUP_SIZE
    from ipate.people.grouping import merge_groups, regrouped
    from ipate.planning.choose import group_limit

    limit = group_limit(
        options.whole_number(most) or "auto",
        n_people=sum(group.people or 0 for group in groups),
        n_classes=n_classes,
        n_teachers=options.whole_number(teachers) or "auto",
        points_per_teacher=points,
    )
    home, notes = merge_groups(groups, max_groups=limit, min_group_size=least or MIN_GROUP_SIZE)
    return regrouped(groups, home), notes


def _forecasts(
    plan: "Plan", pool: int, testing: dict[str, Any] | None, known: "Reference | None", *, quiet: bool
) -> "tuple[Forecast, ...]":
    """Return the labels to expect under each bound, if a reference is given."""
    from ipate.planning.reference import forecast

    if testing is not None and (testing["reference"] is not None or testing["accuracy"] is not None):
        known = options.make_reference(**testing, classes=plan.n_classes)
    elif testing is not None:
        options.refuse_unused("it describes a reference; give --accuracy or --reference too", **testing)
    if known is None:
        return ()
    with progress_bar("variants compared with the reference", len(plan.variants), quiet=quiet) as bar:
        return forecast(plan, known, pool=pool, progress=bar)


def _show(
    plan: "Plan",
    found: "Prospect",
    pool: int,
    notes: list[str],
    expected: "tuple[Forecast, ...]",
    ballots: "dict[str, Design]",
    counted: Counted,
    as_json: bool,
) -> None:
    """Print the plan; small groups are not counted, because what a plan says may be published."""
    import json

    from ipate.planning.plan import FEWER_POINTS, RATES

    settings, said = found.settings, [*notes, *plan.notes]
    if as_json:
        facts = plan.facts() | {"pool": pool, "variant": settings.variant, "reason": settings.reason, "notes": said}
        facts |= {"settings": json.loads(settings.to_json()), **found.facts()}
        facts["ballots"] = {name: design.as_json() | {"notes": design.notes} for name, design in ballots.items()}
        print_json(without_small(facts, counted) | {"expected": [asdict(row) for row in expected]})
        return
    for note in notes:
        echo(note)
    symbol = "σ" if settings.scale is None else "b"
    kind = "" if settings.scale is None else "Laplace noise with "
    for variant in plan.variants:
        noise = variant.mechanism
        check = "" if not noise.has_check else f", σ_T = {noise.check_sigma:.5g}, T = {noise.threshold:.5g}"
        print_table(
            f"{variant.variant} ({variant.layout.rule}): {variant.n_teachers} teachers of "
            f"{variant.people_per_teacher:.4g} people, {kind}{symbol} = {noise.sigma:.5g}{check}",
            ["group", "ε", "δ", "people", "teachers", variant.influence, "Δ", *(f"queries at {r:.0%}" for r in RATES)],
            [_row(group, counted) for group in variant.groups],
            variant.layout.notes,
        )
    print_table(
        f"Labels that the budgets guarantee, by the {plan.meter.bound} bound (and the group that ends it)",
        ["variant", *(f"{rate:.0%} answered" for rate in RATES), "against standard"],
        [_guaranteed(variant) for variant in plan.variants],
        [
            f"For {settings.variant}: {settings.reason}.",
            f"Suits: {plan.suits}. {plan.why}",
            *told_chances(plan),
            *plan.notes,
        ],
    )
    _show_outlook(found, pool, counted)
    _show_ballots(ballots, pool)
    if expected:
        print_table(
            "Labels to expect where votes are as the reference's, by bound",
            ["variant", "answered", "gdp", "sup", "ptr"],
            [
                [row.variant, f"{row.answer_rate:.0%}", *(str(row.labels[bound]) for bound in ("gdp", "sup", "ptr"))]
                for row in expected
            ],
            [
                "gdp and sup hold for all votes. ptr asks one private yes/no question first.",
                "These figures may be published if the reference is independent of these people.",
            ],
        )
    names = list(plan.more[0].labels)
    print_table(
        f"What more teachers would afford, at equal {symbol}/k and 100% answered",
        ["teachers", "people each", *names],
        [
            [str(row.n_teachers), f"{row.people_per_teacher:.4g}", *(cell(row.labels[name]) for name in names)]
            for row in plan.more
        ],
        [FEWER_POINTS.replace("σ", symbol), "From budgets, what is left of them, numbers of people and noise alone."],
    )


def _show_outlook(found: "Prospect", pool: int, counted: Counted) -> None:
    """Print what a student can expect under each variant, and what more consent would bring."""
    from ipate.planning.choose import SKILLS

    own = found.outlook
    profiles = (
        f"Labels: on average over reference profiles of teachers, which are {SKILLS[0]:.0%} to {SKILLS[-1]:.0%} of the "
        "way from guessing to perfect, and for the worst and the best of them. Clean: so many correct labels teach as "
        "much. Each variant has the settings that are chosen for it."
    )
    notes = [profiles]
    if (first := found.settings.n_first) is not None:
        notes.append(f"Rounds: {first:,} points; then a student of their labels is compared with the votes.")
    if not own.useful:
        notes.append(
            f"Too few: ipate run refuses to train where fewer than {own.needed} labels are expected, unless "
            "labelling.min_labels is smaller. Larger budgets, more people, a larger pool or fewer classes would help."
        )
    print_table(
        f"What a student can expect from a pool of {pool} points",
        ["variant", "teachers", "people each", "labels", "worst to best", "right", "clean"],
        [
            [
                row.variant,
                str(row.n_teachers),
                f"{row.people_per_teacher:.4g}",
                str(row.labels),
                f"{row.fewest} to {row.most}",
                f"{row.right:.0%}",
                str(row.clean),
            ]
            for row in (own, *found.others)
        ],
        notes,
    )
    if found.steps:
        print_table(
            f"What more consent would bring, under {own.variant}",
            ["if the people of", "people", "allowed ε", "instead of", "labels", "more"],
            [
                [
                    step.group,
                    str(counted(step.people)),
                    f"{step.to:.4g}",
                    f"{step.epsilon:.4g}",
                    str(step.labels),
                    f"{step.labels - own.labels:+d}",
                ]
                for step in found.steps
            ],
            [],
        )


def _show_ballots(ballots: "dict[str, Design]", pool: int) -> None:
    """Print what ballots afford the same people: everybody's own budget, and the strictest one for all."""
    from ipate.engines.ballots.design import ENOUGH, figure

    if not ballots:
        return
    told = (
        "Every person casts one weighted vote and all labels cost one release (--voting ballots). Labels are reliable "
        f"from a weight of {ENOUGH:g} per class; about 6 per cell are aimed at."
    )
    print_table(
        f"Ballots: one release that labels all {pool} points of the pool",
        ["budgets", "all ballots weigh", "per class", "cells", "per cell", "used"],
        [
            [
                {"weighting": "individual", "standard": "the strictest for all"}[name],
                figure(design.affordable),
                figure(design.per_class),
                f"{design.partitions} × {design.cells}",
                figure(design.total / design.cells),
                f"{design.share:.0%}",
            ]
            for name, design in ballots.items()
        ],
        [told, *(note for name in ("weighting",) if name in ballots for note in ballots[name].notes)],
    )


def _row(group: "GroupPlan", counted: Counted) -> list[str]:
    account, people = group.account, str(counted(group.account.people))
    return [
        *(account.id, f"{account.epsilon:.4g}", f"{account.delta:g}", people, str(group.teachers)),
        *(f"{group.influence:.4g}", f"{account.sensitivity:.4g}"),
        *("far more" if n is None else str(n) for n in group.queries),
    ]


def _guaranteed(variant: "VariantPlan") -> list[str]:
    last = variant.guaranteed[-1].ratio
    cells = [f"{given.labels} ({given.binding})" for given in variant.guaranteed]
    return [variant.variant, *cells, "—" if last is None else f"×{last:.2f}"]
