"""The HTML page is well-formed, self-contained, escaped, marked, reproducible, and agrees with its JSON."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typer import Typer
from typer.testing import CliRunner

from blocks import flat
from ipate.allocation.layout import Merge
from ipate.cli import report as command
from ipate.errors import InputError
from ipate.report.exports import as_json, recipe, twin
from ipate.report.facts import Comparison, Scores, for_audience
from ipate.report.page import page
from ipate.runs.reporting import write_report
from report.examples import facts, group

VOID = {"meta", "br", "hr", "img", "input", "link"}
RUNS = [
    {},
    {"compare": True},
    {"bound": "loose", "stop": "drop", "rule": "uniform"},
    {"variant": "upsampling", "bound": "loose"},
    {"variant": "vanishing"},
    {"variant": "standard", "check_sigma": 50.0},
    {"bound": "exact", "seed": 3},
    {"stop": "count", "max_labels": 7},
]


class Strict(HTMLParser):
    """Check that elements are closed in order, ids are unique and attributes do not repeat."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.texts, self.problems, self.tags, self.values = [], set(), [], [], [], []
        self.feed(text)
        self.close()
        self.problems += [f"never closed: {tag}" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.values += [(tag, name, value) for name, value in attrs]
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.problems.append(f"attribute twice in {tag}")
        for name, value in attrs:
            if name == "id":
                if value in self.ids:
                    self.problems.append(f"id twice: {value}")
                self.ids.add(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"wrong end: {tag}")

    def handle_data(self, data):
        self.texts.append(data)


def check(text):
    found = Strict(text)
    assert found.problems == []
    assert "script" not in found.tags
    assert not {"link", "img", "iframe", "object", "embed", "form", "base"} & set(found.tags)
    for _, name, value in found.values:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "action")
        if name.endswith("href"):
            assert value.startswith("#")
            assert value[1:] in found.ids
    assert not re.search(r"https?:|//|@import|javascript:", text.lower())
    for place in re.findall(r"url\(([^)]*)\)", text):
        assert place.startswith("#")
        assert place[1:] in found.ids
    assert len(text) < 300_000
    return found


def name(options):
    return "-".join(str(value) for value in options.values()) or "plain"


CASES = [(options, "public") for options in RUNS] + [(RUNS[index], "private") for index in (1, 2, 6)]


@pytest.mark.parametrize(
    ("options", "audience"), CASES, ids=lambda value: value if isinstance(value, str) else name(value)
)
def test_every_run_kind_yields_valid_html_and_json(reported, options, audience):
    report = reported(audience, **options)
    text = report.html.read_text()
    check(text)
    found = flat(json.loads(report.json.read_text()))
    assert found["audience"] == audience
    for entry in found["groups"]:
        assert entry["promise"].replace("'", "&#x27;") in text
    if found["labelling"] is not None:
        points = found["labelling"]["history"]["points"]
        assert points[-1][1] == found["labelling"]["labels"]
        for place, entry in enumerate(found["groups"]):
            assert points[-1][2 + place] == pytest.approx(entry["cost"], rel=1e-6)
            assert entry["cost"] <= entry["budget"]
            assert f"{entry['cost']:.4f}" in text
            column = [point[2 + place] for point in points]
            assert column == sorted(column)
    assert sum(entry["vote_share"] for entry in found["groups"]) == pytest.approx(1)
    assert sum(entry["people"] for entry in found["groups"]) == found["data"]["people"]


def test_same_run_gives_identical_report_bytes(made, tmp_path):
    run = made()
    first = write_report(run, out=tmp_path / "a.html")
    second = write_report(run, out=tmp_path / "b.html")
    assert first.html.read_bytes() == second.html.read_bytes()
    assert first.json.read_bytes() == second.json.read_bytes()


def test_group_names_in_report_are_escaped(tmp_path, made):
    evil = '<script>alert("x")</script>'
    share = {evil: 0.6, "a & b 'c' $x_1$ </style>": 0.4}
    run = made(budgets={"policy": dict(zip(share, (6.0, 20.0), strict=True)), "shares": share})
    report = write_report(run, audience="private")
    found = check(report.html.read_text())
    assert any(evil in text for text in found.texts)
    assert any("$x_1$" in text for text in found.texts)
    assert evil in [entry["group"] for entry in flat(json.loads(report.json.read_text()))["groups"]]


def test_notes_and_class_names_are_escaped():
    bad = "<b onclick='x'>&</b>"
    found = replace(facts(), data_name=bad, data_source=bad, data_notes=(bad,), notes=(bad,), classes=(bad,))
    scores = Scores(by_class={bad: 0.5}, by_level={bad: 0.5}, student_accuracy=0.5)
    owner = replace(
        found.owner,
        comparison=Comparison(note=bad, standard=scores, ceiling=scores),
        scores=scores,
    )
    text = page(replace(found, owner=owner))
    assert "b" not in check(text).tags


def test_marks_come_first_and_repeat_in_print(reported):
    private = reported("private", bound="exact", seed=3).html.read_text()
    body = private[private.index("<body>") :]
    assert body.index("PRIVATE: for the data owner only") < body.index("<h1>")
    assert body.index("seeded: reproducible, not private") < body.index("<h1>")
    assert re.search(r"@media print.*\.marks \{ display: table-header-group", private, re.DOTALL)
    public = reported(bound="exact", seed=3).html.read_text()
    assert public[public.index("<body>") :].index("seeded: reproducible") < 400
    assert "PRIVATE:" not in public
    plain = reported().html.read_text()
    assert 'class="marks"' not in plain


@pytest.mark.parametrize("options", [{}, {"bound": "loose"}, {"variant": "upsampling", "bound": "loose"}], ids=name)
def test_report_program_computes_the_stated_costs(reported, options):
    report = reported(**options)
    program = recipe(report.facts)
    assert program is not None
    space = {"print": lambda *_: None}
    exec(program, space)
    for spent in report.facts.outcome.groups:
        assert space["costs"][spent.id] == pytest.approx(spent.cost, rel=1e-6)


def test_complex_runs_have_no_check_program(reported):
    for options in ({"variant": "vanishing"}, {"bound": "exact", "seed": 3}):
        assert recipe(reported("private", **options).facts) is None


def test_page_supports_many_groups_and_no_labels():
    many = tuple(group(f"group {index} " + "long" * 12, budget=1 + index, cost_share=1 / 40) for index in range(40))
    text = page(for_audience(facts(groups=many, costs=[0.5] * 40), "public"))
    check(text)
    assert "6 of 40 groups are shown" in text
    assert "28 more groups" in text
    nothing = for_audience(facts(costs=[0.0, 0.0], n_labels=0), "public")
    check(page(nothing))
    json.loads(as_json(nothing))


@pytest.mark.parametrize("audience", ["public", "private"])
def test_small_groups_are_not_counted(audience):
    few = (group("strict", budget=0.5, people=3, cost_share=0.024), group("high", budget=1.0), group("low", budget=3.0))
    found = replace(facts(groups=few), n_people=123, merged=(Merge(group="odd", into="strict", people=2),))
    text, twin_ = page(for_audience(found, audience)), twin(for_audience(found, audience))
    check(text)
    assert text.count("under 5") >= 2
    assert "Under 5 people of group odd" in text
    assert "2.4%" not in text
    strict, high, _ = twin_["publishable"]["groups"]
    assert (strict["people"], strict["people_share"], strict["influence"]) == ("under 5", None, None)
    assert (high["people"], high["people_share"], high["influence"]) == ("5 or more", None, None)
    assert twin_["publishable"]["data"]["people"] == 123  # so that 123 - 60 - 60 is not stated
    assert twin_["publishable"]["data"]["merged"][0]["people"] == "under 5"
    counted = page(for_audience(replace(found, min_group_size=2), audience))
    assert "under 5" not in counted


def test_figures_have_text_alternatives_for_screen_readers(reported):
    text = reported().html.read_text()
    found = Strict(text)
    named = [value for tag, name, value in found.values if (tag, name) == ("svg", "aria-labelledby")]
    assert [value for tag, name, value in found.values if (tag, name) == ("svg", "role")] == ["img"] * 6
    titles = {name: re.search(rf'<title id="{name}">(.*?)</title>', text)[1] for name in named}
    assert sum("Line chart: cost ε against the number of labels" in title for title in titles.values()) == 2
    assert sum("Line chart: true positives of the best test" in title for title in titles.values()) == 2
    assert sum("of the people" in title for title in titles.values()) == 2


@pytest.mark.skipif(shutil.which("tidy") is None, reason="tidy is not installed")
def test_html_tidy_reports_no_error(reported):
    ran = subprocess.run(
        ["tidy", "-q", "-e", "-utf8", str(reported("private", compare=True).html)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Error:" not in ran.stderr


def test_unfinished_run_and_invalid_arguments_are_refused(copied, tmp_path):
    run = copied()
    with pytest.raises(InputError, match="audience is 'everybody'"):
        write_report(run, audience="everybody")
    with pytest.raises(InputError, match=r"must end in \.html"):
        write_report(run, out=tmp_path / "report.pdf")
    with pytest.raises(InputError, match="no such folder"):
        write_report(run, out=tmp_path / "nowhere" / "report.html")
    (run / "private" / "labelling.json").unlink()
    with pytest.raises(InputError, match="has not labelled yet"):
        write_report(run)
    with pytest.raises(InputError, match="holds no run"):
        write_report(tmp_path / "nothing")


def test_report_command_writes_files_and_prints_json(made, tmp_path):
    app = Typer()
    app.command("report", epilog=command.EXAMPLE)(command.command)
    run, out = made(bound="exact", seed=3), tmp_path / "mine.html"
    ran = CliRunner().invoke(app, [str(run), "--private", "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    assert "PRIVATE" in ran.output
    assert out.is_file()
    assert out.with_suffix(".json").is_file()
    ran = CliRunner().invoke(app, [str(run), "--json", "--out", str(out)])
    assert json.loads(ran.stdout) == json.loads(out.with_suffix(".json").read_text())
    assert json.loads(ran.stdout)["audience"] == "public"
    assert twin(write_report(run).facts)["publishable"]["guarantee"]["kind"] == "none"
