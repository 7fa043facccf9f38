"""`ipate plan`: before any training, what these budgets afford, per variant."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ipate.people.budgets import Budget, Group

if TYPE_CHECKING:
    from ipate.people.budgets import Group
    from ipate.planning.afforded import Plan, VariantPlan
    from ipate.planning.plan import Forecast


EXAMPLE = (
    "Example: ipate plan --groups groups.csv --people 60000 --share high=0.54 --share mid=0.37 --share low=0.09 "
    "--teachers 250 --classes 10. The group file is a csv with the columns group,epsilon and optionally delta, and "
    "share or people instead of --share. Or, with one row per person: ipate plan --people people.csv "
    "--level-column consent --policy policy.toml --teachers auto. The keys of --json: groups, n_people, n_teachers, "
    "classes, bound, conversion, variants (each with its rule, n_teachers, people_per_teacher, scale, sigma, "
    "check_sigma, threshold, groups and guaranteed), more_teachers, suits, why, chances, notes."
)


def command(
    people: Annotated[
        str | None,
        typer.Option(help="How many people there are, or a csv with one row per person.", metavar="N|PEOPLE.csv"),
    ] = None,
    groups: Annotated[Path | None, typer.Option(help="csv with every group's budget.", metavar="GROUPS.csv")] = None,
    share: Annotated[
        list[str] | None, typer.Option(help="A group's share of all people; once per group.", metavar="ID=SHARE")
    ] = None,
    teachers: Annotated[
        str, typer.Option(help="k, or auto: people over --points-per-teacher.", metavar="K|auto")
    ] = "auto",
    points_per_teacher: Annotated[
        int, typer.Option(help="What auto gives each teacher; the paper's MNIST has 240.")
    ] = 240,
    classes: Annotated[int | None, typer.Option(help="Number of classes; a public fact.")] = None,
    aggregator: Annotated[str, typer.Option(help="confident (with a check) or gnmax (without).")] = "confident",
    sigma: Annotated[float | None, typer.Option(help="σ at k teachers; .16k unless said, as in the paper.")] = None,
    check_sigma: Annotated[
        float | None, typer.Option(help="σ_T at k teachers; .6k unless said, as in the paper.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="T at k teachers; .8k unless said, as in the paper.")] = None,
    bound: Annotated[str, typer.Option(help="A bound that holds for all votes, such as gdp, loose or sup.")] = "gdp",
    conversion: Annotated[str, typer.Option(help="classic or improved; gdp has its own.")] = "improved",
    orders: Annotated[str, typer.Option(help="Rényi orders, FIRST:LAST or a list.")] = "2:50",
    delta: Annotated[float, typer.Option(help="δ where no file gives one.")] = 1e-5,
    weights: Annotated[
        str, typer.Option(help="The rule of weighting: gdp, proportional, algorithm2, classic or uniform.")
    ] = "gdp",
    copies: Annotated[str, typer.Option(help="The rule of upsampling: gdp, proportional, classic or uniform.")] = "gdp",
    tolerance: Annotated[
        float, typer.Option(help="How far the ratios of copies may be off; a larger one needs fewer teachers.")
    ] = 0.02,
    max_copies: Annotated[int, typer.Option(help="The most copies of anybody.")] = 20,
    power: Annotated[float | None, typer.Option(help="Vanishing takes (ε/ε_max)^power instead of (μ/μ_max)².")] = None,
    parties: Annotated[
        bool, typer.Option("--parties", help="The groups are parties that cannot share their data.")
    ] = False,
    epsilon_column: Annotated[str | None, typer.Option(help="The people csv's column of ε.")] = None,
    level_column: Annotated[
        str | None, typer.Option(help="The people csv's column of consent levels; needs --policy.")
    ] = None,
    person_column: Annotated[
        str | None, typer.Option(help="The people csv's column of person ids, if a person has several rows.")
    ] = None,
    delta_column: Annotated[str | None, typer.Option(help="The people csv's column of δ.")] = None,
    policy: Annotated[Path | None, typer.Option(help="TOML: what each consent level means as ε.")] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="How often one teacher is expected to be right: then also gdp, sup and ptr side by side."),
    ] = None,
    spread: Annotated[float | None, typer.Option(help="With --accuracy: how much queries differ; 2.")] = None,
    confusion: Annotated[
        float | None, typer.Option(help="With --accuracy: share of wrong votes that agree; .65.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Votes of other teachers on public data, instead of --accuracy.")
    ] = None,
    reserve: Annotated[
        float | None, typer.Option(help="How much more than the reference the votes may cost under ptr; .1.")
    ] = None,
    fallback: Annotated[bool, typer.Option(help="ptr keeps (ε/2, δ/10) for after a failed test.")] = False,
    pool: Annotated[int, typer.Option(help="How many public points there are; with a reference.")] = 10_000,
    split_seed: Annotated[int, typer.Option(min=0, help="The public seed of vanishing's rotation.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")] = False,
) -> None:
    """What these budgets afford before any training, variant by variant, from public information only."""
    from ipate.accounting.bounds import Meter
    from ipate.allocation import options_by_variant
    from ipate.cli.options import parse_orders
    from ipate.errors import check_count, check_number
    from ipate.planning.afforded import auto_teachers, default_mechanism
    from ipate.planning.plan import make_plan

    check_number("delta", delta)
    columns = {
        "epsilon_column": epsilon_column,
        "level_column": level_column,
        "person_column": person_column,
        "delta_column": delta_column,
    }
    asked = _read_groups(people, groups, share or [], delta, columns, policy)
    k = auto_teachers(asked, points_per_teacher=points_per_teacher) if teachers == "auto" else _whole(teachers)
    check_count("teachers", k)
    plan = make_plan(
        groups=asked,
        n_teachers=k,
        mechanism=default_mechanism(
            k, aggregator=aggregator, sigma=sigma, check_sigma=check_sigma, threshold=threshold
        ),
        meter=Meter(bound, conversion, parse_orders(orders)),
        n_classes=classes,
        parties=parties,
        seed=split_seed,
        options=options_by_variant(
            {"copies": copies, "weights": weights, "tolerance": tolerance, "max_copies": max_copies, "power": power}
        ),
    )
    testing = {
        "reference": reference, "accuracy": accuracy, "spread": spread, "confusion": confusion, "reserve": reserve,
        "fallback": fallback,
    }  # fmt: skip
    _show(plan, _forecasts(plan, pool, testing, quiet=as_json), as_json)


def _forecasts(plan: "Plan", pool: int, options: dict[str, Any], *, quiet: bool) -> "tuple[Forecast, ...]":
    """What a reference makes of the plan, where one is given."""
    from ipate.cli.options import make_reference, refuse_unused
    from ipate.cli.output import waiting
    from ipate.errors import check_count
    from ipate.planning.plan import forecast

    if options["reference"] is None and options["accuracy"] is None:
        refuse_unused("it describes a reference; give --accuracy or --reference too", **options)
        return ()
    made = make_reference(**options, classes=plan.n_classes)
    with waiting("working out what the reference affords", quiet=quiet):
        return forecast(plan, made, pool=check_count("pool", pool))


def _whole(text: str) -> int:
    from ipate.errors import InputError

    if not text.removeprefix("-").isdecimal():
        raise InputError(f"teachers is {text!r}: it must be a whole number, 1 or above, or auto")
    return int(text)


def _read_groups(
    people: str | None,
    groups: Path | None,
    shares: list[str],
    delta: float,
    columns: dict[str, Any],
    policy: Path | None,
) -> "tuple[Group, ...]":
    """Read who there is: a people csv, or a group csv with numbers or shares of people."""
    from ipate.errors import InputError
    from ipate.people.people import People
    from ipate.people.policy import Policy

    number = people is not None and people.removeprefix("-").isdecimal()
    if groups is None:
        if people is None or number:
            raise InputError("groups are not given: name a group file (--groups) or a people csv (--people)")
        if shares:
            raise InputError("share is given with a people csv: the csv itself says how many people a group has")
        words = None if policy is None else Policy.from_file(policy)
        given = None if words is not None and words.delta is not None else delta
        return People.from_csv(people, policy=words, delta=given, **columns).groups
    named = next((name for name, value in {**columns, "policy": policy}.items() if value is not None), None)
    if named is not None:
        raise InputError(f"{named} is given with --groups: it belongs to a people csv (--people)")
    if people is not None and not number:
        raise InputError(f"people is {people!r}: with --groups it must be a whole number, 1 or above")
    return _group_file(groups, None if people is None else int(people), shares, delta)


def _group_file(path: Path, people: int | None, shares: list[str], delta: float) -> "tuple[Group, ...]":
    """Read a group csv; its columns sensitivity and weight, which other commands use, are left alone."""
    from ipate.errors import InputError, check_id
    from ipate.files import read_table
    from ipate.people.budgets import Group
    from ipate.planning.afforded import groups_of_shares

    table = read_table(
        path, required=("group", "epsilon"), optional=("delta", "share", "people", "sensitivity", "weight")
    )
    ids = [check_id(name) for name in table.texts("group")]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: group {twice!r} is there twice: ids must differ")
    given = table.numbers("delta", "delta", optional=True) if "delta" in table.columns else [None] * len(ids)
    epsilon = cast("list[float]", table.numbers("epsilon", "epsilon"))
    rows = [(n, e, delta if d is None else d) for n, e, d in zip(ids, epsilon, given, strict=True)]
    if "people" in table.columns and not shares and "share" not in table.columns:
        counts = [_count(cell, n, path) for cell, n in zip(table.texts("people"), ids, strict=True)]
        if people is not None and people != sum(counts):
            raise InputError(f"people is {people} and {path} has {sum(counts)} in all: they must agree")
        return tuple(Group(id=n, budget=Budget(e, d), people=c) for (n, e, d), c in zip(rows, counts, strict=True))
    if people is None:
        raise InputError(f"people is not given: say how many there are (--people N), or in a column of {path}")
    told = dict(zip(ids, table.texts("share"), strict=True)) if "share" in table.columns else {}
    for text in shares:
        name, _, value = text.rpartition("=")
        told[name] = value
    return groups_of_shares(rows, shares={n: _share(n, value) for n, value in told.items()}, n_people=people)


def _count(cell: str, name: str, path: Path) -> int:
    from ipate.errors import InputError

    if not cell.isdecimal() or int(cell) < 1:
        raise InputError(f"{path}: people of group {name!r} is {cell!r}: it must be a whole number, 1 or above")
    return int(cell)


def _share(name: str, text: str) -> float:
    from ipate.errors import InputError

    try:
        return float(text)
    except ValueError:
        raise InputError(f"share of {name!r} is {text!r}: write ID=SHARE with a number, such as high=0.5") from None


def _show(plan: "Plan", expected: "tuple[Forecast, ...]", as_json: bool) -> None:
    from ipate.cli.output import print_json, print_table
    from ipate.planning.afforded import RATES
    from ipate.planning.plan import FEWER_POINTS

    if as_json:
        print_json({**_payload(plan), "expected": [asdict(row) for row in expected]})
        return
    for variant in plan.variants:
        noise = variant.mechanism
        check = "" if not noise.has_check else f", σ_T = {noise.check_sigma:.5g}, T = {noise.threshold:.5g}"
        print_table(
            f"{variant.variant} ({variant.layout.rule}): {variant.n_teachers} teachers of "
            f"{variant.people_per_teacher:.4g} people, σ = {noise.sigma:.5g}{check}",
            ["group", "ε", "δ", "people", "teachers", variant.influence, "Δ", *(f"queries at {r:.0%}" for r in RATES)],
            [
                [
                    group.account.id,
                    f"{group.account.epsilon:.4g}",
                    f"{group.account.delta:g}",
                    str(group.account.people),
                    str(group.teachers),
                    f"{group.influence:.4g}",
                    f"{group.account.sensitivity:.4g}",
                    *("far more" if n is None else str(n) for n in group.queries),
                ]
                for group in variant.groups
            ],
            variant.layout.notes,
        )
    print_table(
        f"Labels that the budgets guarantee, by the {plan.meter.bound} bound (and the group that ends it)",
        ["variant", *(f"{rate:.0%} answered" for rate in RATES), "against standard"],
        [_guaranteed(variant) for variant in plan.variants],
        [f"Suits: {plan.suits}. {plan.why}", *_chances(plan), *plan.notes],
    )
    if expected:
        _show_expected(expected)
    names = list(plan.more[0].labels)
    print_table(
        "What more teachers would afford, at equal σ/k and 100% answered",
        ["teachers", "people each", *names],
        [
            [
                str(row.n_teachers),
                f"{row.people_per_teacher:.4g}",
                *("—" if row.labels[name] is None else str(row.labels[name]) for name in names),
            ]
            for row in plan.more
        ],
        [FEWER_POINTS, "From public information only: budgets, numbers and noise; no data was looked at."],
    )


def _show_expected(expected: "tuple[Forecast, ...]") -> None:
    from ipate.cli.output import print_table

    print_table(
        "Labels to expect where votes are as the reference's, by bound",
        ["variant", "answered", *expected[0].labels],
        [[row.variant, f"{row.answer_rate:.0%}", *map(str, row.labels.values())] for row in expected],
        [
            "gdp and sup hold whatever the votes. ptr asks one private yes/no question first: all labels or none.",
            "All three may be published.",
        ],
    )


def _guaranteed(variant: "VariantPlan") -> list[str]:
    last = variant.guaranteed[-1].ratio
    cells = [f"{given.labels} ({given.binding})" for given in variant.guaranteed]
    return [variant.variant, *cells, "—" if last is None else f"×{last:.2f}"]


def _chances(plan: "Plan") -> list[str]:
    said, chances = [], plan.chances
    if chances.unanimous_passes is not None:
        said.append(
            f"A unanimous vote passes the check with the probability {chances.unanimous_passes:.2f}: "
            "expect no higher answer rate."
        )
    if chances.label_right is not None:
        said.append(
            f"Where {chances.share:.0%} of the votes go to one of {plan.n_classes} classes and the rest is spread "
            f"evenly, the label names it with the probability {chances.label_right:.4f}."
        )
    return said


def _payload(plan: "Plan") -> dict[str, Any]:
    return {
        "groups": [
            {"id": group.id, "epsilon": group.epsilon, "delta": group.delta, "people": group.people}
            for group in plan.groups
        ],
        "n_people": sum(group.people or 0 for group in plan.groups),
        "n_teachers": plan.n_teachers,
        "classes": plan.n_classes,
        "bound": plan.meter.bound,
        "conversion": plan.meter.conversion,
        "variants": [
            {
                "variant": variant.variant,
                "rule": variant.layout.rule,
                "n_teachers": variant.n_teachers,
                "people_per_teacher": variant.people_per_teacher,
                "scale": variant.layout.scale,
                "sigma": variant.mechanism.sigma,
                "check_sigma": variant.mechanism.check_sigma,
                "threshold": variant.mechanism.threshold,
                "groups": [_group(variant, place) for place in range(len(variant.groups))],
                "guaranteed": [asdict(given) for given in variant.guaranteed],
                "notes": list(variant.layout.notes),
            }
            for variant in plan.variants
        ],
        "more_teachers": [asdict(row) for row in plan.more],
        "suits": plan.suits,
        "why": plan.why,
        "chances": asdict(plan.chances),
        "notes": list(plan.notes),
    }


def _group(variant: "VariantPlan", place: int) -> dict[str, Any]:
    group = variant.groups[place]
    afforded = {f"{given.rate:g}": n for given, n in zip(variant.guaranteed, group.queries, strict=True)}
    return {
        "group": group.account.id,
        "epsilon": group.account.epsilon,
        "delta": group.account.delta,
        "people": group.account.people,
        "teachers": group.teachers,
        "sensitivity": group.account.sensitivity,
        variant.influence: group.influence,
        "queries": afforded,
    }
