"""The one form of a person's id, whatever file, table or argument it comes from, and ids that look alike."""

import re
import unicodedata
import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import SimilarIdsWarning, show

ALLOWED = "it must be a whole number or text of 1 to 200 characters"
_BLANKS = "\ufeff\u200b\u200c\u200d\u2060"  # invisible characters that `str.strip` keeps
_EXACT = 2**53  # a larger float has lost digits, so it identifies nobody
_LONGEST = 200
_LISTED = 3
_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def plain_id(value: object) -> str:
    """Return an id in its one form, or "" if it is not valid.

    Text is stripped and composed (Unicode NFC), and a whole number has no decimals, so that 7, 7.0, "7", " 7 " and
    "7.0" are one person in every format. Case and leading zeros are kept.
    """
    if isinstance(value, str):
        if value.isascii() and value.isalnum() and len(value) <= _LONGEST:
            return str(value)
        text = unicodedata.normalize("NFC", value).strip().strip(_BLANKS).strip()
        if whole := _WHOLE.fullmatch(text):
            text = "0" if int(whole[1]) == 0 and whole[1].startswith("-") else whole[1]
        return text if len(text) <= _LONGEST and "\0" not in text else ""
    if isinstance(value, bool | np.bool_):
        return ""
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < _EXACT else ""
    return ""


def plain_ids(values: Iterable[object]) -> list[str]:
    """Return every id in its one form, "" where it is not valid."""
    return [plain_id(cell) for cell in (values.tolist() if isinstance(values, np.ndarray) else values)]


def all_plain(values: NDArray[Any]) -> bool:
    """Whether an array of text holds ASCII letters and digits alone, so that every id is in its one form already."""
    if values.dtype.kind != "U" or not values.size or values.dtype.itemsize > 4 * _LONGEST:
        return False
    letters = np.ascontiguousarray(values).view(np.uint32)
    return bool(letters.max() < 128 and np.strings.isalnum(values).all())


def alike(ids: Collection[str], others: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return pairs of different ids that differ only in case, leading zeros or the width of characters.

    Pairs are within `ids`, and between `ids` and those `others` that are not among them.
    """
    own = set(ids)
    seen: dict[str, str] = {}
    for name in others:
        if name not in own:
            seen.setdefault(_look(name), name)
    return [(first, name) for name in ids if (first := seen.setdefault(_look(name), name)) != name]


def alike_sentence(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a sentence, without its full stop, that counts pairs of ids that look alike and names the first."""
    listed = ", ".join(f"{show(one)} and {show(other)}" for one, other in pairs[:_LISTED])
    return (
        f"{len(pairs):,} {'id differs' if len(pairs) == 1 else 'ids differ'} from another only in case or leading "
        f"zeros ({listed}): if they are one person, use one id; otherwise each id has its own budget"
    )


def warn_alike(ids: Iterable[str], others: Iterable[str] = (), *, where: str) -> None:
    """Warn about ids that look alike, because one person with two ids would have two budgets; ids are public."""
    pairs = alike(dict.fromkeys(ids), others)
    if pairs:
        warnings.warn(f"{where}: {alike_sentence(pairs)}", SimilarIdsWarning, stacklevel=3)


def _look(name: str) -> str:
    if name.isascii() and name.isdigit():
        return name.lstrip("0") or "0"
    return _ZEROS.sub("", unicodedata.normalize("NFKC", name).casefold())
