"""A whole `ipate run`, killed or interrupted in every stage and at random moments, then resumed.

    python benchmarks/interrupt.py [--random 50] [--seed 0] [--json] [--only kill|int|writers|shared]

Every child runs the command line itself. It is stopped as soon as a stage's file appears, or after a random time;
afterwards the ledger must verify, hold every label that can be read, and have nobody over budget. At the end the run
is resumed without disturbance: it must equal an undisturbed one, answer by answer, and be charged once. Two runs on one
file of people are also stopped in turn, on the ledger beside it that they share by default.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is loaded: children are forked, and pools of threads do not survive that

import argparse
import contextlib
import csv
import io
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import sklearn.naive_bayes

from ipate.cli.app import _run
from ipate.data import load
from ipate.ledger.sqlite import SqliteLedger
from ipate.release.answers import paid_answers
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import known_heads, ledger_path

CONFIG = """
[data]
name = "digits"
public = 600
test = 200
[budgets]
policy = { high = 6.0, low = 20.0 }
shares = { high = 0.6, low = 0.4 }
[teachers]
model = "bayes"
number = 40
n_jobs = 1
[labelling]
sigma = 3.0
check_sigma = 6.0
threshold = 12.0
min_labels = 10
[student]
model = "bayes"
"""
LOADED = (joblib, sklearn.naive_bayes)  # once, in the parent: children start at once
MARKS = (
    "config.json",
    "data.json",
    "private/allocation.npz",
    "private/votes/done.npy",
    "private/ledger.sqlite",
    "private/ledger.json",
    "private/labelling.json",
    "*/labels.csv",
    "*/student/student.json",
    "private/metrics.json",
)


def started(*arguments: object) -> int:
    """Run the command line in a child; its own output goes nowhere, its exit code is the command's."""
    child = os.fork()
    if child:
        return child
    code = 4
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
            code = _run(["run", *map(str, arguments), "--json"])
        if code not in (0, 130):
            os.write(2, err.getvalue().encode())
    except KeyboardInterrupt:  # before or after the command itself
        code = 130
    except BaseException as error:
        os.write(2, repr(error).encode())
    os._exit(code)


def ended(child: int) -> int:
    """Wait for a child: its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stopped_at(child: int, sign: signal.Signals, moment: float | None, folder: Path, mark: str) -> int:
    """Send a signal when a file appears, or after a time; return how the child ended."""
    start = time.monotonic()
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - start > moment if moment is not None else any(folder.glob(mark)):
            os.kill(child, sign)
            return ended(child)
        time.sleep(0.0005)


def answers(folder: Path) -> dict[str, int]:
    """Verify a run's ledger against everything that can be read in its folder; return the answers it holds."""
    if not (folder / "config.json").is_file():
        return {}
    run = RunFolder.open(folder)
    heads, seen = known_heads(run), list(read_labels(folder))
    path = ledger_path(run)
    if not heads:
        if seen:
            raise AssertionError("labels can be read and nothing says what they were charged to")
        return {}
    with SqliteLedger.read(path, run.id) as book:  # chain, sums and budgets are verified
        for head in heads.values():
            book.check_head(head)
        for account in book.terms:
            if not np.any(book.spent(account) <= book.limit(account)):
                raise AssertionError(f"account {account} is over its budget")
        held = {query: label for query, (label, _, _) in paid_answers(book).answers.items()}
    rows = {int(row["query"]) for row in seen}
    if len(rows) > len(held) or len(seen) != len(rows):
        raise AssertionError(f"{len(seen)} answers can be read and {len(held)} were charged")
    return held


def read_labels(folder: Path) -> Iterator[dict[str, str]]:
    """Every row of every labels file."""
    for path in folder.glob("*/labels.csv"):
        with path.open(newline="") as stream:
            yield from csv.DictReader(stream)


def outcome(folder: Path) -> dict[str, Any]:
    """What a finished run ended with, without what differs between folders."""
    record = json.loads((folder / "private" / "labelling.json").read_text())
    return {name: value for name, value in record.items() if name != "ledger_head"}


def disturbed(
    base: Path, config: Path, sign: signal.Signals, *, noise: int | None, moments: list[float | None]
) -> dict[str, Any]:
    """Stop one run again and again, then let it finish; compare it with what it held before, and with another run."""
    folder, stops = base / f"run-{time.monotonic_ns()}", 0
    held: dict[str, int] = {}
    extra = [] if noise is None else ["--seed", noise]

    def begun() -> int:
        """Go on with the run, or begin it where it was stopped before it was one."""
        there = (folder / "config.json").is_file()
        return started(*(["--resume", folder] if there else [config, "--out", folder, *extra]))

    for place, moment in enumerate(moments):
        code = stopped_at(begun(), sign, moment, folder, MARKS[place % len(MARKS)])
        wanted = 130 if sign == signal.SIGINT else -signal.SIGKILL
        if code not in (0, wanted):
            raise AssertionError(f"a run that was stopped ended with {code}")
        stops += code != 0
        now = answers(folder)
        if not held.items() <= now.items():
            raise AssertionError("an answer that was charged has changed or gone")
        held = now
        if code == 0 and place < len(moments) - 1:  # finished: too fast, or ^C was lost in a callback of Python
            folder, held = base / f"run-{time.monotonic_ns()}", {}
    if ended(begun()):
        raise AssertionError("the run could not be finished")
    final, record = answers(folder), outcome(folder)
    if not held.items() <= final.items() or len(final) != record["n_queries"]:
        raise AssertionError("answers were drawn twice, or charged and not given")
    if noise is not None:
        other = base / f"undisturbed-{sign.name}"
        if ended(started(config, "--out", other, *extra)) or outcome(other) != record:
            raise AssertionError("the run ended otherwise than an undisturbed one")
    for left in folder.rglob(".*.tmp"):
        if sign == signal.SIGINT:
            raise AssertionError(f"{left} was left behind")
    return {"stops": stops, "queries": record["n_queries"], "labels": record["n_labels"]}


def randomly(
    base: Path, config: Path, sign: signal.Signals, *, chance: random.Random, unit: float, count: int
) -> dict[str, Any]:
    """Stop runs at random moments, a few times each."""
    found = {"stops": 0, "runs": 0}
    while found["stops"] < count and found["runs"] < count:
        moments: list[float | None] = [unit * chance.random() for _ in range(chance.randint(1, 6))]
        found["stops"] += disturbed(base, config, sign, noise=None, moments=moments)["stops"]
        found["runs"] += 1
    return found


def writers(base: Path, config: Path) -> dict[str, Any]:
    """Two runs at once on one ledger: both charge the same people, nobody twice for one answer, nobody too much."""
    shared = base / "shared.sqlite"
    children = [started(config, "--out", base / f"writer-{number}", "--ledger", shared) for number in range(2)]
    codes = [ended(child) for child in children]
    third = ended(started(config, "--out", base / "third", "--ledger", shared))
    if codes not in ([0, 0], [0, 1], [1, 0]) or third != 1:
        raise AssertionError(f"two writers ended with {codes}, and one that came when all was spent with {third}")
    with SqliteLedger.read(shared) as book:
        spent = {account: book.epsilon(account) for account in book.terms}
        budget = {account: terms.account.epsilon for account, terms in book.terms.items()}
        charged = len(paid_answers(book).answers)
    if any(spent[account] > budget[account] for account in spent):
        raise AssertionError(f"spent {spent} of {budget}")
    for number, code in enumerate(codes):
        if code == 0:
            answers(base / f"writer-{number}")
    return {"ended": sorted(codes), "queries": charged, "spent": spent}


def write_people(path: Path) -> None:
    """Write the digits as a file of people with ids and budgets."""
    data = load("digits")
    X = data.features()
    columns = [*(f"x{index}" for index in range(X.shape[1])), "digit", "person", "eps"]
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for row in range(data.n_rows):
            budget = 6.0 if row % 5 < 3 else 20.0
            writer.writerow([*np.round(X[row], 4).tolist(), data.classes[data.y[row]], f"p{row}", budget])


FILE = """
[data]
file = "{file}"
label = "digit"
person = "person"
epsilon = "eps"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
public = 600
test = 200
public_without_protection = true
[teachers]"""


def shared(base: Path, sign: signal.Signals, *, chance: random.Random, unit: float, count: int) -> dict[str, Any]:
    """Stop two runs on one file of people in turn; they share the ledger beside it, which neither of them names."""
    found = {"stops": 0, "aborted_by_a_library": 0, "rounds": 0, "finished": 0, "refused": 0}
    while found["stops"] < count:
        own = base / f"shared-{sign.name}-{found['rounds']}"
        own.mkdir()
        write_people(own / "people.csv")
        config = own / "run.toml"
        start, end = CONFIG.index("[data]"), CONFIG.index("[teachers]")
        config.write_text(CONFIG[:start] + FILE.format(file=own / "people.csv") + CONFIG[end + len("[teachers]") :])
        left, held = ["one", "two"], dict[str, dict[str, int]](one={}, two={})
        while left:
            name = chance.choice(left)
            folder = own / name
            there = (folder / "config.json").is_file()
            child = started(*(["--resume", folder] if there else [config, "--out", folder]))
            if found["stops"] < count:
                code = stopped_at(child, sign, unit * 1.5 * chance.random(), folder, "")
            else:
                code = ended(child)
            if code not in (0, 1, 130, -signal.SIGKILL, -signal.SIGABRT):
                raise AssertionError(f"{name} ended with {code}")
            found["aborted_by_a_library"] += code == -signal.SIGABRT  # ^C while a C++ extension is imported
            now = {run: answers(own / run) for run in held}
            if any(not held[run].items() <= now[run].items() for run in held):
                raise AssertionError("an answer that was charged has changed or gone")
            held = now
            if code in (0, 1):  # 1: nothing is left, or the other run has gone on since
                found["finished" if code == 0 else "refused"] += 1
                left.remove(name)
            found["stops"] += code not in (0, 1)
        if [path.name for path in own.glob("*.sqlite")] != ["people.ledger.sqlite"]:
            raise AssertionError("a second ledger was begun for the same people")
        found["rounds"] += 1
    return found


def main() -> int:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--random", type=int, default=50, help="random moments, beside every stage")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=["kill", "int", "writers", "shared"])
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="ipate-interrupt-") as name:
        base = Path(name)
        config = base / "run.toml"
        config.write_text(CONFIG)
        unit = 0.0
        for attempt in ("first", "second"):  # the second is not slowed down by cold caches
            start = time.monotonic()
            if ended(started(config, "--out", base / attempt)):
                raise AssertionError("a run failed without any disturbance")
            unit = time.monotonic() - start
        found["seconds_of_a_run"] = round(unit, 2)
        for key, sign in (("kill", signal.SIGKILL), ("int", signal.SIGINT)):
            if asked.only in (None, key):
                stages: list[float | None] = [None] * len(MARKS)
                found[key] = disturbed(base, config, sign, noise=5, moments=stages)
                found[f"{key}_at_random"] = randomly(base, config, sign, chance=chance, unit=unit, count=asked.random)
            if asked.only in (None, "shared"):
                more = {"chance": chance, "unit": unit, "count": asked.random}
                found[f"{key}_on_shared_ledger"] = shared(base, sign, **more)
        if asked.only in (None, "writers"):
            found["writers"] = writers(base, config)
    print(json.dumps(found) if asked.json else "\n".join(f"{key}: {value}" for key, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
