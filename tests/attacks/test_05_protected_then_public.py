"""Another split on the same ledger must not turn protected people into unprotected pool or test rows, or back."""

import numpy as np
import pytest

from attacks.making import NAMES, run, write_csv
from ipate import PATEClassifier
from ipate.errors import InputError

FEW = "max_labels = 1"


def test_other_split_is_refused_before_training(tmp_path):
    file, shared = write_csv(tmp_path / "people.csv"), tmp_path / "people.sqlite"
    assert run(file, "first", "--ledger", shared, labelling=FEW).code == 0
    other = run(file, "second", "--ledger", shared, split_seed=1, labelling=FEW)
    assert other.code == 2, other.err
    assert "are pool or test data here and were protected in an earlier run on this ledger" in other.err
    assert "use the same split_seed" in other.err
    assert not (tmp_path / "second").exists()
    assert run(file, "third", "--ledger", shared, labelling=FEW).code == 0


def test_public_people_cannot_become_protected(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=len(NAMES))
    X, names = rng.normal(3.0 * y)[:, None], np.array(NAMES)
    model = PATEClassifier(
        epsilon=8.0,
        delta=1e-5,
        n_teachers=8,
        sigma=2.0,
        aggregator="gnmax",
        classes=[0, 1],
        max_labels=1,
        verbose=0,
        random_state=0,
        ledger=tmp_path / "people.sqlite",
        public_fraction=0.3,
    )
    with pytest.warns(UserWarning, match="no budget protects them"):
        model.fit(X, y, person_id=names)
    with pytest.raises(InputError, match=r"48 people, such as '.*', are protected here and were pool or test data"):
        model.fit(X, y, person_id=names, X_public=rng.normal(size=(20, 1)))
