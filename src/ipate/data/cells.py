"""Cells of raw columns as numbers, days, categories or text.

Every function judges each cell alone: what a cell means never depends on other cells, and what cannot be read is
missing, never an error. A column is a numpy array or a pyarrow ChunkedArray.
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.files import plain_number

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "?"})
"""Cells that mean a missing number or date, in small letters."""
_PIECE = 1 << 16  # cells of a pyarrow column that are converted at once
_DAY = {"s": 86400, "ms": 86400 * 10**3, "us": 86400 * 10**6, "ns": 86400 * 10**9}
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)


def alone(values: Any) -> Any:
    """Return a list of cells as an array of these objects, so that no cell changes the type of the others."""
    if not isinstance(values, list | tuple):
        return values
    found = np.empty(len(values), dtype=object)
    for row, cell in enumerate(values):
        found[row] = cell
    return found


def numbers(cells: Any) -> Floats:
    """Return each cell as a number; NaN where it is none."""
    if not isinstance(cells, np.ndarray):
        return np.concatenate([np.empty(0), *(_arrow_numbers(piece) for piece in _pieces(cells))])
    if cells.dtype.kind in "fiub":
        return cells.astype(np.float64)
    if cells.dtype.kind in "OUST":
        return np.fromiter(map(_number, cells.tolist()), np.float64, len(cells))
    return np.full(len(cells), np.nan)


def days(cells: Any, *, origin: str, form: str | None = None) -> Floats:
    """Return each date or datetime as days since `origin`; text is ISO, or has the strptime format `form`."""
    zero = float(np.datetime64(origin, "D").astype(np.int64))
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind == "M":
            return _since(cells.astype("datetime64[us]").astype(np.int64), np.isnat(cells), "us") - zero
        if cells.dtype.kind in "biufmc":
            return np.full(len(cells), np.nan)
    elif (own := _arrow_days(cells)) is not None:
        return own - zero
    values, index = distinct(cells)
    read = np.array([_day(value, form) for value in values], dtype=np.float64)
    return read[index] - zero if len(values) else np.empty(0)


def codes(cells: Any, values: Sequence[str]) -> Ints:
    """Return the place of each cell's text in `values`; any other cell, and a missing one, has the place after."""
    place = {value: position for position, value in enumerate(values)}
    found, index = distinct(cells)
    return np.array([place.get(text(value), len(values)) for value in found], dtype=np.int64)[index]


def texts(cells: Any) -> NDArray[np.str_]:
    """Return the text of each cell without surrounding spaces; a missing one is empty."""
    if not isinstance(cells, np.ndarray) and _textual(cells.type):
        try:  # faster for ids, which are all different
            found = (cells.fill_null("") if cells.null_count else cells).to_numpy().astype(np.str_)
            return found if _trimmed(cells) else np.strings.strip(found)
        except (ValueError, UnicodeDecodeError, NotImplementedError):
            pass
    values, index = distinct(cells)
    return np.array([text(value) for value in values] or [""], dtype=np.str_)[index]


def distinct(cells: Any) -> tuple[list[Any], Ints]:
    """Return the different values of a column, and the place of each cell's value among them."""
    if not isinstance(cells, np.ndarray):
        return _arrow_distinct(cells)
    if cells.dtype.kind in "OUST":
        listed = [cell if isinstance(cell, str | date) else text(cell) for cell in cells.tolist()]
        place: dict[Any, int] = {}
        index = np.fromiter((place.setdefault(cell, len(place)) for cell in listed), np.int64, len(listed))
        return list(place), index
    values, places = np.unique(cells, return_inverse=True)
    return values.tolist(), places.astype(np.int64)


def text(value: Any) -> str:
    """Return a value as text: 3.0 as '3', truth values as 'true' and 'false', a missing value as ''."""
    try:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace").strip()
        if isinstance(value, bool | np.bool_):
            return "true" if value else "false"
        if isinstance(value, float | np.floating):
            return "" if math.isnan(value) else str(int(value)) if value == int(value) else repr(float(value))
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            return ""
        return str(value).strip()
    except Exception:  # whatever an object of a private cell does, it is a missing cell
        return ""


def _number(value: Any) -> float:
    if isinstance(value, str):
        return math.nan if (found := plain_number(value.strip())) is None else found
    if isinstance(value, bytes):
        return _number(value.decode("utf-8", "replace"))
    try:
        return math.nan if value is None or isinstance(value, date) else float(value)
    except Exception:  # an object that is no number, or an integer beyond all floats
        return math.nan


def _day(value: Any, form: str | None) -> float:
    """Return the days from 1970-01-01 to a date or datetime; a time zone is converted to UTC."""
    try:
        if not isinstance(value, date):  # a datetime is a date
            written = text(value)
            if form is not None:
                value = datetime.strptime(written, form)
            elif _ISO.fullmatch(written):
                value = datetime.fromisoformat(written[:19] + re.sub(r"^\.\d+", "", written[19:]))
            else:
                return math.nan
        if not isinstance(value, datetime):
            return float(value.toordinal() - 719163)
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86400
    except Exception:  # no date of the calendar, or beyond it
        return math.nan


def _since(counts: Ints, missing: NDArray[np.bool_], unit: str) -> Floats:
    read = counts / _DAY[unit]
    read[missing] = np.nan
    return read


def _pieces(column: Any) -> list[Any]:
    """Return a pyarrow column in pieces of limited length."""
    chunks = getattr(column, "chunks", [column])
    return list(
        chain.from_iterable(
            (chunk.slice(start, _PIECE) for start in range(0, max(1, len(chunk)), _PIECE)) for chunk in chunks
        )
    )


def _arrow_numbers(piece: Any) -> Floats:
    import pyarrow as pa

    kind = piece.type
    if pa.types.is_dictionary(kind):
        own = _arrow_numbers(piece.dictionary)
        return _taken(own, piece.indices, math.nan)
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        read: Floats = piece.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return read
    if not _textual(kind):
        return np.full(len(piece), np.nan)
    for empty in (False, True):  # first as it is, then without the usual words for a missing cell
        try:
            cast = (_without_words(piece) if empty else piece).cast(pa.float64())
            return np.asarray(cast.to_numpy(zero_copy_only=False))
        except (pa.ArrowException, ValueError):
            continue
    return np.fromiter(map(_number, _listed(piece)), np.float64, len(piece))  # each alone, by the same grammar


def _without_words(piece: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    small = pc.utf8_lower(piece)
    empty = reduce(pc.or_, (pc.equal(small, word) for word in sorted(MISSING)))
    return pc.if_else(empty, pa.scalar(None, piece.type), piece)


def _arrow_days(column: Any) -> Floats | None:
    """Return a column of dates or timestamps as days since 1970, or None if it holds another type."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date32(kind):
        read: Floats = column.cast(pa.int32()).cast(pa.float64()).to_numpy()
        return read
    if not (pa.types.is_timestamp(kind) or pa.types.is_date64(kind)):
        return None
    unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
    missing = np.asarray(column.is_null().to_numpy(), dtype=np.bool_)
    counts = column.cast(pa.int64())
    return _since((counts.fill_null(0) if counts.null_count else counts).to_numpy(), missing, unit)


def _arrow_distinct(column: Any) -> tuple[list[Any], Ints]:
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_dictionary(kind) or pa.types.is_primitive(kind) or _textual(kind)):
        return [None], np.zeros(len(column), dtype=np.int64)
    whole = column if hasattr(column, "chunks") else pa.chunked_array([column])
    coded = (whole if pa.types.is_dictionary(kind) else whole.dictionary_encode()).unify_dictionaries()
    values = _listed(coded.chunk(0).dictionary) if coded.num_chunks else []
    parts = [_taken(np.arange(len(values)), chunk.indices, len(values)) for chunk in coded.chunks]
    return [*values, None], np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _taken(values: NDArray[Any], indices: Any, missing: float) -> NDArray[Any]:
    """Return the values at pyarrow indices; `missing` where there is none."""
    if not len(values):
        return np.full(len(indices), missing)
    if not indices.null_count:
        return np.asarray(values[indices.to_numpy(zero_copy_only=False)])
    empty = np.asarray(indices.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    places = indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(empty, missing, values[places])


def _trimmed(column: Any) -> bool:
    """Whether no cell begins or ends with a space or another character up to it, or with one beyond ASCII."""
    import pyarrow.compute as pc

    return not pc.any(pc.match_substring_regex(column, r"^[\x00-\x20]|[\x00-\x20]$|[^\x00-\x7f]")).as_py()


def _textual(kind: Any) -> bool:
    import pyarrow as pa

    tests: tuple[Callable[[Any], bool], ...] = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_string_view,
        pa.types.is_binary_view,
    )
    return any(test(kind) for test in tests)


def _listed(values: Any) -> list[Any]:
    """Return pyarrow values as a list; text that is not UTF-8 is decoded with replacements."""
    import pyarrow as pa

    try:
        return list(values.to_pylist())
    except (UnicodeDecodeError, ValueError, OverflowError):
        if _textual(values.type):
            return [None if cell is None else text(cell) for cell in values.cast(pa.large_binary()).to_pylist()]
        return [None] * len(values)
