"""What a teacher does to the process around it: nothing that anybody sees, and no more CPU time than it may use."""

import logging
import sys
import threading
import time
import warnings
from contextlib import suppress

import pytest

from ipate.models.isolation import attempt


def talk():
    warnings.warn("secret warning", stacklevel=1)
    logging.getLogger("library").warning("secret log %d", 3)
    sys.stdout.write("secret print\n")
    sys.stderr.writelines(["secret text\n"])
    return 5


def test_warnings_logs_and_prints_are_returned_only(capfd, caplog):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        done = attempt(talk, key=(0, 1))
    assert (done.result, done.failed) == (5, "")
    assert done.said == ("UserWarning: secret warning", "WARNING library: secret log 3", "secret print", "secret text")
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert not shown


def test_other_threads_keep_their_output(capsys):
    """A progress bar, for example, is drawn by a thread of its own."""
    begun, spoken = threading.Event(), threading.Event()

    def speak():
        begun.wait()
        sys.stdout.write("public\n")
        spoken.set()

    thread = threading.Thread(target=speak)
    thread.start()

    def work():
        begun.set()
        assert spoken.wait(10)
        own = threading.Thread(target=sys.stdout.write, args=("secret\n",))
        own.start()
        own.join()

    done = attempt(work, key=(0, 1))
    thread.join()
    assert done.said == ("secret",)
    assert capsys.readouterr().out == "public\n"


@pytest.mark.parametrize("error", [ValueError("no\ngood"), SystemExit(3), MemoryError(), RecursionError("deep")])
def test_every_exception_but_an_interrupt_is_a_reason(error):
    def work():
        raise error

    assert attempt(work, key=(0,)).failed == f"{type(error).__name__}: {' '.join(str(error).split())}"


def test_interrupt_is_raised():
    def work():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(work, key=(0,))


def burn(seconds):
    """Use CPU time, and ignore failures as a search over parameters does."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        with suppress(Exception):
            sum(range(1000))


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_interrupt_by_a_teacher_in_a_worker_is_a_failure():
    """Workers take no ^C, so that an interrupt there comes from the teacher, and its private rows."""
    import os

    def interrupt():
        raise KeyboardInterrupt("row 7")

    found = attempt(interrupt, key=(1, 2), home=os.getpid() + 1)
    assert found.failed == "KeyboardInterrupt: row 7"


def test_endless_fit_ends_at_its_limit():
    begun = time.thread_time()
    done = attempt(lambda: burn(5), key=(0,), cpu_seconds=0.2)
    assert done.failed == "it passed its limit of 0.2 seconds of CPU time"
    assert time.thread_time() - begun < 2


def test_waiting_takes_no_cpu_time():
    assert attempt(lambda: time.sleep(0.3), key=(0,), cpu_seconds=0.2).failed == ""


def test_limit_is_noticed_at_the_end_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(attempt(lambda: burn(0.3), key=(0,), cpu_seconds=0.1)))
    thread.start()
    thread.join()
    assert found[0].failed.startswith("it passed its limit")
