"""A release that is tested as a whole: the order of charge, bit and labels, and what survives an interruption."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.accounting.ladder import level
from ipate.engines.teachers import tested
from ipate.engines.teachers.aggregators import Confident, Interactive, Mechanism
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.reference import Reference, Simulator, design_for, read_design, write_design
from ipate.engines.teachers.tested import label_tested
from ipate.engines.teachers.votes import Votes
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.admission import Roster
from ipate.ledger.base import MemoryLedger
from ipate.people.budgets import Account, Budget, Group
from ipate.release.answers import paid_answers
from ipate.release.noise import SecureNoise
from ledger.making import begin

K, CLASSES, POOL = 60, 3, 90
MECHANISM = Mechanism(sigma=8.0, check_sigma=20.0, threshold=40.0)
CONFIDENT = Confident(mechanism=MECHANISM)
PTR = Meter("ptr")
NEW = Roster(people={"bob": "all"}, new_people=True)


def panel(epsilon=2.0, delta=1e-3):
    group = Account(group=Group(id="all", budget=Budget(epsilon, delta)), sensitivity=1.0)
    return Panel(groups=(group,), weights=np.ones(K), disjoint=True)


def two_groups():
    groups = (
        Account(group=Group(id="strict", budget=Budget(2.0, 1e-3)), sensitivity=0.75),
        Account(group=Group(id="lax", budget=Budget(3.0, 1e-3)), sensitivity=1.25),
    )
    member = np.repeat([0, 1], K // 2)
    return Panel(groups=groups, weights=np.array([0.75, 1.25])[member], member=member)


GENEROUS = panel(epsilon=8.0, delta=1e-2)


def clear_votes(seed=0, wrong=1):
    """Teachers agree on almost everything."""
    truth = np.random.default_rng(seed).integers(CLASSES, size=POOL)
    votes = np.broadcast_to(truth, (K, POOL)).copy()
    votes[:wrong] = (truth + 1) % CLASSES
    return Votes(votes=votes, n_classes=CLASSES, labels=truth)


def divided_votes():
    """Every query is tied between two classes: nothing is clear, and the level is 0."""
    votes = np.zeros((K, POOL), dtype=np.int64)
    votes[K // 2 :] = 1
    return Votes(votes=votes, n_classes=CLASSES)


def make(whose=None, fallback=False, queries=POOL):
    guess = Reference(simulator=Simulator(accuracy=0.95, queries=300), fallback=fallback)
    return design_for(
        guess, whose or panel(), MECHANISM, n_classes=CLASSES, queries=[str(index) for index in range(queries)]
    )


@pytest.fixture(scope="module")
def design():
    made = make()
    assert made.n_queries == POOL
    return made


@pytest.fixture(scope="module")
def cautious():
    return make(GENEROUS, fallback=True)


class Noise(SecureNoise):
    """Secure noise whose test says what is wanted, and which notes the order of its draws."""

    def __init__(self, says=0.0, events=None):
        super().__init__()
        self.says, self.events, self.streams = says, [] if events is None else events, []

    def uniform(self, purpose, queries, width):
        self.events.append(purpose)
        self.streams.extend(queries)
        if isinstance(self.says, BaseException):
            raise self.says
        return np.full((len(queries), width), self.says)

    def normal(self, purpose, queries, width):
        self.events.append(purpose)
        return super().normal(purpose, queries, width)


PASS, FAIL = 0.0, 1 - 2.0**-53


class Spy(MemoryLedger):
    def __init__(self, terms, events):
        super().__init__(terms)
        self.events = events

    def charge(self, charge):
        super().charge(charge)
        self.events.append(("charged", float(max(cost[0] for cost in charge.cost.values())), charge.payload))


def test_tested_weights_are_those_that_label(monkeypatch):
    """The test, the labels and the charge all use the panel on the lattice."""
    member = np.repeat([0, 1], K // 2)
    accounts = tuple(
        Account(group=Group(id=name, budget=Budget(epsilon, 1e-3)), sensitivity=weight)
        for name, epsilon, weight in (("strict", 2.0, 0.7), ("lax", 3.0, 1.3))
    )
    whose = Panel(groups=accounts, weights=np.array([0.7, 1.3])[member], member=member)
    seen = []
    monkeypatch.setattr(tested, "pass_probability", lambda _, counts: seen.append(counts) or 1.0)
    counted = Panel.tally

    def tally(self, *given, **options):
        assert set(self.weights) == {179 / 256, 332 / 256}  # rounded down
        assert [own.sensitivity for own in self.groups] == [180 / 256, 333 / 256]  # rounded up
        return counted(self, *given, **options)

    made = make(whose)
    monkeypatch.setattr(Panel, "tally", tally)
    result = label_tested(clear_votes(), whose, CONFIDENT, made, noise=Noise(PASS))
    assert result.passed
    assert not np.any(seen[0] % made.setting.lattice)
    assert [group.weight for group in result.groups] == [179 / 256, 332 / 256]
    assert [own.sensitivity for own in made.setting.groups] == [180 / 256, 333 / 256]


def test_charge_precedes_stored_bit_which_precedes_labels(design):
    events = []
    ledger = Spy(account_terms(panel(), PTR, CONFIDENT), events)
    result = label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(PASS, events), ledger=ledger)
    kinds = [event if isinstance(event, str) else event[0] for event in events]
    assert kinds[:3] == ["charged", "test", "charged"]
    charged, _, stored = events[:3]
    assert (charged[1], json.loads(charged[2]).keys()) == (2.0, {"design", "votes"})
    assert (stored[1], json.loads(stored[2])) == (0.0, {"passed": True})
    assert json.loads(charged[2])["design"] == design.digest
    assert kinds.index("check") > 2
    assert kinds.index("label") > 2
    assert kinds.count("test") == 1
    assert all(event[1] == 0.0 for event in events[3:] if not isinstance(event, str))
    assert result.passed
    assert result.n_queries == POOL == design.n_queries
    assert ledger.spent("all").tolist() == [2.0]


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_seeded_bit_comes_from_the_same_stream(design, tmp_path, seeded, durable):
    """The stream is named after the run, whatever the kind of noise, which is a field of the run."""
    noise = Noise(FAIL)
    noise.seeded = seeded
    kind = "seeded" if seeded else "secure"
    terms = account_terms(panel(), PTR, CONFIDENT)
    made = begin(tmp_path / "l", terms, run="march", noise=kind) if durable else MemoryLedger(terms)
    with made as ledger:
        label_tested(clear_votes(), panel(), CONFIDENT, design, noise=noise, ledger=ledger)
    name = "march" if durable else "run"
    assert noise.streams == [f"the test of {name}"]


@pytest.mark.parametrize("durable", [False, True])
def test_tested_release_refuses_mixed_noise(design, tmp_path, durable):
    """Also where the run was interrupted between its charge and its bit: the bit is not drawn from other noise."""
    terms = account_terms(panel(), PTR, CONFIDENT)
    made = begin(tmp_path / "l", terms, noise="seeded") if durable else MemoryLedger(terms, noise="seeded")
    seeded, secure = Noise(KeyboardInterrupt()), Noise(PASS)
    seeded.seeded = True
    with made as ledger:
        with pytest.raises(InputError, match="must not share a ledger"):
            label_tested(clear_votes(), panel(), CONFIDENT, design, noise=secure, ledger=ledger)
        assert (ledger.charges, ledger.epsilon("all"), secure.events) == ((), 0.0, [])
        with pytest.raises(KeyboardInterrupt):
            label_tested(clear_votes(), panel(), CONFIDENT, design, noise=seeded, ledger=ledger)
        with pytest.raises(InputError, match="must not share a ledger"):
            label_tested(clear_votes(), panel(), CONFIDENT, design, noise=secure, ledger=ledger)
        assert (len(ledger.charges), secure.events) == (1, [])


def test_passed_test_asks_all_queries_and_costs_budget(design):
    votes = clear_votes()
    result = label_tested(votes, panel(), CONFIDENT, design, noise=Noise(PASS))
    assert result.queries.tolist() == list(range(POOL))
    assert 0 < result.n_labels <= POOL
    right = result.labels[result.answered] == votes.labels[result.answered]
    assert right.mean() > 0.95
    (group,) = result.groups
    assert (group.cost, group.budget.epsilon, group.budget.delta, group.labels_until_exhausted) == (
        2.0,
        2.0,
        1e-3,
        None,
    )
    assert result.guarantee.kind == "releasable"
    assert "private test" in result.guarantee.statement


def test_failed_test_draws_no_labels_and_costs_budget(design):
    events = []
    noise = Noise(FAIL, events)
    ledger = MemoryLedger(account_terms(panel(), PTR, CONFIDENT))
    result = label_tested(clear_votes(), panel(), CONFIDENT, design, noise=noise, ledger=ledger)
    assert result.passed is False
    assert result.stopped_by == "failed"
    assert result.n_queries == result.n_labels == 0
    assert events == ["test"]
    assert ledger.epsilon("all") == 2.0
    assert result.groups[0].cost == 2.0
    with pytest.raises(BudgetExceededError, match="a budget pays for one"):
        label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(PASS), ledger=ledger)


def test_test_bit_depends_on_the_votes(design):
    """Clear votes pass nearly always, divided ones next to never."""
    assert design.pi[level(design, np.array([[59.0, 1, 0]] * POOL))] > 0.95
    assert design.pi[level(design, np.array([[30.0, 30, 0]] * POOL))] < 0.01
    said = [label_tested(divided_votes(), panel(), CONFIDENT, design, noise=Noise(u)).passed for u in (0.01, 0.5)]
    assert said == [False, False]
    said = [label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(u)).passed for u in (0.01, 0.95)]
    assert said == [True, True]


def test_fallback_run_spends_at_most_the_remaining_budget(cautious):
    ledger = MemoryLedger(account_terms(GENEROUS, PTR, CONFIDENT))
    result = label_tested(clear_votes(), GENEROUS, CONFIDENT, cautious, noise=Noise(FAIL), ledger=ledger)
    assert result.passed is False
    assert result.stopped_by == "budget"
    assert result.n_queries < POOL
    labels, queries = result.n_labels, result.n_queries
    spent = 2 * labels / MECHANISM.sigma**2 + queries / MECHANISM.check_sigma**2
    limit = float(gdp.mu_of(4.0, 1e-3)) ** 2  # (ε/2, δ/10)
    one = 2 / MECHANISM.sigma**2 + 1 / MECHANISM.check_sigma**2
    assert spent <= limit < spent + one
    assert ledger.epsilon("all") == 8.0
    assert result.groups[0].cost == 8.0
    assert result.meter == PTR
    assert result.guarantee.kind == "releasable"


def test_each_group_pays_its_own_budget():
    whose = two_groups()
    made = make(whose)
    result = label_tested(clear_votes(), whose, CONFIDENT, made, noise=Noise(PASS))
    assert {group.id: group.cost for group in result.groups} == {"strict": 2.0, "lax": 3.0}
    swapped = replace(whose, groups=tuple(g.with_budget(Budget(5.0 - g.epsilon, g.delta)) for g in whose.groups))
    with pytest.raises(InputError, match="other figures for group 'strict'"):
        label_tested(clear_votes(), swapped, CONFIDENT, made, noise=Noise(PASS))


def opened(path, whose=None, run="march"):
    return begin(path, account_terms(whose or panel(), PTR, CONFIDENT), run=run)


def test_resume_before_the_bit_charges_only_once(design, tmp_path):
    with opened(tmp_path / "l") as ledger, pytest.raises(KeyboardInterrupt):
        label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(KeyboardInterrupt()), ledger=ledger)
    with opened(tmp_path / "l") as ledger:
        assert ledger.epsilon("all") == 2.0
        assert ledger.head.charges == 1
        result = label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(PASS), ledger=ledger)
        assert result.passed
        assert ledger.epsilon("all") == 2.0


@pytest.mark.parametrize("says", [PASS, FAIL], ids=["passed", "failed"])
def test_resume_after_the_bit_draws_no_second(design, tmp_path, says):
    class Breaks(Noise):
        def normal(self, purpose, queries, width):
            raise KeyboardInterrupt

    with opened(tmp_path / "l") as ledger:
        if says == PASS:
            with pytest.raises(KeyboardInterrupt):
                label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Breaks(says), ledger=ledger)
        else:
            label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Breaks(says), ledger=ledger)
    other = Noise(AssertionError("a second test was drawn"))
    with opened(tmp_path / "l") as ledger:
        result = label_tested(clear_votes(), panel(), CONFIDENT, design, noise=other, ledger=ledger)
        again = label_tested(clear_votes(), panel(), CONFIDENT, design, noise=other, ledger=ledger)
    assert result.passed is again.passed is (says == PASS)
    assert result.n_queries == (POOL if says == PASS else 0)
    assert np.array_equal(result.labels, again.labels)


def test_resume_between_labels_keeps_the_stored_labels(design, tmp_path):
    class Breaks(Noise):
        def normal(self, purpose, queries, width):
            if len([event for event in self.events if event == "label"]) == 3:
                raise KeyboardInterrupt
            return super().normal(purpose, queries, width)

    with opened(tmp_path / "l") as ledger, pytest.raises(KeyboardInterrupt):
        label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Breaks(PASS), ledger=ledger, batch=10)
    with opened(tmp_path / "l") as ledger:
        before = paid_answers(ledger).answers
        result = label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(FAIL), ledger=ledger)
    assert 0 < len(before) < POOL
    assert result.n_queries == POOL
    assert all(result.labels[int(name)] == entry[0] for name, entry in before.items())


def test_resumed_fallback_stays_within_its_remaining_budget(cautious, tmp_path):
    undisturbed = label_tested(clear_votes(), GENEROUS, CONFIDENT, cautious, noise=Noise(FAIL))

    class Breaks(Noise):
        def normal(self, purpose, queries, width):
            if self.events.count("label") == 2:
                raise KeyboardInterrupt
            return super().normal(purpose, queries, width)

    with opened(tmp_path / "l", GENEROUS) as ledger, pytest.raises(KeyboardInterrupt):
        label_tested(clear_votes(), GENEROUS, CONFIDENT, cautious, noise=Breaks(FAIL), ledger=ledger, batch=2)
    with opened(tmp_path / "l", GENEROUS) as ledger:
        result = label_tested(clear_votes(), GENEROUS, CONFIDENT, cautious, noise=Noise(PASS), ledger=ledger, batch=2)
        assert ledger.epsilon("all") == 8.0
    spent = 2 * result.n_labels / MECHANISM.sigma**2 + result.n_queries / MECHANISM.check_sigma**2
    assert spent <= float(gdp.mu_of(4.0, 1e-3)) ** 2
    assert result.n_queries > 4
    assert abs(result.n_queries - undisturbed.n_queries) <= 10


def test_charge_for_one_design_covers_no_other(design, tmp_path):
    with opened(tmp_path / "l") as ledger, pytest.raises(KeyboardInterrupt):
        label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(KeyboardInterrupt()), ledger=ledger)
    same_queries = replace(design, reference_hash="0" * 64)
    assert same_queries.digest != design.digest
    for other in (make(queries=POOL - 1), same_queries):
        with opened(tmp_path / "l") as ledger, pytest.raises(InputError, match="charged for another design"):
            label_tested(clear_votes(), panel(), CONFIDENT, other, noise=Noise(PASS), ledger=ledger)


@pytest.mark.parametrize("says", [PASS, FAIL], ids=["passed", "failed"])
@pytest.mark.parametrize("change", ["votes", "weights"])
def test_only_the_tested_votes_can_be_labelled(tmp_path, says, change):
    """Teachers that learnt again, or whose weights were swapped: their labels were never tested."""
    whose = two_groups()
    made = make(whose)

    class Breaks(Noise):
        def normal(self, purpose, queries, width):
            raise KeyboardInterrupt

    with opened(tmp_path / "l", whose) as ledger:
        try:
            label_tested(clear_votes(), whose, CONFIDENT, made, noise=Breaks(says), ledger=ledger)
        except KeyboardInterrupt:
            assert says == PASS
    votes = divided_votes() if change == "votes" else clear_votes()
    now = whose if change == "votes" else replace(whose, weights=whose.weights[::-1], member=whose.member[::-1])
    with opened(tmp_path / "l", now) as ledger, pytest.raises(InputError, match="another design or other votes"):
        label_tested(votes, now, CONFIDENT, made, noise=Noise(PASS), ledger=ledger)
    with opened(tmp_path / "l", whose) as ledger:
        again = replace(clear_votes(), votes=clear_votes().votes.astype(np.uint8))  # the same, stored otherwise
        assert label_tested(again, whose, CONFIDENT, made, noise=Noise(FAIL), ledger=ledger).passed is (says == PASS)


@pytest.mark.parametrize("says", [PASS, FAIL], ids=["passed", "fallback"])
def test_reused_private_answers_make_tested_release_private(cautious, tmp_path, says):
    """Other people's run under tight ended where their votes said so: what it left in the pool is no release."""
    tight = Meter("tight")
    terms = account_terms(GENEROUS, tight, CONFIDENT)
    with begin(tmp_path / "l", terms, run="one", pool="pool", people={"ann": "all"}) as ledger:
        first = label(clear_votes(), GENEROUS, CONFIDENT, tight, max_queries=9, ledger=ledger)
    terms = account_terms(GENEROUS, PTR, CONFIDENT)
    with begin(tmp_path / "l", terms, run="two", pool="pool", people=NEW) as ledger:
        result = label_tested(clear_votes(seed=1), GENEROUS, CONFIDENT, cautious, noise=Noise(says), ledger=ledger)
    assert result.passed is (says == PASS)
    assert np.array_equal(result.labels[:9], first.labels)
    assert result.guarantee.kind == "private"


@pytest.mark.parametrize("first", ["ptr", "gdp"])
def test_tested_release_and_other_runs_share_no_budget(design, tmp_path, first):
    """Whatever comes first, a tested release and another run do not share a budget."""
    meters = {"ptr": PTR, "gdp": Meter("gdp")}
    second = "gdp" if first == "ptr" else "ptr"
    with begin(tmp_path / "l", account_terms(panel(), meters[first], CONFIDENT), run="one") as ledger:
        if first == "ptr":
            label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(FAIL), ledger=ledger)
        else:
            label(clear_votes(), panel(), CONFIDENT, meters[first], max_queries=1, ledger=ledger)
    for unit in {second, "ptr"}:
        with pytest.raises(BudgetExceededError, match="takes a whole budget"):
            begin(tmp_path / "l", account_terms(panel(), meters[unit], CONFIDENT), run="two")
        entries, larger = account_terms(panel(epsilon=9.0), meters[unit], CONFIDENT), Roster(accept_larger_budgets=True)
        with pytest.raises(BudgetExceededError, match="takes a whole budget"):
            begin(tmp_path / "l", entries, run="two", people=larger)


def test_people_outside_the_test_keep_their_budget(design, tmp_path):
    people = {"ann": "all", "bob": "all"}
    terms = account_terms(panel(), PTR, CONFIDENT)
    with begin(tmp_path / "l", terms, run="one", people=people) as ledger:
        label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(PASS), ledger=ledger)
    with pytest.raises(BudgetExceededError):
        begin(tmp_path / "l", terms, run="two", people={"bob": "all", "cid": "all"})
    with begin(tmp_path / "l", terms, run="two", people=replace(NEW, people={"cid": "all"})) as ledger:
        assert ledger.epsilon("all") == 0.0
        events = []
        result = label_tested(clear_votes(), panel(), CONFIDENT, design, noise=Noise(PASS, events), ledger=ledger)
        assert result.passed
        assert "test" in events
        assert ledger.epsilon("all") == 2.0


def test_release_outside_the_design_is_refused(design):
    votes, whose = clear_votes(), panel()
    with pytest.raises(InputError, match="gnmax and confident, not interactive"):
        label_tested(votes, whose, Interactive(mechanism=MECHANISM), design)
    with pytest.raises(InputError, match="made for sigma 8"):
        label_tested(votes, whose, Confident(mechanism=replace(MECHANISM, sigma=4.0)), design)
    with pytest.raises(InputError, match="for other queries"):
        label_tested(votes, whose, CONFIDENT, design, order=np.arange(POOL)[::-1])
    with pytest.raises(InputError, match="duplicate query"):
        label_tested(votes, whose, CONFIDENT, design, order=np.zeros(POOL, dtype=int))
    with pytest.raises(InputError, match="use label_tested"):
        label(votes, whose, CONFIDENT, PTR)
    named = replace(votes, queries=("the test of run", *map(str, range(1, POOL))))
    with pytest.raises(InputError, match="other queries"):
        label_tested(named, whose, CONFIDENT, design)


def test_design_made_from_the_same_votes_is_refused():
    votes = clear_votes()
    peeking = design_for(
        Reference(votes=votes), panel(), MECHANISM, n_classes=CLASSES, queries=[str(index) for index in range(POOL)]
    )
    with pytest.raises(InputError, match="these very votes"):
        label_tested(votes, panel(), CONFIDENT, peeking)
    assert label_tested(clear_votes(seed=1, wrong=2), panel(), CONFIDENT, peeking, noise=Noise(PASS)).passed


def test_designs_are_saved_and_verified_when_read(design, tmp_path):
    path = tmp_path / "design.json"
    write_design(path, design)
    assert read_design(path) == design
    text = path.read_text()
    bound = f"{design.tables[0].bounds[-1]!r}"
    assert text.count(bound) == 1
    path.write_text(text.replace(bound, repr(design.tables[0].bounds[-1] * 2)))
    with pytest.raises(InputError, match=r"design\.json: .* above"):
        read_design(path)
    with pytest.raises(InputError, match="make one with ipate design"):
        read_design(tmp_path / "none.json")


def test_unaffordable_reference_raises_a_clear_error():
    with pytest.raises(InputError, match="affords no query"):
        design_for(
            Reference(simulator=Simulator(accuracy=0.4, queries=200)),
            panel(epsilon=0.05, delta=1e-6),
            MECHANISM,
            n_classes=CLASSES,
            queries=["a", "b"],
        )
    with pytest.raises(InputError, match="one reference"):
        Reference()
