"""`ipate schema`: propose the section [data] of a run from a file's header and a public file."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from ipate.cli.options import AsJson, check_out
from ipate.cli.output import print_json

EXAMPLE = (
    "Example: ipate schema patients.csv --public public.csv --out hospital.toml; edit the file, add [budgets], then "
    "ipate run hospital.toml. Of patients.csv the header is read, and no cell."
)


def command(
    file: Annotated[Path, Argument(help="The file of people: csv, parquet or npz.", metavar="FILE")],
    public: Annotated[Path | None, Option(help="The file of public rows, which has the same columns.")] = None,
    label: Annotated[str | None, Option(help="The column of the class.")] = None,
    classes: Annotated[str | None, Option(help="The class set, which is public: A,B,C.")] = None,
    level: Annotated[str | None, Option(help="The column of consent levels.")] = None,
    epsilon_column: Annotated[str | None, Option(help="The column of ε, instead of consent levels.")] = None,
    person: Annotated[str | None, Option(help="The column with the id of each row's person.")] = None,
    out: Annotated[Path | None, Option(help="The TOML file to write.", metavar="TOML")] = None,
    as_json: AsJson = False,
) -> None:
    """Propose the section [data] of a run: roles, kinds of columns, categories and dates."""
    from ipate.data.proposal import propose
    from ipate.files import write_text

    if out is not None:
        check_out(out, "a TOML file")
    roles = {"label": label, "level": level, "epsilon": epsilon_column, "person": person}
    stated = None if classes is None else [part.strip() for part in classes.split(",")]
    found = propose(file, public=public, roles=roles, classes=stated)
    if out is not None:
        write_text(out, found.toml())
    if as_json:
        written = None if out is None else str(out)
        print_json({"data": found.values, "notes": list(found.notes), "toml": found.toml(), "out": written})
    elif out is None:
        echo(found.toml(), nl=False)
    else:
        echo(f"Written: {out}. Edit it, then: ipate run {out}")
