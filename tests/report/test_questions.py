"""Ten questions of a data protection officer are answered on every report, each with the place of the answer."""

import re
from dataclasses import replace
from html import unescape

import pytest

from ipate.report.claims import not_covered
from ipate.report.facts import Identity, for_audience
from ipate.report.page import page
from ipate.report.questions import layers_of, questions
from ipate.report.registry import model_card
from report.examples import facts

TEN = [
    "Who is protected?",
    "Who is not?",
    "What was agreed, and when?",
    "What was spent?",
    "What is left?",
    "What can an attacker learn?",
    "How does somebody leave?",
    "What is assumed?",
    "Who is responsible?",
    "How can it be checked?",
]
LAYERS = [
    "ε and other privacy parameters",
    "The unit of privacy",
    "Algorithms and correctness",
    "Utility and bias",
    "Query model and threat model",
    "Side channels, security and access control",
    "Data collection exposure",
]
ABOUT = Identity(
    run="march-1f0a",
    begun="2026-03-02",
    controller="St. Mary",
    contact="dpo@stmary.example",
    policy_version="2",
    policy_date="2026-01-01",
    fingerprints={"pool and classes": "ab" * 16},
)
KINDS = [{}, {"bound": "loose"}, {"bound": "exact"}, {"seeded": True}, {"stopped_by": "fixed", "check": False}]


def text_of(html):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


@pytest.mark.parametrize("audience", ["public", "private"])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_every_question_is_answered_with_its_place(options, audience):
    found = for_audience(replace(facts(**options), identity=ABOUT), audience)
    html = page(found)
    asked = questions(found)
    assert [question.asked for question in asked] == TEN
    for question in asked:
        assert question.answer.endswith(".")
        assert len(question.answer) > 15
        assert text_of(question.answer) in text_of(html)
        assert f'href="#{question.place}"' in html
        assert html.count(f'<section id="{question.place}"') == 1


def test_answers_state_who_what_and_how_much():
    answers = {question.asked: question.answer for question in questions(replace(facts(), identity=ABOUT))}
    assert "120 people" in answers["Who is protected?"]
    assert "version 2, valid from 2026-01-01" in answers["What was agreed, and when?"]
    assert answers["What was spent?"] == "ε = 0.9877 (high) and 2.913 (low)."
    assert answers["What is left?"].startswith(
        "ε = 0.01235 (high) and 0.08766 (low). This is the budget less the cost;"
    )
    assert "dpo@stmary.example" in answers["How does somebody leave?"]
    assert answers["Who is responsible?"] == "St. Mary; contact: dpo@stmary.example."
    assert "10% false alarms" in answers["What can an attacker learn?"]


def test_less_than_a_thousandth_left_is_nothing():
    def said(*costs):
        (found,) = [question.answer for question in questions(facts(costs=costs)) if question.asked == "What is left?"]
        return found

    assert said(0.99999, 2.91234).startswith("ε = nothing (high) and 0.08766 (low). Nothing means less than a thousan")
    assert said(0.9999, 2.9999).startswith("Nothing: less than a thousandth of every budget.")


@pytest.mark.parametrize("options", [{"bound": "exact"}, {"seeded": True}], ids=str)
def test_public_answers_of_private_runs_have_no_cost(options):
    found = questions(for_audience(replace(facts(**options), identity=ABOUT), "public"))
    answers = {question.asked: question.answer for question in found}
    assert "private" in answers["What was spent?"]
    assert "private" in answers["What is left?"]
    assert "No limit is stated" in answers["What can an attacker learn?"]
    assert "obody" in answers["Who is protected?"]
    assert answers["Who is not?"].startswith("Everybody: those whose data taught the teachers (120 people), and")
    assert "so nobody is protected" in " ".join(not_covered(for_audience(facts(**options), "public")))


def test_missing_controller_is_said():
    answers = {question.asked: question.answer for question in questions(facts())}
    assert "was not stated" in answers["Who is responsible?"]
    assert "not stated" in text_of(page(facts()))


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_layers_say_what_was_done_and_what_remains(options):
    found = for_audience(facts(**options), "public")
    assert [layer.name for layer in layers_of(found)] == LAYERS
    html = text_of(page(found))
    for number, layer in enumerate(layers_of(found), start=1):
        assert f"{number}. {layer.name}" in html
        assert layer.did
        assert layer.must
    told, asked = (" ".join(" ".join(getattr(layer, part)) for layer in layers_of(found)) for part in ("did", "must"))
    assert ("Recompute the costs" in asked) is found.publishable
    assert ("protects nobody" in told) is bool(options.get("seeded"))


def test_document_states_run_policy_and_fingerprints():
    found = replace(facts(), identity=ABOUT)
    html = page(for_audience(found, "public"))
    for shown in ("march-1f0a", "2026-03-02", "St. Mary", "version 2, valid from 2026-01-01", "ab" * 16):
        assert shown in html


def test_contents_link_to_every_section_in_order():
    html = page(facts())
    contents = re.findall(r'href="#([a-z]+)"', html[html.index("<nav") : html.index("</nav>")])
    assert contents == re.findall(r'<section id="([a-z]+)"', html)


def test_groups_have_one_order_everywhere(reported):
    import json

    report = reported(budgets={"policy": {"b": 20.0, "a": 6.0}, "shares": {"b": 0.6, "a": 0.4}})
    twin = json.loads(report.json.read_text())["publishable"]
    assert [group["group"] for group in twin["groups"]] == ["a", "b"]
    assert [entry["group"] for entry in twin["odds"]] == ["a", "b"]
    assert [entry["group"] for entry in twin["events"]] == ["a", "b"]
    html = report.html.read_text()
    tables = [re.findall(r'<th scope="row">([ab])</th>', table) for table in re.findall(r"<table.*?</table>", html)]
    assert {tuple(rows) for rows in tables if rows} == {("a", "b")}
    student = report.html.parent / "student"
    facts = json.loads((student / "student.json").read_text())
    assert [group["group"] for group in facts["guarantee"]["groups"]] == ["a", "b"]
    for card in ((student / "README.md").read_text(), model_card(report.facts, facts)):
        assert set(re.findall(r"\| ([ab]) \|.*?\n\| ([ab]) \|", card)) == {("a", "b")}
    stated = json.loads((report.html.parent / "guarantee.json").read_text())
    assert [group["group"] for group in stated["groups"]] == ["a", "b"]
