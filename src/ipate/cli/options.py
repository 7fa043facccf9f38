"""Options that several commands share: their declarations, and how they are read and validated."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Option

from ipate.cli.output import waiting
from ipate.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ipate.accounting.ladder import Design
    from ipate.engines.teachers.aggregators import Mechanism
    from ipate.engines.teachers.panel import Panel
    from ipate.engines.teachers.reference import Reference
    from ipate.engines.teachers.votes import Votes
    from ipate.people.budgets import Group

AsJson = Annotated[bool, Option("--json", help="Print only JSON on stdout.")]
CpuSeconds = Annotated[
    float | None,
    Option(help="CPU time of one teacher's fit or vote; a teacher that passes it votes a fixed class.", min=0),
]
Aggregator = Annotated[
    str, Option(help="gnmax, confident, interactive or lnmax; auto: derived from the other options.")
]
Sigma = Annotated[float | None, Option(help="σ: standard deviation of the label noise.")]
CheckSigma = Annotated[float | None, Option(help="σ_T: standard deviation of the check noise.")]
Threshold = Annotated[float | None, Option(help="T: threshold of the check.")]
StudentProbs = Annotated[
    Path | None, Option(help="npy file, queries × classes: the student's probabilities (interactive).")
]
Weights = Annotated[
    str, Option(help="gdp, proportional, classic, algorithm2, uniform, or file: use the weights in the files.")
]
Delta = Annotated[float, Option(help="δ of groups without one in the group file.")]
Orders = Annotated[str, Option(help="Rényi orders: FIRST:LAST or a comma-separated list.")]
Classes = Annotated[int | None, Option(help="Number of classes (public).")]
MergeWithin = Annotated[
    float | None, Option(help="Merge budgets downwards within this relative tolerance, from 0 to 1.", metavar="SHARE")
]
MaxGroups = Annotated[
    str | None,
    Option(help="Most groups; others are merged downwards. auto: a tenth of the teachers, 8 to 32.", metavar="N|auto"),
]
MinGroupSize = Annotated[
    int | None, Option(min=1, help="Groups of fewer people join the next stricter one; default: 5.")
]
Accuracy = Annotated[float | None, Option(help="ptr: expected accuracy of one teacher, from public knowledge.")]
Spread = Annotated[float | None, Option(help="ptr: spread of query difficulty; default: 2.")]
Confusion = Annotated[float | None, Option(help="ptr: share of wrong votes that agree with each other; default: 0.65.")]
ReferenceVotes = Annotated[
    Path | None, Option(help="ptr: votes of other teachers on public data, instead of --accuracy.")
]
Reserve = Annotated[
    float | None, Option(help="ptr: how much more than the reference the votes may cost; default: 0.1 (10 %).")
]
Fallback = Annotated[bool, Option(help="ptr: reserve (ε/2, δ/10) for a data-independent run after a failed test.")]
FreshLedger = Annotated[
    bool, Option(help="Begin a new ledger for people who have one: a second budget, which the report states.")
]
AcceptLargerBudgets = Annotated[bool, Option(help="Accept budgets that grew since the last run on the ledger.")]
_MOST_ORDERS = 10_000  # time and memory grow with orders × queries; the paper uses 49


def parse_orders(text: str) -> list[float]:
    """Read Rényi orders: `2:50` (both ends, step 1), `2:10:0.5`, or a list such as `2,4,8.5`."""
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, stop, *rest = (float(part) for part in text.split(":"))
        step = rest[0] if rest else 1.0
        steps = (stop - start) / step if step > 0 else math.nan
        if len(rest) > 1 or not 0 <= steps < _MOST_ORDERS:
            raise ValueError
        return [start + step * i for i in range(int(steps + 1e-9) + 1)]
    except ValueError:
        raise InputError(
            f"orders are {text!r}: write FIRST:LAST, FIRST:LAST:STEP or a list such as 2,4,8, "
            f"at most {_MOST_ORDERS} orders"
        ) from None


def check_out(path: Path, what: str) -> None:
    """Refuse an output path that cannot be written, before anything is computed or charged."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; {what} must be a file, so name one in it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; make it first, {what} needs one")


def load_npy(path: Path, what: str) -> "NDArray[Any]":
    """Read one array from an npy file, without pickle."""
    import zipfile

    import numpy as np

    if not path.is_file():
        raise InputError(f"{path}: no such file; {what} must be an npy file")
    try:
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable npy file, and pickle is refused ({error})") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: holds several arrays; {what} must be one array in an npy file")
    return array


def whole_number(text: str | None) -> int | str | None:
    """Return a whole number as an int and other text, such as auto, as it is."""
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text


def load_probs(path: Path | None, votes: "Votes") -> "NDArray[np.float64] | None":
    """Read the student's probabilities, queries × classes, each row summing to 1."""
    from ipate.engines.teachers.loop import check_probs

    if path is None:
        return None
    return check_probs(load_npy(path, "--student-probs"), votes.n_queries, votes.n_classes)


def make_reference(
    *, reference: Path | None, reserve: float | None, fallback: bool, classes: int | None, **parameters: float | None
) -> "Reference":
    """Return the reference of a design: a simulator with these parameters, or the votes of other teachers."""
    from ipate.engines.teachers.reference import RESERVE, Reference, Simulator
    from ipate.engines.teachers.votes import read_votes

    kept = RESERVE if reserve is None else reserve
    given: dict[str, Any] = {name: value for name, value in parameters.items() if value is not None}
    if reference is not None:
        if given:
            raise InputError("reference is given, and accuracy, spread or confusion too: those are for a simulator")
        votes, source = read_votes(reference, classes=classes), f"votes of other teachers, {reference.name}"
        return Reference(votes=votes, source=source, reserve=kept, fallback=fallback)
    if "accuracy" not in given:
        raise InputError(
            "bound is 'ptr' without a reference: say with --accuracy how often a teacher is expected to be right, from "
            "public knowledge, or name votes of other teachers on public data with --reference"
        )
    return Reference(simulator=Simulator(**given), reserve=kept, fallback=fallback)


def chosen_design(
    design: Path | None,
    votes: "Votes",
    panel: "Panel",
    mechanism: "Mechanism",
    *,
    order: "NDArray[np.int64] | None",
    max_queries: int | None,
    quiet: bool,
    **options: Any,
) -> "Design":
    """Read and verify the named design, or make one from the options for the queries in this order.

    Only public facts of the votes are used: query ids, numbers of teachers, and classes. The votes themselves serve
    to refuse a reference that is a copy of them.
    """
    from ipate.engines.teachers.reference import design_for, read_design
    from ipate.engines.teachers.tested import query_ids, refuse_own_votes

    with waiting("designing the test", quiet=quiet):
        if design is not None:
            refuse_unused("a design is named, and holds all that", **options)
            return read_design(design)
        names = query_ids(votes)
        asked = names if order is None else [names[index] for index in order.tolist()]
        made = make_reference(**options, classes=votes.n_classes)
        found = design_for(made, panel, mechanism, n_classes=votes.n_classes, queries=asked[:max_queries])
        refuse_own_votes(found, votes)
        return found


def on_command_line(context: Context, *, but: Collection[str]) -> dict[str, Any]:
    """Return the options that the user has given, except some, by name."""
    given = {name: context.get_parameter_source(name) for name in context.params if name not in but}
    return {
        name: context.params[name] for name, source in given.items() if source is not None and source.name != "DEFAULT"
    }


def refuse_unused(why: str, **options: Any) -> None:
    """Refuse options that would be ignored."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise InputError(f"{name} is {value}: {why}; leave it out")


def read_groups(
    *,
    people: str | None,
    groups: Path | None,
    share: list[str] | None,
    epsilon: float | None,
    delta: float | None,
    policy: Path | None,
    merge_within: float | None,
    **columns: str | None,
) -> "tuple[Group, ...]":
    """Read the groups from a number of people with one ε, a people csv, or a group csv with numbers or shares."""
    from ipate.errors import check_count
    from ipate.people.budgets import read_sized_groups
    from ipate.people.people import People, make_people
    from ipate.people.policy import Policy

    number = people is not None and people.removeprefix("-").isdecimal()
    usual: float | str = "auto" if delta is None else delta
    belonging = {**columns, "policy": policy, "merge_within": merge_within}
    named = next((name for name, value in belonging.items() if value is not None), None)
    if groups is not None:
        belongs = named or ("epsilon" if epsilon is not None else None)
        if belongs is not None:
            raise InputError(f"{belongs} is given with --groups: it belongs to --people")
        if people is not None and not number:
            raise InputError(f"people is {people!r}: with --groups it must be a whole number, 1 or above")
        by_group = dict(text.rpartition("=")[::2] for text in share or ())
        n_people = None if people is None else int(people)
        return read_sized_groups(groups, n_people=n_people, shares=by_group, delta=usual)
    if share:
        raise InputError("share is given without --groups: a people csv says how many people a group has")
    if number and epsilon is not None and named is None:
        return make_people(check_count("people", int(people or 0)), epsilon=epsilon, delta=usual).groups
    if people is None or number:
        raise InputError(
            "groups are not given: name a configuration, a people csv (--people) or a group file (--groups), or give "
            "--people N with --epsilon"
        )
    if epsilon is not None:
        raise InputError(f"epsilon is {epsilon:g}: with a people csv name its column (--epsilon-column or --level)")
    return People.from_csv(
        people,
        epsilon_column=columns["epsilon_column"],
        level_column=columns["level"],
        person_column=columns["person"],
        delta_column=columns["delta_column"],
        policy=None if policy is None else Policy.from_file(policy),
        delta=usual,
        merge_within=merge_within,
    ).groups


def names(text: str | None) -> list[str] | None:
    """Return the names of a list A,B,C."""
    return None if text is None else [part.strip() for part in text.split(",")]


def policy_of(path: Path | None) -> dict[str, Any]:
    """Return the keys of `[budgets]` that a policy file sets: levels, δ, version and date."""
    from ipate.people.policy import Policy

    if path is None:
        return {}
    found = Policy.from_file(path)
    more = {"delta": found.delta, "policy_version": found.version, "policy_date": found.date}
    return {"policy": dict(found.levels)} | {name: value for name, value in more.items() if value is not None}


def size(value: float | None) -> float | int | None:
    """Return a number of rows as a whole number, and a share below 1 as it is."""
    return int(value) if value is not None and 1 <= value < math.inf else value


def shares(values: list[str] | None) -> dict[str, float] | None:
    """Return the shares of levels that are given as LEVEL=SHARE."""
    found = {}
    for value in values or ():
        name, _, number = value.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise InputError(f"share is {value!r}: write LEVEL=SHARE, such as high=0.54") from None
    return found or None
