"""The statements of the people of a run, and their letters.

A cost that was computed from votes depends on other people's data, so it is private, and so is the number of labels
where such costs could end a run. A statement contains neither unless the data owner asks for them.
"""

import csv
import io
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import numpy as np

from ipate.allocation.allocation import Allocation
from ipate.engines.context import Bar
from ipate.errors import InputError, show
from ipate.files import write_text
from ipate.ledger.records import PersonRecord
from ipate.people.budgets import Account
from ipate.people.ids import plain_id
from ipate.release.description import from_outside
from ipate.report.letter import letter
from ipate.report.odds import power
from ipate.report.statement import Agreement, RunEntry, Statement, Unprotected, Use, for_the_person
from ipate.runs.balances import Balance, Balances
from ipate.runs.folder import RunFolder, refuse_public
from ipate.runs.provenance import consents_of
from ipate.runs.task import engine_of
from ipate.runs.withdrawal import left_before, withdrawals

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")  # ids that are names of files
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)  # names of devices on Windows


class Statements:
    """The statements of a run's people, as a context manager that reads the folder and the ledger once."""

    def __init__(self, folder: RunFolder) -> None:
        path = folder.private / "allocation.npz"
        if not path.is_file():
            raise InputError(
                f"{folder.path}: people are not assigned to teachers yet; continue it with ipate run --resume "
                f"{folder.path}"
            )
        self._folder, self._allocation = folder, Allocation.load(path)
        self._left = {**left_before(folder), **{entry.person: entry.when for entry in withdrawals(folder)}}
        self._consents = consents_of(folder)
        self._stack, self._balances = ExitStack(), Balances(folder)
        self._outside = from_outside(**engine_of(folder).parts(folder.settings))
        self._odds: dict[tuple[object, ...], tuple[float, ...]] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self._balances)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        """The number of people that `everybody` yields."""
        return self._allocation.people.n_people + len(self._balances.unprotected)

    def everybody(self) -> Iterator[Statement | Unprotected]:
        """Yield the statements of all people of the run, those without protection last."""
        for person in self._allocation.people.ids.tolist():
            yield self.of(person)
        for person in self._balances.unprotected:
            yield self.of(person)

    def of(self, person: str, *, private: bool = False) -> Statement | Unprotected:
        """Return a person's statement, or with `private` the one that only the data owner may see.

        Somebody whose rows are pool or test data has no account: their statement says so.
        """
        allocation, folder = self._allocation, self._folder
        uses = tuple(Use(run=run, opened=time) for run, time in self._balances.uses(plain_id(person)))
        run = folder.path.absolute().name
        try:
            index = allocation.people.index_of(person)
        except InputError:
            if not uses:
                raise InputError(
                    f"person is {show(person)}: nobody has this id among the {allocation.people.n_people:,} people "
                    "with private data in this run, nor among those whose rows are its pool or test data; write the id "
                    "as in the data file"
                ) from None
            agreement = self._agreement(plain_id(person))
            return Unprotected(person=plain_id(person), run=run, unprotected=uses, agreement=agreement)
        config, known = folder.config, str(allocation.people.ids[index])
        home = allocation.groups[int(allocation.group_of_person[index])]
        balance = self._balances.of(known, home)
        guaranteed = balance.kind == "releasable"
        full = Statement(
            person=known,
            run=run,
            asked=allocation.people.groups[int(allocation.people.group_of_person[index])].id,
            group=home.id,
            levels=config.budgets.epsilon is None and config.data.epsilon is None,
            budget=home.epsilon,
            delta=home.delta,
            guaranteed=guaranteed,
            seeded=config.seed is not None,
            overlap=config.data.allow_overlap,
            private=not guaranteed,
            private_costs=balance.private_costs,
            withdrawn=self._left.get(known, self._balances.withdrawn.get(known)),
            allowed=balance.budget,
            labels=balance.labels,
            checks=balance.checks,
            ballots=balance.ballots,
            spent=balance.epsilon,
            left=max(0.0, balance.budget - balance.epsilon),
            entries=tuple(_entry(record) for record in balance.records),
            unprotected=uses,
            agreement=self._agreement(known),
            outside=self._outside,
            odds=self._best_test(balance, home) if guaranteed else None,
        )
        return full if private else for_the_person(full)

    def _agreement(self, person: str) -> Agreement:
        config = self._folder.config
        budgets, about = config.budgets, config.report
        day, version = self._consents.get(person, (None, None))
        return Agreement(
            consent_date=day,
            consent_version=version,
            policy_version=budgets.policy_version,
            policy_date=None if budgets.policy_date is None else budgets.policy_date.isoformat(),
            controller=about.controller,
            contact=about.contact,
        )

    def _best_test(self, balance: Balance, home: Account) -> tuple[float, ...]:
        """Return the odds of the best test for all runs on the ledger together.

        They hold for the largest budget and δ of these runs, and for the weakest of the bounds.
        """
        records = balance.records
        epsilon = max([home.epsilon, balance.budget, *(record.budget for record in records)])
        delta = max([home.delta, *(record.delta for record in records)])
        bounds = frozenset({self._folder.settings.meter.bound, *(record.bound for record in records)})
        key = (epsilon, delta, bounds)
        if key not in self._odds:
            rates = np.max([power(bound, epsilon, delta) for bound in bounds], axis=0)
            self._odds[key] = tuple(rates.tolist())
        return self._odds[key]


def state(folder: RunFolder, person: str, *, private: bool = False) -> Statement | Unprotected:
    """Return a person's statement, or with `private` the one that only the data owner may see."""
    with Statements(folder) as book:
        return book.of(person, private=private)


def _entry(record: PersonRecord) -> RunEntry:
    same = {name: value for name, value in asdict(record).items() if name not in ("account", "time", "vectors")}
    return RunEntry(opened=record.time, ballots=record.vectors, **same)


def check_letters(folder: RunFolder, target: Path) -> None:
    """Refuse a place for letters in the run's public folder, or in a folder that does not exist."""
    refuse_public(target, "letters are private and", near=folder.path)
    if not target.absolute().parent.is_dir():
        raise InputError(f"{target.parent}: no such folder")


def write_letter(folder: RunFolder, statement: Statement | Unprotected, target: Path) -> None:
    """Write the letter of one person, readable by the file's owner only."""
    check_letters(folder, target)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{target}: the file of a letter must end in .html")
    write_text(target, letter(statement, date=datetime.now(UTC).date().isoformat()), private=True)


def write_letters(folder: RunFolder, target: Path, *, bar: Bar) -> int:
    """Write a letter for everybody, and `index.csv` with their files; return the number of letters.

    Files are readable by their owner only. They can be written again at any time, so they are not flushed one by one.
    """
    check_letters(folder, target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target}: it exists and is not an empty folder; name a new one")
    with Statements(folder) as book:
        target.mkdir(mode=0o700, exist_ok=True)
        target.chmod(0o700)
        today, taken, index = datetime.now(UTC).date().isoformat(), {"index.csv"}, [("person", "file")]
        with bar("letters written", len(book)) as progress:
            for number, statement in enumerate(book.everybody(), start=1):
                name = _file_name(statement.person, number, taken)
                _write(target / name, letter(statement, date=today))
                index.append((_harmless(statement.person), name))
                progress(number)
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(index)
    _write(target / "index.csv", table.getvalue())
    return len(index) - 1


def _file_name(person: str, number: int, taken: set[str]) -> str:
    """Return a name for a person's letter that is free on every platform, also where capitals do not count."""
    plain = _PLAIN.fullmatch(person) and not _DEVICE.fullmatch(person)
    name = f"{person}.html" if plain else f"letter-{number}.html"
    while name.casefold() in taken:
        name = f"letter-{number}-{len(taken)}.html"
        number += 1
    taken.add(name.casefold())
    return name


def _harmless(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: one that begins like one gets an apostrophe."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _write(path: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    with open(path, "x", encoding="utf-8", newline="", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
