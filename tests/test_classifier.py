"""`PATEClassifier` is a valid scikit-learn classifier and stays within every budget."""

import doctest
import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import has_fit_parameter

import ipate
import ipate.classifier
from blocks import flat
from ipate import PATEClassifier, Policy
from ipate.errors import ClassesWarning, InputError, PublicRowsWarning, RepeatedFitWarning
from ipate.ledger.sqlite import SqliteLedger


def task(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 5)) + 2.5 * np.eye(3, 5)[y]
    return X, np.array(["ape", "bee", "cat"])[y]


@pytest.fixture(scope="module")
def fitted():
    X, y = task()
    pool, truth = task(600, seed=1)
    levels = np.random.default_rng(2).choice(["high", "low"], size=len(y), p=[0.7, 0.3])
    model = PATEClassifier(
        teacher=LogisticRegression(),
        student=LogisticRegression(),
        classes=["ape", "bee", "cat"],
        verbose=0,
        random_state=0,
    )
    model.fit(X, y, levels=levels, policy={"high": 1.0, "low": 3.0}, X_public=pool, y_public=truth)
    return model


def test_student_learns_and_costs_stay_within_budgets(fitted):
    X, y = task(2000, seed=9)
    assert fitted.score(X, y) > 0.7  # 22 labels, and the noise is secret
    assert {g.id: g.budget.epsilon for g in fitted.guarantees_} == {"high": 1.0, "low": 3.0}
    assert sum(g.group.people for g in fitted.guarantees_) == 3000
    assert fitted.guarantee_.kind == "releasable"
    assert "may be published" in fitted.guarantee_.statement
    for promise in fitted.guarantees_:
        assert 0.5 < promise.used <= 1
    assert np.count_nonzero(fitted.labels_ >= 0) == fitted.labelling_.n_labels
    assert fitted.vote_accuracy_ > 0.8
    np.testing.assert_allclose(fitted.predict_proba(X[:5]).sum(axis=1), 1)
    assert set(fitted.predict(X)) <= {"ape", "bee", "cat"}
    assert fitted.choice_.reason.startswith("auto chose")


def test_classifier_passes_scikit_learn_estimator_checks():
    """The noise is seeded because one of the checks compares two fits."""
    model = PATEClassifier(epsilon=1e4, public_fraction=0.5, random_state=0, noise_seed=0, min_labels=0, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(model, on_skip=None)


def test_tags_state_nondeterminism_and_poor_score():
    tags = PATEClassifier().__sklearn_tags__()
    assert tags.non_deterministic
    assert tags.classifier_tags.poor_score


def test_clone_and_get_params_keep_all_parameters():
    model = PATEClassifier(epsilon=2.0, variant="upsampling", n_teachers=7)
    assert clone(model).get_params() == model.get_params()


def test_seeded_noise_repeats_and_secure_noise_differs():
    X, y = task(600)
    pool, _ = task(300, seed=1)
    base = PATEClassifier(epsilon=3.0, classes=["ape", "bee", "cat"], verbose=0, random_state=0)
    seeded = [clone(base).set_params(noise_seed=4).fit(X, y, X_public=pool) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].labels_, seeded[1].labels_)
    assert "not private" in seeded[0].guarantee_.statement
    free = [clone(base).fit(X, y, X_public=pool) for _ in range(3)]
    assert any(not np.array_equal(free[0].labels_, other.labels_) for other in free[1:])


@pytest.mark.parametrize("variant", ["standard", "upsampling", "vanishing"])
def test_every_variant_stays_within_the_budgets(variant):
    X, y = task(1500)
    pool, _ = task(300, seed=1)
    budgets = np.random.default_rng(0).choice([2.0, 4.0], size=len(y))
    model = PATEClassifier(variant=variant, classes=["ape", "bee", "cat"], verbose=0, random_state=0, n_teachers=40)
    model.fit(X, y, budgets=budgets, X_public=pool)
    assert all(g.cost <= g.budget.epsilon for g in model.guarantees_)
    assert model.allocation_.variant == variant


def test_rows_of_person_share_teacher_and_strictest_budget():
    X, y = task(1000)
    pool, _ = task(100, seed=1)
    person = np.arange(1000) // 4
    budgets = np.where(np.arange(1000) % 4 == 0, 10.0, 50.0)
    model = PATEClassifier(classes=["ape", "bee", "cat"], verbose=0, random_state=0, n_teachers=20, sigma=5.0)
    model.fit(X, y, budgets=budgets, person_id=person, X_public=pool)
    assert [g.budget.epsilon for g in model.guarantees_] == [10.0]
    for teacher in range(20):
        rows = model.allocation_.rows_of_teacher(teacher)
        assert all(np.isin(np.flatnonzero(person == p), rows).all() for p in person[rows])


def test_data_dependent_bounds_are_called_private():
    X, y = task(1000)
    pool, _ = task(200, seed=1)
    model = PATEClassifier(epsilon=2.0, bound="exact", classes=["ape", "bee", "cat"], verbose=0, n_teachers=25)
    model.fit(X, y, X_public=pool)
    assert model.guarantee_.kind == "private"
    assert "not a differential privacy guarantee" in model.guarantee_.statement


def test_teacher_may_be_pipeline_with_scaler():
    X, y = task(1000)
    pool, _ = task(200, seed=1)
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    model = PATEClassifier(teacher=scaled, student=scaled, epsilon=3.0, classes=["ape", "bee", "cat"], verbose=0)
    model.fit(1000 * X, y, X_public=1000 * pool)
    assert model.labelling_.n_labels > 0


def test_public_labelled_data_also_trains_the_student():
    X, y = task(1000)
    pool, _ = task(200, seed=1)
    more = task(500, seed=3)
    model = PATEClassifier(epsilon=0.5, classes=["ape", "bee", "cat"], verbose=0, random_state=0)
    model.fit(X, y, X_public=pool, labelled=more)
    assert model.score(*task(1000, seed=5)) > 0.85


def test_choice_with_proxy_names_the_task(capsys):
    X, y = task(4000)
    pool, _ = task(300, seed=1)
    model = PATEClassifier(epsilon=1.0, classes=["ape", "bee", "cat"], proxy=task(800, seed=7), random_state=0)
    model.fit(X, y, X_public=pool)
    assert "public proxy task of 800 points" in model.choice_.reason
    assert "public proxy task of 800 points" in capsys.readouterr().err


def test_inferred_classes_and_public_rows_are_reported():
    X, y = task(600)
    with pytest.warns(ClassesWarning, match="3 classes from y"), pytest.warns(PublicRowsWarning, match="180 of 600"):
        PATEClassifier(epsilon=5.0, public_fraction=0.3, verbose=0).fit(X, y)


CLASSES = ["ape", "bee", "cat"]


@pytest.mark.parametrize(
    ("change", "given", "words"),
    [
        ({"epsilon": 1.0}, {}, "X_public is not given"),
        ({}, {"X_public": "pool"}, "no budgets"),
        ({}, {"X_public": "pool", "levels": ["high"] * 600}, "without a policy"),
        ({}, {"X_public": "pool", "levels": ["hihg"] * 600, "policy": Policy.from_mapping({"high": 1.0})}, "'high'"),
        ({}, {"X_public": "pool", "budgets": [1.0] * 5}, "5 entries for 600 rows"),
        ({}, {"X_public": "pool", "budgets": [0.0] * 600}, "epsilon is 0"),
        ({"epsilon": 1.0, "public_fraction": 2}, {}, "public_fraction is 2"),
        ({"epsilon": 1.0, "n_teachers": 601}, {"X_public": "pool"}, "601 and there are 600 people"),
        ({"epsilon": 1.0, "sigma": "some"}, {"X_public": "pool"}, "'some'"),
        ({"epsilon": 1.0, "classes": ["ape"]}, {"X_public": "pool"}, "at least 2 classes"),
        ({"epsilon": 1.0}, {"X_public": "pool", "y_public": ["ape"]}, r"y_public has the shape \(1,\)"),
        ({"epsilon": 1.0, "variant": "weigthing"}, {"X_public": "pool"}, "'weighting'"),
        ({"epsilon": 1.0, "stop": "later"}, {"X_public": "pool"}, "'later'"),
        ({"epsilon": 1.0, "stop": "count"}, {"X_public": "pool"}, "max_labels"),
        ({"epsilon": 1.0, "sigma": -1.0}, {"X_public": "pool"}, "sigma is -1"),
        ({"epsilon": 1.0, "n_teachers": 2.5}, {"X_public": "pool"}, "number is 2.5"),
        ({"max_groups": "few"}, {"X_public": "pool", "budgets": np.linspace(1, 2, 600)}, "max_groups is 'few'"),
        ({"min_group_size": 0}, {"X_public": "pool", "budgets": np.linspace(1, 2, 600)}, "min_group_size is 0"),
        ({"epsilon": 1e-4, "sigma": 0.5, "check_sigma": 0.5}, {"X_public": "pool"}, "nothing was trained"),
        ({"epsilon": 1.0, "teacher": "forrest"}, {"X_public": "pool"}, "nearest is 'forest'"),
        ({"epsilon": 1.0, "teacher": GaussianNB}, {"X_public": "pool"}, "it must be an estimator, such as"),
        ({"epsilon": 1.0}, {"X_public": np.zeros((9, 2))}, "X_public: X has 2 features"),
    ],
)
def test_invalid_input_is_refused_in_one_line(change, given, words):
    X, y = task(600)
    pool, _ = task(50, seed=1)
    given = {name: pool if isinstance(value, str) else value for name, value in given.items()}
    model = PATEClassifier(**{"classes": CLASSES, "verbose": 0, **change})
    with pytest.raises(InputError, match=words):
        model.fit(X, y, **given)


def test_teacher_may_be_named_as_on_command_line():
    X, y = task(600)
    model = PATEClassifier("bayes", "bayes", epsilon=5.0, classes=CLASSES, verbose=0, random_state=0)
    assert model.fit(X, y, X_public=task(50, seed=1)[0]).predict(X[:2]).shape == (2,)


def test_one_public_point_and_empty_class_are_accepted():
    X, y = task(600)
    model = PATEClassifier(epsilon=50.0, classes=[*CLASSES, "dog"], verbose=0, random_state=0)
    model.fit(X, y, X_public=X[:1])
    assert model.predict_proba(X[:2]).shape == (2, 4)
    assert model.predict_proba(X[:2])[:, 3].max() == 0
    assert (model.classes_[model.decision_function(X[:2]).argmax(axis=1)] == model.predict(X[:2])).all()


def test_pool_sorted_by_class_gets_every_label():
    X, y = task(3000)
    pool, truth = task(2000, seed=1)
    order = np.argsort(truth)
    model = PATEClassifier(epsilon=3.0, classes=CLASSES, verbose=0, random_state=0)
    model.fit(X, y, X_public=pool[order])
    assert set(model.labels_) == {-1, 0, 1, 2}


def test_budgets_are_matched_to_rows_by_position():
    """Values that are indexed by something else than pandas have no labels."""

    class Labelled:
        def __init__(self, values, index):
            self.values, self.index = np.asarray(values), list(index)

        def __len__(self):
            return len(self.values)

        def __getitem__(self, key):
            return self.values[self.index.index(key)]

        def __array__(self, dtype=None, copy=None):
            return np.array(self.values, dtype=dtype)

    X, y = task(600)
    rng = np.random.default_rng(0)
    budgets = rng.choice([1.0, 50.0], size=600)
    model = PATEClassifier(public_fraction=0.3, classes=CLASSES, verbose=0, random_state=0, noise_seed=1)
    with pytest.warns(PublicRowsWarning):
        plain = clone(model).fit(X, y, budgets=budgets)
    with pytest.warns(PublicRowsWarning):
        odd = clone(model).fit(X, y, budgets=Labelled(budgets, rng.permutation(600)))
    np.testing.assert_array_equal(plain.allocation_.people.group_of_person, odd.allocation_.people.group_of_person)


@pytest.mark.parametrize("variant", ["weighting", "upsampling", "vanishing"])
def test_everybody_may_have_their_own_epsilon(variant):
    X, y = task(600)
    pool, _ = task(100, seed=1)
    budgets = np.random.default_rng(3).uniform(5, 40, size=600)
    model = PATEClassifier(classes=CLASSES, verbose=0, random_state=0, variant=variant)
    model.fit(X, y, budgets=budgets, X_public=pool)
    people = model.allocation_.people
    assert 2 <= len(people.groups) <= 8
    given = np.array([group.epsilon for group in people.groups])[people.group_of_person]
    assert (given <= budgets).all()
    assert given.mean() > 0.8 * budgets.mean()
    assert "600 different budgets are merged into 8 groups" in model.allocation_.notes[0]


def test_groups_of_few_people_join_stricter_group():
    X, y = task(600)
    pool, _ = task(50, seed=1)
    budgets = np.where(np.arange(600) < 4, 40.0, 20.0)
    model = PATEClassifier(classes=CLASSES, verbose=0, random_state=0, n_teachers=20)
    assert model.fit(X, y, budgets=budgets, X_public=pool).allocation_.people.group_sizes == {"eps=20": 600}
    model.set_params(min_group_size=4).fit(X, y, budgets=budgets, X_public=pool)
    assert model.allocation_.people.group_sizes == {"eps=40": 4, "eps=20": 596}


def test_examples_in_the_docstrings_run():
    assert doctest.testmod(ipate.classifier).failed == 0


@pytest.mark.parametrize("private", [False, True], ids=["public", "private"])
def test_report_has_html_page_and_json_file(fitted, tmp_path, private):
    path = fitted.report(tmp_path / "report.html", private, name="three animals")
    found = flat(json.loads((tmp_path / "report.json").read_text()))
    text = path.read_text()
    assert found["audience"] == ("private" if private else "public")
    assert ("PRIVATE: for the data owner" in text) is private
    assert "three animals" in text
    assert found["labelling"]["labels"] == fitted.labelling_.n_labels
    assert found["data"]["classes"] == ["ape", "bee", "cat"]
    assert "A person at level high" in text
    assert found["versions"]["numpy"] == np.__version__
    for entry, promise in zip(found["groups"], fitted.guarantees_, strict=True):
        assert entry["cost"] == promise.cost <= entry["budget"]
    accuracy = found["scores"]["label_accuracy"] if private else found["scores"]
    assert accuracy == (fitted.vote_accuracy_ if private else None)


def test_report_states_controller_and_contact(fitted, tmp_path):
    path = fitted.report(tmp_path / "report.html", controller=" St. Mary ", contact="dpo@stmary.example")
    found = flat(json.loads((tmp_path / "report.json").read_text()))["identity"]
    assert (found["controller"], found["contact"]) == ("St. Mary", "dpo@stmary.example")
    assert "St. Mary; contact: dpo@stmary.example." in path.read_text()


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"controller": " "}, "controller is ' ': it must be text that is not empty"),
        ({"contact": "x" * 501}, "it must be text of at most 500 characters"),
        ({"contact": 7}, "contact is 7: it must be text"),
    ],
)
def test_report_refuses_controller_that_is_no_text(fitted, tmp_path, about, words):
    with pytest.raises(InputError, match=words):
        fitted.report(tmp_path / "report.html", **about)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(("least", "words"), [(-5, "0 or above"), ("x", "whole number"), (9, "a student needs 9")])
def test_given_least_number_holds_for_small_pools(least, words):
    X, y = task(300)
    model = PATEClassifier(epsilon=8.0, classes=["ape", "bee", "cat"], min_labels=least, noise_seed=0, verbose=0)
    with pytest.raises(InputError, match=words):
        model.fit(X, y, X_public=X[:3] + 0.5)


def test_public_reports_leave_out_private_costs(tmp_path):
    X, y = task(900)
    pool, _ = task(200, seed=1)
    for variant, bound in (("vanishing", "gdp"), ("upsampling", "loose"), ("weighting", "exact")):
        model = PATEClassifier(
            variant=variant,
            bound=bound,
            classes=["ape", "bee", "cat"],
            n_teachers=30,
            sigma=4.0,
            check_sigma=6.0,
            threshold=15.0,
            random_state=0,
            verbose=0,
            teacher=LogisticRegression(),
            student=LogisticRegression(),
            min_labels=1,
        )
        model.fit(X, y, budgets=np.where(np.arange(900) % 3, 4.0, 12.0), X_public=pool)
        model.report(tmp_path / "a.html")
        model.report(tmp_path / "b.html", private=True)
        shown, owner = (flat(json.loads((tmp_path / name).read_text())) for name in ("a.json", "b.json"))
        assert (shown["labelling"] is None) is (bound == "exact")
        assert ("cost" in shown["groups"][0]) is (bound != "exact")
        assert owner["labelling"]["history"]["points"][-1][1] == model.labelling_.n_labels > 0
    with pytest.raises(InputError, match=r"must end in \.html"):
        model.report(tmp_path / "a.pdf")
    with pytest.raises(NotFittedError):
        PATEClassifier().report(tmp_path / "a.html")


def test_fits_on_one_ledger_share_the_budgets(tmp_path):
    X, y = task(900)
    pool, _ = task(200, seed=1)
    people = [f"p{index}" for index in range(900)]
    options = {
        "classes": ["ape", "bee", "cat"],
        "n_teachers": 30,
        "sigma": 4.0,
        "check_sigma": 6.0,
        "threshold": 15.0,
        "random_state": 0,
        "verbose": 0,
        "teacher": LogisticRegression(),
        "student": LogisticRegression(),
        "ledger": tmp_path / "ledger.sqlite",
        "epsilon": 6.0,
    }
    with pytest.raises(InputError, match="without person_id"):
        PATEClassifier(**options).fit(X, y, X_public=pool)
    first = PATEClassifier(max_labels=2, **options).fit(X, y, person_id=people, X_public=pool)
    second = PATEClassifier(max_labels=4, **options).fit(X, y, person_id=people, X_public=pool)
    assert first.guarantees_[0].cost < second.guarantees_[0].cost <= 6.0
    given = first.labels_ >= 0
    np.testing.assert_array_equal(second.labels_[given], first.labels_[given])
    with SqliteLedger.read(tmp_path / "ledger.sqlite") as book:
        assert book.epsilon("eps=6") == second.guarantees_[0].cost
        assert [entry.labels for entry in book.person("p7")] == [2, 2]
    second.report(tmp_path / "report.html")
    found = flat(json.loads((tmp_path / "report.json").read_text()))
    assert found["groups"][0]["spent_before"] == pytest.approx(first.guarantees_[0].cost)
    assert found["ledger_head"].startswith("4:2:")
    assert pickle.loads(pickle.dumps(second)).ledger_.epsilon("eps=6") == second.guarantees_[0].cost


def test_cost_including_earlier_fit_is_not_claimed(tmp_path):
    """The cost of the first fit depends on noisy checks, so the sum is not known beforehand."""
    X, y = task(900)
    people = [f"p{index}" for index in range(900)]
    options = {
        "classes": ["ape", "bee", "cat"],
        "n_teachers": 30,
        "sigma": 4.0,
        "random_state": 0,
        "verbose": 0,
        "teacher": LogisticRegression(),
        "student": LogisticRegression(),
        "epsilon": 6.0,
    }

    def reported(seed, **more):
        model = PATEClassifier(**options, **more).fit(X, y, person_id=people, X_public=task(200, seed=seed)[0])
        model.report(tmp_path / "report.html")
        found = flat(json.loads((tmp_path / "report.json").read_text()))
        (entry,) = found["groups"]
        assert found["guarantee"]["statement"] == model.labelling_.guarantee.statement
        return entry, "the promise is the cost" in " ".join(found["guarantee"]["summary"])

    fixed = {"check_sigma": None, "threshold": None, "stop": "count", "max_labels": 2}
    alone, said = reported(1, **fixed)
    assert said
    assert alone["promised_epsilon"] == alone["cost"] < 6.0
    shared = {"ledger": tmp_path / "ledger.sqlite"}
    reported(1, check_sigma=6.0, threshold=15.0, max_labels=2, **shared)
    second, said = reported(2, **fixed, **shared)
    assert not said
    assert second["cost"] < second["promised_epsilon"] == 6.0


def small(**options):
    return PATEClassifier(
        **{
            "classes": CLASSES,
            "n_teachers": 30,
            "sigma": 1.0,
            "check_sigma": 2.0,
            "threshold": 12.0,
            "epsilon": 200.0,
            "random_state": 0,
            "verbose": 0,
            **options,
        }
    )


def test_student_has_class_names_and_feature_names():
    X, y = task(600)
    names = [f"f{i}" for i in range(5)]
    pool = pd.DataFrame(task(200, seed=1)[0], columns=names)
    model = small().fit(pd.DataFrame(X, columns=names), y, X_public=pool)
    assert set(model.student_.classes_) <= set(CLASSES)
    assert model.student_.feature_names_in_.tolist() == names
    assert set(model.student_.predict(pool)) <= set(CLASSES)


@pytest.mark.parametrize(
    ("student", "proba", "decision"),
    [(None, True, True), (LinearSVC(), False, True), (GaussianNB(), True, False), ("bayes", True, False)],
)
def test_methods_exist_where_the_student_has_them(student, proba, decision):
    X, y = task(600)
    model = small(student=student)
    for _ in range(2):  # before and after fit
        assert hasattr(model, "predict_proba") is proba
        assert hasattr(model, "decision_function") is decision
        if not hasattr(model, "student_"):
            model.fit(X, y, X_public=task(200, seed=1)[0])
    if decision:
        found = model.decision_function(X[:50])
        np.testing.assert_array_equal(model.classes_[found.argmax(axis=1)], model.predict(X[:50]))


def test_saved_student_predicts_as_the_classifier(tmp_path):
    X, y = task(600)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(f=np.where(X[:, 0] > 1, "yes", "no"))
    pool = frame.iloc[:200].assign(a=lambda own: own.a + 0.01)
    pipeline = make_pipeline(
        make_column_transformer((StandardScaler(), list("abcde")), (OneHotEncoder(), ["f"])), LogisticRegression()
    )
    model = small(teacher=pipeline, student=pipeline).fit(frame, y, X_public=pool)
    folder = model.save_student(tmp_path / "student", name="animals")
    assert (folder / "model.skops").is_file()
    student = ipate.load_student(folder)
    np.testing.assert_array_equal(student.predict(frame[list("fedcba")]), model.predict(frame))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    np.testing.assert_array_equal(student.predict(tmp_path / "rows.csv"), model.predict(frame))
    card = (folder / "README.md").read_text()
    assert "# Student: animals" in card
    assert "It holds for the 600 people" in card
    facts = json.loads((folder / "student.json").read_text())
    assert facts["guarantee"]["groups"][0]["epsilon"] == 200.0
    assert facts["guarantee"]["groups"][0]["cost"] == model.guarantees_[0].cost
    assert sum(facts["made"]["labels_by_class"].values()) == model.labelling_.n_labels


def test_card_of_seeded_fit_says_do_not_publish(tmp_path):
    X, y = task(600)
    model = small(noise_seed=1).fit(X, y, X_public=task(200, seed=1)[0])
    folder = model.save_student(tmp_path / "student")
    assert "Do not publish this folder" in (folder / "README.md").read_text()
    assert json.loads((folder / "student.json").read_text())["guarantee"]["groups"][0]["cost"] is None
    np.testing.assert_array_equal(ipate.load_student(folder).predict(X), model.predict(X))


def test_cross_validation_without_ledger_warns():
    X, y = task(600)
    pool = task(200, seed=1)[0]
    with pytest.warns(RepeatedFitWarning, match=r"sklearn\.model_selection.*spends the budgets"):
        cross_val_score(small(), X, y, cv=2, params={"X_public": pool})
    with pytest.warns(RepeatedFitWarning, match="spends the budgets"):
        GridSearchCV(small(), {"sigma": [1.0]}, cv=2).fit(X, y, X_public=pool)


def test_cross_validation_on_a_ledger_does_not_warn(tmp_path):
    X, y = task(600)
    people = np.array([f"p{index}" for index in range(600)])
    given = {"X_public": task(200, seed=1)[0], "person_id": people}
    model = small(ledger=tmp_path / "people.sqlite", new_people=True, max_labels=5)
    cross_val_score(model, X, y, cv=2, params=given, error_score="raise")


def test_weights_of_rows_are_refused_with_reason():
    X, y = task(600)
    with pytest.raises(InputError, match="sample_weight, which is not supported: a person's influence follows"):
        small().fit(X, y, X_public=X[:5], sample_weight=np.ones(600))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        small().fit(X, y, X_public=X[:5], weights=np.ones(600))
    assert not has_fit_parameter(PATEClassifier(), "sample_weight")


def test_notes_on_released_labels_are_logged(caplog):
    X, y = task(600)
    pool = task(200, seed=1)[0]
    small(classes=[*CLASSES, "dog"]).fit(X, y, X_public=pool)
    assert "no label was released for the class dog" in caplog.text
    caplog.clear()
    small(classes=[*CLASSES, "dog"], bound="exact", sigma=4.0).fit(X, y, X_public=pool)
    assert "no label was released" not in caplog.text  # those labels are private


def contradicted(**options):
    """Return a classifier whose votes are compared with a student, and its data."""
    X, y = task(1200)
    given = {
        "aggregator": "interactive",
        "n_teachers": 24,
        "sigma": 3.0,
        "check_sigma": 5.0,
        "threshold": 9.0,
        "classes": ["ape", "bee", "cat"],
        "random_state": 0,
        "noise_seed": 4,
        "verbose": 0,
        "epsilon": 14.0,
        "student": GaussianNB(),
    }
    model = PATEClassifier(GaussianNB(), **given | options)
    return model, {"X": X, "y": y, "X_public": task(300, seed=1)[0]}


@pytest.mark.parametrize("bound", ["gdp", "sup", "loose", "tight", "exact"])
def test_interactive_asks_a_student_under_all_bounds(bound):
    model, data = contradicted(bound=bound)
    found = model.fit(**data).labelling_
    first = model.choice_.n_first
    assert 3 < first < found.n_queries
    assert found.reinforced[first:].any()
    assert not found.reinforced[:first].any()
    assert not (found.reinforced & found.answered).any()
    np.testing.assert_array_equal(model.labels_[found.queries], found.labels)
    assert np.count_nonzero(model.labels_ >= 0) == found.n_labels + int(found.reinforced.sum())
    for group in model.guarantees_:
        assert 0 < group.cost <= group.budget.epsilon
    again = contradicted(bound=bound)[0].fit(**data).labelling_
    np.testing.assert_array_equal(again.labels, found.labels)
    np.testing.assert_array_equal(again.reinforced, found.reinforced)


@pytest.mark.parametrize(
    "options",
    [
        {"variant": "upsampling"},
        {"variant": "vanishing"},
        {"stop": "drop"},
        {"stop": "count", "max_labels": 12},
        {"counts": True},
        {"queries": "coverage"},
        {"student": "graph"},
    ],
    ids=str,
)
def test_interactive_serves_every_variant_and_stop(options):
    model, data = contradicted(**options)
    levels = np.random.default_rng(2).choice(["high", "low"], size=1200)
    model.fit(**data, levels=levels, policy={"high": 10.0, "low": 16.0})
    found = model.labelling_
    assert found.n_queries > model.choice_.n_first
    assert len(set(found.queries.tolist())) == len(found.queries)
    for group in model.guarantees_:
        assert 0 < group.cost <= group.budget.epsilon
    if "max_labels" in options:
        assert (found.n_labels, found.stopped_by) == (12, "count")
    if options.get("counts"):
        counted = found.step > 0
        np.testing.assert_array_equal(counted, found.answered)
        np.testing.assert_array_equal(found.noisy_votes[counted].argmax(axis=1), found.labels[counted])
    charged = sum(len(charge.keys) for charge in model.ledger_.charges)
    assert charged == found.n_queries


def test_reinforced_answers_of_earlier_fits_are_reported(tmp_path):
    model, data = contradicted(ledger=tmp_path / "people.sqlite", epsilon=20.0, max_labels=20)
    people = np.arange(1200)
    model.fit(**data, person_id=people)
    own = int(model.labelling_.reinforced.sum())
    assert own
    again, _ = contradicted(ledger=tmp_path / "people.sqlite", epsilon=20.0)
    again.fit(**data, person_id=people)
    assert int(again.labelling_.reinforced.sum()) >= own
    path = again.report(tmp_path / "report.html", private=True)
    told = json.loads(path.with_suffix(".json").read_text())
    assert f'"reinforced": {int(again.labelling_.reinforced.sum())}' in json.dumps(told)


def test_student_without_probabilities_cannot_be_asked(tmp_path):
    model, data = contradicted(student=LinearSVC(), ledger=tmp_path / "people.sqlite")
    with pytest.raises(InputError, match=r"student is 'LinearSVC': it has no probabilities.*confident"):
        model.fit(**data, person_id=np.arange(1200))
    assert not list(tmp_path.iterdir())


class Broken(GaussianNB):
    """It learns made-up labels, and fails on true ones."""

    def fit(self, X, y, sample_weight=None):
        if len(X) > 350:
            raise RuntimeError("no")
        return super().fit(X, y, sample_weight)


def test_paid_labels_survive_a_student_that_fails():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    model = PATEClassifier(student=Broken(), voting="ballots", classes=[0, 1], verbose=0, random_state=0)
    with pytest.raises(RuntimeError):
        model.fit(X, (X[:, 0] > 0).astype(int), budgets=np.full(4000, 2.0), X_public=rng.normal(size=(400, 2)))
    assert len(model.labels_) == 400
    assert all(model.ledger_.epsilon(account) > 0 for account in model.ledger_.terms)
