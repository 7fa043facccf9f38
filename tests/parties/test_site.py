"""A site keeps what is private, sends predictions only, and loads its teachers from its own folder alone."""

import dataclasses
import json
import os
import pickle
import tomllib
import zipfile

import joblib
import numpy as np
import pytest

from ipate.data.files import read_data
from ipate.errors import DeltaWarning, InputError, SingleClassWarning, TeacherError
from ipate.parties.manifest import read_site_votes
from ipate.parties.queries import Asked, Queries, make_queries
from ipate.parties.site import Site, fit_site
from ipate.people.policy import Policy
from ipate.teachers.ensemble import train_and_vote
from ipate.teachers.models import make_model
from ipate.votes.store import VoteStore
from parties.making import PEOPLE, POLICY, queries, read_file, write_site

COLUMNS = {"label": "diagnosis", "level": "consent", "person": "patient"}


def asked_of(site, **changes):
    return Asked(**{**COLUMNS, "policy": Policy.from_mapping(tomllib.loads(POLICY[site])), "n_teachers": 10, **changes})


def fitted(folder, site="north", *, encoding, estimator=None, out=None, **changes):
    folder.mkdir(exist_ok=True)
    rows = write_site(folder, site, seed=3)
    return fit_site(
        rows,
        out or folder / "site",
        name=site,
        encoding=encoding,
        asked=asked_of(site, **changes),
        estimator=make_model("bayes", {}) if estimator is None else estimator,
    )


def fit_east(rows, out, encoding, asked, estimator=None):
    model = make_model("bayes", {}) if estimator is None else estimator
    return fit_site(rows, out, name="east", encoding=encoding, asked=asked, estimator=model)


@pytest.fixture
def pool(tmp_path):
    return queries(tmp_path)


@pytest.fixture
def site(tmp_path, pool):
    return fitted(tmp_path / "north", encoding=pool.encoding)


def test_a_site_declares_its_own_groups_and_keeps_its_folder_to_itself(site):
    assert [(g.id, g.epsilon, g.delta, g.teachers) for g in site.groups] == [
        ("north/high", 1.0, 1e-5, 6),
        ("north/low", 3.0, 1e-5, 4),
    ]
    assert (site.folder / "private").stat().st_mode & 0o077 == 0
    assert [path.name for path in site.folder.iterdir()] == ["private"]


def test_teachers_vote_as_those_of_a_run_do(tmp_path, site, pool):
    """The same rows, seed and model through `train_and_vote`: the same votes, and what travels is what was cast."""
    site.vote(pool, tmp_path / "votes.npz")
    data = read_data(tmp_path / "north" / "rows.csv", **COLUMNS, features=["age", "bmi"], classes=["well", "ill"])
    low, high = np.array(pool.encoding.bounds).T
    rows = [site.allocation.rows_of_teacher(teacher) for teacher in range(10)]
    store = VoteStore(tmp_path / "store", n_teachers=10, n_queries=len(pool), n_classes=2, fingerprint="")
    train_and_vote(
        make_model("bayes", {}),
        (data.X - low) / (high - low),
        data.y,
        rows=rows,
        X_public=(pool.X - low) / (high - low),
        store=store,
    )
    votes, manifest, _ = read_file(tmp_path / "votes.npz")
    np.testing.assert_array_equal(votes, store.matrix)
    assert [teacher["group"] for teacher in manifest["teachers"]] == ["north/high"] * 6 + ["north/low"] * 4


def test_one_person_moves_one_teacher(tmp_path, site, pool):
    """Somebody's rows become any other: nothing but the one teacher that learnt from them is another, byte by byte."""
    for person, (bmi, age) in {"north-7": ("49.0", "1.0"), "north-150": ("11.0", "99.0")}.items():
        folder = tmp_path / person
        folder.mkdir()
        lines = write_site(folder, "north", seed=3).read_text().splitlines()
        place = next(i for i, line in enumerate(lines) if line.startswith(f"{person},"))
        label, level = lines[place].split(",")[2], lines[place].split(",")[4]
        lines[place] = ",".join([person, bmi, "well" if label == "ill" else "ill", age, level])
        (folder / "rows.csv").write_text("\n".join(lines) + "\n")
        changed = fit_site(
            folder / "rows.csv",
            folder / "site",
            name="north",
            encoding=pool.encoding,
            asked=asked_of("north"),
            estimator=make_model("bayes", {}),
        )
        own = site.allocation.teachers_of(site.allocation.people.index_of(person))
        assert (
            tuple(i for i, pair in enumerate(zip(site.hashes, changed.hashes, strict=True)) if len({*pair}) > 1) == own
        )
        assert len(own) == 1


def test_a_vote_file_holds_predictions_and_declarations_and_nothing_else(tmp_path, site, pool):
    path = tmp_path / "votes.npz"
    manifest, fingerprint = site.vote(pool, path)
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == ["manifest.npy", "sha256.npy", "votes.npy"]
    raw = path.read_bytes()
    assert b"north-" not in raw  # people's ids begin so
    assert b"sklearn" not in raw
    stated = read_file(path)[1]
    assert set(stated) == {
        "format", "ipate", "site", "fit", "variant", "queries", "votes", "n_queries", "encoding", "groups", "teachers",
    }  # fmt: skip
    assert all(set(group) == {"id", "epsilon", "delta", "teachers"} for group in stated["groups"])
    assert str(PEOPLE["north"]) not in json.dumps([stated["groups"], stated["teachers"]])
    found = read_site_votes(path)
    assert (found.manifest, found.fingerprint) == (manifest, fingerprint)
    assert path.stat().st_mode & 0o077 == 0


def test_the_same_votes_are_the_same_file(tmp_path, site, pool):
    site.vote(pool, tmp_path / "one.npz")
    with joblib.parallel_config("threading"):
        Site.open(site.folder).vote(pool, tmp_path / "other.npz", n_jobs=2)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()


def test_other_queries_spend_budgets_anew_and_are_refused_unless_said(tmp_path, site, pool):
    (tmp_path / "elsewhere").mkdir()
    others = queries(tmp_path / "elsewhere", seed=10)
    site.vote(pool, tmp_path / "one.npz")
    site.vote(pool, tmp_path / "same.npz")
    with pytest.raises(InputError, match=r"has voted on other queries before .* spends people's budgets anew"):
        site.vote(others, tmp_path / "two.npz")
    assert not (tmp_path / "two.npz").exists()
    site.vote(others, tmp_path / "two.npz", again=True)
    with pytest.raises(InputError, match="has voted on other queries before"):
        site.vote(pool, tmp_path / "three.npz")


def test_a_voting_that_fails_leaves_no_file_and_no_record(tmp_path, site, pool):
    (site.folder / "private" / "teachers" / "00003.joblib").unlink()
    with pytest.raises(InputError, match=r"00003\.joblib: the teacher is not there"):
        site.vote(pool, tmp_path / "votes.npz")
    assert sorted(path.name for path in tmp_path.glob("*votes*")) == []
    assert not (site.folder / "private" / "given.json").exists()


def test_two_processes_never_vote_at_once(tmp_path, site, pool):
    with site._held(), pytest.raises(InputError, match="another process votes here"):
        site.vote(pool, tmp_path / "votes.npz")


def test_a_record_that_cannot_be_read_is_not_forgotten(tmp_path, site, pool):
    (site.folder / "private" / "given.json").write_text("{")
    with pytest.raises(InputError, match="nobody knows what this site has voted on"):
        site.vote(pool, tmp_path / "votes.npz")


def test_a_teacher_that_cannot_vote_is_named(tmp_path, site, pool):
    other = pool.encoding.model_copy(update={"features": ("age",), "bounds": ((0.0, 100.0),), "shape": (1,)})
    narrow = dataclasses.replace(site, encoding=other)
    with pytest.raises(TeacherError, match=r"00000\.joblib: the teacher cannot vote \(ValueError: .*features"):
        narrow.vote(Queries(X=pool.X[:, :1], encoding=other), tmp_path / "votes.npz")


class Planted:
    """What somebody would put in the place of a teacher: it leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("how", ["written over", "linked", "in a folder elsewhere"])
def test_a_teacher_that_was_not_trained_here_is_never_unpickled(tmp_path, site, pool, how):
    mark, target = tmp_path / "mark", site.folder / "private" / "teachers" / "00000.joblib"
    if how == "in a folder elsewhere":
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


def test_a_place_and_a_number_of_workers_that_cannot_be_are_refused_before_anything_is_begun(tmp_path, site, pool):
    rows = tmp_path / "north" / "rows.csv"
    options = {"name": "north", "encoding": pool.encoding, "asked": asked_of("north")}
    with pytest.raises(InputError, match="n_jobs is 0"):
        fit_site(rows, tmp_path / "new", estimator=make_model("bayes", {}), n_jobs=0, **options)
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="n_jobs is 0"):
        site.vote(pool, tmp_path / "votes.npz", n_jobs=0)
    with pytest.raises(InputError, match=r"rows\.csv: is a file"):
        fit_site(rows, rows, estimator=make_model("bayes", {}), **options)


def test_a_teacher_that_lay_there_before_the_fitting_is_not_taken_for_a_trained_one(tmp_path, pool):
    target = tmp_path / "north" / "site" / "private" / "teachers" / "00000.joblib"
    target.parent.mkdir(parents=True)
    target.write_bytes(pickle.dumps(Planted(tmp_path / "mark")))
    with pytest.raises(InputError, match="holds files that no fitting put there"):
        fitted(tmp_path / "north", encoding=pool.encoding)
    assert not (tmp_path / "north" / "site" / "private" / "site.json").exists()


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of posix")
@pytest.mark.parametrize("name", ["private", "private/teachers"])
def test_a_folder_that_others_can_write_to_is_not_loaded_from(tmp_path, site, pool, name):
    (site.folder / name).chmod(0o777)
    with pytest.raises(InputError, match="others own it or can write to it"):
        Site.open(site.folder).vote(pool, tmp_path / "votes.npz")


def test_an_interrupted_fitting_is_continued_with_the_same_data_only(tmp_path, pool, monkeypatch):
    from ipate.parties import teachers

    trained = []
    true = teachers._fit_one

    def dies(estimator, own, teacher, *rest):
        if teacher == 4 and not trained.count(4):
            trained.append(4)
            raise KeyboardInterrupt
        trained.append(teacher)
        return true(estimator, own, teacher, *rest)

    monkeypatch.setattr(teachers, "_fit_one", dies)
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "north", encoding=pool.encoding)
    with pytest.raises(InputError, match="holds no fitted site"):
        Site.open(tmp_path / "north" / "site")
    with pytest.raises(InputError, match="another fitting was begun here"):
        fitted(tmp_path / "north", encoding=pool.encoding, n_teachers=20)
    site = fitted(tmp_path / "north", encoding=pool.encoding)
    assert sorted(trained) == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    assert len(site.hashes) == 10
    with pytest.raises(InputError, match="already holds a fitted site"):
        fitted(tmp_path / "north", encoding=pool.encoding)


def test_a_teacher_that_fails_is_named(tmp_path, pool):
    with pytest.raises(TeacherError, match=r"teacher 0 and 9 others failed: .*solver"):
        fitted(tmp_path / "n", encoding=pool.encoding, estimator=make_model("logistic", {"solver": "none"}))


def test_standard_counts_everyone_at_the_strictest_of_the_site(tmp_path, pool):
    site = fitted(tmp_path / "south", "south", encoding=pool.encoding, variant="standard")
    assert [(g.id, g.epsilon, g.delta, g.teachers) for g in site.groups] == [("south/everyone", 0.5, 1e-6, 10)]


REFUSED = {
    "upsampling": "a site knows its own people only",
    "vanishing": "--variant vanishing",
    "wieghting": "nearest is",
}


@pytest.mark.parametrize("variant", REFUSED)
def test_variants_that_do_not_compose_are_refused_with_a_reason(variant):
    with pytest.raises(InputError, match=REFUSED[variant]):
        Asked(variant=variant)


def test_budgets_are_taken_from_the_people_and_never_overridden(tmp_path, pool):
    folder = tmp_path / "north"
    with pytest.raises(InputError, match=r"epsilon is 9: .* says what its people consent to"):
        fitted(folder, encoding=pool.encoding, epsilon=9.0)
    with pytest.raises(InputError, match="consent levels without a policy"):
        fitted(folder, encoding=pool.encoding, policy=None)
    with pytest.raises(InputError, match="no budgets"):
        fitted(folder, encoding=pool.encoding, level=None, policy=None)
    with pytest.raises(InputError, match="no consent levels"):
        fitted(folder, encoding=pool.encoding, level=None)
    assert not (folder / "site").exists()
    one = fitted(folder, encoding=pool.encoding, level=None, policy=None, epsilon=2.0, delta=1e-4)
    assert [(g.id, g.epsilon, g.delta) for g in one.groups] == [("north/eps=2", 2.0, 1e-4)]


def test_numbers_of_people_s_own_become_groups(tmp_path, pool):
    folder = tmp_path / "east"
    folder.mkdir()
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=90)
    np.savez(
        folder / "rows.npz",
        X=np.column_stack([30 + 40 * y, 20 + 10 * y]) + rng.normal(size=(90, 2)),
        y=y,
        classes=["well", "ill"],
        feature_names=["age", "bmi"],
        epsilon=np.where(np.arange(90) < 30, 1.0, np.where(np.arange(90) < 60, 1.02, 4.0)),
    )
    asked = Asked(merge_within=0.05, points_per_teacher=10)
    site = fit_east(folder / "rows.npz", folder / "site", pool.encoding, asked)
    assert [(g.id, g.epsilon, g.teachers) for g in site.groups] == [("east/eps=1", 1.0, 6), ("east/eps=4", 4.0, 3)]


def arrays(folder, **changes):
    y = np.arange(40) % 2
    given = {
        "X": np.column_stack([30.0 + 40 * y, 20.0 + 10 * y]), "y": y, "feature_names": ["age", "bmi"],
        "classes": ["well", "ill"], "epsilon": np.full(40, 2.0),
    }  # fmt: skip
    np.savez(folder / "rows.npz", **{name: value for name, value in {**given, **changes}.items() if value is not None})
    return folder / "rows.npz"


MISMATCHED = {
    "classes in another order": ({"classes": ["ill", "well"]}, "its classes are"),
    "a feature by another name": ({"feature_names": ["years", "bmi"]}, "'age'"),
    "no names": ({"feature_names": None}, "feature_names"),
    "another unit": ({"X": np.column_stack([np.full(40, 500.0), np.full(40, 22.0)])}, "'age' lies outside the bounds"),
    "another class": ({"classes": None, "y": np.array(["well", "sick"] * 20)}, "'sick'"),
}


@pytest.mark.parametrize("case", MISMATCHED)
def test_rows_that_are_encoded_otherwise_than_the_queries_are_refused(tmp_path, pool, case):
    changes, words = MISMATCHED[case]
    with pytest.raises(InputError, match=words):
        fit_east(arrays(tmp_path, **changes), tmp_path / "site", pool.encoding, Asked(n_teachers=2))
    assert not (tmp_path / "site").exists()


def test_queries_that_are_encoded_otherwise_than_the_site_are_refused(tmp_path, site, pool):
    changed = pool.encoding.model_copy(update={"bounds": ((0.0, 120.0), (10.0, 50.0))})
    with pytest.raises(InputError, match=r"bounds of feature 'age' are \(0\.0, 120\.0\), not \(0\.0, 100\.0\)"):
        site.vote(Queries(X=pool.X, encoding=changed), tmp_path / "votes.npz")


def test_images_are_voted_on_as_they_are(tmp_path):
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
        Asked(n_teachers=4),
        estimator=make_model("forest", {"n_estimators": 3}),
    )
    site.vote(asked, tmp_path / "votes.npz")
    votes, _, _ = read_file(tmp_path / "votes.npz")
    assert np.mean(votes == y[:9]) > 0.8


def test_a_delta_of_one_in_all_people_is_warned_of_and_a_group_of_one_class_too(tmp_path, pool):
    with pytest.warns(DeltaWarning):
        fitted(tmp_path / "a", encoding=pool.encoding, delta=0.01, level=None, policy=None, epsilon=1.0)
    path = arrays(tmp_path, epsilon=np.where(np.arange(40) % 2, 1.0, 3.0))
    with pytest.warns(SingleClassWarning):
        site = fit_east(path, tmp_path / "site", pool.encoding, Asked(n_teachers=4))
    site.vote(pool, tmp_path / "votes.npz")
    votes, _, _ = read_file(tmp_path / "votes.npz")
    assert {tuple(np.unique(row)) for row in votes} == {(0,), (1,)}  # nothing to learn: a fixed vote
