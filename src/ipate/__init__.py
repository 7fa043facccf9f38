"""Individualized PATE: every person decides how well their own data is protected.

The names in `__all__` are the public interface. Each is imported on first use, so that `import ipate` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ipate._version import __version__ as __version__

if TYPE_CHECKING:
    from ipate.accounting.bounds import Meter
    from ipate.allocation.allocation import Allocation
    from ipate.classifier import PATEClassifier
    from ipate.data import load
    from ipate.data.dataset import Dataset
    from ipate.data.sources import read_data
    from ipate.engines.teachers.account import Comparison, account_for, compare_bounds
    from ipate.engines.teachers.aggregators import Confident, GNMax, Interactive, LNMax, Mechanism
    from ipate.engines.teachers.loop import label
    from ipate.engines.teachers.panel import Panel
    from ipate.engines.teachers.plan import Plan, make_plan
    from ipate.engines.teachers.settings import TeacherSettings, choose_settings
    from ipate.engines.teachers.tested import label_tested
    from ipate.engines.teachers.variants import allocate
    from ipate.engines.teachers.votes import Votes, read_votes
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
    from ipate.ledger.base import MemoryLedger
    from ipate.ledger.sqlite import SqliteLedger
    from ipate.people.budgets import Account, Budget, Group
    from ipate.people.people import People
    from ipate.people.policy import Policy
    from ipate.release.results import GroupResult, Guarantee, Labelling
    from ipate.report.figures import plot_costs
    from ipate.runs.reporting import write_report
    from ipate.students.deployed import DeployedStudent, load_student

_HOMES = {
    "ipate.accounting.bounds": "Meter",
    "ipate.engines.teachers.variants": "allocate",
    "ipate.allocation.allocation": "Allocation",
    "ipate.classifier": "PATEClassifier",
    "ipate.data": "load",
    "ipate.data.dataset": "Dataset",
    "ipate.data.sources": "read_data",
    "ipate.errors": "BudgetExceededError ClassesWarning DeltaWarning InputError IpateError "
    "PolicyWarning PublicRowsWarning RepeatedFitWarning ReproductionWarning",
    "ipate.engines.teachers.aggregators": "Confident GNMax Interactive LNMax Mechanism",
    "ipate.engines.teachers.account": "account_for Comparison compare_bounds",
    "ipate.engines.teachers.loop": "label",
    "ipate.release.results": "GroupResult Guarantee Labelling",
    "ipate.engines.teachers.tested": "label_tested",
    "ipate.ledger.base": "MemoryLedger",
    "ipate.ledger.sqlite": "SqliteLedger",
    "ipate.people.budgets": "Account Budget Group",
    "ipate.people.people": "People",
    "ipate.people.policy": "Policy",
    "ipate.engines.teachers.plan": "Plan make_plan",
    "ipate.engines.teachers.settings": "TeacherSettings choose_settings",
    "ipate.report.figures": "plot_costs",
    "ipate.runs.reporting": "write_report",
    "ipate.students.deployed": "DeployedStudent load_student",
    "ipate.engines.teachers.votes": "Votes read_votes",
    "ipate.engines.teachers.panel": "Panel",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Account",
    "Allocation",
    "Budget",
    "BudgetExceededError",
    "ClassesWarning",
    "Comparison",
    "Confident",
    "Dataset",
    "DeltaWarning",
    "DeployedStudent",
    "GNMax",
    "Group",
    "GroupResult",
    "Guarantee",
    "InputError",
    "Interactive",
    "IpateError",
    "LNMax",
    "Labelling",
    "Mechanism",
    "MemoryLedger",
    "Meter",
    "PATEClassifier",
    "Panel",
    "People",
    "Plan",
    "Policy",
    "PolicyWarning",
    "PublicRowsWarning",
    "RepeatedFitWarning",
    "ReproductionWarning",
    "SqliteLedger",
    "TeacherSettings",
    "Votes",
    "account_for",
    "allocate",
    "choose_settings",
    "compare_bounds",
    "label",
    "label_tested",
    "load",
    "load_student",
    "make_plan",
    "plot_costs",
    "read_data",
    "read_votes",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'ipate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
