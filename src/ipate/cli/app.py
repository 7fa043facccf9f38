"""The `ipate` application; each command imports its dependencies only when it runs."""

import sys
import warnings
from typing import Annotated, Any

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

app = typer.Typer(
    name="ipate",
    help="Machine learning in which every person decides how well their own data is protected.",
    epilog="Example: ipate account votes.npz --groups groups.csv --sigma 40. Every command has --help.",
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


def main(argv: list[str] | None = None) -> None:
    """Run `ipate` and exit with 0 (success), 1 (failure) or 2 (bad input: one line, no traceback)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show ε gets an escape sequence
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(argv))


def _run(argv: list[str] | None) -> int:
    """Run a command; warnings are collected, so that bad input prints its one-line message only."""
    held: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: held.append(str(message))
        code, line = _outcome(argv)
    for message in held if code != 2 else ():
        _say(f"ipate: warning: {_one_line(message)}")
    if line:
        _say(line)
    return code


def _outcome(argv: list[str] | None) -> tuple[int, str]:
    """Run a command and return its exit code and the message for stderr."""
    import typer

    from ipate.errors import InputError, IpateError

    # newer versions of typer vendor click, so its exceptions are taken from typer's public ones
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        result = app(args=argv, prog_name="ipate", standalone_mode=False)
    except usage_error as error:
        return 2, _usage(error)
    except InputError as error:
        return 2, f"ipate: {_one_line(str(error))}"
    except IpateError as error:
        return 1, f"ipate: {_one_line(str(error))}"
    except (typer.Abort, KeyboardInterrupt):
        return 130, "ipate: interrupted"
    except BrokenPipeError:  # the reader closed the pipe, as in `ipate … | head`
        sys.stdout = None
        return 1, ""
    except OSError as error:
        return 1, f"ipate: {_one_line(str(error))}"
    code = result if isinstance(result, int) else 0
    begun = (sys.argv[1:] if argv is None else argv)[:1]
    again = "run the same command again to continue or repeat it"
    how = "continue with `ipate run --resume FOLDER`" if begun == ["run"] else again
    return code, f"ipate: interrupted; {how}" if code == 130 else ""


def _usage(error: Any) -> str:
    """Return one line that names the option, or the help text if there were no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    where = error.ctx.command_path if error.ctx else "ipate"
    return f"{where}: {_one_line(error.format_message())} (see {where} --help)"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _one_line(text: str) -> str:
    return " ".join(text.split())
