"""The commands of `ipate`; each imports what it needs only when it runs."""

from typing import Annotated

import typer

from ipate import __version__
from ipate.cli import (
    account,
    consent,
    design,
    label,
    parties,
    party,
    plan,
    report,
    reproduce,
    run,
    runs,
    statement,
    withdraw,
)

__all__ = ["app"]

app = typer.Typer(
    name="ipate",
    help="Machine learning in which every person decides how well their own data is protected.",
    epilog="Example: ipate account votes.npz --groups groups.csv --sigma 40. Each command has a --help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ipate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Machine learning in which every person decides how well their own data is protected."""


app.command("run", epilog=run.EXAMPLE)(run.command)
app.command("runs", epilog=runs.EXAMPLE)(runs.command)
app.command("plan", epilog=plan.EXAMPLE)(plan.command)
app.command("account", epilog=account.EXAMPLE)(account.command)
app.command("design", epilog=design.EXAMPLE)(design.command)
app.command("label", epilog=label.EXAMPLE)(label.command)
app.command("report", epilog=report.EXAMPLE)(report.command)
app.add_typer(party.app, name="party")
app.add_typer(parties.app, name="parties")
app.command("consent", epilog=consent.EXAMPLE)(consent.command)
app.command("withdraw", epilog=withdraw.EXAMPLE)(withdraw.command)
app.command("statement", epilog=statement.EXAMPLE)(statement.command)
app.command("reproduce", epilog=reproduce.EXAMPLE)(reproduce.command)
