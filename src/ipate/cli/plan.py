"""`ipate plan`: show before any training what the budgets afford, with the settings that `ipate run` chooses."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Argument, Option, echo

from ipate.cli import options
from ipate.cli.output import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from ipate.config import RunConfig
    from ipate.engines.base import Engine
    from ipate.engines.choose import Request
    from ipate.engines.context import Facts, StandingOf
    from ipate.pipeline import Pupil
    from ipate.planning.plan import Plan
    from ipate.runs.task import FileTask

    Asked: TypeAlias = tuple[Request, Facts, StandingOf, Pupil | None]

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
    split_seed: Annotated[int | None, Option(min=0, help="Vanishing: seed of the schedule; default: 0.")] = None,
    parties: Annotated[bool, Option("--parties", help="The groups are parties that cannot share data.")] = False,
    variant: Annotated[str | None, Option(help="Variant to choose settings for; default: weighting.")] = None,
    rule: Annotated[str | None, Option(help="The rule of weights or copies, as in a TOML file; default: gdp.")] = None,
    power: Annotated[
        float | None, Option(help="Vanishing: participate in (ε/ε_max)^power of the queries, not (μ/μ_max)².")
    ] = None,
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
    bound: Annotated[str | None, Option(help="gdp (default), loose, sup, or a bound that a plan counts by.")] = None,
    conversion: Annotated[str | None, Option(help="improved (default) or classic; ignored by gdp.")] = None,
    accuracy: options.Accuracy = None,
    spread: options.Spread = None,
    confusion: options.Confusion = None,
    reference: options.ReferenceVotes = None,
    reserve: options.Reserve = None,
    fallback: options.Fallback = False,
    as_json: options.AsJson = False,
) -> None:
    """Show before any training what a run would do and what the budgets afford, from public information only.

    With --accuracy or --reference it also compares the bounds gdp, sup and ptr.
    """
    from ipate.config import RunConfig
    from ipate.models.named import import_from

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
    sizes: dict[str, Any] = {
        "max_groups": options.whole_number(max_groups),
        "min_group_size": min_group_size,
        "n_classes": classes,
        "n_pool": pool,
        "seed": split_seed,
        "parties": parties or None,
    }
    shared: dict[str, Any] = {"variant": variant, "bound": bound, "conversion": conversion}
    given = shared | {
        "rule": rule,
        "power": power,
        "number": options.whole_number(teachers),
        "points": points_per_teacher,
        "aggregator": aggregator,
        "sigma": sigma,
        "check_sigma": check_sigma,
        "threshold": threshold,
        "scale": scale,
    }
    testing = {
        "reference": reference,
        "accuracy": accuracy,
        "spread": spread,
        "confusion": confusion,
        "reserve": reserve,
        "fallback": fallback,
    }
    asked: dict[str, Any] = _given(given)
    notes: tuple[str, ...] = ()
    if config is None:
        request, facts, standing, pupil = _of_people(who, sizes)
        notes = () if classes else (f"{CLASSES} classes are assumed; give the number with --classes.",)
    else:
        flags = {"n_classes": "classes", "n_pool": "pool", "seed": "split_seed"}
        unused = {flags.get(name, name): value for name, value in sizes.items()}
        options.refuse_unused(f"{config} describes the data", **who, **unused)
        read = RunConfig.from_file(config)
        import_from(config.resolve().parent)  # modules may lie beside the file
        request, facts, standing, pupil = _of_run(read)
    request = replace(
        request,
        teachers=replace(request.teachers, **asked),
        ballots=replace(request.ballots, **_given(shared)),
    )
    engines = _compared(request, testing, classes=facts.n_classes)
    plan = _plan(request, facts, standing, engines=engines, pupil=pupil, quiet=as_json)
    _show(replace(plan, notes=(*notes, *plan.notes)), as_json=as_json)


def show_run(config: "RunConfig", task: "FileTask", *, as_json: bool) -> None:
    """Print the plan of a run that is not begun, as `ipate plan CONFIG.toml` does; raise its refusal."""
    request, facts, standing, pupil = _of_run(config, task)
    plan = _plan(request, facts, standing, engines=None, pupil=pupil, quiet=as_json)
    _show(plan, as_json=as_json)
    if plan.refusal is not None:
        raise plan.refusal


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are given."""
    return {name: value for name, value in values.items() if value is not None}


def _of_people(who: dict[str, Any], sizes: dict[str, Any]) -> "Asked":
    """Return the default request for people who are described by flags; there is no ledger."""
    from ipate.engines.ballots.engine import Ballots
    from ipate.engines.choose import Request
    from ipate.engines.context import Facts
    from ipate.engines.teachers.engine import Teachers
    from ipate.people.people import People

    known = {"n_classes": CLASSES, "n_pool": POOL} | _given(sizes)
    facts = Facts(people=People.of_groups(options.read_groups(**who)), **known)
    return Request(teachers=Teachers(), ballots=Ballots()), facts, lambda _people, _meter: None, None


def _of_run(config: "RunConfig", task: "FileTask | None" = None) -> "Asked":
    """Return what a configuration asks for, by the code that its run uses."""
    from ipate.runs.ledgers import standing_of
    from ipate.runs.task import options_of, prepare

    task = task or prepare(config)
    asked = options_of(config, n_classes=task.n_classes, image=task.image)
    return asked.request, asked.facts(task), partial(standing_of, task), asked.pupil


def _compared(request: "Request", testing: dict[str, Any], *, classes: int) -> "Sequence[Engine[Any]]":
    """Return the engines to compare; teachers with the reference that the flags describe, if they do."""
    if testing["reference"] is None and testing["accuracy"] is None:
        options.refuse_unused("it describes a reference; give --accuracy or --reference too", **testing)
        return request.engines
    reference = options.make_reference(**testing, classes=classes)
    with_it = replace(request, teachers=replace(request.teachers, reference=reference))
    return with_it.engines


def _plan(
    request: "Request",
    facts: "Facts",
    standing: "StandingOf",
    *,
    engines: "Sequence[Engine[Any]] | None",
    pupil: "Pupil | None",
    quiet: bool,
) -> "Plan":
    """Return the plan; a run is also refused if its student lacks the probabilities that its settings need."""
    from ipate.errors import InputError
    from ipate.planning.plan import make_plan
    from ipate.students.confidence import check_guesses

    plan = make_plan(request, facts, standing, engines=engines, bar=partial(progress_bar, quiet=quiet))
    if plan.settings is not None and plan.settings.asks_student and pupil is not None:
        try:
            check_guesses(pupil.student, pupil.model)
        except InputError as error:
            told = f"The run would be refused: {error}."
            return replace(plan, refusal=plan.refusal or error, notes=(*plan.notes, told))
    return plan


def _show(plan: "Plan", *, as_json: bool) -> None:
    """Print the plan: its notes, then the tables of every engine."""
    if as_json:
        print_json(plan.facts())
        return
    for note in plan.notes:
        echo(note)
    for forecast in plan.forecasts.values():
        for note in () if forecast is None else forecast.notes:
            echo(note)
        for table in () if forecast is None else forecast.tables:
            print_table(table.title, table.columns, table.rows, table.notes)
