"""The letter to one person: in plain words, one page of A4, and without private figures."""

import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import pytest

from ipate.errors import InputError
from ipate.report.letter import letter
from ipate.report.statement import Agreement, RunEntry, Unprotected, Use, as_payload, for_the_person, sentences
from report.test_browser import BROWSER, browse, measure
from report.test_page import check
from report.test_statement import STATEMENT

RECORD = Agreement(
    consent_date="2026-02-03",
    consent_version="2",
    policy_version="2",
    policy_date="2026-01-01",
    controller="St. Mary Hospital",
    contact="dpo@stmary.example",
)


def entry(number):
    return RunEntry(
        run=f"march-{number}",
        opened=f"2026-03-{number:02d}T10:00:00+00:00",
        group="low",
        budget=3.0,
        delta=1e-5,
        bound="gdp",
        labels=12,
        checks=20,
        epsilon=0.5,
    )


LOW = replace(STATEMENT, agreement=RECORD, odds=(0.0541, 0.287), entries=(entry(1), entry(2)))
PRIVATE = replace(LOW, guaranteed=False, private=True, odds=None)
OPEN = Unprotected(person="p9", run="march", agreement=RECORD, unprotected=(Use(run="march-1", opened="2026-03-01T1"),))


def text_of(statement):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", letter(statement, date="2026-04-01"))))


def test_letter_states_everything_the_person_asks():
    text = text_of(LOW)
    for said in (
        "2026-04-01",
        "St. Mary Hospital",
        "dpo@stmary.example",
        "To the person with the id p7",
        "You agreed on 2026-02-03 to level low, under version 2 of the policy (valid from 2026-01-01).",
        "by at most a factor 20.1",
        "with your data replaced has between",
        "at most 54.1 in 1,000",
        "march-1 2026-03-01 3 12 labels, 20 checks 0.5",
        "march-2",
        "In all, ε = 1.235 was spent.",
        "Of your limit, ε = 3, ε = 1.765 is left.",
        "state your id, p7",
        "for you alone",
    ):
        assert said in text, said


@pytest.mark.parametrize("statement", [LOW, for_the_person(PRIVATE), OPEN], ids=["low", "private", "open"])
def test_letter_is_valid_html_without_scripts(statement):
    check(letter(statement, date="2026-04-01"))


def test_letter_of_private_account_has_no_figure():
    text = text_of(for_the_person(PRIVATE))
    assert "No guarantee can be stated" in text
    assert "What was spent is not told, because it was computed from votes, other people's among them." in text
    for figure in ("12 labels", "20 checks", "1.23", "1.76", "0.5 ", "54.1"):
        assert figure not in text
    with pytest.raises(InputError, match="for the data owner only"):
        letter(PRIVATE, date="2026-04-01")


@pytest.mark.parametrize(
    ("kind", "noise", "spent"),
    [
        ({"seeded": True}, "whoever knows its seed", "the noise of this run can be repeated, so no ε limits"),
        ({"overlap": True}, "may be private data themselves", "private data was also used as public data, so no ε"),
        ({}, "no limit on what the labels tell about you", "at most the budget of ε = 3"),
    ],
    ids=["seeded", "overlap", "private"],
)
def test_letter_gives_one_reason_for_its_kind(kind, noise, spent):
    text = text_of(for_the_person(replace(PRIVATE, **kind, asked="tiny")))
    assert "How your data was used Your data was used, together with" in text
    assert noise in text
    assert "It was to limit what your data may give away" in text
    assert "protected" not in text
    assert spent in text
    assert len(re.findall("There is no figure for what was spent|What was spent is not told", text)) == 1
    assert ("at most the budget" in text) == (not kind)


def test_letter_says_what_is_not_on_record():
    text = text_of(replace(LOW, agreement=Agreement(), entries=()))
    assert "The day and the version of the policy are not on record." in text
    assert "the data owner, who gave you this letter" in text
    assert "Nothing has been released that your data could have changed." in text


def test_letter_to_somebody_without_protection_promises_nothing():
    text = text_of(OPEN)
    assert "Your data was used without protection" in text
    assert "nothing is promised to you" in text
    assert "march-1 2026-03-01" in text


def test_letter_after_withdrawal_and_merge_says_so():
    text = text_of(replace(LOW, withdrawn="2026-03-09T10:00:00+00:00", asked="tiny"))
    assert "You withdrew on 2026-03-09." in text
    assert "is left" not in text
    assert "You count with the stricter level low" in text


def test_names_in_letters_are_escaped():
    bad = "<b>&'"
    found = letter(replace(LOW, person=bad, agreement=replace(RECORD, controller=bad)), date="2026-04-01")
    assert bad not in found
    check(found)


def test_statement_in_words_has_consent_odds_and_contact():
    text = sentences(LOW)
    assert "They agreed on 2026-02-03 to level low, under version 2 of the policy (valid from 2026-01-01)." in text
    assert any("5.41% true positives at 1% false positives and 28.7% true positives at 10%" in line for line in text)
    assert text[-1].endswith("St. Mary Hospital, dpo@stmary.example.")
    assert as_payload(LOW)["agreement"]["consent_date"] == "2026-02-03"


@pytest.mark.skipif(BROWSER is None or shutil.which("pdfinfo") is None, reason="chromium or pdfinfo is not installed")
@pytest.mark.parametrize("runs", [2, 14])
def test_letter_prints_on_one_page_of_a4(tmp_path, runs):
    crowded = replace(LOW, asked="tiny", entries=tuple(entry(1 + number) for number in range(runs)))
    (tmp_path / "letter.html").write_text(letter(crowded, date="2026-04-01"), encoding="utf-8")
    browse(tmp_path / "letter.html", tmp_path, f"--print-to-pdf={tmp_path / 'l.pdf'}", "--no-pdf-header-footer")
    about = subprocess.run(["pdfinfo", str(tmp_path / "l.pdf")], capture_output=True, text=True, check=True).stdout
    assert re.search(r"Pages:\s+1\n", about)
    assert "A4" in about


@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_letter_fits_a_phone_in_the_dark(tmp_path):
    found = measure(letter(LOW, date="2026-04-01"), tmp_path, 400, dark=True)
    assert (found["scroll"] <= 400, found["wide"]) == (True, [])
