"""The loop over queries: what a query could cost is tested, charged, and only then released."""

from ipate.labelling.loop import Stop, account_terms, label, open_ledger
from ipate.labelling.results import Ending, GroupResult, Labelling
from ipate.labelling.tested import label_tested

__all__ = ["Ending", "GroupResult", "Labelling", "Stop", "account_terms", "label", "label_tested", "open_ledger"]
