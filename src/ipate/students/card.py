"""The model card of a student and its example, written from the facts of `student.json` alone."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from ipate.data.schema import Feature, Schema
from ipate.release.description import not_proven
from ipate.release.results import Record
from ipate.students.scores import label_counts

_LIMITS = (
    "The guarantee does not cover rows that were used as public or test data.",
    "The guarantee does not cover predictions for private rows: such a prediction is as private as its row.",
    "The guarantee says nothing about whether predictions are right or fair.",
    "A prediction about a person is no statement about whether their data was used.",
    "The student learnt from noisy labels of public points. Rows that differ from those points may be predicted badly.",
)


def origin(
    record: Record,
    *,
    data: str,
    how: str,
    classes: Sequence[Any],
    n_people: int,
    unprotected: int,
    notes: Sequence[str],
    scores: Mapping[str, Any] | None = None,
    **made: Any,
) -> dict[str, Any]:
    """Return the facts of `student.json` about how a student was made and which guarantee holds.

    `how` says how labels came about, with places for the numbers of `labels` and of points of the `pool`. `made` are
    further public settings. Costs are given only if the record's figures may be published.
    """
    open_ = record.publishable
    groups = [
        {"group": g.id, "epsilon": g.budget.epsilon, "delta": g.budget.delta, "cost": g.cost if open_ else None}
        for g in record.groups
    ]
    labels = {"pool": len(record.labels), "queries": record.n_queries, "labels": record.n_labels}
    labels |= {"reinforced": len(record.reinforced)} if record.reinforced else {}
    return {
        "made": {
            "data": data,
            "how": how.format(**labels),
            **made,
            "bound": record.bound,
            "conversion": record.conversion,
            **labels,
            "labels_by_class": label_counts(record.teachers_labels, classes),
        },
        "guarantee": {
            "kind": record.kind,
            "seeded": record.seeded,
            "publishable": open_,
            "statement": record.statement,
            "people": n_people,
            "unprotected": unprotected,
            "groups": groups,
        },
        "notes": list(notes),
        "scores": None if scores is None else dict(scores),
    }


def card(facts: Mapping[str, Any]) -> str:
    """Return the model card in Markdown."""
    made, promise, model = facts.get("made") or {}, facts.get("guarantee") or {}, facts["model"]
    parts = [f"# Student: {made.get('data', 'a deployed model')}", *_warnings(facts), *_what(facts)]
    if made:
        parts += _how(made)
    if promise:
        parts += _promise(promise)
    parts += _scores(facts.get("scores"))
    parts += ["## Limits", _bullets([*facts.get("notes", ()), *_LIMITS])]
    parts += _loading(facts, pickled=model["format"] == "pickle")
    return "\n\n".join(parts) + "\n"


def _warnings(facts: Mapping[str, Any]) -> list[str]:
    found = []
    if (facts.get("guarantee") or {}).get("publishable") is False:
        found.append("**Private: there is no guarantee that may be published. Do not publish this folder.**")
    if facts["model"]["format"] == "pickle":
        found.append(
            f"**`{facts['model']['file']}` is a pickle: reading it runs the code in it. Load it only if you trust its "
            "origin.**"
        )
    return found


def _what(facts: Mapping[str, Any]) -> list[str]:
    model, image = facts["model"], facts["image"]
    names = ", ".join(f"`{name}`" for name in facts["classes"])
    lines = [f"Model: `{model['type']}`, in `{model['file']}`.", f"Classes: {names}."]
    if image is not None:
        lines.append(f"Input: images of the shape {' × '.join(map(str, image))}, 8-bit or floats in [0, 1].")
    elif facts["features"]:
        columns = ", ".join(f"`{name}`" for name in facts["features"])
        how = " `schema.json` says how they become numbers; it depends on no private row." if facts["schema"] else ""
        lines.append(f"Input: a table with these columns, in any order: {columns}.{how}")
    else:
        lines.append("Input: an array of numbers with the columns of the public points, in the same order.")
    return ["## What it is", "A classifier that learnt from released labels of public points alone.", _bullets(lines)]


def _how(made: Mapping[str, Any]) -> list[str]:
    counts = ", ".join(f"{name} {count:,}" for name, count in made["labels_by_class"].items())
    apart = ("how", "not_proven", "labels_by_class")
    settings = [f"{name} {value}" for name, value in made.items() if name not in apart and value is not None]
    way = made["how"]
    if made.get("reinforced"):
        way += (
            f" {made['reinforced']:,} further points kept the class of a first student, which had learnt from some of "
            "these labels, because the noisy votes did not contradict it; the student was trained on these points too."
        )
    if made.get("not_proven"):
        way += f" {not_proven((made['not_proven'],))}"
    return [
        "## How it was made",
        way,
        _bullets([f"Settings: {', '.join(settings)}.", f"Released labels by class: {counts}."]),
    ]


def _promise(promise: Mapping[str, Any]) -> list[str]:
    table = ["| group | budget ε | δ | cost ε |", "| --- | --- | --- | --- |"]
    for group in promise["groups"]:
        cost = "—" if group["cost"] is None else f"{group['cost']:.4f}"
        table.append(f"| {group['group']} | {group['epsilon']:.6g} | {group['delta']:g} | {cost} |")
    if not promise["publishable"]:
        who = (
            f"Nobody is protected: neither the {promise['people']:,} people with private rows, nor "
            "anybody whose rows were used as public or test data."
        )
        return ["## No promise holds", promise["statement"], who, "What people had allowed:", "\n".join(table)]
    who = f"It holds for the {promise['people']:,} people with private rows."
    if promise["unprotected"]:
        who += (
            f" It does not hold for {promise['unprotected']:,} people of the same data whose rows were used as public "
            "or test data: nothing protects those."
        )
    return ["## For whom the promise holds", promise["statement"], who, "\n".join(table)]


def _scores(scores: Mapping[str, Any] | None) -> list[str]:
    if not scores:
        return ["## Scores", "None may be published: they were computed with true labels that are not public."]
    lines = [f"{name.replace('_', ' ')}: {value:.1%}" for name, value in scores.items() if isinstance(value, float)]
    return ["## Scores", "On public test rows:", _bullets(lines)]


def _loading(facts: Mapping[str, Any], *, pickled: bool) -> list[str]:
    flag = " --allow-pickle" if pickled else ""
    data = "DATA.npz" if facts["image"] is not None else "DATA.csv"
    parts = [
        "## How to load it",
        f"With ipate: `ipate predict FOLDER {data} --out predictions.csv{flag}`, or in Python as in `example.py`.",
    ]
    if facts["model"]["format"] == "skops":
        says = "class names" if facts["model"]["predicts"] == "names" else "the index of a class in `student.json`"
        types = ", ".join(f'"{name}"' for name in facts["model"]["trusted"])
        parts.append(
            "Without ipate, scikit-learn and skops read the model, which then takes rows that are encoded already and "
            f'predicts {says}: `skops.io.load("{facts["model"]["file"]}", trusted=[{types}])`.'
        )
    return parts


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def made_up_rows(schema: Schema) -> list[list[str]]:
    """Return two rows of made-up cells, from the public schema alone: middling numbers, and the first categories."""
    return [[_cell(feature, row) for feature in schema.features] for row in range(2)]


def _cell(feature: Feature, row: int) -> str:
    if feature.kind == "category":
        return feature.values[min(row, len(feature.values) - 1)]
    value = min(max(feature.median + row * feature.sd, feature.low), feature.high)
    if feature.kind == "number":
        return f"{value:.6g}"
    day = date.fromisoformat(feature.origin) + timedelta(days=int(value))
    return day.isoformat() if feature.format is None else day.strftime(feature.format)


_TABLE = """with (here / "example.csv").open(newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
table = {name: [row[name] for row in rows] for name in rows[0]}
"""
_SHOWN = """print(student.predict(table))
if hasattr(student, "predict_proba"):
    print(student.predict_proba(table))
"""


def example(facts: Mapping[str, Any]) -> str:
    """Return `example.py`, which predicts the made-up rows of `example.csv`, or zeros where there are no columns."""
    allowed = ", allow_pickle=True" if facts["model"]["format"] == "pickle" else ""
    head = '"""Predict made-up rows with this student; it needs ipate."""\n\n'
    load = f"here = Path(__file__).parent\nstudent = ipate.load_student(here{allowed})\n"
    if facts["schema"]:
        return f"{head}import csv\nfrom pathlib import Path\n\nimport ipate\n\n{load}{_TABLE}{_SHOWN}"
    shape = ", ".join(map(str, facts["image"] or [facts["inputs"]]))
    imports = "from pathlib import Path\n\nimport numpy as np\n\nimport ipate\n\n"
    return f"{head}{imports}{load}table = np.zeros((2, {shape}))\n{_SHOWN}"
