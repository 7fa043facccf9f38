"""The `ipate` application; each command imports its dependencies only when it runs."""

import sys
import warnings
from typing import Annotated, Any

import typer
from typer import Option

from ipate._version import __version__
from ipate.cli import (
    account,
    audit,
    consent,
    design,
    label,
    parties,
    party,
    plan,
    predict,
    report,
    run,
    runs,
    schema,
    statement,
    withdraw,
)
from ipate.cli.output import StoppedError, logged
from ipate.errors import InputError, IpateError

app = typer.Typer(
    name="ipate",
    help="Machine learning in which every person decides how well their own data is protected.",
    epilog="Example: ipate account votes.npz --groups groups.csv --sigma 40. Every command has --help.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ipate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Machine learning in which every person decides how well their own data is protected."""
    context.with_resource(logged())


for module in (
    run,
    runs,
    schema,
    plan,
    account,
    design,
    label,
    predict,
    report,
    audit,
    consent,
    withdraw,
    statement,
):
    app.command(module.__name__.rpartition(".")[2], epilog=module.EXAMPLE)(module.command)
app.add_typer(party.party, name="party", short_help=party.party.info.help)
app.add_typer(parties.parties, name="parties", short_help=parties.parties.info.help)
for made in (*app.registered_commands, *party.party.registered_commands, *parties.parties.registered_commands):
    made.short_help = str(made.callback.__doc__).partition("\n")[0]  # the whole summary, which click would cut


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
    for message in dict.fromkeys(held) if code != 2 else ():
        sys.stderr.write(f"ipate: warning: {_one_line(message)}\n")
    if line:
        sys.stderr.write(f"{line}\n")
    return code


def _outcome(argv: list[str] | None) -> tuple[int, str]:
    """Run a command and return its exit code and the message for stderr."""
    # newer versions of typer vendor click, so its exceptions are taken from typer's public ones
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        result = app(args=argv, prog_name="ipate", standalone_mode=False)
    except usage_error as error:
        return 2, _usage(error)
    except StoppedError as error:
        return 130, f"ipate: interrupted; {error}"
    except (typer.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # typer takes the end of any file for ^D
            return 1, f"ipate: a file ended before it was complete: {_one_line(str(error.__cause__))}"
        return 130, "ipate: interrupted"
    except ImportError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # ^C while an extension module was loaded
            raise
        result = 130
    except BrokenPipeError:  # the reader closed the pipe, as in `ipate … | head`
        sys.stdout = None
        return 1, ""
    except (IpateError, OSError) as error:
        return 2 if isinstance(error, InputError) else 1, f"ipate: {_one_line(str(error))}"
    code = result if isinstance(result, int) else 0
    again = "run the same command again to continue or repeat it"
    return code, f"ipate: interrupted; {again}" if code == 130 else ""


def _usage(error: Any) -> str:
    """Return one line that names the option, or the help text if there were no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    where = error.ctx.command_path if error.ctx else "ipate"
    option = str(getattr(error, "option_name", ""))
    if option and any(param.name == "config" for param in (error.ctx.command.params if error.ctx else ())):
        from ipate.config import find_key

        if (place := find_key(option.lstrip("-").replace("-", "_"))) is not None:
            return f"{where}: {option} is not an option: set {place} (see {where} --help)"
    return f"{where}: {_one_line(error.format_message())} (see {where} --help)"


def _one_line(text: str) -> str:
    return " ".join(text.split())
