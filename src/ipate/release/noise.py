"""Noise sources; all noise is drawn here, cryptographically secure by default or from a seed.

Every draw names its purpose (check or label) and its queries. Each purpose has a separate stream, so that two releases
never share noise. A label is an argmax and a check a comparison, and noisy counts are rounded at once (`in_steps`): no
noisy double is released, so the low bits of floating-point numbers reveal nothing.
"""

import hashlib
import os
import secrets
import weakref
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.errors import InputError

STEPS = 8  # noisy counts are released in whole multiples of σ/8
_LARGEST = 2.0**53  # such a number of steps is exact in a double
_BITS = 52  # (word + ½)·2^−52 is exact in a double and lies strictly between 0 and 1


class NoiseSource(Protocol):
    """Standard noise for named purposes; `seeded` says whether the draws can be reproduced."""

    seeded: bool

    def normal(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return independent N(0, 1) draws, one row of `width` per query."""

    def laplace(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return independent Laplace(1) draws, one row of `width` per query."""

    def uniform(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return independent uniform draws from [0, 1), one row of `width` per query."""


class SecureNoise:
    """Unpredictable noise: ChaCha20 with a 256-bit key per purpose from the operating system.

    Copies, pickles and forked children draw new keys, so that the same noise is never used twice.
    """

    seeded = False

    def __init__(self) -> None:
        self._streams: dict[str, np.random.Generator] = {}
        _SOURCES.add(self)

    def __reduce__(self) -> tuple[type["SecureNoise"], tuple[()]]:
        return SecureNoise, ()  # copies and pickles draw new keys

    def forget(self) -> None:
        """Discard the keys; the next draw generates new ones."""
        self._streams = {}

    def normal(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return fresh N(0, 1) draws of shape (queries, width)."""
        return self._stream(purpose).standard_normal((len(queries), width))

    def laplace(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return fresh Laplace(1) draws of shape (queries, width)."""
        return self._stream(purpose).laplace(size=(len(queries), width))

    def uniform(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return fresh uniform draws of shape (queries, width)."""
        return self._stream(purpose).random((len(queries), width))

    def _stream(self, purpose: str) -> np.random.Generator:
        if purpose not in self._streams:
            from randomgen import ChaCha

            self._streams[purpose] = np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))
        return self._streams[purpose]


_SOURCES: "weakref.WeakSet[SecureNoise]" = weakref.WeakSet()


def _after_fork() -> None:
    for source in _SOURCES:
        source.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class SeededNoise:
    """Reproducible noise for tests and comparisons, never for real people: such releases are not private.

    Every (seed, purpose, query id) has a separate stream: uniform numbers from SHAKE-256 of the three, passed through
    the inverse distribution function. So draws do not depend on chunks, resumed runs, platforms or library versions.
    """

    seeded = True

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"seed is {seed!r}: it must be a whole number, 0 or above")
        self.seed = int(seed)

    def normal(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return N(0, 1) draws of shape (queries, width), the same for the same seed and ids."""
        from scipy.special import ndtri

        return np.asarray(ndtri(self._uniform(f"normal/{purpose}", queries, width)))

    def laplace(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return Laplace(1) draws of shape (queries, width), the same for the same seed and ids."""
        centred = self._uniform(f"laplace/{purpose}", queries, width) - 0.5
        return np.asarray(-np.sign(centred) * np.log1p(-2 * np.abs(centred)))

    def uniform(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return uniform draws of shape (queries, width), the same for the same seed and ids."""
        return self._uniform(f"uniform/{purpose}", queries, width)

    def _uniform(self, purpose: str, queries: Sequence[str], width: int) -> Floats:
        """Return uniform numbers strictly between 0 and 1, one row per query."""
        start = hashlib.shake_256(f"ipate noise 1\0{self.seed}\0{purpose}\0".encode())
        raw = bytearray()
        for query in queries:
            stream = start.copy()
            stream.update(query.encode())
            raw += stream.digest(8 * width)
        words = np.frombuffer(bytes(raw), dtype="<u8").reshape(len(queries), width)
        return np.asarray(((words >> np.uint64(64 - _BITS)) + 0.5) * 2.0**-_BITS)


def in_steps(noisy: Floats, *, sigma: float) -> NDArray[np.int64]:
    """Return noisy numbers as whole multiples of σ/8, the only form in which they leave the function that drew them."""
    return np.clip(np.rint(noisy / (sigma / STEPS)), -_LARGEST, _LARGEST).astype(np.int64)


def make_noise(seed: int | None = None) -> NoiseSource:
    """Return seeded noise if a seed is given, else secure noise."""
    return SecureNoise() if seed is None else SeededNoise(seed)
