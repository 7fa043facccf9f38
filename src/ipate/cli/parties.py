"""`ipate parties`: the aggregator makes the queries for all sites and merges their votes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ipate.parties.merge import Merged


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
app = typer.Typer(
    help="The aggregator of several sites: make queries and merge votes; it sees raw votes and must be trusted.",
    epilog="Example: ipate parties merge north.npz south.npz --out merged. Every command has --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("queries", epilog=QUERIES)
def queries(
    pool: Annotated[Path, typer.Argument(help="Public points: csv, or npz with X and feature_names.", metavar="POOL")],
    out: Annotated[Path, typer.Option(help="The queries file to write, an npz.", metavar="QUERIES")],
    classes: Annotated[str | None, typer.Option(help="The public class set in order: A,B,C.")] = None,
    bounds: Annotated[Path | None, typer.Option(help="csv with feature,low,high: fixed public bounds.")] = None,
    features: Annotated[str | None, typer.Option(help="The columns of the csv to use: A,B,C; default: all.")] = None,
    id_column: Annotated[str | None, typer.Option(help="The column of the csv with the points' ids.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Make the queries file for every site: public points, and the encoding of all sites' rows."""
    from ipate.cli.output import print_json
    from ipate.parties.queries import make_queries

    made = make_queries(pool, classes=_list(classes), bounds=bounds, features=_list(features), id_column=id_column)
    made.write(out)
    if as_json:
        encoding = made.encoding.model_dump(mode="json")
        print_json({"file": str(out), "sha256": made.sha256, "queries": len(made), "encoding": encoding})
        return
    scaled = "scaled by fixed bounds" if made.encoding.bounds is not None else "not scaled"
    typer.echo(
        f"{len(made)} queries, {len(made.encoding.classes)} classes, features {scaled}: {out}\n"
        f"Their hash, which every vote file must contain:\n{made.sha256}"
    )


@app.command("merge", epilog=MERGE)
def merge(
    votes: Annotated[list[Path], typer.Argument(help="The sites' vote files, in any order.", metavar="VOTES…")],
    out: Annotated[Path, typer.Option(help="A new folder for votes.npz, groups.csv and sites.json.", metavar="MERGED")],
    queries: Annotated[
        Path | None, typer.Option(help="Your own copy of the queries: votes on others are refused, labels get its ids.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            help="A fingerprint received through a separate channel; once per site.", metavar="SITE=FINGERPRINT"
        ),
    ] = None,
    weights: Annotated[
        str, typer.Option(help="Rule from budgets to weights: gdp, proportional, classic, uniform.")
    ] = "gdp",
    merge_equal: Annotated[
        bool, typer.Option("--merge-equal", help="One account for all groups of equal ε and δ, across sites.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Combine the sites' votes into one vote file and group file for `ipate label` and `ipate account`."""
    from ipate.cli.output import print_json, progress_bar
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
        return
    _show(merged, out, notes)


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _show(merged: "Merged", out: Path, notes: list[str]) -> None:
    from ipate.cli.output import print_table
    from ipate.people.budgets import Budget, Group
    from ipate.planning.choose import choose

    k, manifest = len(merged.teacher_groups), merged.files[0].manifest
    n_queries = manifest.n_queries
    noise = choose(  # sites declare teachers, not people: one person per teacher has the same weights
        groups=[Group(id=g.id, budget=Budget(g.epsilon, g.delta), people=g.teachers) for g in merged.groups],
        n_public=n_queries,
        n_classes=len(manifest.encoding.classes),
        n_teachers=k,
        rule=merged.rule,
    )
    next_step = (
        f"Next: ipate label {out / 'votes.npz'} --groups {out / 'groups.csv'} --weights file --sigma {noise.sigma:.4g} "
        f"--check-sigma {noise.check_sigma:.4g} --threshold {noise.threshold:.4g} --out labels.csv (noise chosen "
        "from public facts, as ipate run does; never choose it by looking at votes)."
    )
    print_table(
        f"{len(merged.files)} sites, {k} teachers, {n_queries} queries; weights by {merged.rule}",
        ["group", "sites", "budget ε", "δ", "teachers", "weight"],
        [
            [
                group.id,
                ", ".join(group.sites),
                f"{group.epsilon:.4g}",
                f"{group.delta:g}",
                str(group.teachers),
                f"{group.weight:.4f}",
            ]
            for group in merged.groups
        ],
        [*notes, next_step],
    )
