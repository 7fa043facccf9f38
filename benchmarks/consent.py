"""How long it takes to check a large file of people, beside a plain loop over the same rows, in one run.

    python benchmarks/consent.py [--rows 1000000]

Writes a file of made-up people: 1% of them have two rows, some of which disagree, and every thousandth row is
misspelt in a second file. Times are processor time of this one thread.
"""

import argparse
import csv
import difflib
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ipate.people.consent import Consent, check_consent
from ipate.people.policy import Policy

LEVELS = {"high": 1.0, "average": 2.0, "low": 3.0}


def write_people(path: Path, rows: int, *, misspelt: bool) -> None:
    """Write a file with a column that is left alone."""
    levels = np.random.default_rng(0).choice(list(LEVELS), size=rows, p=[0.54, 0.37, 0.09]).tolist()
    people = max(1, rows * 99 // 100)
    with path.open("w", encoding="utf-8") as file:
        file.write("patient,consent,age\n")
        for row, level in enumerate(levels):
            said = f"{level}x{row}" if misspelt and row % 1000 == 0 else level
            file.write(f"person-{row % people},{said},{row % 90}\n")


def plain(path: Path) -> tuple[Counter[str], int]:
    """The same counts by a loop: the strictest level of every person, and how many rows cannot be used."""
    strictest: dict[str, str] = {}
    bad = 0
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            level = row["consent"].strip()
            if level not in LEVELS:
                difflib.get_close_matches(level, LEVELS, n=1, cutoff=0.0)
                bad += 1
                continue
            person = row["patient"].strip()
            known = strictest.get(person, level)
            strictest[person] = min(known, level, key=LEVELS.__getitem__)
    return Counter(strictest.values()), bad


def timed(what: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the processor time it took."""
    start = time.process_time()
    found = what()
    return found, time.process_time() - start


def main() -> None:
    """Print one line per file."""
    parser = argparse.ArgumentParser(description="Time the check of a large file of people.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    warnings.simplefilter("ignore", UserWarning)
    policy = Policy(levels=LEVELS, max_epsilon=3.0, delta=1e-8)
    with tempfile.TemporaryDirectory() as folder:
        for misspelt in (False, True):
            path = Path(folder, "people.csv")
            write_people(path, rows, misspelt=misspelt)
            found: Consent
            found, ours = timed(lambda: check_consent(path, policy=policy, person="patient", level="consent"))  # noqa: B023
            (counts, bad), theirs = timed(lambda: plain(path))  # noqa: B023
            if {entry.level: entry.people for entry in found.levels} != dict(counts) or found.unusable != bad:
                raise SystemExit("the two counts differ")
            name = "0.1% misspelt" if misspelt else "clean"
            print(f"{rows:,} rows, {name}: {ours:.2f} s, a plain loop that counts alone {theirs:.2f} s")


if __name__ == "__main__":
    main()
