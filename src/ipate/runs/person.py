"""One person in a run: their place in the allocation, and what the ledger charged for them."""

from dataclasses import dataclass, replace

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.labelling.results import Kind, state_guarantee
from ipate.ledger.records import Ledger, PersonRecord
from ipate.ledger.sqlite import SqliteLedger
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path, reading


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What a ledger holds of one person.

    Attributes
    ----------
    records : tuple of PersonRecord
        What each run on the ledger promised and spent, in order; a run that others left is one run all the same, so
        that nobody is told when they did.
    labels, checks : int
        The releases of the run in question that the person's data could have changed.
    epsilon, budget, delta : float
        What was spent in all runs together, counted in the unit of the last account, and that account's budget.
    kind : {"releasable", "private"}
        Private where one of the runs was charged by costs that were computed from votes, or one before them on the
        ledger, of other people: it decided how much was left.
    """

    records: tuple[PersonRecord, ...]
    labels: int
    checks: int
    epsilon: float
    budget: float
    delta: float
    kind: Kind


def find_person(allocation: Allocation, person: str) -> int:
    """Return a person's index; say what it means where nobody has this id."""
    try:
        return allocation.people.index_of(person)
    except InputError as error:
        raise InputError(
            f"{error} among the {allocation.people.n_people:,} people whose data teaches in this run; whoever's rows "
            "were treated as public or as test data has no account"
        ) from None


def kind_of(folder: RunFolder) -> Kind:
    """Return whether a run's figures may be told: not where costs are private, nor where the noise was seeded."""
    seeded = folder.config.seed is not None
    found = state_guarantee(folder.settings.meter, stopped_by="account", seeded=seeded)
    return "private" if found.seeded else found.kind


def balance_of(folder: RunFolder, person: str) -> Balance | None:
    """Return what was charged for a person on the run's ledger; None where nothing has been opened for them."""
    if not (folder.private / "ledger.json").is_file():
        return None
    with reading(folder) as ledger:
        try:
            records = ledger.person(person)
        except InputError:  # withdrew before the first query
            return None
        first = ledger.parts()[0]
        if records[-1].run == ledger.run:
            return _balance(ledger, records, person, first)
    with SqliteLedger.open(ledger_path(folder), run=records[-1].run, readonly=True) as ledger:
        return _balance(ledger, records, person, first)


def _balance(ledger: Ledger, records: tuple[PersonRecord, ...], person: str, first: str) -> Balance:
    """Add up a person's records; those of the run in question are the ones of the run `first` and its later parts."""
    last = records[-1]
    meter = ledger.terms[last.account].meter
    cost = ledger.cost_of(person, meter)
    kinds = {state_guarantee(Meter(record.bound), stopped_by="account").kind for record in records}
    own = [record for record in records if ledger.parts(record.run)[0] == first]
    return Balance(
        records=_whole_runs(ledger, records),
        labels=sum(record.labels for record in own),
        checks=sum(record.checks for record in own),
        epsilon=float(meter.epsilon(cost, last.delta)[0]) if cost.any() else 0.0,
        budget=last.budget,
        delta=last.delta,
        kind="private" if "private" in kinds or ledger.private_history else "releasable",
    )


def _whole_runs(ledger: Ledger, records: tuple[PersonRecord, ...]) -> tuple[PersonRecord, ...]:
    """Join the parts that a run has in the ledger since somebody left it."""
    parts: dict[str, list[PersonRecord]] = {}
    for record in records:
        parts.setdefault(ledger.parts(record.run)[0], []).append(record)
    return tuple(own[0] if len(own) == 1 else _joined(ledger, name, own) for name, own in parts.items())


def _joined(ledger: Ledger, name: str, parts: list[PersonRecord]) -> PersonRecord:
    meter = ledger.meter_of(parts[-1].run, parts[-1].account)
    cost = np.sum([ledger.charged_by(part.run, part.account) for part in parts], axis=0)
    return replace(
        parts[0],
        run=name,
        checks=sum(part.checks for part in parts),
        labels=sum(part.labels for part in parts),
        epsilon=float(meter.epsilon(cost, parts[0].delta)[0]) if cost.any() else 0.0,
    )
