"""What budgets afford, per variant, before any teacher is trained: from public information alone.

Everything here follows from budgets, numbers of people and teachers, and noise parameters; no data, vote
or label is looked at, so a plan may be published and parameters may be chosen by it.
"""

from ipate.plan.figures import (
    POINTS_PER_TEACHER,
    RATES,
    Chances,
    GroupPlan,
    Guaranteed,
    MoreTeachers,
    Plan,
    VariantPlan,
    auto_teachers,
    default_mechanism,
    groups_of_shares,
    labels_in,
)
from ipate.plan.making import FEWER_POINTS, make_plan

__all__ = [
    "FEWER_POINTS",
    "POINTS_PER_TEACHER",
    "RATES",
    "Chances",
    "GroupPlan",
    "Guaranteed",
    "MoreTeachers",
    "Plan",
    "VariantPlan",
    "auto_teachers",
    "default_mechanism",
    "groups_of_shares",
    "labels_in",
    "make_plan",
]
