"""`ipate report`: write the report of a run as one html file and as JSON."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from ipate.cli.output import print_json

EXAMPLE = (
    "Examples: ipate report first-run; ipate report first-run --private; ipate report first-run --out march.html. "
    "A JSON file with the same content is written beside the html file."
)


def command(
    run: Annotated[Path, Argument(help="The run's folder.")],
    private: Annotated[
        bool,
        Option(
            "--private/--public",
            help="Include private figures, for the data owner; or only what may be published (default).",
        ),
    ] = False,
    out: Annotated[
        Path | None, Option(help="The html file to write; default: report.html in the run's folder.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print only the JSON report on stdout.")] = False,
) -> None:
    """Write the report of a run: guarantees in plain words, costs, influence, results, and how to check them."""
    from ipate.report.claims import headline, marks
    from ipate.report.exports import twin
    from ipate.runs.reporting import write_report

    written = write_report(run, audience="private" if private else "public", out=out)
    if as_json:
        print_json(twin(written.facts))
        return
    for line in (*marks(written.facts), headline(written.facts)):
        echo(f"{line}.")
    echo(f"Written: {written.html} and {written.json}")
