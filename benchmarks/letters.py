"""Time `ipate statement --all` for many people, on a made-up run with ballots whose ledger has two runs.

python benchmarks/letters.py --people 10000
"""

import argparse
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ipate.config import RunConfig
from ipate.runs.folder import RunFolder
from ipate.runs.stages import execute
from ipate.runs.statements import state, write_letters


@contextmanager
def quiet(*_: object) -> Any:
    """Show no progress."""
    yield lambda _: None


def write_people(path: Path, people: int, *, private: bool) -> None:
    """Write made-up rows: two features, a class, and for private rows the id and the consent of a person."""
    rng = np.random.default_rng(people)
    y = rng.integers(2, size=people)
    X = rng.normal(size=(people, 2)) + 2.5 * y[:, None]
    head = "a,b,sick" + (",person,consent,agreed,version" if private else "")
    lines = [head]
    for row in range(people):
        day = f"2025-{1 + row % 12:02d}-{1 + row % 28:02d}"
        own = f",p{row},{('high', 'average', 'low')[row % 3]},{day},2" if private else ""
        lines.append(f"{X[row, 0]:.4f},{X[row, 1]:.4f},{y[row]}{own}")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Make a run, write everybody's letters and print the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_people(place / "people.csv", given.people, private=True)
        write_people(place / "pool.csv", 500, private=False)
        config = RunConfig.from_mapping(
            {
                "data": {
                    "file": place / "people.csv",
                    "public_file": place / "pool.csv",
                    "label": "sick",
                    "classes": ["0", "1"],
                    "person": "person",
                    "level": "consent",
                    "consent_date": "agreed",
                    "consent_version": "version",
                },
                "budgets": {"policy": {"high": 1.0, "average": 2.0, "low": 3.0}, "policy_version": "2"},
                "labelling": {"voting": "ballots"},
                "student": {"model": "bayes"},
                "report": {"controller": "Hospital", "contact": "privacy@hospital.example"},
            }
        )
        folder = RunFolder.create(place / "run", config)
        execute(folder, bar=quiet)
        start = time.perf_counter()
        state(folder, "p7")
        one = time.perf_counter() - start
        start = time.perf_counter()
        written = write_letters(folder, place / "letters", bar=quiet)
        taken = time.perf_counter() - start
        size = sum(file.stat().st_size for file in (place / "letters").iterdir())
    print(f"one statement: {one:.2f} s; {written:,} letters: {taken:.1f} s, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
