"""`ipate withdraw`: remove one person from a run; nobody else is reassigned, and past costs remain charged."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, echo

from ipate.cli.options import AsJson
from ipate.cli.output import print_json

EXAMPLE = (
    "Example: ipate withdraw march p1042, then ipate run --resume march, which retrains only the person's teachers "
    "without them. A person is identified by the id in the data, or by the row number if the data has no ids. Released "
    "labels cannot be recalled; ipate statement march p1042 prints what they cost."
)


def command(
    run: Annotated[Path, Argument(help="The run's folder.")],
    person: Annotated[str, Argument(help="The person's id.")],
    as_json: AsJson = False,
) -> None:
    """Withdraw a person: retrain their teachers without them, and leave everybody else where they are."""
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
        echo(sentence)
