"""What a student can expect before any training: labels and their accuracy by the stated profiles of teachers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ipate.engines.base import Means
from ipate.engines.teachers.plan import expect
from ipate.engines.teachers.settings import TeacherOptions, TeacherSettings, changed, choose_settings
from ipate.engines.teachers.tuning import SKILLS, reference_profile
from ipate.engines.teachers.variants import VARIANTS, find_variant
from ipate.errors import MOST_EPSILON, InputError, TooFewLabelsError, check_count, counted
from ipate.people.budgets import Budget, Group

LABELS_PER_CLASS = 3  # a run that expects fewer is refused: of random points, a class would often have no label
COVERED = 1  # the same where points are chosen so that every part of the pool has some


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a variant with these settings is expected to give its student.

    Attributes
    ----------
    variant, n_teachers, people_per_teacher
        The variant, its number of teachers after scaling, and the people whom each learns from.
    labels, fewest, most : int
        The number of labels on average over the profiles, and for the worst and the best of them.
    right : float
        The expected accuracy of the labels, on average over the profiles.
    clean : int
        The number of correct labels that teach as much: labels × ((right − 1/C)/(1 − 1/C))².
    needed : int
        How many labels must be expected, or a run is refused.
    """

    variant: str
    n_teachers: int
    people_per_teacher: float
    labels: int
    fewest: int
    most: int
    right: float
    clean: int
    needed: int

    @property
    def useful(self) -> bool:
        """Whether as many labels are expected as a student needs."""
        return self.labels >= self.needed


@dataclass(frozen=True, kw_only=True)
class Step:
    """What it would bring if the people of one group allowed as much as the next looser one."""

    group: str
    people: int
    epsilon: float
    to: float
    labels: int


def foresee(settings: TeacherSettings, means: Means) -> Outlook:
    """Return what the settings afford these groups on this pool, by the reference profiles.

    A bound that depends on votes is replaced by the one that plans for it.
    """
    points, n_classes = max(1, means.n_people // settings.n_teachers), means.n_classes
    profiles = [reference_profile(n_classes, points, skill=skill) for skill in SKILLS]
    found = expect(settings, means, profiles)
    labels, right = np.array(found.labels), np.array(found.right)
    skill = np.maximum(0.0, (right - 1 / n_classes) / (1 - 1 / n_classes))
    needed = labels_per_class(settings) * n_classes
    return Outlook(
        variant=settings.variant,
        n_teachers=found.plan.n_teachers,
        people_per_teacher=found.plan.people_per_teacher,
        labels=int(labels.mean()),
        fewest=int(labels.min()),
        most=int(labels.max()),
        right=float(right.mean()),
        clean=int(np.mean(labels * skill**2)),
        needed=needed if settings.max_labels is None else min(needed, settings.max_labels),
    )


def labels_per_class(settings: TeacherSettings) -> int:
    """Return how many labels per class a student needs, by the rule that chooses the points."""
    return LABELS_PER_CLASS if settings.queries == "random" else COVERED


def check_enough(
    asked: TeacherOptions, settings: TeacherSettings, means: Means, *, needed: int | str, key: str
) -> None:
    """Refuse budgets and a pool from which a student could learn nothing useful, before training.

    The rule is public: on average over the reference profiles they must afford 3 labels per class, or `needed`, which
    the message calls `key`. Bounds that depend on votes may afford more than a plan knows, and are not refused.
    """
    least = None if needed == "auto" else check_count(key, needed, least=0)
    if settings.meter.whole or not settings.meter.data_independent:
        return
    found, standing = foresee(settings, means), means.standing
    why = f"by {key}" if least is not None else f"{labels_per_class(settings)} per class; set {key} to accept fewer"
    least = found.needed if least is None else least
    spent = standing is not None and not standing.private and not found.most
    if found.labels >= least or (spent and find_variant(settings.variant).show_influence != "participation"):
        return  # the ledger itself refuses budgets that are spent and names the group, unless teachers rotate
    doubled = replace(means, groups=tuple(replace(group, budget=_doubled(group.budget)) for group in means.groups))
    more = foresee(choose_settings(asked, doubled), doubled).labels
    budgets = "these budgets" if standing is None else "what earlier runs left of these budgets"
    if standing is not None and standing.private:
        budgets = "these budgets, counted whole,"
    raise TooFewLabelsError(
        f"{budgets} and this pool afford about {counted(found.labels, 'label')} for {means.n_classes} classes "
        f"({found.most} with the best teachers), and a student needs {least} ({why}): nothing was trained and nobody's "
        f"budget was spent. Larger budgets (twice every ε affords about {more}), more people, a larger pool (it has "
        f"{counted(means.n_pool, 'point')}) or fewer classes would help; ipate plan shows what affords how much"
    )


def _doubled(budget: Budget) -> Budget:
    """Return a budget of twice the ε, or of the largest one."""
    return Budget(min(2 * budget.epsilon, MOST_EPSILON), budget.delta)


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """The chosen settings and what they afford, every other variant with its own settings, and more consent."""

    settings: TeacherSettings
    outlook: Outlook
    others: tuple[Outlook, ...]
    steps: tuple[Step, ...]

    def facts(self) -> dict[str, Any]:
        """Return the prospect as a dictionary for JSON."""
        outlook = [asdict(found) | {"useful": found.useful} for found in (self.outlook, *self.others)]
        return {"outlook": outlook, "more_consent": [asdict(step) for step in self.steps]}


def prospect(asked: TeacherOptions, means: Means, *, progress: Callable[[int], None] | None = None) -> Prospect:
    """Return what these people and this pool afford, by the chooser that a run uses."""
    done = 0

    def found(settings: TeacherSettings, means: Means) -> Outlook:
        nonlocal done
        made = foresee(settings, means)
        done += 1
        if progress is not None:
            progress(done)
        return made

    settings = choose_settings(asked, means)
    tested: dict[str, Any] = {}
    if settings.meter.whole:  # a design is for one layout; what it adds is not known here
        tested = {"reference": None, "bound": "gdp"}
    others = []
    for name, variant in VARIANTS.items():
        if name == settings.variant or (settings.stop == "drop" and not variant.groups_can_leave):
            continue
        own = {"variant": name, "rule": None, "power": None, **tested}
        try:
            others.append(found(choose_settings(changed(asked, **own), means), means))
        except InputError:  # this variant needs more teachers
            continue
    steps = []
    for group, epsilon, moved in more_consent(means.groups):
        left = means.standing
        if left is not None:  # what a person has spent goes with them
            into = next(other for other in moved if other.epsilon == epsilon)
            left = left.joined(group.id, into.id, into.budget)
        after = replace(means, groups=moved, standing=left)
        labels = found(choose_settings(changed(asked, **tested), after), after).labels
        steps.append(Step(group=group.id, people=group.people or 0, epsilon=group.epsilon, to=epsilon, labels=labels))
    return Prospect(settings=settings, outlook=found(settings, means), others=tuple(others), steps=tuple(steps))


def more_consent(groups: Sequence[Group]) -> Iterator[tuple[Group, float, tuple[Group, ...]]]:
    """Yield each group with the ε of the next looser one, and all groups after its people allowed as much.

    If everybody has one ε, the step is to twice as much.
    """
    ordered = sorted(groups, key=lambda group: (group.epsilon, group.id))
    if len(ordered) == 1:
        (only,) = ordered
        more = _doubled(only.budget)
        yield only, more.epsilon, (replace(only, budget=more),)
        return
    for group, looser in pairwise(ordered):
        if looser.epsilon == group.epsilon:
            continue
        moved = replace(looser, people=(looser.people or 0) + (group.people or 0))
        yield group, looser.epsilon, tuple(moved if g is looser else g for g in groups if g is not group)
