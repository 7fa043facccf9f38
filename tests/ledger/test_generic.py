"""Releases of engines and bounds that the ledger has never heard of, and limits that are computed once."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ipate.accounting import gdp
from ipate.accounting.bounds import BOUNDS, Meter, find_bound, register
from ipate.accounting.gdp import Gdp
from ipate.engines.teachers.aggregators import find_aggregator
from ipate.errors import BudgetExceededError, InputError, IpateError
from ipate.ledger import records
from ipate.ledger.records import Charge, Draw
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.history import Extract
from ledger.making import BUDGETS, DELTA, all_terms, begin, charge, larger, terms

SIGMA, WEIGHT = 20.0, {"strict": 0.5, "lax": 1.5}
OUTSIDE = "from ipate.accounting.gdp import Gdp\n\nclass Dearer(Gdp):\n    name = 'dearer'\n\nDEARER = Dearer()\n"


def class_counts(meter, *, key="class counts", payload=b"12 7 9"):
    """What an engine charges that releases noisy class counts once."""
    return Charge(
        cost={name: meter.vector_cost(sensitivity=own, sigma=SIGMA) for name, own in WEIGHT.items()},
        sensitivity={name: np.asarray(own) for name, own in WEIGHT.items()},
        draws=(Draw(mechanism="vector", sigma=SIGMA),),
        keys=(key,),
        scope="run",
        bound=meter.bound,
        seeded=False,
        codec="class counts 1",
        payload=payload,
    )


def test_vector_of_another_engine_is_stored_and_drawn_once(tmp_path):
    path = tmp_path / "l.sqlite"
    with begin(path, all_terms()) as book:
        book.charge(class_counts(Meter()))
        assert book.verify() == book.head
    with SqliteLedger.open(path) as book:
        (found,) = book.released("class counts 1", "run")
        assert (found.run, found.keys, found.payload) == ("run", ("class counts",), b"12 7 9")
        with pytest.raises(InputError, match="noise is drawn only once"):
            book.charge(class_counts(Meter(), payload=b"other noise"))
        assert book.person("lax")[0].vectors == 1


@pytest.mark.parametrize("bound", ["gdp", "loose", "sup", "tight", "exact"])
def test_vector_of_another_engine_is_carried_at_its_whole_price(tmp_path, bound):
    path, meter = tmp_path / "l.sqlite", Meter(bound)
    with begin(path, all_terms(), people={"ada": "strict", "bob": "lax"}) as book:
        book.charge(class_counts(Meter()))
        for person, moved in (("ada", 0.5), ("bob", 1.5)):
            rate = (moved / SIGMA) ** 2
            wanted = 2 * rate if bound == "gdp" else rate * np.array(meter.orders)
            np.testing.assert_allclose(book.cost_of(person, meter), wanted, rtol=1e-12)
    with begin(path, [terms("all", 3.0)], run="next", people=larger({"ada": "all", "bob": "all"})) as book:
        assert book.spent("all")[0] == pytest.approx(2 * (1.5 / SIGMA) ** 2)


def test_history_shows_the_vector_of_another_engine(tmp_path):
    with begin(tmp_path / "l.sqlite", all_terms()) as book:
        book.charge(class_counts(Meter()))
        found = Extract.of(book)
        assert found.composition["lax"] == (("gaussian", pytest.approx(SIGMA / (np.sqrt(2) * 1.5)), 1),)
        assert found.own["lax"] == pytest.approx(book.epsilon("lax"))
        assert (found.history[-1].queries, found.answers) == (0, {})


@pytest.mark.parametrize(("first", "later"), [("gdp", "gdp"), ("gdp", "ptr"), ("tight", "tight"), ("tight", "gdp")])
def test_whole_release_leaves_nothing_under_any_unit(tmp_path, first, later):
    path, draws = tmp_path / "l.sqlite", (Draw(mechanism="whole", sigma=1.0),)
    unit = Meter(first)
    with begin(path, [terms("strict", 1.0, meter=unit)], people={"ada": "strict"}) as book:
        cost = np.full(unit.width, 0.001)
        book.charge(charge({"strict": cost}, queries=("all",), scope="run", draws=draws, bound=first))
    with pytest.raises(BudgetExceededError, match="cannot share a budget with any other release"):
        begin(path, [terms("strict", 1.0, meter=Meter(later))], run="later", people={"ada": "strict"})


def test_bound_that_is_named_by_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "outside_parts.py").write_text(OUTSIDE)
    path, name = tmp_path / "l.sqlite", "outside_parts:DEARER"
    read = ["-c", f"from ipate import SqliteLedger; print(SqliteLedger.open({str(path)!r}).verify())"]
    with pytest.raises(InputError, match="'outside_parts:DEARER': it cannot be imported"):
        Meter(name)
    monkeypatch.syspath_prepend(tmp_path)
    with begin(path, [terms("strict", 1.0, meter=Meter(name))]) as book:
        book.charge(charge({"strict": 0.001}, bound=name))
        head = book.head
    for folder, code in ((tmp_path, 0), (tmp_path / "elsewhere", 1)):
        roots = [str(folder), str(Path(records.__file__).parents[2])]
        told = subprocess.run(
            [sys.executable, *read],
            env={"PYTHONPATH": ":".join(roots)},
            cwd=tmp_path.parent,
            check=False,
            capture_output=True,
            text=True,
        )
        assert told.returncode == code, told.stderr
        if code:
            assert "the ledger is intact, but run 'run' was charged by a bound that is missing here" in told.stderr
            assert "No module named 'outside_parts'" in told.stderr
        else:
            assert told.stdout.strip() == str(head)


def test_missing_bound_is_not_called_a_change(tmp_path):
    path = tmp_path / "l.sqlite"
    register(type("Mine", (Gdp,), {"name": "mine"})())
    with begin(path, [terms("strict", 1.0, meter=Meter("mine"))]) as book:
        book.charge(charge({"strict": 0.001}, bound="mine"))
    kept = BOUNDS.pop("mine")
    for use in (SqliteLedger.open, SqliteLedger.read, SqliteLedger.runs_on):
        with pytest.raises(IpateError, match=r"is intact, but run 'run' .* bound is 'mine': allowed are") as caught:
            use(path)
        assert "changed" not in str(caught.value)
    BOUNDS["mine"] = kept
    SqliteLedger.open(path).close()
    del BOUNDS["mine"]


@pytest.mark.parametrize("part", ["ipate.accounting.gdp:mu_of", "ipate.release.noise:STEPS"])
def test_part_of_another_type_is_refused(part):
    with pytest.raises(InputError, match="it must be a Bound"):
        find_bound(part)
    with pytest.raises(InputError, match="it must be a NamedAggregator"):
        find_aggregator(part)


def test_aggregator_that_is_named_by_module_is_imported():
    assert find_aggregator("ipate.engines.teachers.aggregators:GNMax").name == "gnmax"


def test_limit_is_computed_once_for_each_budget_and_unit(tmp_path, monkeypatch):
    """A charge asks for the limit of every account, and a bisection for each of them took ten seconds."""
    seen, limit = [], Gdp.limit
    records._limit.cache_clear()
    monkeypatch.setattr(gdp.Gdp, "limit", lambda *given, **more: seen.append(more["epsilon"]) or limit(*given, **more))
    groups = [terms(f"group {index}", 1.0 + index % 3) for index in range(30)]
    with begin(tmp_path / "l.sqlite", groups) as book:
        for _ in range(5):
            book.charge(charge({entry.account.id: 1e-4 for entry in groups}))
        assert book.verify() == book.head
    with SqliteLedger.open(tmp_path / "l.sqlite") as book:
        assert book.epsilon("group 0") <= 1.0
    assert sorted(seen) == sorted(BUDGETS.values())


def test_cached_limit_follows_the_bound_of_that_name():
    """A name that is registered again is another bound."""
    limits = []
    for factor in (1.0, 2.0):
        scaled = lambda self, *given, by=factor, **more: by * Gdp.limit(self, *given, **more)  # noqa: E731
        register(type("Scaled", (Gdp,), {"name": "scaled", "limit": scaled})())
        limits.append(float(terms("a", 1.0, meter=Meter("scaled")).limit[0]))
        del BOUNDS["scaled"]
    assert limits[1] == pytest.approx(2 * limits[0])
    assert limits[0] == Meter().limit(1.0, DELTA)[0]


def test_cost_without_a_draw_is_refused():
    """Later runs count the draws: such a cost would be forgotten, and the budget spent twice."""
    with pytest.raises(InputError, match="a cost and no draw"):
        replace(class_counts(Meter("gdp")), draws=())
    assert replace(class_counts(Meter("gdp")), draws=(), paid_by="class counts").draws == ()
