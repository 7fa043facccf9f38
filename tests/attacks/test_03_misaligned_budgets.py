"""A table of consent in another order than the data must not give people each other's budgets."""

import numpy as np
import pandas as pd
import pytest

from ipate import PATEClassifier
from ipate.errors import InputError

N = 400


def table():
    rng = np.random.default_rng(0)
    index = pd.Index([f"p{number:03}" for number in range(N)], name="person")
    X = pd.DataFrame(rng.normal(size=(N, 3)), index=index, columns=["a", "b", "c"])
    y = pd.Series((X["a"] > 0).astype(int), index=index)
    epsilon = pd.Series(rng.choice([0.5, 8.0], size=N), index=index)
    return X, y, epsilon, rng.normal(size=(60, 3))


def fit(X, y, pool, **given):
    model = PATEClassifier(classes=[0, 1], n_teachers=20, random_state=0, noise_seed=0, verbose=0)
    return model.fit(X, y, X_public=pd.DataFrame(pool, columns=["a", "b", "c"]), **given)


def budget_of(model):
    people = model.allocation_.people
    return {person: people.group_of(person).epsilon for person in people.ids.tolist()}


def test_shuffled_budgets_reach_the_people_who_gave_them():
    X, y, epsilon, pool = table()
    shuffled = epsilon.sample(frac=1, random_state=1)
    model = fit(X, y, pool, budgets=shuffled, person_id=X.index)
    assert budget_of(model) == epsilon.to_dict()


def test_shuffled_levels_and_ids_follow_their_labels():
    X, y, epsilon, pool = table()
    levels = epsilon.map({0.5: "high", 8.0: "low"}).sample(frac=1, random_state=1)
    ids = pd.Series(X.index, index=X.index).sample(frac=1, random_state=2)
    model = fit(X, y, pool, levels=levels, policy={"high": 0.5, "low": 8.0}, person_id=ids)
    assert budget_of(model) == epsilon.to_dict()


def test_budgets_of_other_people_are_refused():
    X, y, epsilon, pool = table()
    others = epsilon.rename(index=lambda name: name.replace("p", "q"))
    with pytest.raises(InputError, match="different index labels"):
        fit(X, y, pool, budgets=others)


def test_shuffled_budgets_of_repeated_labels_are_refused():
    X, y, epsilon, pool = table()
    repeated = X.index[:-1].append(X.index[:1])
    X, y, epsilon = X.set_axis(repeated), y.set_axis(repeated), epsilon.set_axis(repeated)
    fit(X, y, pool, budgets=epsilon)  # the same order throughout
    with pytest.raises(InputError, match="'p000' more than once"):
        fit(X, y, pool, budgets=epsilon.sample(frac=1, random_state=1))


@pytest.mark.parametrize("kind", ["array", "polars", "pyarrow"])
def test_budgets_by_id_beside_plain_rows_are_refused(kind):
    """X has no labels, but the ids of its rows are known: budgets of these ids in another order are not by row."""
    X, y, epsilon, pool = table()
    ids, frame = X.index.to_numpy(), pd.DataFrame(pool, columns=["a", "b", "c"])
    make = {
        "array": lambda data: data.to_numpy(),
        "polars": lambda data: pytest.importorskip("polars").from_pandas(data),
        "pyarrow": lambda data: pytest.importorskip("pyarrow").Table.from_pandas(data, preserve_index=False),
    }[kind]
    model = PATEClassifier(classes=[0, 1], n_teachers=20, random_state=0, noise_seed=0, verbose=0)
    given = {"person_id": ids, "X_public": make(frame)}
    shuffled = epsilon.sample(frac=1, random_state=1)
    for wrong in (shuffled, shuffled.rename(lambda name: name if name == "p000" else f"unknown {name}")):
        with pytest.raises(InputError, match="budgets has person ids as its index, such as 'p000', in another order"):
            model.fit(make(X), y.to_numpy(), budgets=wrong, **given)
    assert budget_of(model.fit(make(X), y.to_numpy(), budgets=epsilon, **given)) == epsilon.to_dict()
    numbered = epsilon.set_axis(np.arange(7, 7 + N))  # rows of a larger table: labels that are no ids
    assert budget_of(model.fit(make(X), y.to_numpy(), budgets=numbered, **given)) == epsilon.to_dict()
    named = pd.DataFrame({"id": np.arange(N), "epsilon": epsilon.to_numpy()})  # looked up by id, whatever its index
    if kind != "array":
        model.fit(
            make(X.assign(id=np.arange(N)[::-1])), y.to_numpy(), budgets=named, person_id="id", X_public=make(frame)
        )
        assert budget_of(model) == dict(zip(map(str, range(N)), epsilon, strict=True))
