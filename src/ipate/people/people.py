"""People, their privacy budgets, and the groups of people with equal budgets.

A group is identified by its id, never by its position. A person's budget is only ever made stricter, and every change
is reported in `People.notes`. The number of people, their budgets and who shares a teacher are public.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ipate._types import Ints
from ipate.errors import InputError, check_count, show
from ipate.files import FilePath, read_table
from ipate.people.budgets import MIN_GROUP_SIZE, Group
from ipate.people.grouping import (
    Where,
    by_level,
    by_number,
    find_rows,
    merge_groups,
    number_column,
    regrouped,
    row_name,
)
from ipate.people.ids import plain_id
from ipate.people.policy import Policy


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class People:
    """People with their ids, groups and rows of the data.

    Create one with `from_budgets`, `from_levels` or `from_csv`.

    Attributes
    ----------
    groups : tuple of Group
        The distinct budgets, in order of first appearance.
    ids : array of str, shape (people,)
        The id of every person.
    group_of_person : integer array of shape (people,)
        The index in `groups` of every person's group.
    person_of_row : integer array of shape (rows,)
        The index in `ids` of every row's person.
    notes : tuple of str
        Sentences that state which budgets were changed, and for how many people.
    """

    groups: tuple[Group, ...]
    ids: NDArray[np.str_]
    group_of_person: Ints
    person_of_row: Ints
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.ids, self.group_of_person, self.person_of_row):
            array.flags.writeable = False

    def __repr__(self) -> str:
        """Return sizes and groups, without anybody's id."""
        return f"People({self.n_people} people, {self.n_rows} rows, {_named(self.groups)})"

    @classmethod
    def from_budgets(
        cls,
        epsilon: ArrayLike,
        *,
        delta: ArrayLike | Mapping[float, float],
        person_id: ArrayLike | None = None,
        merge_within: float | None = None,
    ) -> Self:
        """Group people by the ε of each row.

        Parameters
        ----------
        epsilon
            One ε per row.
        delta
            One δ for all, one per row, a mapping from ε to δ, or "auto": the smaller of 1e-5 and 0.1/people.
        person_id
            One id per row (text or whole numbers). Default: every row is one person, whose id is the row number.
            A person whose rows disagree gets the smallest ε and the smallest δ of them.
        merge_within
            Merge budgets of equal δ within this relative tolerance, between 0 and 1. The smallest ε anchors a
            cluster of all budgets up to ε·(1 + merge_within), which get the anchor's ε; the next larger ε anchors
            the next cluster. No ε is increased, or reduced by more than the tolerance.
        """
        numbers = number_column("epsilon", epsilon, row_name)
        return cls(**by_number(find_rows(person_id, len(numbers), row_name), numbers, delta, None, merge_within))

    @classmethod
    def of_groups(cls, groups: Sequence[Group]) -> Self:
        """Return as many people as the groups have, one row each, known by their numbers alone: for plans."""
        sizes = [check_count(f"people of group {show(group.id)}", group.people, least=0) for group in groups]
        people = np.arange(sum(sizes))
        places = np.repeat(np.arange(len(sizes)), sizes)
        return cls(
            groups=tuple(groups), ids=people.astype(np.str_), group_of_person=places, person_of_row=people.copy()
        )

    @classmethod
    def from_levels(
        cls,
        levels: Sequence[str] | NDArray[Any],
        *,
        policy: Policy,
        delta: ArrayLike | Mapping[str, float] | None = None,
        person_id: ArrayLike | None = None,
    ) -> Self:
        """Group people by the consent level of each row, which the policy maps to ε.

        δ is one for all, one per row, a mapping from level to δ, or "auto". The policy's δ is the default and the
        upper limit. A person whose rows disagree gets the strictest budget of them.
        """
        return cls(**by_level(find_rows(person_id, len(levels), row_name), levels, policy, delta, None))

    @classmethod
    def from_csv(
        cls,
        path: FilePath,
        *,
        epsilon_column: str | None = None,
        level_column: str | None = None,
        person_column: str | None = None,
        delta_column: str | None = None,
        policy: Policy | None = None,
        delta: float | str | Mapping[Any, float] | None = None,
        merge_within: float | None = None,
    ) -> Self:
        """Group people by a column of ε (default: "epsilon") or of consent levels in a CSV file.

        Other columns are ignored, so the file may also hold the data. An empty cell of the δ column means `delta`,
        or the policy's δ if `delta` is not given.
        """
        if level_column is None and policy is not None:
            raise InputError("policy is given without level_column: a policy needs the column of consent levels")
        if level_column is not None and (epsilon_column or policy is None or merge_within is not None):
            raise InputError(
                f"level_column is {show(level_column)}: it needs a policy, and excludes epsilon_column and merge_within"
            )
        budget_column = level_column or epsilon_column or "epsilon"
        extra = [column for column in (person_column, delta_column) if column is not None]
        table = read_table(path, required=list(dict.fromkeys([budget_column, *extra])), others=True, people=True)
        person_id = None if person_column is None else table.texts(person_column)
        deltas = None if delta_column is None else table.numbers(delta_column, "delta", optional=True)
        given = None if deltas is None else np.array(deltas, dtype=np.float64)
        rows = find_rows(person_id, len(table.lines), table.where)
        if policy is not None:
            return cls(**by_level(rows, table.texts(budget_column), policy, delta, given))
        numbers = np.array(table.numbers(budget_column, "epsilon"), dtype=np.float64)
        return cls(**by_number(rows, numbers, delta, given, merge_within))

    @classmethod
    def unnamed(cls, groups: Sequence[Group]) -> Self:
        """Return groups whose people are not known, such as those of votes from elsewhere."""
        nobody = np.zeros(0, dtype=np.int64)
        return cls(
            groups=tuple(groups), ids=np.zeros(0, dtype=np.str_), group_of_person=nobody, person_of_row=nobody.copy()
        )

    def merged(self, *, max_groups: int | None = None, min_group_size: int = MIN_GROUP_SIZE) -> Self:
        """Return the people in fewer groups; everybody's budget stays or becomes stricter, and notes state the loss.

        At most `max_groups` groups remain, chosen so that the sum of the μ that people lose is smallest, and groups
        of fewer than `min_group_size` people join the next stricter one. The strictest group never does.
        """
        home, notes = merge_groups(self.groups, max_groups=max_groups, min_group_size=min_group_size)
        if not notes:
            return self
        place = np.unique(home, return_inverse=True)[1][self.group_of_person]
        return replace(self, groups=regrouped(self.groups, home), group_of_person=place, notes=(*self.notes, *notes))

    @property
    def n_people(self) -> int:
        """The number of people."""
        return len(self.ids)

    @property
    def n_rows(self) -> int:
        """The number of rows of the data."""
        return len(self.person_of_row)

    @cached_property
    def by_id(self) -> Mapping[str, Group]:
        """The groups by their ids."""
        return {group.id: group for group in self.groups}

    @property
    def group_sizes(self) -> dict[str, int]:
        """The number of people of each group, by group id."""
        return {group.id: group.people or 0 for group in self.groups}

    @property
    def shares(self) -> dict[str, float]:
        """The share of all people in each group, by group id."""
        return {group: size / self.n_people for group, size in self.group_sizes.items()}

    @property
    def strictest(self) -> Group:
        """The group with the smallest ε; ties are broken by the smallest δ."""
        return min(self.groups, key=lambda group: (group.epsilon, group.delta))

    @cached_property
    def rows_by_person(self) -> tuple[Ints, Ints]:
        """All rows sorted by person, and the offsets: person i has `rows[start[i]:start[i+1]]`."""
        rows = np.argsort(self.person_of_row, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(self.person_of_row, minlength=self.n_people))])
        return rows.astype(np.int64), start.astype(np.int64)

    @cached_property
    def _sorted_ids(self) -> tuple[Ints, NDArray[np.str_]]:
        order = np.argsort(self.ids)
        return order, self.ids[order]

    def index_of(self, person: str | int) -> int:
        """Return a person's index in `ids` and `group_of_person`."""
        order, ids = self._sorted_ids
        wanted = plain_id(person)
        place = int(np.searchsorted(ids, wanted))
        if place == len(ids) or ids[place] != wanted:
            raise InputError(f"person is {show(person)}: nobody has this id")
        return int(order[place])

    def rows_of(self, person: str | int) -> Ints:
        """Return a person's rows of the data, in ascending order."""
        rows, start = self.rows_by_person
        index = self.index_of(person)
        return rows[start[index] : start[index + 1]]

    def group_of(self, person: str | int) -> Group:
        """Return a person's group."""
        return self.groups[int(self.group_of_person[self.index_of(person)])]


def _named(groups: Sequence[Group], most: int = 5) -> str:
    """Return the first groups with their numbers of people, as a short text."""
    shown = ", ".join(f"{group.id}: {group.people}" for group in groups[:most])
    return f"{len(groups)} groups: {shown}{', …' if len(groups) > most else ''}"


def make_people(
    n_rows: int,
    *,
    budgets: Any = None,
    levels: Any = None,
    policy: Policy | Mapping[str, float] | None = None,
    epsilon: float | None = None,
    delta: float | str = "auto",
    person_id: Any = None,
    merge_within: float | None = None,
    source: str = "the data",
    place: Where = row_name,
) -> People:
    """Return the people of `n_rows` rows, from an ε per row, consent levels with a policy, or one ε for everybody.

    δ = "auto" means the policy's δ, or else `usual_delta`; `source` names the data in messages, and `place` a row.
    """
    for name, values in (("budgets", budgets), ("levels", levels), ("person_id", person_id)):
        if values is not None and np.ndim(values) and len(values) != n_rows:
            raise InputError(f"{name} has {len(values)} entries for {n_rows} rows: there must be one per row")
    if budgets is not None and levels is not None:
        raise InputError("budgets and levels are both given: give only one of them")
    if epsilon is not None and (budgets is not None or levels is not None):
        raise InputError(f"epsilon is {epsilon:g}: {source} already has budgets or consent levels; remove epsilon")
    if levels is None and policy is not None:
        raise InputError(f"a policy is given but {source} has no consent levels: name their column, or remove it")
    if levels is not None and policy is None:
        known = ", ".join(f"{level} = 1.0" for level in sorted({str(level) for level in levels})[:5])
        raise InputError(
            f"{source} has consent levels without a policy: give the ε of each level, as policy = {{ {known} }} in "
            "[budgets] of a TOML file, with --policy FILE, or with policy= in Python"
        )
    if budgets is None and levels is None and epsilon is None:
        needs = "an ε per row, consent levels with a policy, or one ε for everybody"
        raise InputError(f"no budgets: {source} needs {needs}")
    if levels is not None:
        if merge_within is not None:
            raise InputError(f"merge_within is {merge_within:g}: it applies to numeric budgets, not to levels")
        rule = policy if isinstance(policy, Policy) else Policy.from_mapping(policy or {})
        return People(**by_level(find_rows(person_id, len(levels), place), levels, rule, delta, None))
    given = np.full(n_rows, epsilon, dtype=np.float64) if budgets is None else budgets
    numbers = number_column("epsilon", given, place)
    return People(**by_number(find_rows(person_id, len(numbers), place), numbers, delta, None, merge_within))
