"""The paper's tables and figures by name, and the comparison with what one would use instead.

Experiments are imported on use, so that `python -m paper.training` runs where only numpy, torch and scikit-learn are
installed.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paper.grid import Options
    from paper.models import TrainedModels
    from paper.pages import Page

EXPERIMENTS: Mapping[str, str] = {
    "table1": "table1:table1",
    "mnist-labels": "labels:mnist",
    "mnist-students": "students:mnist",
    "adult-labels": "labels:adult",
    "adult-students": "students:adult",
    "adult-skew": "students:skew",
    "fig-cost-history": "figures:cost_history",
    "fig-ratios": "figures:ratios",
    "fig-weighted-ratio": "figures:weighted_ratio",
    "errata": "accounts:errata",
    "beyond": "accounts:beyond",
    "compare": "compare.page:compare",
}
"""Name → "module:function" of this package; the function takes the trained models and the options."""
OWN_RUNS = ("compare",)
"""Experiments whose numbers of runs are their own: the options `ensembles` and `votings` say nothing about them."""
DATA: Mapping[str, tuple[str, ...]] = {
    "table1": ("mnist", "svhn"),
    "beyond": ("mnist", "svhn", "adult"),
}
"""Experiments that can be run for some of their data sets."""


def run_experiment(name: str, models: "TrainedModels", options: "Options") -> "Page":
    """Reproduce one table or figure."""
    module, function = EXPERIMENTS[name].split(":")
    page: Page = getattr(import_module(f"paper.{module}"), function)(models, options)
    return page
