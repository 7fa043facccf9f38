"""Propose-test-release: charge the whole release, draw the bit of its private test, and label only if it passes.

The guarantee depends on this order. The ledger charges the whole budget first, whatever the bit; the bit is drawn once
and stored before anything else happens; the noise of the labels is drawn only after that. An interrupted run finds its
charge and its bit again and never draws a second bit, and only the votes that were tested are labelled.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.accounting.bounds import Meter
from ipate.accounting.ladder import Design, hash_queries, pass_probability
from ipate.accounting.ptr import ORDERS, PtrGroup, Setting
from ipate.engines.teachers.aggregators import AGGREGATORS, Mechanism, NamedAggregator
from ipate.engines.teachers.costs import check_supported
from ipate.engines.teachers.loop import (
    LabellingState,
    account_terms,
    batch_size,
    check_fits,
    check_noise,
    check_order,
    label,
    repeats,
    walk,
)
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import MOST_ALIKE, Votes, count_votes, is_copy
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.base import Ledger, MemoryLedger, Progress
from ipate.ledger.records import Charge, Draw, Released, Scope
from ipate.people.budgets import Budget
from ipate.release.answers import paid_answers
from ipate.release.noise import NoiseSource, SecureNoise
from ipate.release.results import Labelling, StoppedBy, state_guarantee

_UNIT = Meter("ptr")
_CODEC, _CHARGED, _DRAWN = "test", "test", "bit"  # the form of a test on a ledger, and its two keys
_BLOCK = 2048  # queries counted at a time
_HASHED = 4096  # queries hashed at a time; the hash depends on it
_WEIGHT_GRID, _LATTICE, _NODES = 0.25, 2.0**-8, 2.0**18  # where weights are not whole; nodes of a table at most


@dataclass(frozen=True, kw_only=True)
class ReleaseTest:
    """The test of a release: the hashes of its inputs, and its bit, which is None before it is drawn."""

    design: str
    votes: str
    passed: bool | None = None

    @classmethod
    def of(cls, book: Ledger) -> "ReleaseTest | None":
        """Return the test that a run was charged for; None before that."""
        kept = {found.keys[0]: json.loads(found.payload) for found in book.released(_CODEC, "run")}
        return cls(**kept[_CHARGED], **kept.get(_DRAWN, {})) if kept else None


def check_tested(aggregator: type[NamedAggregator]) -> None:
    """Refuse an aggregator that the test of the bound ptr does not cover."""
    if not aggregator.tested:
        covered = " and ".join(name for name, made in AGGREGATORS.items() if made.tested)
        raise InputError(f"bound is 'ptr': the test covers {covered}, not {aggregator.name}")


def label_tested(
    votes: Votes,
    panel: Panel,
    aggregator: NamedAggregator,
    design: Design,
    *,
    order: Sequence[int] | NDArray[np.integer] | None = None,
    noise: NoiseSource | None = None,
    ledger: Ledger | None = None,
    batch: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Labelling:
    """Release the labels of a design's queries if its test passes; its (ε, δ) is spent either way.

    Parameters
    ----------
    votes, panel, aggregator
        The votes, the accounts that pay and the aggregator that labels; they must match the design.
    design : Design
        Made beforehand from public information; it fixes the queries, the tables of the test and the budgets.
    order : sequence of int, optional
        Positions of the queries in the order of the design's list. Default: file order.
    noise, ledger, batch, progress
        As for `label`. A ledger has the accounts of `account_terms` under ptr.

    Returns
    -------
    Labelling
        `passed` is the published bit. After a failed test there are no labels, unless the design reserves a part of
        the budget for a data-independent fallback run.
    """
    check_tested(type(aggregator))
    check_supported(_UNIT, aggregator.mechanism)
    source = SecureNoise() if noise is None else noise
    book = MemoryLedger(account_terms(panel, _UNIT, aggregator)) if ledger is None else ledger
    check_noise(book, source)
    check_fits(panel, votes, book, _UNIT, None)
    pool = check_order(order, votes.n_queries)
    if repeats(pool.tolist()) or repeats(votes.queries or ()):
        raise InputError("duplicate query in the pool: a design fixes a list of different queries")
    positions = _queries_of(design, votes, panel, aggregator.mechanism, pool)
    panel = on_lattice(panel, design.setting.lattice)  # from here on: the test, the labels and a fallback
    test = ReleaseTest(design=design.digest, votes=_hash(votes, panel, positions))
    charge = Charge(
        cost={group.id: np.array([group.epsilon]) for group in panel.groups},
        sensitivity={group.id: np.asarray(group.sensitivity) for group in panel.groups},
        draws=(Draw(mechanism="whole", sigma=aggregator.mechanism.sigma),),
        keys=(_CHARGED,),
        scope="run",
        bound=_UNIT.bound,
        seeded=source.seeded,
        codec=_CODEC,
        payload=json.dumps({"design": test.design, "votes": test.votes}).encode(),
    )
    _pay(book, charge, test)
    counts = count_blocks(votes, panel, positions)
    passed = _bit(book, charge, source, lambda: pass_probability(design, np.concatenate([*counts])))
    stopped_by: StoppedBy = "other" if book.private_history else "fixed"  # their stored answers may be returned here
    guarantee = state_guarantee(_UNIT, stopped_by=stopped_by, seeded=source.seeded)
    if passed or not design.fallback:
        run = LabellingState(votes, panel, aggregator, _UNIT, ledger=book, noise=source, prepaid=_CHARGED)
        if not passed:
            return replace(run.result("failed", guarantee), passed=False)
        size = batch or batch_size(panel, _UNIT, len(positions))
        return replace(run.result(walk(run, positions, size, progress=progress), guarantee), passed=True)
    rest = _Rest(book, panel, design, aggregator)
    found = label(
        votes, rest.panel, aggregator, rest.meter, order=pool, noise=source, ledger=rest, batch=batch, progress=progress
    )
    paid = {account.id: account.group for account in panel.groups}
    groups = tuple(
        replace(entry, group=paid[entry.id], cost=paid[entry.id].epsilon, before=book.before[entry.id])
        for entry in found.groups
    )
    return replace(found, meter=_UNIT, guarantee=guarantee, groups=groups, passed=False)


def _queries_of(
    design: Design, votes: Votes, panel: Panel, mechanism: Mechanism, pool: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the positions of the design's queries; refuse a design that does not fit or was made from these votes."""
    used = setting_for(panel, mechanism, n_classes=votes.n_classes, grid=design.setting.grid)
    positions = pool[: design.n_queries]
    names = query_ids(votes)
    check_design(design, used, tuple(names[position] for position in positions.tolist()))
    refuse_own_votes(design, votes)
    return positions


def _hash(votes: Votes, panel: Panel, positions: NDArray[np.int64]) -> str:
    """Return the hash of the weights and votes that are tested and labelled. It is private, like the ledger."""
    found = hashlib.sha256(np.ascontiguousarray(panel.weights, dtype="<f8").tobytes())
    for start in range(0, len(positions), _HASHED):
        chunk = np.asarray(votes.votes[:, positions[start : start + _HASHED]])
        found.update(np.ascontiguousarray(chunk, dtype="<i4").tobytes())
    return found.hexdigest()


def _pay(book: Ledger, charge: Charge, test: ReleaseTest) -> None:
    """Charge the whole budget of every account once, before any noise is drawn, and store the test with the charge."""
    paid = [bool(book.spent(account).any()) for account in charge.cost]
    if all(paid) and book.durable:  # interrupted after the charge; the ledger records whether the bit was drawn
        kept = ReleaseTest.of(book)
        if kept is None or (kept.design, kept.votes) != (test.design, test.votes):
            raise InputError(
                "this run was charged for another design or other votes, whose test may have been drawn, and a budget "
                "pays for one test; restore the design and the votes that the run began with"
            )
        return
    if all(paid):
        raise BudgetExceededError("this ledger has paid for a tested release: a budget pays for one, and it was made")
    if any(paid):
        raise InputError("some accounts of this ledger have been charged and some not: it does not belong to this run")
    book.charge(charge)


def _bit(book: Ledger, charge: Charge, noise: NoiseSource, chance: Callable[[], float]) -> bool:
    """Return the stored bit of the test, or draw it with the probability `chance` and store it before it is used."""
    kept = ReleaseTest.of(book)
    if kept is not None and kept.passed is not None:
        return kept.passed
    passed = bool(noise.uniform("test", [f"the test of {book.run}"], 1)[0, 0] < chance())
    free = {account: np.zeros(1) for account in charge.cost}
    drawn = json.dumps({"passed": passed}).encode()
    book.charge(replace(charge, cost=free, draws=(), keys=(_DRAWN,), payload=drawn, paid_by=_CHARGED))
    return passed


class _Rest(MemoryLedger):
    """The ledger of the fallback run after a failed test, whose whole cost the outer ledger has already charged.

    Queries and answers are committed to the outer ledger at no cost before they are released. Their cost counts here
    against the remaining budgets, and is recomputed from the stored answers when a run is resumed.
    """

    def __init__(self, book: Ledger, panel: Panel, design: Design, aggregator: NamedAggregator) -> None:
        self.meter, self._book = Meter("gdp"), book
        left = {group.id: design.left_after_failure(group) for group in design.setting.groups}
        budgets = tuple(group.with_budget(Budget(*left[group.id])) for group in panel.groups)
        self.panel = replace(panel, groups=budgets)
        terms = account_terms(self.panel, self.meter, aggregator)
        super().__init__(terms, opening=self._spent_of(aggregator.mechanism), noise=book.noise)

    def _spent_of(self, mechanism: Mechanism) -> dict[str, Floats]:
        """Return the cost of the stored answers: a check for each, and a label where one was released."""
        answers = paid_answers(self._book).answers.values()
        asked, answered = len(answers), sum(entry[1] for entry in answers)
        spent = {}
        for group in self.panel.groups:
            check, label = self.meter.worst_query(
                sensitivity=group.sensitivity, sigma=mechanism.sigma, check_sigma=mechanism.check_sigma
            )
            spent[group.id] = answered * label + asked * check
        return spent

    @property
    def durable(self) -> bool:
        """The outer ledger stores the answers."""
        return True

    def charge(self, charge: Charge) -> None:
        """Commit the answers to the outer ledger at no cost, if the remaining budgets can pay for them."""
        self.require(charge)
        free = {account: np.zeros(1) for account in charge.cost}
        self._book.charge(replace(charge, cost=free, paid_by=_CHARGED))
        super().charge(charge)

    def released(self, codec: str, scope: Scope = "pool") -> tuple[Released, ...]:
        """Return what the outer ledger holds."""
        return self._book.released(codec, scope)

    @property
    def progress(self) -> Progress:
        """What the outer ledger was charged."""
        return self._book.progress


def setting_for(
    panel: Panel, mechanism: Mechanism, *, n_classes: int, grid: float | None = None, orders: tuple[float, ...] = ORDERS
) -> Setting:
    """Return the public parameters of a panel and a mechanism that graded propose-test-release needs.

    Interactive is not covered. Weights are put on a lattice, 1 where they are whole numbers and else 2^-8, coarser
    for over 1,024 teachers. `grid` is the step of moved weight, by default 1 and .25; `orders` are the Rényi orders
    that the design may use.
    """
    if panel.rotating:
        raise InputError("bound 'ptr' does not cover teachers that take turns: use gdp or sup with vanishing")
    if mechanism.noise != "gaussian":
        raise InputError(f"bound 'ptr' does not cover {mechanism.noise} noise: use gnmax or confident")
    still = [group.id for group in panel.groups if group.sensitivity == 0]
    if still:
        raise InputError(f"group {still[0]!r} moves no weight: leave it out of a design, it pays nothing")
    whole = not np.any(np.concatenate([panel.weights, panel.own_sensitivities]) % 1)
    lattice = 1.0 if whole else max(_LATTICE, 2.0 ** math.ceil(math.log2(panel.total_weight / _NODES)))
    panel = on_lattice(panel, lattice)
    return Setting(
        sigma=mechanism.sigma,
        check_sigma=mechanism.check_sigma,
        threshold=mechanism.threshold,
        classes=n_classes,
        total_weight=panel.total_weight,
        groups=tuple(
            PtrGroup(id=g.id, epsilon=g.epsilon, delta=g.delta, sensitivity=g.sensitivity) for g in panel.groups
        ),
        grid=max(lattice, _WEIGHT_GRID if grid is None else grid),
        lattice=lattice,
        orders=orders,
    )


def on_lattice(panel: Panel, lattice: float) -> Panel:
    """Return the panel with weights rounded down to multiples of the lattice, and sensitivities rounded up.

    A teacher then moves at most the weight that its group is charged for, and every count is exact.
    """
    groups = tuple(replace(own, sensitivity=math.ceil(own.sensitivity / lattice) * lattice) for own in panel.groups)
    return replace(panel, groups=groups, weights=np.floor(panel.weights / lattice) * lattice)


def count_blocks(votes: Votes, panel: Panel, positions: NDArray[np.int64] | None = None) -> Iterator[Floats]:
    """Yield the weighted vote counts of the queries at these positions (default: all), block by block."""
    n_queries = votes.n_queries if positions is None else len(positions)
    for start in range(0, n_queries, _BLOCK):
        where = slice(start, start + _BLOCK)
        own = votes.votes[:, where if positions is None else positions[where]]
        yield panel.tally(np.asarray(own), votes.n_classes).counts


def votes_hash(votes: Votes) -> str:
    """Return the hash of the sorted unweighted vote counts, which ignores the order of teachers and queries."""
    blocks = [votes.votes[:, start : start + _BLOCK] for start in range(0, votes.n_queries, _BLOCK)]
    counts = np.concatenate([count_votes(block, votes.n_classes) for block in blocks])
    ordered = counts[np.lexsort(counts.T)].astype("<i8")
    return hashlib.sha256(repr(ordered.shape).encode() + ordered.tobytes()).hexdigest()


def refuse_own_votes(design: Design, votes: Votes) -> None:
    """Refuse a design that was made from these votes or from a copy of most of them: it depends on private data."""
    if design.reference_hash == votes_hash(votes) or is_copy(design.reference_queries, votes):
        raise InputError(
            "the design was made from these very votes: its reference agrees with them on over "
            f"{MOST_ALIKE:.0%} of the queries that are not unanimous; a reference must be public and independent of "
            "these people, either votes of other teachers or simulated votes"
        )


def query_ids(votes: Votes) -> tuple[str, ...]:
    """Return the ids of the queries: those of the file, or the row numbers."""
    return votes.queries if votes.queries is not None else tuple(str(i) for i in range(votes.n_queries))


def check_design(design: Design, setting: Setting, ids: tuple[str, ...]) -> None:
    """Refuse a design for another mechanism, other groups or other queries (`ids`, in the order asked)."""
    for name in ("sigma", "check_sigma", "threshold", "classes", "total_weight", "grid", "lattice"):
        made, used = getattr(design.setting, name), getattr(setting, name)
        if made != used:
            raise InputError(f"the design was made for {name} {made}, the run has {used}: make a design for this run")
    for group in setting.groups:
        if design.setting.group(group.id) != group:
            raise InputError(f"the design has other figures for group {group.id!r} than the run: make a new design")
    if len(design.setting.groups) != len(setting.groups):
        raise InputError("the design has groups that the run does not: make a design for this run")
    if len(ids) != design.n_queries or hash_queries(ids) != design.queries_hash:
        raise InputError(f"the design is for other queries: it asks {design.n_queries}, fixed beforehand, in order")
