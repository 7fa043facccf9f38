"""Small ledgers, charges and votes for the tests of ledgers."""

import numpy as np

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import IpateError
from ipate.ledger.admission import Roster
from ipate.ledger.base import MemoryLedger
from ipate.ledger.records import Charge, Terms
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.budgets import Account, Budget, Group
from ipate.release.noise import SeededNoise

DELTA = 1e-5
BUDGETS = {"strict": 1.0, "lax": 3.0, "middle": 2.0}
LIMITS = {name: float(gdp.mu_of(epsilon, DELTA)) ** 2 for name, epsilon in BUDGETS.items()}
GROUPS = ("strict", "strict", "lax", "lax", "middle")
WEIGHTS = np.array([0.5, 0.5, 1.5, 1.5, 1.0])
CONFIDENT = Confident(mechanism=Mechanism(sigma=20.0, check_sigma=30.0, threshold=4.0))


def terms(name, epsilon, *, group=None, meter=None):
    owner = Group(id=group or name, budget=Budget(epsilon, DELTA))
    return Terms(account=Account(id=name, group=owner, sensitivity=1.0), meter=meter or Meter())


def larger(people=None, **more):
    """People whose budgets may be larger than before."""
    return Roster(people=people, accept_larger_budgets=True, **more)


def all_terms(names=tuple(BUDGETS)):
    return [terms(name, BUDGETS[name]) for name in names]


def charge(cost, *, queries=("q",), labels=None, answered=None, sensitivity=1.0, **more):
    given = np.ones(len(queries), dtype=bool) if answered is None else np.asarray(answered, dtype=bool)
    return Charge(
        **{
            "cost": {name: np.atleast_1d(np.asarray(value, dtype=float)) for name, value in cost.items()},
            "queries": tuple(queries),
            "answered": given,
            "sensitivity": dict.fromkeys(cost, np.asarray(sensitivity)),
            "sigma": 40.0,
            "check_sigma": None,
            "bound": "gdp",
            "seeded": False,
            "labels": None if labels is None else np.asarray(labels),
            **more,
        }
    )


def in_memory(entries, path, **more):
    return MemoryLedger(entries, **more)


def on_disk(entries, path, **more):
    return SqliteLedger.open(path, entries, **more)


def voting(size, *, seed=0, names=("middle", "strict", "lax"), budgets=BUDGETS, **more):
    votes = np.random.default_rng(seed).integers(0, 3, (5, size))
    made = Votes(votes=votes, n_classes=3, groups=GROUPS, **more)
    rotating = made.participation is not None
    rows = [(name, budgets[name], DELTA, None) for name in names]
    return made, Panel.from_votes(made, rows, weights=None if rotating else WEIGHTS)


def opened(path, panel, meter=None, aggregator=CONFIDENT, *, noise="seeded", **more):
    return SqliteLedger.open(path, account_terms(panel, meter or Meter(), aggregator), noise=noise, **more)


def label_into(path, wait, queue):
    """Label into a ledger as a process of its own; it lives here because a spawned process must import it."""
    votes, panel = voting(600)
    try:
        with opened(path, panel, timeout=wait) as book:
            queue.put(label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(3), ledger=book, batch=3).n_labels)
    except IpateError as error:
        queue.put(str(error))
