"""From a run, a fit, or labels whose votes or ballots came from elsewhere, to the facts that an audience may see.

Without an allocation, as for the labels of several sites, the facts come from the labelling itself, from the ledger
that it charged, and from the group file. Such a report names neither the ledger's run nor its head, because both are
hashes that cover the private votes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ipate._version import library_versions
from ipate.accounting.bounds import Meter
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError
from ipate.files import write_text
from ipate.ledger.base import Ledger
from ipate.people.budgets import Account, strictest_first
from ipate.release.description import Description, GroupFacts
from ipate.release.history import Extract
from ipate.release.results import Guarantee, Labelling, Record, StoppedBy, state_guarantee
from ipate.report.exports import as_json, group_events
from ipate.report.facts import About, Audience, Facts, Identity, Outcome, Owner, for_audience
from ipate.report.page import page
from ipate.students.scores import label_counts, label_notes

_AGREE = 1e-9  # relative tolerance: the same charges are added in the same order


@dataclass(frozen=True, kw_only=True)
class Source(About):
    """The input of a report: the record, what the engine states, the extract of the ledger, and who sat where.

    There is no allocation where teachers were trained, or ballots cast, elsewhere.
    """

    record: Record
    described: Description
    extract: Extract
    allocation: Allocation | None = None
    student_model: str
    withdrawn: int = 0  # who left this run; that somebody had left before it is not told


def assemble(source: Source, audience: Audience, owner: Callable[[Outcome], Owner] | None = None) -> Facts:
    """Return the facts that this audience may see; `owner` adds those for the data owner only.

    A public report of a run whose costs are private does not read them.
    """
    if audience not in ("public", "private"):
        raise InputError(f"audience is {audience!r}: it must be public or private")
    facts = for_audience(_public(source), audience)
    if audience == "public" and not facts.publishable:
        return facts
    outcome = _outcome(source)
    if audience == "public" or owner is None:
        return for_audience(replace(facts, released=outcome), audience)
    return replace(facts, released=outcome if facts.publishable else None, owner=owner(outcome))


def _guarantee(source: Source) -> tuple[Guarantee, StoppedBy]:
    """Derive the guarantee from the charges and the ending; the record must state the same one."""
    record, used = source.record, source.described.parameters
    if source.allocation is None:
        return record.guarantee, "account"  # so that the promise is the budget, whatever ended the labelling
    meter = Meter(used.bound, used.conversion)
    fixed = used.stop == "count" and record.stopped_by != "budget"
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
    record, allocation, described = source.record, source.allocation, source.described
    given = {entry.name: getattr(source, entry.name) for entry in fields(About)}
    if not record.seeded:
        given["noise_seed"] = None
    groups = _groups(source)
    sizes = [group.account.group.people for group in groups]
    n_people = sum(size or 0 for size in sizes) if all(sizes) else None
    return Facts(
        **given,
        audience="public",
        n_people=n_people if allocation is None else allocation.people.n_people,
        n_pool=len(record.labels),
        groups=groups,
        merged=() if allocation is None else allocation.merged,
        withdrawn=source.withdrawn,
        notes=() if allocation is None else allocation.notes,
        parameters=replace(described.parameters, orders=source.extract.orders, student_model=source.student_model),
        manner=described.manner,
        guarantee=guarantee,
        stopped_by=stopped_by,
        ledger_head=record.ledger_head or None,
        private_history=source.extract.private_history and stopped_by == "other",
        replaces=source.extract.replaces,
    )


def _groups(source: Source) -> tuple[GroupFacts, ...]:
    """Return the groups with their influence, strictest first.

    Where the engine states none, it is the weight that the record was charged for if that may be published, else the
    weight that is affordable: what is charged depends on what was left of the budgets, which private costs of an
    earlier run may have decided.
    """
    if source.described.groups is not None:
        return strictest_first(source.described.groups)
    record, allocation = source.record, source.allocation
    if allocation is None:
        found = [
            (Account(group=paid.group, sensitivity=paid.sensitivity), paid.teachers or 0, paid.weight, paid.copies)
            for paid in record.groups
        ]
    else:
        charged = {paid.id: paid.sensitivity for paid in record.groups} if record.publishable else {}
        accounts = [
            replace(account, sensitivity=charged.get(account.id, account.sensitivity)) for account in allocation.groups
        ]
        found = [(account, 0, account.sensitivity, 1) for account in accounts]
    votes = [
        teachers * (weight or 0.0) if teachers else account.people * account.sensitivity
        for account, teachers, weight, _ in found
    ]
    n_people, total = sum(account.people for account, *_ in found) or 1, sum(votes) or 1.0
    return strictest_first(
        GroupFacts(
            account=account,
            teachers=teachers,
            weight=weight,
            copies=copies,
            people_share=account.people / n_people,
            vote_share=own / total,
        )
        for (account, teachers, weight, copies), own in zip(found, votes, strict=True)
    )


def _outcome(source: Source) -> Outcome:
    """Read costs and history from the ledger's charges; refuse a record that disagrees with them."""
    record, extract = source.record, source.extract
    by_id = {group.id: group for group in record.groups}
    names = [group.id for group in _groups(source)]
    labels = record.teachers_labels
    free = [query for query in dict.fromkeys(record.queries) if query in extract.reused]
    reused_labels = int(np.count_nonzero(labels[free] >= 0))
    if source.allocation is not None:  # a labelling of elsewhere is not read from files
        _check(source, names, reused=(len(free), reused_labels))
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


def _check(source: Source, names: Sequence[str], *, reused: tuple[int, int]) -> None:
    """Refuse a record that disagrees with the ledger: other groups, other numbers of answers, or other costs."""
    record, last = source.record, source.extract.history[-1]
    by_id = {group.id: group for group in record.groups}
    if set(by_id) != set(names):
        raise InputError("the record and the allocation name different groups: the files do not belong together")
    charged = last.queries + reused[0], last.labels + reused[1]
    by_query = source.described.manner.by_query and source.described.parameters.design is None
    if by_query and charged != (record.n_queries, record.n_labels):
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


def labelled_source(
    result: Labelling,
    ledger: Ledger,
    described: Description,
    *,
    name: str,
    people: Mapping[str, int | None],
    n_pool: int,
    n_classes: int,
    queries: Sequence[str] | None = None,
    sites: tuple[str, ...] = (),
    controller: str | None = None,
    contact: str | None = None,
) -> Source:
    """Return the input of a report on labels whose votes or ballots came from elsewhere.

    Parameters
    ----------
    result, ledger : Labelling and Ledger
        The labels, whose guarantee must be releasable, and the ledger that they charged.
    described : Description
        What the engine states.
    name : str
        The name of the votes or ballots.
    people : mapping
        The number of people of each group, from the group file; None where it is not stated.
    n_pool, n_classes : int
        The numbers of points and classes.
    queries : sequence of str, optional
        The ids of the queries, if they are not row numbers.
    sites : tuple of str
        The sites whose votes or ballots were merged.
    """
    if not result.guarantee.publishable:
        raise InputError("this labelling has no guarantee that may be published, so there is no report of it")
    places = None if queries is None else {query: place for place, query in enumerate(queries)}
    record = Record.of(result, n_public=n_pool)
    sized = [
        replace(paid, group=replace(paid.group, people=paid.group.people or people.get(paid.id)))
        for paid in record.groups
    ]
    return Source(
        record=replace(record, groups=tuple(sized)),
        described=described,
        extract=Extract.of(ledger, places=places),
        student_model=described.parameters.student_model,
        data_name=name,
        classes=tuple(map(str, range(n_classes))),
        noise_seed=None,
        split_seed=None,
        versions=library_versions(),
        levels=False,
        identity=Identity(begun=ledger.opened[:10], controller=controller, contact=contact),
        elsewhere=True,
        sites=sites,
    )
