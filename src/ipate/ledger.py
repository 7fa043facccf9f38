"""Accounts by id: what each may spend, what it has spent, and the refusal of what it cannot pay.

The rule is check, charge, release, in that order. The ledger adds vectors of costs and compares
them with limits; how a cost was computed is not its business. This one lives in memory; a durable
one keeps the same interface.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ipate.accounting.meter import Meter
from ipate.errors import BudgetExceededError, InputError
from ipate.mechanism import Noise

__all__ = ["Charge", "Ledger", "MemoryLedger", "Stored", "Terms"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What one account may spend, and in which unit: fixed when the account is opened.

    Attributes
    ----------
    account, group : str
        The account's own id and the id of the group it belongs to.
    epsilon, delta : float
        The budget.
    meter : Meter
        The unit: its width is the length of every cost charged to this account.
    """

    account: str
    group: str
    epsilon: float
    delta: float
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


class MemoryLedger:
    """A ledger for as long as the process lives.

    Parameters
    ----------
    terms : sequence of Terms
        One entry per account; ids must differ.
    opening : mapping, optional
        What accounts have spent before, elsewhere, in the same unit.
    transcript : bool
        Keep every charge, so that the account can be recomputed from `charges`.
    """

    def __init__(
        self,
        terms: Sequence[Terms],
        *,
        opening: Mapping[str, Floats] | None = None,
        transcript: bool = False,
    ) -> None:
        self._terms = {entry.account: entry for entry in terms}
        if len(self._terms) != len(terms):
            raise InputError("an account id stands twice: ids must differ")
        self._limits = {entry.account: entry.meter.limit(entry.epsilon, entry.delta) for entry in terms}
        self._spent = {entry.account: np.zeros(entry.meter.width) for entry in terms}
        self._charges: list[Charge] = []
        self._keep = transcript
        for account, cost in (opening or {}).items():
            self._spent[self._known(account)] = self._vector(account, cost).copy()

    @property
    def terms(self) -> Mapping[str, Terms]:
        """Every account's terms, by account id."""
        return dict(self._terms)

    @property
    def private_history(self) -> tuple[str, ...]:
        """No earlier runs are known here."""
        return ()

    @property
    def run(self) -> str:
        """A ledger in memory serves one run."""
        return "run"

    @property
    def durable(self) -> bool:
        """Nothing of it outlives the process."""
        return False

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every charge made, in order: the transcript of releases, where it is kept."""
        return tuple(self._charges)

    def spent(self, account: str) -> Floats:
        """Return what an account has spent so far."""
        return self._spent[self._known(account)].copy()

    def limit(self, account: str) -> Floats:
        """Return what an account may spend in all."""
        return self._limits[self._known(account)].copy()

    def epsilon(self, account: str) -> float:
        """Return ε of what an account has spent so far."""
        terms = self._terms[self._known(account)]
        return float(terms.meter.epsilon(self._spent[account], terms.delta)[0])

    def unaffordable(self, cost: Mapping[str, Floats]) -> tuple[str, ...]:
        """Return the accounts that cannot pay this on top of what they have spent."""
        return tuple(account for account, asked in cost.items() if not self._payable(account, asked))

    def _payable(self, account: str, asked: Floats) -> bool:
        """Whether an account can pay; what costs nothing is always paid."""
        vector = self._vector(account, asked)
        return not vector.any() or bool(np.any(self._spent[account] + vector <= self._limits[account]))

    def charge(self, charge: Charge) -> None:
        """Record the charge for all accounts or, if one cannot pay, for none and raise."""
        self.require(charge)
        for account, asked in charge.cost.items():
            self._spent[account] = self._spent[account] + self._vector(account, asked)
        if self._keep:
            self._charges.append(charge)

    def require(self, charge: Charge) -> None:
        """Raise if an account cannot pay the charge; record nothing."""
        broke = self.unaffordable(charge.cost)
        if broke:
            raise BudgetExceededError(self._refusal(broke[0], charge.cost[broke[0]]))

    def stored(self) -> Stored:
        """Return nothing: answers live with whoever asked, for as long as the process does."""
        return Stored()

    def _refusal(self, account: str, asked: Floats) -> str:
        terms = self._terms[account]
        have = self.epsilon(account)
        want = float(terms.meter.epsilon(self._spent[account] + asked, terms.delta)[0])
        whose = f"group {terms.group!r}"
        if account != terms.group:
            whose += f" (account {account!r})"
        return (
            f"{whose} cannot pay: the charge would bring its cost to ε = {want:.6g} at δ = {terms.delta:g}; of its "
            f"budget {terms.epsilon:.6g}, {have:.6g} is spent and {max(0.0, terms.epsilon - have):.6g} left; "
            "nothing was charged"
        )

    def _known(self, account: str) -> str:
        if account not in self._terms:
            raise InputError(f"account {account!r} is unknown: the accounts are {', '.join(self._terms)}")
        return account

    def _vector(self, account: str, cost: Floats) -> Floats:
        vector = np.asarray(cost, dtype=np.float64)
        if vector.shape != (self._terms[self._known(account)].meter.width,):
            raise InputError(f"account {account!r}: the cost has the shape {vector.shape}, not its meter's")
        if not np.all(vector >= 0):  # NaN fails this too
            raise InputError(f"account {account!r}: the cost holds {vector.min():g}; costs are 0 or above")
        return vector
