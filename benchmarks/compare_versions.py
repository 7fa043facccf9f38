"""Compare seeded results of two installed versions of ipate: the labels must be the same bit for bit.

    python benchmarks/compare_versions.py OLD/bin/python NEW/bin/python

Each argument is the Python of an environment with one version. Both run `ipate label` under every variant and bound
(ptr included), `ipate run` under every variant at explicit settings, and `PATEClassifier`, on the same made-up votes
and data, with seeded noise. Prints one line per case and exits with 1 if anything differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

GROUPS = {"strict": 2.0, "middle": 4.0, "lax": 8.0}
NOISE = ["--sigma", "12", "--check-sigma", "15", "--threshold", "45"]
CONFIG = """
seed = 5
split_seed = 3
[data]
name = "synthetic"
[budgets]
policy = {{ high = 8.0, average = 12.0, low = 16.0 }}
[teachers]
model = "bayes"
number = 60
n_jobs = 1
[labelling]
variant = "{variant}"
bound = "{bound}"
sigma = 10.0
check_sigma = 14.0
threshold = 30.0
{stop}
[student]
model = "bayes"
"""
CLASSIFIER = """
import hashlib, json, sys
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from ipate import PATEClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 4)); y = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(int)
epsilon = rng.choice([2.0, 6.0], size=3000)
for variant in ("standard", "weighting", "upsampling", "vanishing"):
    model = PATEClassifier(
        teacher=GaussianNB(), student=LogisticRegression(), variant=variant, n_teachers=50, sigma=8.0, check_sigma=12.0,
        threshold=25.0, classes=[0, 1], random_state=1, noise_seed=2, verbose=0,
    ).fit(X, y, budgets=epsilon, X_public=rng.normal(size=(400, 4)))
    costs = [float(g.cost) for g in model.guarantees_]
    digest = hashlib.sha256(model.labels_.astype("<i8").tobytes()).hexdigest()
    print(json.dumps({"case": variant, "labels": digest, "costs": costs}))
    rng = np.random.default_rng(0); rng.normal(size=(3000, 4)); rng.choice([2.0, 6.0], size=3000)
"""


def main() -> int:
    """Run every case with both versions and compare."""
    parser = argparse.ArgumentParser(description="Compare seeded results of two versions of ipate.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_inputs(top)
        for title, arguments, out in cases(top):
            found = [run(python, arguments, top / side, out) for side, python in sides(options)]
            different += report(title, found)
        commands = [[str(python), "-W", "ignore", "-c", CLASSIFIER] for _, python in sides(options)]
        texts = [subprocess.run(line, check=True, capture_output=True, text=True).stdout for line in commands]
        for old, new in zip(*(text.splitlines() for text in texts), strict=True):
            title = f"PATEClassifier {json.loads(old)['case']}"
            different += report(title, [(json.loads(line)["labels"], json.loads(line)["costs"]) for line in (old, new)])
    print(f"{different} cases differ")
    return 1 if different else 0


def sides(options: argparse.Namespace) -> list[tuple[str, Path]]:
    """Return the two versions with a folder name for each."""
    return [("old", options.old.absolute()), ("new", options.new.absolute())]


def write_inputs(top: Path) -> None:
    """Write votes, groups, configurations and a folder for each version."""
    rng = np.random.default_rng(7)
    truth = rng.integers(0, 4, size=400)
    right = rng.random((90, 400)) < rng.uniform(0.8, 1.0, size=400)
    votes = np.where(right, truth, rng.integers(0, 4, size=(90, 400))).astype(np.int16)
    names = np.array([*["strict"] * 40, *["middle"] * 30, *["lax"] * 20])
    np.savez(top / "votes.npz", votes=votes, groups=names, classes=4)
    np.savez(top / "mixed.npz", votes=votes, classes=4)
    rows = "".join(f"{name},{epsilon},1e-5\n" for name, epsilon in GROUPS.items())
    (top / "groups.csv").write_text(f"group,epsilon,delta\n{rows}")
    copies = zip(GROUPS.items(), (1, 2, 4), strict=True)
    rows = "".join(f"{name},{epsilon},1e-5,{moved}\n" for (name, epsilon), moved in copies)
    (top / "copies.csv").write_text(f"group,epsilon,delta,sensitivity\n{rows}")
    for variant in ("standard", "weighting", "upsampling", "vanishing"):
        for bound in ("gdp", "sup", "tight"):
            stop = 'stop = "drop"' if (variant, bound) == ("weighting", "gdp") else ""
            (top / f"{variant}-{bound}.toml").write_text(CONFIG.format(variant=variant, bound=bound, stop=stop))
    for side in ("old", "new"):
        (top / side).mkdir()


def cases(top: Path) -> list[tuple[str, list[str], str]]:
    """Return a title, the arguments and the labels file of every command."""
    found = []
    for variant in ("standard", "weighting", "upsampling", "vanishing"):
        votes, groups = ("mixed.npz", "copies.csv") if variant == "upsampling" else ("votes.npz", "groups.csv")
        for bound in ("loose", "gdp", "sup", "tight", "exact", "ptr"):
            if (variant, bound) == ("vanishing", "ptr"):
                continue
            extra = ["--accuracy", "0.9"] if bound == "ptr" else []
            labels = f"{variant}-{bound}.csv"
            arguments = ["label", str(top / votes), "--groups", str(top / groups), *NOISE, "--variant", variant]
            arguments += ["--bound", bound, "--seed", "11", "--out", labels, "--json", *extra]
            found.append((f"label {variant} {bound}", arguments, labels))
    for config in sorted(top.glob("*.toml")):
        folder = f"run-{config.stem}"
        arguments = ["run", str(config), "--out", folder, "--json"]
        found.append((f"run {config.stem}", arguments, f"{folder}/private/labels.csv"))
    return found


def run(python: Path, arguments: list[str], folder: Path, out: str) -> tuple[str, list[float]]:
    """Run a command in a folder; return the labels file and the costs of all groups."""
    command = [str(python.with_name("ipate")), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr.strip()}", []
    printed = json.loads(done.stdout)
    costs = printed.get("private", printed)["groups"]  # seeded, so private; versions before printed one object
    return (folder / out).read_text(), [group["epsilon"] for group in costs]


def report(title: str, found: list[tuple[str, list[float]]]) -> int:
    """Print whether both versions gave the same labels, and the same costs up to the order of additions."""
    (old, old_costs), (new, new_costs) = found
    same = old == new and len(old_costs) == len(new_costs)
    same = same and bool(np.allclose(old_costs, new_costs, rtol=1e-9, atol=0))
    print(f"{title:<32} {'same' if same else 'DIFFERENT'}  {old.count(chr(10))} lines", flush=True)
    if not same:
        print(f"  old: {old[:200]!r} {old_costs}\n  new: {new[:200]!r} {new_costs}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
