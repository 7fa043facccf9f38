"""Csv tables, atomic writes and file locks."""

import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate import files as tables
from ipate.errors import InputError, IpateError
from ipate.files import FileLock, read_table, replacing
from ipate.people.budgets import GroupRow, read_groups, write_groups


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "groups.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(path, read=read_groups):
    with pytest.raises(InputError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


def test_ids_are_read_verbatim_in_file_order(write):
    rows = read_groups(write("group,epsilon\n01,1\n1,2.5\n b c ,1e-1\n"))
    assert [(row.group, row.epsilon) for row in rows] == [("01", 1.0), ("1", 2.5), ("b c", 0.1)]


def test_empty_optional_cells_are_read_as_none(write):
    (a, b) = read_groups(write("weight,group,sensitivity,epsilon,delta\n,a,,1,\n0,b,3,2,1e-5\n"))
    assert a == GroupRow(group="a", epsilon=1.0, delta=None, sensitivity=None, weight=None)
    assert b == GroupRow(group="b", epsilon=2.0, delta=1e-5, sensitivity=3.0, weight=0.0)


def test_byte_order_mark_crlf_and_blank_end_are_accepted(write):
    assert len(read_groups(write(b"\xef\xbb\xbfgroup,epsilon\r\na,1\r\nb,2\r\n\r\n\r\n"))) == 2
    assert len(read_groups(write(b'\xef\xbb\xbf"group","epsilon"\r\n"a, b",1'))) == 1


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["empty", "group, epsilon"]),
        ("\n\ngroup,epsilon\na,1\n", ["blank line", "group, epsilon"]),
        ("group,epsilon\n", ["no rows", "at least one"]),
        ("group\na\n", ["no column 'epsilon'", "'group'"]),
        ("Group,epsilon\na,1\n", ["'Group'", "unknown", "group, epsilon, delta, sensitivity, weight"]),
        ("group,epsilon,eps\na,1,1\n", ["'eps'", "unknown", "group, epsilon, delta, sensitivity, weight"]),
        ("group,epsilon,epsilon\na,1,1\n", ["duplicate column 'epsilon'", "unique"]),
        ("group,epsilon\na,1\nb\n", ["line 3", "1 cells", "2"]),
        ("group,epsilon\na,1\nb,2,3\n", ["line 3", "3 cells", "2"]),
        ("group,epsilon\na,1\n\nb,2\n", ["line 3", "blank"]),
        ("group,epsilon\na,1\nb,2\na,3\n", ["line 4", "'a'", "line 2", "duplicate"]),
        ('group,epsilon\n"x y",1\n x y ,2\n', ["line 3", "'x y'", "line 2"]),
        ("group,epsilon\n,1\n", ["line 2", "group is missing"]),
        ("group,epsilon\na,\n", ["line 2", "epsilon is missing"]),
        ("group,epsilon\na,x\n", ["line 2", "epsilon is 'x'", "finite number above 0"]),
        ("group,epsilon\na,1_0\n", ["line 2", "'1_0'"]),
        ("group,epsilon\na,١\n", ["line 2", "'١'"]),
        ("group,epsilon\na,nan\n", ["line 2", "'nan'", "finite number above 0"]),
        ("group,epsilon\na,inf\n", ["line 2", "'inf'", "finite number above 0"]),
        ("group,epsilon\na,1e999\n", ["line 2", "'1e999'", "finite"]),
        ("group,epsilon\na,1\nb,0\n", ["line 3", "'0'", "above 0"]),
        ("group,epsilon\na,-1\n", ["line 2", "'-1'", "above 0"]),
        ("group,epsilon,delta\na,1,0\n", ["line 2", "delta is '0'", "between 0 and 1"]),
        ("group,epsilon,delta\na,1,1\n", ["line 2", "delta is '1'", "between 0 and 1"]),
        ("group,epsilon,delta\na,1,nan\n", ["line 2", "delta is 'nan'"]),
        ("group,epsilon,weight\na,1,-2\n", ["line 2", "weight is '-2'", "0 or above"]),
        ("group,epsilon,weight\na,1,inf\n", ["line 2", "weight is 'inf'", "finite"]),
        ("group,epsilon,sensitivity\na,1,-.5\n", ["line 2", "sensitivity is '-.5'", "0 or above"]),
        ('group,epsilon\n"a\nb",1\n', ["line 2", r"'a\nb'", "printable"]),
        ('group,epsilon\n"a,1\n', ["not valid CSV"]),
        ('group,epsilon\n"a"b,1\n', ["line 2", "not valid CSV"]),
        (b"group,epsilon\n\xff,1\n", [r"\xff", "UTF-8"]),
        ("group,epsilon\na," + "9x" * 1000 + "\n", ["line 2", "…", "2002 characters"]),
    ],
)
def test_invalid_csv_is_refused_with_its_line(write, content, parts):
    message = refusal(write(content))
    for part in parts:
        assert part in message
    assert len(message) < 400


def test_line_numbers_count_multiline_cells(write):
    path = write('note,n\n"two\nlines",1\n"three\nmore\nlines",x\n')
    table = read_table(path, required=["n"], others=True)
    assert list(table.lines) == [2, 4]
    assert "line 4" in refusal(path, lambda p: read_table(p, required=["n"], others=True).numbers("n", "weight"))


def test_other_columns_are_skipped_when_allowed(write):
    path = write("x,x,epsilon\n1,2,3\n")
    assert read_table(path, required=["epsilon"], others=True).columns == {"epsilon": ["3"]}
    assert "duplicate column 'x'" in refusal(write("x,x\n1,2\n"), lambda p: read_table(p, required=["x"], others=True))


def test_unreadable_files_are_refused(tmp_path):
    assert "cannot be read" in refusal(tmp_path / "missing.csv")
    (tmp_path / "folder").mkdir()
    assert "cannot be read" in refusal(tmp_path / "folder")


@pytest.mark.parametrize(
    "fields",
    [
        {"group": ""},
        {"group": " a"},
        {"group": 1},
        {"group": "a\tb"},
        {"epsilon": 0},
        {"epsilon": None},
        {"epsilon": "1"},
        {"epsilon": True},
        {"delta": 1.0},
        {"weight": -1},
        {"sensitivity": float("nan")},
    ],
)
def test_invalid_group_row_is_refused(fields):
    with pytest.raises(InputError, match="must"):
        GroupRow(**{"group": "a", "epsilon": 1.0, **fields})


numbers = st.floats(min_value=0, allow_infinity=False, allow_nan=False)
ids = st.text(min_size=1).filter(lambda text: text.isprintable() and text == text.strip())
group_rows = st.builds(
    GroupRow,
    group=ids,
    epsilon=st.floats(1e-12, 1e4),
    delta=st.none() | st.floats(1e-12, 1, exclude_max=True),
    sensitivity=st.none() | numbers,
    weight=st.none() | numbers,
)


@given(rows=st.lists(group_rows, min_size=1, unique_by=lambda row: row.group))
def test_written_groups_are_read_back_exactly(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("groups") / "groups.csv"
    write_groups(path, rows)
    assert read_groups(path) == tuple(sorted(rows, key=lambda row: (row.epsilon, row.delta or 0.0, row.group)))


def test_unreadable_group_files_are_never_written(tmp_path):
    with pytest.raises(InputError, match="at least one"):
        write_groups(tmp_path / "groups.csv", [])
    with pytest.raises(InputError, match="duplicate group id 'a'"):
        write_groups(tmp_path / "groups.csv", [GroupRow(group="a", epsilon=e) for e in (1.0, 2.0)])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch, fails):
    path = tmp_path / "groups.csv"
    write_groups(path, [GroupRow(group="old", epsilon=1.0)])

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(tables.os, fails, fail)
    with pytest.raises(OSError, match="disk full"):
        write_groups(path, [GroupRow(group="new", epsilon=2.0)])
    monkeypatch.undo()
    assert read_groups(path) == (GroupRow(group="old", epsilon=1.0),)
    assert os.listdir(tmp_path) == ["groups.csv"]


def test_file_is_flushed_before_it_is_renamed(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(tables.os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))[1])
    write_groups(tmp_path / "groups.csv", [GroupRow(group="a", epsilon=1.0)])
    assert calls[:2] == ["fsync", "replace"]


def test_interrupted_archive_still_raises_keyboard_interrupt(tmp_path):
    """On ^C, zipfile raises an error about its open handle, which would hide the KeyboardInterrupt."""

    def interrupted(file):
        with zipfile.ZipFile(file, "w") as archive:
            archive.open("half", "w")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "x.npz") as file:
        interrupted(file)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="other"), replacing(tmp_path / "x.npz"):
        raise ValueError("other")


HOLDER = """
import sys, time
from pathlib import Path
from ipate.errors import IpateError
from ipate.files import FileLock
with FileLock(Path(sys.argv[1]), refusal=IpateError("held"), timeout=float(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def hold(tmp_path):
    """Return a function that starts a process which holds the lock until a line or the end of its input."""
    started = []

    def hold(path, timeout=0.0):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path), str(timeout)], **pipes)
        started.append(process)
        return process

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def take(path, timeout=0.0):
    return FileLock(path, refusal=IpateError(f"{path}: in use"), timeout=timeout)


def test_lock_excludes_other_processes_until_released(tmp_path, hold):
    path = tmp_path / ".lock"
    assert not FileLock.is_held(path)
    assert not path.exists()
    with take(path):
        assert FileLock.is_held(path)
        refused = hold(path)
        assert "IpateError: held" in refused.communicate()[1]
        waiting = hold(path, timeout=60.0)
    assert waiting.stdout.readline() == "held\n"
    with pytest.raises(IpateError, match="in use"):
        take(path)
    waiting.communicate("end\n")
    assert not FileLock.is_held(path)
    take(path).release()


def test_killed_process_releases_its_lock(tmp_path, hold):
    path = tmp_path / ".lock"
    process = hold(path)
    assert process.stdout.readline() == "held\n"
    assert FileLock.is_held(path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with take(path, timeout=5.0):
        assert FileLock.is_held(path)


def test_lock_refusal_is_raised_after_its_timeout(tmp_path):
    path = tmp_path / ".lock"
    with take(path) as lock:
        start = time.monotonic()
        with pytest.raises(IpateError) as caught:
            take(path, timeout=0.2)
        assert 0.2 <= time.monotonic() - start < 5
        assert str(caught.value) == f"{path}: in use"
        lock.release()
        take(path).release()


def test_asking_for_a_lock_needs_no_write_access(tmp_path):
    path = tmp_path / ".lock"
    with take(path):
        path.chmod(0o400)
        assert FileLock.is_held(path)
    assert not FileLock.is_held(path)


def test_private_lock_file_is_readable_by_its_owner_only(tmp_path):
    FileLock(tmp_path / ".lock", refusal=IpateError("in use"), private=True).release()
    assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600
