"""The private votes as their own reference: a design made from them would publish what they look like."""

import json

import numpy as np
import pytest

from ipate.cli.app import _run

TEACHERS, QUERIES, CLASSES = 60, 120, 5
NOISE = ["--sigma", "12", "--check-sigma", "20", "--threshold", "30"]


def draw(seed, spread=1.5):
    """Votes on the same queries by teachers that are right on average 9 times of 10."""
    truth, rng = np.random.default_rng(0), np.random.default_rng(seed)
    label, easy = truth.integers(CLASSES, size=QUERIES), 1 / (1 + np.exp(-2.5 - spread * truth.normal(size=QUERIES)))
    right = rng.random((TEACHERS, QUERIES)) < easy
    return np.where(right, label, rng.integers(CLASSES, size=(TEACHERS, QUERIES)))


def save(path, votes, *, queries=None):
    named = {} if queries is None else {"queries": np.array(queries)}
    np.savez(path, votes=votes, groups=np.repeat(["high", "low"], TEACHERS // 2), classes=CLASSES, **named)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "groups.csv").write_text("group,epsilon\nhigh,8\nlow,12\n")
    save("votes.npz", draw(1))
    return tmp_path


def disguised(how):
    """The private votes in a form that the hash of the whole file does not recognise."""
    votes, rng = draw(1), np.random.default_rng(3)
    if how == "one query dropped":
        return votes[:, :-1], None
    if how == "a part in another order":
        kept = rng.permutation(QUERIES)[: 2 * QUERIES // 3]
        return votes[rng.permutation(TEACHERS)][:, kept], [str(place) for place in kept]
    if how == "other ids and order":
        return votes[rng.permutation(TEACHERS)][:, rng.permutation(QUERIES)[1:]], [f"q{i}" for i in range(QUERIES - 1)]
    changed = votes.copy()
    changed[0, rng.permutation(QUERIES)[: QUERIES // 3]] = 0  # a third of the queries is changed a little
    return changed, None


HOW = ["one query dropped", "a part in another order", "other ids and order", "a third changed"]


def design(votes="votes.npz", **more):
    extra = [part for name, value in more.items() for part in (f"--{name}", value)]
    return _run(["design", votes, "--groups", "groups.csv", *NOISE, "--out", "d.json", *extra])


@pytest.mark.parametrize("how", HOW)
def test_design_refuses_a_copy_as_reference(files, capsys, how):
    votes, queries = disguised(how)
    save("copy.npz", votes, queries=queries)
    assert design(reference="copy.npz") == 2
    assert "independent of these people" in capsys.readouterr().err
    assert not (files / "d.json").exists()


@pytest.mark.parametrize("how", HOW)
def test_label_refuses_a_design_made_from_a_copy(files, capsys, how):
    votes, queries = disguised(how)
    save("copy.npz", votes, queries=queries)
    save("decoy.npz", draw(2))  # the design is made beside another file, so that nothing can be noticed yet
    assert design("decoy.npz", reference="copy.npz") == 0
    label = ["label", "votes.npz", "--groups", "groups.csv", *NOISE, "--bound", "ptr", "--out", "labels.csv"]
    assert _run([*label, "--design", "d.json"]) == 2
    assert "agrees with them on over 50%" in capsys.readouterr().err
    assert not (files / "labels.csv").exists()
    with np.load("votes.npz") as kept:
        assert kept["votes"].shape == (TEACHERS, QUERIES)


def test_votes_of_other_teachers_are_accepted(files, capsys):
    save("others.npz", draw(2))
    assert design(reference="others.npz") == 0
    assert "if the reference is independent of these people" in " ".join(capsys.readouterr().out.split())
    label = ["label", "votes.npz", "--groups", "groups.csv", *NOISE, "--bound", "ptr", "--out", "labels.csv"]
    assert _run([*label, "--design", "d.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_plan_calls_its_figures_public_conditionally(files, capsys):
    save("others.npz", draw(2))
    (files / "sized.csv").write_text("group,epsilon,people\nhigh,8,6000\nlow,12,6000\n")
    arguments = ["plan", "--groups", "sized.csv", "--classes", "5", "--teachers", "60", "--pool", "200", *NOISE]
    assert _run([*arguments, "--reference", "others.npz"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "published if the reference is independent of these people" in told
    assert "All three may be published" not in told
