"""`ipate statement`: what one person was promised, what was spent, and what is left."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = (
    "Examples: ipate statement march p1042; ipate statement march p1042 --private. Without --private it holds nothing "
    "that may not be handed to the person: under the bounds tight and exact, and for seeded runs, it gives the budget "
    "and no figure."
)


def command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    person: Annotated[str, typer.Argument(help="The person's id.")],
    private: Annotated[
        bool, typer.Option("--private", help="For the data owner: also costs that were computed from votes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")] = False,
) -> None:
    """Print what a person was promised, what was spent in all runs on the ledger, and what is left."""
    from ipate.cli.output import print_json
    from ipate.report.statement import as_payload, sentences
    from ipate.runs.folder import RunFolder
    from ipate.runs.person import state

    found = state(RunFolder.open(run), person, private=private)
    if as_json:
        print_json(as_payload(found))
        return
    typer.echo(f"Statement for person {found.person}, run {found.run}")
    for sentence in sentences(found):
        typer.echo(sentence)
