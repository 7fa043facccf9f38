"""Who learns from whom: people dealt to teachers evenly, copies of one person to different teachers."""

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.layout import Layout
from ipate.allocation.participation import separate
from ipate.errors import InputError
from ipate.people.people import People

Ints = NDArray[np.int64]


def deal(*, people: People, layout: Layout, seed: int) -> tuple[Ints, Ints]:
    """Return the people of all teachers, teacher after teacher, and where each teacher begins.

    All people are shuffled once, then dealt in turn; where groups have teachers of their own, each group
    among these. So one group gives the same deal under every variant.

    Returns
    -------
    offsets : array of shape (k + 1,)
    persons : array of shape (slots,)
        Teacher t has the people `persons[offsets[t]:offsets[t + 1]]`, by index.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(people.n_people)
    home = home_of(people, layout)[order]
    copies = np.array([layout.copies[group.id] for group in layout.groups])[home]
    if layout.teacher_groups is None:
        persons, teachers = deal_slots(order, copies, layout.n_teachers, rng)
    else:
        start = 0
        parts = []
        for position, group in enumerate(layout.groups):
            own = home == position
            who, where = deal_slots(order[own], copies[own], layout.teachers[group.id], rng)
            parts.append((who, where + start))
            start += layout.teachers[group.id]
        persons, teachers = (np.concatenate(column) for column in zip(*parts, strict=True))
    sizes = np.bincount(teachers, minlength=layout.n_teachers)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    placed = np.argsort(teachers * people.n_people + persons)
    return offsets, persons[placed]


def home_of(people: People, layout: Layout) -> Ints:
    """Return every person's group, by position in the layout's groups (merged people: where they count)."""
    position = {group.id: place for place, group in enumerate(layout.groups)}
    for group in people.groups:
        if group.id not in layout.home:
            raise InputError(f"group {group.id!r} is not in the layout: it must be made from these people")
    return np.array([position[layout.home[group.id]] for group in people.groups])[people.group_of_person]


def deal_slots(order: Ints, copies: Ints, n_teachers: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Deal people in the given order to teachers, as often as they have copies, never twice to one.

    A person's copies stand next to each other and slots go to the teachers in rounds, so sizes differ by
    at most one. With single copies a round is 0, 1, 2, …; with several it is a fresh shuffle, so that
    every pair of teachers shares about as many people. A person at the end of a round goes on into the
    next, which `separate` arranges; it can't where somebody is in more than half of all teachers, and
    there rounds stay in order.

    Returns
    -------
    persons, teachers : arrays of shape (slots,)
    """
    persons = np.repeat(order, copies)
    slots, most = len(persons), int(copies.max(initial=1))
    turn = np.arange(slots)
    if most == 1 or 2 * most > n_teachers:
        return persons, turn % n_teachers
    rounds = -(-slots // n_teachers)
    drawn = rng.permuted(np.tile(np.arange(n_teachers), (rounds, 1)), axis=1)
    begin = np.cumsum(copies) - copies
    starts = np.arange(rounds + 1) * n_teachers
    inside = starts < slots
    holder = np.searchsorted(begin, np.minimum(starts, slots - 1), side="right") - 1
    trail = np.where(inside, starts - begin[holder], 0)
    lead = np.where(trail > 0, begin[holder] + copies[holder] - starts, 0)
    before = np.concatenate([drawn[:1], drawn[:-1]])
    final = separate(drawn, before, trail=trail[:-1], lead=lead[:-1], fixed=trail[1:])
    return persons, final.ravel()[:slots]
