"""The sentences of a statement for one person, as pure functions of filtered values."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from ipate.accounting.bounds import find_bound
from ipate.release.description import not_proven
from ipate.release.results import SEEDED, Kind
from ipate.report.claims import assured
from ipate.report.formats import left as left_of
from ipate.report.formats import plain, small, up
from ipate.report.odds import RATES, share

Which: TypeAlias = Literal["this run", "an earlier run", "a later run"]
_SILENT: dict[str, Any] = dict.fromkeys(("labels", "checks", "ballots"))  # numbers of releases that are not told
PRIVATE = (
    "PRIVATE: FOR THE DATA OWNER ONLY. The figures below were computed from other people's data too. Do not publish "
    "them and do not give them to anybody, not even to the person."
)


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """Budget and cost of a person in one run on the ledger; figures are None where they are private."""

    run: str
    opened: str
    group: str
    budget: float
    delta: float
    bound: str
    labels: int | None
    checks: int | None
    ballots: int | None = 0  # histograms of ballots
    epsilon: float | None


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What is on record about a person's consent and about who answers for it; None where it is not.

    `consent_date` and `consent_version` are the day on which the person agreed and the version that they agreed to,
    the others those of the run's policy.
    """

    consent_date: str | None = None
    consent_version: str | None = None
    policy_version: str | None = None
    policy_date: str | None = None
    controller: str | None = None
    contact: str | None = None


@dataclass(frozen=True, kw_only=True)
class Use:
    """A run on the ledger that used a person's rows as pool or test data, without protection."""

    run: str
    opened: str


@dataclass(frozen=True, kw_only=True)
class Unprotected:
    """The statement for a person who has no account, because their rows were used without protection."""

    person: str
    run: str
    unprotected: tuple[Use, ...]
    agreement: Agreement = Agreement()


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What may be disclosed about one person of a run; figures are None where they are private."""

    person: str
    run: str
    asked: str  # the group of the person's own consent
    group: str  # the group that the person counts with: the same or a stricter one
    levels: bool  # whether groups are consent levels, rather than numbers that people chose
    budget: float  # the guarantee in this run, with `delta`
    delta: float
    guaranteed: bool  # costs that hold for all votes, and secure noise
    seeded: bool
    overlap: bool = False  # whether private data was also used as public data
    private: bool  # whether it contains figures for the data owner only
    private_costs: Which | None = None  # the run on the ledger whose costs were computed from private votes, if one was
    withdrawn: str | None  # the time of the withdrawal
    allowed: float  # the latest budget on the ledger; consent may have changed since this run
    labels: int | None  # released by this run and possibly changed by the person's data, as are the next two
    checks: int | None
    ballots: int | None = 0  # histograms of ballots
    spent: float | None  # ε over all runs on the ledger
    left: float | None  # of `allowed`
    entries: tuple[RunEntry, ...]  # every run on the ledger with this person
    unprotected: tuple[Use, ...] = ()  # runs that used their rows as pool or test data
    agreement: Agreement = Agreement()
    outside: tuple[str, ...] = ()  # parts of the run that are not part of this package
    odds: tuple[float, ...] | None = None  # true positives of the best test at `ipate.report.odds.RATES`, if promised


@dataclass(frozen=True, kw_only=True)
class Withdrawal:
    """One person's withdrawal, as stored in the run's private folder."""

    person: str
    when: str  # in UTC
    group: str  # the group that the person counted with
    teachers: tuple[int, ...]  # the teachers that learnt from the person
    place: str = ""  # what the withdrawal does to the person's data, where no teachers learnt from it
    trained: bool  # whether one of them had voted, so that it must be trained again
    labelling: str  # not begun, begun or complete
    labels: int | None  # released before and possibly changed by the person's data, as are the next two
    checks: int | None
    ballots: int | None = 0  # histograms of ballots
    bound: str
    kind: Kind  # whether the figures are releasable or private
    epsilon: float | None  # the cost of all runs on the ledger until then
    delta: float

    @property
    def told(self) -> "Withdrawal":
        """The withdrawal without private figures, as commands print it."""
        return self if self.kind == "releasable" else replace(self, **_SILENT, epsilon=None)


def for_the_person(statement: Statement) -> Statement:
    """Return the statement without private figures, as it may be given to the person."""
    if statement.guaranteed:
        return statement
    silent = tuple(replace(entry, **_SILENT, epsilon=None) for entry in statement.entries)
    return replace(statement, private=False, **_SILENT, spent=None, left=None, entries=silent)


def sentences(statement: Statement | Unprotected) -> tuple[str, ...]:
    """Return all sentences of the statement."""
    if isinstance(statement, Unprotected):
        return tuple(_bare(statement))
    marks = (PRIVATE,) if statement.private else ()
    seeded = (f"{SEEDED[0].upper()}{SEEDED[1:]}.",) if statement.seeded else ()
    said = (*_promise(statement), *_spent(statement), *_later(statement), *_odds(statement), *_agreed(statement))
    return (*marks, *seeded, *said, *_leaving(statement.agreement))


def _bare(statement: Unprotected) -> Iterator[str]:
    yield (
        f"The data of person {statement.person} was used without protection in {statement.run}: their rows are in the "
        "pool of public points or in the test data. Whatever budget they chose, none was applied, nothing was charged "
        "to them, and no guarantee is stated for them."
    )
    yield (
        "Points of the pool may be published with their labels and may be stored in the student; test data decided "
        "how good the student is said to be."
    )
    yield _used(statement.unprotected)
    yield from _leaving(statement.agreement)


def agreement_sentence(statement: Statement) -> str | None:
    """Return what the person agreed to, when and under which version; None if nothing is on record."""
    record = statement.agreement
    when = "" if record.consent_date is None else f" on {record.consent_date}"
    version = record.consent_version or record.policy_version
    if not when and version is None:
        return None
    under = "" if version is None else f", under version {version} of the policy"
    if version is not None and record.policy_date is not None and version == record.policy_version:
        under += f" (valid from {record.policy_date})"
    return f"agreed{when} to {'level' if statement.levels else 'group'} {statement.asked}{under}"


def _agreed(statement: Statement) -> Iterator[str]:
    if (said := agreement_sentence(statement)) is not None:
        yield f"They {said}."


def _odds(statement: Statement) -> Iterator[str]:
    if statement.odds is not None:
        shown = " and ".join(
            f"{share(power)} true positives at {rate:.0%} false positives"
            for rate, power in zip(RATES, statement.odds, strict=True)
        )
        yield f"The best test of whether their data was used achieves at most {shown}."


def _leaving(record: Agreement) -> Iterator[str]:
    if record.controller is not None or record.contact is not None:
        known = [part for part in (record.controller, record.contact) if part is not None]
        yield f"Responsible, and to be told if they want to withdraw: {', '.join(known)}."


def _used(uses: tuple[Use, ...]) -> str:
    listed = "; ".join(f"{use.run} (opened {use.opened})" for use in uses)
    return f"Runs known to the ledger that used their data without protection: {listed}."


def as_payload(statement: Statement | Unprotected) -> dict[str, Any]:
    """Return the statement as plain values for JSON, from the same filtered values."""
    return {**asdict(statement), "sentences": list(sentences(statement))}


def _promise(statement: Statement) -> Iterator[str]:
    who = f"Person {statement.person}, {'level' if statement.levels else 'group'} {statement.group}"
    budget = f"ε = {plain(statement.budget)} at δ = {small(statement.delta)}"
    if statement.guaranteed:
        yield assured(who, statement.budget, statement.delta)
    elif statement.seeded or statement.overlap:
        why = "the noise of this run was seeded" if statement.seeded else "private data was also used as public data"
        yield f"{who}, allowed {budget} and is promised nothing: {why}."
    else:
        why = f"{private_costs(statement)}, and that is not differential privacy"
        yield f"{who}, allowed {budget}. No guarantee can be stated: {why}."
    if statement.outside:
        yield not_proven(statement.outside)
    if statement.asked != statement.group:
        kept = ": they are protected at least as well as they asked" if statement.guaranteed else ""
        yield f"They asked for {statement.asked} and count with the stricter {statement.group}{kept}."


def private_costs(statement: Statement) -> str:
    """Say the costs of which run were computed from private votes."""
    which = statement.private_costs or "this run"
    where = "" if which == "this run" else " on the same ledger"
    return f"the costs of {which}{where} were computed from private votes"


def untold(statement: Statement) -> str:
    """Say why it is not told what was spent; no ε is named where no ε exists."""
    if statement.seeded or statement.overlap:
        why = (
            "the noise of this run can be repeated" if statement.seeded else "private data was also used as public data"
        )
        return f"There is no figure for what was spent: {why}, so no ε limits what was given away."
    return (
        "What was spent is not told, because it was computed from votes, other people's among them. By the run's own "
        f"account, which is no guarantee, it is at most the budget of ε = {plain(statement.budget)}."
    )


def _spent(statement: Statement) -> Iterator[str]:
    if statement.spent is None or statement.labels is None:
        yield untold(statement)
        return
    tested = any(find_bound(entry.bound).whole and entry.epsilon for entry in statement.entries)
    what = _released(statement, tested=tested)
    if what:
        yield f"This run released {what} that their data could have changed. What was released cannot be called back."
    elif statement.spent:
        yield (
            "This run released nothing new that their data could have changed; labels that earlier runs on this ledger "
            "had paid for may be given again in it."
        )
    else:
        yield "Nothing has been released in this run that their data could have changed."
        return
    if statement.private:
        count = "a count that looks at votes, and is no guarantee"
        if statement.seeded or statement.overlap:
            count = "a count that holds for secret noise and a public pool alone, and so not for this run"
        yield f"By {count}, this cost ε = {up(statement.spent, 4)}."
    else:
        runs = f"the {len(statement.entries)} runs" if len(statement.entries) > 1 else "the one run"
        yield (
            f"In all, ε = {up(statement.spent, 4)} was spent, over {runs} that the ledger knows of with their data: "
            f"{_listed(statement)}. What is not on this ledger is not counted."
        )


def _released(entry: "Statement | Withdrawal", *, tested: bool) -> str:
    """Return the numbers of releases, empty if there were none; a tested release has an answer even without a label."""
    labels, checks, ballots = entry.labels or 0, entry.checks or 0, entry.ballots or 0
    found = ["the answer of a private test"] if tested else []
    if ballots:
        found.append("one histogram of everybody's ballots" if ballots == 1 else f"{ballots} histograms of ballots")
    if labels or checks or tested:
        found.append(f"{labels:,} labels" + (f" and {checks:,} checks" if checks else ""))
    return ", ".join(found)


def _places(entry: "Withdrawal") -> tuple[str, str]:
    """Return which teachers learn from a person, and what a withdrawal does to their place or their ballot."""
    teachers = f"teacher{'s' if len(entry.teachers) > 1 else ''} {', '.join(map(str, entry.teachers))}"
    if entry.teachers:
        return teachers, f"their place in {teachers} stays empty"
    return teachers, entry.place


def _later(statement: Statement) -> Iterator[str]:
    """Yield sentences on a withdrawal, on all runs on the ledger where there are several, and on what is left."""
    if statement.withdrawn is not None:
        kept = ", and the promise about it stands" if statement.guaranteed else ""
        yield (
            f"They withdrew on {statement.withdrawn}. From then on their data is not used, and nothing is charged to "
            "them, in this run nor, unless they consent again, in a later one on this ledger; what had been released "
            f"by then stays released{kept}."
        )
    if len(statement.entries) > 1 and (statement.spent is None or statement.private):
        yield f"Runs on this ledger that they took part in, in order: {_listed(statement)}."
    if len(statement.entries) > 1:
        yield "The costs of several runs are counted together, so they need not add up."
    if statement.unprotected:
        yield _used(statement.unprotected)
    if statement.left is not None and statement.withdrawn is None:
        yield f"Of their latest budget, ε = {plain(statement.allowed)}, {remaining(statement.left, statement.allowed)}."


def remaining(rest: float, budget: float) -> str:
    """Say what is left of a budget."""
    found = left_of(rest, budget)
    if found != "nothing":
        return f"ε = {found} is left"
    return "less than a thousandth is left" if rest > 0 else "nothing is left"


def _listed(statement: Statement) -> str:
    return "; ".join(map(_entry, statement.entries))


def _entry(entry: RunEntry) -> str:
    alone = "" if entry.epsilon is None else f", by itself {up(entry.epsilon, 4)} spent"
    return f"{entry.run} (opened {entry.opened}, group {entry.group}, ε = {plain(entry.budget)}{alone})"


def left(entry: Withdrawal, run: str) -> tuple[str, ...]:
    """Return sentences on the effects of a withdrawal and on what it cannot undo."""
    teachers, place = _places(entry)
    found = [f"Person {entry.person} has withdrawn from {run}: {place}, and nobody else moves."]
    if entry.trained and entry.labelling == "complete":
        found.append(f"What {teachers} had learnt and voted is erased.")
    elif entry.trained:
        found.append(
            f"What {teachers} had learnt and voted is erased, and no label is given before they have learnt again "
            f"without this person: ipate run --resume {run} trains them alone."
        )
    elif entry.teachers:
        found.append("Nothing had been learnt from their data.")
    if entry.labelling == "complete":
        found.append("Labelling was complete: nothing more is drawn, and the labels and the student stay as they are.")
    again = f"unless they consent again (ipate withdraw {run} {entry.person} --consented-again)"
    recorded = "The ledger of this run records it: no later run on it, and no earlier one that is resumed, uses their"
    return (*found, owed(entry), f"{recorded} data, {again}.")


def proposed(entry: Withdrawal, run: str) -> tuple[str, ...]:
    """Return sentences on what a withdrawal would do and what it could not undo."""
    teachers, place = _places(entry)
    found = [
        f"If person {entry.person} (group {entry.group}) withdraws from {run}, {place}.",
        "Nobody else moves. This cannot be undone.",
    ]
    if entry.trained and entry.labelling == "complete":
        found.append(f"What {teachers} learnt and voted would be erased.")
    elif entry.trained:
        found.append(
            f"What {teachers} learnt and voted would be erased, and ipate run --resume {run} would train them again "
            "without this person before any further label."
        )
    elif entry.teachers:
        found.append("Nothing has been learnt from their data, so no teacher would be trained again.")
    if entry.labelling == "complete":
        found.append("Labelling is complete: the labels and the student would stay as they are.")
    if entry.labels is None or entry.epsilon is None:
        found.append("What has been released stays released and charged; how much it is, is private.")
    else:
        what = _released(entry, tested=False) or "nothing"
        found.append(
            f"Released so far, and possibly changed by their data: {what}. This stays released, and "
            f"ε = {up(entry.epsilon, 4)} at δ = {small(entry.delta)} stays charged."
        )
    found.append("No later run on the same ledger would use their data, unless they consent again.")
    return tuple(found)


def stayed_out(person: str, when: str) -> str:
    """Return a sentence on somebody who had withdrawn before a run began."""
    return f"Person {person} withdrew {when}, before this run: their place is empty and nothing is charged to them."


def returned(person: str, run: str) -> tuple[str, ...]:
    """Return sentences on the effects of a consent that a person gives again."""
    return (
        f"Person {person} has consented again: runs on the ledger of {run} that begin from now on use their data.",
        "Runs that began before go on without them, and what was spent before still counts.",
    )


def owed(entry: Withdrawal) -> str:
    """Return a sentence on releases before a withdrawal, with figures only where the entry has them."""
    who = f"Person {entry.person} (group {entry.group}, withdrew {entry.when})"
    if entry.labels is None or entry.epsilon is None:
        return (
            f"{who}: labels that had been released cannot be called back. How many they were and what they cost is "
            "private; the private report and ipate statement --private say it."
        )
    tested = find_bound(entry.bound).whole and entry.epsilon > 0
    what = _released(entry, tested=tested)
    if not what:
        nothing = f"{who}: nothing had been released, so nothing is owed."
        earlier = f"{who}: this run had released nothing new; earlier runs had spent ε = {up(entry.epsilon, 4)}, which"
        return f"{earlier} stays charged, and what they released cannot be called back." if entry.epsilon else nothing
    kept = "and the promise about them stands" if entry.kind == "releasable" else "which is private and no guarantee"
    return (
        f"{who}: {what} had been released and cannot be called back; by then ε = "
        f"{up(entry.epsilon, 4)} at δ = {small(entry.delta)} was spent (bound {entry.bound}), {kept}."
    )
