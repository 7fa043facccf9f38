"""A fit allocates and trains by the people's own budgets, stays private, and can be continued."""

import json
import pickle

import numpy as np
import pytest

from ipate.errors import DeltaWarning, InputError
from ipate.models.named import make_model
from ipate.parties import site as fitting
from ipate.parties.site import Site, SiteOptions, fit_site
from parties.making import Planted, fit_east, fitted, options_of, read_file, write_site


def test_one_person_changes_one_teacher_only(tmp_path, site, pool):
    """Changing one person's row changes the file of exactly the one teacher that learnt from it."""
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
            options=options_of("north"),
            estimator=make_model("bayes", {}),
        )
        own = site.allocation.teachers_of(site.allocation.people.index_of(person))
        assert (
            tuple(i for i, pair in enumerate(zip(site.hashes, changed.hashes, strict=True)) if len({*pair}) > 1) == own
        )
        assert len(own) == 1


def test_bad_path_or_n_jobs_is_refused_first(tmp_path, site, pool):
    rows = tmp_path / "north" / "rows.csv"
    options = {"name": "north", "encoding": pool.encoding, "options": options_of("north")}
    with pytest.raises(InputError, match="n_jobs is 0"):
        fit_site(rows, tmp_path / "new", estimator=make_model("bayes", {}), n_jobs=0, **options)
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="n_jobs is 0"):
        site.vote(pool, tmp_path / "votes.npz", n_jobs=0)
    with pytest.raises(InputError, match=r"rows\.csv: is a file"):
        fit_site(rows, rows, estimator=make_model("bayes", {}), **options)


def test_teacher_file_from_before_fit_is_refused(tmp_path, pool):
    target = tmp_path / "north" / "site" / "private" / "teachers" / "00000.joblib"
    target.parent.mkdir(parents=True)
    target.write_bytes(pickle.dumps(Planted(tmp_path / "mark")))
    with pytest.raises(InputError, match="holds files that no fit has written"):
        fitted(tmp_path / "north", encoding=pool.encoding)
    assert not (tmp_path / "north" / "site" / "private" / "site.json").exists()


def test_interrupted_fit_continues_with_same_data_only(tmp_path, pool, monkeypatch):
    trained = []
    fit_one = fitting.fit_one

    def interrupted_once(task, **shared):
        trained.append(task[0])
        if trained.count(4) == 1 and task[0] == 4:
            raise KeyboardInterrupt
        return fit_one(task, **shared)

    monkeypatch.setattr(fitting, "_BACKEND", "sequential")
    monkeypatch.setattr(fitting, "fit_one", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "north", encoding=pool.encoding)
    with pytest.raises(InputError, match="holds no fitted site"):
        Site.open(tmp_path / "north" / "site")
    with pytest.raises(InputError, match="holds an unfinished fit with other data or settings"):
        fitted(tmp_path / "north", encoding=pool.encoding, n_teachers=20)
    site = fitted(tmp_path / "north", encoding=pool.encoding)
    assert sorted(trained) == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    assert len(site.hashes) == 10
    with pytest.raises(InputError, match="already holds a fitted site"):
        fitted(tmp_path / "north", encoding=pool.encoding)


def test_misconfigured_teacher_is_refused_without_folder(tmp_path, pool):
    with pytest.raises(InputError, match=r"teacher is LogisticRegression: it fails on \d+ made-up rows .*solver"):
        fitted(tmp_path / "n", encoding=pool.encoding, estimator=make_model("logistic", {"solver": "none"}))
    assert not (tmp_path / "n" / "site").exists()


def test_standard_uses_strictest_budget_of_site(tmp_path, pool):
    site = fitted(tmp_path / "south", "south", encoding=pool.encoding, variant="standard")
    assert [(g.id, g.epsilon, g.delta, g.teachers) for g in site.groups] == [("south/everyone", 0.5, 1e-6, 10)]


REFUSED = {
    "upsampling": "a site knows its own people only",
    "vanishing": "--variant vanishing",
    "wieghting": "nearest is",
}


@pytest.mark.parametrize("variant", REFUSED)
def test_unsupported_variant_is_refused_with_reason(variant):
    with pytest.raises(InputError, match=REFUSED[variant]):
        SiteOptions(variant=variant)


def test_budgets_of_people_are_never_overridden(tmp_path, pool):
    folder = tmp_path / "north"
    with pytest.raises(InputError, match=r"epsilon is 9: .* already has budgets or consent levels"):
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


def test_numeric_budgets_become_merged_groups(tmp_path, pool):
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
    options = SiteOptions(merge_within=0.05, points_per_teacher=10)
    site = fit_east(folder / "rows.npz", folder / "site", pool.encoding, options)
    assert [(g.id, g.epsilon, g.teachers) for g in site.groups] == [("east/eps=1", 1.0, 6), ("east/eps=4", 4.0, 3)]


def arrays(folder, **changes):
    y = np.arange(40) % 2
    given = {
        "X": np.column_stack([30.0 + 40 * y, 20.0 + 10 * y]),
        "y": y,
        "feature_names": ["age", "bmi"],
        "classes": ["well", "ill"],
        "epsilon": np.full(40, 2.0),
    }
    np.savez(folder / "rows.npz", **{name: value for name, value in {**given, **changes}.items() if value is not None})
    return folder / "rows.npz"


MISMATCHED = {
    "classes in another order": ({"classes": ["ill", "well"]}, "its classes are"),
    "a renamed feature": ({"feature_names": ["years", "bmi"]}, "'age'"),
    "no feature names": ({"feature_names": None}, "has no column 'age'"),
}


@pytest.mark.parametrize("case", MISMATCHED)
def test_rows_with_other_encoding_are_refused(tmp_path, pool, case):
    changes, words = MISMATCHED[case]
    with pytest.raises(InputError, match=words):
        fit_east(arrays(tmp_path, **changes), tmp_path / "site", pool.encoding, SiteOptions(n_teachers=2))
    assert not (tmp_path / "site").exists()


def test_large_delta_warns_and_single_class_is_noted(tmp_path, pool):
    with pytest.warns(DeltaWarning):
        fitted(tmp_path / "a", encoding=pool.encoding, delta=0.01, level=None, policy=None, epsilon=1.0)
    path = arrays(tmp_path, epsilon=np.where(np.arange(40) % 2, 1.0, 3.0))
    site = fit_east(path, tmp_path / "site", pool.encoding, SiteOptions(n_teachers=4))
    assert "see the class" in json.loads((tmp_path / "site" / "private" / "notes.json").read_text())["groups"][0]
    site.vote(pool, tmp_path / "votes.npz")
    votes, _, _ = read_file(tmp_path / "votes.npz")
    assert {tuple(np.unique(row)) for row in votes} == {(0,), (1,)}  # there is nothing to learn, so each vote is fixed
