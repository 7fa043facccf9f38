"""Vanishing: every teacher learns from one group, and teachers of strict groups sit out some queries.

A vote costs its people only where it was cast, so a fraction (μ_g/μ_max)² of the queries lets all groups exhaust
together. Votes are scaled by k over the number who take part. The schedule is public: no amplification by subsampling
is claimed, and every teacher has an account of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipate.allocation.layout import Layout, check_distinct
from ipate.allocation.participation import Participation
from ipate.allocation.variant import TrainedElsewhere, Variant, affordance
from ipate.allocation.weighting import blocs_of
from ipate.errors import InputError, check_count, show
from ipate.people.budgets import Account, Group
from ipate.votes import Votes
from ipate.votes.panel import Panel


def fractions_for(*, groups: Sequence[Group], power: float | None = None) -> Mapping[str, float]:
    """Return in which share of the queries each group's teachers take part, by id; the laxest in all.

    The share is (μ_g/μ_max)², what exact Gaussian accounting affords, or with a `power` (ε_g/ε_max)^power:
    1 in the paper's Algorithm 3, 2 in its appendix, 4 in its experiments.
    """
    check_distinct(groups)
    if power is not None and (
        isinstance(power, bool) or not isinstance(power, int | float) or not 0 <= power < float("inf")
    ):
        raise InputError(f"power is {show(power)}: it must be a finite number, 0 or above")
    afforded = {g.id: affordance("gdp" if power is None else "proportional", g.budget) for g in groups}
    most, exponent = max(afforded.values()), 2.0 if power is None else float(power)
    return {name: (value / most) ** exponent for name, value in afforded.items()}


class Vanishing(Variant):
    """Teachers of one group each, and the schedule by which they take turns."""

    name = "vanishing"
    summary = "teachers of people who allow less sit out some queries"
    takes_turns = True
    groups_can_leave = False
    influence = "fraction"
    influence_title = "takes part in"
    show_influence = "participation"
    site_refusal = (
        "who sits out depends on the budgets of all sites; fit with weighting, which trains the same teachers, and "
        "let the aggregator choose: ipate label --variant vanishing"
    )

    def layout(self, *, groups: Sequence[Group], n_teachers: int, seed: int = 0, power: float | None = None) -> Layout:
        """Lay out teachers of one group each, and a schedule from the public seed.

        Where every fraction is 1 there is no schedule: everybody always takes part, as in standard PATE.
        """
        even = blocs_of(groups=groups, n_teachers=n_teachers)
        fractions = fractions_for(groups=[account.group for account in even.groups], power=power)
        schedule, worst = None, 1.0
        if any(fraction < 1 for fraction in fractions.values()):
            number = check_count("seed", seed, least=0)
            schedule = Participation(seed=number, fractions=fractions, teacher_groups=even.teacher_groups or ())
            worst = schedule.worst_sensitivity
        rule = "gdp" if power is None else f"power {power:g}"
        accounts = tuple(Account(group=account.group, sensitivity=worst) for account in even.groups)
        return replace(even, variant=self.name, rule=rule, groups=accounts, participation=schedule)

    def recognises(self, votes: Votes) -> bool:
        """Take votes that say who takes part for those of teachers that take turns."""
        return votes.participation is not None

    def panel(self, given: TrainedElsewhere) -> tuple[Votes, Panel]:
        """Use the file's participation, or make the schedule: the n-th query asked is its n-th."""
        teachers, votes = given.teacher_groups(self.name), given.votes
        if votes.participation is None:
            shares = fractions_for(groups=given.groups, power=given.power)
            schedule = Participation(seed=given.split_seed, fractions=shares, teacher_groups=teachers)
            votes = replace(votes, participation=schedule.in_order(votes.n_queries, given.order))
        elif given.power is not None:
            raise InputError(f"power is {given.power:g}: the votes file already says who takes part")
        votes = replace(votes, weights=None)
        return votes, Panel.from_votes(votes, given.budgets)
