"""Ballots: every person casts one weighted vote into public cells, and the whole histogram is released once."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.engines.ballots.counting import Decoded, Histogram, decode
from ipate.engines.ballots.design import (
    ENOUGH,
    VARIANTS,
    Design,
    about,
    allocate_ballots,
    ballot_layout,
    ballot_terms,
    make_design,
    state_ballots,
    tabulate,
    voters,
)
from ipate.engines.ballots.release import Placed, PublicMaps, place, release
from ipate.engines.ballots.wording import described
from ipate.engines.base import Attacks, Engine, Forecast, Means, Round
from ipate.engines.context import Bar, Facts, Settings, silent
from ipate.errors import BudgetExceededError, InputError, TooFewLabelsError
from ipate.ledger.base import Checked, Ledger
from ipate.ledger.records import Terms
from ipate.ledger.standing import left_in
from ipate.people.budgets import Budget, Group, has_small
from ipate.people.people import People
from ipate.public.cells import PARTITIONS
from ipate.public.features import fit_features
from ipate.release.description import Description, from_outside
from ipate.release.lesson import Lesson
from ipate.release.noise import make_noise
from ipate.release.results import Record

MOST_GROUPS = 32
POOL_PER_CLASS = 50  # points: a smaller pool has too few cells for reliable ballots

_ANYBODY = Group(id="anybody", budget=Budget(1.0, 1e-5), people=1)


@dataclass(frozen=True, kw_only=True)
class BallotSettings(Settings):
    """The public parameters of a release of ballots; weights follow from what is left when it is released."""

    engine: ClassVar[str] = "ballots"
    cells: int  # in every partition of the pool's space


@dataclass(kw_only=True)
class Ballots(Engine[BallotSettings]):
    """Release the weighted histogram of all ballots once: all labels have one cost together."""

    name: ClassVar[str] = "ballots"
    title: ClassVar[str] = "ballots"
    attacks: ClassVar[Attacks | None] = Attacks(by="ipate.audit.ballots:attack")

    variant: str = "weighting"
    """Whose budget decides a ballot's weight: each person's own (weighting), or the strictest (standard)."""
    embedding: str = "auto"
    """The features in which cells are cut: auto, given (the columns as they are) or learnt (images)."""
    bound: str = "gdp"
    """What a release is charged: gdp, loose or sup."""
    conversion: str = "improved"
    """How Rényi costs become ε: improved or classic."""

    @property
    def meter(self) -> Meter:
        """The bound and the conversion that count costs."""
        return Meter(self.bound, self.conversion)

    @property
    def known(self) -> bool:
        """Whether ballots know the variant, and the bound prices them for all data."""
        try:
            return bool(ballot_layout(self.variant, (_ANYBODY,), self.meter).groups)
        except InputError:
            return False

    def group_limit(self, facts: Facts) -> int | None:
        """Return the largest number of groups."""
        if isinstance(facts.max_groups, str) and facts.max_groups != "auto":
            raise InputError(f"max_groups is {facts.max_groups!r}: it must be a number or 'auto'")
        return MOST_GROUPS if isinstance(facts.max_groups, str) else facts.max_groups

    def design(self, means: Means) -> Design:
        """Return the release that these budgets, or what is left of them, afford; what is left is in its own unit."""
        layout = ballot_layout(self.variant, means.groups, self.meter)
        left = left_in(means.standing, layout.groups, layout.home)
        terms = [
            replace(entry, meter=left[entry.account.id].meter) if entry.account.id in left else entry
            for entry in ballot_terms([account.group for account in layout.groups], self.meter)
        ]
        spent = {name: own.spent for name, own in left.items()}
        return make_design(terms, n_classes=means.n_classes, n_pool=means.n_pool, spent=spent)

    def chosen(self, means: Means) -> BallotSettings:
        """Return the settings, from what is left of the budgets; refuse ballots that would be noise."""
        try:
            design = self.design(means)
            design.check_useful()
        except BudgetExceededError as error:
            if means.standing is not None:  # earlier runs have spent the budgets
                raise
            raise TooFewLabelsError(f"voting is 'ballots': {error}") from None
        reason = state_ballots(design, means.standing)
        return BallotSettings(variant=self.variant, meter=self.meter, reason=reason, cells=design.cells)

    def read(self, values: dict[str, Any]) -> BallotSettings:
        """Return the settings that were stored as plain data."""
        return BallotSettings.from_plain(values)

    def check_useful(
        self, settings: BallotSettings, means: Means, *, needed: int | str = "auto", key: str = "min_labels"
    ) -> None:
        """Refuse nothing more than `chosen` does: every point gets a label."""

    def forecast(self, means: Means, *, bar: Bar = silent) -> Forecast:
        """Return what ballots afford at every person's own budget and at the strictest one, by variant.

        A variant whose budgets are tiny or spent is left out. Beside a small group nothing is told: the weight of all
        ballots would tell its size.
        """
        few = has_small((group.people for group in means.groups), least=means.min_group_size)
        designs: dict[str, Design] = {}
        for variant in () if few else VARIANTS:
            with suppress(BudgetExceededError):
                designs[variant] = replace(self, variant=variant).design(means)
        facts = {name: design.as_json() | {"notes": design.notes} for name, design in designs.items()}
        return Forecast(facts={"ballots": facts}, tables=(tabulate(designs, means.n_pool),) if designs else ())

    def allocate(self, people: People, settings: BallotSettings, seed: int) -> Allocation:
        """Return the people with their accounts; there are no teachers."""
        return allocate_ballots(settings.variant, people=people, seed=seed, meter=settings.meter)

    def terms(self, run: Round[BallotSettings]) -> list[Terms]:
        """Return one account per group; its sensitivity is the weight that the whole budget affords."""
        return ballot_terms([account.group for account in run.allocation.groups], run.settings.meter)

    def maps(self, run: Round[BallotSettings]) -> PublicMaps:
        """Return features and cells of the pool, and the cells of its points."""
        pool, n_classes = run.task.pool("numbers"), run.task.n_classes

        def make() -> Mapping[str, Any]:
            with run.bar("partitions of the pool computed", PARTITIONS) as progress:
                return PublicMaps.make(
                    pool,
                    n_classes=n_classes,
                    cells=run.settings.cells,
                    features=fit_features(pool, n_classes=n_classes, kind=self.kind(run)),
                    n_jobs=run.compute.n_jobs,
                    progress=progress,
                ).arrays()

        try:
            return PublicMaps.from_arrays(run.store.once("cells", make))
        except (KeyError, ValueError) as error:
            raise InputError(
                f"the cells of the run cannot be read ({error}); restore cells.npz, because the stored histogram "
                "belongs to these cells"
            ) from None

    def check(self, run: Round[BallotSettings], checked: Checked) -> None:
        """Refuse a release whose labels would be noise, because little is left of the budgets; warn where it is few."""
        opening = {row.id: row.opening for row in checked.accounts}
        terms = [row.terms for row in checked.accounts] or self.terms(run)
        sizes = {"n_classes": run.task.n_classes, "n_pool": run.task.shape[0], "cells": run.settings.cells}
        design = make_design(terms, spent=opening, **sizes)
        design.check_useful(private=checked.private)
        for note in () if checked.private else design.notes:
            logging.getLogger("ipate").warning("warning: %s", note)

    def try_out(self, run: Round[BallotSettings]) -> None:
        """Try nothing: there are no models."""

    def prepare(self, run: Round[BallotSettings], maps: PublicMaps) -> Placed:
        """Return the cells of private rows."""
        return place(run.task.rows("numbers"), maps)

    def release(self, run: Round[BallotSettings], maps: PublicMaps, inputs: Placed, ledger: Ledger) -> Lesson:
        """Draw the noise once, and commit it with the charge of everybody, whether they have rows or not."""
        allocation, people = run.allocation, voters(run.allocation)
        found = release(
            run.task.pool("numbers"),
            inputs,
            run.task.codes,
            people,
            n_classes=run.task.n_classes,
            ledger=ledger,
            maps=maps,
            noise=make_noise(run.noise_seed),
            withdrawn=[str(people.ids[index]) for index in allocation.withdrawn],
        )
        return lesson_of(run.recorded(found.labelling, ledger), found.decoded, found.histogram, maps)

    def restore(self, run: Round[BallotSettings], maps: PublicMaps, record: Record, ledger: Ledger) -> Lesson:
        """Return the lesson of the histogram that the ledger holds; the record must state its labels."""
        stored = Histogram.of(ledger)
        if stored is None:
            raise InputError("the ledger holds no ballots of this run; its files do not belong together")
        if stored.cells != maps.cells.fingerprint:
            raise InputError("cells.npz has other cells than the stored histogram belongs to; restore the file")
        decoded = decode(stored.counts, maps.pool)
        if not np.array_equal(decoded.labels, record.labels):
            raise InputError(
                "labelling.json states other labels than the ledger's histogram gives, so it was edited; remove it, "
                "and ipate run --resume will restore it"
            )
        return lesson_of(record, decoded, stored, maps)

    def offer(self, means: Means) -> str:
        """Return how many labels ballots would give, and how reliable they are."""
        try:
            found = self.design(means)
            found.check_useful()
        except (InputError, BudgetExceededError):
            return ""
        reliable = "which is reliable" if found.per_class >= ENOUGH else f"where {ENOUGH:g} are reliable"
        return (
            f". Ballots (voting = 'ballots') would label all {means.n_pool:,} points at once: together they weigh "
            f"{about(found.per_class)} noise deviations per class, {reliable}"
        )

    def report(self, settings: BallotSettings, allocation: Allocation) -> Description:
        """Return what the engine states about a release for its report."""
        outside, rule = from_outside(**self.parts(settings)), allocation.layout.rule
        return described(allocation.variant, settings.meter, rule=rule, reason=settings.reason, outside=outside)


def lesson_of(record: Record, decoded: Decoded, histogram: Histogram, maps: PublicMaps) -> Lesson:
    """Return what the student learns from: labels with weights, and their review where it makes students better."""
    arrays = {"histogram": histogram.counts, "confidence": decoded.confidence, **maps.arrays()}
    return Lesson(
        record=record,
        weights=decoded.sample_weight,
        review=decoded.review if decoded.reviewable else None,
        arrays={"ballots": arrays},
    )
