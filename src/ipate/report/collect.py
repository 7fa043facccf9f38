"""From a run's folder to facts: read, recompute, and refuse files that contradict each other."""

import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ipate._version import __version__
from ipate.config import RunConfig
from ipate.costs import fixed_orders
from ipate.data import Dataset, load
from ipate.errors import InputError, IpateError
from ipate.guarantee import Guarantee, StoppedBy, state_guarantee
from ipate.pipeline import Settings, choose_settings
from ipate.report.facts import (
    Audience,
    Comparison,
    Facts,
    GroupFacts,
    Outcome,
    Owner,
    Parameters,
    Scores,
    Spent,
    for_audience,
)
from ipate.report.replay import recompute
from ipate.runs.folder import RunFolder
from ipate.runs.record import Record, read_record
from ipate.variants import Allocation

__all__ = ["collect"]

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dp-accounting", "randomgen", "matplotlib")


def collect(folder: RunFolder, audience: Audience) -> Facts:
    """Return what a report of this run may say to this audience.

    Private numbers are not even computed for a public report of a run whose costs are private.
    """
    if audience not in ("public", "private"):
        raise InputError(f"audience is {audience!r}: it must be public or private")
    record, allocation, n_classes = _read(folder)
    settings = _settings(folder.config, allocation, len(record.labels), n_classes)
    guarantee, stopped_by = _guarantee(record, settings)
    facts = for_audience(
        _public(
            folder.config,
            record=record,
            allocation=allocation,
            settings=settings,
            n_classes=n_classes,
            guarantee=guarantee,
            stopped_by=stopped_by,
        ),
        audience,
    )
    if audience == "public" and not facts.publishable:
        return facts
    outcome = _outcome(folder, record, allocation, settings, n_classes)
    if audience == "public":
        return for_audience(replace(facts, released=outcome), audience)
    released = outcome if facts.publishable else None
    return replace(facts, released=released, owner=_owner(folder, outcome))


def _read(folder: RunFolder) -> tuple[Record, Allocation, int]:
    record = read_record(folder)
    path = folder.private / "allocation.npz"
    store = folder.read(folder.private / "votes" / "store.json")
    if record is None or store is None or not path.is_file():
        raise InputError(
            f"{folder.path}: the run has not labelled yet; finish it with ipate run --resume {folder.path}"
        )
    return record, Allocation.load(path), int(store["classes"])


def _settings(config: RunConfig, allocation: Allocation, n_pool: int, n_classes: int) -> Settings:
    """The run's own settings, which follow from its configuration and public facts."""
    wanted = config.labelling
    options = {name: value for name, value in (("rule", wanted.rule), ("power", wanted.power)) if value is not None}
    return choose_settings(
        people=allocation.people,
        n_public=n_pool,
        n_classes=n_classes,
        variant=wanted.variant,
        teacher=None,
        n_teachers=config.teachers.number,
        sigma=wanted.sigma,
        check_sigma=wanted.check_sigma,
        threshold=wanted.threshold,
        points_per_teacher=config.teachers.points,
        bound=wanted.bound,
        conversion=wanted.conversion,
        stop=wanted.stop,
        max_labels=wanted.max_labels,
        options=options,
    )


def _guarantee(record: Record, settings: Settings) -> tuple[Guarantee, StoppedBy]:
    """The guarantee, made again from how the run was charged and ended; the record must say the same."""
    fixed = settings.stop == "count" and record.stopped_by != "budget"
    stopped_by: StoppedBy = "fixed" if fixed else "account"
    made = state_guarantee(settings.meter, stopped_by=stopped_by, seeded=record.seeded)
    if (made.kind, settings.meter.bound, settings.meter.conversion) != (record.kind, record.bound, record.conversion):
        raise InputError("the record's guarantee is not that of the run's configuration: one of them was edited")
    return made, stopped_by


def _public(
    config: RunConfig,
    *,
    record: Record,
    allocation: Allocation,
    settings: Settings,
    n_classes: int,
    guarantee: Guarantee,
    stopped_by: StoppedBy,
) -> Facts:
    data = _dataset(config)
    stated = config.data.file.name if config.data.file is not None else config.data.name or ""
    return Facts(
        audience="public",
        data_name=stated,
        data_source="" if data is None else data.source,
        data_notes=() if data is None else data.notes,
        classes=config.data.classes or (() if data is None else data.classes),
        n_classes=n_classes,
        n_people=allocation.people.n_people,
        n_pool=len(record.labels),
        groups=_groups(allocation),
        merged=tuple((merge.group, merge.into, merge.people) for merge in allocation.merged),
        withdrawn=len(allocation.withdrawn),
        notes=allocation.notes,
        parameters=_parameters(config, allocation, settings),
        guarantee=guarantee,
        stopped_by=stopped_by,
        noise_seed=config.seed if record.seeded else None,
        split_seed=config.split_seed,
        versions=_versions(),
        levels=config.budgets.epsilon is None and config.data.epsilon is None,
    )


def _dataset(config: RunConfig) -> Dataset | None:
    """A named data set, for its notes; a file of one's own is not opened, and nothing is downloaded."""
    if config.data.name is None:
        return None
    try:
        return load(config.data.name, data_dir=config.data.data_dir, download=False)
    except (IpateError, OSError):
        return None


def _groups(allocation: Allocation) -> tuple[GroupFacts, ...]:
    layout = allocation.layout
    share = _vote_shares(allocation)
    n_people = max(1, sum(group.people for group in allocation.groups))
    weights = layout.group_weights or {}
    turns = {} if allocation.participation is None else allocation.participation.fractions
    return tuple(
        GroupFacts(
            group=group.id,
            people=group.people,
            teachers=group.teachers,
            budget=group.epsilon,
            delta=group.delta,
            sensitivity=group.sensitivity,
            weight=weights.get(group.id),
            copies=int(layout.copies.get(group.id, 1)),
            participation=float(turns.get(group.id, 1.0)),
            people_share=group.people / n_people,
            vote_share=share[group.id],
        )
        for group in allocation.groups
    )


def _vote_shares(allocation: Allocation) -> dict[str, float]:
    """Each group's share of all weighted votes; of all places in teachers, where teachers mix groups."""
    names = [group.id for group in allocation.groups]
    if allocation.teacher_groups is None:
        mass = {
            group.id: float(group.people * allocation.layout.copies.get(group.id, 1)) for group in allocation.groups
        }
    else:
        owner = np.array(allocation.teacher_groups)
        mass = {name: float(allocation.weights[owner == name].sum()) for name in names}
        if allocation.participation is not None:
            mass = {name: mass[name] * float(allocation.participation.fractions[name]) for name in names}
    total = sum(mass.values()) or 1.0
    return {name: mass[name] / total for name in names}


def _parameters(config: RunConfig, allocation: Allocation, settings: Settings) -> Parameters:
    mechanism = settings.aggregator(allocation.scale).mechanism
    panel = allocation.panel()
    orders = fixed_orders(panel, settings.meter, mechanism)
    by_group = (
        {} if orders is None else dict(zip((panel.groups[i].id for i in panel.account_group), orders, strict=True))
    )
    return Parameters(
        variant=allocation.variant,
        rule=allocation.layout.rule,
        teachers=allocation.n_teachers,
        sigma=mechanism.sigma,
        check_sigma=mechanism.check_sigma,
        threshold=mechanism.threshold,
        bound=settings.meter.bound,
        conversion=settings.meter.conversion,
        orders=tuple(by_group.items()),
        stop=settings.stop,
        max_labels=settings.max_labels,
        teacher_model=config.teachers.model,
        student_model=config.student.model,
        reason=settings.reason,
    )


def _versions() -> dict[str, str]:
    found = {"ipate": __version__, "Python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _outcome(folder: RunFolder, record: Record, allocation: Allocation, settings: Settings, n_classes: int) -> Outcome:
    votes = folder.private / "votes" / "votes.npy"
    by_id = {group.group: group for group in record.groups}
    if set(by_id) != {group.id for group in allocation.groups}:
        raise InputError("the record and the allocation name different groups: the files do not belong together")
    return Outcome(
        ended=record.stopped_by,
        n_labels=record.n_labels,
        n_queries=record.n_queries,
        spent=tuple(
            Spent(
                group=group.id,
                cost=by_id[group.id].epsilon,
                sensitivity=by_id[group.id].sensitivity,
                labels_until_exhausted=by_id[group.id].labels_until_exhausted,
            )
            for group in allocation.groups
        ),
        history=recompute(record, allocation, settings, n_classes=n_classes, votes=votes),
    )


def _scores(found: Mapping[str, Any]) -> Scores:
    return Scores(
        labels=found.get("labels"),
        queries=found.get("queries"),
        label_accuracy=found.get("voting_accuracy"),
        student_accuracy=found.get("student_accuracy"),
        by_class=found.get("by_class"),
        by_level=found.get("by_level"),
    )


def _owner(folder: RunFolder, outcome: Outcome) -> Owner:
    metrics = folder.read(folder.private / "metrics.json") or folder.read(folder.public / "metrics.json") or {}
    compare = folder.read(folder.private / "compare.json")
    teachers = (compare or {}).get("teachers") or {}
    return Owner(
        outcome=outcome,
        scores=_scores(metrics),
        standard_labels=metrics.get("labels_of_standard_pate"),
        teacher_accuracy=teachers.get("accuracy"),
        plurality_accuracy=teachers.get("plurality_accuracy"),
        comparison=None
        if compare is None
        else Comparison(
            note=str(compare.get("note", "")),
            standard=_scores(compare.get("standard") or {}),
            ceiling=_scores(compare.get("ceiling") or {}),
        ),
    )
