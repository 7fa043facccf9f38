"""The meaning of (ε, δ) for one person in plain words, and the number formats for it."""

import math

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


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share as a percentage, and None as a dash."""
    return "—" if value is None else f"{100 * value:.{digits}f}%"


def used(share: float) -> str:
    """Format the used share of a budget, rounded down, so that 100% means all of it."""
    return f"{math.floor(share * 1000 + 1e-9) / 10:.1f}%"


def signed_points(value: float) -> str:
    """Format a difference of two shares in percentage points, with its sign."""
    points = round(100 * value, 1)
    return "±0.0" if points == 0 else f"{points:+.1f}".replace("-", "−")


_WEAK = 10.0
_HUGE = 700.0  # a larger exponent overflows a float


def assured(who: str, epsilon: float, delta: float, *, shown: str | None = None) -> str:
    """Return the meaning of (ε, δ) for one person in plain words; `shown` overrides the text for ε."""
    factor = up(math.exp(epsilon)) if epsilon < _HUGE else f"e^{plain(epsilon)}"
    sentence = (
        f"{who}: whatever anyone learns from the student, its labels or anything made of them, their own data changes "
        f"the probability of any outcome by at most a factor {factor} (ε = {shown or plain(epsilon)}), "
        f"except for a chance of δ = {small(delta)}. {_example(epsilon, delta)}"
    )
    if epsilon > _WEAK:
        sentence += " A factor as large as this rules out little: it is a weak promise."
    return sentence


def _example(epsilon: float, delta: float, chance: float = 0.1) -> str:
    """Return the range of an outcome's probability if it is `chance` without the person's data."""
    most = min(math.exp(min(epsilon, _HUGE)) * chance + delta, 1 - (1 - chance - delta) * math.exp(-epsilon))
    least = max(0.0, (chance - delta) * math.exp(-epsilon))
    most_text = "99.9…" if most > 0.999 else up(100 * most)
    return (
        f"For example, an outcome that would have a probability of {percent(chance, 0)} with their data replaced has "
        f"between {down(100 * least)}% and {most_text}% with it."
    )
