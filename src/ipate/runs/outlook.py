"""What a run affords, from its own configuration, people and chooser, before it is begun."""

from collections.abc import Sequence

from ipate.people.budgets import Group
from ipate.planning import outlook as planning
from ipate.planning.settings import Settings, choose_settings
from ipate.runs.config import RunConfig
from ipate.runs.task import Task, requested_settings


def chosen_settings(config: RunConfig, task: Task, groups: Sequence[Group] | None = None) -> Settings:
    """Return the settings that a run chooses for its groups, or for others."""
    n_public, n_classes = len(task.parts.public), task.data.n_classes
    return choose_settings(
        groups=task.people.groups if groups is None else groups,
        n_public=n_public,
        n_classes=n_classes,
        **requested_settings(config, n_classes=n_classes),
    )


def check_useful(config: RunConfig, task: Task) -> None:
    """Refuse a run whose student could learn nothing useful, before anything is trained or written."""
    wanted = config.labelling.min_labels
    planning.check_useful(
        lambda groups: chosen_settings(config, task, groups),
        task.people.groups,
        n_public=len(task.parts.public),
        n_classes=task.data.n_classes,
        seed=config.split_seed,
        needed=None if wanted == "auto" else wanted,
        key="labelling.min_labels",
    )
