"""`ipate withdraw`: take one person out of a run; nobody else moves, and what was released stays owed."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = (
    "Example: ipate withdraw march p1042, then ipate run --resume march, which trains the person's teachers again "
    "without them, and nobody else's. A person is known by the id in the data, or by the row's number where there is "
    "none. Labels that were released stay released; ipate statement march p1042 says what they cost."
)


def command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    person: Annotated[str, typer.Argument(help="The person's id.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else.")] = False,
) -> None:
    """Withdraw a person: their place stays empty, their teachers learn again without them, nobody else moves."""
    from ipate.cli.output import print_json
    from ipate.report.statement import left
    from ipate.runs.folder import RunFolder
    from ipate.runs.person import withdraw
    from ipate.runs.stages import allocated

    folder = RunFolder.open(run)
    with folder.locked():
        entry = withdraw(folder, allocated(folder), person).told
    if as_json:
        print_json({"run": str(run), **asdict(entry), "sentences": list(left(entry, str(run)))})
        return
    for sentence in left(entry, str(run)):
        typer.echo(sentence)
