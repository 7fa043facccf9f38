"""Individualized PATE: every person decides how well their own data is protected.

The names in `__all__` are the public interface. Each is imported on first use, so that `import ipate` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ipate._version import __version__ as __version__

if TYPE_CHECKING:
    from ipate.accounting.bounds import Meter as Meter
    from ipate.allocation import allocate as allocate
    from ipate.allocation.allocation import Allocation as Allocation
    from ipate.classifier import PATEClassifier as PATEClassifier
    from ipate.errors import BudgetExceededError as BudgetExceededError
    from ipate.errors import InputError as InputError
    from ipate.errors import IpateError as IpateError
    from ipate.labelling.aggregators import Confident as Confident
    from ipate.labelling.aggregators import GNMax as GNMax
    from ipate.labelling.aggregators import Interactive as Interactive
    from ipate.labelling.aggregators import LNMax as LNMax
    from ipate.labelling.aggregators import Mechanism as Mechanism
    from ipate.labelling.audit import account_for as account_for
    from ipate.labelling.loop import label as label
    from ipate.people.budgets import Group as Group
    from ipate.people.people import People as People
    from ipate.people.policy import Policy as Policy
    from ipate.votes import Votes as Votes
    from ipate.votes import read_votes as read_votes
    from ipate.votes.panel import Panel as Panel

_HOMES = {
    "Allocation": "ipate.allocation.allocation",
    "BudgetExceededError": "ipate.errors",
    "Confident": "ipate.labelling.aggregators",
    "GNMax": "ipate.labelling.aggregators",
    "Group": "ipate.people.budgets",
    "InputError": "ipate.errors",
    "Interactive": "ipate.labelling.aggregators",
    "IpateError": "ipate.errors",
    "LNMax": "ipate.labelling.aggregators",
    "Mechanism": "ipate.labelling.aggregators",
    "Meter": "ipate.accounting.bounds",
    "PATEClassifier": "ipate.classifier",
    "Panel": "ipate.votes.panel",
    "People": "ipate.people.people",
    "Policy": "ipate.people.policy",
    "Votes": "ipate.votes",
    "account_for": "ipate.labelling.audit",
    "allocate": "ipate.allocation",
    "label": "ipate.labelling.loop",
    "read_votes": "ipate.votes",
}

__all__ = [
    "Allocation",
    "BudgetExceededError",
    "Confident",
    "GNMax",
    "Group",
    "InputError",
    "Interactive",
    "IpateError",
    "LNMax",
    "Mechanism",
    "Meter",
    "PATEClassifier",
    "Panel",
    "People",
    "Policy",
    "Votes",
    "account_for",
    "allocate",
    "label",
    "read_votes",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ipate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
