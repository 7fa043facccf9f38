"""What budgets afford before any training: what a run would do, and what every engine would give.

The settings, and the refusals, are those of a run: an engine's own `settle` makes them. The figures are the engines'
own forecasts. Everything follows from public facts, and from what is left of the budgets where that is public.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipate.accounting.bounds import Meter
from ipate.engines.base import Engine, Forecast, Means
from ipate.engines.choose import Request
from ipate.engines.context import Bar, Facts, Settings, StandingOf, silent
from ipate.errors import BudgetExceededError, InputError, IpateError, TooFewLabelsError, check_count
from ipate.ledger.standing import Standing
from ipate.people.budgets import strictest_first
from ipate.people.people import People


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run would do, and what budgets afford under the engines that plans cover.

    Attributes
    ----------
    means : Means
        The groups that the engine of the run would serve, with the sizes.
    settings : Settings, optional
        Those of the run; None where too few labels are expected.
    refusal : IpateError, optional
        Why the run would be refused, in the words of the run.
    forecasts : mapping
        What every engine would give, by its name; None if plans do not cover it.
    notes : tuple of str
        What the run would ask for, earlier runs on the ledger, how budgets were merged, and engines that cannot serve.
    """

    means: Means
    settings: Settings | None
    refusal: IpateError | None
    forecasts: Mapping[str, Forecast | None]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON; small groups are not counted, because a plan may be published."""
        settings, found = self.settings, [forecast for forecast in self.forecasts.values() if forecast is not None]
        groups = self.means.groups
        stated: dict[str, Any] = {
            "groups": [{"id": g.id, "epsilon": g.epsilon, "delta": g.delta, "people": g.people} for g in groups],
            "n_people": self.means.n_people,
            "classes": self.means.n_classes,
            "pool": self.means.n_pool,
            "engine": None if settings is None else settings.engine,
            "variant": None if settings is None else settings.variant,
            "reason": None if settings is None else settings.reason,
            "settings": None if settings is None else json.loads(settings.to_json()),
            "refusal": None if self.refusal is None else str(self.refusal),
            "notes": [*self.notes, *(note for forecast in found for note in forecast.notes)],
        }
        for forecast in found:
            stated = {**forecast.facts, **stated}
        return {name: _shown(value, self.means.shown) for name, value in stated.items()}


def make_plan(
    request: Request,
    facts: Facts,
    standing: StandingOf,
    *,
    engines: Sequence[Engine[Any]] | None = None,
    bar: Bar = silent,
) -> Plan:
    """Return what a run with this request would do, and what the engines would give.

    `engines` are those whose figures are wanted, by default those of the request. Where the ledger refuses the run, the
    figures are for whole budgets. Other invalid input is refused as by a run, but not that of another engine.
    """
    check_count("pool", facts.n_pool)
    check_count("classes", facts.n_classes, least=2)
    told = _Told(standing)
    settings: Settings | None = None
    refusal: IpateError | None = None
    try:
        settings = request.settle(facts, told)
    except (TooFewLabelsError, BudgetExceededError) as error:
        refusal = error
    compared = request.engines if engines is None else engines
    name = request.engine if settings is None else settings.engine
    used = next((engine for engine in compared if engine.name == name), compared[0])
    means = used.means(facts, told)
    refusal = told.refusal or refusal
    notes = [*_of_standing(means, told.refusal), *means.notes]
    if settings is not None:
        notes.append(f"The run asks for {settings.engine}. Its settings: {settings.reason}.")
    if refusal is not None and refusal is not told.refusal:
        notes.append(f"The run would be refused: {refusal}.")
    forecasts: dict[str, Forecast | None] = {}
    for engine in compared:
        try:
            forecasts[engine.name] = engine.forecast(engine.means(facts, told), bar=bar)
        except (InputError, BudgetExceededError) as error:
            if engine is used:
                raise
            notes.append(f"No figures for {engine.title}: {error}.")
        else:
            if forecasts[engine.name] is None:
                notes.append(f"No figures for {engine.title}: plans do not cover this engine.")
    return Plan(means=means, settings=settings, refusal=refusal, forecasts=forecasts, notes=tuple(notes))


class _Told:
    """What earlier runs left of the budgets, read once; a refusal is kept and not raised."""

    def __init__(self, standing: StandingOf) -> None:
        self.standing = standing
        self.refusal: IpateError | None = None
        self._known: dict[tuple[Any, Meter], Standing | None] = {}

    def __call__(self, people: People, meter: Meter) -> Standing | None:
        """Return what is left to people in these groups; None if nothing is spent, or the ledger refuses the run."""
        asked = (people.groups, meter)
        if asked not in self._known:
            try:
                self._known[asked] = self.standing(people, meter)
            except IpateError as error:
                self._known[asked], self.refusal = None, self.refusal or error
        return self._known[asked]


def _of_standing(means: Means, refusal: IpateError | None) -> list[str]:
    """Return what a plan says about earlier runs on the ledger."""
    standing = means.standing
    if refusal is not None:
        return [f"The run would be refused: {refusal}. These figures are for whole budgets."]
    if standing is None:
        return []
    if standing.private:
        why = "depend on private votes, so what is left is private, and the run affords no more than this"
        return [f"These figures are for whole budgets: costs of earlier runs on {standing.ledger} {why}."]
    spent = [
        f"{group.id} ε = {left.epsilon(group.budget):.4g} of {group.epsilon:g}"
        for group in strictest_first(means.groups)
        if (left := standing.groups.get(group.id)) is not None
    ]
    spending = f"Earlier runs on {standing.ledger} have spent at most {', '.join(spent)}"
    return [f"{spending}; these figures are for what is left."]


def _shown(facts: Any, shown: Callable[[int | None], int | str | None]) -> Any:
    """Return facts in which every `people` is a number that may be shown."""
    if isinstance(facts, list | tuple):
        return [_shown(fact, shown) for fact in facts]
    if not isinstance(facts, Mapping):
        return facts
    return {name: shown(value) if name == "people" else _shown(value, shown) for name, value in facts.items()}
