"""From a run or a fitted classifier to the facts that an audience may see, and to the files of its report.

The facts of a report on labels of teachers or ballots from elsewhere, such as those of several sites.

There is no run folder then: the facts come from the labelling itself, from the ledger that it charged, and from the
group file. Only a labelling whose guarantee is releasable has such a report. It names neither the ledger's run nor its
head, because both are hashes that cover the private votes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ipate._version import library_versions
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.files import write_text
from ipate.ledger.base import Ledger
from ipate.people.budgets import Account, strictest_first
from ipate.planning.settings import Settings
from ipate.release.history import Extract
from ipate.release.results import GroupResult, Guarantee, Labelling, Record, StoppedBy, state_guarantee
from ipate.report.exports import as_json, group_events
from ipate.report.facts import (
    About,
    Audience,
    DesignFacts,
    Facts,
    GroupFacts,
    Identity,
    Outcome,
    Owner,
    Parameters,
    for_audience,
)
from ipate.report.page import page
from ipate.students.scores import label_counts, label_notes

_AGREE = 1e-9  # relative tolerance: the same charges are added in the same order


@dataclass(frozen=True, kw_only=True)
class Source(About):
    """The input of a report: the record, allocation and settings of a run, and the extract of its ledger."""

    record: Record
    allocation: Allocation
    settings: Settings
    extract: Extract
    teacher_model: str
    student_model: str
    withdrawn: int = 0  # who left this run; that somebody had left before it is not told


def assemble(source: Source, audience: Audience, owner: Callable[[Outcome], Owner]) -> Facts:
    """Return the facts that this audience may see; `owner` adds those for the data owner only.

    A public report of a run whose costs are private does not read them.
    """
    if audience not in ("public", "private"):
        raise InputError(f"audience is {audience!r}: it must be public or private")
    facts = for_audience(_public(source), audience)
    if audience == "public" and not facts.publishable:
        return facts
    outcome = _outcome(source)
    if audience == "public":
        return for_audience(replace(facts, released=outcome), audience)
    return replace(facts, released=outcome if facts.publishable else None, owner=owner(outcome))


def _guarantee(source: Source) -> tuple[Guarantee, StoppedBy]:
    """Derive the guarantee from the charges and the ending; the record must state the same one."""
    record, meter = source.record, source.settings.meter
    fixed = source.settings.stop == "count" and record.stopped_by != "budget"
    stopped_by: StoppedBy = "fixed" if fixed else "account"
    if meter.data_independent and source.extract.private_history:
        stopped_by = "other"
    elif meter.whole:  # the queries were fixed and no budget had been spent before
        stopped_by = "fixed"
    elif meter.data_independent and source.extract.opening:  # costs of earlier runs were not fixed
        stopped_by = "account"
    stated: StoppedBy = "account" if stopped_by == "fixed" and meter.data_independent else stopped_by
    made = state_guarantee(  # as stated by the labelling
        meter,
        stopped_by=stated,
        seeded=record.seeded,
        overlap=source.overlap,
        counts=record.noisy_votes is not None,
    )
    if (made.kind, meter.bound, meter.conversion) != (record.kind, record.bound, record.conversion):
        raise InputError("the record's guarantee does not match the run's configuration: one of them was edited")
    return made, stopped_by


def _public(source: Source) -> Facts:
    guarantee, stopped_by = _guarantee(source)
    record, allocation = source.record, source.allocation
    given = {entry.name: getattr(source, entry.name) for entry in fields(About)}
    if not record.seeded:
        given["noise_seed"] = None
    return Facts(
        **given,
        audience="public",
        n_people=allocation.people.n_people,
        n_pool=len(record.labels),
        groups=strictest_first(_groups(source)),
        merged=allocation.merged,
        withdrawn=source.withdrawn,
        notes=allocation.notes,
        parameters=_parameters(source),
        guarantee=guarantee,
        stopped_by=stopped_by,
        ledger_head=record.ledger_head or None,
        private_history=source.extract.private_history and stopped_by == "other",
        replaces=source.extract.replaces,
    )


def _groups(source: Source) -> tuple[GroupFacts, ...]:
    if source.settings.ballots:
        return _ballot_groups(source)
    allocation = source.allocation
    layout, groups = allocation.layout, allocation.groups
    n_people = max(1, sum(group.people for group in groups))
    weights = layout.group_weights or {}
    turns = {} if allocation.participation is None else allocation.participation.fractions
    if allocation.teacher_groups is None:  # teachers mix groups: places in teachers instead of weighted votes
        votes = {group.id: float(group.people * layout.copies.get(group.id, 1)) for group in groups}
    else:
        owner = np.array(allocation.teacher_groups)
        votes = {
            group.id: float(allocation.weights[owner == group.id].sum()) * float(turns.get(group.id, 1.0))
            for group in groups
        }
    n_votes = sum(votes.values()) or 1.0
    return tuple(
        GroupFacts(
            account=group,
            teachers=layout.teachers[group.id],
            weight=weights.get(group.id),
            copies=int(layout.copies.get(group.id, 1)),
            participation=float(turns.get(group.id, 1.0)),
            people_share=group.people / n_people,
            vote_share=votes[group.id] / n_votes,
        )
        for group in groups
    )


def _ballot_groups(source: Source) -> tuple[GroupFacts, ...]:
    """Return the groups with the weight of a ballot: the charged one if it may be published, else what is affordable.

    What is charged depends on what was left of the budgets, which private costs of an earlier run may have decided.
    """
    charged = {group.id: group.sensitivity for group in source.record.groups} if source.record.publishable else {}
    accounts = [
        replace(account, sensitivity=charged.get(account.id, account.sensitivity))
        for account in source.allocation.groups
    ]
    n_people = max(1, sum(account.people for account in accounts))
    total = sum(account.people * account.sensitivity for account in accounts) or 1.0
    return tuple(
        GroupFacts(
            account=account,
            teachers=0,
            weight=account.sensitivity,
            copies=1,
            participation=1.0,
            people_share=account.people / n_people,
            vote_share=account.people * account.sensitivity / total,
        )
        for account in accounts
    )


def _parameters(source: Source) -> Parameters:
    allocation, settings, design = source.allocation, source.settings, source.settings.design
    mechanism = settings.aggregator(allocation.scale).mechanism
    return Parameters(
        voting=settings.voting,
        variant=allocation.variant,
        rule=allocation.layout.rule,
        teachers=allocation.n_teachers,
        **mechanism.parameters,
        bound=settings.meter.bound,
        conversion=settings.meter.conversion,
        orders=source.extract.orders,
        stop=settings.stop,
        max_labels=settings.max_labels,
        teacher_model=source.teacher_model,
        student_model=source.student_model,
        reason=settings.reason,
        queries=settings.queries,
        n_queries=settings.n_queries,
        counts=settings.counts,
        n_first=settings.n_first,
        design=None if design is None else design_facts(design),
    )


def design_facts(design: Any) -> DesignFacts:
    """Return the public facts of the design of a tested release."""
    return DesignFacts(
        queries=design.n_queries,
        reference=design.reference,
        reserve=design.reserve,
        likely=float(design.pi[-1]),
        fallback=design.fallback,
        digest=design.digest,
    )


def _outcome(source: Source) -> Outcome:
    """Read costs and history from the ledger's charges; refuse a record that disagrees with them."""
    record, extract = source.record, source.extract
    by_id = {group.id: group for group in record.groups}
    names = [group.id for group in strictest_first(_groups(source))]
    if set(by_id) != set(names):
        raise InputError("the record and the allocation name different groups: the files do not belong together")
    free = [query for query in record.queries if query in extract.reused]
    labels = record.teachers_labels
    reused_labels = int(np.count_nonzero(labels[free] >= 0))
    last = extract.history[-1]
    charged = last.queries + len(free), last.labels + reused_labels
    whole = source.settings.meter.whole or source.settings.ballots  # charged as one release
    if charged != (record.n_queries, record.n_labels) and not whole:
        raise InputError(
            f"the record has {record.n_queries} queries and {record.n_labels} labels, but the ledger was charged for "
            f"{charged[0]} and {charged[1]}: the files do not belong together, or were edited"
        )
    for group, cost in last.costs.items():
        if abs(by_id[group].cost - cost) > _AGREE * max(1.0, cost):
            raise InputError(
                f"group {group!r}: the record states another cost than the ledger; the files do not belong together, "
                "or were edited"
            )
    return Outcome(
        ended=record.stopped_by,
        n_labels=record.n_labels,
        n_queries=record.n_queries,
        groups=tuple(replace(by_id[name], before=extract.before[name], own=extract.own[name]) for name in names),
        history=extract.history,
        opening=extract.opening,
        reused_queries=len(free),
        reused_labels=reused_labels,
        passed=record.passed,
        by_class=label_counts(labels, source.classes),
        notes=label_notes(record.labels, source.classes),
        ballots=record.ballots,
        composition=extract.composition,
        reinforced=len(record.reinforced),
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """A written report: its files and its facts."""

    html: Path
    json: Path
    facts: Facts

    def events(self) -> dict[str, Any]:
        """Return the composition of each group as a `dp_accounting.DpEvent`, by group id; empty if there is none."""
        return {entry.group: entry.event() for entry in group_events(self.facts)}


def write_facts(facts: Facts, html: Path) -> Report:
    """Write the HTML and JSON files; private ones are readable by the file's owner only."""
    texts = {html: page(facts), html.with_suffix(".json"): as_json(facts)}
    for path, content in texts.items():
        write_text(path, content, private=facts.audience == "private")
    return Report(html=html, json=html.with_suffix(".json"), facts=facts)


def check_target(out: str | Path) -> Path:
    """Check that a path ends in .html and lies in an existing folder."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"out is {str(path)!r}: it must end in .html; the JSON file is written beside it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")
    return path


ELSEWHERE = "trained elsewhere"


@dataclass(frozen=True, kw_only=True)
class Given:
    """The public facts of a labelling that neither its result nor its ledger has."""

    name: str  # of the votes or ballots
    people: Mapping[str, int | None]  # by group id, from the group file
    n_pool: int
    n_classes: int
    queries: Sequence[str] | None = None  # ids of the queries, if they are not row numbers
    variant: str  # "weighting" for ballots, which people cast with a weight
    voting: Any = "teachers"
    teachers: int = 0
    sigma: float | None
    laplace_scale: float | None = None
    check_sigma: float | None = None
    threshold: float | None = None
    stop: str = "budget"
    max_labels: int | None = None
    design: Any = None
    counts: bool = False
    sites: tuple[str, ...] = ()
    controller: str | None = None
    contact: str | None = None


def facts_of_labelling(result: Labelling, ledger: Ledger, given: Given) -> Facts:
    """Return the facts of a public report; refused where the guarantee does not permit one."""
    if not result.guarantee.publishable:
        raise InputError("this labelling has no guarantee that may be published, so there is no report of it")
    places = None if given.queries is None else {name: place for place, name in enumerate(given.queries)}
    extract = Extract.of(ledger, places=places)
    groups = strictest_first(_labelled_groups(result.groups, given))
    classes, sizes = tuple(map(str, range(given.n_classes))), [group.account.people for group in groups]
    return for_audience(
        Facts(
            audience="public",
            data_name=given.name,
            classes=classes,
            noise_seed=None,
            split_seed=None,
            versions=library_versions(),
            levels=False,
            identity=Identity(begun=ledger.opened[:10], controller=given.controller, contact=given.contact),
            elsewhere=True,
            sites=given.sites,
            n_people=sum(sizes) if all(sizes) else None,
            n_pool=given.n_pool,
            groups=groups,
            merged=(),
            withdrawn=0,
            notes=(),
            parameters=_labelled_parameters(result, extract, given),
            guarantee=result.guarantee,
            stopped_by="account",  # so that the promise is the budget, whatever ended the labelling
            replaces=extract.replaces,
            released=_labelled_outcome(result, extract, [group.id for group in groups], classes),
        ),
        "public",
    )


def _labelled_groups(results: Sequence[GroupResult], given: Given) -> list[GroupFacts]:
    accounts = [
        Account(
            group=replace(found.group, people=found.group.people or given.people.get(found.id)),
            sensitivity=found.sensitivity,
        )
        for found in results
    ]
    total = sum(account.people for account in accounts) or 1
    votes = [
        (found.teachers or 0) * (found.weight or 0.0) if found.teachers else account.people * account.sensitivity
        for found, account in zip(results, accounts, strict=True)
    ]
    return [
        GroupFacts(
            account=account,
            teachers=found.teachers or 0,
            weight=found.weight,
            copies=1 if found.weight is not None else max(1, round(found.sensitivity)),
            participation=1.0,
            people_share=account.people / total,
            vote_share=own / (sum(votes) or 1.0),
        )
        for found, account, own in zip(results, accounts, votes, strict=True)
    ]


def _labelled_parameters(result: Labelling, extract: Extract, given: Given) -> Parameters:
    return Parameters(
        voting=given.voting,
        variant=given.variant,
        rule="as given",
        teachers=given.teachers,
        sigma=given.sigma,
        laplace_scale=given.laplace_scale,
        check_sigma=given.check_sigma,
        threshold=given.threshold,
        bound=result.meter.bound,
        conversion=result.meter.conversion,
        orders=extract.orders,
        stop=given.stop,
        max_labels=given.max_labels,
        teacher_model=ELSEWHERE,
        student_model=ELSEWHERE,
        reason="parameters as given",
        queries="in the order given",
        counts=given.counts,
        design=None if given.design is None else design_facts(given.design),
    )


def _labelled_outcome(result: Labelling, extract: Extract, ids: Sequence[str], classes: tuple[str, ...]) -> Outcome:
    by_id = {found.id: found for found in result.groups}
    asked = ~result.repeated
    free = np.isin(result.queries, list(extract.reused)) & asked
    labels = np.where(result.answered & asked, result.labels, -1)
    return Outcome(
        ended=result.stopped_by,
        n_labels=result.n_labels,
        n_queries=result.n_queries,
        groups=tuple(replace(by_id[name], before=extract.before[name], own=extract.own[name]) for name in ids),
        history=extract.history,
        opening=extract.opening,
        reused_queries=int(np.count_nonzero(free)),
        reused_labels=int(np.count_nonzero(free & result.answered)),
        passed=result.passed,
        by_class=label_counts(labels, classes),
        notes=label_notes(labels, classes),
        ballots=result.ballots,
        composition=extract.composition,
        reinforced=int(np.count_nonzero(result.reinforced & asked)),
    )
