"""Check a CSV file of people against a policy: count the chosen levels and report invalid rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from itertools import chain, compress, islice

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.errors import LIMITS, InputError, check_number, nearest, show
from ipate.files import FilePath, Table, read_table
from ipate.people.budgets import GroupRow
from ipate.people.ids import alike, alike_sentence, plain_ids
from ipate.people.people import People, make_people
from ipate.people.policy import Policy, agreed_before, check_consent_day, check_date

NAMED = 5  # lines or people listed in one message
_MOST = 100  # problems reported separately; a wrong column may have one per row
_MANY = 50  # more groups than this get a note


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One kind of invalid rows: an error message and the first affected lines."""

    kind: str  # missing, unknown level, no number, above the most allowed, consent record, or more
    text: str  # names the value and what is allowed
    rows: int  # number of affected rows
    lines: tuple[int, ...]  # the first of them in the file
    nearest: str | None = None  # the level most similar to an unknown one


@dataclass(frozen=True, kw_only=True)
class Usable:
    """The valid rows: their cells, person ids, line numbers and ε."""

    cells: Sequence[str]
    ids: Sequence[str] | None
    lines: Sequence[int]
    budgets: Floats


def read_budgets(table: Table, column: str, policy: Policy, *, numbers: bool) -> tuple[tuple[Problem, ...], Floats]:
    """Return the problems, and every row's ε (NaN if the row is invalid); each distinct cell is parsed once."""
    cells = table.columns[column]
    most = policy.max_epsilon or np.inf
    value = {cell: _number(cell, most) if numbers else policy.levels.get(cell, np.nan) for cell in set(cells)}
    budgets = np.fromiter(map(value.__getitem__, cells), np.float64, len(cells))
    wrong: dict[str, list[int]] = {}
    for row in np.flatnonzero(np.isnan(budgets)).tolist():
        wrong.setdefault(cells[row], []).append(row)
    first = islice(wrong.items(), _MOST)
    problems = [_problem(table, rows, *_explain(cell, column, policy, numbers)) for cell, rows in first]
    if len(wrong) > _MOST:
        more = f"{len(wrong) - _MOST:,} more invalid values after the first {_MOST}"
        left = list(chain.from_iterable(islice(wrong.values(), _MOST, None)))
        problems.append(_problem(table, left, "more", f"{more}: check that this is the right column"))
    return tuple(problems), budgets


def _problem(table: Table, rows: Sequence[int], kind: str, text: str, nearest: str | None = None) -> Problem:
    lines = tuple(table.lines[row] for row in rows[:NAMED])
    return Problem(kind=kind, text=text, rows=len(rows), lines=lines, nearest=nearest)


def _number(cell: str, most: float = np.inf) -> float:
    try:
        value = float(cell)
    except ValueError:
        return np.nan
    return value if LIMITS["epsilon"][0](value) and value <= most else np.nan


def _explain(cell: str, column: str, policy: Policy, numbers: bool) -> tuple[str, str, str | None]:
    """Return the kind of an invalid cell's problem, a sentence, and the level that was probably meant."""
    if not cell:
        return "missing", f"{column} is missing: every row needs a {'number' if numbers else 'level'}", None
    if not numbers:
        return "unknown level", policy.unknown(cell), nearest(cell, policy.levels)
    if not np.isnan(_number(cell)):
        most = f"at most max_epsilon = {policy.max_epsilon!r} is allowed"
        return "above the most allowed", f"{column} is {show(cell)}: {most}", None
    return "no number", f"{column} is {show(cell)}: {LIMITS['epsilon'][1]}", None


def read_ids(table: Table, column: str) -> tuple[tuple[Problem, ...], NDArray[np.bool_]]:
    """Return the problems, and which rows have a valid person id."""
    good = np.array([bool(text) for text in plain_ids(table.columns[column])])
    rows = np.flatnonzero(~good).tolist()
    text = f"{column} is missing or not a valid id: an id has 1 to 200 characters"
    return ((_problem(table, rows, "missing", text),) if rows else ()), good


def _judged(
    table: Table, column: str, judge: Callable[[str], str | None]
) -> tuple[tuple[Problem, ...], NDArray[np.bool_]]:
    """Return the problems that `judge` finds in the distinct cells of a column, and which rows have none."""
    cells = table.columns[column]
    said = {cell: "every row needs one" if not cell else judge(cell) for cell in dict.fromkeys(cells)}
    good = np.array([said[cell] is None for cell in cells])
    wrong: dict[str, list[int]] = {}
    for row in np.flatnonzero(~good).tolist():
        wrong.setdefault(cells[row], []).append(row)
    problems = [
        _problem(table, rows, "consent record", f"{column} is {show(cell) if cell else 'missing'}: {said[cell]}")
        for cell, rows in islice(wrong.items(), _MOST)
    ]
    return tuple(problems), good


def _read_days(
    since: date | None, person: str | None, table: Table, column: str
) -> tuple[tuple[Problem, ...], NDArray[np.bool_]]:
    """Return the problems of a column of days, and which rows have a valid one.

    Of several rows of a person the latest day counts, and it must not be before the policy was valid.
    """

    def judge(cell: str) -> str | None:
        try:
            check_consent_day(cell, what=column)
        except InputError as error:
            return str(error).rpartition(": ")[2]
        return None

    problems, good = _judged(table, column, judge)
    rows, cells = np.flatnonzero(good), table.columns[column]
    if since is None or not rows.size:
        return problems, good
    ids = np.arange(len(cells)) if person is None else np.array(plain_ids(table.columns[person]))
    valid = [cells[row] for row in rows.tolist()]
    day = {cell: check_date(cell, what=column).isoformat() for cell in set(valid)}
    days = np.array([day[cell] for cell in valid])
    early = rows[agreed_before(days, np.unique(ids[rows], return_inverse=True)[1], since)]
    good[early] = False
    wrong: dict[str, list[int]] = {}
    for row in early.tolist():
        wrong.setdefault(cells[row], []).append(row)
    said = f"the policy is valid from {since}; ask these people for new consent, or leave them out"
    found = [
        _problem(table, own, "consent record", f"{column} is {show(cell)}: {said}")
        for cell, own in islice(wrong.items(), _MOST)
    ]
    return (*problems, *found), good


def _read_versions(wanted: str | None, table: Table, column: str) -> tuple[tuple[Problem, ...], NDArray[np.bool_]]:
    """Return the problems of a column of versions, and which rows agree to the version of this policy."""

    def judge(cell: str) -> str | None:
        if wanted is None or cell == wanted:
            return None
        return f"the policy is version {show(wanted)}; ask these people for new consent, or leave them out"

    return _judged(table, column, judge)


@dataclass(frozen=True, kw_only=True)
class Level:
    """A consent level or a chosen ε, and how many rows and people have it."""

    level: str  # its name, or the group's id if people chose numbers
    epsilon: float
    delta: float
    rows: int
    people: int  # each person counts once, with their strictest level


@dataclass(frozen=True, kw_only=True)
class Consent:
    """The result of checking a file of people against a policy."""

    path: str
    unusable: int  # number of invalid rows
    problems: tuple[Problem, ...]  # if there are any, no group file can be written
    rows: int = 0  # valid rows
    people: int = 0
    repeated: int = 0  # people with several rows that agree
    conflicts: int = 0  # people whose rows disagree; their strictest row binds
    levels: tuple[Level, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[GroupRow, ...] = ()  # rows of the group file; empty if there are problems
    policy_version: str | None = None
    policy_date: str | None = None
    dates: tuple[str, str] | None = None  # the first and the last day of consent, if a column holds them
    versions: Mapping[str, int] = field(default_factory=dict)  # valid rows by the version that people agreed to


def check_consent(
    path: FilePath,
    *,
    policy: Policy,
    level: str | None = None,
    epsilon_column: str | None = None,
    person: str | None = None,
    consent_date: str | None = None,
    consent_version: str | None = None,
    delta: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Consent:
    """Check a CSV file of people against a policy, by a column of levels (default "level") or of numbers.

    `consent_date` and `consent_version` name the columns of the day on which a person agreed and of the version of the
    policy that they agreed to. Without `person`, every row is one person. δ defaults to the policy's, which is also its
    upper limit, or else to `usual_delta`. `progress` receives 1 when the file is read, 2 when cells are checked, and 3
    when people are counted.
    """
    told = progress or (lambda _: None)
    if level is not None and epsilon_column is not None:
        raise InputError(f"level is {show(level)} and epsilon_column is {show(epsilon_column)}: give only one of them")
    if delta is not None:
        check_number("delta", delta)
        if policy.delta is not None and delta > policy.delta:
            raise InputError(f"delta is {delta!r}: at most the policy's {policy.delta!r} is allowed")
    column = epsilon_column or level or "level"
    extra = [name for name in (person, consent_date, consent_version) if name is not None]
    wanted = [column, *extra]
    table = read_table(path, required=list(dict.fromkeys(wanted)), others=True, people=True)
    told(1)
    problems, budgets = read_budgets(table, column, policy, numbers=epsilon_column is not None)
    good = ~np.isnan(budgets)
    if person is not None:
        unnamed, named = read_ids(table, person)
        problems, good = (*unnamed, *problems), good & named
    of_days, of_versions = partial(_read_days, policy.date, person), partial(_read_versions, policy.version)
    for name, read in ((consent_date, of_days), (consent_version, of_versions)):
        if name is not None:
            wrong, right = read(table, name)
            problems, good = (*problems, *wrong), good & right
    told(2)
    valid = good.tolist()
    found = Consent(
        path=table.path,
        unusable=valid.count(False),
        problems=problems,
        policy_version=policy.version,
        policy_date=None if policy.date is None else policy.date.isoformat(),
    )
    if not any(valid):
        return found
    usable = Usable(
        cells=list(compress(table.columns[column], valid)),
        ids=None if person is None else list(compress(table.columns[person], valid)),
        lines=list(compress(table.lines, valid)),
        budgets=budgets[good],
    )
    if consent_date is not None:
        days = sorted({day[:10] for day in compress(table.columns[consent_date], valid)})
        found = replace(found, dates=(days[0], days[-1]))
    if consent_version is not None:
        found = replace(found, versions=dict(Counter(compress(table.columns[consent_version], valid))))
    used = delta if delta is not None else policy.delta
    found = _counted(found, usable, policy, delta=used, named=epsilon_column is None)
    told(3)
    return found


def _counted(found: Consent, usable: Usable, policy: Policy, *, delta: float | None, named: bool) -> Consent:
    """Count people, levels and groups in the valid rows."""
    people = make_people(
        len(usable.budgets),
        levels=usable.cells if named else None,
        budgets=None if named else usable.budgets,
        policy=policy if named else None,
        delta="auto" if delta is None else delta,
        person_id=usable.ids,
    )
    used = people.groups[0].delta
    several = np.bincount(people.person_of_row, minlength=people.n_people) > 1
    least, most = np.full(people.n_people, np.inf), np.zeros(people.n_people)
    np.minimum.at(least, people.person_of_row, usable.budgets)
    np.maximum.at(most, people.person_of_row, usable.budgets)
    torn = least < most
    notes = [*_conflicts(people, torn, usable), *_lookalikes(usable.ids)]
    if delta is None:
        notes.append(
            f"Neither the policy nor the command sets delta: δ = {used:g} is used, for {people.n_people:,} people."
        )
    if len(people.groups) > _MANY:
        notes.append(
            f"There are {len(people.groups):,} different budgets: a few levels reveal less about each person, and "
            "many small groups are hard to distribute over teachers."
        )
    groups = tuple(
        GroupRow(group=group.id, epsilon=group.epsilon, delta=group.delta, people=group.people)
        for group in people.groups
    )
    return replace(
        found,
        rows=len(usable.budgets),
        people=people.n_people,
        repeated=int(np.count_nonzero(several & ~torn)),
        conflicts=int(np.count_nonzero(torn)),
        levels=_by_level(people, usable, least, policy, used) if named else _by_number(people, usable),
        notes=tuple(notes),
        groups=() if found.problems else groups,
    )


def _by_level(people: People, usable: Usable, least: Floats, policy: Policy, delta: float) -> tuple[Level, ...]:
    """Count every level of the policy; a person with several levels of equal ε counts with the first of them."""
    names = list(policy.levels)
    place = {name: index for index, name in enumerate(names)}
    said = np.fromiter(map(place.__getitem__, usable.cells), np.int64, len(usable.cells))
    binds = usable.budgets == least[people.person_of_row]
    rows = np.flatnonzero(binds)[::-1]  # the first that binds is written last
    binding = np.zeros(people.n_people, dtype=np.int64)
    binding[people.person_of_row[rows]] = said[rows]
    counts, bound = np.bincount(said, minlength=len(names)), np.bincount(binding, minlength=len(names))
    return tuple(
        Level(level=name, epsilon=policy.levels[name], delta=delta, rows=int(counts[index]), people=int(bound[index]))
        for index, name in enumerate(names)
    )


def _by_number(people: People, usable: Usable) -> tuple[Level, ...]:
    rows = Counter(usable.budgets.tolist())
    return tuple(
        Level(level=g.id, epsilon=g.epsilon, delta=g.delta, rows=rows[g.epsilon], people=g.people or 0)
        for g in sorted(people.groups, key=lambda group: group.epsilon)
    )


def _conflicts(people: People, torn: NDArray[np.bool_], usable: Usable) -> Iterator[str]:
    """Yield a note on people whose rows disagree; their strictest row binds."""
    who = np.flatnonzero(torn)
    if not who.size:
        return
    rows, start = people.rows_by_person
    named = []
    for person in who[:NAMED].tolist():
        own = rows[start[person] : start[person + 1]].tolist()
        said = " and ".join(dict.fromkeys(usable.cells[row] for row in own))
        binding = usable.cells[min(own, key=lambda row: usable.budgets[row])]
        named.append(f"{show(str(people.ids[person]))} says {said} (line {usable.lines[own[0]]} on): {binding} binds")
    more = f"; and {len(who) - NAMED:,} more" if len(who) > NAMED else ""
    yield (
        f"{len(who):,} of {people.n_people:,} people have rows that disagree; the strictest binds all their rows: "
        f"{'; '.join(named)}{more}."
    )


def _lookalikes(ids: Sequence[str] | None) -> Iterator[str]:
    """Yield a note on ids that differ only in case or leading zeros: one person would have two budgets."""
    pairs = alike(dict.fromkeys(plain_ids(ids or ())))
    if pairs:
        yield f"{alike_sentence(pairs)}."
