"""Small ledgers, charges and votes for the tests of ledgers."""

from itertools import count

import numpy as np

from ipate.accounting import gdp
from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import IpateError
from ipate.ledger.admission import Roster
from ipate.ledger.base import MemoryLedger, Opening
from ipate.ledger.records import Charge, Draw, Terms
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.budgets import Account, Budget, Group
from ipate.release.answers import CODEC, Answers
from ipate.release.noise import SeededNoise

DELTA = 1e-5
_NUMBERS = count()
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


def charge(
    cost,
    *,
    queries=None,
    labels=None,
    answered=None,
    reinforced=None,
    counts=None,
    sensitivity=1.0,
    sigma=40.0,
    check_sigma=None,
    noise="gaussian",
    **more,
):
    """A charge for labels of queries; without `queries` it has a key of its own."""
    keys = (f"key {next(_NUMBERS)}",) if queries is None else tuple(queries)
    given = np.ones(len(keys), dtype=bool) if answered is None else np.asarray(answered, dtype=bool)
    own = np.zeros(len(keys), dtype=bool) if reinforced is None else reinforced
    check = () if check_sigma is None else (Draw(mechanism="check", sigma=check_sigma),)
    if labels is not None:
        found = Answers(labels=np.asarray(labels), answered=given, reinforced=own, counts=counts, sigma=sigma)
        more = {"codec": CODEC, "payload": found.payload, **more}
    mechanism = "argmax" if counts is None else "vector"
    return Charge(
        **{
            "cost": {name: np.atleast_1d(np.asarray(value, dtype=float)) for name, value in cost.items()},
            "sensitivity": dict.fromkeys(cost, np.asarray(sensitivity)),
            "draws": (*check, Draw(mechanism=mechanism, sigma=sigma, noise=noise, where=given)),
            "keys": keys,
            "bound": "gdp",
            "seeded": False,
            **more,
        }
    )


def whole(cost, **more):
    """The charge of a release that is tested as a whole."""
    draws = (Draw(mechanism="whole", sigma=40.0),)
    return charge(cost, **{"queries": ("test",), "scope": "run", "draws": draws, "payload": b"d v", **more})


def bit(cost, **more):
    """What the charge of `whole` pays for."""
    free = dict.fromkeys(cost, 0.0)
    return charge(free, **{"queries": ("bit",), "scope": "run", "draws": (), "paid_by": "test", **more})


def begin(path, entries, *, people=None, head=None, timeout=30.0, ledger=SqliteLedger, **opening):
    """Begin or continue a run on disk; `people` may be a mapping or a roster."""
    roster = people if isinstance(people, Roster) else Roster(people=people)
    return ledger.begin(path, Opening(terms=entries, roster=roster, **opening), head=head, timeout=timeout)


def in_memory(entries, path, **more):
    return MemoryLedger(entries, **more)


def on_disk(entries, path, **more):
    return begin(path, entries, **more)


def voting(size, *, seed=0, names=("middle", "strict", "lax"), budgets=BUDGETS, **more):
    votes = np.random.default_rng(seed).integers(0, 3, (5, size))
    made = Votes(votes=votes, n_classes=3, groups=GROUPS, **more)
    rotating = made.participation is not None
    rows = [(name, budgets[name], DELTA, None) for name in names]
    return made, Panel.from_votes(made, rows, weights=None if rotating else WEIGHTS)


def opened(path, panel, meter=None, aggregator=CONFIDENT, *, noise="seeded", **more):
    return begin(path, account_terms(panel, meter or Meter(), aggregator), noise=noise, **more)


def label_into(path, wait, queue):
    """Label into a ledger as a process of its own; it lives here because a spawned process must import it."""
    votes, panel = voting(600)
    try:
        with opened(path, panel, timeout=wait) as book:
            queue.put(label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(3), ledger=book, batch=3).n_labels)
    except IpateError as error:
        queue.put(str(error))
