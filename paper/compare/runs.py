"""Run what is missing in worker processes, and keep every result by method, data set, budget and run.

    python -m paper.compare.runs --kept KEPT.json --data-dir DIR [--place gpu --workers 7 --cpu-workers 6]

A result is written as soon as it is there, so that an interrupted call loses the runs in flight and no other. Nothing
is run again that KEPT.json holds; `--again METHOD` drops the kept runs of a method first, and `--merge FILE` takes
over the results of another machine. A machine needs numpy, scipy, scikit-learn and narwhals, and for images and DP-SGD
torch, skorch and opacus.
"""

import argparse
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ipate.errors import InputError, refuse_name
from paper.compare import dpsgd
from paper.compare.kept import Kept, cell_key
from paper.compare.methods import METHODS, ON_CPU, PREPARE, TUNED_ON, Method
from paper.compare.outcome import PER_RUN, Outcome, Studio, one_thread
from paper.compare.worlds import BUDGETS, SPECS, Spec, World, make_world

QUICK_DATA = ("digits",)
QUICK_BUDGETS = ("1", "54/37/9% at .1/.5/2")
_QUICK_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Options:
    """How much is run: `runs` of a data set at most, and for a quick try smaller data and shorter trainings."""

    runs: int | None = None
    quick: bool = False
    data_dir: Path | None = None
    only: tuple[str, ...] = ()  # data sets; all of them by default
    methods: tuple[str, ...] = ()
    places: tuple[str, ...] = ("cpu", "gpu")

    def n_runs(self, spec: Spec) -> int:
        """Return the number of runs on a data set."""
        return 1 if self.quick else min(spec.runs, self.runs or spec.runs)

    def world(self, data: str, seed: int) -> World:
        """Return the rows of a run."""
        shrink = 1
        if self.quick:
            shrink = 100 if SPECS[data].images else max(2, SPECS[data].people // 500)
        return make_world(data, seed, self.data_dir, shrink=shrink)

    def studio(self, folder: Path) -> Studio:
        """Return where prepared models are kept."""
        return Studio(folder=folder, steps=_QUICK_STEPS if self.quick else None)

    def budgets(self, method: Method, spec: Spec) -> tuple[str, ...]:
        """Return the budgets that a method is run with."""
        every = method.budgets_on(spec)
        return tuple(name for name in every if name in ("", *QUICK_BUDGETS)) if self.quick else every

    def wants(self, method: Method, spec: Spec) -> bool:
        """Whether a method is run on a data set by this call."""
        data = self.only or (QUICK_DATA if self.quick else tuple(SPECS))
        named = spec.name in data and (not self.methods or method.name in self.methods)
        return named and method.runs_on(spec) and method.place(spec) in self.places


@dataclass(frozen=True, kw_only=True)
class Task:
    """Runs that one worker does in a row: one run of all budgets, or all runs of one budget where settings compete."""

    method: str
    data: str
    budgets: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """A short text for progress."""
        what = self.budgets[0] if len(self.budgets) == 1 else f"{len(self.budgets)} budgets"
        return f"{self.method} on {self.data}, {what or 'no budget'}, run {','.join(map(str, self.seeds))}"

    @property
    def needs(self) -> tuple[tuple[str, str, int], ...]:
        """What must be prepared: (what, data set, run)."""
        needed = METHODS[self.method].needs.get(SPECS[self.data].images, ())
        return tuple((what, self.data, self.seeds[0] if what in PER_RUN else 0) for what in needed)

    @property
    def urgency(self) -> tuple[int, int, int]:
        """Sort by this: what takes longest first, then ipate, rivals and ceilings, one run after another."""
        method, spec = METHODS[self.method], SPECS[self.data]
        kind = 0 if method.opacus else 1 if method.ours else 2 if method.budgets != "nobody" else 3
        return -spec.people, kind, self.seeds[0]

    @property
    def place(self) -> str:
        """Where it runs."""
        return METHODS[self.method].place(SPECS[self.data])


def missing_tasks(kept: Kept, options: Options) -> list[Task]:
    """Return what the kept results lack, by methods and data sets that this call wants."""
    found: list[Task] = []
    for spec in SPECS.values():
        seeds = range(options.n_runs(spec))
        for method in METHODS.values():
            if not options.wants(method, spec):
                continue
            budgets = options.budgets(method, spec)
            lacking = {
                budget: tuple(
                    s for s in seeds if str(s) not in kept.runs.get(cell_key(method.name, spec.name, budget), {})
                )
                for budget in budgets
            }
            if method.grid is not None:  # the setting is chosen over runs, so they belong together
                found += [
                    Task(method=method.name, data=spec.name, budgets=(budget,), seeds=tuple(seeds))
                    for budget, own in lacking.items()
                    if own
                ]
                continue
            for seed in seeds:
                own_budgets = tuple(budget for budget, own in lacking.items() if seed in own)
                if own_budgets and spec.images and method.budgets != "nobody":
                    found += [
                        Task(method=method.name, data=spec.name, budgets=(budget,), seeds=(seed,))
                        for budget in own_budgets
                    ]
                elif own_budgets:
                    found.append(Task(method=method.name, data=spec.name, budgets=own_budgets, seeds=(seed,)))
    return sorted(found, key=lambda task: task.urgency)


def run_task(task: Task, options: Options, folder: Path) -> Kept:
    """Run a task in this process."""
    method, spec, kept = METHODS[task.method], SPECS[task.data], Kept()
    run = method.image if spec.images else method.table
    assert run is not None  # noqa: S101 - `missing_tasks` asks for nothing else
    with one_thread():
        if method.grid is not None:
            return _tuned(task, run, options)
        for seed in task.seeds:
            world = options.world(task.data, seed)
            for budget in task.budgets:
                mix = BUDGETS.get(budget)
                found = run(world, mix, options.studio(folder))
                kept.runs.setdefault(cell_key(task.method, task.data, budget), {})[str(seed)] = found.json()
    return kept


def _tuned(task: Task, run: Callable[..., Outcome], options: Options) -> Kept:
    """Choose the setting of the best mean accuracy on the test rows of the first runs, and use it in all runs."""
    spec, method = SPECS[task.data], METHODS[task.method]
    (budget,) = task.budgets
    grid: Mapping[str, Any] = {} if method.grid is None else method.grid(spec.images)
    if options.quick:
        grid = dict(list(grid.items())[:2])
    worlds = [options.world(task.data, seed) for seed in task.seeds]
    mix = BUDGETS[budget]
    first = worlds[: TUNED_ON[spec.images]]
    tried = {name: [run(world, mix, setting) for world in first] for name, setting in grid.items()}
    scores = {name: [outcome.accuracy for outcome in own] for name, own in tried.items()}
    best = max(scores, key=lambda name: float(np.mean([value or 0.0 for value in scores[name]])))
    outcomes = [*tried[best], *(run(world, mix, grid[best]) for world in worlds[len(first) :])]
    key = cell_key(task.method, task.data, budget)
    found = {str(seed): {**outcome.json(), "note": best} for seed, outcome in zip(task.seeds, outcomes, strict=True)}
    return Kept(runs={key: found}, tuning={key: scores})


def prepare(what: str, data: str, seed: int, options: Options, folder: Path) -> float:
    """Prepare what several runs on images share; return the seconds it took."""
    start = time.perf_counter()
    with one_thread():
        PREPARE[what](options.world(data, seed), options.studio(folder))
    return time.perf_counter() - start


def _start_worker(threads: int) -> None:
    """Limit the threads of a worker process."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.set_num_threads(threads)


def run_missing(
    kept: Kept,
    options: Options,
    *,
    workers: int = 1,
    cpu_workers: int = 0,
    seconds: float = math.inf,
    folder: Path,
    save: Callable[[Kept], None],
    log: Callable[[str], None],
) -> list[str]:
    """Run all missing tasks in worker processes; return what failed or cannot run here, one line each.

    `workers` share the device; `cpu_workers`, if any, do what belongs on a CPU beside them. No task is started after
    `seconds`.
    """
    tasks = missing_tasks(kept, options)
    problems: list[str] = []
    if not dpsgd.available() and any(METHODS[task.method].opacus for task in tasks):
        problems.append("DP-SGD was left out, because Opacus is not installed: pip install 'ipate[bench]'")
        tasks = [task for task in tasks if not METHODS[task.method].opacus]
    if not tasks:
        return problems
    done, start = 0, time.perf_counter()

    def finish(name: str, result: Kept | float | BaseException) -> None:
        nonlocal done
        if isinstance(result, BaseException):
            problems.append(f"{name} failed: {type(result).__name__}: {' '.join(str(result).split())[:300]}")
            log(problems[-1])
            return
        took = f"{time.perf_counter() - start:.0f} s since the start"
        if isinstance(result, Kept):
            kept.merge(result)
            save(kept)
            done += 1
            log(f"[{done}/{len(tasks)}] {name}, {took}")
        else:
            log(f"prepared {name} in {result:.0f} s, {took}")

    if workers + cpu_workers <= 1:
        _one_by_one(tasks, options, folder, finish)
    else:
        _side_by_side(
            tasks, options, folder, finish, workers=workers, cpu_workers=cpu_workers, deadline=start + seconds
        )
    if done < len(tasks) - len(problems):
        problems.append(f"no time was left for {len(tasks) - done} of {len(tasks)} tasks")
    return problems


Finish = Callable[[str, Any], None]


def _one_by_one(tasks: Sequence[Task], options: Options, folder: Path, finish: Finish) -> None:
    ready: set[tuple[str, str, int]] = set()
    for task in tasks:
        try:
            for need in task.needs:
                if need not in ready:
                    finish(_need_name(need), prepare(*need, options, folder))
                    ready.add(need)
            finish(task.name, run_task(task, options, folder))
        except Exception as error:
            finish(task.name, error)


def _need_name(need: tuple[str, str, int]) -> str:
    return f"{need[0]} of {need[1]}, run {need[2]}"


def _side_by_side(
    tasks: Sequence[Task],
    options: Options,
    folder: Path,
    finish: Finish,
    *,
    workers: int,
    cpu_workers: int,
    deadline: float,
) -> None:
    """Run tasks in two pools; a task starts when everything that it needs is prepared."""
    context = multiprocessing.get_context("spawn")
    pools = {"gpu": ProcessPoolExecutor(max(1, workers), context, initializer=_start_worker, initargs=(1,))}
    pools["cpu"] = (
        ProcessPoolExecutor(cpu_workers, context, initializer=_start_worker, initargs=(1,))
        if cpu_workers
        else pools["gpu"]
    )
    needs = {need: "cpu" if need[0] in ON_CPU else "gpu" for task in tasks for need in task.needs}
    waiting = list(tasks)
    ready: set[tuple[str, str, int]] = set()
    failed: set[tuple[str, str, int]] = set()
    flying: dict[Future[Any], tuple[str, Any, str]] = {}
    free = {"gpu": max(1, workers), "cpu": cpu_workers or max(1, workers)}
    unprepared = list(needs.items())
    try:
        while flying or waiting:
            late = time.perf_counter() > deadline
            for need, place in [] if late else list(unprepared):
                if _in_flight(flying, place, pools) < free[place]:
                    unprepared.remove((need, place))
                    flying[pools[place].submit(prepare, *need, options, folder)] = (_need_name(need), need, place)
            for task in [] if late else [t for t in waiting if set(t.needs) <= ready]:
                if _in_flight(flying, task.place, pools) < free[task.place]:
                    waiting.remove(task)
                    flying[pools[task.place].submit(run_task, task, options, folder)] = (task.name, None, task.place)
            for task in [t for t in waiting if set(t.needs) & failed]:
                waiting.remove(task)
                finish(task.name, InputError("what it needs could not be prepared"))
            if not flying:
                break
            over, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in over:
                name, need, _ = flying.pop(future)
                error = future.exception()
                if need is not None:
                    (failed if error else ready).add(need)
                finish(name, error or future.result())
    finally:
        for pool in {id(pool): pool for pool in pools.values()}.values():
            pool.shutdown(wait=True, cancel_futures=True)


def _in_flight(flying: Mapping[Future[Any], tuple[str, Any, str]], place: str, pools: Mapping[str, Any]) -> int:
    """Return how many tasks the pool of a place has."""
    return sum(pools[own] is pools[place] for _, _, own in flying.values())


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0, or 1 where something failed."""
    parser = argparse.ArgumentParser(
        prog="python -m paper.compare.runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--place", choices=("cpu", "gpu", "all"), default="all")
    parser.add_argument("--only", nargs="*", default=(), help="data sets")
    parser.add_argument("--methods", nargs="*", default=())
    parser.add_argument("--again", nargs="*", default=(), help="drop the kept runs of these methods first")
    parser.add_argument("--merge", type=Path, nargs="*", default=(), help="take over these kept results and stop")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the device")
    parser.add_argument("--cpu-workers", type=int, default=0, help="further processes for what needs none")
    parser.add_argument("--work", type=Path, help="the folder of prepared models; by default a new one")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float, default=math.inf, help="start nothing after so many seconds")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(arguments)
    for name, known in (*((m, METHODS) for m in (*args.methods, *args.again)), *((d, SPECS) for d in args.only)):
        if name not in known:
            refuse_name("name", name, tuple(known))
    kept = Kept.read(args.kept)
    if args.merge:
        for path in args.merge:
            kept.merge(Kept.read(path))
        kept.write(args.kept)
        return 0
    kept.runs = {key: own for key, own in kept.runs.items() if key.split("|")[0] not in args.again}
    options = Options(
        runs=args.runs,
        quick=args.quick,
        data_dir=args.data_dir,
        only=tuple(args.only),
        methods=tuple(args.methods),
        places=("cpu", "gpu") if args.place == "all" else (args.place,),
    )
    with tempfile.TemporaryDirectory() as new:
        problems = run_missing(
            kept,
            options,
            workers=args.workers,
            cpu_workers=args.cpu_workers,
            seconds=args.seconds,
            folder=args.work or Path(new),
            save=lambda found: found.write(args.kept),
            log=_tell,
        )
    _tell_all(problems)
    return 1 if problems else 0


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _tell_all(lines: Iterable[str]) -> None:
    for line in lines:
        _tell(line)


if __name__ == "__main__":
    sys.exit(main())
