"""The ledger in memory, for as long as the process lives."""

from collections.abc import Mapping, Sequence

import numpy as np

from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.records import Charge, Floats, Stored, Terms


class MemoryLedger:
    """A ledger for as long as the process lives.

    Parameters
    ----------
    terms : sequence of Terms
        One entry per account; ids must differ.
    opening : mapping, optional
        What accounts have spent before, elsewhere, in the same unit.
    """

    def __init__(
        self,
        terms: Sequence[Terms],
        *,
        opening: Mapping[str, Floats] | None = None,
    ) -> None:
        self._terms = {entry.account.id: entry for entry in terms}
        if len(self._terms) != len(terms):
            raise InputError("an account id stands twice: ids must differ")
        self._limits = {
            entry.account.id: entry.meter.limit(entry.account.epsilon, entry.account.delta) for entry in terms
        }
        self._spent = {entry.account.id: np.zeros(entry.meter.width) for entry in terms}
        self._charges: list[Charge] = []
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
        """Every charge made, in order: the transcript of releases."""
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
        return float(terms.meter.epsilon(self._spent[account], terms.account.delta)[0])

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
        want = float(terms.meter.epsilon(self._spent[account] + asked, terms.account.delta)[0])
        whose = f"group {terms.account.group.id!r}"
        if account != terms.account.group.id:
            whose += f" (account {account!r})"
        budget = terms.account.group.budget
        return (
            f"{whose} cannot pay: the charge would bring its cost to ε = {want:.6g} at δ = {budget.delta:g}; of its "
            f"budget {budget.epsilon:.6g}, {have:.6g} is spent and {max(0.0, budget.epsilon - have):.6g} left; "
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
