"""`ipate statement`: print one person's budget, what was spent and what is left."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from ipate.cli.options import AsJson
from ipate.cli.output import print_json

EXAMPLE = (
    "Examples: ipate statement march p1042; ipate statement march p1042 --private. Without --private the statement "
    "may be given to the person: under the bounds tight and exact, and for seeded runs, it states the budget and no "
    "other figure."
)


def command(
    run: Annotated[Path, Argument(help="The run's folder.")],
    person: Annotated[str, Argument(help="The person's id.")],
    private: Annotated[
        bool, Option("--private", help="Include costs computed from the votes, for the data owner only.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a person's budget, what all runs on the ledger spent of it, and what is left."""
    from ipate.report.statement import as_payload, sentences
    from ipate.runs.folder import RunFolder
    from ipate.runs.person import state

    found = state(RunFolder.open(run), person, private=private)
    if as_json:
        print_json(as_payload(found))
        return
    echo(f"Statement for person {found.person}, run {found.run}")
    for sentence in sentences(found):
        echo(sentence)
