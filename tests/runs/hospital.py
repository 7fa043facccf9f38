"""Made-up files of a hospital: private rows with ids, consent, categories, dates and gaps; public and test rows."""

import csv

import numpy as np

FEATURES = ["age", "bmi", "sex", "ward", "admitted"]


def rows(n, *, seed, private=True):
    """Return dictionaries of cells, one per row; some people have two rows."""
    rng = np.random.default_rng(seed)
    sick = rng.integers(2, size=n)
    made = []
    for index in range(n):
        cells = {
            "patient": f"p{index // 2 if index < n // 5 else index}",
            "consent": ("high", "low")[index // 2 % 2],
            "age": f"{40 + 25 * sick[index] + rng.normal(0, 5):.1f}",
            "bmi": "" if index % 11 == 0 else f"{rng.normal(26, 4):.2f}",
            "sex": "FM"[int(rng.integers(2))],
            "ward": "ABC"[int(rng.integers(3))],
            "admitted": f"2024-{1 + index % 12:02d}-{1 + index % 28:02d}",
            "note": "",
            "outcome": ("home", "readmitted")[sick[index]],
        }
        if not private:
            del cells["patient"], cells["consent"]
        made.append(cells)
    return made


def write(path, made):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(made[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(made)
    return path


def files(folder, *, n_private=600, n_public=120, n_test=60):
    """Write private.csv, public.csv and test.csv."""
    write(folder / "private.csv", rows(n_private, seed=1))
    write(folder / "public.csv", rows(n_public, seed=2, private=False))
    write(folder / "test.csv", rows(n_test, seed=3, private=False))


DATA = """
[data]
file = "private.csv"
public_file = "public.csv"
test_file = "test.csv"
person = "patient"
level = "consent"
label = "outcome"
classes = ["home", "readmitted"]
drop = ["note"]
"""
REST = """
[budgets]
policy = { high = 20.0, low = 40.0 }
[teachers]
model = "bayes"
number = 12
n_jobs = 1
[labelling]
sigma = 2.0
check_sigma = 4.0
threshold = 6.0
[student]
model = "bayes"
"""


def config(folder, data=DATA, rest=REST):
    """Write hospital.toml."""
    path = folder / "hospital.toml"
    path.write_text(data + rest)
    return path
