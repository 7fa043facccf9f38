"""Votes that are already there: teachers that were trained elsewhere, or at several sites, go the way of a run."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ipate._types import Floats, Ints
from ipate.accounting.bounds import Meter
from ipate.accounting.ladder import Design
from ipate.allocation.allocation import Allocation
from ipate.allocation.layout import Layout
from ipate.engines.base import Engine, Means, Round
from ipate.engines.context import Settings
from ipate.engines.teachers.aggregators import NamedAggregator
from ipate.engines.teachers.loop import Stop, account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.tested import label_tested
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError
from ipate.ledger.base import Ledger
from ipate.ledger.records import Terms
from ipate.people.people import People
from ipate.release.lesson import Lesson
from ipate.release.noise import make_noise
from ipate.release.results import Record


@dataclass(frozen=True, kw_only=True)
class GivenSettings(Settings):
    """The public parameters of a labelling as they were given."""

    engine: ClassVar[str] = "ipate.engines.teachers.given:GivenVotes"


@dataclass(kw_only=True, eq=False)
class GivenVotes(Engine[GivenSettings]):
    """Label points with the votes of teachers that were trained elsewhere; every parameter is given."""

    name: ClassVar[str] = "ipate.engines.teachers.given:GivenVotes"
    title: ClassVar[str] = "teachers"

    votes: Votes
    panel: Panel
    variant: str
    aggregator: NamedAggregator
    counted: Meter
    stop: Stop = "budget"
    max_labels: int | None = None
    max_queries: int | None = None
    order: Ints | None = None
    student_probs: Floats | None = None
    design: Design | None = None

    @property
    def meter(self) -> Meter:
        """The bound and the conversion that count costs."""
        return self.counted

    def chosen(self, means: Means) -> GivenSettings:
        """Return the parameters as they are given."""
        return GivenSettings(variant=self.variant, meter=self.meter, reason="parameters as given")

    def read(self, values: dict[str, object]) -> GivenSettings:
        """Refuse: such a labelling has no folder."""
        raise InputError("votes from elsewhere have no stored settings")

    def allocate(self, people: People, settings: GivenSettings, seed: int) -> Allocation:
        """Return the teachers with their weights; whose people they learnt from is not known here."""
        panel, k = self.panel, len(self.panel.weights)
        names = None if panel.member is None else tuple(panel.groups[index].id for index in panel.member.tolist())
        ids = [group.id for group in panel.groups]
        layout = Layout(
            variant=self.variant,
            rule="as given",
            groups=panel.groups,
            teachers={name: 0 if names is None else names.count(name) for name in ids},
            home={name: name for name in ids},
            weights=panel.weights.copy(),
            teacher_groups=names,
            copies=dict.fromkeys(ids, 1),
        )
        nobody = np.zeros(0, dtype=np.int64)
        return Allocation(
            layout=layout, people=people, seed=seed, offsets=np.zeros(k + 1, dtype=np.int64), persons=nobody
        )

    def terms(self, run: Round[GivenSettings]) -> list[Terms]:
        """Return one account per group, or per teacher where teachers take turns."""
        return account_terms(self.panel, self.meter, self.aggregator)

    def prepare(self, run: Round[GivenSettings], maps: object) -> Votes:
        """Return the votes."""
        return self.votes

    def release(self, run: Round[GivenSettings], maps: object, inputs: Votes, ledger: Ledger) -> Lesson:
        """Label the queries; every label is charged before it is released."""
        noise = make_noise(run.noise_seed)
        with run.bar("labelling", inputs.n_queries) as progress:
            if self.design is not None:
                found = label_tested(
                    inputs,
                    self.panel,
                    self.aggregator,
                    self.design,
                    order=self.order,
                    noise=noise,
                    ledger=ledger,
                    progress=progress,
                )
            else:
                found = label(
                    inputs,
                    self.panel,
                    self.aggregator,
                    self.meter,
                    stop=self.stop,
                    max_labels=self.max_labels,
                    max_queries=self.max_queries,
                    order=self.order,
                    student_probs=self.student_probs,
                    noise=noise,
                    ledger=ledger,
                    progress=progress,
                )
        return Lesson(record=run.recorded(found, ledger))

    def restore(self, run: Round[GivenSettings], maps: object, record: Record, ledger: Ledger) -> Lesson:
        """Return the labels of a record; stored answers come from the ledger, which the labelling itself asks."""
        return Lesson(record=record)

    def describe(self, settings: GivenSettings, allocation: Allocation) -> dict[str, object]:
        """Return the parameters of the labelling, by name."""
        known = {"engine": "teachers", "variant": self.variant, "teachers": len(self.panel.weights)}
        return {**known, **self.aggregator.mechanism.parameters}
