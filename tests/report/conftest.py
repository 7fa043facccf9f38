"""Small runs, each made once: releasable and private ones, and every variant."""

import shutil

import pytest

from ipate.config import RunConfig
from ipate.runs.folder import RunFolder
from ipate.runs.reporting import write_report
from ipate.runs.stages import execute
from runs.making import SMALL, quiet


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return a function that makes a run once per set of options and returns its folder."""
    known = {}

    def make(*, budgets=None, seed=None, compare=False, **labelling):
        key = repr((budgets, seed, compare, sorted(labelling.items())))
        if key not in known:
            values = {**SMALL, "seed": seed, "compare": compare, "labelling": {**SMALL["labelling"], **labelling}}
            if labelling.get("voting") == "ballots":
                values |= {"labelling": labelling, "teachers": {"backend": "sequential"}}
            if budgets is not None:
                values["budgets"] = budgets
            folder = RunFolder.create(tmp_path_factory.mktemp("run") / "run", RunConfig.from_mapping(values))
            execute(folder, bar=quiet)
            known[key] = folder.path
        return known[key]

    return make


@pytest.fixture(scope="session")
def reported(made):
    """Return a function that writes the report of a run once."""
    known = {}

    def write(audience="public", **options):
        key = repr((audience, sorted(options.items(), key=repr)))
        if key not in known:
            known[key] = write_report(made(**options), audience=audience)
        return known[key]

    return write


@pytest.fixture
def copied(made, tmp_path):
    """Return a function that copies the folder of a run, so that a test may modify it."""

    def copy(**options):
        target = tmp_path / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made(**options), target)
        return target

    return copy
