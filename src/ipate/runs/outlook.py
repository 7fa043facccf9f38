"""What a run affords, from its own configuration, people and chooser, before it is begun."""

from collections.abc import Sequence

from ipate.accounting.bounds import Meter
from ipate.config import RunConfig
from ipate.errors import IpateError
from ipate.ledger.admission import Roster
from ipate.people.budgets import Group, strictest_first
from ipate.planning import outlook as planning
from ipate.planning.settings import Settings, choose_settings
from ipate.planning.standing import Standing, read_standing
from ipate.runs.ledgers import find_ledger
from ipate.runs.task import Task, make_student, requested_settings
from ipate.students.confidence import check_guesses
from ipate.students.student import find_student


def standing_of(config: RunConfig, task: Task) -> Standing | None:
    """Return what earlier runs on the ledger that a run would charge left of its people's budgets.

    None if they have spent nothing, or if the run would begin a ledger of its own.
    """
    wanted = config.labelling
    roster = Roster(
        people=dict.fromkeys(task.people.ids.tolist(), ""),
        unprotected=task.unprotected.tolist(),
        rows=config.data.file is None or config.data.person is None,
        overlap=config.data.allow_overlap,
    )
    found = find_ledger(config, roster)
    if found is None:
        return None
    meter = Meter(wanted.bound, wanted.conversion)
    return read_standing(found.path, task.people, roster, meter=meter, noise=config.noise)


def told_standing(config: RunConfig, task: Task) -> tuple[Standing | None, list[str]]:
    """Return what earlier runs left of the budgets, and what a plan says about that; a refusal is told, not raised."""
    try:
        standing = standing_of(config, task)
    except IpateError as error:
        return None, [f"The run would be refused: {error}. These figures are for whole budgets."]
    if standing is None:
        return None, []
    if standing.private:
        why = "depend on private votes, so what is left is private, and the run affords no more than this"
        return standing, [f"These figures are for whole budgets: costs of earlier runs on {standing.ledger} {why}."]
    spent = [
        f"{group.id} ε = {left.epsilon(group.budget):.4g} of {group.epsilon:g}"
        for group in strictest_first(task.people.groups)
        if (left := standing.groups.get(group.id)) is not None
    ]
    spending = f"Earlier runs on {standing.ledger} have spent at most {', '.join(spent)}"
    return standing, [f"{spending}; these figures are for what is left."]


def chosen_settings(
    config: RunConfig, task: Task, groups: Sequence[Group] | None = None, *, standing: Standing | None = None
) -> Settings:
    """Return the settings that a run chooses for its groups, or for others, and for what is left of their budgets."""
    n_public, n_classes = len(task.parts.public), task.data.n_classes
    return choose_settings(
        groups=task.people.groups if groups is None else groups,
        n_public=n_public,
        n_classes=n_classes,
        standing=standing,
        **requested_settings(config, n_classes=n_classes),
    )


def check_useful(config: RunConfig, task: Task) -> None:
    """Refuse a run whose student could learn nothing useful, or lacks the probabilities that the aggregator needs.

    Nothing is trained or written before.
    """
    standing = standing_of(config, task)
    settings = planning.check_useful(
        lambda groups: chosen_settings(config, task, groups, standing=standing),
        task.people.groups,
        n_public=len(task.parts.public),
        n_classes=task.data.n_classes,
        seed=config.split_seed,
        needed=config.labelling.min_labels,
        key="labelling.min_labels or --min-labels",
        standing=standing,
    )
    if settings.n_first is not None:
        check_guesses(find_student(config.student.model), make_student(config))
