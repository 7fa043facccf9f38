"""Small files of people and runs of `ipate` on them, for attacks on the command line."""

import contextlib
import io
import sqlite3
from dataclasses import dataclass

import numpy as np

from ipate.cli.app import _run
from ipate.options import DataConfig

SHARED = "public_without_protection"  # an option that earlier versions did not have
AGREED = f"{SHARED} = true\n" if SHARED in DataConfig.model_fields else ""
CONFIG = """
split_seed = {split_seed}
[data]
file = "{file}"
label = "ill"
{person}epsilon = "eps"
classes = ["no", "yes"]
public = 50
test = 10
{agreed}
[teachers]
model = "bayes"
number = 8
n_jobs = 1
[labelling]
variant = "standard"
aggregator = "gnmax"
sigma = 2.0
min_labels = 0
{labelling}
[student]
model = "bayes"
"""
NAMES = tuple(map(str, range(1, 161)))


@dataclass(frozen=True)
class Ran:
    """The exit code of a command and what it wrote."""

    code: int
    out: str
    err: str


def ipate(*arguments):
    """Run the command line in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = _run([str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def table(names=NAMES, *, epsilon=8.0):
    """Return the columns of a file of people: two features, a label, ids and budgets."""
    rng = np.random.default_rng(3)
    ill = rng.integers(2, size=len(names))
    a, b = (rng.normal(3.0 * ill) for _ in range(2))
    return {"a": a.round(4), "b": b.round(4), "ill": np.where(ill, "yes", "no"), "id": names, "eps": epsilon}


def write_csv(path, names=NAMES, **more):
    columns = table(names, **more)
    rows = zip(*(np.broadcast_to(np.asarray(values), len(names)).tolist() for values in columns.values()), strict=True)
    path.write_text(",".join(columns) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def run(file, name, *options, split_seed=0, person="id", labelling=""):
    """Run `ipate run` on a file of people; the folder of the run lies beside the file."""
    config = file.with_name(f"{name}.toml")
    named = "" if person is None else f'person = "{person}"\n'
    drop = "" if person is not None or not AGREED else 'drop = ["id"]\n'
    config.write_text(
        CONFIG.format(
            file=file,
            split_seed=split_seed,
            person=named + drop,
            agreed=AGREED,
            labelling=labelling,
        )
    )
    return ipate("run", config, "--out", file.with_name(name), *options)


def people_of(ledger):
    """Return the ids of everybody who has an account."""
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        return {person for (person,) in connection.execute("SELECT DISTINCT person FROM members")}


def write_votes(folder, *, epsilon=1.0):
    """Write the votes of 40 teachers in two groups, and the groups' budgets."""
    rng = np.random.default_rng(7)
    truth = rng.integers(3, size=60)
    votes = np.where(rng.random((40, 60)) < 0.8, truth, rng.integers(3, size=(40, 60)))
    np.savez(folder / "votes.npz", votes=votes, groups=np.repeat(["strict", "lax"], 20), classes=3)
    (folder / "groups.csv").write_text(f"group,epsilon\nstrict,{epsilon}\nlax,{2 * epsilon}\n")


def label(folder, out, *options, votes="votes.npz"):
    """Run `ipate label` on the votes in a folder."""
    given = ["label", folder / votes, "--groups", folder / "groups.csv", "--sigma", "10", "--out", folder / out]
    return ipate(*given, *options)
