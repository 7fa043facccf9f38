"""What a site says about its rows, its people's budgets and its teachers, and what follows before any training."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ipate.budgets import People, Policy
from ipate.data import Dataset, read_data
from ipate.errors import InputError
from ipate.npz import read_npz
from ipate.parties.encoding import Encoding
from ipate.tables import show
from ipate.variants import Allocation, allocate
from ipate.variants.rules import check_count, refuse_name

__all__ = ["Asked", "allocate_people", "read_rows"]

_REFUSED = {
    "upsampling": (
        "copies are whole numbers in the ratio of all people's budgets, and a site knows its own people only; and "
        "teachers that mix groups cannot be weighted by budgets when votes are merged; use weighting"
    ),
    "vanishing": (
        "who sits out depends on the budgets of all sites; fit with weighting, which trains the same teachers, and "
        "let the aggregator choose: ipate label --variant vanishing"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a site says about its data, its people's budgets and its teachers.

    Attributes
    ----------
    label, level, epsilon_column, person : str, optional
        The columns of the class, the consent level or the ε, and the person, as in `ipate.data.read_data`.
    policy : Policy, optional
        What levels mean.
    epsilon : float, optional
        One ε for everybody, where the data names none.
    delta : float, optional
        δ; the policy's unless given, else 1e-5. A δ made from the number of people would tell that number.
    merge_within : float, optional
        As in `People.from_budgets`.
    variant : {"weighting", "standard"}
    teachers, points : int
        How many teachers, or how many people each should have.
    seed : int
        The public split seed.
    """

    label: str | None = None
    level: str | None = None
    epsilon_column: str | None = None
    person: str | None = None
    policy: Policy | None = None
    epsilon: float | None = None
    delta: float | None = None
    merge_within: float | None = None
    variant: str = "weighting"
    teachers: int | None = None
    points: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variant in _REFUSED:
            raise InputError(f"variant is {self.variant!r}: {_REFUSED[self.variant]}")
        if self.variant not in ("weighting", "standard"):
            refuse_name("variant", self.variant, ("weighting", "standard"))


def read_rows(data: Path, encoding: Encoding, asked: Asked) -> Dataset:
    """Read a site's rows as the queries are encoded: the same features by name, the same classes in order."""
    if data.suffix.lower() == ".npz" and data.is_file():
        stated = tuple(str(name) for name in read_npz(data, ["classes"]).get("classes", np.array([])).ravel())
        if stated and stated != encoding.classes:
            raise InputError(
                f"{data}: its classes are {show(stated)}, and those of the queries {show(encoding.classes)}"
            )
    rows = read_data(
        data, label=asked.label, level=asked.level, epsilon=asked.epsilon_column, person=asked.person,
        features=encoding.features or None, classes=encoding.classes,
    )  # fmt: skip
    encoding.check_rows(rows.X, file=str(data))
    return rows


def allocate_people(rows: Dataset, asked: Asked, data: Path) -> Allocation:
    """Deal a site's people to its teachers; more groups than teachers would be refused, so each has one at least."""
    people = _people(rows, asked, data)
    points = check_count("points", asked.points)
    wanted = max(len(people.groups), people.n_people // points) if asked.teachers is None else asked.teachers
    return allocate(asked.variant, people=people, n_teachers=wanted, seed=asked.seed)


def _people(rows: Dataset, asked: Asked, data: Path) -> People:
    """Whose rows these are and what they consent to: their own ε, their level under the policy, or one ε for all."""
    fallback = 1e-5 if asked.delta is None else asked.delta
    consent = rows.epsilon is not None or rows.levels is not None
    if consent and asked.epsilon is not None:
        raise InputError(f"epsilon is {asked.epsilon:g}: {data} says what its people consent to; leave it out")
    if rows.levels is None and asked.policy is not None:
        raise InputError(f"a policy is given, and {data} has no consent levels: name their column, or leave it out")
    if rows.levels is not None:
        if asked.policy is None:
            raise InputError(f"{data} has consent levels and no policy: say which ε each level means")
        if asked.merge_within is not None:
            raise InputError("merge_within is for budgets that are numbers: levels are few already")
        given = None if asked.delta is None and asked.policy.delta is not None else fallback
        return People.from_levels(rows.levels, policy=asked.policy, delta=given, person_id=rows.person_id)
    if rows.epsilon is None and asked.epsilon is None:
        raise InputError(f"{data} names no budgets: name its column of consent levels or of ε, or give one ε for all")
    epsilon = rows.epsilon if rows.epsilon is not None else np.full(rows.n_rows, asked.epsilon)
    return People.from_budgets(epsilon, delta=fallback, person_id=rows.person_id, merge_within=asked.merge_within)
