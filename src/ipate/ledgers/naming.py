"""Names of runs in a ledger, and the rule that seeded runs and private ones never share one."""

from collections.abc import Iterable

from ipate.errors import InputError

__all__ = ["check_noise", "is_seeded", "name_run"]

_SEEDED = " (seeded)"


def name_run(name: str, *, seeded: bool) -> str:
    """Return the name under which a run is charged; a seeded one says so for good."""
    return f"{name}{_SEEDED}" if seeded else name


def is_seeded(run: str) -> bool:
    """Whether a run's name says that its noise was seeded."""
    return run.endswith(_SEEDED)


def check_noise(ledger: str, runs: Iterable[str], run: str) -> None:
    """Refuse to charge a run to a ledger whose runs have the other kind of noise.

    A seeded run tells its votes to whoever knows the seed: no later account of the same people would be true.
    """
    others = [name for name in runs if is_seeded(name) != is_seeded(run)]
    if others:
        what = "seeded, and not private" if is_seeded(others[0]) else "private, with secret noise"
        raise InputError(
            f"{ledger}: run {others[0]!r} of this ledger is {what}: seeded runs and private ones must not share one; "
            "name another ledger"
        )
