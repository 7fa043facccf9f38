"""Write a report as HTML and JSON, public or private."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ipate.errors import InputError
from ipate.files import write_text
from ipate.report import claims
from ipate.report.facts import Facts, Outcome
from ipate.report.page import page
from ipate.report.recipe import recipe, ways_to_check


@dataclass(frozen=True, kw_only=True)
class Report:
    """A written report: its files and its facts."""

    html: Path
    json: Path
    facts: Facts


def write_facts(facts: Facts, html: Path) -> Report:
    """Write the HTML and JSON files; private ones are readable by the file's owner only."""
    texts = {html: page(facts), html.with_suffix(".json"): as_json(facts)}
    for path, content in texts.items():
        write_text(path, content, private=facts.audience == "private")
    return Report(html=html, json=html.with_suffix(".json"), facts=facts)


def check_target(out: str | Path) -> Path:
    """Check that a path ends in .html and lies in an existing folder."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"out is {str(path)!r}: it must end in .html; the JSON file is written beside it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")
    return path


FORMAT = "ipate report 1"


def twin(facts: Facts) -> dict[str, Any]:
    """Return the facts as plain values for JSON, from the same filtered facts as the page."""
    outcome = facts.outcome
    found: dict[str, Any] = {
        "format": FORMAT,
        "audience": facts.audience,
        "marks": list(claims.marks(facts)),
        "headline": claims.headline(facts),
        "guarantee": {
            "kind": facts.guarantee.kind,
            "seeded": facts.guarantee.seeded,
            "statement": facts.guarantee.statement,
            "stopped_by": facts.stopped_by,
            "summary": list(claims.summary(facts)),
            "covered": list(claims.covered(facts)),
            "public": list(claims.public_facts(facts)),
            "not_covered": list(claims.not_covered(facts)),
            "how_to_check": list(ways_to_check(facts)),
            "program": recipe(facts),
        },
        "data": {
            "name": facts.data_name,
            "source": facts.data_source,
            "people": facts.n_people,
            "pool": facts.n_pool,
            "test": facts.n_test,
            "n_classes": facts.n_classes,
            "classes": list(facts.classes),
            "merged": [{"group": group, "into": into, "people": people} for group, into, people in facts.merged],
            "withdrawn": facts.withdrawn,
            "notes": [*facts.data_notes, *facts.notes],
        },
        "groups": _groups(facts),
        "labelling": None if outcome is None else _labelling(facts, outcome),
        "scores": None,
        "comparison": None,
        "teachers": None,
        "withdrawals": None,
        "parameters": {**asdict(facts.parameters), "orders": dict(facts.parameters.orders)},
        "noise": "seeded" if facts.guarantee.seeded else "secure",
        "noise_seed": facts.noise_seed,
        "split_seed": facts.split_seed,
        "versions": dict(facts.versions),
        "later_versions": [dict(later) for later in facts.later_versions],
        "ledger_head": facts.ledger_head,
    }
    if facts.owner is not None:
        compared = facts.owner.comparison
        found["scores"] = {**asdict(facts.owner.scores), "labels_of_standard_pate": facts.owner.standard_labels}
        found["withdrawals"] = list(facts.owner.owed)
        found["comparison"] = None if compared is None else asdict(compared)
        found["teachers"] = {
            "accuracy": facts.owner.teacher_accuracy,
            "plurality_accuracy": facts.owner.plurality_accuracy,
        }
    return found


def _groups(facts: Facts) -> list[dict[str, Any]]:
    rows = []
    for place, group in enumerate(facts.groups):
        row = {
            "group": group.id,
            "people": group.account.people,
            "teachers": group.teachers,
            "budget": group.budget.epsilon,
            "delta": group.budget.delta,
            "sensitivity": group.account.sensitivity,
            "weight": group.weight,
            "copies": group.copies,
            "participation": group.participation,
            "people_share": group.people_share,
            "vote_share": group.vote_share,
            "influence": group.influence,
            "promised_epsilon": claims.promised_epsilon(facts, group),
            "promise": claims.promise(facts, group),
        }
        if facts.outcome is not None:
            spent = facts.outcome.groups[place]
            row["cost"] = spent.cost
            row["spent_before"] = spent.before
            row["this_run_alone"] = spent.own
            row["largest_sensitivity"] = spent.sensitivity
            row["labels_until_exhausted"] = spent.labels_until_exhausted
        rows.append(row)
    return rows


def _labelling(facts: Facts, outcome: Outcome) -> dict[str, Any]:
    return {
        "ended": outcome.ended,
        "ending": claims.ending(facts, outcome),
        "balance": claims.balance(outcome.groups),
        "labels": outcome.n_labels,
        "queries": outcome.n_queries,
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
    return json.dumps(_finite(twin(facts)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
