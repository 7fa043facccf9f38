"""The release of ballots: charged with its histogram in one commit, drawn once, and blind to who cast a ballot."""

import logging
import sqlite3

import numpy as np
import pytest

from ballots.making import PEOPLE, POOL, POOL_Y, RNG, X, Y, on_disk
from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.engines.ballots.counting import Histogram, add_noise
from ipate.engines.ballots.design import SIGMA, ballot_terms, make_design
from ipate.engines.ballots.release import PublicMaps, charge_ballots, release, sum_private
from ipate.errors import BudgetExceededError, InputError, IpateError
from ipate.ledger.base import MemoryLedger
from ipate.people.budgets import Account, Group
from ipate.people.people import People
from ipate.release.answers import paid_answers
from ipate.release.noise import SeededNoise
from ipate.release.results import Record
from ledger.making import begin

KNOWN = {"n_classes": 3, "partitions": 4}


def test_labels_are_right_and_nobody_passes_their_budget():
    found = release(POOL, X, Y, PEOPLE, noise=SeededNoise(0), **KNOWN)
    assert np.mean(found.labelling.labels == POOL_Y) > 0.9
    assert found.labelling.n_labels == 120
    for group in found.labelling.groups:
        assert 0 < group.cost <= group.budget.epsilon
        assert group.cost == pytest.approx(gdp.epsilon_of(np.sqrt(2) * group.weight / SIGMA, 1e-4), rel=1e-9)
    record = Record.of(found.labelling, n_public=120)
    assert record.n_labels == 120
    assert found.decoded.sample_weight.max() > 1


def test_secure_release_is_releasable_and_differs_each_time():
    one, two = (release(POOL, X, Y, PEOPLE, **KNOWN) for _ in range(2))
    assert one.labelling.guarantee.kind == "releasable"
    assert np.any(one.histogram.counts != two.histogram.counts)


def test_second_call_returns_the_stored_draw(tmp_path):
    with on_disk(tmp_path / "l.sqlite") as book:
        first = release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)
        spent = {account: book.spent(account) for account in book.terms}
    with on_disk(tmp_path / "l.sqlite") as book:
        again = release(POOL, X, 2 - Y, PEOPLE, ledger=book, noise=SeededNoise(99), **KNOWN)
        assert {account: book.spent(account) for account in book.terms} == spent
        assert book.head.charges == 1
    np.testing.assert_array_equal(first.histogram.counts, again.histogram.counts)
    np.testing.assert_array_equal(first.labelling.labels, again.labelling.labels)
    assert [g.cost for g in first.labelling.groups] == [g.cost for g in again.labelling.groups]


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_ledger_refuses_a_second_histogram_of_a_run(tmp_path, kind):
    book = MemoryLedger(ballot_terms(PEOPLE.groups)) if kind == "memory" else on_disk(tmp_path / "l.sqlite")
    with book:
        design = make_design(list(book.terms.values()), n_classes=3, n_pool=1000, cells=3, partitions=1)
        drawn = Histogram(counts=np.zeros((1, 3, 3), dtype=np.int64), cells="x")
        charge_ballots(book, design, drawn, seeded=True)
        before = {account: book.spent(account) for account in book.terms}
        with pytest.raises(InputError, match="only once"):
            charge_ballots(book, design, drawn, seeded=True)
        assert {account: book.spent(account) for account in book.terms} == before


def test_missing_ballots_change_no_public_figure(tmp_path, caplog):
    unreadable = X.copy()
    unreadable[5] = np.nan
    worlds = {
        "all": (X, Y, ()),
        "label that is no class": (X, np.where(np.arange(900) == 5, -1, Y), ()),
        "unreadable cell": (unreadable, Y, ()),
        "withdrawn": (X, Y, [str(PEOPLE.ids[5])]),
    }
    seen = {}
    for name, (rows, labels, withdrawn) in worlds.items():
        caplog.clear()
        with caplog.at_level(logging.DEBUG), on_disk(tmp_path / f"{name}.sqlite") as book:
            found = release(POOL, rows, labels, PEOPLE, ledger=book, noise=SeededNoise(1), withdrawn=withdrawn, **KNOWN)
            spent = {account: book.spent(account).tolist() for account in book.terms}
        shown = [record.getMessage() for record in caplog.records]
        seen[name] = (spent, found.histogram.counts.shape, found.cells.fingerprint, found.notes, shown)
    assert len({repr(figures) for figures in seen.values()}) == 1


def test_unreadable_row_equals_no_ballot_at_all():
    gone = np.where(np.arange(900) == 5, -1, Y)
    broken = X.copy()
    broken[5] = [np.inf, np.nan, -np.inf]
    one, two = (
        release(POOL, rows, labels, PEOPLE, noise=SeededNoise(1), **KNOWN).histogram.counts
        for rows, labels in ((X, gone), (broken, Y))
    )
    np.testing.assert_array_equal(one, two)
    whole = release(POOL, X, Y, PEOPLE, noise=SeededNoise(1), **KNOWN).histogram.counts
    assert np.count_nonzero(whole != one) <= 4


def test_shuffled_people_give_the_same_histogram():
    order = RNG.permutation(900)
    budgets = np.tile([0.5, 1.0, 2.0], 300)
    shuffled = People.from_budgets(budgets[order], delta=1e-4, person_id=order)
    one = release(POOL, X, Y, PEOPLE, noise=SeededNoise(1), **KNOWN)
    two = release(POOL, X[order], Y[order], shuffled, noise=SeededNoise(1), **KNOWN)
    np.testing.assert_array_equal(one.histogram.counts, two.histogram.counts)


def test_sums_of_sites_equal_the_sum_of_all():
    terms = ballot_terms(PEOPLE.groups)
    design = make_design(terms, n_classes=3, n_pool=120, partitions=4)
    maps = PublicMaps.make(POOL, n_classes=3, cells=design.cells, partitions=4)
    parts = [slice(0, 300), slice(300, 600), slice(600, 900)]
    budgets = np.tile([0.5, 1.0, 2.0], 300)
    sites = [
        sum_private(X[p], Y[p], People.from_budgets(budgets[p], delta=1e-4), design=design, maps=maps) for p in parts
    ]
    whole = sum_private(X, Y, PEOPLE, design=design, maps=maps)
    np.testing.assert_array_equal(sum(sites), whole)
    np.testing.assert_array_equal(add_noise(sum(sites), SeededNoise(3)), add_noise(whole, SeededNoise(3)))


def test_rest_of_the_budget_pays_for_later_runs(tmp_path):
    from ipate.engines.teachers.aggregators import GNMax, Mechanism
    from ipate.engines.teachers.loop import account_terms, label
    from ipate.engines.teachers.panel import Panel
    from ipate.engines.teachers.votes import Votes

    path = tmp_path / "l.sqlite"
    names = [group.id for group in PEOPLE.groups]
    with on_disk(path, run="ballots") as book:
        maps = PublicMaps.make(POOL, n_classes=3, cells=3, partitions=4)
        release(POOL, X, Y, PEOPLE, n_classes=3, ledger=book, maps=maps, noise=SeededNoise(1))
        paid = {name: book.spent(name)[0] for name in names}
        assert all(paid[name] < 0.9 * book.limit(name)[0] for name in names)
    votes = Votes(votes=RNG.integers(0, 3, (3, 50)), n_classes=3, groups=tuple(names))
    rows = [(group.id, group.epsilon, group.delta, None) for group in PEOPLE.groups]
    panel = Panel.from_votes(votes, rows, weights=np.ones(3))
    members = {str(name): names[g] for name, g in zip(PEOPLE.ids, PEOPLE.group_of_person, strict=True)}
    voting, meter = GNMax(mechanism=Mechanism(sigma=30.0)), Meter("gdp")
    with begin(path, account_terms(panel, meter, voting), run="teachers", people=members, noise="seeded") as book:
        assert {name: book.opening(name)[0] for name in names} == pytest.approx(paid)
        assert paid_answers(book).answers == {}
        assert Histogram.of(book) is None
        assert label(votes, panel, voting, meter, noise=SeededNoise(2), ledger=book).n_labels > 0
        assert {record.run: (record.vectors, record.labels > 0) for record in book.person(str(PEOPLE.ids[0]))} == {
            "ballots": (1, False),
            "teachers": (0, True),
        }


@pytest.mark.parametrize("bound", ["loose", "sup", "tight", "gdp"])
def test_carried_ballots_cost_the_whole_vector_under_any_bound(tmp_path, bound):
    with on_disk(tmp_path / "l.sqlite") as book:
        found = release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)
        own = found.labelling.groups[0]
        meter = Meter(bound)
        cost = book.cost_of(str(PEOPLE.ids[0]), meter)
    exact = 2 * own.weight**2 if bound == "gdp" else np.array(meter.orders) * own.weight**2
    np.testing.assert_allclose(cost, exact, rtol=1e-12)


def test_second_run_with_spent_budgets_is_refused(tmp_path):
    with on_disk(tmp_path / "l.sqlite", run="one") as book:
        maps = PublicMaps.make(POOL, n_classes=3, cells=60, partitions=4)
        release(POOL, X, Y, PEOPLE, n_classes=3, ledger=book, maps=maps, noise=SeededNoise(1))
    with on_disk(tmp_path / "l.sqlite", run="two") as book:
        with pytest.raises(BudgetExceededError, match="what is left of the budgets affords a total weight"):
            release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(2), **KNOWN)
        assert book.charges == ()


def test_ledger_without_budget_releases_nothing():
    terms = ballot_terms(PEOPLE.groups)
    book = MemoryLedger(terms, opening={entry.account.id: entry.limit for entry in terms})
    with pytest.raises(BudgetExceededError, match="no budget is left"):
        release(POOL, X, Y, PEOPLE, ledger=book, **KNOWN)
    assert book.charges == ()


def test_other_cells_than_the_stored_ones_are_refused(tmp_path):
    with on_disk(tmp_path / "l.sqlite") as book:
        release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)
        with pytest.raises(InputError, match="other cells"):
            release(POOL[1:], X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)


def test_accounts_of_other_people_are_refused(tmp_path):
    others = [Group(id="eps=0.5", budget=PEOPLE.groups[1].budget, people=3)]
    with pytest.raises(InputError, match="accounts are"):
        release(POOL, X, Y, PEOPLE, ledger=MemoryLedger(ballot_terms(others)), **KNOWN)
    with on_disk(tmp_path / "l.sqlite", noise="secure") as book, pytest.raises(InputError, match="noise"):
        release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)
    assert Account(group=others[0], sensitivity=0.0).id == "eps=0.5"


def test_changed_histogram_in_the_file_is_noticed(tmp_path):
    path = tmp_path / "l.sqlite"
    with on_disk(path) as book:
        release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)
    file = sqlite3.connect(path)
    with file:
        file.execute("DROP TRIGGER batches_no_update")
        raw = Histogram(counts=np.zeros((4, 3, 3), dtype=np.int64), cells="x").payload
        file.execute("UPDATE batches SET payload = ?", (raw,))
        file.execute(
            "CREATE TRIGGER batches_no_update BEFORE UPDATE ON batches "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )
    file.close()
    with pytest.raises(IpateError, match="does not match its hash"):
        on_disk(path)


def test_failed_charge_releases_and_stores_nothing(tmp_path, monkeypatch):
    with on_disk(tmp_path / "l.sqlite") as book:
        monkeypatch.setattr(
            "ipate.ledger.sqlite.SqliteStorage.append",
            lambda *_: (_ for _ in ()).throw(sqlite3.OperationalError("disk")),
        )
        with pytest.raises(IpateError):
            release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)
        assert Histogram.of(book) is None
        monkeypatch.undo()
        assert not any(book.spent(account).any() for account in book.terms)


def test_transcript_lists_the_release_by_account(tmp_path):
    path = tmp_path / "l.sqlite"
    with on_disk(path) as book:
        found = release(POOL, X, Y, PEOPLE, ledger=book, noise=SeededNoise(1), **KNOWN)
    file = sqlite3.connect(path)
    rows = file.execute("SELECT account, mechanism, sigma, sensitivity FROM transcript ORDER BY account").fetchall()
    file.close()
    wanted = sorted((group.id, "vector", 1.0, group.weight) for group in found.labelling.groups)
    assert rows == wanted
