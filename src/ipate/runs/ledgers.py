"""A run's ledger: its own file unless several runs share one, and never an older copy of what was seen before."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.allocation.allocation import Allocation
from ipate.errors import BudgetExceededError, InputError
from ipate.labelling.loop import account_terms
from ipate.ledger.entries import Head
from ipate.ledger.opening import opening_balances, refuse_mixed_noise
from ipate.ledger.records import Terms
from ipate.ledger.sqlite import SqliteLedger
from ipate.planning.settings import Settings
from ipate.runs.folder import RunFolder

Floats = NDArray[np.float64]
_ROUNDING = 1e-9  # relative: what is left of a difference of sums that ought to be nothing


def ledger_path(folder: RunFolder) -> Path:
    """Return where a run's charges are kept: the file that its configuration names, or one of its own."""
    path = folder.config.ledger
    if path is None:
        return folder.private / "ledger.sqlite"
    if path.resolve().is_relative_to(folder.public.resolve()):
        raise InputError(f"ledger is {str(path)!r}: a ledger is private, it must not lie in the run's public folder")
    return path


def known_heads(folder: RunFolder) -> dict[str, Head]:
    """Return every state of the ledger that this run has written down, by the file that says so."""
    places = [folder.private / "ledger.json", folder.private / "labelling.json"]
    places += [shown / name for shown in (folder.public, folder.private) for name in ("guarantee.json", "report.json")]
    found = {}
    for path in places:
        stated = (_read(folder, path) or {}).get("ledger_head")
        if stated is not None:
            found[str(path.relative_to(folder.path))] = Head.parse(str(stated))
    return found


def newest_head(folder: RunFolder) -> Head | None:
    """Return the latest state of the ledger that this run has seen, None before it was opened."""
    return max(known_heads(folder).values(), key=lambda head: head.entries, default=None)


def _read(folder: RunFolder, path: Path) -> dict[str, Any] | None:
    try:
        return folder.read(path)
    except ValueError as error:
        raise InputError(f"{path}: not readable ({error}); restore it, or remove it to have it made again") from None


def run_name(folder: RunFolder, allocation: Allocation) -> str:
    """Return the run's name in its ledger: another one whenever somebody has left.

    Under a new name the balances of those who stay go on, the answers are shared, and the person who left is in no
    account any more: nothing that is released from then on is charged to them.
    """
    left = len(allocation.withdrawn)
    return f"after {left} withdrew: {folder.id}" if left else folder.id


def without_parts(run: str) -> str:
    """Return a run's name as it was before anybody left."""
    return re.sub(r"^after \d+ withdrew: ", "", run)


def earlier_parts(folder: RunFolder, ledger: SqliteLedger) -> tuple[str, ...]:
    """Return the names that this very run had before somebody left it."""
    return tuple(name for name in ledger.runs[: ledger.runs.index(ledger.run)] if name.endswith(folder.id))


def openings_of(folder: RunFolder, ledger: SqliteLedger) -> dict[str, Floats]:
    """Return what every account had spent when this run began, whoever left it on the way.

    All who stay were in the same account before, so what the run's earlier parts charged is taken off the last
    opening. It tells nothing of when somebody left.
    """
    parts = earlier_parts(folder, ledger)
    found = {}
    for account in ledger.terms:
        own = sum((ledger.charged_by(name, account) for name in parts), np.zeros(len(ledger.opening(account))))
        before = ledger.opening(account) - own
        found[account] = np.where(before > _ROUNDING * own, before, 0.0)
    return found


def reused_by(folder: RunFolder, ledger: SqliteLedger) -> frozenset[str]:
    """Return the queries that other runs had paid for, not this one before somebody left it."""
    return ledger.inherited.difference(*(ledger.queries_of(name) for name in earlier_parts(folder, ledger)))


@contextmanager
def opened(folder: RunFolder, allocation: Allocation, settings: Settings, *, pool: str) -> Iterator[SqliteLedger]:
    """Open the ledger to charge this run: balances carry over from earlier runs, each person's by id.

    Parameters
    ----------
    pool : str
        What the queries belong to (`data.json` holds it): runs on the same pool share its answers.
    """
    path, terms, name = ledger_path(folder), _terms(allocation, settings), run_name(folder, allocation)
    refuse_mixed_noise(path, folder.id)
    with SqliteLedger.open(
        path, terms, run=name, pool=pool, people=allocation.members(), expected_head=newest_head(folder)
    ) as ledger:
        kept = folder.private / "ledger.json"
        if (_read(folder, kept) or {}).get("run") != name:  # from now on an older copy, or none, is noticed
            folder.write(kept, {"path": str(path), "run": ledger.run, "ledger_head": str(ledger.head)})
        yield ledger


@contextmanager
def reading(folder: RunFolder) -> Iterator[SqliteLedger]:
    """Open the ledger of a run that was charged, to look; refuse an older copy, another one, or none."""
    name = (_read(folder, folder.private / "ledger.json") or {}).get("run", folder.id)
    with SqliteLedger.open(ledger_path(folder), run=name, expected_head=newest_head(folder), readonly=True) as ledger:
        for head in known_heads(folder).values():
            ledger.check_head(head)
        yield ledger


def check_affordable(folder: RunFolder, allocation: Allocation, settings: Settings) -> None:
    """Refuse a run whose people have nothing left, before anybody trains.

    Under a data-independent bound "nothing" includes less than the cost of one query. A run that has begun goes on
    with whatever it has, also after somebody has left it.
    """
    if (folder.private / "ledger.json").is_file():
        return
    path, terms = ledger_path(folder), _terms(allocation, settings)
    if not path.parent.is_dir():
        raise InputError(f"ledger is {str(path)!r}: the folder {path.parent} is not there; make it first")
    if path.is_dir():
        raise InputError(f"ledger is {str(path)!r}: it is a folder; a ledger is a file, so name one in it")
    refuse_mixed_noise(path, folder.id)
    before = opening_balances(path, terms, run=folder.id, people=allocation.members())
    if settings.meter.data_independent and not settings.meter.whole and allocation.participation is None:
        _refuse_less_than_a_query(path, allocation, settings, terms, before)


def spent_before(folder: RunFolder, ledger: SqliteLedger) -> dict[str, float]:
    """Return every group's ε when its run began: the worst of its accounts."""
    spent = {terms.account.group.id: 0.0 for terms in ledger.terms.values()}
    for account, opening in openings_of(folder, ledger).items():
        terms = ledger.terms[account]
        if opening.any():
            spent[terms.account.group.id] = max(
                spent[terms.account.group.id], float(terms.meter.epsilon(opening, terms.account.delta)[0])
            )
    return spent


def _terms(allocation: Allocation, settings: Settings) -> list[Terms]:
    return account_terms(allocation.panel(), settings.meter, settings.aggregator(allocation.scale))


def _refuse_less_than_a_query(
    path: Path, allocation: Allocation, settings: Settings, terms: list[Terms], before: Mapping[str, Any]
) -> None:
    mechanism = settings.aggregator(allocation.scale).mechanism
    moves = {group.id: group.sensitivity for group in allocation.panel().groups}
    poor = []
    for entry in terms:
        spent = before.get(entry.account.id, np.zeros(entry.meter.width))
        cost = entry.meter.worst_label(sensitivity=moves[entry.account.group.id], sigma=mechanism.sigma)
        if mechanism.check_sigma is not None:
            cost = cost + entry.meter.worst_check(
                sensitivity=moves[entry.account.group.id], check_sigma=mechanism.check_sigma
            )
        if spent.any() and not np.any(spent + cost <= entry.meter.limit(entry.account.epsilon, entry.account.delta)):
            poor.append((entry, float(entry.meter.epsilon(spent, entry.account.delta)[0])))
    if poor and (settings.stop != "drop" or len(poor) == len(terms)):
        entry, so_far = poor[0]
        raise BudgetExceededError(
            f"{path}: group {entry.account.group.id!r} cannot pay one more query: earlier runs spent ε = {so_far:.6g} "
            f"of its budget {entry.account.epsilon:.6g}; leave its people out, ask them for a new consent, or "
            'stop = "drop" where others can go on without them'
        )
