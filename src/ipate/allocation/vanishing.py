"""Vanishing: every teacher learns from one group, and teachers of strict groups sit out some votings.

A vote costs its people only where it was cast, so a fraction (μ_g/μ_max)² of the votings lets all groups
exhaust together. Votes are scaled by k over the number who take part. Whose turn it is is public: no
amplification by subsampling is claimed, and every teacher has an account of its own.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ipate.allocation.layout import Layout, affordance, check_distinct
from ipate.allocation.participation import Participation
from ipate.allocation.weighting import blocs_of
from ipate.errors import InputError, check_count, show
from ipate.people.budgets import Account, Group


def fractions_for(*, groups: Sequence[Group], power: float | None = None) -> Mapping[str, float]:
    """Return in which share of the votings each group's teachers take part, by id; the laxest in all.

    Parameters
    ----------
    groups : sequence of Group
    power : float, optional
        (ε_g/ε_max)^power: 1 in the paper's Algorithm 3, 2 in its appendix, 4 in its experiments. Without
        it (μ_g/μ_max)², what exact Gaussian accounting affords.
    """
    check_distinct(groups)
    if power is not None and (
        isinstance(power, bool) or not isinstance(power, int | float) or not 0 <= power < float("inf")
    ):
        raise InputError(f"power is {show(power)}: it must be a finite number, 0 or above")
    afforded = {g.id: affordance("gdp" if power is None else "proportional", g.budget) for g in groups}
    most, exponent = max(afforded.values()), 2.0 if power is None else float(power)
    return {name: (value / most) ** exponent for name, value in afforded.items()}


def layout(*, groups: Sequence[Group], n_teachers: int, seed: int = 0, power: float | None = None) -> Layout:
    """Lay out teachers of one group each, and the schedule by which they take turns.

    Where every fraction is 1 there is no schedule: everybody always takes part, as in standard PATE.

    Parameters
    ----------
    groups, n_teachers
        As in every variant; small groups join stricter ones as under weighting.
    seed : int
        The public seed of the rotation.
    power : float, optional
        As in `fractions_for`.
    """
    blocs = blocs_of(groups=groups, n_teachers=n_teachers)
    fractions = fractions_for(groups=blocs.groups, power=power)
    teachers = blocs.teacher_groups
    schedule = None
    if any(fraction < 1 for fraction in fractions.values()):
        schedule = Participation(seed=check_count("seed", seed, least=0), fractions=fractions, teacher_groups=teachers)
    worst = 1.0 if schedule is None else schedule.worst_sensitivity
    return Layout(
        variant="vanishing",
        rule="gdp" if power is None else f"power {power:g}",
        groups=tuple(Account.of(group, worst) for group in blocs.groups),
        teachers=blocs.teachers,
        home=blocs.home,
        weights=np.ones(len(teachers)),
        teacher_groups=teachers,
        copies=dict.fromkeys(fractions, 1),
        participation=schedule,
        merged=blocs.merged,
        notes=blocs.notes,
    )
