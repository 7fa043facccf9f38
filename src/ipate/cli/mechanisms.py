"""The options that describe an aggregator, turned into a mechanism."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ipate.aggregators import Aggregator, Confident, GNMax, Interactive, LNMax
from ipate.cli.common import load_npy
from ipate.errors import InputError
from ipate.labelling.checks import check_probs
from ipate.mechanism import Mechanism
from ipate.votes import Votes

__all__ = ["AGGREGATORS", "build_aggregator", "build_mechanism", "load_probs"]

AGGREGATORS = ("gnmax", "confident", "interactive", "lnmax")


def build_mechanism(
    aggregator: str,
    *,
    sigma: float | None,
    check_sigma: float | None,
    threshold: float | None,
    scale: float | None,
    gamma: float | None,
    student_probs: Path | None,
) -> tuple[Mechanism, bool]:
    """Return the mechanism that the options describe, and whether its check is interactive."""
    if aggregator == "auto":
        aggregator = _guess(check_sigma, threshold, scale, student_probs)
    if aggregator not in AGGREGATORS:
        raise InputError(f"aggregator is {aggregator!r}: it must be one of {', '.join(AGGREGATORS)}")
    if aggregator in ("gnmax", "lnmax"):
        _refuse(f"{aggregator} has no check; use confident", check_sigma=check_sigma, threshold=threshold)
    if aggregator != "interactive":
        _refuse(f"{aggregator} has no student; use interactive", student_probs=student_probs, gamma=gamma)
    if aggregator == "lnmax":
        if sigma is not None:
            raise InputError(f"sigma is {sigma:g}: lnmax has Laplace noise, whose size is --scale")
        return Mechanism(sigma=_need("scale", scale, aggregator), noise="laplace"), False
    if scale is not None:
        raise InputError(f"scale is {scale:g}: {aggregator} has Gaussian noise, whose size is --sigma")
    if aggregator == "gnmax":
        return Mechanism(sigma=_need("sigma", sigma, aggregator)), False
    mechanism = Mechanism(
        sigma=_need("sigma", sigma, aggregator),
        check_sigma=_need("check_sigma", check_sigma, aggregator),
        threshold=_need("threshold", threshold, aggregator),
    )
    interactive = aggregator == "interactive"
    if interactive and student_probs is None:
        raise InputError("student_probs is not given: interactive compares the votes with the student's probabilities")
    if gamma is not None and not 0 <= gamma <= 1:
        raise InputError(f"gamma is {gamma:g}: it must lie between 0 and 1")
    return mechanism, interactive


def build_aggregator(
    aggregator: str,
    *,
    sigma: float | None,
    check_sigma: float | None,
    threshold: float | None,
    scale: float | None,
    gamma: float | None,
    student_probs: Path | None,
) -> Aggregator:
    """Return the aggregator that the options describe."""
    mechanism, interactive = build_mechanism(
        aggregator,
        sigma=sigma,
        check_sigma=check_sigma,
        threshold=threshold,
        scale=scale,
        gamma=gamma,
        student_probs=student_probs,
    )
    if mechanism.noise == "laplace":
        return LNMax(mechanism=mechanism)
    if interactive:
        return Interactive(mechanism=mechanism, gamma=0.9 if gamma is None else gamma)
    return Confident(mechanism=mechanism) if mechanism.has_check else GNMax(mechanism=mechanism)


def _guess(check_sigma: float | None, threshold: float | None, scale: float | None, student_probs: Path | None) -> str:
    if scale is not None:
        return "lnmax"
    if student_probs is not None:
        return "interactive"
    return "gnmax" if check_sigma is None and threshold is None else "confident"


def _refuse(why: str, **options: object) -> None:
    """An option that this aggregator would ignore is refused: a check left out would go unpaid."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} is {value}: {why}")


def _need(name: str, value: float | None, aggregator: str) -> float:
    if value is None:
        raise InputError(f"{name} is not given: {aggregator} needs --{name.replace('_', '-')}")
    return value


def load_probs(path: Path | None, votes: Votes) -> NDArray[np.float64] | None:
    """Read the student's probabilities, queries × classes, each row summing to 1."""
    if path is None:
        return None
    return check_probs(load_npy(path, "--student-probs"), votes.n_queries, votes.n_classes)
