"""A statement as a letter to the person: one page of HTML that prints on A4, in plain words.

It is written from a statement that is filtered for the person already, so it has no private figure.
"""

from collections.abc import Iterator

from ipate.errors import InputError
from ipate.release.description import not_proven
from ipate.report.formats import Markup, bullets, element, example, factor_of, plain, small, table, up, weakness
from ipate.report.odds import in_words
from ipate.report.page import document
from ipate.report.statement import (
    RunEntry,
    Statement,
    Unprotected,
    Use,
    agreement_sentence,
    private_costs,
    remaining,
    untold,
)

_WHAT = (
    "Your data was used, together with other people's, to label public examples. Random noise was added, {noise}, and "
    "a model learnt from these labels alone. It was not given your data."
)
_CROWDED = 6  # runs; a letter with more has smaller type


def letter(statement: Statement | Unprotected, *, date: str) -> str:
    """Return the letter with this date; a statement with private figures is not for the person and is refused."""
    if isinstance(statement, Statement) and statement.private:
        raise InputError("a statement with private figures is for the data owner only: a letter is for the person")
    record = statement.agreement
    sender = record.controller or "The data owner"
    parts = _unprotected(statement) if isinstance(statement, Unprotected) else _protected(statement)
    runs = len(statement.unprotected) + (0 if isinstance(statement, Unprotected) else len(statement.entries))
    head = element(
        "header",
        element("p", element("strong", sender), class_="sender"),
        element("p", record.contact, class_="sender") if record.contact else "",
        element("p", date, class_="date"),
        element("p", f"To the person with the id {statement.person}", class_="to"),
    )
    main = element(
        "main",
        element("h1", "How your data was used"),
        element("p", _WHAT.format(noise=_noise(statement))) if isinstance(statement, Statement) else "",
        *parts,
        *_section("If you want to leave or have a question", *_leaving(statement)),
    )
    foot = element(
        "footer",
        element("p", "This letter is about you and for you alone: it has your id and what you chose. Keep it private."),
    )
    body = element("div", head, main, foot, class_="letter crowded" if runs > _CROWDED else "letter")
    return document(f"How your data was used: {statement.person}", body, private=True, style="letter.css")


def _noise(statement: Statement) -> str:
    """Return what the noise does for the person in a run of this kind."""
    if statement.guaranteed:
        return "which limits what the labels tell about any one person"
    if statement.seeded:
        return "which whoever knows its seed can take away again"
    if statement.overlap:
        return "but the public examples may be private data themselves"
    return "but no limit on what the labels tell about you can be stated"


def _section(title: str, *children: object) -> Iterator[Markup]:
    yield element("h2", title)
    yield from (child if isinstance(child, Markup) else element("p", child) for child in children if child)


def _protected(statement: Statement) -> Iterator[Markup]:
    budget = f"ε = {plain(statement.budget)} and δ = {small(statement.delta)}"
    what = "level" if statement.levels else "group"
    said = agreement_sentence(statement)
    agreed = f"You {said}." if said is not None else f"You agreed to {what} {statement.asked}."
    if said is None:
        agreed += " The day and the version of the policy are not on record."
    limits = "limits" if statement.guaranteed else "was to limit"
    agreed += f" It {limits} what your data may give away to {budget}: the smaller ε is, the stronger the protection."
    stricter = ""
    if statement.asked != statement.group:
        stricter = f"You count with the stricter {what} {statement.group}"
        stricter += ", so you are protected at least as well as you asked." if statement.guaranteed else "."
    yield from _section("What you agreed to", agreed, stricter)
    yield from _section("What you are promised", *_promise(statement))
    if statement.odds is not None:
        yield from _section("What somebody could find out", in_words(statement.odds))
    yield from _section("Every use of your data that the ledger knows of", _runs(statement), *_spent(statement))


def _promise(statement: Statement) -> Iterator[str]:
    if statement.guaranteed:
        yield (
            "Whatever anyone learns from the model, its labels or anything made of them, your own data changes the "
            f"probability of any outcome by at most a factor {factor_of(statement.budget)} (e^ε), except for a chance "
            f"of δ. {example(statement.budget, statement.delta, whose='your')}{weakness(statement.budget)}"
        )
    elif statement.seeded or statement.overlap:
        why = "its noise can be repeated" if statement.seeded else "private data was also used as public data"
        yield f"Nothing is promised to you about the run {statement.run}: {why}."
    else:
        yield f"No guarantee can be stated for the run {statement.run}: {private_costs(statement)}."
    if statement.outside:
        yield not_proven(statement.outside)
    if statement.withdrawn is not None:
        kept = ", and the promise about it stands" if statement.guaranteed else ""
        yield (
            f"You withdrew on {statement.withdrawn[:10]}. Your data is not used any more in this run nor, unless you "
            "consent again, in a later one on this ledger, and nothing more is charged to you; what had been released "
            f"stays released{kept}."
        )


def _runs(statement: Statement) -> Markup | str:
    rows = [_row(entry) for entry in statement.entries] + [_open_row(use) for use in statement.unprotected]
    if not rows:
        return "Nothing has been released that your data could have changed."
    columns = ["run", "day", "your limit ε", "released", "spent ε"]
    return table("Runs, in order", columns, rows, words=1)


def _row(entry: RunEntry) -> list[str]:
    spent = "not told" if entry.epsilon is None else up(entry.epsilon, 4)
    return [entry.run, entry.opened[:10], plain(entry.budget), _released(entry), spent]


def _open_row(use: Use) -> list[str]:
    return [use.run, use.opened[:10], "none", "as public or test data", "without protection"]


def _released(entry: RunEntry) -> str:
    if entry.labels is None or entry.checks is None:
        return "not told"
    parts = [(entry.labels, "label"), (entry.checks, "check"), (entry.ballots or 0, "histogram")]
    return ", ".join(f"{n:,} {what}{'' if n == 1 else 's'}" for n, what in parts if n) or "nothing new"


def _spent(statement: Statement) -> Iterator[str]:
    if statement.spent is None:
        yield untold(statement)
        return
    rest = ""
    if statement.left is not None and statement.withdrawn is None:
        rest = f" Of your limit, ε = {plain(statement.allowed)}, {remaining(statement.left, statement.allowed)}."
    several = " The costs of several runs are counted together, so they need not add up."
    yield (
        f"In all, ε = {up(statement.spent, 4)} was spent.{rest}{several if len(statement.entries) > 1 else ''} "
        "What is not on this ledger is not counted."
    )


def _unprotected(statement: Unprotected) -> Iterator[Markup]:
    yield from _section(
        "Your data was used without protection",
        (
            "Your rows are in the pool of public points or in the test data. Whatever limit you chose, none was "
            "applied, nothing was charged to you, and nothing is promised to you."
        ),
        (
            "Points of the pool may be published with their labels and may be stored in the model; test data decided "
            "how good the model is said to be."
        ),
    )
    rows = [[use.run, use.opened[:10]] for use in statement.unprotected]
    yield from _section("Every such use that the ledger knows of", table("Runs, in order", ["run", "day"], rows))


def _leaving(statement: Statement | Unprotected) -> Iterator[Markup | str]:
    record = statement.agreement
    whom = record.contact or record.controller or "the data owner, who gave you this letter"
    if isinstance(statement, Statement) and statement.withdrawn is not None:
        yield f"Write to {whom}."
        return
    yield f"Write to {whom}, and state your id, {statement.person}. You need not give a reason."
    if isinstance(statement, Unprotected):
        yield "Your rows can be taken out of the data for later runs. What was published cannot be called back."
        return
    yield bullets(
        [
            "From then on your data is not used any more, in this run or a later one, and nothing more is charged.",
            "What was released before cannot be called back.",
        ]
    )
