"""The ledger of a run: its path, the run's name in it, and rollback detection."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.errors import BudgetExceededError, InputError
from ipate.labelling.loop import account_terms
from ipate.ledger.base import Ledger
from ipate.ledger.records import Head, Terms
from ipate.ledger.sqlite import SqliteLedger, opening_balances, run_names
from ipate.planning.settings import Settings
from ipate.runs.folder import RunFolder


def ledger_path(folder: RunFolder) -> Path:
    """Return the path of the ledger: the configured file, or one in the run's private folder."""
    path = folder.config.ledger
    if path is None:
        return folder.private / "ledger.sqlite"
    if path.resolve().is_relative_to(folder.public.resolve()):
        raise InputError(f"ledger is {str(path)!r}: a ledger is private and must not lie in the run's public folder")
    return path


def known_heads(folder: RunFolder) -> dict[str, Head]:
    """Return every head of the ledger that this run has recorded, by the file that holds it."""
    places = [folder.private / "ledger.json", folder.private / "labelling.json"]
    places += [shown / name for shown in (folder.public, folder.private) for name in ("guarantee.json", "report.json")]
    found = {}
    for path in places:
        stated = (_read(folder, path) or {}).get("ledger_head")
        if stated is not None:
            found[str(path.relative_to(folder.path))] = Head.parse(str(stated))
    return found


def newest_head(folder: RunFolder) -> Head | None:
    """Return the latest head that this run has recorded; None before its ledger was opened."""
    return max(known_heads(folder).values(), key=lambda head: head.entries, default=None)


def _read(folder: RunFolder, path: Path) -> dict[str, Any] | None:
    try:
        return folder.read(path)
    except ValueError as error:
        raise InputError(f"{path}: not readable ({error}); restore it, or remove it so that it is made again") from None


def run_name(folder: RunFolder, left: int) -> str:
    """Return the run's name in its ledger after `left` people have withdrawn.

    After each withdrawal the run continues as a new run of the ledger: balances of the others carry over, answers are
    shared, and the person who withdrew is in no account any more.
    """
    return f"{folder.id} (part {left + 1})" if left else folder.id


def _parent(folder: RunFolder, left: int) -> str | None:
    """Return the name of the latest part of this run before the last withdrawals; None if there was none."""
    known = run_names(ledger_path(folder)) if left else ()
    return next((name for number in reversed(range(left)) if (name := run_name(folder, number)) in known), None)


@contextmanager
def opened(folder: RunFolder, allocation: Allocation, settings: Settings, *, pool: str) -> Iterator[Ledger]:
    """Open the ledger to charge this run; balances carry over from earlier runs by person id.

    `pool` is the fingerprint of the public points, from `data.json`: runs on the same pool share answers.
    """
    path, left = ledger_path(folder), len(allocation.withdrawn)
    parent = _parent(folder, left)
    with SqliteLedger.open(
        path,
        _terms(allocation, settings),
        run=run_name(folder, left),
        pool=pool,
        people=allocation.members(),
        noise=folder.noise,
        parent=parent,
        reason=None if parent is None else "withdrawal",
        expected_head=newest_head(folder),
    ) as ledger:
        kept = folder.private / "ledger.json"
        if (_read(folder, kept) or {}).get("run") != ledger.run:  # from now on an older or missing ledger is refused
            folder.write(kept, {"path": str(path), "run": ledger.run, "ledger_head": str(ledger.head)})
        yield ledger


@contextmanager
def reading(folder: RunFolder) -> Iterator[Ledger]:
    """Open the ledger of a charged run read-only; refuse an older copy, another ledger, or a missing one."""
    name = (_read(folder, folder.private / "ledger.json") or {}).get("run", folder.id)
    with SqliteLedger.open(ledger_path(folder), run=name, expected_head=newest_head(folder), readonly=True) as ledger:
        for head in known_heads(folder).values():
            ledger.check_head(head)
        yield ledger


def check_affordable(folder: RunFolder, allocation: Allocation, settings: Settings) -> None:
    """Refuse a run whose people have no budget left, before any teacher is trained.

    Under a data-independent bound, the budget left must pay for at least one query. A run that has begun
    labelling continues with whatever is left, also after a withdrawal.
    """
    if (folder.private / "ledger.json").is_file():
        return
    path, terms = ledger_path(folder), _terms(allocation, settings)
    if not path.parent.is_dir():
        raise InputError(f"ledger is {str(path)!r}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise InputError(f"ledger is {str(path)!r}: it is a folder; name a file")
    before = opening_balances(path, terms, run=folder.id, noise=folder.noise, people=allocation.members())
    if settings.meter.data_independent and not settings.meter.whole and allocation.participation is None:
        _refuse_less_than_a_query(path, allocation, settings, terms, before)


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
            f"{path}: group {entry.account.group.id!r} cannot pay for one more query: earlier runs spent ε = "
            f"{so_far:.6g} of its budget {entry.account.epsilon:.6g}; leave its people out, ask for a new consent, or "
            'set stop = "drop" so that the other groups continue without them'
        )
