"""What teachers state about a labelling for its report: parameters, influence of the groups, and phrases."""

from typing import Any

import numpy as np

from ipate.accounting.ladder import Design
from ipate.allocation.allocation import Allocation
from ipate.engines.teachers.aggregators import Mechanism, NamedAggregator
from ipate.engines.teachers.settings import TeacherSettings
from ipate.engines.teachers.variants import find_variant
from ipate.release.description import Description, DesignFacts, GroupFacts, Manner, Parameters, from_outside
from ipate.release.results import Labelling

STOPS = {
    "budget": "before a query that could pass anybody's budget",
    "drop": "groups leave when their budget is used up; the others go on",
    "count": "at a number of labels fixed beforehand",
}
ELSEWHERE = "trained elsewhere"


def described(
    settings: TeacherSettings, allocation: Allocation, *, teacher: str, outside: tuple[str, ...]
) -> Description:
    """Return what is stated of a run's labelling; `teacher` is the name of the teachers' model."""
    groups, noise = _groups(allocation), settings.aggregator(allocation.scale).mechanism
    used = Parameters(
        engine=settings.engine,
        variant=allocation.variant,
        rule=allocation.layout.rule,
        teachers=allocation.n_teachers,
        **_noise(noise),
        bound=settings.meter.bound,
        conversion=settings.meter.conversion,
        stop=settings.stop,
        max_labels=settings.max_labels,
        teacher_model=teacher,
        reason=settings.reason,
        queries=settings.queries,
        n_queries=settings.n_queries,
        counts=settings.counts,
        n_first=settings.n_first,
        design=None if settings.design is None else _design_facts(settings.design),
    )
    copies = max((group.copies for group in groups), default=1)
    return Description(parameters=used, groups=groups, manner=manner(used, copies=copies, outside=outside))


def described_elsewhere(
    result: Labelling,
    aggregator: NamedAggregator,
    *,
    variant: str,
    teachers: int,
    stop: str,
    max_labels: int | None,
    design: Design | None,
) -> Description:
    """Return what is stated of a labelling by teachers that were trained elsewhere, without an allocation."""
    used = Parameters(
        engine="teachers",
        variant=variant,
        rule="as given",
        teachers=teachers,
        **_noise(aggregator.mechanism),
        bound=result.meter.bound,
        conversion=result.meter.conversion,
        stop=stop,
        max_labels=max_labels,
        teacher_model=ELSEWHERE,
        student_model=ELSEWHERE,
        reason="parameters as given",
        queries="in the order given",
        counts=aggregator.mechanism.counts,
        design=None if design is None else _design_facts(design),
    )
    copies = max((group.copies for group in result.groups), default=1)
    outside = from_outside(variant=find_variant(variant), bound=result.meter.definition, aggregator=aggregator)
    return Description(parameters=used, manner=manner(used, copies=copies, outside=outside))


def manner(used: Parameters, *, copies: int = 1, outside: tuple[str, ...] = ()) -> Manner:
    """Return facts and phrases of teachers; a person is with at most so many (`copies`) of them."""
    variant = find_variant(used.variant)
    shared = "disjoint sets of people"
    if copies > 1:
        shared = f"sets of people, each person being in at most {copies:,} of them"
    proofs: tuple[str, ...] = ("filter",)
    if used.design is not None:
        proofs = ("ptr", "filter") if used.design.fallback else ("ptr",)
    released = "The labels, the queries that got none, and the moment at which labelling stopped."
    if used.design is not None:
        released = "The answer of the private test, the labels, and the queries that got none."
    return Manner(
        by_query=True,
        uniform=not variant.takes_turns and used.stop != "drop",
        individual=variant.individual,
        proofs=proofs,
        outside=outside,
        rows=tuple(_rows(used)),
        influence_title=variant.influence_title,
        influence=variant.show_influence,
        influence_note=variant.report_note,
        opening=f"taught {used.teachers:,} teachers",
        became="whose noisy votes labelled public points; a student learnt from those labels alone",
        took_part="taught the teachers",
        charged="",
        released=released,
        withdrew="their places stay empty, and the promise about labels that were already given still holds for them.",
        public_people="Which teacher holds whose data (the partition), and how many withdrew: they leave an empty "
        "place.",
        public_settings="The number of teachers, the noise parameters, the threshold, the way of accounting and the "
        "rule for stopping.",
        leaver="their place in their teacher stays empty",
        way=f"{used.teachers:,} teachers, trained on {shared}, labelled them with noise",
        how=f"{used.teachers:,} teachers were trained on {shared} and voted ({used.variant}), with "
        f"{used.noise.capitalize()} noise on the counts.",
        asked="Queries are points of a public pool, asked once; nobody can ask further questions of the private data.",
        collected="This run collected nothing: it read data that were there. Models of teachers are not kept.",
        noise_on=" on the votes of each class, and their argmax",
        figures="count the rows of labels.csv (queries) and those that were {answered} (labels), and take noise, "
        "weights",
        card="Models (teachers) were each trained on private rows of some of the people. Their noisy votes labelled "
        "{labels:,} of {pool:,} public points; the student was trained on these.",
    )


def _noise(mechanism: Mechanism) -> dict[str, Any]:
    """Return the noise parameters by the names of reports."""
    return dict(mechanism.parameters)


def _rows(used: Parameters) -> list[tuple[str, str]]:
    """Return who votes on what, and when that ends, for the table of parameters."""
    found = [
        ("teachers k", f"{used.teachers:,} ({used.teacher_model})"),
        ("points asked", f"{used.queries}{'' if used.n_queries is None else f', {used.n_queries:,} at most'}"),
    ]
    if used.n_first is not None:
        found.append(("rounds", f"{used.n_first:,} points; then a student of their labels is compared with the votes"))
    if used.stop is not None:
        found.append(("stops", STOPS[used.stop]))
    if used.max_labels is not None:
        found.append(("labels at most", f"{used.max_labels:,}"))
    if used.counts:
        found.append(("released with labels", "noisy counts in steps of σ/8, from the same draw"))
    return found


def _groups(allocation: Allocation) -> tuple[GroupFacts, ...]:
    """Return the influence of the groups: that of their votes, or of their places where teachers mix groups."""
    layout, groups = allocation.layout, allocation.groups
    n_people = max(1, sum(group.people for group in groups))
    weights = layout.group_weights or {}
    turns = {} if allocation.participation is None else allocation.participation.fractions
    if allocation.teacher_groups is None:
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


def _design_facts(design: Design) -> DesignFacts:
    """Return the public facts of the design of a tested release."""
    return DesignFacts(
        queries=design.n_queries,
        reference=design.reference,
        reserve=design.reserve,
        likely=float(design.pi[-1]),
        fallback=design.fallback,
        digest=design.digest,
    )
