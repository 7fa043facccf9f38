"""The report of a fitted classifier: the same page as that of a run, from what the classifier remembers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipate._charging import Charged
from ipate.labelling import Labelling
from ipate.pipeline import Settings
from ipate.report.assemble import Source, assemble
from ipate.report.facts import Audience, Outcome, Owner, Scores
from ipate.report.write import Report, check_target, write_facts
from ipate.runs.record import Record
from ipate.variants import Allocation

__all__ = ["Fitted", "write_model_report"]


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What a fitted classifier knows about itself."""

    labelling: Labelling
    allocation: Allocation
    settings: Settings
    charged: Charged
    classes: tuple[Any, ...]
    n_pool: int
    label_accuracy: float | None
    teacher: Any
    student: Any
    noise_seed: int | None
    random_state: int | None
    levels: bool
    versions: Mapping[str, str]


def write_model_report(fitted: Fitted, path: str | Path, *, audience: Audience, name: str) -> Report:
    """Write the html page and its JSON twin.

    The classifier keeps no votes, so under tight and exact the history of costs has two points only: before and after.
    """
    charged = fitted.charged
    record = Record.of(fitted.labelling, n_public=fitted.n_pool, ledger_head=charged.head, opening=dict(charged.before))
    source = Source(
        record=record,
        allocation=fitted.allocation,
        settings=fitted.settings,
        data_name=name,
        classes=tuple(str(label) for label in fitted.classes),
        n_classes=len(fitted.classes),
        teacher_model=type(fitted.teacher).__name__,
        student_model=type(fitted.student).__name__,
        noise_seed=fitted.noise_seed,
        split_seed=fitted.random_state,
        versions=fitted.versions,
        levels=fitted.levels,
        opening=charged.opening,
        reused=charged.reused,
        private_history=charged.private_history,
    )

    def owner(outcome: Outcome) -> Owner:
        scores = Scores(labels=record.n_labels, queries=record.n_queries, label_accuracy=fitted.label_accuracy)
        return Owner(
            outcome=outcome,
            scores=scores,
            standard_labels=None,
            teacher_accuracy=None,
            plurality_accuracy=None,
            comparison=None,
        )

    html = check_target(path)
    return write_facts(assemble(source, audience, owner), html)
