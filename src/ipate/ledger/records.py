"""What a ledger takes and gives: accounts, charges, stored answers, and the Ledger protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.bounds import Meter
from ipate.people.budgets import Account

Floats = NDArray[np.float64]
Noise: TypeAlias = Literal["gaussian", "laplace"]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What one account may spend, and in which unit: fixed when the account is opened.

    Attributes
    ----------
    account : Account
        Its id, its group with the budget, and its sensitivity when it is opened.
    meter : Meter
        The unit: its width is the length of every cost charged to this account.
    """

    account: Account
    meter: Meter


@dataclass(frozen=True, kw_only=True)
class Charge:
    """The cost of a batch of queries, and the releases it pays for, so that it can be recomputed.

    Attributes
    ----------
    cost : mapping
        Account id to its cost vector for the whole batch.
    queries : tuple of str
        The queries asked, in order; each paid for its check where there is one.
    answered : bool array of shape (B,)
        Which of them were also charged for a label.
    sensitivity : mapping
        Account id to Δ, a number or one per query of the batch.
    sigma, check_sigma : float
        The noise of labels and checks.
    bound : str
        What the costs were computed by.
    noise : {"gaussian", "laplace"}
        What the labels' noise was; σ is its scale under Laplace noise.
    labels, reinforced : arrays of shape (B,), optional
        The answers that this charge pays for: a class or −1, and where it is the student's own. A durable ledger
        commits them together with the charge, so that neither is ever there without the other.
    """

    cost: Mapping[str, Floats]
    queries: tuple[str, ...]
    answered: NDArray[np.bool_]
    sensitivity: Mapping[str, Floats]
    sigma: float
    check_sigma: float | None
    bound: str
    noise: Noise = "gaussian"
    labels: NDArray[np.int64] | None = None
    reinforced: NDArray[np.bool_] | None = None


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What a ledger already holds of a labelling, so that it goes on where it was interrupted.

    Attributes
    ----------
    answers : mapping
        Query id to (label, answered, reinforced): released and paid, given again for nothing.
    sensitivity : mapping
        Account id to the largest Δ that it was charged for.
    left : mapping
        Accounts that the last charge no longer counted (Δ = 0), and how many labels there were before.
    """

    answers: Mapping[str, tuple[int, bool, bool]] = field(default_factory=dict)
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)


class Ledger(Protocol):
    """What labelling needs of a ledger, whether it lives in memory or on disk."""

    @property
    def terms(self) -> Mapping[str, Terms]:
        """Every account's terms, by account id."""
        ...

    @property
    def private_history(self) -> tuple[str, ...]:
        """Runs whose length may tell something of private votes, and whose balances are carried on here."""
        ...

    @property
    def run(self) -> str:
        """The name of the run that is charged: no other run of the same ledger has it."""
        ...

    @property
    def durable(self) -> bool:
        """Whether charges and answers outlive the process, so that a run can be continued."""
        ...

    def spent(self, account: str) -> Floats:
        """Return what an account has spent so far."""
        ...

    def limit(self, account: str) -> Floats:
        """Return what an account may spend in all."""
        ...

    def unaffordable(self, cost: Mapping[str, Floats]) -> tuple[str, ...]:
        """Return the accounts that cannot pay this on top of what they have spent."""
        ...

    def charge(self, charge: Charge) -> None:
        """Record the charge, and its answers, for all accounts or, if one cannot pay, for none and raise."""
        ...

    def stored(self) -> Stored:
        """Return the answers that are already paid, and how far the accounts had come with them."""
        ...
