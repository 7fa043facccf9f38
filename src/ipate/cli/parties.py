"""`ipate party`: a site fits teachers on its own data and votes. `ipate parties`: the aggregator merges the votes."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer, echo

from ipate.cli import options
from ipate.cli.options import AsJson, CpuSeconds
from ipate.cli.output import print_json, print_result, print_table, progress_bar

if TYPE_CHECKING:
    from ipate.parties.merge import Merged

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
QUERIES = (
    "Example: ipate parties queries pool.csv --classes well,ill --bounds bounds.csv --out queries.npz. bounds.csv has "
    "the columns feature,low,high: fixed and public, never computed from private rows. Send the file to every site."
)
MERGE = (
    "Example: ipate parties merge north.npz south.npz west.npz --queries queries.npz --expect north=3f…9a "
    "--expect south=… --expect west=… --out merged; then ipate label merged/votes.npz --groups merged/groups.csv "
    "--weights file --sigma … --out labels.csv. Whoever merges sees every teacher's raw vote and must be trusted. "
    "There is no secure aggregation, which would show sums of votes only. A file's hash detects accidental changes; "
    "only a fingerprint received through a separate channel (--expect) detects that file and hash were rewritten."
)
TRUST = (
    "You see every teacher's raw vote: keep these files and the merged ones as private as the data, and publish only "
    "what `ipate label` releases. A secure aggregation would show you sums of votes alone."
)
TWICE = (
    "People are known inside a site only. Whoever is at two sites moves votes at both, and their budgets add up: "
    "they have (ε₁ + ε₂, δ₁ + e^ε₁·δ₂) and no more is promised. Let one site take each person, or split budgets."
)
UNCHECKED = (
    "No fingerprint was compared: hashes detect accidental changes, not a file that was rewritten with its hash. Ask "
    "each site through a separate channel for the fingerprint that `ipate party vote` printed, and use --expect."
)
party = Typer(
    help="A site whose data may not leave it: train teachers on its own data and send votes only.",
    epilog="Example: ipate party vote north-site queries.npz --out north.npz. Every command has --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
parties = Typer(
    help="The aggregator of several sites: make queries and merge votes; it sees raw votes and must be trusted.",
    epilog="Example: ipate parties merge north.npz south.npz --out merged. Every command has --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@party.command("fit", epilog=FIT)
def fit(
    data: Annotated[Path, Argument(help="The site's own rows: csv, parquet or npz.", metavar="DATA")],
    out: Annotated[Path, Option(help="The site's folder.", metavar="SITE")],
    queries: Annotated[
        Path, Option(help="The public queries file, whose features, bounds and classes the rows must have.")
    ],
    site: Annotated[str, Option(help="The site's name, with which all its ids begin.")],
    label: Annotated[str | None, Option(help="The column of the class; y in an npz.")] = None,
    level: Annotated[str | None, Option(help="The column of consent levels; needs --policy.")] = None,
    policy: Annotated[Path | None, Option(help="TOML file with the ε of each consent level.")] = None,
    epsilon_column: Annotated[str | None, Option(help="The column of ε, instead of consent levels.")] = None,
    epsilon: Annotated[float | None, Option(help="One ε for everybody, if the data has none.")] = None,
    delta: Annotated[float | None, Option(help="δ; default: the policy's, else 1e-5.")] = None,
    person: Annotated[str | None, Option(help="The column with the id of each row's person.")] = None,
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
    from ipate.errors import check_number
    from ipate.parties.models import make_teacher
    from ipate.parties.queries import read_queries
    from ipate.parties.site import SiteOptions, fit_site
    from ipate.people.budgets import MIN_GROUP_SIZE
    from ipate.people.policy import Policy

    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if value is not None:
            check_number(name, value)
    given = SiteOptions(
        label=label, level=level, epsilon_column=epsilon_column, person=person,
        policy=None if policy is None else Policy.from_file(policy), epsilon=epsilon, delta=delta,
        merge_within=merge_within, max_groups=options.whole_number(max_groups) or "auto",
        min_group_size=min_group_size or MIN_GROUP_SIZE, variant=variant, n_teachers=teachers,
        points_per_teacher=points_per_teacher, seed=split_seed,
    )  # fmt: skip
    asked = read_queries(queries)
    fitted = fit_site(
        data, out, name=site, encoding=asked.encoding, options=given,
        estimator=make_teacher(teacher), n_jobs=jobs, cpu_seconds=cpu_seconds, points=asked.X,
        bar=partial(progress_bar, quiet=as_json),
    )  # fmt: skip
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


def _show_groups(as_json: bool, payload: dict[str, Any], title: str, notes: list[str]) -> None:
    rows = [
        [group["id"], f"{group['epsilon']:.4g}", f"{group['delta']:g}", str(group["teachers"])]
        for group in payload["groups"]
    ]
    print_result(as_json, payload, title, ["group", "budget ε", "δ", "teachers"], rows, notes)


@parties.command("queries", epilog=QUERIES)
def queries(
    pool: Annotated[Path, Argument(help="Public points: csv, or npz with X and feature_names.", metavar="POOL")],
    out: Annotated[Path, Option(help="The queries file to write, an npz.", metavar="QUERIES")],
    classes: Annotated[str | None, Option(help="The public class set in order: A,B,C.")] = None,
    bounds: Annotated[Path | None, Option(help="csv with feature,low,high: fixed public bounds.")] = None,
    features: Annotated[str | None, Option(help="The columns of the csv to use: A,B,C; default: all.")] = None,
    id_column: Annotated[str | None, Option(help="The column of the csv with the points' ids.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the queries file for every site: public points, and the encoding of all sites' rows."""
    from ipate.parties.queries import make_queries

    made = make_queries(pool, classes=_list(classes), bounds=bounds, features=_list(features), id_column=id_column)
    made.write(out)
    if as_json:
        encoding = made.encoding.model_dump(mode="json")
        print_json({"file": str(out), "sha256": made.sha256, "queries": len(made), "encoding": encoding})
        return
    scaled = "scaled by fixed bounds" if made.encoding.bounds is not None else "not scaled"
    echo(
        f"{len(made)} queries, {len(made.encoding.classes)} classes, features {scaled}: {out}\n"
        f"Their hash, which every vote file must contain:\n{made.sha256}"
    )


@parties.command("merge", epilog=MERGE)
def merge(
    votes: Annotated[list[Path], Argument(help="The sites' vote files, in any order.", metavar="VOTES…")],
    out: Annotated[Path, Option(help="A new folder for votes.npz, groups.csv and sites.json.", metavar="MERGED")],
    queries: Annotated[
        Path | None, Option(help="Your own copy of the queries: votes on others are refused, labels get its ids.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        Option(help="A fingerprint received through a separate channel; once per site.", metavar="SITE=FINGERPRINT"),
    ] = None,
    weights: Annotated[str, Option(help="Rule from budgets to weights: gdp, proportional, classic, uniform.")] = "gdp",
    merge_equal: Annotated[
        bool, Option("--merge-equal", help="One account for all groups of equal ε and δ, across sites.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Combine the sites' votes into one vote file and group file for `ipate label` and `ipate account`."""
    from ipate.parties.exchange import read_site_votes
    from ipate.parties.merge import merge as combine
    from ipate.parties.queries import read_queries

    own, files = None if queries is None else read_queries(queries), []
    with progress_bar("files checked", len(votes), quiet=as_json) as progress:
        for path in votes:
            files.append(read_site_votes(path))
            progress(len(files))
    merged = combine(files, rule=weights, merge_equal=merge_equal, queries=own, expect=expect or ())
    with progress_bar("teachers merged", len(merged.teacher_groups), quiet=as_json) as progress:
        merged.write(out, progress=progress)
    notes = [TRUST, TWICE, *([] if merged.checked else [UNCHECKED])]
    if as_json:
        print_json({**merged.facts(), "folder": str(out), "teachers": len(merged.teacher_groups), "notes": notes})
    else:
        _show_merged(merged, out, notes)


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _show_merged(merged: "Merged", out: Path, notes: list[str]) -> None:
    from ipate.people.budgets import Budget, Group
    from ipate.planning.choose import choose

    k, manifest = len(merged.teacher_groups), merged.files[0].manifest
    noise = choose(  # sites declare teachers, not people: one person per teacher has the same weights
        groups=[Group(id=g.id, budget=Budget(g.epsilon, g.delta), people=g.teachers) for g in merged.groups],
        n_public=manifest.n_queries, n_classes=len(manifest.encoding.classes), n_teachers=k, rule=merged.rule,
    )  # fmt: skip
    next_step = (
        f"Next: ipate label {out / 'votes.npz'} --groups {out / 'groups.csv'} --weights file --sigma {noise.sigma:.4g} "
        f"--check-sigma {noise.check_sigma:.4g} --threshold {noise.threshold:.4g} --out labels.csv (noise chosen "
        "from public facts, as ipate run does; never choose it by looking at votes)."
    )
    rows = [
        [g.id, ", ".join(g.sites), f"{g.epsilon:.4g}", f"{g.delta:g}", str(g.teachers), f"{g.weight:.4f}"]
        for g in merged.groups
    ]
    print_table(
        f"{len(merged.files)} sites, {k} teachers, {manifest.n_queries} queries; weights by {merged.rule}",
        ["group", "sites", "budget ε", "δ", "teachers", "weight"],
        rows,
        [*notes, next_step],
    )
