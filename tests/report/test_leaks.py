"""A private cost cannot reach a public report."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blocks import flat
from ipate.report.exports import as_json
from ipate.report.facts import for_audience
from ipate.report.formats import percent, plain, used
from ipate.report.page import page
from ipate.runs.reporting import write_report
from report.examples import facts

PRIVATE_RUNS = [
    {"bound": "exact", "seed": 3},
    {"bound": "tight", "seed": 3, "compare": True},
    {"bound": "exact", "stop": "count", "max_labels": 23, "seed": 3},
    {"bound": "tight", "stop": "drop", "seed": 3},
    {"seed": 3},
]


def names(options):
    return "-".join(str(value) for value in options.values())


def texts(run):
    report = write_report(run)
    return report.html.read_text(), report.json.read_text()


def tokens(text):
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", text, flags=re.DOTALL)  # coordinates: see the next test
    text = re.sub(r"\b[0-9a-f]{64}\b|run-[0-9a-f]{8}|\d{4}-\d\d-\d\d", "", text)  # fingerprints, the run and its day
    return {found.replace(",", "") for found in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", text)}


def numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {number for item in value for number in numbers(item)}
    return {value} if isinstance(value, float | int) and not isinstance(value, bool) else set()


def spellings(value):
    if isinstance(value, int):
        return {str(value)}
    ways = {repr(value), f"{value:.3f}", f"{value:.4f}", f"{value:.6f}", plain(value)}
    return {way for way in ways | {percent(value), used(value), percent(value, 2)} if len(way.strip("0.%")) > 2}


@pytest.mark.parametrize("options", PRIVATE_RUNS, ids=names)
def test_public_report_contains_no_private_number(made, reported, options):
    """The test searches for every number of the private files in every format it might have."""
    run = made(**options)
    record = json.loads((run / "private" / "labelling.json").read_text())
    owner = flat(json.loads(reported("private", **options).json.read_text()))
    private = numbers([group["epsilon"] for group in record["groups"]])
    private |= numbers([record["n_labels"], record["n_queries"]])
    private |= numbers([group["labels_until_exhausted"] for group in record["groups"]])
    private |= numbers(owner["labelling"]["history"]["points"][1:]) | numbers(owner["scores"])
    private |= numbers(owner["comparison"] or {}) | numbers(owner["teachers"])
    assert len(private) > 12
    allowed = tokens(json.dumps({**json.loads((run / "config.json").read_text()), "seed": None}))
    allowed |= {str(n) for n in range(21)} | {"500", "30"}  # small numbers, the pool and the teachers are public
    public = reported("public", **options)
    html, twin = public.html.read_text(), public.json.read_text()
    for text in (html, twin):
        seen = tokens(text) - allowed
        for value in private:
            spelt = {way.rstrip("%") for way in spellings(value)} - allowed
            if isinstance(value, int):  # the number of labels, and points of the history
                spelt &= {str(record["n_labels"]), str(record["n_queries"])}
            assert not spelt & seen, (value, spelt & seen)
    assert "<svg" not in html.split('<section id="influence"')[0]
    assert json.loads(twin)["private"] is None
    assert json.loads(twin)["publishable"]["labelling"] is None
    assert not {"cost", "labels_until_exhausted", "largest_sensitivity"} & set(flat(json.loads(twin))["groups"][0])


@pytest.mark.parametrize("options", PRIVATE_RUNS[1:3] + PRIVATE_RUNS[4:], ids=names)
def test_public_report_is_independent_of_private_data(copied, options):
    """With other costs, answers, votes and scores, the public report of a private run has the same bytes."""
    run = copied(**options)
    before = texts(run)
    path = run / "private" / "labelling.json"
    record = json.loads(path.read_text())
    record["n_labels"], record["n_queries"], record["stopped_by"] = 4, 5, "pool"
    record["labels"] = [1] * len(record["labels"])
    record["queries"] = record["queries"][:5]
    for group in record["groups"]:
        group.update(epsilon=0.123456, labels_until_exhausted=3, sensitivity=9.0)
    path.write_text(json.dumps(record))
    (run / "private" / "votes" / "votes.npy").unlink()
    (run / "private" / "compare.json").unlink(missing_ok=True)
    for place in ("public", "private"):
        (run / place / "metrics.json").unlink(missing_ok=True)
    assert texts(run) == before


def test_releasable_report_depends_only_on_released_answers(copied):
    """Without votes and comparison, and with other unreleased scores, the report has the same bytes."""
    run = copied(compare=True)
    before = texts(run)
    np.save(run / "private" / "votes" / "votes.npy", np.zeros((2, 2)))
    (run / "private" / "compare.json").unlink()
    assert texts(run) == before


@pytest.mark.parametrize("bound", ["loose", "gdp", "sup", "tight", "exact"])
@pytest.mark.parametrize(("stopped_by", "seeded"), [("fixed", False), ("account", True), ("other", False)])
def test_audience_filter_removes_private_facts(bound, stopped_by, seeded):
    everything = facts(bound=bound, stopped_by=stopped_by, seeded=seeded)
    gated = for_audience(everything, "public")
    assert gated.owner is None
    assert gated.noise_seed is None
    releasable = everything.guarantee.publishable
    assert (gated.outcome is not None) is releasable
    written = page(gated) if bound in ("gdp", "exact") else ""
    for text in (re.sub(r"<svg.*?</svg>", "", written, flags=re.DOTALL), as_json(gated)):
        for secret in ("65.4", "0.6543", "87.6", "0.8765", "77777", "81.2", "0.8123", "76.5", "0.7654", "236"):
            assert secret not in text
        if not releasable:
            for secret in ("0.9876", "2.9123", "471", "623"):
                assert secret not in text
    for_owner = as_json(for_audience(everything, "private"))
    for shown in ("0.98765", "471", "0.8123", "0.6543"):
        assert shown in for_owner


def test_report_refuses_an_edited_record(copied):
    from ipate.errors import InputError

    run = copied()
    path = run / "private" / "labelling.json"
    original = path.read_text()
    record = json.loads(original)
    record["groups"][0]["epsilon"] *= 0.9
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="another cost"):
        write_report(run)
    record = json.loads(original)
    record["kind"] = "private"
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="edited"):
        write_report(run)
    record = json.loads(original)
    record["n_labels"] += 1
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="do not belong together"):
        write_report(run)


def test_private_report_is_kept_out_of_public(copied):
    from ipate.errors import InputError

    run = copied()
    with pytest.raises(InputError, match="public folder"):
        write_report(run, audience="private", out=run / "public" / "x.html")
    report = write_report(run, audience="private")
    assert report.html.parent == run / "private"


def test_private_report_is_never_readable_by_others(copied, tmp_path, monkeypatch):
    """This also holds during writing: the temporary file is restricted before anything is written to it."""
    seen = []
    rename = os.replace

    def watched(aside, target):
        if Path(target).parent == tmp_path:  # libraries may write files of their own
            seen.append((Path(target).name, Path(aside).stat().st_mode & 0o777))
        rename(aside, target)

    monkeypatch.setattr(os, "replace", watched)
    run = copied()
    report = write_report(run, audience="private", out=tmp_path / "own.html")
    assert seen == [("own.html", 0o600), ("own.json", 0o600)]
    assert report.html.stat().st_mode & 0o077 == 0
    seen.clear()
    write_report(run, out=tmp_path / "all.html")
    (tmp_path / "usual").touch()
    usual = (tmp_path / "usual").stat().st_mode & 0o777
    assert seen == [("all.html", usual), ("all.json", usual)]


@pytest.mark.parametrize("student", ["private/student", ""])
def test_existence_of_private_student_is_not_told(student):
    """Whether there was a label to learn from depends on private votes, as does the order that decides a cost."""
    told = for_audience(replace(facts(bound="sup", stopped_by="other"), student_folder=student), "public")
    assert (told.student_folder, told.parameters.orders) == ("", {})
    assert as_json(told) == as_json(for_audience(facts(bound="sup", stopped_by="other"), "public"))
    kept = for_audience(replace(facts(bound="sup"), student_folder="public/student"), "public")
    assert (kept.student_folder, len(kept.parameters.orders)) == ("public/student", 2)
