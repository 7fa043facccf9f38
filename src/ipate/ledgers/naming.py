"""Names of runs in a ledger, and the rule that seeded runs and private ones never share one."""

from pathlib import Path

from ipate.errors import InputError
from ipate.ledgers.opening import run_names

__all__ = ["is_seeded", "name_run", "refuse_mixed_noise"]

_SEEDED = " (seeded)"


def name_run(name: str, *, seeded: bool) -> str:
    """Return the name under which a run is charged; a seeded one says so for good."""
    return f"{name}{_SEEDED}" if seeded else name


def is_seeded(run: str) -> bool:
    """Whether a run's name says that its noise was seeded."""
    return run.endswith(_SEEDED)


def refuse_mixed_noise(path: str | Path, run: str) -> None:
    """Refuse to charge seeded and private runs to one ledger.

    A seeded run tells its votes to whoever knows the seed: no later account of the same people would be true.
    """
    others = [name for name in run_names(path) if is_seeded(name) != is_seeded(run)]
    if others:
        what = "seeded, and not private" if is_seeded(others[0]) else "private, with secret noise"
        raise InputError(
            f"{path}: run {others[0]!r} of this ledger is {what}: seeded runs and private ones must not share one; "
            "name another ledger"
        )
