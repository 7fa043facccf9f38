"""The model card of a run: front matter in YAML, then the card of its student with what the report adds."""

from collections.abc import Mapping
from typing import Any

from ipate.errors import InputError
from ipate.report.claims import headline, promises
from ipate.report.facts import Facts, for_audience
from ipate.report.odds import RATES, odds, share
from ipate.report.registry import as_yaml
from ipate.students.card import card


def model_card(facts: Facts, student: Mapping[str, Any]) -> str:
    """Return the card in Markdown, from public facts and the facts of `student.json`; refused without a guarantee."""
    facts = for_audience(facts, "public")
    if not facts.publishable:
        raise InputError(
            "the run has no guarantee that may be published, so a student of it, and a card, must stay with the data "
            "owner; README.md in private/student describes it"
        )
    return f"---\n{as_yaml(_front(facts, student))}---\n\n{card(student).rstrip()}\n\n{_added(facts)}\n"


def _front(facts: Facts, student: Mapping[str, Any]) -> dict[str, Any]:
    front: dict[str, Any] = {
        "library_name": "ipate",
        "pipeline_tag": "tabular-classification" if student["image"] is None else "image-classification",
        "tags": ["differential-privacy", "PATE", facts.parameters.voting, facts.parameters.student_model],
        "datasets": [facts.data_name],
        "privacy": {
            "guarantee": facts.guarantee.kind,
            "bound": facts.parameters.bound,
            "unit": "row" if facts.by_row else "person",
        },
    }
    found = odds(facts)
    if found:
        front["privacy"] |= {
            "largest_epsilon": max(entry.epsilon for entry in found),
            "largest_delta": max(entry.delta for entry in found),
        }
    return front


def _added(facts: Facts) -> str:
    about = facts.identity
    known = {
        "Run": about.run,
        "Date": about.begun,
        "Controller": about.controller,
        "Contact": about.contact,
        "Intended use": about.purpose,
        "Policy": about.policy,
    }
    lines = ["## Privacy", headline(facts) + ".", *(f"- {sentence}" for _, sentence in promises(facts))]
    if found := odds(facts):
        columns = ["group", *(f"true positives at {rate:.0%} false positives, at most" for rate in RATES)]
        table = [columns, ["---"] * len(columns), *([entry.group, *map(share, entry.powers)] for entry in found)]
        lines += ["### What an attacker can learn", "\n".join(f"| {' | '.join(row)} |" for row in table)]
    lines += ["## Who is responsible", "\n".join(f"- {name}: {value or 'not stated'}" for name, value in known.items())]
    return "\n\n".join(lines)
