"""What a run affords, from its own configuration, people and chooser, before it is begun."""

from dataclasses import replace

from ipate.ballots.design import ENOUGH
from ipate.errors import InputError
from ipate.people.budgets import Budget, Group
from ipate.planning.outlook import Outlook, foresee
from ipate.planning.settings import Settings, choose_settings
from ipate.planning.voting import ballot_designs
from ipate.runs.config import RunConfig
from ipate.runs.task import Task, requested_settings


def chosen_settings(config: RunConfig, task: Task, groups: tuple[Group, ...] | None = None) -> Settings:
    """Return the settings that a run chooses for its groups, or for others."""
    n_public, n_classes = len(task.parts.public), task.data.n_classes
    return choose_settings(
        groups=task.people.groups if groups is None else groups,
        n_public=n_public,
        n_classes=n_classes,
        **requested_settings(config, n_classes=n_classes),
    )


def check_useful(config: RunConfig, task: Task) -> None:
    """Refuse a run whose student could learn nothing useful, before anything is trained or written.

    The rule is public: with the best of the reference profiles, the budgets and the pool must afford one label per
    class, or `labelling.min_labels`. Bounds that depend on votes may afford more than a plan knows, and are not
    refused. Ballots are named where they afford more.
    """

    def outlook(groups: tuple[Group, ...], settings: Settings) -> Outlook:
        n_public, n_classes = len(task.parts.public), task.data.n_classes
        return foresee(settings, groups, n_public=n_public, n_classes=n_classes, seed=config.split_seed)

    settings = chosen_settings(config, task)
    if settings.ballots:  # what they afford is told as a warning
        return
    if settings.meter.whole or not settings.meter.data_independent:
        return
    found = outlook(task.people.groups, settings)
    needed = found.needed if config.labelling.min_labels == "auto" else config.labelling.min_labels
    if found.most >= needed:
        return
    doubled = tuple(replace(group, budget=Budget(2 * group.epsilon, group.delta)) for group in task.people.groups)
    more = outlook(doubled, chosen_settings(config, task, doubled)).most
    raise InputError(
        f"these budgets and this pool afford {found.most} labels at most for {task.data.n_classes} classes, and a "
        f"student needs {needed} (labelling.min_labels): nothing was trained and nobody's budget was spent. Larger "
        f"budgets (twice every ε affords {more}), more people, a larger pool (it has {len(task.parts.public)} points) "
        f"or fewer classes would help; ipate plan shows what affords how much{_ballots(task)}"
    )


def _ballots(task: Task) -> str:
    """Return what ballots would afford the same people, to be added to a refusal of teachers."""
    n_public, n_classes = len(task.parts.public), task.data.n_classes
    designs = ballot_designs(task.people.groups, n_public=n_public, n_classes=n_classes)
    if not designs:
        return ""
    found = designs["weighting"]
    reliable = "which is reliable" if found.per_class >= ENOUGH else f"where {ENOUGH:g} are reliable"
    return (
        f". Ballots (--voting ballots) would label all {n_public} points at once: together they weigh "
        f"{found.per_class:.1f} noise deviations per class, {reliable}"
    )
