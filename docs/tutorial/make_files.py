"""Write the made-up files of the tutorial: private.csv, public.csv, test.csv and discharge.csv.

    python make_files.py [FOLDER] [--patients 3000]

Nobody in these files exists. The outcome depends on age, lactate, ward and the length of the stay, with some chance.
"""

import argparse
import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

FEATURES = ["age", "sex", "ward", "admitted", "stay", "lactate"]
LEVELS = ["strict", "standard", "open"]


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--patients", type=int, default=3000)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    people = np.arange(args.patients)
    again = rng.random(args.patients) < 0.1  # a tenth of the patients came twice
    whose = np.concatenate([people, people[again]])
    level = rng.choice(LEVELS, size=args.patients, p=[0.2, 0.5, 0.3])
    rows = draw(rng, len(whose))
    header = ["patient", "consent", *FEATURES, "outcome"]
    ids = [f"P{number:05d}" for number in whose]
    write(
        args.folder / "private.csv",
        header,
        ([who, level[number], *row] for who, number, row in zip(ids, whose, rows, strict=True)),
    )
    write(args.folder / "public.csv", FEATURES, (row[:-1] for row in draw(rng, 1500)))
    write(args.folder / "test.csv", [*FEATURES, "outcome"], draw(rng, 1000))
    write(
        args.folder / "discharge.csv",
        ["bed", *FEATURES],
        ([f"B{bed:02d}", *row[:-1]] for bed, row in enumerate(draw(rng, 20))),
    )


def draw(rng: np.random.Generator, count: int) -> list[list[str]]:
    """Return rows of features and an outcome as text, with gaps where the ward did not measure."""
    age = rng.integers(18, 96, size=count)
    sex = rng.choice(["F", "M"], size=count)
    ward = rng.choice(["cardiology", "medicine", "surgery"], size=count, p=[0.3, 0.5, 0.2])
    day = rng.integers(0, 700, size=count)
    stay = np.round(rng.gamma(2.0, 3.0, size=count) + 0.5, 1)
    lactate = np.round(rng.gamma(4.0, 0.4, size=count), 2)
    risk = 0.05 * (age - 62) + 0.25 * (stay - 6) + 1.6 * (lactate - 1.6) + 0.8 * (ward == "cardiology")
    readmitted = rng.random(count) < 1 / (1 + np.exp(-2.0 * risk))
    gap = rng.random(count) < 0.08
    first = date(2024, 1, 1)
    return [
        [
            str(age[i]),
            str(sex[i]),
            str(ward[i]),
            (first + timedelta(days=int(day[i]))).isoformat(),
            str(stay[i]),
            "" if gap[i] else str(lactate[i]),
            "readmitted" if readmitted[i] else "home",
        ]
        for i in range(count)
    ]


def write(path: Path, header: list[str], rows: object) -> None:
    """Write a csv file."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
