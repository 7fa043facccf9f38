"""`ipate parties`: the aggregator makes queries and cells, and merges the votes or ballots of several sites."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer, echo

from ipate.cli.options import AsJson, refuse_unused
from ipate.cli.output import print_json, print_result, print_table, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipate.parties.merge import Merged
    from ipate.parties.queries import Queries

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
CELLS = (
    "Example: ipate parties cells queries.npz north.json south.json west.json --out cells.npz, with the declarations "
    "that the sites wrote with ipate party declare. Send the file to every site; everything in it is public."
)
TRUST = (
    "You see every teacher's raw vote: keep these files and the merged ones as private as the data, and publish only "
    "what `ipate label` releases. A secure aggregation would show you sums of votes alone."
)
TRUST_SUMS = (
    "You see every site's exact sums: keep these files and the merged ones as private as the data, and publish only "
    "what `ipate label` releases."
)
TWICE = (
    "People are known inside a site only. Whoever is at two sites moves votes at both, and their budgets add up: "
    "they have (ε₁ + ε₂, δ₁ + e^ε₁·δ₂) and no more is promised. Let one site take each person, or split budgets."
)
UNCHECKED = (
    "No fingerprint was compared: hashes detect accidental changes, not a file that was rewritten with its hash. Ask "
    "each site through a separate channel for the fingerprint that `ipate party vote` printed, and use --expect."
)
parties = Typer(
    help="The aggregator of several sites: merge votes or ballots; it sees raw votes and sums and must be trusted.",
    epilog="Example: ipate parties merge north.npz south.npz --out merged. Every command has --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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


@parties.command("cells", epilog=CELLS)
def cells(
    queries: Annotated[Path, Argument(help="The public queries file: its points are the pool.", metavar="QUERIES")],
    declarations: Annotated[list[Path], Argument(help="The declarations of all sites.", metavar="DECLARATIONS…")],
    out: Annotated[Path, Option(help="The cells file to write, an npz.", metavar="CELLS")],
    number: Annotated[
        int | None, Option("--cells", min=1, help="Cells of a partition; default: from budgets, classes and pool.")
    ] = None,
    partitions: Annotated[int, Option(min=1, help="Number of partitions.")] = 16,
    as_given: Annotated[
        bool, Option("--as-given", help="Use the features as they are, such as embeddings, without weights.")
    ] = False,
    jobs: Annotated[int | None, Option(help="Threads that cut partitions; -1 for all cores.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the cells file for every site: public cells, and the weight of every group's ballots."""
    from ipate.parties.queries import read_queries
    from ipate.parties.sums import make_site_cells, read_declaration

    made, design = make_site_cells(
        read_queries(queries),
        [read_declaration(path) for path in declarations],
        out,
        partitions=partitions,
        cells=number,
        as_given=as_given,
        n_jobs=jobs,
    )
    payload = {
        "file": str(out),
        "fingerprint": made.fingerprint,
        **design.as_json(),
        "sites": [declared.site for declared in made.manifest.sites],
        "groups": [
            {**group.model_dump(), "units": design.units[group.id]}
            for declared in made.manifest.sites
            for group in declared.groups
        ],
        "notes": list(design.notes),
    }
    rows = [
        [g["id"], f"{g['epsilon']:.4g}", f"{g['delta']:g}", str(g["people"]), f"{design.weights[g['id']]:.4g}"]
        for g in payload["groups"]
    ]
    title = f"{len(payload['sites'])} sites: {partitions} partitions of {made.maps.cells.cells} cells"
    told = f"Cells: {out}. Its fingerprint, which every ballot file must contain:\n{made.fingerprint}"
    print_result(as_json, payload, title, ["group", "budget ε", "δ", "people", "weight"], rows, [*design.notes, told])


@parties.command("merge", epilog=MERGE)
def merge(
    votes: Annotated[
        list[Path],
        Argument(help="The sites' vote files, or with --cells ballot files, in any order.", metavar="VOTES…"),
    ],
    out: Annotated[
        Path, Option(help="A new folder for votes.npz or ballots.npz, groups.csv and sites.json.", metavar="MERGED")
    ],
    queries: Annotated[
        Path | None, Option(help="Your own copy of the queries: votes on others are refused, labels get its ids.")
    ] = None,
    cells: Annotated[Path | None, Option(help="The cells file, to merge ballots.")] = None,
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
    """Combine the sites' votes, or ballots, into one file and a group file for `ipate label`."""
    from ipate.engines.ballots.given import holds_ballots
    from ipate.errors import InputError
    from ipate.parties.exchange import read_site_votes
    from ipate.parties.merge import merge as combine
    from ipate.parties.queries import read_queries

    own, files = None if queries is None else read_queries(queries), []
    if cells is not None:
        changed = None if weights == "gdp" else weights
        refuse_unused("ballots have the units of the cells file", weights=changed, merge_equal=merge_equal)
        _merge_ballots(votes, cells, own, out, expect or (), as_json)
        return
    with progress_bar("files checked", len(votes), quiet=as_json) as progress:
        for path in votes:
            if holds_ballots(path):
                raise InputError(f"{path}: is a file of ballots; name the cells they were cast into with --cells")
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


def _merge_ballots(
    paths: list[Path], cells: Path, queries: "Queries | None", out: Path, expect: "Sequence[str]", as_json: bool
) -> None:
    from ipate.parties.sums import merge_ballots, read_cells, read_site_ballots

    files = [read_site_ballots(path) for path in paths]
    merged = merge_ballots(files, read_cells(cells), queries=queries, expect=expect)
    merged.write(out)
    facts = merged.facts()
    notes = [TRUST_SUMS, TWICE, *([] if merged.checked else [UNCHECKED])]
    step = f"Next: ipate label {out / 'ballots.npz'} --groups {out / 'groups.csv'} --out labels.csv"
    rows = [
        [g["id"], f"{g['epsilon']:.4g}", f"{g['delta']:g}", str(g["people"]), str(g["units"])] for g in facts["groups"]
    ]
    print_result(
        as_json,
        {**facts, "folder": str(out), "notes": notes},
        f"{len(files)} sites, {len(rows)} groups",
        ["group", "budget ε", "δ", "people", "units"],
        rows,
        [*notes, step],
    )


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _show_merged(merged: "Merged", out: Path, notes: list[str]) -> None:
    from ipate.engines.teachers.tuning import choose
    from ipate.people.budgets import Budget, Group

    k, manifest = len(merged.teacher_groups), merged.files[0].manifest
    noise = choose(  # sites declare teachers, not people: one person per teacher has the same weights
        groups=[Group(id=g.id, budget=Budget(g.epsilon, g.delta), people=g.teachers) for g in merged.groups],
        n_public=manifest.n_queries,
        n_classes=len(manifest.encoding.classes),
        n_teachers=k,
        rule=merged.rule,
    )
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
