"""One teacher's work on its own: with its own random generators, within its CPU time, and without a visible trace.

Whatever a teacher raises, warns, logs or prints depends on private rows. It is returned to the caller, who keeps it
private, and never reaches the streams of the process.
"""

import ctypes
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

FIT, VOTE = 0, 1  # the last part of a seed: a fit and a vote have generators of their own
_LINES, _CHARACTERS = 50, 500  # how much of what one teacher said is kept
_lock = threading.RLock()  # generators, warnings and streams belong to the process: one teacher at a time in each


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What one teacher's work gave: a result or the reason why it failed, and everything that it said meanwhile."""

    result: Any = None
    failed: str = ""
    said: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """The lines for the private notes; empty if there is nothing to note."""
        return [*([f"failed: {self.failed}"] if self.failed else []), *self.said]


class CpuTimeError(BaseException):
    """A teacher passed its CPU-time limit; no `except Exception` in a teacher's own code catches it."""


def attempt(
    work: Callable[[], Any], *, key: Sequence[int], cpu_seconds: float | None = None, home: int | None = None
) -> Attempt:
    """Do a teacher's work in isolation; `key` seeds its generators, and `home` is the id of the run's main process.

    In any other process the streams are redirected at the level of the operating system, and a teacher that stays in
    compiled code beyond twice its limit is ended together with that process. An interrupt of the main process is
    raised; every other exception becomes the reason of a failure. Work that imports torch is done again, because
    torch's generator could not be seeded before: otherwise a teacher's draws would depend on who worked in this process
    before it.
    """
    seeded = "torch" in sys.modules
    found = _attempt(work, key=key, cpu_seconds=cpu_seconds, home=home)
    if not seeded and "torch" in sys.modules:
        found = _attempt(work, key=key, cpu_seconds=cpu_seconds, home=home)
    return found


def _attempt(work: Callable[[], Any], *, key: Sequence[int], cpu_seconds: float | None, home: int | None) -> Attempt:
    away = home is not None and os.getpid() != home
    heard: list[str] = []
    try:
        with ExitStack() as stack:
            if away:
                stack.enter_context(_heard_process(heard))
            stack.enter_context(set_apart(heard, key=key))
            stack.enter_context(_own_settings())
            stack.enter_context(_limited(cpu_seconds, kill=away))
            result = work()
    except KeyboardInterrupt as error:
        if not away:  # ^C; in a worker it can only come from the teacher itself
            raise
        return Attempt(failed=describe(error), said=lines(heard))
    except CpuTimeError:
        return Attempt(failed=f"it passed its limit of {cpu_seconds:g} seconds of CPU time", said=lines(heard))
    except BaseException as error:  # also SystemExit, which would end the run
        return Attempt(failed=describe(error), said=lines(heard))
    return Attempt(result=result, said=lines(heard))


def describe(error: BaseException, most: int = 300) -> str:
    """Return an error's type and message as one line of at most `most` characters; its own text may fail too."""
    text = ""
    with suppress(Exception):
        text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:most]


@contextmanager
def set_apart(heard: list[str], *, key: Sequence[int]) -> Iterator[None]:
    """Collect what is warned, logged and printed, and seed the global generators by `key`; one caller at a time."""
    with _lock, _heard(heard), _own_generators(key):
        yield


def lines(heard: list[str]) -> tuple[str, ...]:
    """Return the lines of what was heard, cut to a reasonable length."""
    found = [line[:_CHARACTERS] for line in "".join(heard).splitlines() if line.strip()]
    return tuple(found[:_LINES]) if len(found) <= _LINES else (*found[:_LINES], f"and {len(found) - _LINES} more lines")


@contextmanager
def _own_generators(key: Sequence[int]) -> Iterator[None]:
    """Seed the global generators of numpy, Python and torch (CPU and GPU), and put them back afterwards."""
    seed = int(np.random.SeedSequence(list(key)).generate_state(1)[0])
    torch = sys.modules.get("torch")
    before, python = np.random.get_bit_generator(), random.getstate()  # type: ignore[attr-defined]
    cpu = None if torch is None else torch.get_rng_state()
    gpu = torch.cuda.get_rng_state_all() if torch is not None and torch.cuda.is_initialized() else None
    try:
        np.random.set_bit_generator(np.random.MT19937(seed))  # type: ignore[attr-defined]
        random.seed(seed)
        if torch is not None:
            torch.manual_seed(seed)
        yield
    finally:
        np.random.set_bit_generator(before)  # type: ignore[attr-defined]
        random.setstate(python)
        if torch is not None:
            torch.set_rng_state(cpu)
            if gpu is not None:
                torch.cuda.set_rng_state_all(gpu)
            else:  # never used before, and torch seeds an unused GPU at random
                torch.cuda.seed_all()


@contextmanager
def _own_settings() -> Iterator[None]:
    """Undo changes to numpy's error handling and scikit-learn's settings; use one thread and no nested workers.

    Small models train slower with several threads each, and nested workers would outlive a teacher with their state.
    """
    from joblib import parallel_config
    from sklearn import config_context

    pools = _thread_pools(len(sys.modules))
    with np.errstate(), config_context(), parallel_config(backend="sequential"), pools.limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _thread_pools(modules: int) -> Any:
    """Return the loaded libraries that have thread pools; the search is slow, so it is repeated after imports only."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def _limited(seconds: float | None, *, kill: bool) -> Iterator[None]:
    """Raise `CpuTimeError` once this thread has used so many seconds of CPU time, or when the work ends.

    Where a signal can interrupt the thread (POSIX, main thread) it does, between two steps of the interpreter. With
    `kill`, work that stays in compiled code ends its process after twice the limit and a second.
    """
    if seconds is None:
        yield
        return
    begun, alarms = time.thread_time(), hasattr(signal, "setitimer")
    if not alarms or threading.current_thread() is not threading.main_thread():
        yield
        if time.thread_time() - begun > seconds:
            raise CpuTimeError
        return
    working = True

    def ring(*_: Any) -> None:
        left = seconds - (time.thread_time() - begun)
        if working and left <= 0:
            raise CpuTimeError
        if working:  # the timer counts all threads of the process
            signal.setitimer(signal.ITIMER_PROF, max(left, 0.01))

    before = signal.signal(signal.SIGPROF, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            if kill:
                signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds + 1)
            yield
        finally:
            working = False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGPROF, before)
    if time.thread_time() - begun > seconds:
        raise CpuTimeError


class _Ear:
    """A stream that hears what the teacher writes; what other threads write goes to the real stream."""

    def __init__(self, stream: Any, mine: Callable[[], bool], heard: list[str]) -> None:
        self._stream, self._mine, self._heard = stream, mine, heard

    def write(self, text: str) -> int:
        if not self._mine():
            return int(self._stream.write(text))
        self._heard.append(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _heard(heard: list[str]) -> Iterator[None]:
    """Hear the warnings, log records and printed text of this thread and of threads that it starts."""
    others = set(threading.enumerate()) - {threading.current_thread()}  # not by their numbers, which are used again

    def mine() -> bool:
        return threading.current_thread() not in others

    def hear(text: str) -> None:
        heard.append(f"\n{text}\n")

    def warned(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if mine():
            hear(f"{category.__name__}: {' '.join(str(message).split())}")
        else:
            shown(message, category, *place, **more)

    def logged(logger: logging.Logger, record: logging.LogRecord) -> None:
        if not mine():
            handled(logger, record)
            return
        with suppress(Exception):  # a record whose arguments do not fit its message
            hear(f"{record.levelname} {record.name}: {record.getMessage()}")

    streams, handled = (sys.stdout, sys.stderr), logging.Logger.callHandlers
    with warnings.catch_warnings():
        shown = warnings.showwarning
        warnings.simplefilter("always")
        warnings.showwarning = warned
        logging.Logger.callHandlers = logged  # type: ignore[method-assign, assignment]
        sys.stdout, sys.stderr = (_Ear(stream, mine, heard) for stream in streams)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            logging.Logger.callHandlers = handled  # type: ignore[method-assign]


@contextmanager
def _heard_process(heard: list[str]) -> Iterator[None]:
    """Hear what this whole process writes to its standard streams, compiled libraries included."""
    with tempfile.TemporaryFile() as file:
        kept = {number: os.dup(number) for number in (1, 2)}
        _flush()
        for number in kept:
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            _flush()
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)
            file.seek(0)
            heard.append("\n" + file.read(_LINES * _CHARACTERS).decode(errors="replace"))


def _flush() -> None:
    """Flush Python's streams and those of the C library."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(Exception):  # not on Windows
        ctypes.CDLL(None).fflush(None)
