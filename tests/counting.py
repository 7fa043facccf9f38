"""An engine that is not ipate's own: it releases how many people are in each class, and labels all points alike."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.allocation.layout import Layout
from ipate.engines.base import Engine
from ipate.engines.context import Settings
from ipate.files import pack_arrays, unpack_arrays
from ipate.ledger.records import Charge, Draw, Terms
from ipate.people.budgets import Account
from ipate.release.lesson import Lesson
from ipate.release.noise import STEPS, in_steps, make_noise
from ipate.release.results import GroupResult, Labelling, state_guarantee

NAME = "counting:Counts"


@dataclass(frozen=True, kw_only=True)
class CountSettings(Settings):
    """Nothing beyond what all settings have."""

    engine: ClassVar[str] = NAME


@dataclass(kw_only=True)
class Counts(Engine[CountSettings]):
    """Release one noisy count per class; a person's weight is what their budget affords, μ/√2 at σ = 1."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "people"
    sigma: ClassVar[float] = 1.0
    meter: ClassVar[Meter] = Meter("gdp")

    def chosen(self, means):
        """Take every budget as it is."""
        return CountSettings(variant="counts", meter=self.meter, reason="one noisy count per class")

    def read(self, values):
        """Read stored settings."""
        return CountSettings.from_plain(values)

    def allocate(self, people, settings, seed):
        """Lay out accounts alone."""
        groups = tuple(Account(group=own, sensitivity=own.budget.mu / 2**0.5 * (1 - 1e-9)) for own in people.groups)
        ids = [own.id for own in groups]
        layout = Layout(
            variant="counts",
            rule="gdp",
            groups=groups,
            teachers=dict.fromkeys(ids, 0),
            home=dict(zip(ids, ids, strict=True)),
            weights=np.zeros(0),
            teacher_groups=(),
            copies=dict.fromkeys(ids, 1),
        )
        none = np.zeros(0, dtype=np.int64)
        return Allocation(layout=layout, people=people, seed=seed, offsets=np.zeros(1, dtype=np.int64), persons=none)

    def terms(self, run):
        """Charge groups."""
        return [Terms(account=own, meter=self.meter) for own in run.allocation.groups]

    def prepare(self, run, maps):
        """Count every person's first row, with the weight of their group."""
        people, codes = run.allocation.people, run.task.codes
        rows = np.unique(people.person_of_row, return_index=True)[1]
        weights = np.array([own.sensitivity for own in run.allocation.groups])[run.allocation.group_of_person]
        stays = ~np.isin(np.arange(people.n_people), run.allocation.withdrawn) & (codes[rows] >= 0)
        return np.bincount(codes[rows][stays], weights=weights[stays], minlength=run.task.n_classes)

    def release(self, run, maps, inputs, ledger):
        """Charge the vector, then label every point with its largest count."""
        stored = ledger.released("counts", "run")
        if not stored:
            drawn = make_noise(run.noise_seed).normal("counts", ["all"], run.task.n_classes)[0]
            moved = {own.id: np.asarray(own.sensitivity) for own in run.allocation.groups}
            ledger.charge(
                Charge(
                    cost={name: self.meter.vector_cost(sensitivity=float(w), sigma=1.0) for name, w in moved.items()},
                    sensitivity=moved,
                    draws=(Draw(mechanism="vector", sigma=self.sigma),),
                    keys=("counts",),
                    scope="run",
                    bound="gdp",
                    seeded=run.noise_seed is not None,
                    codec="counts",
                    payload=pack_arrays({"counts": in_steps(inputs + drawn, sigma=self.sigma)}),
                )
            )
        return Lesson(record=run.recorded(self._labelling(run, ledger), ledger))

    def _labelling(self, run, ledger):
        counts = unpack_arrays(ledger.released("counts", "run")[0].payload)["counts"] / STEPS
        n, seeded = run.task.shape[0], run.noise_seed is not None
        none, all_points = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
        paid = [(own.group, own.sensitivity, ledger.epsilon(own.id)) for own in run.allocation.groups]
        groups = tuple(GroupResult(group=g, sensitivity=w, weight=w, cost=cost) for g, w, cost in paid)
        return Labelling(
            queries=np.arange(n),
            labels=np.full(n, np.argmax(counts)),
            answered=all_points,
            reinforced=none,
            repeated=none,
            stopped_by="pool",
            guarantee=state_guarantee(self.meter, stopped_by="account", seeded=seeded),
            seeded=seeded,
            meter=self.meter,
            groups=groups,
        )

    def restore(self, run, maps, record, ledger):
        """Compare the record with the charged counts."""
        assert np.array_equal(self._labelling(run, ledger).labels, record.labels)
        return Lesson(record=record)
