"""The ledger on disk: what was released and what it cost whom, in one SQLite file that a crash cannot tear."""

from ipate.ledgers.carry import members_of
from ipate.ledgers.naming import is_seeded, name_run
from ipate.ledgers.opening import opening_balances, refuse_mixed_noise, run_names
from ipate.ledgers.people import PersonRecord
from ipate.ledgers.records import Head
from ipate.ledgers.sqlite import SqliteLedger

__all__ = [
    "Head",
    "PersonRecord",
    "SqliteLedger",
    "is_seeded",
    "members_of",
    "name_run",
    "opening_balances",
    "refuse_mixed_noise",
    "run_names",
]
