"""The composition of a run as events of dp_accounting, so that others can account for it with their own tools.

Every release of a run under gdp or loose is a `GaussianDpEvent`, whose noise multiplier is σ over what one person moves
when their data is replaced, or a `LaplaceDpEvent`, whose multiplier is b/(2Δ): two counts move by Δ each. The ε of
Laplace releases that ipate states is at least that of dp_accounting, because ipate charges the worst release with the
same ε₀. Under other bounds there is no such event, and none is exported.
"""

from dataclasses import dataclass
from typing import Any

from ipate.accounting.bounds import find_bound
from ipate.labelling.history import Composition
from ipate.report.facts import Facts

EVENTS_FORMAT = "ipate events 1"
_TYPES = {"gaussian": "GaussianDpEvent", "laplace": "LaplaceDpEvent"}


@dataclass(frozen=True, kw_only=True)
class GroupEvents:
    """The releases that one person of a group paid for, with the accountant of dp_accounting that adds them up."""

    group: str
    releases: Composition  # noise, noise multiplier and number of releases; earlier runs come first
    accountant: str  # "pld", or "rdp" at one order
    order: float | None
    delta: float
    epsilon: float  # what ipate states

    def event(self) -> Any:
        """Return the composition as one `dp_accounting.DpEvent`."""
        from dp_accounting import dp_event

        return dp_event.ComposedDpEvent(
            [
                dp_event.SelfComposedDpEvent(getattr(dp_event, _TYPES[noise])(multiplier), number)
                for noise, multiplier, number in self.releases
            ]
        )

    def recomputed(self) -> float:
        """Return ε by dp_accounting's own accountant."""
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant

        if not self.releases:
            return 0.0
        found = PLDAccountant() if self.order is None else RdpAccountant(orders=[self.order])
        found.compose(self.event())
        return float(found.get_epsilon(self.delta))

    def as_json(self) -> dict[str, Any]:
        """Return the composition as plain values, in the names of dp_accounting's events."""
        parts = [
            {
                "type": "SelfComposedDpEvent",
                "count": number,
                "event": {"type": _TYPES[noise], "noise_multiplier": multiplier},
            }
            for noise, multiplier, number in self.releases
        ]
        return {
            "group": self.group,
            "accountant": "PLDAccountant" if self.order is None else "RdpAccountant",
            "orders": None if self.order is None else [self.order],
            "delta": self.delta,
            "epsilon": self.epsilon,
            "event": {"type": "ComposedDpEvent", "events": parts},
        }


def group_events(facts: Facts) -> tuple[GroupEvents, ...]:
    """Return the events of every group; empty where costs are private or are not those of such releases."""
    outcome, used = facts.outcome, facts.parameters
    bound = find_bound(used.bound)
    if outcome is None or not facts.publishable or bound.recipe is None or used.conversion == "classic":
        return ()
    found = []
    for group, spent in zip(facts.groups, outcome.groups, strict=True):
        order = used.orders.get(group.id)
        before = outcome.opening.get(group.id)
        earlier = None if before is None else bound.noise_multiplier(before, order=order)
        if group.id not in outcome.composition or (before is not None and earlier is None):
            return ()
        found.append(
            GroupEvents(
                group=group.id,
                releases=(*(() if earlier is None else (("gaussian", earlier, 1),)), *outcome.composition[group.id]),
                accountant="pld" if order is None else "rdp",
                order=order,
                delta=group.budget.delta,
                epsilon=spent.cost,
            )
        )
    return tuple(found)


def why_no_events(facts: Facts) -> str:
    """Explain why a run has no events."""
    if facts.outcome is None or not facts.publishable:
        return "its costs may not be published"
    return (
        f"under the bound {facts.parameters.bound} with the conversion {facts.parameters.conversion} its costs are not "
        "those of Gaussian or Laplace releases, which dp_accounting could add up"
    )


def events_payload(facts: Facts) -> dict[str, Any]:
    """Return the events of all groups as plain values for JSON."""
    return {
        "format": EVENTS_FORMAT,
        "run": facts.identity.run,
        "bound": facts.parameters.bound,
        "neighbours": "one person's data replaced by any other data or by nothing; multipliers count the replacement",
        "groups": [entry.as_json() for entry in group_events(facts)],
    }
