"""`ipate withdraw`: remove one person from a run and its ledger; nobody else moves, and past costs remain charged."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, confirm, echo

from ipate.cli.options import AsJson
from ipate.cli.output import print_json
from ipate.errors import InputError

EXAMPLE = (
    "Examples: ipate withdraw march p1042 --dry-run, which changes nothing; ipate withdraw march p1042, which asks; "
    "then ipate run --resume march, which retrains only the person's teachers without them. Later runs on the same "
    "ledger leave the person out, until ipate withdraw march p1042 --consented-again. A person is identified by the id "
    "in the data, or by the row number if the data has no ids. Released labels cannot be recalled; ipate statement "
    "march p1042 prints what they cost."
)


def command(
    run: Annotated[Path, Argument(help="The run's folder.")],
    person: Annotated[str, Argument(help="The person's id.")],
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would happen, and change nothing.")] = False,
    again: Annotated[
        bool,
        Option("--consented-again", help="The person who withdrew has consented again: later runs use their data."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw a person from a run and from all later runs on its ledger; everybody else stays where they are.

    It cannot be undone in the run, so it asks first.
    """
    from ipate.report.statement import left, proposed, returned
    from ipate.runs.folder import RunFolder
    from ipate.runs.stages import allocated
    from ipate.runs.withdrawal import planned_withdrawal, readmit, withdraw

    if again and dry_run:
        raise InputError("--consented-again and --dry-run cannot be combined: leave one of them out")
    folder = RunFolder.open(run)
    with folder.locked():
        allocation = allocated(folder)
        if again:
            sentences = returned(person, str(run))
            readmit(folder, allocation, person)
            found: dict[str, object] = {"person": person}
        else:
            entry = planned_withdrawal(folder, allocation, person).told
            sentences = proposed(entry, str(run))
            if not dry_run:
                if not yes:
                    _ask(sentences)
                entry = withdraw(folder, allocation, person).told
                sentences = left(entry, str(run))
            found = asdict(entry)
    if as_json:
        print_json({"run": str(run), "done": not dry_run, **found, "sentences": list(sentences)})
        return
    for sentence in sentences:
        echo(sentence)


def _ask(sentences: tuple[str, ...]) -> None:
    """Ask on the terminal whether to go on; refuse where there is none."""
    if not sys.stdin.isatty():
        raise InputError(
            "a withdrawal cannot be undone, and there is no terminal to ask for confirmation: add --yes to withdraw, "
            "or --dry-run to see what would happen; nothing was changed"
        )
    for sentence in sentences:
        echo(sentence, err=True)
    if not confirm("Withdraw this person?", default=False, err=True):
        echo("Nothing was changed.", err=True)
        raise Exit(1)
