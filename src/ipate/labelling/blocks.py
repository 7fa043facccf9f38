"""The JSON form of a result: what may be published in one block, and what may not in another."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ipate.labelling.results import BallotFacts, GroupResult, Guarantee
from ipate.people.budgets import MIN_GROUP_SIZE, has_small, shown_counts


def blocks(
    guarantee: Guarantee,
    *,
    inputs: Mapping[str, Any],
    outcome: Mapping[str, Any],
    groups: Sequence[GroupResult],
    scores: Mapping[str, Any] | None = None,
    least: int = MIN_GROUP_SIZE,
) -> dict[str, Any]:
    """Return the JSON form of a result: what may be published in one block, what may not in the other.

    `inputs` are public under every guarantee, the `outcome` and the costs of the groups if it is releasable, and
    `scores` never. Groups of fewer than `least` people are not counted.
    """
    head: dict[str, Any] = {"guarantee": guarantee.kind, "statement": guarantee.statement}
    head |= {"seeded": guarantee.seeded, "overlap": guarantee.overlap}
    sizes = shown_counts((group.group.people for group in groups), least=least)
    shown = [{**group.inputs(), "people": size} for group, size in zip(groups, sizes, strict=True)]
    costs = [group.costs() for group in groups]
    hidden: dict[str, Any] = {"guarantee": "none" if guarantee.kind == "none" else "private"}
    if guarantee.publishable:
        whole = [{**own, **cost} for own, cost in zip(shown, costs, strict=True)]
        return {"publishable": {**head, **inputs, **outcome, "groups": whole}, "private": {**hidden, **(scores or {})}}
    hidden |= {**outcome, **(scores or {})}
    hidden["groups"] = [{"group": group.id, **cost} for group, cost in zip(groups, costs, strict=True)]
    return {"publishable": {**head, **inputs, "groups": shown}, "private": hidden}


def ballot_figures(
    found: BallotFacts | None, groups: Sequence[GroupResult], *, least: int = MIN_GROUP_SIZE
) -> dict[str, Any] | None:
    """Return the figures of a release of ballots for JSON; None where there was none.

    The weight of all ballots is left out beside a group that is too small to be counted, because it would tell its
    size: the weight of one ballot of each group, and the number of all people, are public.
    """
    if found is None:
        return None
    hidden = has_small((group.group.people for group in groups), least=least)
    return asdict(found) | ({"weight": None} if hidden else {})
