"""Break the code of a run on purpose and let `ipate audit` find it; then audit sound runs, where it must find nothing.

    python benchmarks/audit.py [--runs 20] [--only NAME ...] [--jobs 2] [--list]

A fault is a textual patch to a copy of `src`, as in `benchmarks/mutants.py`; runs are made and audited with the patched
copy, in a process of its own, and nobody tells the audit. Every run has its own split seed and secure noise. Prints how
many audits found something, the group and attack with the largest bound beside its promise and charge, and the seconds
per audit; exits with 1 unless every fault was found in every run and no sound run was.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FAULTS", "KINDS", "Fault", "patched"]

ROOT = Path(__file__).resolve().parents[1]
SOUND = "sound"
POLICY = {"high": 1.0, "average": 2.0, "low": 3.0}
TEACHERS = {"model": "bayes", "backend": "sequential", "number": 60}
KINDS: dict[str, dict[str, Any]] = {
    "labels": {"teachers": TEACHERS},
    "counts": {"teachers": TEACHERS, "labelling": {"counts": True}},
    "upsampling": {"teachers": TEACHERS, "labelling": {"variant": "upsampling"}},
    "ballots": {"labelling": {"voting": "ballots"}},
}


@dataclass(frozen=True)
class Fault:
    """One fault: `old` stands once in `file`, `new` replaces it; `kinds` are the runs in which it matters."""

    name: str
    file: str
    old: str
    new: str
    kinds: tuple[str, ...] = ("labels",)


FAULTS = (
    Fault(
        "noise of labels halved",
        "engines/teachers/aggregators.py",
        'return self.mechanism.sigma * noise.normal("label", queries, width)',
        'return 0.5 * self.mechanism.sigma * noise.normal("label", queries, width)',
        ("labels", "counts"),
    ),
    Fault(
        "one draw of noise for all classes",
        "engines/teachers/aggregators.py",
        'return self.mechanism.sigma * noise.normal("label", queries, width)',
        'return self.mechanism.sigma * noise.normal("label", queries, 1) * np.ones(width)',
        ("labels", "counts"),
    ),
    Fault(
        "noise of checks halved",
        "engines/teachers/aggregators.py",
        "lead + check_sigma * draws >= threshold",
        "lead + 0.5 * check_sigma * draws >= threshold",
    ),
    Fault(
        "noise of ballots halved",
        "engines/ballots/counting.py",
        'drawn = SIGMA * noise.normal("ballots"',
        'drawn = 0.5 * SIGMA * noise.normal("ballots"',
        ("ballots",),
    ),
    Fault(
        "√2 of ballots forgotten",
        "engines/ballots/design.py",
        "return terms.meter.vector_cost(sensitivity=weight, sigma=SIGMA)",
        "return terms.meter.vector_cost(sensitivity=weight / math.sqrt(2), sigma=SIGMA)",
        ("ballots",),
    ),
    Fault(
        "√r of ballots forgotten",
        "engines/ballots/design.py",
        "found = {account: root * (units * GRID) for account, units in self.units.items()}",
        "found = {account: 1.0 * (units * GRID) for account, units in self.units.items()}",
        ("ballots",),
    ),
    Fault(
        "checks uncharged",
        "engines/teachers/loop.py",
        "paid = checks + outcome.answered[:, None, None] * label_cost",
        "paid = 0 * checks + outcome.answered[:, None, None] * label_cost",
        ("labels", "counts"),
    ),
    Fault(
        "two teachers share a person",
        "allocation/allocation.py",
        "slots = self.persons[self.offsets[index] : self.offsets[index + 1]]",
        "slots = self.persons[self.offsets[index] : self.offsets[index + 1] + 1]",
    ),
    Fault(
        "two teachers share all their people",
        "engines/teachers/engine.py",
        "rows = [allocation.rows_of_teacher(index) for index in range(allocation.n_teachers)]",
        "rows = [allocation.rows_of_teacher(index // 2 * 2) for index in range(allocation.n_teachers)]",
        ("labels", "upsampling"),
    ),
    Fault(
        "budgets of teachers swapped between groups",
        "allocation/allocation.py",
        "[position[layout.home[group.id]] for group in people.groups]",
        "[position[layout.home[group.id]] for group in reversed(people.groups)]",
    ),
    Fault(
        "budgets of ballots swapped between groups",
        "engines/ballots/counting.py",
        "by_group = np.array([design.units[group.id] for group in people.groups], dtype=np.int64)",
        "by_group = np.array([design.units[group.id] for group in reversed(people.groups)], dtype=np.int64)",
        ("ballots",),
    ),
)


def patched(fault: Fault) -> str:
    """Return the text of the fault's file with the patch; refuse a pattern that isn't there exactly once."""
    text = (ROOT / "src" / "ipate" / fault.file).read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise ValueError(f"fault {fault.name!r}: its pattern stands {text.count(fault.old)} times in {fault.file}")
    return text.replace(fault.old, fault.new)


def audits(kind: str, runs: int) -> None:
    """Make and audit runs with the source on Python's path; print one JSON line per audit."""
    from ipate.audit.auditing import audit
    from ipate.config import RunConfig
    from ipate.runs.folder import RunFolder
    from ipate.runs.stages import execute

    @contextmanager
    def quiet(*_: Any) -> Iterator[Any]:
        yield lambda done: None

    for seed in range(runs):
        stated = {
            "data": {"name": "synthetic", "public": 1000, "test": 41_000},
            "budgets": {"policy": POLICY},
            "student": {"model": "bayes"},
            "split_seed": seed,
            **KINDS[kind],
        }
        with tempfile.TemporaryDirectory(prefix="ipate-audited-") as folder:
            path = Path(folder, "run")
            execute(RunFolder.create(path, RunConfig.from_mapping(stated)), bar=quiet)
            found = audit(path)
        shown = [(group, attack) for group in found.groups for attack in group.attacks]
        group, attack = max(shown, key=lambda entry: _ratio(*entry))
        line = {
            "found": found.found,
            "seconds": found.seconds,
            "group": group.group,
            "promised": group.promised,
            "attack": attack.name,
            "charged": attack.charged,
            "reached": attack.reached,
        }
        print(json.dumps(line), flush=True)


def _ratio(group: Any, attack: Any) -> float:
    least = group.promised if attack.charged is None else min(group.promised, attack.charged)
    return float("inf") if least == 0 else attack.reached / least


def outcome(fault: Fault | None, kind: str, runs: int) -> list[dict[str, Any]]:
    """Return what so many audits found with the patched source, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="ipate-fault-") as folder:
        copy = Path(folder, "src")
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        if fault is not None:
            (copy / "ipate" / fault.file).write_text(patched(fault), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--child", kind, "--runs", str(runs)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{fault.name if fault else SOUND} ({kind}): {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="names of faults, or 'sound'")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        audits(given.child, given.runs)
        return 0
    cases: list[tuple[Fault | None, str]] = [(fault, kind) for fault in FAULTS for kind in fault.kinds]
    cases += [(None, kind) for kind in KINDS]
    cases = [case for case in cases if not given.only or (case[0].name if case[0] else SOUND) in given.only]
    if given.list:
        for fault, kind in cases:
            print(f"{fault.name if fault else SOUND} ({kind})")
        return 0
    wrong = False
    print("| fault | run | found | group, attack: reached against promised and charged ε | seconds per audit |")
    print("| --- | --- | --- | --- | --- |")
    with ThreadPoolExecutor(given.jobs) as pool:
        waiting = [(case, pool.submit(outcome, *case, given.runs)) for case in cases]
        for (fault, kind), future in waiting:
            lines = future.result()
            hits = sum(line["found"] for line in lines)
            wrong |= hits != (0 if fault is None else len(lines))
            last = lines[-1]
            shown = f"{last['group']}, {last['attack']}: {last['reached']:.3g} against {last['promised']:g} and "
            times = [line["seconds"] for line in lines]
            print(
                f"| {fault.name if fault else SOUND} | {kind} | {hits} of {len(lines)} | {shown}"
                f"{last['charged']:.3g} | {sum(times) / len(times):.1f} |",
                flush=True,
            )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
