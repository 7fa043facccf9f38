"""People for the tests of the variants: small, with any budgets, in any order."""

import numpy as np
from hypothesis import strategies as st

from ipate.people.budgets import Budget, Group
from ipate.people.people import People

DELTA = 1e-9

budgets = st.tuples(
    st.sampled_from([0.3, np.log(2), 1.0, 1.5, 2.0, 3.0, np.log(8), 5.0]), st.sampled_from([1e-9, 1e-8])
)


@st.composite
def many_groups(draw, *, most=5, largest=40):
    """Groups of different budgets with their sizes, in random order, with ids that say nothing of rank."""
    kinds = draw(st.lists(budgets, min_size=1, max_size=most, unique=True))
    names = draw(st.permutations([f"g{place}" for place in range(len(kinds))]))
    return [
        Group(id=name, budget=Budget(float(e), d), people=draw(st.integers(1, largest)))
        for name, (e, d) in zip(names, kinds, strict=True)
    ]


def people_of(groups, *, shuffle=0, rows=None):
    """People of these groups, interleaved; `rows` says how many rows each person has (1 unless said)."""
    member = np.repeat(np.arange(len(groups)), [group.people for group in groups])
    member = np.random.default_rng(shuffle).permutation(member)
    owner = np.arange(len(member)) if rows is None else np.repeat(np.arange(len(member)), rows)
    ids = np.array([f"p{place}" for place in range(len(member))])
    return People(groups=tuple(groups), ids=ids, group_of_person=member, person_of_row=owner)


def teacher_of_slot(allocation):
    return np.repeat(np.arange(allocation.n_teachers), np.diff(allocation.offsets))


def holdings(allocation):
    """Who is held by whom: a bool array, teachers × people."""
    held = np.zeros((allocation.n_teachers, allocation.people.n_people), dtype=int)
    np.add.at(held, (teacher_of_slot(allocation), allocation.persons), 1)
    return held
