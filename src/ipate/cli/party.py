"""`ipate party`: what a site does with its own data, in its own folder; only votes leave it."""

from contextlib import AbstractContextManager
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
    "gets it sees raw votes, so give it to a trusted aggregator only, and tell them the fingerprint by another way."
)
app = typer.Typer(
    help="A site with data of its own that may not leave it: train teachers here, send votes only.",
    epilog="Example: ipate party vote north-site queries.npz --out north.npz. Each command has a --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("fit", epilog=FIT)
def fit(
    data: Annotated[Path, typer.Argument(help="The site's own rows: csv, parquet or npz.", metavar="DATA")],
    out: Annotated[Path, typer.Option(help="The site's folder.", metavar="SITE")],
    queries: Annotated[
        Path, typer.Option(help="The public queries file: its features, bounds and classes are what rows must have.")
    ],
    site: Annotated[str, typer.Option(help="The site's name, the first part of all its ids.")],
    label: Annotated[str | None, typer.Option(help="The column of the class; y in an npz.")] = None,
    level: Annotated[str | None, typer.Option(help="The column of consent levels; needs --policy.")] = None,
    policy: Annotated[Path | None, typer.Option(help="TOML: what each consent level means as ε.")] = None,
    epsilon_column: Annotated[str | None, typer.Option(help="The column of ε, instead of levels.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="One ε for everybody, where the data names none.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; the policy's unless said, else 1e-5.")] = None,
    person: Annotated[str | None, typer.Option(help="The column that says whose a row is.")] = None,
    merge_within: Annotated[
        float | None, typer.Option(help="Merge numbers ε within this relative tolerance, downwards.")
    ] = None,
    variant: Annotated[str, typer.Option(help="weighting, or standard: everyone here at the strictest.")] = "weighting",
    teachers: Annotated[
        int | None, typer.Option(help="How many teachers; chosen as in ipate run unless given.")
    ] = None,
    points_per_teacher: Annotated[
        int | None, typer.Option(help="People per teacher; sites should agree on it. Chosen as in ipate run.")
    ] = None,
    teacher: Annotated[
        str, typer.Option(help="logistic, forest, boosting, bayes, a net or module:attribute.")
    ] = "logistic",
    jobs: Annotated[int | None, typer.Option(help="Worker processes; -1 for all cores.")] = None,
    split_seed: Annotated[int, typer.Option(min=0, help="The public seed of allocation and training.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")] = False,
) -> None:
    """Train a site's teachers on its own people, under their own budgets; nothing leaves the folder."""
    from ipate.errors import check_number
    from ipate.parties.queries import Asked, read_queries
    from ipate.parties.site import fit_site
    from ipate.parties.teachers import make_teacher
    from ipate.people.policy import Policy

    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if value is not None:
            check_number(name, value)
    asked = Asked(
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
        asked=asked,
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
    out: Annotated[Path, typer.Option(help="Where the votes go, an npz.", metavar="VOTES")],
    again: Annotated[
        bool, typer.Option("--again", help="Vote though this site has voted on other queries: budgets add up.")
    ] = False,
    jobs: Annotated[int | None, typer.Option(help="Worker processes; -1 for all cores.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")] = False,
) -> None:
    """Let a site's teachers vote on the queries; the file holds predictions and declared budgets only.

    Models are loaded from the site's own private folder and from nowhere else: they are pickled.
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
        f"Votes: {out}. They are raw: send them to an aggregator that you trust, over a channel that nobody reads.",
        f"Fingerprint of the file; tell it to the aggregator by another way:\n{fingerprint}",
    ]
    if again:
        notes.append(
            "This site has voted before: each labelling of its votes spends people's budgets, and they add up."
        )
    title = f"Site {manifest.site}: the votes of {payload['teachers']} teachers on {manifest.n_queries} queries"
    _show(payload, title, notes, as_json)


def _bar(quiet: bool) -> Any:
    from ipate.cli.output import progress_bar

    def bar(title: str, total: int) -> AbstractContextManager[Any]:
        return progress_bar(title, total, quiet=quiet)

    return bar


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
