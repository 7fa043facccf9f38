"""A run resolves its settings once and never chooses them again."""

import json
import shutil

import numpy as np
import pytest

from ipate.engines.choose import read_settings
from ipate.engines.teachers import tuning as choose
from ipate.errors import InputError
from ipate.runs.folder import RunFolder
from ipate.runs.listing import state_of
from ipate.runs.reporting import write_report
from ipate.runs.stages import allocated, execute
from ipate.runs.statements import state
from ipate.runs.withdrawal import withdraw
from runs.leaving import StoppedError, begin, go_on
from runs.making import quiet, resumed, run

AUTO = {"sigma": "auto", "check_sigma": "auto", "threshold": "auto"}


def change_chooser(monkeypatch):
    monkeypatch.setattr(choose, "SIGMAS", (0.5, 0.6))
    monkeypatch.setattr(choose, "CHECK_SIGMAS", (0.9,))
    monkeypatch.setattr(choose, "FEWEST_TEACHERS", 7)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run whose noise was chosen, with its summary."""
    folder = begin(tmp_path_factory.mktemp("auto"), seed=3, **AUTO)
    return folder.path, go_on(folder)


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    return RunFolder.open(tmp_path / "run")


def test_resumed_run_keeps_noise_and_labels(finished, tmp_path, monkeypatch):
    _, whole = finished
    folder = begin(tmp_path, seed=3, **AUTO)
    go_on(folder, until=4, monkeypatch=monkeypatch)
    before = read_settings(folder.path / "settings.json")
    change_chooser(monkeypatch)
    again = resumed(folder.path)
    assert again.settings == before == whole.settings
    assert np.array_equal(again.record.labels, whole.record.labels)


def test_finished_run_is_read_after_chooser_changed(finished, copied, monkeypatch):
    _, whole = finished
    change_chooser(monkeypatch)
    assert state_of(copied.path).state == "complete"
    written = json.loads(write_report(copied.path, audience="private").json.read_text())
    assert f"{whole.settings.sigma:g}" in json.dumps(written)
    person = str(allocated(copied).people.ids[0])
    assert state(copied, person, private=True).person == person
    with copied.locked():
        withdraw(copied, allocated(copied), person)
    assert resumed(copied.path).settings == whole.settings


def test_withdrawal_before_training_resolves_settings(tmp_path, monkeypatch):
    folder = begin(tmp_path, seed=3, **AUTO)
    with folder.locked():
        withdraw(folder, allocated(folder), str(allocated(folder).people.ids[0]))
    before = read_settings(folder.path / "settings.json")
    change_chooser(monkeypatch)
    assert go_on(folder).settings == before


def test_settings_are_written_before_training(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise StoppedError

    monkeypatch.setattr("ipate.engines.teachers.engine.train_and_vote", stop)
    folder = begin(tmp_path, **AUTO)
    with pytest.raises(StoppedError):
        execute(folder, bar=quiet)
    assert folder.settings.n_teachers == 12


def test_training_is_closed_if_votes_cannot_be_stored(tmp_path, monkeypatch):
    closed = []

    def endless(*_, rows, **__):
        try:
            while True:
                yield 0, rows
        finally:
            closed.append(True)

    monkeypatch.setattr("ipate.engines.teachers.engine.train_and_vote", endless)
    folder = begin(tmp_path, **AUTO)
    with pytest.raises(AttributeError) as caught:  # the traceback keeps the generator alive unless it is closed
        execute(folder, bar=quiet)
    assert closed, caught


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("settings.json", None, "settings.json"),
        ("settings.json", "{", "not settings"),
        ("settings.json", '{"format": "ipate settings 0"}', "'ipate settings 0'"),
        ("settings.json", '{"format": "ipate settings 2"}', "not settings"),
        ("run.json", '{"id": "a", "versions": {}}', "its format is None"),
    ],
    ids=["missing", "no JSON", "another format", "incomplete", "another run format"],
)
def test_unreadable_settings_are_refused(copied, name, text, words):
    path = copied.path / name
    path.unlink() if text is None else path.write_text(text)
    for read in (resumed, write_report):
        with pytest.raises(InputError) as caught:
            read(copied.path)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert words in state_of(copied.path).why


def test_supervised_student_learns_from_noisy_counts(tmp_path):
    made = run(tmp_path / "counts", labelling={"counts": True})
    assert made.record.noisy_votes is not None
    assert made.metrics["student_accuracy"] > 0
