"""Standard PATE: everybody at the strictest budget, everybody's data anywhere, every vote counts 1.

The baseline of every other variant (Papernot et al. 2018): whoever would allow more is treated as strictly
as the strictest person.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ipate.allocation.layout import Layout, TrainedElsewhere, Variant, check_groups
from ipate.errors import InputError
from ipate.people.budgets import Account, Budget, Group
from ipate.votes import Votes
from ipate.votes.panel import Panel

EVERYONE = "everyone"
"""The id of the one group that several groups become."""


class Standard(Variant):
    """One group of all people, with the smallest ε and the smallest δ of anybody."""

    name = "standard"
    summary = "everybody counts alike, at the strictest budget"
    individual = False
    influence_title = None
    report_note = "Standard PATE: everybody counts alike, and the strictest budget ends the run."
    site_refusal = None

    def layout(self, *, groups: Sequence[Group], n_teachers: int, seed: int = 0) -> Layout:
        """Lay out one group, which keeps its id if it is the only one; nothing is drawn from the seed."""
        del seed
        k, sizes = check_groups(groups, n_teachers)
        strictest = Budget(min(group.epsilon for group in groups), min(group.delta for group in groups))
        name = groups[0].id if len(groups) == 1 else EVERYONE
        people, looser = sum(sizes.values()), sum(sizes[group.id] for group in groups if group.budget != strictest)
        notes: tuple[str, ...] = ()
        if looser:
            note = f"Everyone counts with ε = {strictest.epsilon:g} and δ = {strictest.delta:g}, the strictest of all"
            notes = (f"{note}: {looser} of {people} people would have allowed more.",)
        return Layout(
            variant=self.name,
            rule="strictest",
            groups=(Account.of(Group(id=name, budget=strictest, people=people), 1.0),),
            teachers={name: k},
            home=dict.fromkeys(sizes, name),
            weights=np.ones(k),
            teacher_groups=(name,) * k,
            copies={name: 1},
            notes=notes,
        )

    def suits(self, groups: Sequence[Group], *, parties: bool) -> str | None:
        """Recommend standard PATE where nobody has another budget."""
        if parties or len({group.budget for group in groups}) > 1:
            return None
        return "Everybody has the same budget: every variant is standard PATE."

    def panel(self, given: TrainedElsewhere) -> tuple[Votes, Panel]:
        """Put everyone at the strictest budget, every vote at weight 1, every person in one teacher."""
        votes = replace(given.votes, participation=None, weights=None)
        epsilon, delta = min(row[1] for row in given.budgets), min(row[2] for row in given.budgets)
        for name, _, _, sensitivity in given.budgets:
            if sensitivity not in (None, 1.0):
                raise InputError(
                    f"group {name!r} has the sensitivity {sensitivity:g}: in standard PATE a person moves one vote"
                )
        if votes.groups is not None:
            return votes, Panel.from_votes(votes, [(name, epsilon, delta, 1.0) for name, *_ in given.budgets])
        groups = tuple(Account.of(Group(id=name, budget=Budget(epsilon, delta)), 1.0) for name, *_ in given.budgets)
        return votes, Panel(groups=groups, weights=np.ones(votes.n_teachers), disjoint=True)
