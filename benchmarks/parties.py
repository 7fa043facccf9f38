"""What three sites gain by voting together: labels and student, all sites merged and each site alone.

The example of docs/parties.md, made and measured: 9,000 made-up people at three sites with different policies,
1,000 public points, noise in the same ratio to the number of teachers everywhere. Seeded noise, the mean of ten.

    python benchmarks/parties.py [--people 10000] [--points 50] [--seeds 10]
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.data import load
from ipate.data.dataset import Dataset
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.parties.exchange import SiteVotes, read_site_votes
from ipate.parties.merge import merge
from ipate.parties.queries import Queries, make_queries
from ipate.parties.site import SiteOptions, fit_site, make_teacher
from ipate.people.policy import Policy
from ipate.release.noise import SeededNoise

SITES = {  # shares of all people, and what consent levels mean there
    "north": (0.40, Policy(levels={"high": 1.0, "average": 2.0, "low": 3.0}, delta=1e-5)),
    "south": (0.25, Policy(levels={"high": 0.5, "average": 1.0, "low": 2.0}, delta=1e-6)),
    "west": (0.25, Policy(levels={"high": 2.0, "average": 4.0, "low": 8.0}, delta=1e-5)),
}
SIGMA, CHECK_SIGMA, THRESHOLD = 0.16, 0.6, 0.444  # times the number of teachers


def sites(data: Dataset, folder: Path, points: int) -> tuple[Queries, list[SiteVotes], np.ndarray]:
    """Fit every site on its own rows and let it vote; the rows that are left are the pool."""
    edges = np.cumsum([0, *(round(share * data.n_rows) for share, _ in SITES.values())])
    about = {"classes": data.classes, "feature_names": data.feature_names}
    pool = np.arange(edges[-1], data.n_rows)
    np.savez(folder / "pool.npz", X=data.X[pool], bounds=data.bounds, **about)  # type: ignore[arg-type]
    queries, files = make_queries(folder / "pool.npz"), []
    for place, (name, (_, policy)) in enumerate(SITES.items()):
        own, rows = data.take(np.arange(edges[place], edges[place + 1])), folder / f"{name}-rows.npz"
        np.savez(rows, X=own.X, y=own.y, levels=own.levels, **about)  # type: ignore[arg-type]
        site = fit_site(
            rows,
            folder / name,
            name=name,
            encoding=queries.encoding,
            options=SiteOptions(policy=policy, points_per_teacher=points),
            estimator=make_teacher("logistic"),
        )
        site.vote(queries, folder / f"{name}.npz")
        files.append(read_site_votes(folder / f"{name}.npz"))
    return queries, files, pool


def measure(files: Sequence[SiteVotes], data: Dataset, pool: np.ndarray, test: Dataset, seeds: int) -> list[float]:
    """Return teachers, labels, their accuracy and the student's, means over seeds; nan where no student is possible."""
    from sklearn.linear_model import LogisticRegression

    merged = merge(files)
    k = len(merged.teacher_groups)
    matrix = np.concatenate([file.votes for file in merged.files])
    votes = Votes(votes=matrix, n_classes=data.n_classes, groups=merged.teacher_groups)
    budgets = [(group.id, group.epsilon, group.delta, None) for group in merged.groups]
    panel = Panel.from_votes(votes, budgets, weights=merged.weights)
    noise = Mechanism(sigma=SIGMA * k, check_sigma=CHECK_SIGMA * k, threshold=THRESHOLD * k)
    found = []
    for seed in range(seeds):
        result = label(votes, panel, Confident(mechanism=noise), Meter("gdp"), noise=SeededNoise(seed))
        if any(group.used > 1 for group in result.groups):
            raise SystemExit(f"a group paid more than its budget: {result.groups}")
        rows, given = pool[result.queries[result.answered]], result.labels[result.answered]
        score = float("nan")
        if len(np.unique(given)) > 1:
            student = LogisticRegression(max_iter=300).fit(data.X[rows], given)
            score = float(student.score(test.X, test.y))
        found.append([k, len(given), float(np.mean(given == data.y[rows])), score])
    return [float(value) for value in np.mean(found, axis=0)]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=50, help="people per teacher")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    data, test = load("synthetic", n_people=options.people), load("synthetic", n_people=4_000, seed=7)
    with tempfile.TemporaryDirectory() as folder:
        _, files, pool = sites(data, Path(folder), options.points)
        print(f"{'':12}{'teachers':>10}{'labels':>10}{'right':>10}{'student':>10}")
        for name, chosen in [("together", files), *((file.manifest.site, [file]) for file in files)]:
            k, labels, right, student = measure(chosen, data, pool, test, options.seeds)
            print(f"{name:12}{k:10.0f}{labels:10.1f}{right:10.1%}{student:10.1%}")


if __name__ == "__main__":
    main()
