"""What a charge costs where there are many groups: with the limits that are kept, and with the bisection for each.

    python benchmarks/ledger.py [--groups 10000] [--json]

Every group has a budget of its own. Both ledgers are on disk, in the same process, and are charged the same.
"""

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.ledger import records
from ipate.ledger.base import Opening
from ipate.ledger.records import Charge, Draw, Terms
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.budgets import Account, Budget, Group

METER, SIGMA = Meter(), 40.0


def made(terms: list[Terms], number: int) -> Charge:
    """The charge of one label to every group."""
    cost = METER.worst_label(sensitivity=1.0, sigma=SIGMA)
    return Charge(
        cost={entry.account.id: cost for entry in terms},
        sensitivity={entry.account.id: np.asarray(1.0) for entry in terms},
        draws=(Draw(mechanism="argmax", sigma=SIGMA),),
        keys=(str(number),),
        bound=METER.bound,
        seeded=False,
    )


def seconds(path: Path, terms: list[Terms], *, rounds: int) -> tuple[float, float]:
    """Return how long it takes to begin a run, and the median of its charges."""
    start, taken = time.perf_counter(), []
    with SqliteLedger.begin(path, Opening(terms=terms)) as book:
        begun = time.perf_counter() - start
        for number in range(rounds):
            charge, start = made(terms, number), time.perf_counter()
            book.charge(charge)
            taken.append(time.perf_counter() - start)
    return begun, float(np.median(taken))


def main() -> int:
    """Measure both in one run and print the ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    budgets = np.linspace(1.0, 8.0, asked.groups).tolist()
    groups = [Group(id=f"group {i}", budget=Budget(epsilon, 1e-5)) for i, epsilon in enumerate(budgets)]
    terms = [Terms(account=Account(group=group, sensitivity=1.0), meter=METER) for group in groups]
    with tempfile.TemporaryDirectory(prefix="ipate-ledger-") as folder:
        measure = partial(seconds, terms=terms)
        begun, kept = measure(Path(folder, "kept.sqlite"), rounds=5)
        with mock.patch.object(records, "_limit", records._limit.__wrapped__):
            _, computed = measure(Path(folder, "computed.sqlite"), rounds=1)
    found = {"groups": asked.groups, "begin_s": begun, "charge_s": kept, "charge_without_s": computed}
    found["ratio"] = computed / kept
    if asked.json:
        print(json.dumps(found))
    else:
        print(f"{asked.groups:,} groups: the run begins in {begun:.2f} s, where every limit is computed once")
        print(f"a charge takes {kept:.3f} s, and {computed:.2f} s with a bisection for every account")
        print(f"ratio {found['ratio']:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
