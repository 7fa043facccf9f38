"""`ipate report`: what was promised to whom and what it cost, as one html file and its JSON twin."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = (
    "Examples: ipate report first-run; ipate report first-run --private; ipate report first-run --out march.html. "
    "The JSON twin stands beside the html file."
)


def command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    private: Annotated[
        bool,
        typer.Option(
            "--private/--public", help="For the data owner, with private figures; or what may be published (default)."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The html file; report.html in the run's folder unless said.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The JSON twin on stdout, nothing else.")] = False,
) -> None:
    """Write the report of a run: promises in plain words, costs, influence, results, and how to check them."""
    from ipate.cli.output import print_json
    from ipate.report.claims import headline, marks
    from ipate.report.write import twin
    from ipate.runs.reporting import write_report

    written = write_report(run, audience="private" if private else "public", out=out)
    if as_json:
        print_json(twin(written.facts))
        return
    for line in (*marks(written.facts), headline(written.facts)):
        typer.echo(f"{line}.")
    typer.echo(f"Written: {written.html} and {written.json}")
