"""Settings of teachers and what they afford, from keyword arguments."""

import json
from functools import partial

from ipate.engines.base import Means
from ipate.engines.teachers import outlook, settings
from ipate.engines.teachers.engine import Teachers
from ipate.runs.ledgers import standing_of
from ipate.runs.task import options_of, prepare

_OPTIONS = {"n_teachers": "number", "points_per_teacher": "points", "teacher": "model"}


def means_of(*, groups, n_public, n_classes, **more):
    """Return groups and sizes, and what else an engine is given: seed, student, standing."""
    return Means(groups=tuple(groups), n_pool=n_public, n_classes=n_classes, **more)


def teachers(**options):
    """Return teachers with these options."""
    return Teachers(**{_OPTIONS.get(name, name): value for name, value in options.items()})


def _split(given):
    facts = ("groups", "n_public", "n_classes", "seed", "student", "standing")
    known = {name: given.pop(name) for name in facts if name in given}
    return teachers(**given), means_of(**known)


def choose_settings(**given):
    """Return the settings that teachers with these options choose for these groups and sizes."""
    return settings.choose_settings(*_split(given))


def foresee(chosen, groups, **facts):
    """Return what settings afford these groups."""
    return outlook.foresee(chosen, means_of(groups=groups, **facts))


def prospect(groups, **given):
    """Return what these people and this pool afford to teachers with these options."""
    return outlook.prospect(*_split({"groups": groups, **given}))


def read_back(text):
    """Return the settings of teachers that `to_json` wrote."""
    values = json.loads(text)
    del values["format"], values["engine"]
    return settings.TeacherSettings.from_plain(values)


def chosen_by_run(config):
    """Return the input of a run, and the settings that it chooses, or raise its refusal."""
    task = prepare(config)
    options = options_of(config, n_classes=task.n_classes, image=task.image)
    return task, options.request.settle(options.facts(task), partial(standing_of, task))
