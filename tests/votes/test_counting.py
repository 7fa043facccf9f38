"""Counts match a plain loop for all types, weights and blocks, in bounded memory."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipate.engines.teachers import votes as counting
from ipate.engines.teachers.votes import count_votes, row_blocks, take_columns, weigh_votes


@st.composite
def ballots(draw):
    """Draw votes of some type, the number of classes, and a subset of the teachers."""
    dtype = draw(st.sampled_from(["uint8", "uint16", "int8", "int16", "int64"]))
    teachers, queries = draw(st.integers(1, 40)), draw(st.integers(1, 9))
    classes = draw(st.sampled_from([2, 3, 10, 50, 120]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    votes = rng.integers(0 if dtype[0] == "u" else -1, classes, size=(teachers, queries)).astype(dtype)
    rows = draw(st.none() | st.lists(st.integers(0, teachers - 1), unique=True).map(sorted))
    return votes, classes, None if rows is None else np.array(rows, dtype=np.intp), rng


def plain(votes, classes, weights):
    """Count the weight of every class and query, one vote at a time."""
    total = np.zeros((votes.shape[1], classes))
    for own, weight in zip(votes.tolist(), weights, strict=True):
        for query, vote in enumerate(own):
            if vote >= 0:
                total[query, vote] += weight
    return total


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Use small blocks and tiles, so that their edges are tested."""
    monkeypatch.setattr(counting, "_BLOCK", 64)
    monkeypatch.setattr(counting, "_ROWS", 3)
    monkeypatch.setattr(counting, "_WIDTH", 4)


@given(ballots())
def test_vote_counts_match_a_plain_loop(ballot):
    votes, classes, rows, _ = ballot
    chosen = votes if rows is None else votes[rows]
    expected = plain(chosen, classes, np.ones(len(chosen)))
    np.testing.assert_array_equal(count_votes(votes, classes, rows=rows), expected)
    np.testing.assert_array_equal(count_votes(np.asfortranarray(votes), classes, rows=rows), expected)


@given(ballots(), st.sampled_from([1, 2, 5, 40]))
def test_weighted_vote_counts_match_a_plain_loop(ballot, different):
    """Both code paths, for few and for many distinct weights, return the sum of the weights."""
    votes, classes, _, rng = ballot
    choice = np.concatenate([[0.0], rng.uniform(0.1, 3, size=different - 1)]) if different > 1 else np.array([1.5])
    weights = rng.choice(choice, size=len(votes))
    np.testing.assert_allclose(
        weigh_votes(votes, classes, weights), plain(votes, classes, weights), rtol=1e-12, atol=1e-12
    )


@given(ballots())
def test_taken_columns_equal_numpy_fancy_indexing(ballot):
    votes, _, _, rng = ballot
    columns = rng.permutation(votes.shape[1])
    np.testing.assert_array_equal(take_columns(votes, columns), votes[:, columns])
    np.testing.assert_array_equal(take_columns(votes, slice(1, 5)), votes[:, 1:5])
    np.testing.assert_array_equal(np.concatenate(list(row_blocks(votes))), votes)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_releasing_mapped_pages_does_not_change_counts(tmp_path, monkeypatch, mode):
    """Pages of a copy-on-write mapping, which holds its own changes, are kept."""
    np.save(tmp_path / "votes.npy", np.zeros((50, 9), dtype=np.uint8))
    votes = np.load(tmp_path / "votes.npy", mmap_mode=mode)
    if mode != "r":
        votes[7] = 1
    monkeypatch.setattr(counting, "_MAPPED", 0)
    before = count_votes(votes, 2)
    np.testing.assert_array_equal(before, count_votes(np.array(votes), 2))
    assert int(votes.sum()) == (0 if mode == "r" else 9)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_memory_does_not_grow_with_file_size(tmp_path):
    """200 MB of votes are checked, counted and shuffled in much less memory."""
    code = f"""
import numpy as np
from ipate.engines.teachers import votes as counting
from ipate.engines.teachers.votes import read_votes
def held():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if "VmHWM" in line)
counting._MAPPED = 1 << 25
start = held()
votes = read_votes({str(tmp_path)!r}, classes=4).votes
weights = np.where(np.arange(1000) % 2, 1.0, 2.0)
for first in range(0, 200_000, 65_536):
    counting.weigh_votes(votes[:, first : first + 65_536], 4, weights)
counting.take_columns(votes, np.arange(199_000, 0, -997))
print(held() - start)
"""
    with open(tmp_path / "votes.npy", "wb") as stream:  # a file of zeros that takes no room
        header = {"descr": "|u1", "fortran_order": False, "shape": (1000, 200_000)}
        np.lib.format.write_array_header_1_0(stream, header)
        stream.truncate(stream.tell() + 200_000_000)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 130
