"""`ipate audit`: attack one's own run in a copy, and compare what the attacks show with what was promised."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ipate.cli.options import AsJson
from ipate.cli.output import cell, print_json, print_table, progress_bar

if TYPE_CHECKING:
    from ipate.audit.auditing import Audit

EXAMPLE = (
    "Examples: ipate audit march; ipate audit march --json; ipate audit march --student-runs 200. Exit code 0: nothing "
    "above the promise was found, which is no proof; 1: something was; 2: the run cannot be audited."
)


def command(
    run: Annotated[Path, Argument(help="The folder of a finished run; nothing in it is changed.")],
    confidence: Annotated[float, Option(help="The probability with which all bounds hold at once.")] = 0.999,
    draws: Annotated[int, Option(help="How many answers measure each kind of noise.")] = 200_000,
    student_runs: Annotated[
        int,
        Option(
            help="How often to train the student again with and without each group's canary, for a membership attack. "
            "Default: 0, because some hundred trainings show less than the attacks on labels do.",
        ),
    ] = 0,
    on_real_people: Annotated[
        bool,
        Option(
            "--on-real-people",
            help="For a run on a file of people: read who learns from whom. No row, label or vote is read, but the "
            "result is private then. Default: made-up people of the same groups.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Attack a run in a copy on made-up data: the largest lower bound on ε beside the promise, for every group."""
    from ipate.audit.auditing import audit

    def bar(what: str, total: int) -> Any:
        return progress_bar(what, total, quiet=as_json)

    found = audit(
        run, confidence=confidence, draws=draws, student_runs=student_runs, on_real_people=on_real_people, bar=bar
    )
    if as_json:
        print_json(found.as_json())
    else:
        _print(found)
    if found.found:
        raise typer.Exit(1)


def _print(found: "Audit") -> None:
    rows = [
        [
            group.group,
            f"{group.promised:.4g}",
            f"{group.delta:g}",
            attack.name,
            str(attack.releases),
            cell(attack.charged, ".4g"),
            f"{attack.reached:.4g}",
            "ABOVE" if group.exceeds(attack) else "",
        ]
        for group in found.groups
        for attack in group.attacks
    ]
    columns = ["group", "promised ε", "δ", "attack", "releases", "charged ε", "shown ε", "verdict"]
    mark = "; PRIVATE: it used private figures of the run, or who learns from whom" if found.private else ""
    title = (
        f"{found.verdict[0].upper()}{found.verdict[1:]}, at {found.confidence:.4g} confidence{mark}. All figures are "
        "those of a copy with made-up data and whole budgets, not of the run"
    )
    noise = [
        f"Noise of {measured.kind}: stated {'σ' if measured.noise == 'gaussian' else 'Laplace scale b'} = "
        f"{measured.stated:.4g}, measured at most {measured.most:.4g}"
        + ("." if measured.fresh else "; DRAWS ARE NOT INDEPENDENT.")
        for measured in found.noise
    ]
    print_table(title, columns, rows, [*noise, *found.notes, f"{found.seconds:.1f} seconds."])
