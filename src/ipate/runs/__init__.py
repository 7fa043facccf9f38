"""Whole runs in a folder: allocate, train, vote, label, teach, evaluate; each stage is kept when done."""

from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path
from ipate.runs.listing import RunState, list_runs
from ipate.runs.stages import RunSummary, allocated, execute
from ipate.runs.withdrawal import withdraw

__all__ = [
    "RunFolder",
    "RunState",
    "RunSummary",
    "allocated",
    "execute",
    "ledger_path",
    "list_runs",
    "withdraw",
]
