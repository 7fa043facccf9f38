"""Tell whether two votes files are copies of each other, query by query, whatever their order.

A query is compared by its histogram of unweighted votes, which no order of teachers changes; unanimous queries are left
out, because every good panel has them. Queries with the same id and the same histogram agree. So do queries whose
histogram stands once in each file, whatever their ids: among independent files at most about e⁻¹ of these coincide.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator

from ipate.votes import Votes
from ipate.votes.counting import count_votes

MOST_ALIKE = 0.5  # two files that agree on a larger share of either one's queries are copies
_FEWEST_NAMED, _FEWEST_UNNAMED = 5, 20  # fewer coincidences prove nothing
_BLOCK = 2048  # queries counted at a time
_DIGITS = 6  # hexadecimal digits kept of each hash


def sketch(votes: Votes) -> str:
    """Return two short hashes per query that is not unanimous: of its id and histogram, and of its histogram."""
    return "".join(f"{named}{plain}" for named, plain in _hashes(votes))


def is_copy(sketched: str, votes: Votes) -> bool:
    """Whether the votes behind a sketch agree with these on over half of the queries of either."""
    step = 2 * _DIGITS
    pairs = [sketched[place : place + step] for place in range(0, len(sketched), step)]
    theirs, own = [(pair[:_DIGITS], pair[_DIGITS:]) for pair in pairs], list(_hashes(votes))
    named = {one for one, _ in theirs}, {one for one, _ in own}
    once = _once(other for _, other in theirs), _once(other for _, other in own)
    return _mostly(*named, fewest=_FEWEST_NAMED) or _mostly(*once, fewest=_FEWEST_UNNAMED)


def _mostly(one: set[str], other: set[str], *, fewest: int) -> bool:
    same = len(one & other)
    return same >= fewest and same > MOST_ALIKE * min(len(one), len(other))


def _once(hashes: Iterator[str]) -> set[str]:
    return {found for found, times in Counter(hashes).items() if times == 1}


def _hashes(votes: Votes) -> Iterator[tuple[str, str]]:
    for start in range(0, votes.n_queries, _BLOCK):
        counts = count_votes(votes.votes[:, start : start + _BLOCK], votes.n_classes).astype("<i8")
        for place, row in enumerate(counts, start=start):
            if row.max() < row.sum():
                name = str(place) if votes.queries is None else votes.queries[place]
                yield _short(f"{name}\0".encode() + row.tobytes()), _short(row.tobytes())


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
