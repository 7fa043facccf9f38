"""`ipate party`: a site fits teachers on its own data and votes; only the votes leave its folder."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

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
app = typer.Typer(
    help="A site whose data may not leave it: train teachers on its own data and send votes only.",
    epilog="Example: ipate party vote north-site queries.npz --out north.npz. Every command has --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("fit", epilog=FIT)
def fit(
    data: Annotated[Path, typer.Argument(help="The site's own rows: csv, parquet or npz.", metavar="DATA")],
    out: Annotated[Path, typer.Option(help="The site's folder.", metavar="SITE")],
    queries: Annotated[
        Path, typer.Option(help="The public queries file, whose features, bounds and classes the rows must have.")
    ],
    site: Annotated[str, typer.Option(help="The site's name, with which all its ids begin.")],
    label: Annotated[str | None, typer.Option(help="The column of the class; y in an npz.")] = None,
    level: Annotated[str | None, typer.Option(help="The column of consent levels; needs --policy.")] = None,
    policy: Annotated[Path | None, typer.Option(help="TOML file with the ε of each consent level.")] = None,
    epsilon_column: Annotated[str | None, typer.Option(help="The column of ε, instead of consent levels.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="One ε for everybody, if the data has none.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; default: the policy's, else 1e-5.")] = None,
    person: Annotated[str | None, typer.Option(help="The column with the id of each row's person.")] = None,
    merge_within: Annotated[
        float | None, typer.Option(help="Merge values of ε within this relative tolerance, rounding down.")
    ] = None,
    variant: Annotated[
        str, typer.Option(help="weighting, or standard: the site's strictest ε for everyone.")
    ] = "weighting",
    teachers: Annotated[int | None, typer.Option(help="Number of teachers; default: chosen as in ipate run.")] = None,
    points_per_teacher: Annotated[
        int | None, typer.Option(help="People per teacher, the same at all sites; default: chosen as in ipate run.")
    ] = None,
    teacher: Annotated[
        str, typer.Option(help="logistic, forest, boosting, bayes, a net or module:attribute.")
    ] = "logistic",
    jobs: Annotated[int | None, typer.Option(help="Worker processes; -1 for all cores.")] = None,
    split_seed: Annotated[int, typer.Option(min=0, help="The public seed of allocation and training.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Train a site's teachers on its own people under their own budgets; nothing leaves the folder."""
    from ipate.errors import check_number
    from ipate.parties.fit import SiteOptions, fit_site, make_teacher
    from ipate.parties.queries import read_queries
    from ipate.people.policy import Policy

    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if value is not None:
            check_number(name, value)
    options = SiteOptions(
        label=label, level=level, epsilon_column=epsilon_column, person=person,
        policy=None if policy is None else Policy.from_file(policy), epsilon=epsilon, delta=delta,
        merge_within=merge_within, variant=variant, n_teachers=teachers,
        points_per_teacher=points_per_teacher, seed=split_seed,
    )  # fmt: skip
    fitted = fit_site(
        data,
        out,
        name=site,
        encoding=read_queries(queries).encoding,
        options=options,
        estimator=make_teacher(teacher),
        n_jobs=jobs,
        bar=_bar(as_json),
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
    _show(payload, title, [*fitted.allocation.notes, kept], as_json)


@app.command("vote", epilog=VOTE)
def vote(
    site: Annotated[Path, typer.Argument(help="The folder of a fitted site.", metavar="SITE")],
    queries: Annotated[Path, typer.Argument(help="The public queries file.", metavar="QUERIES")],
    out: Annotated[Path, typer.Option(help="The vote file to write, an npz.", metavar="VOTES")],
    again: Annotated[
        bool, typer.Option("--again", help="Vote even if this site has voted on other queries; costs add up.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(help="Worker processes; -1 for all cores.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Let a site's teachers vote on the queries; the file holds predictions and declared budgets only.

    Models are pickled, so they are loaded from the site's own private folder only.
    """
    from ipate.parties.queries import read_queries
    from ipate.parties.site import Site

    manifest, fingerprint = Site.open(site).vote(
        read_queries(queries), out, again=again, n_jobs=jobs, bar=_bar(as_json)
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
    _show(payload, title, notes, as_json)


def _bar(quiet: bool) -> Any:
    from ipate.cli.output import progress_bar

    return partial(progress_bar, quiet=quiet)


def _show(payload: dict[str, Any], title: str, notes: list[str], as_json: bool) -> None:
    from ipate.cli.output import print_json, print_table

    if as_json:
        print_json(payload)
        return
    rows = [
        [group["id"], f"{group['epsilon']:.4g}", f"{group['delta']:g}", str(group["teachers"])]
        for group in payload["groups"]
    ]
    print_table(title, ["group", "budget ε", "δ", "teachers"], rows, notes)
