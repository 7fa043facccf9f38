"""The meaning of an ε in plain words: the factor e^ε, an example, and a warning about a large one."""

import math

from ipate.report.formats import down, percent, plain, up

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
