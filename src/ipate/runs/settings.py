"""The settings of a run, from its configuration and public facts: made once for labelling, and again for its report."""

from typing import Any

from ipate.accounting.ptr import Design
from ipate.budgets import People
from ipate.config import RunConfig
from ipate.designing import Reference
from ipate.pipeline import Settings, choose_settings

__all__ = ["settings_of"]


def settings_of(
    config: RunConfig,
    *,
    people: People,
    n_public: int,
    n_classes: int,
    teacher: Any = None,
    reference: Reference | None = None,
    design: Design | None = None,
) -> Settings:
    """Return how votes become labels in this run; whatever is "auto" follows from public facts alone.

    Parameters
    ----------
    config : RunConfig
    people, n_public, n_classes
        What is public of the data.
    teacher : classifier, optional
        Only needed before training: a report does without.
    reference, design
        For a release that is tested as a whole: what its design is made from, or the design.
    """
    wanted = config.labelling
    options = {name: value for name, value in (("rule", wanted.rule), ("power", wanted.power)) if value is not None}
    return choose_settings(
        people=people,
        n_public=n_public,
        n_classes=n_classes,
        variant=wanted.variant,
        teacher=teacher,
        n_teachers=config.teachers.number,
        sigma=wanted.sigma,
        check_sigma=wanted.check_sigma,
        threshold=wanted.threshold,
        points_per_teacher=config.teachers.points,
        bound=wanted.bound,
        conversion=wanted.conversion,
        stop=wanted.stop,
        max_labels=wanted.max_labels,
        options=options,
        reference=reference,
        design=design,
    )
