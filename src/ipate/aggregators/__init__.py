"""From votes to a label or none: the aggregators of PATE, and which releases they made.

An aggregator knows counts, noise and its own parameters. It knows nothing about people or budgets.
"""

from ipate.aggregators.base import Aggregator, Outcome
from ipate.aggregators.gnmax import Confident, GNMax, Interactive
from ipate.aggregators.lnmax import LNMax

__all__ = ["Aggregator", "Confident", "GNMax", "Interactive", "LNMax", "Outcome"]
