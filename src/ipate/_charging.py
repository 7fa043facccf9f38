"""Labels of a fitted classifier and what they were charged to: accounts in memory, or a ledger that fits share."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ipate.labelling import Labelling, account_terms
from ipate.ledger import Ledger, MemoryLedger
from ipate.ledgers import SqliteLedger, members_of, name_run, refuse_mixed_noise
from ipate.pipeline import Settings, run_labelling
from ipate.variants import Allocation
from ipate.votes import Votes

__all__ = ["Charged", "charge_labels"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Charged:
    """What a fit was charged to.

    Attributes
    ----------
    ledger : Ledger
        The accounts as they stood when the last label had been paid.
    head : str
        Where the durable ledger stood; empty where there is none.
    opening, before : mapping
        What earlier fits had spent: by account in its own unit, and by group as ε.
    reused : frozenset of int
        The public points whose answers earlier fits had paid for.
    private_history : bool
        Whether one of those fits was charged by private costs.
    """

    ledger: Ledger
    head: str = ""
    opening: Mapping[str, Floats] = field(default_factory=dict)
    before: Mapping[str, float] = field(default_factory=dict)
    reused: frozenset[int] = frozenset()
    private_history: bool = False


def charge_labels(
    votes: Votes,
    allocation: Allocation,
    settings: Settings,
    *,
    path: str | Path | None,
    pool: str,
    noise_seed: int | None,
    order: NDArray[np.int64],
) -> tuple[Labelling, Charged]:
    """Label the pool; with a path, every label is in that ledger before anything of it is seen.

    Parameters
    ----------
    path : path, optional
        A ledger that several fits share: each starts from what its people have left.
    pool : str
        What the public points are; fits on the same points share their answers.
    """
    if path is None:
        result, ledger = run_labelling(votes, allocation, settings, noise_seed=noise_seed, order=order)
        return result, Charged(ledger=ledger)
    name = name_run(f"fit {secrets.token_hex(8)}", seeded=noise_seed is not None)
    refuse_mixed_noise(path, name)
    terms = account_terms(allocation.panel(), settings.meter, settings.aggregator(allocation.scale))
    with SqliteLedger.open(path, terms, run=name, pool=pool, people=members_of(allocation)) as book:
        result, _ = run_labelling(votes, allocation, settings, noise_seed=noise_seed, ledger=book, order=order)
        return result, Charged(
            ledger=MemoryLedger(terms, opening={account: book.spent(account) for account in book.terms}),
            head=str(book.head),
            opening={account: book.opening(account) for account in book.terms if book.opening(account).any()},
            before=book.before,
            reused=frozenset(int(query) for query in book.inherited if query.isdecimal()),
            private_history=bool(book.private_history),
        )
