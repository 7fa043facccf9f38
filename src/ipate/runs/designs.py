"""The design of a run that is tested as a whole: made from public information before anybody trains, and kept."""

from dataclasses import replace

from ipate.config import ReferenceConfig, RunConfig
from ipate.designing import Reference, read_design, write_design
from ipate.errors import InputError
from ipate.pipeline import Settings, designed
from ipate.reference import Simulator
from ipate.runs.folder import RunFolder
from ipate.variants import Allocation
from ipate.votes import read_votes

__all__ = ["keep_design", "reference_of"]


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
