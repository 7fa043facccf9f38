"""About how long a piece of work takes, so that anything over a minute says so before it starts."""

import os
from collections.abc import Callable, Iterable

from paper.jobs import FOREST, GRAPH, SEMI, Job

_CPU = {"paper-mnist": 0.01, "small": 0.015, "vgg": 0.05, "vgg-plain": 0.05}
"""Seconds per step of one model on two cores; the other cores of a larger machine are counted as as fast."""
_GPU = {"paper-mnist": 4.5e-5, "small": 6.6e-5, "vgg": 1.4e-4, "vgg-plain": 1.4e-4}
"""Seconds per step of one of 250 models that an NVIDIA H200 trains together (docs/benchmarks.md)."""
_OTHERS = {FOREST: 0.25, GRAPH: 1.0, SEMI: 180.0}  # seconds per model: forests on one core, students of the whole pool

PAGES = {
    "table1": (4.0, 1.5),
    "mnist-labels": (4.0, 5.0),
    "mnist-students": (4.0, 5.0),
    "adult-labels": (1.0, 2.0),
    "adult-students": (1.0, 2.0),
    "fig-cost-history": (8.0, 2.0),
    "fig-ratios": (3.0, 1.5),
    "errata": (1.0, 1.0),
    "beyond": (100.0, 0.0),
}
"""Seconds of a page for one ensemble, and for each of its votings, without trainings, measured on two cores."""


def page_seconds(name: str, *, ensembles: int, votings: int) -> float:
    """Estimate the time of a page when all votes are there."""
    one, voting = PAGES.get(name, (0.0, 0.0))
    return ensembles * (one + votings * voting)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def training_seconds(jobs: Iterable[Job], *, gpu: bool) -> float:
    """Estimate the time of training jobs on this machine."""
    return sum(_seconds(job, gpu=gpu) for job in jobs)


def _seconds(job: Job, *, gpu: bool) -> float:
    if job.preset in _OTHERS:
        return job.n_models * _OTHERS[job.preset] / (cores() if job.preset == FOREST else 1)
    return steps(job) * (_GPU[job.preset] if gpu else _CPU[job.preset] * 2 / cores())


def steps(job: Job) -> float:
    """Return the number of steps of all nets of a job."""
    from ipate.torch.nets import find_preset

    preset = find_preset(job.preset).lasting(epochs=job.epochs, steps=job.steps)
    return float(job.n_models * preset.n_steps(len(job.indices) / job.n_models))


def announce(log: Callable[[str], None], what: str, seconds: float) -> None:
    """Say how long something will take, if that is more than a minute."""
    if seconds > 60:
        log(f"{what}: about {_words(seconds)}")


def _words(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minutes" if minutes < 120 else f"{round(minutes / 60)} hours"
