"""A million private rows of 20 columns from csv and parquet: seconds and peak memory, beside pandas' own reading.

    python benchmarks/way_in.py [--rows N] [--repeat R] [--only FORMAT]

The file has ids, consent levels, labels, 9 columns of numbers with gaps, 6 of categories and 2 of dates. Ours is what
`ipate run` does: it reads a public file, makes the schema, reads roles and features, and looks for copies of private
rows among the public ones. Rows are encoded when a teacher takes them, which is timed apart. pandas reads the same file
with its pyarrow engine, and does nothing else. Every reading is a process of its own; both take turns, and the best of
each counts.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = ["home", "readmitted"]


def columns(n: int, *, seed: int) -> dict[str, "np.ndarray"]:
    """Return the columns of made-up patients."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {
        "patient": np.char.add("p", rng.permutation(n).astype(str)),
        "consent": rng.choice(["high", "average", "low"], n),
    }
    for place in range(9):
        values = np.round(rng.normal(50, 10, n), 3)
        values[rng.random(n) < 0.05] = np.nan
        made[f"number{place}"] = values
    for place in range(6):
        made[f"category{place}"] = rng.choice([f"value {code}" for code in range(3 + 2 * place)], n)
    for place in range(2):
        made[f"date{place}"] = (np.datetime64("2015-01-01") + rng.integers(0, 3000, n)).astype(str)
    made["outcome"] = rng.choice(CLASSES, n)
    return made


def write(folder: Path, n: int) -> None:
    """Write private and public files in both formats."""
    import pandas as pd

    for name, rows, seed in (("private", n, 1), ("public", 5_000, 2)):
        frame = pd.DataFrame(columns(rows, seed=seed))
        if name == "public":
            frame = frame.drop(columns=["patient", "consent"])
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet", index=False)


def measure(reader: str, folder: Path, ending: str) -> None:
    """Read a file once and print seconds and the growth of the peak memory."""
    import pandas as pd
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401 - both readers find them loaded; pyarrow itself imports pandas where it is there

    if reader == "ipate":
        from ipate.data.columns import Roles
        from ipate.data.schema import Declared
        from ipate.data.sources import Sources, read_parts

        roles = Roles(person="patient", level="consent", label="outcome")
    before, start, used = peak(), time.perf_counter(), time.process_time()
    path = folder / f"private.{ending}"
    if reader == "pandas":
        read = pd.read_csv(path, engine="pyarrow") if ending == "csv" else pd.read_parquet(path)
    else:
        public = folder / f"public.{ending}"
        sources = Sources(private=path, public=public, roles=roles, classes=CLASSES, declared=Declared())
        data, parts = read_parts(sources, n_public=None, n_test=None, seed=0)
    facts: dict[str, Any] = {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
        "mebibytes": peak() - before,
    }
    if reader == "ipate":
        start = time.perf_counter()
        facts["shape"] = data.features(parts.private).shape
        facts["encoding"] = time.perf_counter() - start
    else:
        facts["shape"] = read.shape
    print(json.dumps(facts))


def peak() -> float:
    """Return the largest memory that this process has used so far, in MiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Measure both readers on both formats, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=["csv", "parquet"])
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        reader, folder, ending = given.measure
        measure(reader, Path(folder), ending)
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), given.rows)
        for ending in [given.only] if given.only else ["csv", "parquet"]:
            found: dict[str, list[dict[str, float]]] = {"pandas": [], "ipate": []}
            for _ in range(given.repeat):
                for reader, runs in found.items():
                    command = [sys.executable, __file__, "--measure", reader, name, ending]
                    runs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
            size = (Path(name) / f"private.{ending}").stat().st_size / 2**20
            print(f"{ending}: {given.rows:,} rows, 20 columns, {size:.0f} MiB")
            for reader, runs in found.items():
                best = {key: min(run[key] for run in runs) for key in ("seconds", "processor", "mebibytes")}
                print(
                    f"  {reader:7} {best['seconds']:6.2f} s, processor time {best['processor']:6.2f} s, "
                    f"{best['mebibytes']:6.0f} MiB, result {runs[0]['shape']}"
                )
            encoding = min(run["encoding"] for run in found["ipate"])
            print(f"  encoding all rows for the teachers: {encoding:.2f} s")
            for key in ("seconds", "processor", "mebibytes"):
                ours, theirs = (min(run[key] for run in found[reader]) for reader in ("ipate", "pandas"))
                print(f"  {key}: {ours / theirs:.2f} times pandas")


if __name__ == "__main__":
    main()
