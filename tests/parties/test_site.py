"""A site sends votes only, once per set of queries, and loads its teachers from its own folder alone."""

import dataclasses
import json
import os
import pickle
import zipfile

import joblib
import numpy as np
import pytest

from ipate.data.sources import read_data
from ipate.errors import InputError
from ipate.models.named import make_model
from ipate.models.training import train_and_vote
from ipate.parties.exchange import read_site_votes
from ipate.parties.queries import Queries, make_queries
from ipate.parties.site import Site, SiteOptions
from parties.making import COLUMNS, PEOPLE, Planted, fit_east, queries, read_file


def test_site_declares_own_groups_in_private_folder(site):
    assert [(g.id, g.epsilon, g.delta, g.teachers) for g in site.groups] == [
        ("north/high", 1.0, 1e-5, 6),
        ("north/low", 3.0, 1e-5, 4),
    ]
    assert (site.folder / "private").stat().st_mode & 0o077 == 0
    assert [path.name for path in site.folder.iterdir()] == ["private"]


def test_site_votes_equal_votes_of_a_run(tmp_path, site, pool):
    """The same rows, seed and model give the same votes through `train_and_vote`."""
    site.vote(pool, tmp_path / "votes.npz")
    data = read_data(tmp_path / "north" / "rows.csv", **COLUMNS, features=["age", "bmi"], classes=["well", "ill"])
    low, high = np.array(pool.encoding.bounds).T
    rows = [site.allocation.rows_of_teacher(teacher) for teacher in range(10)]
    voted = train_and_vote(
        make_model("bayes", {}),
        (data.X - low) / (high - low),
        data.y,
        rows=rows,
        X_public=(pool.X - low) / (high - low),
        n_classes=2,
    )
    expected = [votes for _, votes in sorted(voted, key=lambda entry: entry[0])]
    votes, manifest, _ = read_file(tmp_path / "votes.npz")
    np.testing.assert_array_equal(votes, expected)
    assert [teacher["group"] for teacher in manifest["teachers"]] == ["north/high"] * 6 + ["north/low"] * 4


def test_vote_file_holds_votes_and_manifest_only(tmp_path, site, pool):
    path = tmp_path / "votes.npz"
    manifest, fingerprint = site.vote(pool, path)
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == ["manifest.npy", "sha256.npy", "votes.npy"]
    raw = path.read_bytes()
    assert b"north-" not in raw  # the prefix of all person ids
    assert b"sklearn" not in raw
    stated = read_file(path)[1]
    assert set(stated) == {
        "format",
        "ipate",
        "site",
        "fit",
        "variant",
        "queries",
        "votes",
        "n_queries",
        "encoding",
        "groups",
        "teachers",
    }
    assert all(set(group) == {"id", "epsilon", "delta", "teachers"} for group in stated["groups"])
    assert str(PEOPLE["north"]) not in json.dumps([stated["groups"], stated["teachers"]])
    found = read_site_votes(path)
    assert (found.manifest, found.fingerprint) == (manifest, fingerprint)
    assert path.stat().st_mode & 0o077 == 0


def test_same_votes_give_same_file(tmp_path, site, pool):
    site.vote(pool, tmp_path / "one.npz")
    with joblib.parallel_config("threading"):
        Site.open(site.folder).vote(pool, tmp_path / "other.npz", n_jobs=2)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()


def test_voting_on_other_queries_needs_again(tmp_path, site, pool):
    (tmp_path / "elsewhere").mkdir()
    others = queries(tmp_path / "elsewhere", seed=10)
    site.vote(pool, tmp_path / "one.npz")
    site.vote(pool, tmp_path / "same.npz")
    with pytest.raises(
        InputError,
        match=r"has already sent votes or ballots for other queries, cells or rows .* spends people's budgets again",
    ):
        site.vote(others, tmp_path / "two.npz")
    assert not (tmp_path / "two.npz").exists()
    site.vote(others, tmp_path / "two.npz", again=True)
    with pytest.raises(InputError, match="has already sent votes or ballots for other queries"):
        site.vote(pool, tmp_path / "three.npz")


def test_failed_vote_leaves_no_file_or_record(tmp_path, site, pool):
    (site.folder / "private" / "teachers" / "00003.joblib").unlink()
    with pytest.raises(InputError, match=r"00003\.joblib: the teacher is missing"):
        site.vote(pool, tmp_path / "votes.npz")
    assert sorted(path.name for path in tmp_path.glob("*votes*")) == []
    assert not (site.folder / "private" / "given.json").exists()


def test_second_voting_process_is_refused(tmp_path, site, pool):
    with site._sent.locked(), pytest.raises(InputError, match="another process is voting here"):
        site.vote(pool, tmp_path / "votes.npz")


def test_unreadable_record_of_votes_is_refused(tmp_path, site, pool):
    (site.folder / "private" / "given.json").write_text("{")
    with pytest.raises(InputError, match="it is unknown what this site has voted on"):
        site.vote(pool, tmp_path / "votes.npz")


def test_teacher_that_cannot_vote_votes_fixed_class(tmp_path, site, pool):
    other = pool.encoding.model_copy(update={"features": ("age",), "bounds": ((0.0, 100.0),), "shape": (1,)})
    narrow = dataclasses.replace(site, encoding=other)
    narrow.vote(Queries(X=pool.X[:, :1], encoding=other), tmp_path / "votes.npz")
    votes, _, _ = read_file(tmp_path / "votes.npz")
    assert not votes.any()
    notes = json.loads((site.folder / "private" / "notes.json").read_text())["votes"]
    assert len(notes) == len(votes)
    assert notes["0"][0].startswith("failed: ValueError: X has 1 features")


@pytest.mark.parametrize("how", ["overwritten", "linked", "in a linked folder"])
def test_foreign_teacher_file_is_never_unpickled(tmp_path, site, pool, how):
    mark, target = tmp_path / "mark", site.folder / "private" / "teachers" / "00000.joblib"
    if how == "in a linked folder":
        target.parent.rename(tmp_path / "moved")
        target.parent.symlink_to(tmp_path / "moved")
    elif how == "linked":
        true = tmp_path / "moved.joblib"
        target.rename(true)
        target.symlink_to(true)
    else:
        target.write_bytes(pickle.dumps(Planted(mark)))
    with pytest.raises(InputError, match=r"00000\.joblib|is a link"):
        site.vote(pool, tmp_path / "votes.npz")
    assert not mark.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX file modes")
@pytest.mark.parametrize("name", ["private", "private/teachers"])
def test_folder_writable_by_others_is_refused(tmp_path, site, pool, name):
    (site.folder / name).chmod(0o777)
    with pytest.raises(InputError, match="others own it or can write to it"):
        Site.open(site.folder).vote(pool, tmp_path / "votes.npz")


def test_queries_with_other_encoding_are_refused(tmp_path, site, pool):
    changed = pool.encoding.model_copy(update={"bounds": ((0.0, 120.0), (10.0, 50.0))})
    with pytest.raises(InputError, match=r"bounds of feature 'age' are \(0\.0, 120\.0\), not \(0\.0, 100\.0\)"):
        site.vote(Queries(X=pool.X, encoding=changed), tmp_path / "votes.npz")


def test_site_votes_on_images(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    images = (rng.integers(60, size=(60, 4, 4)) + 80 * y[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "pool.npz", X=images[:9], classes=["a", "b", "c"])
    np.savez(tmp_path / "rows.npz", X=images, y=y, classes=["a", "b", "c"], epsilon=np.full(60, 2.0))
    asked = make_queries(tmp_path / "pool.npz")
    site = fit_east(
        tmp_path / "rows.npz",
        tmp_path / "site",
        asked.encoding,
        SiteOptions(n_teachers=4),
        estimator=make_model("forest", {"n_estimators": 3}),
    )
    site.vote(asked, tmp_path / "votes.npz")
    votes, _, _ = read_file(tmp_path / "votes.npz")
    assert np.mean(votes == y[:9]) > 0.8
