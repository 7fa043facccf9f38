"""The settings of a run, from its configuration and public facts: made once for labelling, and again for its report."""

from dataclasses import replace
from typing import Any

from ipate.accounting.ptr.design import Design
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.people.people import People
from ipate.planning.reference import Reference, Simulator, read_design, write_design
from ipate.planning.settings import Settings, choose_settings, designed
from ipate.runs.config import ReferenceConfig, RunConfig
from ipate.runs.folder import RunFolder
from ipate.votes import read_votes


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
        aggregator=wanted.aggregator,
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


def reference_of(config: RunConfig, *, n_classes: int) -> Reference | None:
    """Return what the configuration says a design is made from; None where it says nothing or names a design."""
    wanted = config.reference
    if wanted.accuracy is None and wanted.votes is None:
        if wanted != ReferenceConfig(design=wanted.design):
            raise InputError("reference: say how often a teacher is expected to be right (accuracy), or name votes")
        return None
    if wanted.votes is not None:
        return Reference(
            votes=read_votes(wanted.votes, classes=n_classes),
            source=f"votes of other teachers, {wanted.votes.name}",
            reserve=wanted.reserve,
            fallback=wanted.fallback,
        )
    guess = Simulator(accuracy=float(wanted.accuracy or 0), spread=wanted.spread, confusion=wanted.confusion)
    return Reference(simulator=guess, reserve=wanted.reserve, fallback=wanted.fallback)


def keep_design(
    folder: RunFolder, settings: Settings, allocation: Allocation, *, n_classes: int, n_public: int
) -> Settings:
    """Return the settings with the design of this run: the one it began with, for as long as it lives.

    The design is public and is written before anybody trains. A resumed run reads it again, so that the test that
    was drawn and the labels that follow it belong to the same design.
    """
    if not settings.meter.whole:
        return settings
    kept = folder.public / "design.json"
    if kept.is_file():
        return replace(settings, design=read_design(kept))
    named = folder.config.reference.design
    if named is not None:
        settings = replace(settings, design=read_design(named))
    made = designed(settings, allocation, n_classes=n_classes, queries=[str(index) for index in range(n_public)])
    if made.design is None:
        raise InputError("bound is 'ptr' without a reference: give reference.accuracy, reference.votes or a design")
    write_design(kept, made.design)
    return made
