"""What goes wrong outside: a full disk, a read-only one, another process; nothing is released, the error is clear."""

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import deque
from contextlib import closing

import pytest

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.loop import label
from ipate.errors import IpateError
from ipate.ledger.sqlite import SqliteLedger, connect, plain_errors
from ipate.release.answers import paid_answers
from ipate.release.noise import SeededNoise
from ledger.making import CONFIDENT, all_terms, begin, charge, label_into, opened, voting


@pytest.fixture
def small_disk(tmp_path):
    """A file system of half a megabyte, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def charges(count, *, start=0):
    for number in range(start, start + count):
        queries = tuple(f"{number}/{index}" for index in range(50))
        yield charge({"lax": 1e-5}, queries=queries, labels=[1] * 50)


def test_full_disk_releases_nothing_and_can_resume(small_disk):
    path = small_disk / "ledger.sqlite"
    ballast = small_disk / "ballast"
    with begin(path, all_terms()) as book:
        ballast.write_bytes(bytes(200_000))
        with pytest.raises(IpateError, match=r"the disk (is full|failed)"):
            deque(map(book.charge, charges(2000)), maxlen=0)
        done = book.head.charges
        assert 0 < done < 2000
        spent = book.spent("lax")[0]
        assert len(paid_answers(book).answers) == 50 * done
        ballast.unlink()
        book.charge(next(charges(1, start=5000)))
        assert book.spent("lax")[0] == spent + 1e-5
    with begin(path, all_terms()) as book:
        assert book.head.charges == done + 1


def test_ledger_without_free_pages_refuses_and_verifies(tmp_path):
    votes, panel = voting(600)
    path = tmp_path / "ledger.sqlite"
    undisturbed = label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(3), batch=1)
    with opened(path, panel) as book:
        pages = book._file._connection.execute("PRAGMA page_count").fetchone()[0]
        book._file._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(IpateError, match=r"the disk is full.*nothing of it was released"):
            label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(3), ledger=book, batch=1)
        assert 0 < book.head.charges < undisturbed.n_queries
        assert book.verify() == book.head
    with opened(path, panel) as book:
        assert (
            label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(3), ledger=book).n_labels == undisturbed.n_labels
        )


def test_read_only_disk_refuses_charges_but_allows_reading(small_disk):
    path = small_disk / "ledger.sqlite"
    with begin(path, all_terms()) as book:
        book.charge(charge({"lax": 0.01}, queries=("a",), labels=[1]))
        head = book.head
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(IpateError, match=r"cannot be written.*read-only"):
        begin(path, all_terms())
    with SqliteLedger.read(path) as book:
        assert book.head == head


def test_sqlite_errors_become_one_line_messages():
    for made, words in (
        ("attempt to write a readonly database", "read-only"),
        ("database is locked", "another process holds the ledger"),
        ("something else", "nothing of this batch was released"),
    ):
        error = sqlite3.OperationalError(made)
        error.sqlite_errorname = {"attempt": "SQLITE_READONLY", "database": "SQLITE_BUSY"}.get(made.split()[0], "")
        with pytest.raises(IpateError, match=words) as caught, plain_errors("book"):
            raise error
        assert "\n" not in str(caught.value)


def test_missing_folder_raises_a_clear_error(tmp_path):
    with pytest.raises(IpateError, match="its folder cannot be written"):
        begin(tmp_path / "nowhere" / "ledger.sqlite", all_terms())


def test_second_writer_is_refused_until_the_first_ends(tmp_path):
    path = tmp_path / "ledger.sqlite"
    first = begin(path, all_terms())
    start = time.monotonic()
    with pytest.raises(IpateError, match=r"another process writes this ledger.*0\.2 s.*nothing was charged"):
        begin(path, all_terms(), timeout=0.2)
    assert 0.2 <= time.monotonic() - start < 5
    first.close()
    begin(path, all_terms(), timeout=0.2).close()


def test_writer_without_the_lock_cannot_spend_twice(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with begin(path, all_terms()) as one:
        one._lock.path.unlink()  # somebody cleans up
        with begin(path, all_terms()) as two:
            one.charge(charge({"strict": 0.04}))
            with pytest.raises(IpateError, match="has changed since it was opened"):
                two.charge(charge({"strict": 0.04}))
            assert two.spent("strict").tolist() == [0.0]
    with begin(path, all_terms()) as book:
        assert book.spent("strict").tolist() == [0.04]


def test_file_locked_by_another_tool_refuses_charges(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with begin(path, all_terms(), timeout=0.2) as book:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(IpateError, match="another process holds the ledger; nothing was charged"):
            book.charge(charge({"lax": 0.01}))
        other.execute("ROLLBACK")
        other.close()
        book.charge(charge({"lax": 0.01}))
        assert book.head.charges == 1


def test_two_processes_release_the_same_as_one(tmp_path):
    votes, panel = voting(600)
    alone = label(votes, panel, CONFIDENT, Meter(), noise=SeededNoise(3), batch=3)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=label_into, args=(tmp_path / "ledger.sqlite", 60.0, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    told = [queue.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert told == [alone.n_labels] * 2  # the second waited and was given the stored answers
    with SqliteLedger.read(tmp_path / "ledger.sqlite") as book:
        assert len(paid_answers(book).answers) == alone.n_queries
        assert book.epsilon("lax") == pytest.approx(next(g.cost for g in alone.groups if g.id == "lax"))


def test_hot_journal_is_rolled_back_by_a_reader(tmp_path):
    """A journal that is hot: SQLite rolls it back for writers only, and a run that goes on looks before it writes."""
    made, left = tmp_path / "made.sqlite", tmp_path / "left.sqlite"
    file = sqlite3.connect(made, isolation_level=None)
    file.execute("PRAGMA journal_mode = DELETE")
    file.execute("CREATE TABLE half (made)")
    file.execute("PRAGMA cache_size = 1")  # pages reach the file before the commit does
    file.execute("BEGIN")
    file.executemany("INSERT INTO half VALUES (?)", [("x" * 4000,)] * 50)
    for suffix in ("", "-journal"):  # the process dies here
        shutil.copy(f"{made}{suffix}", f"{left}{suffix}")
    file.close()
    with (
        closing(sqlite3.connect(f"{left.as_uri()}?mode=ro", uri=True)) as plain,
        pytest.raises(sqlite3.OperationalError),
    ):
        plain.execute("SELECT * FROM half").fetchall()
    with closing(connect(left, readonly=True, timeout=1)) as looked:
        assert looked.execute("SELECT * FROM half").fetchall() == []
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            looked.execute("INSERT INTO half VALUES (1)")


def test_ledger_interrupted_during_creation_is_created_again(tmp_path):
    start = time.perf_counter()
    begin(tmp_path / "whole.sqlite", all_terms()).close()
    unit, rng = time.perf_counter() - start, random.Random(0)
    for number in range(60):
        path = tmp_path / f"{number}.sqlite"
        child = os.fork()
        if not child:
            try:
                begin(path, all_terms()).close()
            finally:
                os._exit(0)
        time.sleep(unit * rng.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert tuple(run.name for run in SqliteLedger.runs_on(path)) in ((), ("run",))
        with begin(path, all_terms()) as book:
            assert book.runs == ("run",)
