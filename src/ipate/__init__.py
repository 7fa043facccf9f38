"""Individualized PATE: every person decides how well their own data is protected.

The names in `__all__` are the public interface. Each is imported on first use, so that `import ipate` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ipate._version import __version__ as __version__

if TYPE_CHECKING:
    from ipate.accounting.bounds import Meter
    from ipate.allocation import allocate
    from ipate.allocation.allocation import Allocation
    from ipate.classifier import PATEClassifier
    from ipate.data import load
    from ipate.data.dataset import Dataset
    from ipate.data.files import read_data
    from ipate.errors import (
        BudgetExceededError,
        ClassesWarning,
        DeltaWarning,
        InputError,
        IpateError,
        PolicyWarning,
        PublicRowsWarning,
        RepeatedFitWarning,
        ReproductionWarning,
    )
    from ipate.labelling.aggregators import Confident, GNMax, Interactive, LNMax, Mechanism
    from ipate.labelling.audit import account_for
    from ipate.labelling.comparison import Comparison, compare_bounds
    from ipate.labelling.loop import label
    from ipate.labelling.results import GroupResult, Guarantee, Labelling
    from ipate.labelling.tested import label_tested
    from ipate.ledger.base import MemoryLedger
    from ipate.ledger.sqlite import SqliteLedger
    from ipate.people.budgets import Account, Budget, Group
    from ipate.people.people import People
    from ipate.people.policy import Policy
    from ipate.planning.plan import Plan, make_plan
    from ipate.planning.settings import Settings, choose_settings
    from ipate.report.plots import plot_costs
    from ipate.runs.reporting import write_report
    from ipate.students.deployed import DeployedStudent, load_student
    from ipate.votes import Votes, read_votes
    from ipate.votes.panel import Panel

_HOMES = {
    "ipate.accounting.bounds": "Meter",
    "ipate.allocation": "allocate",
    "ipate.allocation.allocation": "Allocation",
    "ipate.classifier": "PATEClassifier",
    "ipate.data": "load",
    "ipate.data.dataset": "Dataset",
    "ipate.data.files": "read_data",
    "ipate.errors": "BudgetExceededError ClassesWarning DeltaWarning InputError IpateError "
    "PolicyWarning PublicRowsWarning RepeatedFitWarning ReproductionWarning",
    "ipate.labelling.aggregators": "Confident GNMax Interactive LNMax Mechanism",
    "ipate.labelling.audit": "account_for",
    "ipate.labelling.comparison": "Comparison compare_bounds",
    "ipate.labelling.loop": "label",
    "ipate.labelling.results": "GroupResult Guarantee Labelling",
    "ipate.labelling.tested": "label_tested",
    "ipate.ledger.base": "MemoryLedger",
    "ipate.ledger.sqlite": "SqliteLedger",
    "ipate.people.budgets": "Account Budget Group",
    "ipate.people.people": "People",
    "ipate.people.policy": "Policy",
    "ipate.planning.plan": "Plan make_plan",
    "ipate.planning.settings": "Settings choose_settings",
    "ipate.report.plots": "plot_costs",
    "ipate.runs.reporting": "write_report",
    "ipate.students.deployed": "DeployedStudent load_student",
    "ipate.votes": "Votes read_votes",
    "ipate.votes.panel": "Panel",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Account", "Allocation", "Budget", "BudgetExceededError", "ClassesWarning", "Comparison", "Confident",
    "Dataset", "DeltaWarning", "DeployedStudent", "GNMax", "Group", "GroupResult", "Guarantee",
    "InputError", "Interactive", "IpateError", "LNMax", "Labelling", "Mechanism", "MemoryLedger", "Meter",
    "PATEClassifier", "Panel", "People", "Plan", "Policy", "PolicyWarning", "PublicRowsWarning", "RepeatedFitWarning",
    "ReproductionWarning", "Settings", "SqliteLedger", "Votes", "account_for", "allocate", "choose_settings",
    "compare_bounds", "label", "label_tested", "load", "load_student", "make_plan", "plot_costs", "read_data",
    "read_votes", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'ipate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
