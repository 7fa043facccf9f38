"""One person moves one teacher: no teacher's draws from a global generator may depend on the rows of another.

Teachers that use numpy's, Python's or torch's global generators, or carry a generator of their own, are trained with
one person's label or row changed, or with the person gone. At most that person's teacher votes otherwise.
"""

import importlib
import random
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from ipate.engines.teachers.variants import allocate
from ipate.models.named import MODELS, make_model
from ipate.models.training import train_and_vote
from ipate.people.people import make_people

TEACHERS, EACH, OWN = 6, 16, 0


def drawing(source="numpy"):
    """Return a classifier that draws from a global generator, as often as its rows say, to fit and to vote.

    Its class is local, so that it is pickled by value: worker processes need not find this module.
    """

    class Drawing(ClassifierMixin, BaseEstimator):
        def __init__(self, source="numpy"):
            self.source = source

        def _draw(self, size):
            if self.source == "numpy":
                return np.random.rand(size)  # noqa: NPY002
            if self.source == "python":
                return np.array([random.random() for _ in range(size)])
            return importlib.import_module("torch").rand(size).numpy()

        def fit(self, X, y):
            self.draws_ = self._draw(int(np.abs(X).sum()) + 3 * int(y.sum()) + 1)[-1]
            self.classes_ = np.unique(y)
            return self

        def predict(self, X):
            return (self._draw(len(X)) + self.draws_ > 1).astype(int)

    return Drawing(source)


def skorch_net():
    torch = pytest.importorskip("torch", reason="needs torch")
    from ipate.torch.estimator import module_classifier

    torch.manual_seed(0)  # the initial weights of a module that is given as an instance are the caller's
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    return module_classifier(net, max_epochs=1, batch_size=8, iterator_train__shuffle=True)


def drawing_from_torch():
    pytest.importorskip("torch", reason="needs torch")
    return drawing("torch")


SPLITS = {
    "seeded by numpy": None,
    "with a generator": np.random.RandomState(3),
}
SMALLER = {"forest": {"n_estimators": 5}, "boosting": {"max_iter": 5}}
CASES = {
    **{name: (lambda name=name: make_model(name, SMALLER.get(name))) for name in MODELS},
    "numpy": lambda: drawing("numpy"),
    "python": lambda: drawing("python"),
    "torch": drawing_from_torch,
    "skorch": skorch_net,
    "bagged": lambda: BaggingClassifier(DecisionTreeClassifier(max_features=1), n_estimators=3),
    **{
        f"grid {name}": (
            lambda state=state: GridSearchCV(
                KNeighborsClassifier(),
                {"n_neighbors": [1, 3, 5]},
                cv=StratifiedKFold(2, shuffle=True, random_state=state),
            )
        )
        for name, state in SPLITS.items()
    },
}


def world():
    """Return rows of two overlapping classes, and a pool where their votes differ."""
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], TEACHERS * EACH // 2)
    X = rng.normal(size=(len(y), 2)) + y[:, None]
    return X, y, rng.normal(size=(60, 2)) + 0.5


def votes(make, X, y, rows, pool, **engine):
    """Return all votes, of teachers that do not fail; the caller's own generators are seeded, as in many scripts."""
    teacher = make()  # imports torch where it is needed
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    found, notes = np.zeros((TEACHERS, len(pool)), dtype=int), {}
    for number, own in train_and_vote(
        teacher, X, y, rows=rows, X_public=pool, n_classes=2, seed=4, notes=notes, **engine
    ):
        found[number] = own
    assert not [line for lines in notes.values() for line in lines if line.startswith("failed")]
    return found


def changes(X, y, rows):
    """Yield the data with one person's label flipped, row changed, and with the person gone; the first of OWN."""
    person = rows[OWN][0]
    flipped, moved = y.copy(), X.copy()
    flipped[person] = 1 - flipped[person]
    moved[person] += 7
    yield X, flipped, rows
    yield moved, y, rows
    yield X, y, [rows[OWN][1:], *rows[1:]]


@pytest.mark.parametrize("engine", [{}, {"backend": "loky", "n_jobs": 2}], ids=["here", "loky"])
@pytest.mark.parametrize("case", CASES)
def test_one_person_moves_only_their_own_teacher(case, engine):
    X, y, pool = world()
    rows = [np.arange(EACH) + EACH * teacher for teacher in range(TEACHERS)]
    before = votes(CASES[case], X, y, rows, pool, **engine)
    for changed in changes(X, y, rows):
        after = votes(CASES[case], *changed, pool, **engine)
        others = np.flatnonzero((before != after).any(axis=1)).tolist()
        assert set(others) <= {OWN}


@pytest.mark.parametrize("variant", ["standard", "weighting"])
def test_allocated_person_moves_only_their_own_teacher(variant):
    X, y, pool = world()
    people = make_people(len(y), budgets=np.where(np.arange(len(y)) % 3, 1.0, 2.0))
    dealt = allocate(variant, people=people, n_teachers=TEACHERS, seed=2)
    person = int(dealt.persons[0])
    flipped = np.where(np.arange(len(y)) == person, 1 - y, y)
    before = votes(drawing, X, y, rows_of(dealt), pool)
    for labels, allocation in ((flipped, dealt), (y, dealt.without([person]))):
        after = votes(drawing, X, labels, rows_of(allocation), pool)
        assert np.flatnonzero((before != after).any(axis=1)).tolist() == [0]


def rows_of(allocation):
    return [allocation.rows_of_teacher(teacher) for teacher in range(TEACHERS)]


def test_caller_keeps_its_global_generators():
    torch = pytest.importorskip("torch", reason="needs torch")
    X, y, pool = world()
    rows = [np.arange(EACH) + EACH * teacher for teacher in range(TEACHERS)]
    drawn = []
    for train in (False, True):
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        torch.manual_seed(1)
        if train:
            list(train_and_vote(GaussianNB(), X, y, rows=rows, X_public=pool, n_classes=2))
        drawn.append((np.random.rand(), random.random(), float(torch.rand(1))))  # noqa: NPY002
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("source", ["numpy", "python", "torch"])
def test_two_teachers_draw_different_numbers(source):
    """Otherwise all teachers would share one stream, and their errors would agree."""
    X, y, pool = world()
    rows = [np.arange(EACH)] * TEACHERS
    assert len({tuple(own) for own in votes(CASES[source], X, y, rows, pool)}) > 1


SCRIPT = """
import sys
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from ipate.models.training import train_and_vote

class Own(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        import torch
        self.classes_, self.votes_ = np.unique(y), (torch.rand(200) > 0.5).int().numpy()
        return self
    def predict(self, X):
        return self.votes_

def votes(first):
    rows = [np.arange(8), np.arange(8, 16)]
    found = train_and_vote(Own(), np.zeros((16, 1)), np.tile([0, 1], 8), rows=rows, missing=[first, 1 - first],
                           X_public=np.zeros((200, 1)), n_classes=2, backend=sys.argv[1], n_jobs=1)
    return np.array([own for _, own in sorted(found, key=lambda pair: pair[0])])

assert sys.argv[1] != "sequential" or "torch" not in sys.modules
one, two = votes(0), votes(1)
assert (one == two).all(), (one != two).mean(axis=1)
assert (one[0] != one[1]).any()
"""


@pytest.mark.parametrize("backend", ["sequential", "loky"])
def test_teacher_that_imports_torch_keeps_its_draws(tmp_path, backend):
    """The first teacher of a process imports torch; which one that is may follow from the rows of another."""
    pytest.importorskip("torch", reason="needs torch")
    script = tmp_path / "script.py"  # with a class of __main__, as in notebooks
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, backend], check=True, timeout=120, cwd=tmp_path)
