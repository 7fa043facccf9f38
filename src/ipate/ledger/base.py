"""The interface of ledgers with the arithmetic that they share, and the ledger in memory."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from ipate._types import Floats
from ipate.accounting.bounds import Meter
from ipate.errors import BudgetExceededError, InputError
from ipate.ledger.admission import Roster
from ipate.ledger.carry import Charges, Histories, Place
from ipate.ledger.records import (
    PRIVATE_COSTS,
    AccountRow,
    Charge,
    Head,
    NoiseKind,
    PersonRecord,
    Reason,
    Released,
    RunRow,
    Scope,
    Terms,
    noise_kind,
    now,
    refuse_mixed_noise,
)
from ipate.people.ids import plain_id

_ROUNDING = 1e-9  # relative: a smaller difference of two sums counts as zero


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How a run is opened on its ledger.

    Attributes
    ----------
    terms : sequence of Terms
        The accounts with their budgets and units.
    roster : Roster
        The people, so that balances follow them into other groups, and the answers to what a new run may be asked.
        All runs of a ledger name their people, or none does.
    pool : str, optional
        The pool that query ids refer to. Runs on the same pool share its answers. Default: a separate pool.
    noise : {"secure", "seeded"}
        The kind of noise, which all runs of a ledger share.
    run : str
        The name of the run, unique within the ledger.
    parent, reason : str, optional
        The run that this one continues, and why ("withdrawal").
    replaces : str, optional
        Other ledgers of these people whose charges are not counted here, for the report.
    """

    terms: Sequence[Terms]
    roster: Roster = field(default_factory=Roster)
    pool: str | None = None
    noise: NoiseKind = "secure"
    run: str = "run"
    parent: str | None = None
    reason: Reason | None = None
    replaces: str | None = None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a ledger says about a run that is not open yet."""

    accounts: tuple[AccountRow, ...] = ()  # as they would be opened; empty where the ledger is new or holds the run
    private: bool = False  # whether what is left of the budgets depends on private votes
    where: str = ""  # the ledger, as messages name it


@dataclass
class Progress:
    """What a run has charged so far: for every account its largest Δ, and when it was dropped."""

    answered: int = 0
    sensitivity: dict[str, float] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)  # dropped accounts (Δ is 0) to the number of answers before


class Ledger(ABC):
    """The interface of a ledger. What follows from runs and balances is here; a subclass adds the storage.

    The subclass keeps `runs` (by entry, in the order in which they were opened) and `balances` (by run entry and
    account) up to date.
    """

    def __init__(self, path: Path | None, runs: dict[int, RunRow], run: RunRow, balances: dict[Place, Floats]) -> None:
        self._path, self._runs, self._run, self._balances = path, runs, run, balances
        self._terms = {row.id: row.terms for row in run.accounts}
        self._limits = {name: terms.limit for name, terms in self._terms.items()}

    def __repr__(self) -> str:
        """Return the file, the run and the number of accounts, without ids of people."""
        where = "in memory" if self._path is None else str(self._path)
        return f"{type(self).__name__}({where}, run {self.run!r}, {len(self._terms)} accounts)"

    @property
    @abstractmethod
    def head(self) -> Head | None:
        """The last entry of the hash chain; None where there is no chain."""

    @property
    @abstractmethod
    def private_history(self) -> tuple[str, ...]:
        """Runs up to this one whose length may depend on private votes and whose balances are carried over."""

    @abstractmethod
    def charge(self, charge: Charge) -> None:
        """Record the charge with its answers for all accounts or, where one cannot pay, raise and record nothing."""

    @abstractmethod
    def released(self, codec: str, scope: Scope = "pool") -> tuple[Released, ...]:
        """Return what is paid and stored in one codec: for the run's pool, or by this run and those it continues.

        A ledger in memory stores nothing for a pool, because a run in memory cannot be continued.
        """

    @abstractmethod
    def inherited(self) -> frozenset[str]:
        """Return the queries of the run's pool that other runs paid for, except the runs it continues."""

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """What this run has charged, from which an interrupted run is continued."""

    @abstractmethod
    def check_head(self, head: Head | str) -> None:
        """Raise if the chain does not contain a head that was seen before: rollback detection."""

    @abstractmethod
    def verify(self) -> Head | None:
        """Verify all records and return the head."""

    @abstractmethod
    def close(self) -> None:
        """Release the file and its lock."""

    @abstractmethod
    def _keys(self, scope: Scope) -> Collection[str]:
        """Return the keys that were released for the run's pool, or by this run and those it continues."""

    @abstractmethod
    def _charged(self) -> Charges:
        """Iterate over the charges of all runs, in order, each with the entry of its run."""

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger; None for a ledger in memory."""
        return self._path

    @property
    def durable(self) -> bool:
        """Whether charges and answers outlive the process, so that a run can be continued."""
        return self.path is not None

    @property
    def run(self) -> str:
        """The name of the run that is charged; unique within the ledger."""
        return self._run.name

    @property
    def opened(self) -> str:
        """When the run was opened, in UTC."""
        return self._run.time

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of all runs, in the order in which they were opened."""
        return tuple(run.name for run in self._runs.values())

    @property
    def noise(self) -> NoiseKind | None:
        """The kind of noise of all releases; None in memory if not given and before the first charge."""
        return self._run.noise

    @property
    def terms(self) -> Mapping[str, Terms]:
        """Every account's terms, by account id."""
        return dict(self._terms)

    @property
    def before(self) -> dict[str, float]:
        """Every group's ε when the run began: the largest over the opening balances of its accounts."""
        found = {terms.account.group.id: 0.0 for terms in self._terms.values()}
        for account, terms in self._terms.items():
            opening = self.opening(account)
            if opening.any():
                found[terms.account.group.id] = max(found[terms.account.group.id], terms.epsilon(opening))
        return found

    def parts(self, run: str | None = None) -> tuple[str, ...]:
        """Return the runs that a run continues, oldest first, and then the run itself (default: the current run)."""
        parents = {row.name: row.parent for row in self._runs.values()}
        found = [self.run if run is None else run]
        while (parent := parents[found[0]]) is not None:
            found.insert(0, parent)
        return tuple(found)

    def opening(self, account: str) -> Floats:
        """Return the balance of an account when the run, or the first run it continues, was opened.

        The remaining people were in the same account before, so the charges of the earlier parts are subtracted from
        the last opening balance. The result does not reveal when a person left.
        """
        last = self._account(self.run, self._known(account))[1].opening
        own = sum((self.charged_by(part, account) for part in self.parts()[:-1]), np.zeros(len(last)))
        before = last - own
        return np.where(before > _ROUNDING * own, before, 0.0)

    def spent(self, account: str) -> Floats:
        """Return the balance of an account, including earlier runs."""
        return self._balance(account).copy()

    def limit(self, account: str) -> Floats:
        """Return the limit of an account over all runs."""
        return self._limits[self._known(account)].copy()

    def balances(self, accounts: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the balances and the limits of accounts of one width, both of shape (accounts, width)."""
        return np.stack([self._balance(name) for name in accounts]), np.stack([self._limits[name] for name in accounts])

    def epsilon(self, account: str) -> float:
        """Return ε of an account's balance."""
        return self._terms[self._known(account)].epsilon(self._balance(account))

    def unaffordable(self, cost: Mapping[str, Floats]) -> tuple[str, ...]:
        """Return the accounts that cannot pay this in addition to their balance; a zero cost can always be paid."""
        vectors = {account: _vector(self._terms[self._known(account)], asked) for account, asked in cost.items()}
        return tuple(
            account
            for account, vector in vectors.items()
            if vector.any() and not self._terms[account].fits(self._balance(account) + vector)
        )

    def require(self, charge: Charge) -> None:
        """Raise if a charge has the other kind of noise, releases a key again, or cannot be paid."""
        refuse_mixed_noise(str(self.path or "this ledger"), self.noise, noise_kind(seeded=charge.seeded))
        self._refuse_again(charge)
        broke = self.unaffordable(charge.cost)
        if broke:
            raise BudgetExceededError(self._refusal(broke[0], charge.cost[broke[0]]))

    def _refuse_again(self, charge: Charge) -> None:
        """Refuse a key that was released before, and a release whose payment was not charged."""
        known = self._keys(charge.scope)
        again = [key for key in charge.keys if key in known]
        if again and charge.scope == "run":
            raise InputError(
                f"this run has released {again[0]!r} already, and noise is drawn only once: use what is stored, or "
                "begin a new run, which charges everybody again"
            )
        if again or len(set(charge.keys)) < len(charge.keys):
            raise InputError(f"duplicate query {(again or charge.keys)[0]!r}: a query is released once, then stored")
        if charge.paid_by is not None and charge.paid_by not in self._keys("run"):
            raise InputError(f"{charge.paid_by!r} was not charged: charge it first, then release what it pays for")

    def charged_by(self, run: str, account: str) -> Floats:
        """Return what a run charged to one of its accounts, without earlier spending."""
        entry, row = self._account(run, account)
        return self._balances[entry, account] - row.opening

    def meter_of(self, run: str, account: str) -> Meter:
        """Return the unit in which a run charged one of its accounts."""
        return self._account(run, account)[1].terms.meter

    def histories(self) -> Histories:
        """Return what everybody was charged so far, for questions about many people."""
        return Histories(self._runs, self._charged())

    def person(self, person: str) -> tuple[PersonRecord, ...]:
        """Return a person's history, run by run; without people, an account id replaces the person's id."""
        found = self.histories()
        places = found.places(self._id(person))
        if not places:
            raise InputError(f"person is {self._id(person)!r}: nobody in this ledger has this id")
        return found.records(places)

    def cost_of(self, person: str, meter: Meter) -> Floats:
        """Return the cost of all releases of a person, in any unit."""
        found = self.histories()
        return found.cost(found.places(self._id(person)), meter)

    def unprotected_in(self, person: str) -> tuple[tuple[str, str], ...]:
        """Return the name and the time of every run that used a person's rows as pool or test data."""
        return self.histories().unprotected_in(person)

    def payers(self) -> dict[str, tuple[str, Charge]]:
        """Return the run and the charge that paid for every inherited query: its noise may be another than this run's.

        Of several runs on one pool the first one paid, because later ones were given its answers.
        """
        wanted, own, found = self.inherited(), set(self.parts()), dict[str, tuple[str, Charge]]()
        for entry, charge in self._charged() if wanted else ():
            run = self._runs[entry]
            if charge.scope == "pool" and run.pool == self._run.pool and run.name not in own:
                for query in wanted.intersection(charge.keys):
                    found.setdefault(query, (run.name, charge))
        return found

    @property
    def unprotected(self) -> frozenset[str]:
        """The people whose rows some run used as pool or test data, without protection."""
        return frozenset().union(*(run.unprotected for run in self._runs.values()))

    @property
    def own_unprotected(self) -> tuple[str, ...]:
        """The people whose rows this run, or a run that it continues, used as pool or test data."""
        own = set(self.parts())
        return tuple(dict.fromkeys(who for run in self._runs.values() if run.name in own for who in run.unprotected))

    @property
    def withdrawn(self) -> Mapping[str, str]:
        """The people who withdrew and have not returned, each with the time; nobody can withdraw in memory."""
        return {}

    @property
    def replaces(self) -> tuple[str, ...]:
        """Other ledgers of these people, by file name, whose charges are not counted here (`fresh_ledger`)."""
        return tuple(dict.fromkeys(run.replaces for run in self._runs.values() if run.replaces is not None))

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every charge of this run and of the runs it continues, in order."""
        own = set(self.parts())
        return tuple(charge for run, charge in self._charged() if self._runs[run].name in own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _id(self, person: str) -> str:
        """Return a person's id in its one form; account ids, where no people are named, stay as they are."""
        return plain_id(person) if self._run.named else person

    def _account(self, run: str, account: str) -> tuple[int, AccountRow]:
        for found in self._runs.values():
            for row in found.accounts if found.name == run else ():
                if row.id == account:
                    return found.entry, row
        raise InputError(f"run {run!r} has no account {account!r} in this ledger")

    def _balance(self, account: str) -> Floats:
        return self._balances[self._run.entry, self._known(account)]

    def _known(self, account: str) -> str:
        if account not in self._terms:
            raise InputError(f"account {account!r} is unknown: the accounts are {', '.join(self._terms)}")
        return account

    def _refusal(self, account: str, asked: Floats) -> str:
        terms = self._terms[account]
        if self.private_history or not terms.meter.data_independent:
            return f"{terms.owner} cannot pay: the charge would exceed its budget; {PRIVATE_COSTS}; nothing was charged"
        have, want = self.epsilon(account), terms.epsilon(self._balance(account) + asked)
        budget = terms.account.group.budget
        return (
            f"{terms.owner} cannot pay: the charge would bring its cost to ε = {want:.6g} at δ = {budget.delta:g}; of "
            f"its budget {budget.epsilon:.6g}, {have:.6g} is spent and {max(0.0, budget.epsilon - have):.6g} left; "
            "nothing was charged"
        )


class MemoryLedger(Ledger):
    """A ledger in memory for one run.

    `opening` has the opening balances of accounts, in their own unit. The kind of noise is `noise` or that of the first
    charge.
    """

    def __init__(
        self, terms: Sequence[Terms], *, opening: Mapping[str, Floats] | None = None, noise: NoiseKind | None = None
    ) -> None:
        check_ids(terms)
        given = dict(opening or {})
        rows = []
        for entry in terms:
            spent = _vector(entry, given.pop(entry.account.id, np.zeros(entry.meter.width)))
            rows.append(AccountRow(terms=entry, opening=spent.copy()))
        run = RunRow(
            entry=0,
            time=now(),
            name="run",
            pool="run",
            identity="account",
            noise=noise,
            parent=None,
            reason=None,
            replaces=None,
            policy=None,
            accounts=tuple(rows),
            members=(),
            unprotected=(),
        )
        super().__init__(None, {0: run}, run, {(0, row.id): row.opening for row in rows})
        self._charges: list[Charge] = []
        for account in given:
            self._known(account)

    @property
    def head(self) -> Head | None:
        """None: there is no hash chain."""
        return None

    @property
    def private_history(self) -> tuple[str, ...]:
        """Empty: a ledger in memory has no earlier runs."""
        return ()

    def charge(self, charge: Charge) -> None:
        """Record the charge for all accounts or, where one cannot pay, raise and record nothing."""
        self.require(charge)
        if self.noise is None:
            self._run = replace(self._run, noise=noise_kind(seeded=charge.seeded))
            self._runs[0] = self._run
        for account, asked in charge.cost.items():
            self._balances[0, account] = self._balances[0, account] + _vector(self._terms[account], asked)
        self._charges.append(charge)

    def released(self, codec: str, scope: Scope = "pool") -> tuple[Released, ...]:
        """Return what the run has released with its own scope."""
        return tuple(
            Released(run=self.run, scope=scope, keys=charge.keys, codec=codec, payload=charge.payload)
            for charge in self._charges
            if charge.scope == scope == "run" and charge.codec == codec
        )

    def inherited(self) -> frozenset[str]:
        """Return the empty set: no other run shares this ledger."""
        return frozenset()

    @property
    def progress(self) -> Progress:
        """Nothing: a run in memory cannot be continued."""
        return Progress()

    def check_head(self, head: Head | str) -> None:
        """Raise, because a ledger in memory has no hash chain."""
        raise InputError(f"head is {str(head)!r}: a ledger in memory has no hash chain; open the ledger's file")

    def verify(self) -> Head | None:
        """Return None: there is no file to verify."""
        return None

    def close(self) -> None:
        """Do nothing: there is no file."""

    def _keys(self, scope: Scope) -> Collection[str]:
        return {key for charge in self._charges if charge.scope == scope == "run" for key in charge.keys}

    def _charged(self) -> Charges:
        return ((0, charge) for charge in self._charges)


def check_ids(terms: Sequence[Terms]) -> None:
    """Refuse duplicate account ids."""
    seen: set[str] = set()
    for entry in terms:
        if entry.account.id in seen:
            raise InputError(f"duplicate account id {entry.account.id!r}: account ids must differ")
        seen.add(entry.account.id)


def _vector(terms: Terms, cost: Floats) -> Floats:
    """Return a cost as a float vector; refuse a shape other than its meter's, and negative or NaN costs."""
    vector = np.asarray(cost, dtype=np.float64)
    if vector.shape != (terms.meter.width,):
        raise InputError(f"account {terms.account.id!r}: the cost has the shape {vector.shape}, not its meter's")
    if not np.all(vector >= 0):  # NaN fails this too
        raise InputError(f"account {terms.account.id!r}: the cost holds {vector.min():g}; costs are 0 or above")
    return vector
