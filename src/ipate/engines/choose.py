"""The engines by name, and the choice between them from public facts alone."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ipate.engines.ballots.design import ENOUGH, about
from ipate.engines.ballots.engine import POOL_PER_CLASS, Ballots
from ipate.engines.base import Engine, Means
from ipate.engines.context import FORMAT, Facts, Settings, StandingOf
from ipate.engines.teachers.engine import Teachers
from ipate.errors import BudgetExceededError, InputError, TooFewLabelsError, import_part, refuse_name, show

AUTO = "auto"
ENGINES: dict[str, Callable[..., Engine[Any]]] = {"teachers": Teachers, "ballots": Ballots}
"""The engines of this package by name; another one is named as module:attribute."""


def find_engine(name: str) -> Callable[..., Engine[Any]]:
    """Return the class of an engine; refuse an unknown name with the nearest one."""
    if name in ENGINES:
        return ENGINES[name]
    if ":" not in name:
        refuse_name("engine", name, (AUTO, *ENGINES, "module:attribute"))
    found: Callable[..., Engine[Any]] = import_part("engine", name)
    return found


@dataclass(frozen=True, kw_only=True)
class Request:
    """The engine that is asked for, "auto" for the one that public facts suggest, and the options of each."""

    engine: str = AUTO
    teachers: Teachers
    ballots: Ballots
    other: Engine[Any] | None = None  # from outside
    needed: int | str = "auto"  # how many labels must be expected
    key: str = "min_labels"  # what the option is called

    def named(self, name: str) -> Engine[Any]:
        """Return an engine with its options."""
        known: dict[str, Engine[Any]] = {"teachers": self.teachers, "ballots": self.ballots}
        if name in known:
            return known[name]
        if self.other is not None and self.engine == name:
            return self.other
        return find_engine(name)()

    def varied(self, engine: str, variant: str) -> "Request":
        """Return the request for an engine of this package and one of its variants; ballots need no teachers."""
        teachers = Teachers() if engine == self.ballots.name else replace(self.teachers, variant=variant)
        return replace(self, engine=engine, teachers=teachers, ballots=replace(self.ballots, variant=variant))

    @property
    def engines(self) -> tuple[Engine[Any], ...]:
        """The engines that a plan compares: those of this package, and one from outside that is asked for."""
        asked = () if self.engine == AUTO else (self.named(self.engine),)
        return tuple({engine.name: engine for engine in (self.teachers, self.ballots, *asked)}.values())

    def settle(self, facts: Facts, standing: StandingOf) -> Settings:
        """Return the settings of the engine that is asked for, or of the one that suits, with the reason.

        "auto" takes ballots where teachers would give too few labels and ballots more than noise, unless parameters of
        teachers are given. A refusal of the engine that is asked for says what the others would give.
        """
        for option, value in self.teachers.pinned.items() if self.engine == self.ballots.name else ():
            stated = f"{option} is {show(value)}" if isinstance(value, str | int | float) else f"{option} is given"
            raise InputError(f"{stated}: it is for teachers, and ballots have none; leave it out")
        name, why = (self.engine, "") if self.engine != AUTO else self._suited(facts, standing)
        engine = self.named(name)
        try:
            settings = self._settled(engine, facts, standing)
        except TooFewLabelsError as error:
            if self.engine == AUTO and not self.teachers.pinned:
                why = "auto chose ballots, because teachers would give too few labels"
                with suppress(InputError, BudgetExceededError):
                    return _reasoned(self._settled(self.ballots, facts, standing), why)
                raise
            others = (other for other in (self.teachers, self.ballots) if other.name != engine.name)
            offers = "".join(other.offer(other.means(facts, standing)) for other in others)
            raise TooFewLabelsError(f"{error}{offers}") from None
        return _reasoned(settings, why)

    def _settled(self, engine: Engine[Any], facts: Facts, standing: StandingOf) -> Settings:
        """Return the settings of an engine that its people and pool make useful."""
        found: Settings = engine.settle(facts, standing, needed=self.needed, key=self.key)
        return found

    def _suited(self, facts: Facts, standing: StandingOf) -> tuple[str, str]:
        """Return the engine that suits public facts, and why.

        Ballots are taken where they are reliable, because they gave the better student in every cell of the comparison
        in docs/ballots.md: all weights together must be 12 times the noise per class, and the pool must have 50 points
        per class. Teachers that are nets learn features of their own, which ballots do not have. What earlier runs left
        of the budgets counts, unless it is private.
        """
        if self.teachers.pinned or not self.ballots.known:
            return "teachers", "auto chose teachers, because parameters of teachers are given"
        if self.teachers.nets:
            return "teachers", "auto chose teachers, because nets learn features of their own"
        if facts.n_pool < POOL_PER_CLASS * facts.n_classes:
            return "teachers", (
                f"auto chose teachers, because the pool has {facts.n_pool} points for {facts.n_classes} classes, and "
                f"cells of ballots need {POOL_PER_CLASS} per class"
            )
        means: Means = self.ballots.means(facts, standing)
        whole = " of whole budgets" if means.standing is not None and means.standing.private else ""
        try:
            per_class = self.ballots.design(means).per_class
        except BudgetExceededError:
            per_class = 0.0
        except InputError as error:  # a variant or a bound that ballots do not have
            return "teachers", f"auto chose teachers ({error})"
        if per_class < ENOUGH:
            return "teachers", (
                f"auto chose teachers, because all ballots{whole} together weigh {about(per_class)} noise deviations "
                f"per class, and {ENOUGH:g} are needed"
            )
        return "ballots", f"auto chose ballots{whole}, whose weight is {about(per_class)} noise deviations per class"


def _reasoned(settings: Settings, why: str) -> Settings:
    """Return settings whose reason begins with that for the engine."""
    return replace(settings, reason="; ".join(filter(None, (why, settings.reason))))


def read_settings(path: Path) -> Settings:
    """Read the settings of a run by its engine; errors name the file and the remedy."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        stated = values.pop("format", None)
        if stated != FORMAT:
            raise InputError(f"the format is {show(stated)}, but this version of ipate reads {FORMAT!r}")
        found: Settings = find_engine(values.pop("engine"))().read(values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        what = error if isinstance(error, InputError) else f"these are not settings ({type(error).__name__}: {error})"
        raise InputError(
            f"{path}: the settings of the run cannot be read: {what}; restore the file, or start a new run in another "
            "folder"
        ) from None
    return found
