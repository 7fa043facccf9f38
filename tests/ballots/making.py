"""A small task for ballots: three classes, three budgets, and a ledger for its people."""

import numpy as np

from ipate.engines.ballots.design import ballot_terms
from ipate.people.people import People
from ledger.making import begin

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 0.0], [0.0, 5.0, 5.0]])
Y = RNG.integers(0, 3, 900)
X = CENTRES[Y] + RNG.standard_normal((900, 3))
POOL_Y = RNG.integers(0, 3, 120)
POOL = CENTRES[POOL_Y] + RNG.standard_normal((120, 3))
PEOPLE = People.from_budgets(np.tile([0.5, 1.0, 2.0], 300), delta=1e-4)


def on_disk(path, *, people=PEOPLE, noise="seeded", meter=None, **more):
    members = {str(name): people.groups[g].id for name, g in zip(people.ids, people.group_of_person, strict=True)}
    return begin(path, ballot_terms(people.groups, meter), people=members, noise=noise, **more)
