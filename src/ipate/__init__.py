"""Individualized PATE: every person decides how well their own data is protected.

The names below are the public interface; each is loaded when it is first used, so that importing the
package stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ipate._version import __version__ as __version__

if TYPE_CHECKING:
    from ipate.account import account_for as account_for
    from ipate.accounting.compose import Cost as Cost
    from ipate.accounting.meter import Meter as Meter
    from ipate.aggregators import Confident as Confident
    from ipate.aggregators import GNMax as GNMax
    from ipate.aggregators import Interactive as Interactive
    from ipate.aggregators import LNMax as LNMax
    from ipate.budgets import Group as Group
    from ipate.budgets import People as People
    from ipate.budgets import Policy as Policy
    from ipate.classifier import PATEClassifier as PATEClassifier
    from ipate.errors import BudgetExceededError as BudgetExceededError
    from ipate.errors import InputError as InputError
    from ipate.errors import IpateError as IpateError
    from ipate.labelling import label as label
    from ipate.mechanism import Mechanism as Mechanism
    from ipate.panel import Panel as Panel
    from ipate.variants import Allocation as Allocation
    from ipate.variants import allocate as allocate
    from ipate.votes import Votes as Votes
    from ipate.votes import read_votes as read_votes


_HOMES = {
    "Allocation": "ipate.variants",
    "BudgetExceededError": "ipate.errors",
    "Confident": "ipate.aggregators",
    "Cost": "ipate.accounting.compose",
    "GNMax": "ipate.aggregators",
    "Group": "ipate.budgets",
    "InputError": "ipate.errors",
    "Interactive": "ipate.aggregators",
    "IpateError": "ipate.errors",
    "LNMax": "ipate.aggregators",
    "Mechanism": "ipate.mechanism",
    "Meter": "ipate.accounting.meter",
    "PATEClassifier": "ipate.classifier",
    "Panel": "ipate.panel",
    "People": "ipate.budgets",
    "Policy": "ipate.budgets",
    "Votes": "ipate.votes",
    "account_for": "ipate.account",
    "allocate": "ipate.variants",
    "label": "ipate.labelling",
    "read_votes": "ipate.votes",
}

__all__ = [
    "Allocation",
    "BudgetExceededError",
    "Confident",
    "Cost",
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
