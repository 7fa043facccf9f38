"""The facts of a report on labels of teachers or ballots from elsewhere, such as those of several sites.

There is no run folder then: the facts come from the labelling itself, from the ledger that it charged, and from the
group file. Only a labelling whose guarantee is releasable has such a report. It names neither the ledger's run nor its
head, because both are hashes that cover the private votes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipate._version import library_versions
from ipate.errors import InputError
from ipate.labelling.history import Extract
from ipate.labelling.results import GroupResult, Labelling
from ipate.ledger.base import Ledger
from ipate.people.budgets import Account, strictest_first
from ipate.report.assemble import design_facts
from ipate.report.facts import Facts, GroupFacts, Identity, Outcome, Parameters, for_audience
from ipate.students.scores import label_counts, label_notes

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
    groups = strictest_first(_groups(result.groups, given))
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
            parameters=_parameters(result, extract, given),
            guarantee=result.guarantee,
            stopped_by="account",  # so that the promise is the budget, whatever ended the labelling
            replaces=extract.replaces,
            released=_outcome(result, extract, [group.id for group in groups], classes),
        ),
        "public",
    )


def _groups(results: Sequence[GroupResult], given: Given) -> list[GroupFacts]:
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


def _parameters(result: Labelling, extract: Extract, given: Given) -> Parameters:
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


def _outcome(result: Labelling, extract: Extract, ids: Sequence[str], classes: tuple[str, ...]) -> Outcome:
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
