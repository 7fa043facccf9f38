"""`ipate report`: write the report of a run as one html file and as JSON."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from ipate.cli.output import print_json

EXAMPLE = (
    "Examples: ipate report first-run; ipate report first-run --private; ipate report first-run --out march.html. "
    "A JSON file with the same content is written beside the html file. For others: --registry deployment.yaml, "
    "--model-card README.md, --events events.json."
)


def command(
    run: Annotated[Path, Argument(help="The run's folder.")],
    private: Annotated[
        bool,
        Option(
            "--private/--public",
            help="Include private figures, for the data owner; or only what may be published (default).",
        ),
    ] = False,
    out: Annotated[
        Path | None, Option(help="The html file to write; default: report.html in the run's folder.")
    ] = None,
    registry: Annotated[
        Path | None,
        Option(help="Also write a record of the Differential Privacy Deployments Registry.", metavar="DEPLOYMENT.yaml"),
    ] = None,
    model_card: Annotated[
        Path | None, Option(help="Also write a model card with front matter.", metavar="README.md")
    ] = None,
    events: Annotated[
        Path | None, Option(help="Also write the composition as events of dp_accounting.", metavar="EVENTS.json")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print only the JSON report on stdout.")] = False,
) -> None:
    """Write the report of a run: guarantees in plain words, costs, influence, results, and how to check them."""
    from ipate.report.claims import headline, marks
    from ipate.report.exports import twin
    from ipate.report.registry import missing_fields
    from ipate.runs.reporting import write_exports, write_report

    written = write_report(run, audience="private" if private else "public", out=out)
    more = write_exports(run, written.facts, registry=registry, model_card=model_card, events=events)
    if as_json:
        print_json(twin(written.facts))
        return
    for line in (*marks(written.facts), headline(written.facts)):
        echo(f"{line}.")
    echo(f"Written: {', '.join(map(str, (written.html, written.json)))}{''.join(f', {path}' for path in more)}")
    if registry is not None:
        empty = "".join(f" Complete {name}, which [report] does not state." for name in missing_fields(written.facts))
        echo(f"{registry} is a draft: add sources and authors before you submit it.{empty}")
