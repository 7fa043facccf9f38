"""Every method of the comparison by name: what it is called, what it promises, and the functions that run it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from paper.compare import dpsgd, images, tables
from paper.compare.descent import Settings
from paper.compare.outcome import Outcome, Studio
from paper.compare.worlds import BUDGETS, Spec, World

Run = Callable[..., Outcome]
REPLACE, ADD, NONE = "a person is replaced", "a person is added or removed", "no privacy"
TUNED_ON: Mapping[bool, int] = MappingProxyType({False: 2, True: 1})  # by whether rows are images
Whom = Literal["nobody", "uniform", "mixes", "all"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the tables.

    Attributes
    ----------
    name, title
        The key of kept results, and what the tables call it.
    relation
        Between which data sets the promise holds.
    budgets
        Which budgets it is run with: none, one ε for everybody, several, or all.
    table, image
        The function for tables and the one for images; None where it is not run.
    grid
        The settings by name, for tables and for images; the one that is best on the test rows of the first
        `TUNED_ON` runs is used in all of them.
    gpu
        Whether its runs on images need a GPU to end in reasonable time.
    needs
        What is prepared first (`PREPARE`), for tables (False) and for images (True).
    ours
        Whether it is one of ipate's engines with its defaults.
    """

    name: str
    title: str
    relation: str
    budgets: Whom
    table: Run | None = None
    image: Run | None = None
    grid: Callable[[bool], Mapping[str, Any]] | None = None
    gpu: bool = False
    needs: Mapping[bool, tuple[str, ...]] = field(default_factory=dict)
    ours: bool = False
    opacus: bool = False

    def runs_on(self, spec: Spec) -> bool:
        """Whether the method is run on a data set."""
        return (self.image if spec.images else self.table) is not None

    def budgets_on(self, spec: Spec) -> tuple[str, ...]:
        """Return the names of the budgets that it is run with on a data set; one empty name without privacy."""
        if self.budgets == "nobody":
            return ("",)
        wanted = {"uniform": (False,), "mixes": (True,), "all": (False, True)}[self.budgets]
        return tuple(name for name in spec.budgets if BUDGETS[name].individual in wanted)

    def place(self, spec: Spec) -> str:
        """Return "gpu" or "cpu": where its runs on a data set belong."""
        return "gpu" if self.gpu and spec.images else "cpu"


PREPARE: Mapping[str, Callable[[World, Studio], None]] = {
    "encoder": images.prepare_encoder,
    "nets": images.prepare_nets,
    "paper": images.prepare_paper,
    "logistic": images.prepare_logistic,
    "forests": tables.prepare_forests,
}
"""What methods need, by name."""
ON_CPU = ("logistic", "forests")  # what is prepared without a GPU


def _dpsgd_grid(is_image: bool) -> Mapping[str, Any]:
    return {setting.name: setting for setting in dpsgd.GRIDS[is_image]}


def _descent_grid(is_image: bool) -> Mapping[str, Any]:
    return tables.descent_grid()


def _untuned(world: Any, mix: Any, studio: Any) -> Outcome:
    return tables.descent(world, mix, Settings())


_PAPER = {False: ("forests",), True: ("paper",)}
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method(
                name="ceiling",
                title="without privacy, all private rows",
                relation=NONE,
                budgets="nobody",
                table=tables.ceiling,
                image=images.ceiling,
                gpu=True,
                needs={True: ("encoder",)},
            ),
            Method(
                name="pool-truth",
                title="without privacy, the pool's true labels",
                relation=NONE,
                budgets="nobody",
                table=tables.pool_truth,
                image=images.pool_truth,
                gpu=True,
                needs={True: ("encoder",)},
            ),
            Method(
                name="pool-truth-cpu",
                title="without privacy, the pool's true labels, graph student",
                relation=NONE,
                budgets="nobody",
                image=images.pool_truth_graph,
            ),
            Method(
                name="dpsgd",
                title="DP-SGD, Opacus",
                relation=ADD,
                budgets="uniform",
                table=tables.by_dpsgd,
                image=images.by_dpsgd,
                grid=_dpsgd_grid,
                gpu=True,
                opacus=True,
            ),
            Method(
                name="idpsgd",
                title="individual DP-SGD (Scale)",
                relation=ADD,
                budgets="mixes",
                table=tables.by_dpsgd,
                image=images.by_dpsgd,
                grid=_dpsgd_grid,
                gpu=True,
                opacus=True,
            ),
            Method(
                name="descent",
                title="noisy gradient descent, best setting",
                relation=REPLACE,
                budgets="all",
                table=tables.descent,
                grid=_descent_grid,
            ),
            Method(
                name="descent-untuned",
                title="noisy gradient descent, one fixed setting",
                relation=REPLACE,
                budgets="all",
                table=_untuned,
            ),
            Method(
                name="pate",
                title="standard PATE of the paper",
                relation=REPLACE,
                budgets="uniform",
                table=tables.paper_pate,
                image=images.paper_pate,
                gpu=True,
                needs=_PAPER,
            ),
            Method(
                name="ipate-paper",
                title="Individualized PATE of the paper",
                relation=REPLACE,
                budgets="mixes",
                table=tables.paper_pate,
                image=images.paper_pate,
                gpu=True,
                needs=_PAPER,
            ),
            Method(
                name="teachers",
                title="ipate teachers",
                relation=REPLACE,
                budgets="all",
                table=tables.teachers,
                image=images.teachers_semi,
                gpu=True,
                needs={True: ("nets", "encoder")},
                ours=True,
            ),
            Method(
                name="teachers-cpu",
                title="ipate teachers, without a GPU",
                relation=REPLACE,
                budgets="all",
                image=images.teachers_graph,
                needs={True: ("logistic",)},
                ours=True,
            ),
            Method(
                name="ballots",
                title="ipate ballots",
                relation=REPLACE,
                budgets="all",
                table=tables.ballots,
                image=images.ballots_semi,
                gpu=True,
                needs={True: ("encoder",)},
                ours=True,
            ),
            Method(
                name="ballots-cpu",
                title="ipate ballots, without a GPU",
                relation=REPLACE,
                budgets="all",
                image=images.ballots_graph,
                ours=True,
            ),
        )
    }
)
"""Every method, in the order of the tables."""
