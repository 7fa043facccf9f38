"""`ipate statement`: print one person's budget, what was spent and what is left; or write letters."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from ipate.cli.options import AsJson
from ipate.cli.output import print_json, progress_bar
from ipate.errors import InputError

if TYPE_CHECKING:
    from ipate.runs.folder import RunFolder

EXAMPLE = (
    "Examples: ipate statement march p1042; ipate statement march p1042 --private; ipate statement march p1042 --html "
    "letter.html; ipate statement march --all letters. Without --private the statement may be given to the person: "
    "under the bounds tight and exact, and for seeded runs, it states the budget and no other figure."
)


def command(
    run: Annotated[Path, Argument(help="The run's folder.")],
    person: Annotated[str | None, Argument(help="The person's id.")] = None,
    private: Annotated[
        bool, Option("--private", help="Include costs computed from the votes, for the data owner only.")
    ] = False,
    html: Annotated[
        Path | None, Option(help="Write the statement as a letter to the person.", metavar="LETTER.html")
    ] = None,
    everybody: Annotated[
        Path | None, Option("--all", help="Write a letter for everybody of the run into this new folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a person's budget, what all runs on the ledger spent of it, and what is left; or write letters."""
    from ipate.runs.folder import RunFolder
    from ipate.runs.statements import write_letters

    if (person is None) == (everybody is None):
        raise InputError("name one person, or a folder for everybody's letters with --all FOLDER")
    if private and (html is not None or everybody is not None):
        raise InputError("--private is for the data owner, and a letter is for the person: leave out one of them")
    folder = RunFolder.open(run)
    if everybody is None:
        _one(folder, person or "", private=private, html=html, as_json=as_json)
        return
    if html is not None:
        raise InputError("--html is for one person: leave it out, since --all names the folder of the letters")
    written = write_letters(folder, everybody, bar=partial(progress_bar, quiet=as_json))
    if as_json:
        print_json({"folder": str(everybody), "letters": written})
    else:
        echo(f"Written: {written:,} letters and index.csv in {everybody}. Give each person their own letter only.")


def _one(folder: "RunFolder", person: str, *, private: bool, html: Path | None, as_json: bool) -> None:
    """Print the statement of one person, or write their letter."""
    from ipate.report.statement import as_payload, sentences
    from ipate.runs.statements import state, write_letter

    found = state(folder, person, private=private)
    if html is not None:
        write_letter(folder, found, html)
    if as_json:
        print_json(as_payload(found))
        return
    if html is not None:
        echo(f"Written: {html}. It is for person {found.person} only.")
        return
    echo(f"Statement for person {found.person}, run {found.run}")
    for sentence in sentences(found):
        echo(sentence)
