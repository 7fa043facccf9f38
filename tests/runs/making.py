"""Small, fast runs with their own or a shared ledger."""

from contextlib import contextmanager

from ipate.config import RunConfig
from ipate.runs.folder import RunFolder
from ipate.runs.stages import execute

SMALL = {
    "data": {"name": "digits", "public": 500, "test": 300},
    "budgets": {"policy": {"high": 6.0, "low": 20.0}, "shares": {"high": 0.6, "low": 0.4}},
    "teachers": {"model": "bayes", "number": 30, "backend": "sequential"},
    "labelling": {"sigma": 3.0, "check_sigma": 6.0, "threshold": 12.0, "min_labels": 0},
    "student": {"model": "bayes"},
}


@contextmanager
def quiet(*_):
    yield lambda done: None


def config(**options):
    values = {name: {**SMALL[name], **options.pop(name, {})} for name in SMALL}
    return RunConfig.from_mapping({**values, **options})


def resumed(path):
    return execute(RunFolder.open(path), bar=quiet)


def run(path, **options):
    return execute(RunFolder.create(path, config(**options)), bar=quiet)


def labels(number, **more):
    return {"max_labels": number, **more}
