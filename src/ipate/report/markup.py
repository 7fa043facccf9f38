"""Build HTML: every text is escaped here, so that no name in the data can become markup."""

from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is already HTML; `element` escapes everything else."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape a value unless it is `Markup`."""
    return value if isinstance(value, Markup) else Markup(escape(str(value), quote=True))


def element(tag: str, /, *children: object, **attributes: str | None) -> Markup:
    """Return one element; attributes that are None are omitted, and `class_` sets class."""
    parts = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{parts}>")
    return Markup(f"<{tag}{parts}>{''.join(text(child) for child in children)}</{tag}>")


def bullets(items: Iterable[object]) -> Markup:
    """Return an unordered list."""
    return element("ul", *(element("li", item) for item in items))


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> Markup:
    """Return a table; narrow screens show rows as cards, so every cell carries its column's name.

    The first `words` columns hold text; the others hold numbers and are aligned to the right.
    """

    def kind(place: int) -> str | None:
        return None if place < words else "number"

    head = element(
        "tr", *(element("th", column, scope="col", class_=kind(place)) for place, column in enumerate(columns))
    )
    lines = []
    for row in rows:
        first = element("th", row[0], scope="row")
        rest = [
            element("td", cell, class_=kind(place), data_label=columns[place])
            for place, cell in enumerate(row)
            if place > 0
        ]
        lines.append(element("tr", first, *rest))
    pair = "pair" if len(columns) == 2 else None
    return element("table", element("caption", caption), element("thead", head), element("tbody", *lines), class_=pair)
