"""A run's ledger: its own file unless several runs share one, and never an older copy of what was seen before."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ipate.errors import BudgetExceededError, InputError
from ipate.labelling import account_terms
from ipate.ledger import Terms
from ipate.ledgers import Head, SqliteLedger, members_of, opening_balances, refuse_mixed_noise
from ipate.pipeline import Settings
from ipate.runs.folder import RunFolder
from ipate.variants import Allocation

__all__ = ["check_affordable", "known_heads", "ledger_path", "newest_head", "opened", "reading"]


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


@contextmanager
def opened(folder: RunFolder, allocation: Allocation, settings: Settings, *, pool: str) -> Iterator[SqliteLedger]:
    """Open the ledger to charge this run: balances carry over from earlier runs, each person's by id.

    Parameters
    ----------
    pool : str
        What the queries belong to (`data.json` holds it): runs on the same pool share its answers.
    """
    path, terms = ledger_path(folder), _terms(allocation, settings)
    refuse_mixed_noise(path, folder.id)
    with SqliteLedger.open(
        path, terms, run=folder.id, pool=pool, people=members_of(allocation), expected_head=newest_head(folder)
    ) as ledger:
        kept = folder.private / "ledger.json"
        if not kept.is_file():  # from now on an older copy, or none, is noticed
            folder.write(kept, {"path": str(path), "run": ledger.run, "ledger_head": str(ledger.head)})
        yield ledger


@contextmanager
def reading(folder: RunFolder) -> Iterator[SqliteLedger]:
    """Open the ledger of a run that was charged, to look; refuse an older copy, another one, or none."""
    with SqliteLedger.open(
        ledger_path(folder), run=folder.id, expected_head=newest_head(folder), readonly=True
    ) as ledger:
        for head in known_heads(folder).values():
            ledger.check_head(head)
        yield ledger


def check_affordable(folder: RunFolder, allocation: Allocation, settings: Settings) -> None:
    """Refuse a run whose people have nothing left, before anybody trains.

    Under a data-independent bound "nothing" includes less than the cost of one query.
    """
    path, terms = ledger_path(folder), _terms(allocation, settings)
    if not path.parent.is_dir():
        raise InputError(f"ledger is {str(path)!r}: the folder {path.parent} is not there; make it first")
    refuse_mixed_noise(path, folder.id)
    before = opening_balances(path, terms, run=folder.id, people=members_of(allocation))
    if settings.meter.data_independent and allocation.participation is None:
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
        spent = before.get(entry.account, np.zeros(entry.meter.width))
        cost = entry.meter.worst_label(sensitivity=moves[entry.group], sigma=mechanism.sigma)
        if mechanism.check_sigma is not None:
            cost = cost + entry.meter.worst_check(sensitivity=moves[entry.group], check_sigma=mechanism.check_sigma)
        if spent.any() and not np.any(spent + cost <= entry.meter.limit(entry.epsilon, entry.delta)):
            poor.append((entry, float(entry.meter.epsilon(spent, entry.delta)[0])))
    if poor and (settings.stop != "drop" or len(poor) == len(terms)):
        entry, so_far = poor[0]
        raise BudgetExceededError(
            f"{path}: group {entry.group!r} cannot pay one more query: earlier runs spent ε = {so_far:.6g} of "
            f'its budget {entry.epsilon:.6g}; leave its people out, ask them for a new consent, or stop = "drop" where '
            "others can go on without them"
        )
