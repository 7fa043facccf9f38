"""Standard PATE: everybody at the strictest budget, everybody's data anywhere, every vote counts 1.

The baseline of every other variant (Papernot et al. 2018): whoever would allow more is treated as strictly
as the strictest person.
"""

from collections.abc import Sequence

import numpy as np

from ipate.allocation.layout import Layout, check_groups
from ipate.people.budgets import Account, Budget, Group

EVERYONE = "everyone"
"""The id of the one group that several groups become."""


def layout(*, groups: Sequence[Group], n_teachers: int, seed: int = 0) -> Layout:
    """Lay out one group of all people, with the smallest ε and the smallest δ of anybody.

    Parameters
    ----------
    groups : sequence of Group
        Each with its number of people. A single group keeps its id; several become 'everyone'.
    n_teachers : int
        k.
    seed : int
        Accepted because every variant takes it; nothing here is drawn.
    """
    del seed
    k, sizes = check_groups(groups, n_teachers)
    epsilon, delta = min(group.epsilon for group in groups), min(group.delta for group in groups)
    name = groups[0].id if len(groups) == 1 else EVERYONE
    looser = sum(sizes[g.id] for g in groups if (g.epsilon, g.delta) != (epsilon, delta))
    notes: tuple[str, ...] = ()
    if looser:
        note = f"Everyone counts with ε = {epsilon:g} and δ = {delta:g}, the strictest of all"
        notes = (f"{note}: {looser} of {sum(sizes.values())} people would have allowed more.",)
    everyone = Group(id=name, budget=Budget(epsilon, delta), people=sum(sizes.values()))
    return Layout(
        variant="standard",
        rule="strictest",
        groups=(Account.of(everyone, 1.0),),
        teachers={name: k},
        home=dict.fromkeys(sizes, name),
        weights=np.ones(k),
        teacher_groups=(name,) * k,
        copies={name: 1},
        notes=notes,
    )
