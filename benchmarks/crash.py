"""What a crash can do to the durable ledger: nothing; and what safety costs in queries per second.

    python benchmarks/crash.py [--kills 1000] [--seconds 600] [--json] [--only kills|shared|writers|full|speed]

A labelling process is killed with SIGKILL at random moments and started again until its run is complete; then the
next run begins. After every kill the ledger is verified and compared with what the process had let be seen. The same
with two labellings of one votes file by the command line, interleaved on the ledger that they share by default, with
two writers at once and with a full disk. At the end: queries per second by batch size, and what a commit costs.
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
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ipate.accounting.bounds import Meter
from ipate.cli.app import _run
from ipate.engines.teachers import loop
from ipate.engines.teachers.aggregators import Confident, Mechanism
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import IpateError
from ipate.files import unpack_arrays
from ipate.ledger.base import Opening
from ipate.ledger.records import Charge, Terms
from ipate.ledger.sqlite import SqliteLedger, SqliteStorage
from ipate.release.answers import paid_answers
from ipate.release.noise import SeededNoise
from ipate.release.results import Labelling

BUDGETS = {"strict": 1.0, "middle": 2.0, "lax": 3.0}
WEIGHT = {"strict": 0.68, "middle": 1.27, "lax": 1.82}
METER = Meter()
NOISE = SeededNoise(11)
NOISY = Confident(mechanism=Mechanism(sigma=45.0, check_sigma=70.0, threshold=30.0))  # some 200 queries per run
COUNTED = replace(NOISY, mechanism=replace(NOISY.mechanism, counts=True))


class Telling(SqliteLedger):
    """Writes down what it lets be seen, after every charge, as a caller who uses the answers at once would."""

    out: int = -1

    def charge(self, charge: Charge) -> None:
        """Charge, then let the answers be seen."""
        super().charge(charge)
        if self.out >= 0:
            found, seen = unpack_arrays(charge.payload), np.full((len(charge.keys), 1), "", dtype=object)
            if "counts" in found:
                seen[charge.answered, 0] = [" ".join(map(str, row)) for row in found["counts"].tolist()]
            rows = zip(charge.keys, found["labels"].tolist(), seen[:, 0], strict=True)
            os.write(self.out, "".join(f"{query} {found} {more}\n" for query, found, more in rows).encode())


def voting(queries: int, *, teachers: int = 60, classes: int = 4) -> tuple[Votes, Panel]:
    """Votes of teachers who agree on most queries, in three groups."""
    rng = np.random.default_rng(5)
    right = rng.integers(0, classes, queries)
    votes = np.where(rng.random((teachers, queries)) < 0.7, right, rng.integers(0, classes, (teachers, queries)))
    groups = tuple(list(BUDGETS)[index % 3] for index in range(teachers))
    made = Votes(votes=votes, n_classes=classes, groups=groups)
    weights = np.array([WEIGHT[group] for group in groups])
    budgets = [(group, epsilon, 1e-5, None) for group, epsilon in BUDGETS.items()]
    return made, Panel.from_votes(made, budgets, weights=weights)


def opened(terms: Sequence[Terms]) -> Opening:
    """How the seeded runs of this script are opened."""
    return Opening(terms=terms, noise="seeded")


def run(
    path: Path,
    told: Path | None,
    votes: Votes,
    panel: Panel,
    *,
    batch: int,
    timeout: float = 60.0,
    made: Confident = NOISY,
) -> Labelling:
    """Label with the durable ledger, from wherever it stands."""
    with Telling.begin(path, opened(account_terms(panel, METER, made)), timeout=timeout) as book:
        if told is not None:
            book.out = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return label(votes, panel, made, METER, noise=NOISE, ledger=book, batch=batch)


def forked(work: Callable[[], object]) -> int:
    """Do something in a child; it leaves with 0, 3 for a clear refusal, 4 for anything else."""
    child = os.fork()
    if child:
        return child
    code = 4
    try:
        work()
        code = 0
    except IpateError as error:
        sys.stderr.write(f"refused: {error}\n")
        code = 3
    except BaseException as error:
        sys.stderr.write(f"broken: {error!r}\n")
    os._exit(code)


def inspect(path: Path, told: Path) -> int:
    """Verify a ledger after a crash; return how many queries it holds. Raises if anything is wrong."""
    if not path.exists() or path.stat().st_size == 0:
        if told.exists() and told.read_text():
            raise AssertionError("labels were seen and there is no ledger")
        return 0
    try:
        book = SqliteLedger.read(path)
    except IpateError:
        if told.exists() and told.read_text():
            raise
        return 0  # killed while the file was being made: it holds nothing yet
    with book:  # opening has verified chain, sums and budgets
        kept = paid_answers(book)
        answers, noisy = kept.answers, kept.noisy_votes
        lines = told.read_text().splitlines() if told.exists() else []
        for line in lines if not lines or told.read_text().endswith("\n") else lines[:-1]:
            query, found, *counts = line.split()
            if answers[query][0] != int(found):
                raise AssertionError(f"query {query}: another label was seen than is in the ledger")
            if [int(count) for count in counts] != (noisy[query][1].tolist() if query in noisy else []):
                raise AssertionError(f"query {query}: other counts were seen than are in the ledger")
        for account in book.terms:
            if not np.any(book.spent(account) <= book.limit(account)):
                raise AssertionError(f"account {account} is over its budget")
        return len(answers)


def same(result: Labelling, wanted: Labelling) -> None:
    """Raise unless a resumed run ended with what an undisturbed one affords."""
    if (result.n_labels, result.n_queries, result.stopped_by) != (wanted.n_labels, wanted.n_queries, "budget"):
        raise AssertionError(f"{result.n_labels} labels after kills, {wanted.n_labels} without")
    if not np.array_equal(result.labels, wanted.labels) or result.repeated.any():
        raise AssertionError("the labels differ from those of an undisturbed run")
    if wanted.noisy_votes is not None and not np.array_equal(np.asarray(result.noisy_votes), wanted.noisy_votes):
        raise AssertionError("the noisy counts differ from those of an undisturbed run")
    for mine, its in zip(result.groups, wanted.groups, strict=True):
        if abs(mine.cost - its.cost) > 1e-9 * its.cost or mine.sensitivity != its.sensitivity:
            raise AssertionError(f"group {mine.id} paid {mine.cost}, and {its.cost} without kills")


def kills(folder: Path, wanted_kills: int, *, seconds: float, seed: int) -> dict[str, Any]:
    """Kill labelling processes at random moments; every completed run must equal the undisturbed one.

    Every second run releases noisy counts with its labels.
    """
    votes, panel = voting(2000)
    undisturbed = [(made, label(votes, panel, made, METER, noise=NOISE)) for made in (NOISY, COUNTED)]
    chance = random.Random(seed)
    start = time.monotonic()
    run(folder / "first.sqlite", None, votes, panel, batch=2)
    unit = time.monotonic() - start  # how long a run takes here: the moments are spread over it
    killed, torn, number, progress = 0, 0, 0, 0
    while killed < wanted_kills and time.monotonic() - start < seconds:
        path, told = folder / f"{number}.sqlite", folder / f"{number}.told"
        batch, (made, wanted) = chance.choice([1, 2, 3]), undisturbed[number % 2]
        while killed < wanted_kills and time.monotonic() - start < seconds:
            child = forked(partial(run, path, told, votes, panel, batch=batch, made=made))
            time.sleep(unit * chance.random() * chance.choice([0.1, 0.5, 1.0]))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):  # it had ended before the signal came
                if os.WEXITSTATUS(status):
                    raise AssertionError("a labelling process failed")
                break
            killed += 1
            held = inspect(path, told)
            torn += held > progress and held < wanted.n_queries
            progress = held
        same(run(path, None, votes, panel, batch=batch, made=made), wanted)
        inspect(path, told)
        number, progress = number + 1, 0
        for file in folder.glob(f"{number - 1}.*"):
            file.unlink()
    return {
        "kills": killed,
        "kills_that_hit_a_run_in_progress": torn,
        "runs_completed": number,
        "labels_per_run": undisturbed[0][1].n_labels,
        "queries_per_run": undisturbed[0][1].n_queries,
        "seconds": round(time.monotonic() - start, 1),
    }


def labelling(folder: Path, name: str, sigma: float) -> int:
    """Label the votes of a folder by the command line; return the exit code."""
    out, noise = folder / f"{name}.csv", ["--sigma", sigma, "--check-sigma", 70, "--threshold", 30]
    given = ["label", folder / "votes.npz", "--groups", folder / "groups.csv", "--out", out, *noise, "--json"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = _run([str(part) for part in given])
    if code not in (0, 1):
        os.write(2, err.getvalue().encode())
    return code


def slowly(folder: Path, name: str, sigma: float) -> None:
    """Label a few queries at a time, in a process of its own."""
    loop.batch_size = lambda *_: 2
    os._exit(labelling(folder, name, sigma))


def compare(folder: Path) -> int:
    """Verify the shared ledger of a folder, and every labels file against it; return how many answers it holds."""
    path, seen = folder / "votes.ledger.sqlite", {}
    for file in folder.glob("*.csv"):
        with file.open(newline="") as stream:
            if file.name != "groups.csv":
                seen.update({row["query"]: row["label"] for row in csv.DictReader(stream)})
    try:
        book = SqliteLedger.read(path)  # verifies chain, sums, budgets and the head beside it
    except IpateError:
        if seen:
            raise
        return 0  # killed while the file was being made
    with book:
        answers = {query: "" if row[0] < 0 else str(row[0]) for query, row in paid_answers(book).answers.items()}
        for account, held in book.terms.items():
            if book.epsilon(account) > held.account.epsilon:
                raise AssertionError(f"account {account} is over its budget")
    if not seen.items() <= answers.items():
        raise AssertionError("a label can be read that was not charged")
    return len(answers)


def write_votes(folder: Path, votes: Votes) -> None:
    """Write a votes file and the groups' budgets into a new folder."""
    folder.mkdir()
    np.savez(folder / "votes.npz", votes=votes.votes, groups=np.array(votes.groups), classes=votes.n_classes)
    rows = "".join(f"{group},{epsilon}\n" for group, epsilon in BUDGETS.items())
    (folder / "groups.csv").write_text(f"group,epsilon\n{rows}")


def shared(folder: Path, wanted_kills: int, *, seconds: float, seed: int) -> dict[str, Any]:
    """Kill two labellings of one votes file in turn, on the ledger beside it that neither of them names."""
    votes, _ = voting(2000)
    chance, start = random.Random(seed), time.monotonic()
    found = {"kills": 0, "kills_that_hit_a_run_in_progress": 0, "rounds": 0, "finished": 0, "refused": 0}
    unit, warm = 1.0, folder / "warm"
    write_votes(warm, votes)
    labelling(warm, "one", 45.0)  # loads all modules once, so that children begin at once
    while found["kills"] < wanted_kills and time.monotonic() - start < seconds:
        own = folder / f"shared{found['rounds']}"
        write_votes(own, votes)
        left, held = {"one": 45.0, "two": 60.0}, 0
        while left:
            name = chance.choice(sorted(left))
            began = time.monotonic()
            child = forked(lambda o=own, n=name, s=left[name]: slowly(o, n, s))  # type: ignore[misc]
            if found["kills"] < wanted_kills and found["rounds"]:  # the first round is undisturbed and measured
                time.sleep(unit * chance.random() * chance.choice([0.3, 1.0]))
                os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            now = compare(own)
            if now < held or code not in (0, 1, -signal.SIGKILL):
                raise AssertionError(f"{name} ended with {code}; {held} answers before, {now} after")
            if code == -signal.SIGKILL:
                found["kills"] += 1
                found["kills_that_hit_a_run_in_progress"] += now > held
            else:
                found["finished" if code == 0 else "refused"] += 1  # refused: the other one has gone on since
                del left[name]
                unit = time.monotonic() - began if not found["rounds"] else unit
            held = now
        if [path.name for path in own.glob("*.sqlite")] != ["votes.ledger.sqlite"]:
            raise AssertionError("a second ledger was begun for the same votes")
        found["rounds"] += 1
    return {**found, "seconds": round(time.monotonic() - start, 1)}


def writers(folder: Path, *, rounds: int = 5) -> dict[str, Any]:
    """Two processes on one ledger: the second waits and continues, or is refused; nothing is spent twice."""
    votes, panel = voting(2000)
    wanted = label(votes, panel, NOISY, METER, noise=NOISE)
    outcomes = {"waited": 0, "refused": 0}
    for number in range(rounds):
        path, told = folder / f"two{number}.sqlite", folder / f"two{number}.told"
        waits = 60.0 if number % 2 else 0.0
        first = forked(lambda p=path, t=told: run(p, t, votes, panel, batch=3))  # type: ignore[misc]
        second = forked(lambda p=path, t=told, w=waits: run(p, t, votes, panel, batch=3, timeout=w))  # type: ignore[misc]
        codes = sorted(os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in (first, second))
        if codes not in ([0, 0], [0, 3]) or (waits and codes != [0, 0]):
            raise AssertionError(f"two writers ended with {codes}")
        outcomes["waited" if codes == [0, 0] else "refused"] += 1
        if inspect(path, told) != wanted.n_queries:
            raise AssertionError("two writers released another number of queries")
        same(run(path, None, votes, panel, batch=3), wanted)
    return outcomes


def full(folder: Path, *, rounds: int = 8) -> dict[str, Any]:
    """A file-size limit as a full disk: labelling is refused clearly, and goes on when there is room."""
    votes, panel = voting(2000)
    wanted = label(votes, panel, NOISY, METER, noise=NOISE)
    refused = 0

    def limited(path: Path, told: Path, size: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        run(path, told, votes, panel, batch=4)

    for number in range(rounds):
        path, told = folder / f"full{number}.sqlite", folder / f"full{number}.told"
        size = 100_000 + 60_000 * number
        child = forked(lambda p=path, t=told, s=size: limited(p, t, s))  # type: ignore[misc]
        code = os.WEXITSTATUS(os.waitpid(child, 0)[1])
        if code not in (0, 3):
            raise AssertionError(f"a full disk ended with {code}")
        refused += code == 3
        inspect(path, told)
        same(run(path, None, votes, panel, batch=4), wanted)
        inspect(path, told)
    return {"full_disks": rounds, "refused_clearly": refused}


def speed(folder: Path) -> list[dict[str, Any]]:
    """Queries per second with 3 groups, by bound and batch size, and the cost of a commit."""
    rows = []
    votes, panel = voting(20_000, teachers=250, classes=10)
    quiet = Confident(mechanism=Mechanism(sigma=1e5, check_sigma=1e5, threshold=0.0))  # nobody runs out
    bounds: tuple[tuple[str, tuple[int, ...]], ...] = (("gdp", (1, 10, 100, 1000)), ("tight", (1, 10, 100, 1000)))
    for bound, sizes in bounds:
        meter = Meter(bound)
        for batch in sizes:
            queries = min(20_000, 400 * batch if batch < 10 else 1000 * batch)
            path = folder / f"speed-{bound}-{batch}.sqlite"
            terms = account_terms(panel, meter, quiet)

            def work(
                book: SqliteLedger | None = None, batch: int = batch, queries: int = queries, meter: Meter = meter
            ) -> float:
                start = time.perf_counter()
                label(votes, panel, quiet, meter, noise=NOISE, ledger=book, batch=batch, max_queries=queries)
                return time.perf_counter() - start

            memory = work()
            with Timed.begin(path.with_suffix(".careless"), opened(terms)) as careless:
                file = cast("SqliteStorage", careless._file)
                file._connection.execute("PRAGMA synchronous = OFF")  # what the commit costs without the disk
                work(careless)
            with Timed.begin(path, opened(terms)) as book:
                took = work(book)
                start = time.perf_counter()
                book.verify()
                verified = time.perf_counter() - start
            rows.append(
                {
                    "bound": bound,
                    "width": meter.width,
                    "batch": batch,
                    "queries": queries,
                    "queries_per_s": round(queries / took),
                    "in_memory_per_s": round(queries / memory),
                    "charge_ms": round(1e3 * float(np.median(book.times)), 3),
                    "charge_ms_without_fsync": round(1e3 * float(np.median(careless.times)), 3),
                    "bytes_per_query": round(path.stat().st_size / queries),
                    "verify_s": round(verified, 3),
                }
            )
    return rows


class Timed(SqliteLedger):
    """Measures how long every charge takes."""

    times: list[float]

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.times = []

    def charge(self, charge: Charge) -> None:
        """Charge, with the clock running."""
        start = time.perf_counter()
        super().charge(charge)
        self.times.append(time.perf_counter() - start)


def fsync_ms(folder: Path, *, rounds: int = 200) -> float:
    """What one fsync of one page costs on this disk."""
    handle = os.open(folder / "page", os.O_RDWR | os.O_CREAT)
    taken = []
    for _ in range(rounds):
        os.write(handle, bytes(4096))
        start = time.perf_counter()
        os.fsync(handle)
        taken.append(time.perf_counter() - start)
    os.close(handle)
    return round(1e3 * float(np.median(taken)), 3)


def main() -> int:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop killing after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=["kills", "shared", "writers", "full", "speed"])
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="ipate-crash-") as name:
        folder = Path(name)
        if asked.only in (None, "kills"):
            found["kills"] = kills(folder, asked.kills, seconds=asked.seconds, seed=asked.seed)
        if asked.only in (None, "shared"):
            found["shared"] = shared(folder, asked.kills, seconds=asked.seconds, seed=asked.seed)
        if asked.only in (None, "writers"):
            found["writers"] = writers(folder)
        if asked.only in (None, "full"):
            found["full"] = full(folder)
        if asked.only in (None, "speed"):
            found["fsync_ms"] = fsync_ms(folder)
            found["speed"] = speed(folder)
    if asked.json:
        print(json.dumps(found))
        return 0
    for title, value in found.items():
        for line in value if isinstance(value, list) else [value]:
            shown = ", ".join(f"{k} {v}" for k, v in line.items()) if isinstance(line, dict) else str(line)
            print(f"{title}: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
