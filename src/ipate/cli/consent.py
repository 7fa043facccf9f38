"""`ipate consent`: check a file of people against a policy, explain the levels, write the group file."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from ipate.cli.options import AsJson, check_out
from ipate.cli.output import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from ipate.people.consent import Consent

EXAMPLE = (
    "Examples: ipate consent people.csv --policy policy.toml --person patient --level consent --out groups.csv; "
    "ipate consent people.csv --policy policy.toml --epsilon-column budget. A policy is a TOML file with lines such as "
    "high = 1.0, and with max_epsilon, delta, version and date. If some rows cannot be used, the exit code is 2 and no "
    "group file is written."
)
_SHOWN = 20  # maximum number of problems and of levels printed; JSON lists all


def command(
    people: Annotated[Path, Argument(help="csv file with one or more rows per person.", metavar="PEOPLE.csv")],
    policy: Annotated[
        Path, Option(help="TOML file with the ε of each level, max_epsilon and delta.", metavar="POLICY.toml")
    ],
    out: Annotated[
        Path | None, Option(help="The group file to write, which other commands read.", metavar="GROUPS.csv")
    ] = None,
    person: Annotated[str | None, Option(help="The column of person ids; default: one person per row.")] = None,
    level: Annotated[str | None, Option(help="The column of consent levels; default: level.")] = None,
    epsilon_column: Annotated[str | None, Option(help="The column of ε, instead of consent levels.")] = None,
    consent_date: Annotated[str | None, Option(help="The column of the day on which a person agreed.")] = None,
    consent_version: Annotated[
        str | None, Option(help="The column of the policy's version that a person agreed to.")
    ] = None,
    delta: Annotated[float | None, Option(help="δ for everybody, at most the policy's; default: the policy's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check consent: count people per level, list rows that cannot be used, explain each level."""
    from ipate.errors import InputError
    from ipate.people.budgets import write_groups
    from ipate.people.consent import check_consent
    from ipate.people.policy import Policy
    from ipate.report.claims import assured, person_of

    if out is not None:
        check_out(out, "a group file")
    rules = Policy.from_file(policy)
    with progress_bar("file read, rows judged, people counted", 3, quiet=as_json) as bar:
        found = check_consent(
            people,
            policy=rules,
            level=level,
            epsilon_column=epsilon_column,
            person=person,
            consent_date=consent_date,
            consent_version=consent_version,
            delta=delta,
            progress=bar,
        )
    meanings = [
        assured(person_of(entry.level, levels=epsilon_column is None), entry.epsilon, entry.delta)
        for entry in found.levels
    ]
    written = out if out is not None and not found.problems else None
    if written is not None:
        write_groups(written, found.groups)
    if as_json:
        levels = [{**asdict(entry), "meaning": meaning} for entry, meaning in zip(found.levels, meanings, strict=True)]
        result = {"ok": not found.problems, "out": None if written is None else str(written)}
        print_json({**asdict(found), "levels": levels, **result})
    else:
        _show(found, meanings, written)
    if found.problems:
        end = "correct them and check again" if out is None else f"{out} was not written"
        raise InputError(f"{people}: {found.unusable:,} {_rows(found.unusable)} cannot be used; {end}")


def _show(found: "Consent", meanings: list[str], written: Path | None) -> None:
    total = max(1, found.people)
    shown = found.levels[:_SHOWN]
    print_table(
        f"{found.path}: {found.people:,} people in {found.rows:,} rows that can be used",
        ["level", "ε", "δ", "rows", "people", "share"],
        [
            [e.level, f"{e.epsilon:.6g}", f"{e.delta:g}", f"{e.rows:,}", f"{e.people:,}", f"{e.people / total:.1%}"]
            for e in shown
        ],
        [f"… and {len(found.levels) - _SHOWN:,} more."] if len(found.levels) > _SHOWN else [],
    )
    for meaning in meanings[:_SHOWN]:
        echo(f"- {meaning}")
    if found.repeated:
        who = "1 person has" if found.repeated == 1 else f"{found.repeated:,} people have"
        echo(f"{who} several rows with the same consent: they are counted as one person.")
    for note in (*_records(found), *found.notes):
        echo(note)
    for problem in found.problems[:_SHOWN]:
        lines = ", ".join(map(str, problem.lines)) + (", …" if problem.rows > len(problem.lines) else "")
        echo(f"Cannot be used: {problem.rows:,} {_rows(problem.rows)} (line {lines}): {problem.text}")
    if len(found.problems) > _SHOWN:
        echo(f"… and {len(found.problems) - _SHOWN:,} more problems; --json lists all.")
    if written is not None:
        echo(f"Written: {written}, {len(found.groups):,} groups.")


def _records(found: "Consent") -> list[str]:
    """Return sentences on the policy's version and on what people agreed to, and when."""
    lines = []
    if found.policy_version is not None:
        since = "" if found.policy_date is None else f", valid from {found.policy_date}"
        lines.append(f"The policy is version {found.policy_version}{since}.")
    if found.dates is not None:
        lines.append(f"People agreed between {found.dates[0]} and {found.dates[1]}.")
    if found.versions:
        by = ", ".join(f"version {version} in {count:,} {_rows(count)}" for version, count in found.versions.items())
        lines.append(f"They agreed to {by}.")
    return lines


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"
