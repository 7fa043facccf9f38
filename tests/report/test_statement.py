"""The sentences of a statement, from hand-made values."""

from dataclasses import replace

from ipate.engines.ballots.wording import manner
from ipate.report.claims import assured
from ipate.report.statement import Statement, Withdrawal, for_the_person, left, owed, proposed, sentences
from report.examples import facts

STATEMENT = Statement(
    person="p7",
    run="march",
    asked="low",
    group="low",
    levels=True,
    budget=3.0,
    delta=1e-5,
    guaranteed=True,
    seeded=False,
    private=False,
    withdrawn=None,
    allowed=3.0,
    labels=12,
    checks=20,
    spent=1.23456,
    left=1.76544,
    entries=(),
)
ENTRY = Withdrawal(
    person="p7",
    when="2026-03-01T10:00:00+00:00",
    group="low",
    teachers=(3, 9),
    trained=True,
    labelling="begun",
    labels=12,
    checks=20,
    bound="gdp",
    kind="releasable",
    epsilon=1.23456,
    delta=1e-5,
)


def test_statement_promise_equals_report_promise():
    assert sentences(STATEMENT)[0] == assured("Person p7, level low", 3.0, 1e-5)
    numbered = replace(STATEMENT, levels=False)
    assert sentences(numbered)[0].startswith("Person p7, group low: whatever")


def test_costs_round_up_and_remainders_round_down():
    text = sentences(STATEMENT)
    assert "ε = 1.235 was spent" in text[2]
    assert "ε = 1.765 is left" in text[3]
    assert "less than a thousandth is left" in sentences(replace(STATEMENT, left=1.067e-5))[3]
    assert "nothing is left" in sentences(replace(STATEMENT, left=0.0))[3]


def test_merge_into_stricter_group_is_stated():
    text = sentences(replace(STATEMENT, asked="tiny"))
    assert text[1].startswith("They asked for tiny and count with the stricter low")


def test_withheld_cost_is_bounded_by_the_budget():
    kept = for_the_person(replace(STATEMENT, guaranteed=False, private=True))
    text = " ".join(sentences(kept))
    assert "What was spent is not told" in text
    assert "at most the budget of ε = 3" in text
    for figure in ("12", "20", "1.23", "1.76"):
        assert figure not in text


def test_statement_without_promise_names_no_cost():
    for kind in ({"seeded": True}, {"overlap": True}):
        full = replace(STATEMENT, guaranteed=False, private=True, asked="tiny", **kind)
        text = " ".join(sentences(for_the_person(full)))
        assert "so no ε limits what was given away" in text
        assert "own account" not in text
        assert "protected" not in text
        assert "and so not for this run, this cost ε = 1.235" in " ".join(sentences(full))


def test_ballot_stays_in_a_released_histogram():
    said = manner(facts().parameters)
    cast = replace(
        ENTRY, teachers=(), place=said.after, trained=False, labels=0, checks=0, ballots=1, labelling="complete"
    )
    for text in (left(cast, "march")[0], proposed(cast, "march")[0]):
        assert "their ballot is in the released histogram and stays there" in text
        assert "empty" not in text
    early = replace(cast, place=said.before, ballots=0, labelling="not begun", epsilon=0.0)
    assert "their ballot stays empty" in left(early, "march")[0]


def test_withdrawal_text_states_effects_and_limits():
    text = left(ENTRY, "march")
    assert text[0].startswith("Person p7 has withdrawn from march: their place in teachers 3, 9 stays empty")
    assert "ipate run --resume march" in text[1]
    assert "12 labels and 20 checks had been released and cannot be called back; by then ε = 1.235" in text[2]
    assert "no later run on it" in text[3]
    assert "ipate withdraw march p7 --consented-again" in text[3]
    done = left(replace(ENTRY, labelling="complete"), "march")
    assert "nothing more is drawn" in done[2]
    early = left(replace(ENTRY, trained=False, labels=0, checks=0, epsilon=0.0), "march")
    assert early[1] == "Nothing had been learnt from their data."
    assert "nothing is owed" in early[2]


def test_withdrawal_text_hides_private_figures():
    text = owed(replace(ENTRY, kind="private", bound="exact").told)
    assert "is private" in text
    for figure in ("12", "20 ", "1.23"):
        assert figure not in text.replace(ENTRY.when, "")
    assert "1.235" in owed(replace(ENTRY, kind="private", bound="exact"))
