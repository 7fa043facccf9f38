"""A run as a record of the Differential Privacy Deployments Registry, in YAML.

The fields are those of `schemas/deployments-schema.yaml` in opendp/deployments-registry-data (commit 3e9c812). The
registry has one ε for a deployment: it is the largest that anybody is promised, and the details list every group.

The model card of a run: front matter in YAML, then the card of its student with what the report adds.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ipate.accounting.bounds import find_bound
from ipate.errors import InputError
from ipate.report.claims import covered, headline, not_covered, promised_epsilon, promises, public_facts
from ipate.report.facts import Facts, for_audience
from ipate.report.formats import people_count, plain, small, up
from ipate.report.odds import RATES, odds, share
from ipate.students.card import card

MISSING = "Not stated."
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")


def registry_record(facts: Facts) -> dict[str, Any]:
    """Return the record as plain values, from public facts alone; a run without a guarantee has none."""
    facts = for_audience(facts, "public")
    if not facts.publishable:
        raise InputError("the run has no guarantee that may be published, so there is no deployment to register")
    about = facts.identity
    if about.sector is not None and about.sector not in SECTORS:
        raise InputError(f"report.sector is {about.sector!r}: the registry has {', '.join(SECTORS)}")
    basic = {
        "name": f"Classifier of {facts.data_name}",
        "data_curators": [about.controller or MISSING],
        "intended_use": about.purpose or MISSING,
        "data_product_type": "Machine learning model",
        "data_product_region": about.region or MISSING,
        "description": _description(facts),
        "publication_date": about.begun or "1900-01-01",
    }
    if about.sector is not None:
        basic["data_product_sector"] = about.sector
    slug = re.sub(r"[^a-z0-9]+", "-", f"{about.run or facts.data_name}".lower()).strip("-")
    return {
        "url_slug": f"ipate-{slug}",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": basic,
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": f"Rows of people with one of {len(facts.classes)} classes; any rows are possible.",
                "unprotected_quantities": " ".join(public_facts(facts)),
            },
            "privacy_loss": _privacy_loss(facts),
            "deployment_model": _model(facts),
            "accounting": _accounting(facts),
            "implementation": _implementation(facts),
            "administrative": {
                "sources": MISSING,
                "notes": " ".join((*covered(facts), "Not covered:", *not_covered(facts))),
                "registry_authors": [about.controller or MISSING],
            },
        },
    }


def missing_fields(facts: Facts) -> tuple[str, ...]:
    """Return the keys of `[report]` that the registry needs and the run does not state."""
    return tuple(name for name in ("controller", "purpose", "region") if getattr(facts.identity, name) is None)


def _description(facts: Facts) -> str:
    return (
        f"A classifier that learnt from labels of {facts.n_pool:,} public points; {facts.manner.way}. Each of the "
        f"people who took part ({facts.people}) has a budget of their own (individualized PATE)."
    )


def _privacy_loss(facts: Facts) -> dict[str, Any]:
    promised = [(promised_epsilon(facts, group) or group.budget.epsilon, group) for group in facts.groups]
    spent = {} if facts.released is None else {paid.id: paid.cost for paid in facts.released.groups}
    details = "; ".join(
        f"group {group.id}, {people_count(facts.size(group))} people: promised ε = {up(epsilon, 4)} at "
        f"δ = {small(group.budget.delta)}" + (f", spent ε = {up(spent[group.id], 4)}" if group.id in spent else "")
        for epsilon, group in promised
    )
    return {
        "privacy_unit": "Row" if facts.by_row else "Person",
        "privacy_unit_details": (
            f"Adjacent data sets differ in {'one row' if facts.by_row else 'all rows of one person'}, replaced by any "
            f"other data or by nothing. {facts.unit} Who takes part and with which budget is public."
        ),
        "privacy_parameters": {
            "epsilon": float(max(epsilon for epsilon, _ in promised)),
            "delta": float(max(group.budget.delta for _, group in promised)),
        },
        "privacy_parameters_details": (
            f"Every group has its own parameters; the largest are stated. They are: {details}. What was spent includes "
            "earlier runs on the same ledger."
        ),
    }


def _model(facts: Facts) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "model_name_details": "Whoever runs the program sees the data; everybody else sees releases alone.",
        "actors": (
            "The data owner and those who run the program are trusted. Whoever sees the labels, the model or the "
            "public report is not; they may know everybody else's data."
        ),
        "release_type": "One release",
        "release_type_details": (
            "Later runs about the same people are charged to the same ledger, and a budget holds for all of them."
        ),
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _accounting(facts: Facts) -> dict[str, Any]:
    used = facts.parameters
    return {
        "post_processing": "The model is trained on released labels and public points; predictions follow from it.",
        "composition": (
            f"{find_bound(used.bound).describe(used.noise)}. Each group's account is a filter: a release that could "
            "pass a budget is not made."
        ),
    }


def _implementation(facts: Facts) -> dict[str, Any]:
    used = facts.parameters
    noise = "Noise that the engine states no parameters of"
    if used.laplace_scale is not None:
        noise = f"Laplace noise with scale {plain(used.laplace_scale)}"
    elif used.sigma is not None:
        noise = f"Gaussian noise of standard deviation {plain(used.sigma)}"
    noise += facts.manner.noise_on
    if used.check_sigma is not None and used.threshold is not None:
        noise += (
            f", after a noisy test (σ = {plain(used.check_sigma)}) of the largest count against {plain(used.threshold)}"
        )
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return {
        "preprocessing_and_hyperparameter_tuning": (
            "Features are encoded by a schema that follows from public rows; settings follow from budgets, numbers of "
            f"people and public data ({used.reason})."
        ),
        "mechanisms": (
            f"{noise}. Noise comes from the operating system's secure randomness; no noisy number is released "
            f"unrounded. Programs: {versions}."
        ),
        "justification": "Budgets were chosen by people or by a policy before the run"
        + ("." if facts.identity.policy is None else f" ({facts.identity.policy})."),
    }


def as_yaml(record: Mapping[str, Any]) -> str:
    """Return a record as YAML; every text is quoted as in JSON, which YAML reads."""
    return "\n".join(_lines(record, "")) + "\n"


def _lines(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(entry, f"{indent}  ")
        elif isinstance(entry, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_scalar(item)}" for item in entry)
        else:
            yield f"{indent}{key}: {_scalar(entry)}"


def _scalar(value: Any) -> str:
    if isinstance(value, float):  # YAML 1.1 reads 1e-05 as text, and 1.0e-05 as a number
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)


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
        "tags": ["differential-privacy", "PATE", facts.parameters.engine, facts.parameters.student_model],
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
