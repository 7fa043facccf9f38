"""Noisy counts released with labels: one draw, rounded at once, charged as the vector, stored with the charge."""

import os
import pickle
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from ipate.accounting.bounds import Meter
from ipate.accounting.ladder import Design
from ipate.engines.teachers import loop as engine
from ipate.engines.teachers.account import account_for
from ipate.engines.teachers.aggregators import (
    AGGREGATORS,
    Confident,
    GNMax,
    Interactive,
    LNMax,
    Mechanism,
    NamedAggregator,
    build_aggregator,
)
from ipate.engines.teachers.loop import account_terms, label, open_ledger
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.tested import label_tested
from ipate.engines.teachers.votes import Votes
from ipate.errors import BudgetExceededError, InputError
from ipate.release.answers import paid_answers
from ipate.release.history import Extract
from ipate.release.noise import SecureNoise, SeededNoise, in_steps
from ipate.release.results import Record
from ledger.making import BUDGETS, DELTA, begin, voting

SIGMA, CHECK_SIGMA = 20.0, 30.0
COUNTED = GNMax(mechanism=Mechanism(sigma=SIGMA, counts=True))
PLAIN = GNMax(mechanism=Mechanism(sigma=SIGMA))
CHECKED = Confident(mechanism=Mechanism(sigma=SIGMA, check_sigma=CHECK_SIGMA, threshold=4.0, counts=True))
WEIGHT = {"strict": 0.5, "lax": 1.5, "middle": 1.0}


def on_disk(path, panel, aggregator=COUNTED, *, noise="seeded", **more):
    return begin(path, account_terms(panel, Meter(), aggregator), noise=noise, **more)


def expected(votes, panel, ids, seed):
    """The counts that a seeded run must release, from the noise itself."""
    noisy = panel.tally(votes.votes, votes.n_classes).counts + SIGMA * SeededNoise(seed).normal("label", ids, 3)
    return np.floor(8 * noisy / SIGMA + 0.5).astype(int)


class Recorder:
    """Hands out secure noise, and remembers what it was asked for and what it returned."""

    seeded = False

    def __init__(self):
        self.source, self.asked, self.drawn = SecureNoise(), [], []

    def normal(self, purpose, queries, width):
        self.asked.append((purpose, tuple(queries)))
        self.drawn.append(self.source.normal(purpose, queries, width))
        return self.drawn[-1].copy()


class Fixed:
    """Noise that is always the same number."""

    seeded = True

    def __init__(self, value):
        self.value = value

    def normal(self, purpose, queries, width):
        return np.full((len(queries), width), self.value)


@pytest.mark.parametrize("aggregator", [COUNTED, CHECKED], ids=["gnmax", "confident"])
@pytest.mark.parametrize("batch", [3, None])
def test_label_and_counts_come_from_one_draw(aggregator, batch):
    votes, panel = voting(12)
    run = label(votes, panel, aggregator, Meter(), noise=SeededNoise(3), batch=batch)
    given = run.answered
    assert given.any()
    assert run.noisy_votes.dtype == np.int64
    wanted = expected(votes, panel, [str(i) for i in range(12)], 3)[: len(given)]
    np.testing.assert_array_equal(run.noisy_votes[given], wanted[given])
    np.testing.assert_array_equal(run.labels[given], wanted[given].argmax(axis=1))
    np.testing.assert_array_equal(run.step, np.where(given, SIGMA / 8, 0))
    assert not run.noisy_votes[~given].any()


def test_noise_is_drawn_once_for_label_and_counts():
    votes, panel = voting(8)
    noise = Recorder()
    run = label(votes, panel, COUNTED, Meter(), noise=noise, batch=4)
    assert noise.asked == [("label", ("0", "1", "2", "3")), ("label", ("4", "5", "6", "7"))]
    noisy = panel.tally(votes.votes, 3).counts + SIGMA * np.concatenate(noise.drawn)
    np.testing.assert_array_equal(run.noisy_votes, np.rint(noisy * 8 / SIGMA))
    np.testing.assert_array_equal(run.labels, run.noisy_votes.argmax(axis=1))


def test_tie_of_rounded_counts_goes_to_lower_class():
    counts = np.array([[5.0, 5.4, 0.0], [0.0, 5.4, 5.0], [3.0, 5.0, 9.0]])
    found = COUNTED.ask(counts, queries=["a", "b", "c"], noise=Fixed(0.0), total_weight=10.0)
    np.testing.assert_array_equal(found.noisy_votes, [[2, 2, 0], [0, 2, 2], [1, 2, 4]])
    np.testing.assert_array_equal(found.labels, [0, 1, 2])
    assert PLAIN.ask(counts, queries=["a", "b", "c"], noise=Fixed(0.0), total_weight=10.0).labels[0] == 1


def test_absurd_noise_rounds_without_a_warning():
    assert in_steps(np.array([1e200, -1e200]), sigma=1e-9).tolist() == [2**53, -(2**53)]


def test_interactive_releases_counts_of_paid_labels_only():
    votes, panel = voting(30)
    probs = np.tile([0.98, 0.01, 0.01], (30, 1))
    mechanism = Mechanism(sigma=SIGMA, check_sigma=CHECK_SIGMA, threshold=4.0, counts=True)
    run = label(
        votes,
        panel,
        Interactive(mechanism=mechanism),
        Meter(),
        noise=SeededNoise(1),
        student_probs=probs,
        max_queries=20,
    )
    assert run.reinforced.any()
    np.testing.assert_array_equal(run.step > 0, run.answered)


@pytest.mark.parametrize("aggregator", [COUNTED, CHECKED], ids=["gnmax", "confident"])
def test_weighting_charges_each_weight_for_the_vector(aggregator):
    votes, panel = voting(12)
    book = open_ledger(panel, Meter(), aggregator)
    run = label(votes, panel, aggregator, Meter(), noise=SeededNoise(1), ledger=book, max_queries=12)
    checks = len(run.queries) if aggregator is CHECKED else 0
    for name, weight in WEIGHT.items():
        cost = run.n_labels * 2 * (weight / SIGMA) ** 2 + checks * (weight / CHECK_SIGMA) ** 2
        assert book.spent(name)[0] == pytest.approx(cost, rel=1e-12)
    assert {entry.draws[-1].mechanism for entry in book.charges} == {"vector"}


def test_upsampling_charges_all_copies_of_a_person():
    votes = Votes(votes=np.random.default_rng(0).integers(0, 3, (6, 4)), n_classes=3)
    panel = Panel.from_votes(votes, [("one", 2.0, DELTA, 1.0), ("three", 3.0, DELTA, 3.0)])
    book = open_ledger(panel, Meter(), COUNTED)
    assert label(votes, panel, COUNTED, Meter(), noise=SeededNoise(1), ledger=book).n_labels == 4
    for name, copies in {"one": 1, "three": 3}.items():
        assert book.spent(name)[0] == pytest.approx(4 * 2 * (copies / SIGMA) ** 2, rel=1e-12)


def test_vanishing_charges_teachers_that_took_part():
    present = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=bool)
    votes, panel = voting(4, participation=present)
    quiet = GNMax(mechanism=Mechanism(sigma=80.0, counts=True))
    book = open_ledger(panel, Meter(), quiet)
    run = label(votes, panel, quiet, Meter(), noise=SeededNoise(5), ledger=book)
    scale = 5 / present.sum(axis=0)
    for teacher in range(5):
        own = sum(2 * (scale[query] / 80) ** 2 for query in range(4) if present[teacher, query])
        assert book.spent(f"teacher {teacher}")[0] == pytest.approx(own, rel=1e-9, abs=0)
    tally = panel.tally(votes.votes, 3, present)
    noise = 80 * SeededNoise(5).normal("label", ["0", "1", "2", "3"], 3)
    np.testing.assert_array_equal(run.noisy_votes, np.rint((tally.counts + noise) / 10))


def test_dropped_groups_scale_what_the_others_pay():
    votes, panel = voting(400)
    costly = GNMax(mechanism=Mechanism(sigma=25.0, counts=True))
    book = open_ledger(panel, Meter(), costly)
    run = label(votes, panel, costly, Meter(), noise=SeededNoise(6), ledger=book, stop="drop", batch=50)
    assert len({float(entry.sensitivity["lax"]) for entry in book.charges}) > 1
    for entry in book.charges:
        for name, moved in entry.sensitivity.items():
            paid = entry.answered.sum() * 2 * (float(moved) / 25) ** 2
            assert entry.cost[name][0] == pytest.approx(paid, rel=1e-9, abs=0)
    assert all(group.cost <= group.budget.epsilon for group in run.groups)


def test_nobody_pays_more_for_counts_than_for_labels():
    votes, panel = voting(2000)
    books = {made: open_ledger(panel, Meter(), made) for made in (PLAIN, COUNTED)}
    runs = [label(votes, panel, made, Meter(), noise=SeededNoise(1), ledger=book) for made, book in books.items()]
    assert runs[0].n_labels == runs[1].n_labels
    assert runs[0].noisy_votes is None
    assert [group.cost for group in runs[0].groups] == [group.cost for group in runs[1].groups]
    assert (runs[0].labels != runs[1].labels).mean() < 0.1  # the same noise: only ties of rounded counts differ


def test_repeated_query_returns_the_same_counts():
    votes, panel = voting(6, queries=("a", "b", "a", "a", "c", "b"))
    book = open_ledger(panel, Meter(), COUNTED)
    run = label(votes, panel, COUNTED, Meter(), ledger=book, batch=2)
    np.testing.assert_array_equal(run.noisy_votes[[2, 3, 5]], run.noisy_votes[[0, 0, 1]])
    np.testing.assert_array_equal(run.step, SIGMA / 8)
    assert [int(entry.answered.sum()) for entry in book.charges] == [2, 1]


def test_second_call_returns_stored_counts_at_no_cost(tmp_path):
    votes, panel = voting(10)
    with on_disk(tmp_path / "l.sqlite", panel, noise="secure") as book:
        first = label(votes, panel, COUNTED, Meter(), ledger=book, max_queries=6, batch=4)
        spent = [book.spent(name)[0] for name in WEIGHT]
        assert all(cost == pytest.approx(12 * (w / SIGMA) ** 2) for cost, w in zip(spent, WEIGHT.values(), strict=True))
    with on_disk(tmp_path / "l.sqlite", panel, noise="secure") as book:
        again = label(votes, panel, COUNTED, Meter(), ledger=book, max_queries=6)
        assert [book.spent(name)[0] for name in WEIGHT] == spent
    np.testing.assert_array_equal(again.noisy_votes, first.noisy_votes)
    np.testing.assert_array_equal(again.labels, first.labels)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("dies_at", "stored"), [("_charge", 0), ("_release", 4)])
def test_resumed_run_returns_counts_of_killed_process(tmp_path, monkeypatch, dies_at, stored):
    votes, panel = voting(8)
    path = tmp_path / "l.sqlite"
    monkeypatch.setattr(engine.LabellingState, dies_at, lambda *_: os._exit(9))
    child = os.fork()
    if child == 0:
        with on_disk(path, panel, noise="secure") as book:
            label(votes, panel, COUNTED, Meter(), ledger=book, batch=4)
        os._exit(0)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 9
    monkeypatch.undo()
    with on_disk(path, panel, noise="secure") as book:
        kept, spent = paid_answers(book), book.spent("lax")[0]
        assert len(kept.answers) == len(kept.noisy_votes) == stored
        assert spent == pytest.approx(stored * 2 * (1.5 / SIGMA) ** 2, abs=0)
        run = label(votes, panel, COUNTED, Meter(), ledger=book)
        assert book.spent("lax")[0] == pytest.approx(8 * 2 * (1.5 / SIGMA) ** 2)
    for query, (sigma, votes_of_query) in kept.noisy_votes.items():
        assert sigma == SIGMA
        np.testing.assert_array_equal(run.noisy_votes[int(query)], votes_of_query)


def test_counts_serve_a_later_run_that_wants_labels(tmp_path):
    votes, panel = voting(6)
    with on_disk(tmp_path / "l.sqlite", panel, run="one", pool="p") as book:
        first = label(votes, panel, COUNTED, Meter(), noise=SeededNoise(1), ledger=book)
    with on_disk(tmp_path / "l.sqlite", panel, PLAIN, run="two", pool="p") as book:
        before = book.spent("lax")
        again = label(votes, panel, PLAIN, Meter(), noise=SeededNoise(2), ledger=book)
        assert book.spent("lax") == before
        assert book.inherited() == {str(i) for i in range(6)}
    assert again.noisy_votes is None
    np.testing.assert_array_equal(again.labels, first.labels)


def test_label_without_counts_is_never_drawn_again(tmp_path):
    votes, panel = voting(6)
    with on_disk(tmp_path / "l.sqlite", panel, PLAIN, run="one", pool="p") as book:
        first = label(votes, panel, PLAIN, Meter(), noise=SeededNoise(1), ledger=book, max_queries=4)
    with on_disk(tmp_path / "l.sqlite", panel, run="two", pool="p") as book:
        again = label(votes, panel, COUNTED, Meter(), noise=SeededNoise(2), ledger=book)
        assert [entry.keys for entry in book.charges] == [("4", "5")]
        assert set(paid_answers(book).noisy_votes) == {"4", "5"}
    np.testing.assert_array_equal(again.labels[:4], first.labels)
    np.testing.assert_array_equal(again.step, [0, 0, 0, 0, SIGMA / 8, SIGMA / 8])
    assert not again.noisy_votes[:4].any()


def test_stored_counts_keep_the_sigma_of_their_draw(tmp_path):
    votes, panel = voting(4)
    wider = GNMax(mechanism=Mechanism(sigma=40.0, counts=True))
    with on_disk(tmp_path / "l.sqlite", panel, run="one", pool="p") as book:
        label(votes, panel, COUNTED, Meter(), noise=SeededNoise(1), ledger=book, max_queries=2)
    with on_disk(tmp_path / "l.sqlite", panel, run="two", pool="p") as book:
        run = label(votes, panel, wider, Meter(), noise=SeededNoise(2), ledger=book)
    np.testing.assert_array_equal(run.step, [2.5, 2.5, 5.0, 5.0])


def test_stored_counts_of_other_classes_are_refused(tmp_path):
    votes, panel = voting(4)
    with on_disk(tmp_path / "l.sqlite", panel) as book:
        label(votes, panel, COUNTED, Meter(), noise=SeededNoise(1), ledger=book)
        with pytest.raises(InputError, match="stored counts of 3 classes, and the votes have 4"):
            label(replace(votes, n_classes=4), panel, COUNTED, Meter(), noise=SeededNoise(1), ledger=book)


@pytest.mark.parametrize("bound", ["gdp", "loose", "sup", "tight", "exact"])
def test_carried_counts_cost_the_whole_vector_under_any_bound(tmp_path, bound):
    votes, panel = voting(5)
    with on_disk(tmp_path / "l.sqlite", panel) as book:
        label(votes, panel, COUNTED, Meter(), noise=SeededNoise(1), ledger=book)
        meter = Meter(bound)
        cost = book.cost_of("lax", meter)
        told = book.person("lax")[0]
    vector = 5 * (1.5 / SIGMA) ** 2
    np.testing.assert_allclose(cost, 2 * vector if bound == "gdp" else vector * np.array(meter.orders), rtol=1e-12)
    assert (told.labels, told.checks, told.vectors) == (5, 0, 0)
    if bound == "sup":
        assert np.all(cost > 1.1 * 5 * meter.worst_label(sensitivity=1.5, sigma=SIGMA))


def test_later_run_opens_at_the_vectors_price(tmp_path):
    votes, panel = voting(30)
    with on_disk(tmp_path / "l.sqlite", panel, CHECKED, run="one") as book:
        run = label(votes, panel, CHECKED, Meter(), noise=SeededNoise(1), ledger=book, max_queries=6)
        sup = book.cost_of("lax", Meter("sup", orders=(8.0,)))
    assert 0 < run.n_labels < 6
    check = Meter("sup", orders=(8.0,)).worst_check(sensitivity=1.5, check_sigma=CHECK_SIGMA)
    np.testing.assert_allclose(sup, 6 * check + run.n_labels * 8.0 * (1.5 / SIGMA) ** 2, rtol=1e-12)
    with begin(tmp_path / "l.sqlite", account_terms(panel, Meter(), PLAIN), run="two", noise="seeded") as book:
        wanted = 6 * (1.5 / CHECK_SIGMA) ** 2 + run.n_labels * 2 * (1.5 / SIGMA) ** 2
        np.testing.assert_allclose(book.opening("lax"), wanted, rtol=1e-12)
    with pytest.raises(BudgetExceededError, match="charged under gdp, and this run charges sup"):
        begin(tmp_path / "l.sqlite", account_terms(panel, Meter("sup"), PLAIN), run="three", noise="seeded")


@pytest.mark.parametrize("bound", ["loose", "sup", "tight", "exact"])
@pytest.mark.parametrize("aggregator", [COUNTED, CHECKED], ids=["gnmax", "confident"])
def test_counts_are_refused_under_other_bounds(bound, aggregator):
    votes, panel = voting(4)
    book = open_ledger(panel, Meter(bound), PLAIN)
    reason = f"bound is '{bound}': noisy counts are released under gdp alone"
    for act in (
        lambda: label(votes, panel, aggregator, Meter(bound)),
        lambda: label(votes, panel, aggregator, Meter(bound), ledger=book),
        lambda: account_terms(panel, Meter(bound), aggregator),
        lambda: account_for(votes, panel, aggregator.mechanism, Meter(bound)),
    ):
        with pytest.raises(InputError, match=reason):
            act()
    assert book.charges == ()


def test_counts_are_refused_behind_a_ptr_test():
    votes, panel = voting(4)
    book = open_ledger(panel, Meter("ptr"), PLAIN)
    with pytest.raises(InputError, match="bound is 'ptr': noisy counts are released under gdp alone"):
        label_tested(votes, panel, COUNTED, Design.__new__(Design), ledger=book)
    assert book.charges == ()


def test_counts_are_refused_without_gaussian_noise():
    with pytest.raises(InputError, match=r"counts is True: lnmax has no vector of counts with Gaussian noise"):
        build_aggregator("lnmax", scale=10.0, counts=True)
    with pytest.raises(InputError, match="not laplace noise"):
        LNMax(mechanism=Mechanism(sigma=10.0, noise="laplace", counts=True))
    assert {name for name, made in AGGREGATORS.items() if "counts" in made.takes} == {
        "gnmax",
        "confident",
        "interactive",
    }
    assert build_aggregator("auto", sigma=3.0, counts=True).mechanism.counts
    assert COUNTED.scaled(2.0).mechanism.counts


def test_aggregator_that_says_nothing_releases_no_counts():
    class Own(NamedAggregator):
        name = "own"

    with pytest.raises(InputError, match="counts is True: own has no vector"):
        Own(mechanism=Mechanism(sigma=3.0, counts=True))


def test_no_noisy_double_leaves_the_process(tmp_path):
    votes, panel = voting(8)
    noise = Recorder()
    with on_disk(tmp_path / "l.sqlite", panel, noise="secure") as book:
        run = label(votes, panel, COUNTED, Meter(), noise=noise, ledger=book)
        written = repr((book, run, book.charges)).encode() + pickle.dumps((run, book.charges, paid_answers(book)))
    written += b"".join(file.read_bytes() for file in tmp_path.iterdir())
    noisy = panel.tally(votes.votes, 3).counts + SIGMA * np.concatenate(noise.drawn)
    for form in (noisy, noisy / SIGMA, noisy * 8 / SIGMA, np.concatenate(noise.drawn)):
        assert not any(value.tobytes() in written for value in form.ravel())
    assert run.noisy_votes[0].tobytes() in written


def test_statement_names_counts_that_were_released():
    votes, panel = voting(4)
    texts = [label(votes, panel, made, Meter()).guarantee for made in (PLAIN, COUNTED)]
    assert [text.kind for text in texts] == ["releasable", "releasable"]
    assert "learns from the labels, and" in texts[0].statement
    assert "learns from the labels and their noisy counts, and" in texts[1].statement


def test_record_keeps_counts_through_json():
    votes, panel = voting(9)
    run = label(votes, panel, COUNTED, Meter(), noise=SeededNoise(1), order=[7, 2, 5])
    record = Record.of(run, n_public=9)
    assert record.noisy_votes.shape == (9, 3)
    np.testing.assert_array_equal(record.noisy_votes[[7, 2, 5]], run.noisy_votes)
    np.testing.assert_array_equal(np.flatnonzero(record.step), [2, 5, 7])
    stated = record.as_json(answers=True)
    kept = replace(record, noisy_votes=stated["noisy_votes"], step=stated["step"])
    np.testing.assert_array_equal(kept.noisy_votes, record.noisy_votes)
    np.testing.assert_array_equal(kept.step, record.step)
    assert not {"labels", "queries", "noisy_votes", "step"} & set(record.as_json(answers=False))


def test_history_prices_counts_within_a_batch(tmp_path):
    votes, panel = voting(300)
    quiet = GNMax(mechanism=Mechanism(sigma=400.0, counts=True))
    with on_disk(tmp_path / "l.sqlite", panel, quiet) as book:
        label(votes, panel, quiet, Meter(), noise=SeededNoise(1), ledger=book)
        found = Extract.of(book)
    assert (found.history[-1].queries, found.history[-1].labels) == (300, 300)
    middle = next(point for point in found.history if point.labels == 150)
    cost = Meter().epsilon([150 * 2 * (1.5 / 400) ** 2], DELTA)[0]
    assert middle.costs["lax"] == pytest.approx(float(cost), rel=1e-9)
    assert len(found.answers) == 300


def test_transcript_tells_labels_with_counts_apart(tmp_path):
    votes, panel = voting(2)
    with on_disk(tmp_path / "l.sqlite", panel) as book:
        label(votes, panel, COUNTED, Meter(), noise=SeededNoise(1), ledger=book)
    with sqlite3.connect(tmp_path / "l.sqlite") as file:
        assert set(file.execute("SELECT mechanism, count(*) FROM transcript GROUP BY mechanism")) == {
            ("vector", 2 * len(BUDGETS))
        }
