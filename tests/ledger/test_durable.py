"""Charges and answers on disk: committed together, continued after an interruption, and read back as they were."""

import sqlite3

import numpy as np
import pytest

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import GNMax, Interactive, Mechanism
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError, IpateError
from ipate.ledger.records import Draw, Head
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.answers import paid_answers
from ipate.release.noise import SecureNoise, SeededNoise
from ledger.making import BUDGETS, CONFIDENT, all_terms, begin, bit, charge, opened, terms, voting, whole


class CrashError(Exception):
    """Stands for a crash."""


def interrupt_after(book, batches):
    """Let a ledger die at the beginning of a later charge."""
    real, done = book.charge, []

    def dying(entry):
        if len(done) == batches:
            raise CrashError
        done.append(entry)
        real(entry)

    book.charge = dying


def same(one, two):
    np.testing.assert_array_equal(one.queries, two.queries)
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one.answered, two.answered)
    np.testing.assert_array_equal(one.reinforced, two.reinforced)
    np.testing.assert_array_equal(one.repeated, two.repeated)
    assert (one.stopped_by, one.n_labels, one.n_queries) == (two.stopped_by, two.n_labels, two.n_queries)
    for mine, its in zip(one.groups, two.groups, strict=True):
        assert mine.cost == pytest.approx(its.cost, rel=1e-9)
        assert (mine.sensitivity, mine.labels_until_exhausted) == (its.sensitivity, its.labels_until_exhausted)


CASES = {
    "to the end of a budget": {},
    "a number of labels": {"stop": "count", "max_labels": 11},
    "a number of queries": {"max_queries": 23},
    "another order": {"order": list(range(600))[::-1]},
    "groups drop out": {"stop": "drop"},
    "repeats": {"order": [3, 4, 3, 5, 4, 6, 7, 8, 8, 9, 10, 11, 12, 3, 13, 14, 15, 16]},
}


@pytest.mark.parametrize("bound", ["gdp", "tight"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("after", [0, 2, 9])
def test_interrupted_labelling_resumes_to_the_same_result(tmp_path, bound, case, after):
    votes, panel = voting(600)
    meter, how = Meter(bound), {"noise": SeededNoise(3), "batch": 5, **CASES[case]}
    aggregator = GNMax(mechanism=Mechanism(sigma=25.0)) if case == "groups drop out" else CONFIDENT
    undisturbed = label(votes, panel, aggregator, meter, **how)
    path = tmp_path / "ledger.sqlite"
    with opened(path, panel, meter, aggregator) as book:
        interrupt_after(book, after)
        try:
            label(votes, panel, aggregator, meter, ledger=book, **how)
        except CrashError:
            pass
        else:
            assert after == 9  # it had come to its end before
    with opened(path, panel, meter, aggregator) as book:
        assert book.head.charges <= after
        same(label(votes, panel, aggregator, meter, ledger=book, **how), undisturbed)
        head = book.head
        same(label(votes, panel, aggregator, meter, ledger=book, **how), undisturbed)  # all stored: nothing is charged
        assert book.head == head == book.verify()


def test_dropped_groups_stay_dropped_after_an_interruption(tmp_path):
    votes, panel = voting(400)
    meter, aggregator = Meter("tight"), GNMax(mechanism=Mechanism(sigma=25.0))
    how = {"noise": SeededNoise(6), "batch": 10, "stop": "drop"}
    undisturbed = label(votes, panel, aggregator, meter, **how)
    assert sum(group.labels_until_exhausted is not None for group in undisturbed.groups) > 1
    with opened(tmp_path / "a.sqlite", panel, meter, aggregator) as book:
        label(votes, panel, aggregator, meter, ledger=book, **how)
        batches = book.head.charges
    for after in range(0, batches, max(1, batches // 12)):
        path = tmp_path / f"{after}.sqlite"
        with opened(path, panel, meter, aggregator) as book:
            interrupt_after(book, after)
            with pytest.raises(CrashError):
                label(votes, panel, aggregator, meter, ledger=book, **how)
        with opened(path, panel, meter, aggregator) as book:
            same(label(votes, panel, aggregator, meter, ledger=book, **how), undisturbed)


def test_stored_answers_are_returned_and_count_as_asked(tmp_path):
    votes, panel = voting(60)
    with opened(tmp_path / "ledger.sqlite", panel, noise="secure") as book:
        first = label(votes, panel, CONFIDENT, Meter(), noise=SecureNoise(), ledger=book, max_queries=40)
        head, spent = book.head, book.spent("lax")
        again = label(votes, panel, CONFIDENT, Meter(), noise=SecureNoise(), ledger=book, max_queries=40)
        same(again, first)
        assert book.head == head
        np.testing.assert_array_equal(book.spent("lax"), spent)
        fewer = label(votes, panel, CONFIDENT, Meter(), noise=SecureNoise(), ledger=book, max_labels=3, stop="count")
        assert fewer.n_labels == 3
        assert book.head == head


def test_reinforced_student_classes_are_stored_too(tmp_path):
    votes, panel = voting(50)
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.full(3, 0.1), 50)
    aggregator = Interactive(mechanism=Mechanism(sigma=20.0, check_sigma=30.0, threshold=4.0), gamma=0.7)
    with opened(tmp_path / "ledger.sqlite", panel, None, aggregator) as book:
        first = label(votes, panel, aggregator, Meter(), student_probs=probs, ledger=book, noise=SeededNoise(4))
        assert 0 < first.reinforced.sum() < first.n_queries
    with opened(tmp_path / "ledger.sqlite", panel, None, aggregator) as book:
        again = label(votes, panel, aggregator, Meter(), student_probs=probs, ledger=book, noise=SeededNoise(5))
        same(again, first)


def test_rotating_teachers_are_charged_per_query_and_resumed(tmp_path):
    present = np.random.default_rng(2).random((5, 200)) < 0.6
    present[0] = True
    votes, panel = voting(200, participation=present)
    undisturbed = label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(5), batch=4)
    with opened(tmp_path / "ledger.sqlite", panel) as book:
        interrupt_after(book, 2)
        with pytest.raises(CrashError):
            label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(5), ledger=book, batch=4)
    with opened(tmp_path / "ledger.sqlite", panel) as book:
        same(label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(5), ledger=book, batch=4), undisturbed)
        for account in panel.account_ids:
            np.testing.assert_allclose(book.cost_of(account, Meter()), book.spent(account), rtol=1e-9)


def test_teachers_in_other_rows_are_not_charged_twice(tmp_path):
    """The same teachers vote in both runs, in other rows of the file: their people must not pay twice."""
    present = np.repeat([[True], [False]], 3, axis=0) & np.ones((6, 200), dtype=bool)
    aggregator, spent = GNMax(mechanism=Mechanism(sigma=40.0)), 0.0
    for run, here in (("one", present), ("two", present[::-1])):
        votes = Votes(votes=np.zeros((6, 200), np.int64), n_classes=2, groups=("all",) * 6, participation=here)
        panel = Panel.from_votes(votes, [("all", 1.0, 1e-5, None)])
        with begin(tmp_path / "l", account_terms(panel, Meter(), aggregator), run=run) as book:
            label(votes, panel, aggregator, Meter(), ledger=book, max_queries=9)
            now = [float(book.spent(account)[0]) for account in panel.account_ids]
            assert min(now) == spent  # those who did not vote start where the others ended
            spent = max(now)
    assert Meter().epsilon([spent], 1e-5)[0] <= 1.0
    votes = Votes(votes=votes.votes, n_classes=2, groups=("other",) * 6, participation=present)
    terms = account_terms(Panel.from_votes(votes, [("other", 1.0, 1e-5, None)]), Meter(), aggregator)
    with pytest.raises(InputError, match="'other' is new"):
        begin(tmp_path / "l", terms, run="three")


def test_charge_that_contradicts_its_answers_is_refused(tmp_path):
    with begin(tmp_path / "ledger.sqlite", all_terms()) as book:
        wrong = [
            {"queries": ("a", "b"), "labels": [1, 2], "answered": [True, False]},
            {"queries": ("a", "b"), "labels": [1, -1]},
            {"queries": ("a", "a"), "labels": [1, 1]},
            {"queries": ("a", "b"), "labels": [1]},
            {"queries": ("a", "b"), "answered": [True]},
            {"queries": ("a", "b"), "sensitivity": [1.0, 1.0, 1.0]},
        ]
        for bad in wrong:
            with pytest.raises(InputError):
                book.charge(charge({"lax": 0.01}, **bad))
        book.charge(charge({"lax": 0.01}, queries=("a",), labels=[1]))
        with pytest.raises(InputError, match="duplicate query 'a'"):
            book.charge(charge({"lax": 0.01}, queries=("b", "a"), labels=[1, 1]))
        assert book.head.charges == 1
        assert book.spent("lax").tolist() == [0.01]


def test_transcript_view_lists_every_release(tmp_path):
    path = tmp_path / "ledger.sqlite"
    votes, panel = voting(12)
    with opened(path, panel) as book:
        run = label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(1), ledger=book, batch=5)
    with sqlite3.connect(path) as file:
        rows = file.execute("SELECT key, account, mechanism, sigma, sensitivity, bound FROM transcript").fetchall()
    file.close()
    expected = {
        (str(query), group, kind, sigma, weight, "gdp")
        for query, given in zip(run.queries, run.answered, strict=True)
        for group, weight in (("strict", 0.5), ("middle", 1.0), ("lax", 1.5))
        for kind, sigma in (("check", 30.0), ("argmax", 20.0))
        if kind == "check" or given
    }
    assert set(rows) == expected
    assert len(rows) == len(expected)
    assert path.stat().st_mode & 0o077 == 0  # nobody else reads answers and costs, or counts charges
    assert path.with_name(f"{path.name}.head").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("table", ["entries", "runs", "accounts", "batches", "charges", "draws", "keys", "members"])
def test_triggers_refuse_updates_and_deletes(tmp_path, table):
    path = tmp_path / "ledger.sqlite"
    with begin(path, all_terms(), people={"ada": "strict"}) as book:
        book.charge(charge({"lax": 0.01}, queries=("a",), labels=[1]))
        book.charge(whole({"lax": 0.01}))
    file = sqlite3.connect(path)
    column = file.execute(f"SELECT * FROM {table}").description[0][0]
    for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = {column}"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            file.execute(statement)
    file.close()


def test_head_survives_writing_and_reading_back(tmp_path):
    with begin(tmp_path / "ledger.sqlite", all_terms()) as book:
        book.charge(charge({"lax": 0.01}))
        head = book.head
    assert (head.entries, head.charges) == (2, 1)
    assert Head.parse(str(head)) == head
    for bad in ("", "1:2", "a:b:" + "0" * 64, "1:2:3"):
        with pytest.raises(InputError, match="head is"):
            Head.parse(bad)


def test_run_cannot_be_continued_with_other_settings(tmp_path):
    path = tmp_path / "ledger.sqlite"
    begin(path, all_terms(), people={"ada": "strict"}, pool="images").close()
    for terms_, more in (
        (all_terms(("strict", "lax")), {}),
        ([*all_terms(("strict", "lax")), terms("middle", 2.5)], {}),
        ([*all_terms(("strict", "lax")), terms("middle", 2.0, meter=Meter("loose"))], {}),
        (all_terms(), {"pool": "texts"}),
        (all_terms(), {"people": {"ada": "lax"}}),
    ):
        with pytest.raises(InputError, match="begin a new run"):
            begin(path, terms_, **more)
    with SqliteLedger.open(path) as book:
        assert tuple(book.terms) == tuple(BUDGETS)
        assert book.run == "run"
    with pytest.raises(InputError, match="'other' is not in this ledger"):
        SqliteLedger.open(path, "other")


def test_readers_see_committed_charges_and_cannot_charge(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with begin(path, all_terms()) as writer:
        writer.charge(charge({"lax": 0.01}, queries=("a",), labels=[2]))
        with SqliteLedger.read(path) as reader:
            assert dict(paid_answers(reader).answers) == {"a": (2, True, False)}
            assert reader.head == writer.head
            with pytest.raises(IpateError, match="read-only"):
                reader.charge(charge({"lax": 0.01}))


def test_terms_and_answers_survive_unusual_names(tmp_path):
    path = tmp_path / "a ledger ünd more?#.sqlite"
    odd = [terms("größe 'x' — \"y\"", 1.0), terms("", 2.0, group="empty")]
    with begin(path, odd) as book:
        book.charge(charge({entry.account.id: 0.01 for entry in odd}, queries=("é\n\0z", "日本"), labels=[0, 1]))
    with begin(path, odd) as book:
        assert set(paid_answers(book).answers) == {"é\n\0z", "日本"}


def test_open_ledger_uses_the_terms_of_the_panel():
    _, panel = voting(1)
    from ipate.engines.teachers.loop import open_ledger

    for bound in ("gdp", "loose", "exact"):
        made = open_ledger(panel, Meter(bound), CONFIDENT)
        assert list(made.terms.values()) == account_terms(panel, Meter(bound), CONFIDENT)


@pytest.mark.parametrize(("first", "second"), [("secure", "seeded"), ("seeded", "secure")])
def test_run_with_the_other_noise_is_refused(tmp_path, first, second):
    """Two commands may have looked at the same time, before either began: who holds the lock looks again."""
    path = tmp_path / "shared.sqlite"
    begin(path, all_terms(), run="a", noise=first).close()
    before = path.read_bytes()
    with pytest.raises(InputError, match=rf"run 'a' of this ledger has {first} noise and this run has {second} noise"):
        begin(path, all_terms(), run="b", noise=second)
    with pytest.raises(InputError, match=rf"run 'a' has {first} noise"):
        begin(path, all_terms(), run="a", noise=second)
    with SqliteLedger.read(path) as book:
        assert (book.runs, book.noise) == (("a",), first)
    assert len(path.read_bytes()) == len(before)


def test_continued_run_reports_parts_charges_and_opening(tmp_path):
    path, one = tmp_path / "ledger.sqlite", Meter().worst_label(sensitivity=1.0, sigma=40.0)
    with begin(path, all_terms(), run="other", pool="pool") as book:
        book.charge(charge({"lax": one}, queries=("a",), labels=[1]))
    with begin(path, all_terms(), run="one", pool="pool") as book:
        book.charge(charge({"lax": one}, queries=("b",), labels=[2]))
    how = {"run": "two", "pool": "pool", "parent": "one", "reason": "withdrawal"}
    with begin(path, all_terms(), **how) as book:
        book.charge(charge({"lax": one}, queries=("c",), labels=[0]))
    with SqliteLedger.read(path) as book:
        assert (book.parts(), book.parts("other")) == (("one", "two"), ("other",))
        assert [entry.keys for entry in book.charges] == [("b",), ("c",)]
        assert book.inherited() == {"a"}
        np.testing.assert_allclose(book.opening("lax"), one)
        np.testing.assert_allclose(book.spent("lax"), 3 * one)
    for wrong in ({"parent": "nobody"}, {"reason": "boredom"}, {"reason": None}):
        with pytest.raises(InputError, match=r"parent is 'nobody'|reason is"):
            begin(path, all_terms(), **{**how, "run": "three", **wrong})
    with pytest.raises(InputError, match="parent is 'other', not 'one'"):
        begin(path, all_terms(), **{**how, "parent": "other"})


def test_charges_are_read_back_as_they_were_made(tmp_path):
    path = tmp_path / "ledger.sqlite"
    made = [
        charge({"lax": 0.01, "strict": 0.0}, queries=("a", "b"), labels=[2, -1], answered=[True, False]),
        charge({"lax": 0.01}, queries=("c", "d"), sensitivity=[1.0, 0.5], check_sigma=30.0, noise="laplace"),
        charge({"lax": 0.01}, queries=("e",), labels=[1], answered=[False], reinforced=np.array([True])),
        whole({"lax": 0.01}),
        bit({"lax": 0.01}),
    ]
    with begin(path, all_terms()) as book:
        for entry in made:
            book.charge(entry)
    with SqliteLedger.read(path) as book:
        for found, entry in zip(book.charges, made, strict=True):
            for name in ("keys", "bound", "seeded", "scope", "codec", "payload", "paid_by"):
                assert getattr(found, name) == getattr(entry, name)
            for mine, its in zip(found.draws, entry.draws, strict=True):
                assert (mine.mechanism, mine.sigma, mine.noise) == (its.mechanism, its.sigma, its.noise)
                np.testing.assert_array_equal(found.drawn(mine), entry.drawn(its))
            np.testing.assert_equal(dict(found.cost), dict(entry.cost))
            np.testing.assert_equal(dict(found.sensitivity), dict(entry.sensitivity))
        assert paid_answers(book).answers == {"a": (2, True, False), "b": (-1, False, False), "e": (1, False, True)}


@pytest.mark.parametrize("first", ["labels", "counts"])
def test_query_is_answered_with_or_without_counts_once(tmp_path, first):
    given = {"labels": {}, "counts": {"counts": np.array([[1, 4, 2]])}}
    second = "counts" if first == "labels" else "labels"
    with begin(tmp_path / "l.sqlite", all_terms(), run="one", pool="pool") as book:
        book.charge(charge({"lax": 0.01}, queries=("a",), labels=[1], **given[first]))
    with begin(tmp_path / "l.sqlite", all_terms(), run="two", pool="pool") as book:
        with pytest.raises(InputError, match="duplicate query 'a'"):
            book.charge(charge({"lax": 0.01}, queries=("a",), labels=[1], **given[second]))
        assert paid_answers(book).answers == {"a": (1, True, False)}
        assert {query: (sigma, votes.tolist()) for query, (sigma, votes) in paid_answers(book).noisy_votes.items()} == (
            {"a": (40.0, [1, 4, 2])} if first == "counts" else {}
        )
        assert book.inherited() == {"a"}


def test_keys_of_a_run_are_not_those_of_its_pool(tmp_path):
    """A release with the scope of a run is refused twice within it and its parts, and is not shared with others."""
    path, own = tmp_path / "ledger.sqlite", {"scope": "run", "codec": "own", "payload": b"1"}
    with begin(path, all_terms(), run="one", pool="pool") as book:
        book.charge(charge({"lax": 0.01}, queries=("a",), labels=[1]))
        book.charge(charge({"lax": 0.01}, queries=("b",), codec="other"))
        book.charge(charge({"lax": 0.01}, queries=("a",), **own))
        with pytest.raises(InputError, match="this run has released 'a' already, and noise is drawn only once"):
            book.charge(charge({"lax": 0.01}, queries=("a",), **own))
    with begin(path, all_terms(), run="two", pool="pool", parent="one", reason="withdrawal") as book:
        assert [found.payload for found in book.released("own", "run")] == [b"1"]
        with pytest.raises(InputError, match="this run has released 'a' already"):
            book.charge(charge({"lax": 0.01}, queries=("a",), **own))
    with begin(path, all_terms(), run="three", pool="pool") as book:
        assert book.released("own", "run") == book.released("own") == ()
        assert paid_answers(book).answers == {"a": (1, True, False)}
        assert book.inherited() == {"a", "b"}
        book.charge(charge({"lax": 0.01}, queries=("a",), **own))


def test_mechanism_of_a_later_version_is_refused_by_name(tmp_path, monkeypatch):
    path = tmp_path / "ledger.sqlite"
    with begin(path, all_terms()) as book:
        for module in ("records", "chain"):
            monkeypatch.setattr(f"ipate.ledger.{module}.MECHANISMS", ("argmax", "later"))
        book.charge(charge({"lax": 0.01}, queries=("a",), draws=(Draw(mechanism="later", sigma=1.0),)))
    monkeypatch.undo()
    with pytest.raises(IpateError, match=r"entry 2 has the mechanism 'later', unknown to this ipate"):
        SqliteLedger.open(path)
