"""Words that several loaders' messages share."""

import difflib
from collections.abc import Iterable

from ipate.tables import show

__all__ = ["nearest"]


def nearest(name: object, names: Iterable[object]) -> str:
    """Return the one of `names` that was probably meant, as a message shows it."""
    folded = {str(other).casefold(): str(other) for other in names}
    return show(folded[difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.0)[0]])
