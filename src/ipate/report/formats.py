"""The meaning of an ε in plain words: the factor e^ε, an example, and a warning about a large one.

Formats of a report: numbers as text, and HTML in which every text is escaped, so that no name becomes markup.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape

_WEAK = 10.0
_HUGE = 700.0  # a larger exponent overflows a float


def weakness(epsilon: float) -> str:
    """Return a sentence about an ε that rules out little, and nothing about others."""
    return " A factor as large as this rules out little: it is a weak promise." if epsilon > _WEAK else ""


def factor_of(epsilon: float) -> str:
    """Return e^ε, rounded up."""
    return up(math.exp(epsilon)) if epsilon < _HUGE else f"e^{plain(epsilon)}"


def example(epsilon: float, delta: float, *, whose: str = "their", chance: float = 0.1) -> str:
    """Return the range of an outcome's probability if it is `chance` with the person's data replaced."""
    most = min(math.exp(min(epsilon, _HUGE)) * chance + delta, 1 - (1 - chance - delta) * math.exp(-epsilon))
    least = max(0.0, (chance - delta) * math.exp(-epsilon))
    most_text = "99.9…" if most > 0.999 else up(100 * most)
    return (
        f"For example, an outcome that would have a probability of {percent(chance, 0)} with {whose} data replaced "
        f"has between {down(100 * least)}% and {most_text}% with it."
    )


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain(value: float, digits: int = 4) -> str:
    """Format a number with at most `digits` significant digits, without an exponent between 1e-4 and 1e7."""
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return small(value, digits)
    text = f"{value:.{digits}g}"
    if "e" in text:
        text = f"{float(text):.0f}"
    if abs(value) >= 1e4:
        text = f"{float(text):,.0f}"
    return text.replace("-", "−")


def small(value: float, digits: int = 2) -> str:
    """Format a number in scientific notation, such as 2.5·10⁻⁶."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    power = f"10{str(int(exponent)).translate(_RAISED)}"
    return power if mantissa == "1" else f"{mantissa}·{power}".replace("-", "−")


def up(value: float, digits: int = 3) -> str:
    """Format an upper bound: rounded up to `digits` significant digits."""
    return plain(_rounded(value, digits, above=True), digits)


def down(value: float, digits: int = 3) -> str:
    """Format a lower bound: rounded down to `digits` significant digits."""
    return plain(_rounded(value, digits, above=False), digits)


def _rounded(value: float, digits: int, *, above: bool) -> float:
    if value == 0 or not math.isfinite(value):
        return value
    step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    nearest = round(value / step)
    if math.isclose(nearest * step, value, rel_tol=1e-12):
        return nearest * step
    return (math.ceil(value / step) if above else math.floor(value / step)) * step


def people_count(people: int | str | None) -> str:
    """Format a number of people as it may be shown."""
    return "not stated" if people is None else people if isinstance(people, str) else f"{people:,}"


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share as a percentage, and None as a dash."""
    return "—" if value is None else f"{value:.{digits}%}"


def used(share: float) -> str:
    """Format the used share of a budget, rounded down, so that 100% means all of it."""
    return f"{math.floor(share * 1000 + 1e-9) / 10:.1f}%"


def left(rest: float, budget: float) -> str:
    """Format the ε that is left of a budget, rounded down; less than a thousandth of the budget is nothing."""
    return "nothing" if rest < budget / 1000 else down(rest, 4)


def signed_points(value: float) -> str:
    """Format a difference of two shares in percentage points, with its sign."""
    points = round(100 * value, 1)
    return "±0.0" if points == 0 else f"{points:+.1f}".replace("-", "−")


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
    if tag == "meta":  # the only void element of the page
        return Markup(f"<{tag}{parts}>")
    return Markup(f"<{tag}{parts}>{''.join(text(child) for child in children)}</{tag}>")


def bullets(items: Iterable[object]) -> Markup:
    """Return an unordered list."""
    return element("ul", *(element("li", item) for item in items))


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> Markup:
    """Return a table; narrow screens show rows as cards, so every cell carries its column's name.

    The first `words` columns hold text; the others hold numbers and are aligned to the right.
    """
    shape = [(column, None if place < words else "number") for place, column in enumerate(columns)]
    head = element("tr", *(element("th", column, scope="col", class_=kind) for column, kind in shape))
    lines = []
    for first, *rest in rows:
        cells = [
            element("td", cell, class_=kind, data_label=column)
            for cell, (column, kind) in zip(rest, shape[1:], strict=True)
        ]
        lines.append(element("tr", element("th", first, scope="row"), *cells))
    pair = "pair" if len(columns) == 2 else "prose" if words == len(columns) else None
    return element("table", element("caption", caption), element("thead", head), element("tbody", *lines), class_=pair)
