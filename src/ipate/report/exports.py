"""The composition of a run as events of dp_accounting, so that others can account for it with their own tools.

Every release of a run under gdp or loose is a `GaussianDpEvent`, whose noise multiplier is σ over what one person moves
when their data is replaced, or a `LaplaceDpEvent`, whose multiplier is b/(2Δ): two counts move by Δ each. The ε of
Laplace releases that ipate states is at least that of dp_accounting, because ipate charges the worst release with the
same ε₀. Under other bounds there is no such event, and none is exported.

Exports of a report: its JSON twin, and a Python program that recomputes the costs without ipate.
"""

from dataclasses import asdict, dataclass
from typing import Any

from ipate.accounting.bounds import find_bound
from ipate.files import json_text
from ipate.release.description import GroupFacts
from ipate.release.history import Composition
from ipate.release.results import GroupResult
from ipate.report import claims
from ipate.report.facts import HAS_FIGURE, Facts, Identity, Outcome, Owner, Scores, for_audience
from ipate.report.odds import RATES, Odds, balance, ending, odds
from ipate.report.questions import layers_of, questions

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


FORMAT = "ipate report 3"
_INFLUENCE = ("weight", "copies", "participation", "people_share", "vote_share", "influence")
_OF_SIZE = ("people_share", "vote_share", "influence")

_GDP = """\
from math import exp, sqrt
from scipy.optimize import brentq
from scipy.stats import norm

{numbers}
def cost(moved, delta{before}):
    mu = sqrt({formula}{plus})
    def excess(epsilon):  # Gaussian differential privacy: Dong, Roth and Su (2022)
        return norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta
    return brentq(excess, 0, 500, xtol=1e-12)

{groups}
costs = {{group: cost(*values) for group, values in groups.items()}}
print(costs)
"""
_LOOSE = """\
from math import log{more}

{numbers}
def cost(moved, delta, order{before}):
    rdp = {formula}{plus}
    return max(0, rdp + {conversion})

{groups}
costs = {{group: cost(*values) for group, values in groups.items()}}
print(costs)
"""


def recipe(facts: Facts) -> str | None:
    """Return a program that computes releasable costs from public figures; None if no short one exists."""
    outcome, used = facts.outcome, facts.parameters
    bound = find_bound(used.bound)
    if (
        outcome is None
        or not facts.publishable
        or not facts.manner.uniform
        or not outcome.n_queries
        or bound.recipe is None
    ):
        return None
    queries, labels = outcome.n_queries - outcome.reused_queries, outcome.n_labels - outcome.reused_labels
    without = ", without those of earlier runs" if outcome.reused_queries else ""
    teachers = " and not reinforced" if outcome.reinforced else ""
    numbers = f"queries, labels = {queries}, {labels}  # rows of labels.csv; those answered{teachers}{without}\n"
    if not facts.manner.by_query:
        numbers = "labels = 1  # all labels are of one release, which costs as much as one label\n"
    label, check = bound.recipe
    if used.laplace_scale is None:
        numbers += f"sigma = {used.sigma!r}\n"
        if used.check_sigma is not None:
            numbers += f"check_sigma = {used.check_sigma!r}\n"
            label += f" + {check}"
        formula = f"{'order * ' if bound.has_orders else ''}moved**2 * ({label})"
    elif bound.laplace_recipe is None:
        return None
    else:
        numbers, formula = f"{numbers}scale = {used.laplace_scale!r}\n", bound.laplace_recipe
    conversion = "log(1 / delta) / (order - 1)"
    if used.conversion == "improved":
        conversion = "log(1 - 1 / order) - log(order * delta) / (order - 1)"
    return (_LOOSE if bound.has_orders else _GDP).format(
        numbers=numbers,
        formula=formula,
        more=", sinh" if used.laplace_scale is not None else "",
        conversion=conversion,
        groups=_table(facts, outcome),
        before=", before" if outcome.carried else "",
        plus=" + before" if outcome.carried else "",
    )


def _table(facts: Facts, outcome: Outcome) -> str:
    orders = facts.parameters.orders
    lines = ["groups = {  # the most that one person moves, δ" + (", Rényi order" if orders else "")]
    if outcome.carried:
        lines[0] += f", {'cost at that order' if orders else 'μ²'} of earlier runs"
    for group in facts.groups:
        extra = f", {orders[group.id]!r}" if orders else ""
        extra += f", {outcome.opening.get(group.id, 0.0)!r}" if outcome.carried else ""
        lines.append(f"    {group.id!r}: ({group.account.sensitivity!r}, {group.budget.delta!r}{extra}),")
    return "\n".join([*lines, "}"])


def ways_to_check(facts: Facts) -> tuple[str, ...]:
    """Return sentences on how a reader can check the report."""
    if facts.outcome is None:
        return (f"There is no figure to check. {HAS_FIGURE}",)
    found = ["This report reads every charge from the run's ledger; the costs are the sums of these charges."]
    if facts.publishable and facts.manner.figures:
        answered = "answered and not reinforced" if facts.outcome.reinforced else "answered"
        figures = facts.manner.figures.format(answered=answered)
        found.append(
            f"The costs follow from public figures: {figures} and δ from the tables of this report."
            + (" What earlier runs had spent is added." if facts.outcome.carried else "")
        )
    if facts.parameters.design is not None:
        found = [
            "The budgets were charged as a whole, before the test: nothing has to be added up.",
            (
                "The tables of the test are in the public file design.json. Reading it with "
                "ipate design --check verifies every condition that the promise rests on, whoever wrote the file."
            ),
        ]
    elif recipe(facts) is not None:
        found.append("The program below does that without ipate.")
    elif not facts.manner.figures:
        found.append("No program that recomputes them covers this engine.")
    elif facts.publishable:
        found.append("The function ipate.account_for computes them too; under this bound any votes will do.")
    else:
        found.append("The function ipate.account_for computes them too, from the private votes.")
    if facts.ledger_head is not None:
        found.append(
            "The run's ledger holds every charge in a chain of hashes. Its head, below among the parameters, shows its "
            "holder whether a copy is the one that this report was made from, or a later one."
        )
    return tuple(found)


def twin(facts: Facts) -> dict[str, Any]:
    """Return the facts as plain values for JSON: what may be published, and for the data owner what may not."""
    return {
        "format": FORMAT,
        "audience": facts.audience,
        "marks": list(claims.marks(facts)),
        "headline": claims.headline(facts),
        "publishable": _publishable(for_audience(facts, "public")),
        "private": None if facts.owner is None else _private(facts, facts.owner),
    }


def _publishable(facts: Facts) -> dict[str, Any]:
    outcome = facts.outcome
    return {
        "guarantee": {
            "kind": facts.guarantee.kind,
            "seeded": facts.guarantee.seeded,
            "overlap": facts.guarantee.overlap,
            "statement": facts.guarantee.statement,
            "stopped_by": facts.stopped_by,
            "summary": list(claims.summary(facts)),
            "covered": list(claims.covered(facts)),
            "public": list(claims.public_facts(facts)),
            "not_covered": list(claims.not_covered(facts)),
            "how_to_check": list(ways_to_check(facts)),
            "program": recipe(facts),
        },
        "identity": _identity(facts.identity),
        "questions": [asdict(question) for question in questions(facts)],
        "odds": [_odds(entry) for entry in odds(facts)],
        "layers": [asdict(layer) for layer in layers_of(facts)],
        "agreed": list(claims.agreed(facts)),
        "leaving": list(claims.leaving(facts)),
        "data": {
            "name": facts.data_name,
            "source": facts.data_source,
            "people": facts.n_people,
            "unprotected": facts.unprotected,
            "pool": facts.n_pool,
            "test": facts.n_test,
            "n_classes": len(facts.classes),
            "classes": list(facts.classes),
            "merged": [{**asdict(merge), "people": facts.count(merge.people)} for merge in facts.merged],
            "withdrawn": facts.withdrawn,
            "notes": [*facts.data_notes, *facts.notes],
        },
        "groups": [
            {**_allowed(facts, group), **({} if outcome is None else _spent(outcome.groups[place]))}
            for place, group in enumerate(facts.groups)
        ],
        "labelling": None if outcome is None else _labelling(facts, outcome),
        "scores": None if facts.public_scores is None else _given(facts.public_scores),
        "student_folder": facts.student_folder or None,
        "parameters": asdict(facts.parameters),
        "outside": list(facts.manner.outside),
        "noise": "seeded" if facts.guarantee.seeded else "secure",
        "split_seed": facts.split_seed,
        "versions": dict(facts.versions),
        "later_versions": [dict(later) for later in facts.later_versions],
        "ledger_head": facts.ledger_head,
        "events": events_payload(facts)["groups"] if group_events(facts) else None,
    }


def _identity(about: Identity) -> dict[str, Any]:
    return {**asdict(about), "fingerprints": dict(about.fingerprints)}


def _odds(entry: Odds) -> dict[str, Any]:
    """Return the odds of one group; each rate of false positives with the largest rate of true positives."""
    rates = [{"false_positives": rate, "true_positives": most} for rate, most in zip(RATES, entry.powers, strict=True)]
    return {"group": entry.group, "epsilon": entry.epsilon, "delta": entry.delta, "rates": rates}


def _private(facts: Facts, owner: Owner) -> dict[str, Any]:
    """Return what the public report leaves out; costs and labels only where they may not be published."""
    found: dict[str, Any] = {
        "guarantee": "none" if facts.guarantee.kind == "none" else "private",
        "scores": _given(owner.scores),
        "labels_of_standard_pate": owner.standard_labels,
        "teachers": {"accuracy": owner.teacher_accuracy, "plurality_accuracy": owner.plurality_accuracy},
        "comparison": None if owner.comparison is None else {"guarantee": "none", **asdict(owner.comparison)},
        "withdrawals": list(owner.owed),
        "consent": None if owner.consent is None else asdict(owner.consent),
        "fingerprint": owner.fingerprint,
        "noise_seed": facts.noise_seed,
    }
    if facts.publishable:
        return found
    return found | {
        "statement": facts.guarantee.statement,
        "stopped_by": facts.stopped_by,
        "summary": list(claims.summary(facts)),
        "groups": [{"group": spent.id, **_spent(spent)} for spent in owner.outcome.groups],
        "labelling": _labelling(facts, owner.outcome),
        "ledger_head": facts.ledger_head,
    }


def _given(scores: Scores) -> dict[str, Any]:
    return {name: value for name, value in asdict(scores).items() if value is not None}


def _allowed(facts: Facts, group: GroupFacts) -> dict[str, Any]:
    """Return the public facts of a group; shares would tell a size that is not shown."""
    counted = facts.is_counted(group)
    return {
        "group": group.id,
        "people": facts.size(group),
        "teachers": group.teachers,
        "budget": group.budget.epsilon,
        "delta": group.budget.delta,
        "sensitivity": group.account.sensitivity,
        **{name: getattr(group, name) if counted or name not in _OF_SIZE else None for name in _INFLUENCE},
        "promised_epsilon": claims.promised_epsilon(facts, group),
        "promise": claims.promise(facts, group),
    }


def _spent(spent: GroupResult) -> dict[str, Any]:
    return {
        "cost": spent.cost,
        "spent_before": spent.before,
        "this_run_alone": spent.own,
        "largest_sensitivity": spent.sensitivity,
        "labels_until_exhausted": spent.labels_until_exhausted,
    }


def _labelling(facts: Facts, outcome: Outcome) -> dict[str, Any]:
    return {
        "ended": outcome.ended,
        "ending": ending(facts, outcome),
        "balance": balance(outcome.groups),
        "labels": outcome.n_labels,
        "queries": outcome.n_queries,
        "reinforced": outcome.reinforced,
        "by_class": dict(outcome.by_class),
        "notes": list(outcome.notes),
        "reused": {"labels": outcome.reused_labels, "queries": outcome.reused_queries},
        "history": {
            "groups": [group.id for group in facts.groups],
            "points": [
                [point.queries, point.labels, *(point.costs[group.id] for group in facts.groups)]
                for point in outcome.history
            ],
        },
    }


def as_json(facts: Facts) -> str:
    """Return the facts as JSON text; non-finite numbers become null."""
    return json_text(twin(facts))
