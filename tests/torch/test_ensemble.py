"""Trained ensembles: votes in chunks and as a file, single models, saving and loading."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

import torch

from ipate.errors import InputError
from ipate.torch.ensemble import Ensemble
from ipate.torch.nets import PRESETS
from ipate.torch.training import train_ensemble

PRESET = replace(PRESETS["small"], batch_size=8, steps=10)


@pytest.fixture
def ensemble(world):
    X, y = world
    members = [range(30), [], range(30, 60), range(60, 90)]
    return train_ensemble(X, y, members, preset=PRESET, n_classes=3, device="cpu", fixed_class=2)


def votes_of(ensemble, X, chunk=1024):
    return np.concatenate([votes for _, votes in ensemble.vote(X, chunk=chunk)], axis=1)


def test_votes_do_not_depend_on_chunks(ensemble, world):
    X, _ = world
    whole = votes_of(ensemble, X)
    assert whole.dtype == np.uint8
    assert whole.shape == (4, 90)
    for chunk in (1, 7, 89, 90):
        assert np.array_equal(votes_of(ensemble, X, chunk), whole)
    assert [start for start, _ in ensemble.vote(X, chunk=40)] == [0, 40, 80]


def test_votes_do_not_depend_on_teachers_per_pass(ensemble, world, monkeypatch):
    X, _ = world
    whole = votes_of(ensemble, X)
    monkeypatch.setattr("ipate.torch.ensemble._AT_ONCE", {"cpu": 1})
    assert np.array_equal(votes_of(ensemble, X), whole)


def test_member_is_a_single_model_with_the_same_votes(ensemble, world):
    X, _ = world
    votes = votes_of(ensemble, X)
    for teacher in (0, 2, 3):
        with torch.no_grad():
            alone = ensemble.member(teacher)(torch.from_numpy(X[:, None])).argmax(dim=1)
        assert np.array_equal(votes[teacher], alone.numpy())
    assert (votes[1] == 2).all()


def test_saved_ensemble_loads_unchanged(ensemble, world, tmp_path):
    ensemble.save(tmp_path / "teachers.npz")
    again = Ensemble.load(tmp_path / "teachers.npz", device="cpu")
    assert again.identity() == ensemble.identity()
    assert np.array_equal(votes_of(again, world[0]), votes_of(ensemble, world[0]))


def test_more_than_256_classes_use_int16_votes(world):
    X, y = world
    ensemble = train_ensemble(X, y, [range(90)], preset=PRESET, n_classes=300, device="cpu", steps=1)
    assert votes_of(ensemble, X).dtype == np.int16


def test_unusable_public_points_are_refused(ensemble, world):
    X, _ = world
    with pytest.raises(InputError, match="the teachers were trained on"):
        votes_of(ensemble, X[:, :7])
    with pytest.raises(InputError, match="chunk is 0"):
        votes_of(ensemble, X, 0)
    broken = X.copy()
    broken[50] = np.nan
    with pytest.raises(InputError, match="points 40 to 79: features hold NaN"):
        votes_of(ensemble, broken, 40)


# Votes files


def test_votes_file_holds_votes_groups_weights_and_labels(ensemble, world, tmp_path):
    X, y = world
    file = ensemble.write_votes(
        tmp_path / "votes.npz", X, chunk=13, groups=["a", "a", "b", "b"], weights=[1, 1, 2, 2], labels=y
    )
    with np.load(file, allow_pickle=False) as read:
        assert np.array_equal(read["votes"], votes_of(ensemble, X))
        assert read["groups"].tolist() == ["a", "a", "b", "b"]
        assert read["weights"].tolist() == [1, 1, 2, 2]
        assert np.array_equal(read["labels"], y)
        assert int(read["classes"]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["votes.npz"]


def test_votes_file_is_readable_by_read_votes(ensemble, world, tmp_path):
    reader = pytest.importorskip("ipate.engines.teachers.votes")
    file = ensemble.write_votes(tmp_path / "votes.npz", world[0], groups=["a"] * 4)
    read = reader.read_votes(file)
    assert np.array_equal(read.votes, votes_of(ensemble, world[0]))
    assert (read.n_classes, read.groups) == (3, ("a",) * 4)


VOTES = np.arange(60).reshape(3, 20) % 7
POINTS = np.arange(20)
VOTERS = Ensemble(net=PRESET.net, image=(1, 8, 8), n_classes=7, state={"weight": torch.zeros(3, 1)})


def record_starts(monkeypatch, stop=99):
    """Replace voting by VOTES in chunks of 4 that stop at a query; return the list of queries it starts from."""
    starts = []

    def vote(self, X, **settings):
        starts.append(int(X[0]))
        for begin in range(starts[-1], 20, 4):
            if begin >= stop:
                raise KeyboardInterrupt
            yield begin, VOTES[:, begin : begin + 4]

    monkeypatch.setattr(Ensemble, "vote", vote)
    return starts


@pytest.mark.parametrize("torn", [0, 1, 2])
def test_interrupted_votes_file_is_continued(tmp_path, monkeypatch, torn):
    target = tmp_path / "votes.npz"
    record_starts(monkeypatch, stop=8)
    with pytest.raises(KeyboardInterrupt):
        VOTERS.write_votes(target, POINTS)
    assert not target.exists()
    with (tmp_path / "votes.npz.part").open("ab") as part:
        part.write(b"\1" * torn)  # a query that was written incompletely
    starts = record_starts(monkeypatch)
    VOTERS.write_votes(target, POINTS)
    assert starts == [8]
    assert np.array_equal(np.load(target)["votes"], VOTES)


@pytest.mark.parametrize(
    ("voters", "points"),
    [(VOTERS, POINTS + np.eye(20, dtype=int)[9]), (replace(VOTERS, state={"weight": torch.ones(3, 1)}), POINTS)],
    ids=["points", "teachers"],
)
def test_part_for_other_teachers_or_points_is_discarded(tmp_path, monkeypatch, voters, points):
    target = tmp_path / "votes.npz"
    record_starts(monkeypatch, stop=8)
    with pytest.raises(KeyboardInterrupt):
        VOTERS.write_votes(target, POINTS)
    starts = record_starts(monkeypatch)
    voters.write_votes(target, points)
    assert starts == [0]
    assert np.array_equal(np.load(target)["votes"], VOTES)


@pytest.mark.parametrize("extra", [{"groups": ["a"]}, {"weights": [1.0]}, {"labels": np.zeros(3, int)}])
def test_wrong_lengths_are_refused_before_voting(tmp_path, monkeypatch, extra):
    starts = record_starts(monkeypatch)
    with pytest.raises(InputError, match="have the shape"):
        VOTERS.write_votes(tmp_path / "votes.npz", POINTS, **extra)
    assert starts == []


def test_votes_file_without_queries_is_empty(ensemble, world, tmp_path):
    file = ensemble.write_votes(tmp_path / "votes.npz", world[0][:0])
    assert np.load(file)["votes"].shape == (4, 0)
