"""`ipate party`: a site fits teachers on its own data and votes, or sums the ballots of its own people."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from ipate.cli import options
from ipate.cli.options import AsJson, CpuSeconds
from ipate.cli.output import print_result, progress_bar

if TYPE_CHECKING:
    from ipate.parties.site import SiteOptions

FIT = (
    "Example: ipate party fit patients.csv --queries queries.npz --site north --label diagnosis --level consent "
    "--policy policy.toml --out north-site. Everything stays in north-site/private, readable by you alone."
)
VOTE = (
    "Example: ipate party vote north-site queries.npz --out north.npz. The file holds every teacher's vote, the "
    "groups' budgets and numbers of teachers, and hashes; no rows, no models, nothing about single people. Whoever "
    "gets it sees raw votes, so send it to a trusted aggregator only, and tell them the fingerprint through a separate "
    "channel."
)
DECLARE = (
    "Example: ipate party declare patients.csv --queries queries.npz --site north --label diagnosis --level consent "
    "--policy policy.toml --out north-site. Send north-site/declaration.json: it holds the groups, their budgets and "
    "numbers of people. Everything else stays in north-site/private, readable by you alone."
)
BALLOTS = (
    "Example: ipate party ballots north-site cells.npz --out north.npz. The file holds the sum of all people's ballots "
    "in every cell, the groups' budgets and numbers of people, and hashes; no rows. The sums are exact, so send them "
    "to a trusted aggregator only, and tell them the fingerprint through a separate channel."
)
Queries = Annotated[
    Path, Option(help="The public queries file, whose features, bounds and classes the rows must have.")
]
Site = Annotated[str, Option(help="The site's name, with which all its ids begin.")]
Rows = Annotated[Path, Argument(help="The site's own rows: csv, parquet or npz.", metavar="DATA")]
Label = Annotated[str | None, Option(help="The column of the class; y in an npz.")]
Level = Annotated[str | None, Option(help="The column of consent levels; needs --policy.")]
PolicyFile = Annotated[Path | None, Option(help="TOML file with the ε of each consent level.")]
EpsilonColumn = Annotated[str | None, Option(help="The column of ε, instead of consent levels.")]
Epsilon = Annotated[float | None, Option(help="One ε for everybody, if the data has none.")]
Delta = Annotated[float | None, Option(help="δ; default: the policy's, else 1e-5.")]
Person = Annotated[str | None, Option(help="The column with the id of each row's person.")]
party = Typer(
    help="A site whose data may not leave it: train teachers, or cast ballots, and send votes or sums only.",
    epilog="Example: ipate party vote north-site queries.npz --out north.npz. Every command has --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@party.command("fit", epilog=FIT)
def fit(
    data: Rows,
    out: Annotated[Path, Option(help="The site's folder.", metavar="SITE")],
    queries: Queries,
    site: Site,
    label: Label = None,
    level: Level = None,
    policy: PolicyFile = None,
    epsilon_column: EpsilonColumn = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    person: Person = None,
    merge_within: options.MergeWithin = None,
    max_groups: options.MaxGroups = None,
    min_group_size: options.MinGroupSize = None,
    variant: Annotated[str, Option(help="weighting, or standard: the site's strictest ε for everyone.")] = "weighting",
    teachers: Annotated[int | None, Option(help="Number of teachers; default: chosen as in ipate run.")] = None,
    points_per_teacher: Annotated[
        int | None, Option(help="People per teacher, the same at all sites; default: chosen as in ipate run.")
    ] = None,
    teacher: Annotated[str, Option(help="logistic, forest, boosting, bayes, a net or module:attribute.")] = "logistic",
    jobs: Annotated[int | None, Option(help="Worker processes; -1 for all cores.")] = None,
    cpu_seconds: CpuSeconds = None,
    split_seed: Annotated[int, Option(min=0, help="The public seed of allocation and training.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a site's teachers on its own people under their own budgets; nothing leaves the folder."""
    from ipate.parties.queries import read_queries
    from ipate.parties.site import fit_site, make_teacher

    given = _options(
        label=label,
        level=level,
        epsilon_column=epsilon_column,
        person=person,
        policy=policy,
        epsilon=epsilon,
        delta=delta,
        merge_within=merge_within,
        max_groups=max_groups,
        min_group_size=min_group_size,
        variant=variant,
        n_teachers=teachers,
        points_per_teacher=points_per_teacher,
        seed=split_seed,
    )
    asked = read_queries(queries)
    fitted = fit_site(
        data,
        out,
        name=site,
        encoding=asked.encoding,
        options=given,
        estimator=make_teacher(teacher),
        n_jobs=jobs,
        cpu_seconds=cpu_seconds,
        points=asked.X,
        bar=partial(progress_bar, quiet=as_json),
    )
    payload = {
        "site": fitted.name,
        "folder": str(out),
        "variant": fitted.allocation.variant,
        "people": fitted.allocation.people.n_people,
        "teachers": fitted.allocation.n_teachers,
        "groups": [group.model_dump() for group in fitted.groups],
        "notes": list(fitted.allocation.notes),
    }
    title = f"Site {fitted.name}: {payload['people']} people, {payload['teachers']} teachers, {variant}"
    kept = f"Teachers and allocation are in {out / 'private'}, readable by you alone; they never leave this site."
    _show_groups(as_json, payload, title, [*fitted.allocation.notes, kept])


@party.command("vote", epilog=VOTE)
def vote(
    site: Annotated[Path, Argument(help="The folder of a fitted site.", metavar="SITE")],
    queries: Annotated[Path, Argument(help="The public queries file.", metavar="QUERIES")],
    out: Annotated[Path, Option(help="The vote file to write, an npz.", metavar="VOTES")],
    again: Annotated[
        bool, Option("--again", help="Vote even if this site has voted on other queries; costs add up.")
    ] = False,
    jobs: Annotated[int | None, Option(help="Worker processes; -1 for all cores.")] = None,
    cpu_seconds: CpuSeconds = None,
    as_json: AsJson = False,
) -> None:
    """Let a site's teachers vote on the queries; the file holds predictions and declared budgets only.

    Models are pickled, so they are loaded from the site's own private folder only.
    """
    from ipate.parties.queries import read_queries
    from ipate.parties.site import Site

    bar = partial(progress_bar, quiet=as_json)
    manifest, fingerprint = Site.open(site).vote(
        read_queries(queries), out, again=again, n_jobs=jobs, cpu_seconds=cpu_seconds, bar=bar
    )
    payload = {
        "site": manifest.site,
        "file": str(out),
        "fingerprint": fingerprint,
        "queries": manifest.queries,
        "n_queries": manifest.n_queries,
        "teachers": len(manifest.teachers),
        "groups": [group.model_dump() for group in manifest.groups],
    }
    notes = [
        f"Votes: {out}. They are raw: send them to an aggregator that you trust, over an encrypted channel.",
        f"Fingerprint of the file; tell it to the aggregator through a separate channel:\n{fingerprint}",
    ]
    if again:
        notes.append(
            "This site has voted before: each labelling of its votes spends people's budgets, and they add up."
        )
    title = f"Site {manifest.site}: the votes of {payload['teachers']} teachers on {manifest.n_queries} queries"
    _show_groups(as_json, payload, title, notes)


@party.command("declare", epilog=DECLARE)
def declare(
    data: Rows,
    out: Annotated[Path, Option(help="The site's folder, with declaration.json.", metavar="SITE")],
    queries: Queries,
    site: Site,
    label: Label = None,
    level: Level = None,
    policy: PolicyFile = None,
    epsilon_column: EpsilonColumn = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    person: Person = None,
    merge_within: options.MergeWithin = None,
    max_groups: Annotated[int | None, Option(help="Most groups; others are merged downwards.", min=1)] = None,
    min_group_size: options.MinGroupSize = None,
    as_json: AsJson = False,
) -> None:
    """Declare a site's groups, budgets and numbers of people for ballots; rows stay in the folder."""
    from ipate.parties.queries import read_queries
    from ipate.parties.sums import declare_site

    given = _options(
        label=label,
        level=level,
        epsilon_column=epsilon_column,
        person=person,
        policy=policy,
        epsilon=epsilon,
        delta=delta,
        merge_within=merge_within,
        max_groups=None if max_groups is None else str(max_groups),
        min_group_size=min_group_size,
    )
    declared, notes = declare_site(data, out, name=site, queries=read_queries(queries), options=given)
    groups = [group.model_dump() for group in declared.groups]
    payload = {
        "site": site,
        "folder": str(out),
        "declaration": str(out / "declaration.json"),
        "people": sum(group.people for group in declared.groups),
        "groups": groups,
        "notes": list(notes),
    }
    kept = f"Rows are in {out / 'private'}, readable by you alone. Send {out / 'declaration.json'} to the aggregator."
    _show_groups(as_json, payload, f"Site {site}: {payload['people']} people", [*notes, kept], of="people")


@party.command("ballots", epilog=BALLOTS)
def ballots(
    site: Annotated[Path, Argument(help="The folder of a declared site.", metavar="SITE")],
    cells: Annotated[Path, Argument(help="The public cells file.", metavar="CELLS")],
    out: Annotated[Path, Option(help="The ballot file to write, an npz.", metavar="BALLOTS")],
    again: Annotated[
        bool, Option("--again", help="Cast ballots even if this site has sent others; costs add up.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sum the ballots of a site's own people; the file holds sums and declared budgets only."""
    from ipate.parties.sums import cast_ballots, read_cells

    manifest, fingerprint = cast_ballots(site, read_cells(cells), out, again=again)
    payload = {
        "site": manifest.site,
        "file": str(out),
        "fingerprint": fingerprint,
        "cells": manifest.cells,
        "groups": [group.model_dump() for group in manifest.groups],
    }
    notes = [
        f"Ballots: {out}. They are exact sums: send them to an aggregator that you trust, over an encrypted channel.",
        f"Fingerprint of the file; tell it to the aggregator through a separate channel:\n{fingerprint}",
    ]
    _show_groups(as_json, payload, f"Site {manifest.site}: the sum of its people's ballots", notes, of="people")


def _options(*, policy: Path | None, max_groups: str | None, min_group_size: int | None, **given: Any) -> "SiteOptions":
    """Return what a site says about its data and its people's budgets."""
    from ipate.errors import check_number
    from ipate.parties.site import SiteOptions
    from ipate.people.budgets import MIN_GROUP_SIZE
    from ipate.people.policy import Policy

    for name in ("epsilon", "delta"):
        if given[name] is not None:
            check_number(name, given[name])
    return SiteOptions(
        **given,
        policy=None if policy is None else Policy.from_file(policy),
        max_groups=options.whole_number(max_groups) or "auto",
        min_group_size=min_group_size or MIN_GROUP_SIZE,
    )


def _show_groups(as_json: bool, payload: dict[str, Any], title: str, notes: list[str], *, of: str = "teachers") -> None:
    rows = [
        [group["id"], f"{group['epsilon']:.4g}", f"{group['delta']:g}", str(group[of])] for group in payload["groups"]
    ]
    print_result(as_json, payload, title, ["group", "budget ε", "δ", of], rows, notes)
