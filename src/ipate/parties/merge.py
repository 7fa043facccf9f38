"""Merge the votes of several sites into one vote file, with weights that follow the declared budgets.

Groups, weights and accounts are matched by id. Sites are sorted by name, so the order of the files changes nothing.
"""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ipate._version import __version__
from ipate.engines.context import Progress
from ipate.engines.teachers.variants import weights_for
from ipate.errors import InputError, refuse_name, show
from ipate.files import write_text
from ipate.parties.exchange import DeclaredGroup, Manifest, NpzWriter, SiteFile, SiteVotes, new_folder, new_npz
from ipate.parties.queries import Queries
from ipate.people.budgets import GroupRow, write_groups

F = TypeVar("F", bound=SiteFile)
RULES = ("gdp", "proportional", "classic", "uniform")


class MergedGroup(DeclaredGroup):
    """An account of the merged votes: its budget, its number of teachers, its sites and its teachers' weight."""

    sites: tuple[str, ...]
    weight: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Combined(ABC):
    """What all sites sent, merged for `ipate label`, with all that a task without private rows needs."""

    name: ClassVar[str]  # of the file

    classes: tuple[str, ...]
    rows: tuple[GroupRow, ...]  # the accounts, as the group file has them
    queries: Queries | None  # the aggregator's own copy, with the points and their ids
    checked: bool  # whether all fingerprints were compared with those received through a separate channel

    @abstractmethod
    def add_to(self, archive: NpzWriter, progress: Progress) -> None:
        """Add the arrays of this kind of merge to its file."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the origin for the record: sites, fingerprints and groups."""

    def write(self, out: Path, *, progress: Progress = lambda done: None) -> None:
        """Write the arrays, `groups.csv` and `sites.json` into a new folder, atomically; `progress` counts teachers."""
        with new_folder(out) as folder:
            with new_npz(folder / f"{self.name}.npz") as archive:
                self.add_to(archive, progress)
                archive.add("classes", np.array(self.classes))
                if self.queries is not None and self.queries.ids is not None:
                    archive.add("queries", np.array(self.queries.ids))
            write_groups(folder / "groups.csv", self.rows)
            write_text(folder / "sites.json", json.dumps(self.facts(), indent=2, ensure_ascii=False) + "\n")


@dataclass(frozen=True, kw_only=True, eq=False)
class Merged(Combined):
    """The merged votes of all sites."""

    name: ClassVar[str] = "votes"

    files: tuple[SiteVotes, ...]  # in the order of the sites' names
    groups: tuple[MergedGroup, ...]  # in the order of their ids
    teacher_groups: tuple[str, ...]  # the group of every teacher, in the order of the files and their rows
    rule: str  # how budgets became weights

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weight of every teacher, by its group's id; the weights sum to the number of teachers."""
        weight = {group.id: group.weight for group in self.groups}
        return np.array([weight[name] for name in self.teacher_groups])

    def add_to(self, archive: NpzWriter, progress: Progress) -> None:
        """Add votes, weights and groups of all teachers."""
        shape = (len(self.teacher_groups), self.files[0].manifest.n_queries)
        archive.stream("votes", dtype=self.files[0].votes.dtype, shape=shape, blocks=self._votes(progress))
        archive.add("weights", self.weights)
        archive.add("groups", np.array(self.teacher_groups))

    def _votes(self, progress: Progress) -> Iterator[NDArray[Any]]:
        """Yield every teacher's votes in turn, so that they are never all in memory."""
        for done, row in enumerate((row for file in self.files for row in file.votes), start=1):
            yield row
            progress(done)

    def facts(self) -> dict[str, Any]:
        """Return the origin of the votes for the record: sites, fingerprints, groups and weights."""
        return {
            "ipate": __version__,
            "rule": self.rule,
            "queries": self.files[0].manifest.queries,
            "fingerprints_checked": self.checked,
            "sites": [
                {
                    "site": file.manifest.site,
                    "fingerprint": file.fingerprint,
                    "ipate": file.manifest.ipate,
                    "variant": file.manifest.variant,
                    "teachers": len(file.manifest.teachers),
                    "groups": [group.model_dump() for group in file.manifest.groups],
                }
                for file in self.files
            ],
            "groups": [group.model_dump(mode="json") for group in self.groups],
        }


def merge(
    files: Sequence[SiteVotes],
    *,
    rule: str = "gdp",
    merge_equal: bool = False,
    queries: Queries | None = None,
    expect: Sequence[str] = (),
) -> Merged:
    """Combine the votes of several sites; a file that does not match the others is refused by name.

    `rule` is that of `weights_for`; `merge_equal` gives groups of equal ε and δ one account across sites. `queries` is
    the aggregator's own copy: votes on others are refused, and labels carry its ids. `expect` lists fingerprints from a
    separate channel, as FINGERPRINT or SITE=FINGERPRINT; with one of them, every file needs one.
    """
    if rule not in RULES:
        refuse_name("weights", rule, RULES)
    if not files:
        raise InputError("there are no vote files: name at least one")
    ordered = in_order(files)
    _check_fits(ordered)
    _check_queries(ordered, queries)
    check_expected(ordered, expect)
    accounts = {
        group.id: f"eps={group.epsilon!r}_delta={group.delta!r}" if merge_equal else group.id
        for file in ordered
        for group in file.manifest.groups
    }
    teacher_groups = tuple(accounts[teacher.group] for file in ordered for teacher in file.manifest.teachers)
    groups = _merge_groups([file.manifest for file in ordered], accounts, Counter(teacher_groups), rule)
    return Merged(
        files=ordered,
        groups=groups,
        classes=ordered[0].manifest.encoding.classes,
        rows=tuple(GroupRow(group=g.id, epsilon=g.epsilon, delta=g.delta, weight=g.weight) for g in groups),
        teacher_groups=teacher_groups,
        rule=rule,
        queries=queries,
        checked=bool(expect),
    )


def _merge_groups(
    manifests: Sequence[Manifest], accounts: Mapping[str, str], counts: Mapping[str, int], rule: str
) -> tuple[MergedGroup, ...]:
    """Return the accounts with their sites and weights; `counts` holds the number of teachers per account."""
    declared: dict[str, DeclaredGroup] = {}
    sites: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        for group in manifest.groups:
            declared[accounts[group.id]] = group
            sites.setdefault(accounts[group.id], {})[manifest.site] = None
    budgets = [declared[name].model_copy(update={"id": name, "teachers": counts[name]}) for name in sorted(declared)]
    weight = weights_for(rule=rule, groups=[group.group for group in budgets], teachers_per_group=counts)
    return tuple(
        MergedGroup(**group.model_dump(), sites=tuple(sites[group.id]), weight=weight[group.id]) for group in budgets
    )


def in_order(files: Sequence[F]) -> tuple[F, ...]:
    """Return the files in the order of their sites' names; of a duplicate site, people would pay twice."""
    ordered = tuple(sorted(files, key=lambda file: file.site))
    for before, file in pairwise(ordered):
        if before.site == file.site:
            raise InputError(
                f"{file.path}: duplicate site {file.site!r}, which is also the site of {before.path}; leave one out, "
                "or let one of two sites that share a name take another one"
            )
    return ordered


def _check_fits(files: Sequence[SiteVotes]) -> None:
    """Refuse the same teachers under two names: their people would pay twice."""
    fits: dict[str, Path] = {}
    for file in files:
        if (before := fits.setdefault(file.manifest.fit, file.path)) != file.path:
            copied = f"holds the teachers of {before} under another name"
            raise InputError(f"{file.path}: {copied}; leave one of them out")


def _check_queries(files: Sequence[SiteVotes], queries: Queries | None) -> None:
    """Refuse votes whose queries or encoding are not the aggregator's own or, without a copy, the first site's."""
    first = files[0].manifest
    encoding, wanted, number, whose = first.encoding, first.queries, first.n_queries, str(files[0].path)
    if queries is not None:
        encoding, wanted, number, whose = queries.encoding, queries.sha256, len(queries), "your queries file"
    for file in files:
        site = file.manifest.site
        if difference := file.manifest.encoding.difference(encoding):
            raise InputError(
                f"{file.path}: its encoding differs from that of {whose}: {difference}; let site {site!r} be fitted "
                "with the same queries file"
            )
        if file.manifest.queries != wanted:
            raise InputError(
                f"{file.path}: is for the queries {file.manifest.queries[:16]}…, and {whose} for {wanted[:16]}…; send "
                f"site {site!r} the same queries file and let it vote again"
            )
        if file.manifest.n_queries != number:
            raise InputError(
                f"{file.path}: has votes on {file.manifest.n_queries} queries, and {whose} has {number}; let site "
                f"{site!r} vote again"
            )


def check_expected(files: Sequence[SiteFile], expect: Sequence[str]) -> None:
    """Compare fingerprints with the expected ones; if one is expected, every file needs one."""
    if not expect:
        return
    named: dict[str, str] = {}
    loose: set[str] = set()
    for text in expect:
        site, _, number = text.rpartition("=")
        plain = "".join(number.split()).replace(":", "").replace("-", "").lower()
        if not re.fullmatch("[0-9a-f]{64}", plain):
            raise InputError(f"expect is {show(text)}: it must be SITE=FINGERPRINT or a FINGERPRINT of 64 hex digits")
        if site in named and named[site] != plain:
            raise InputError(f"expect has two different fingerprints for site {site!r}: give one")
        if site:
            named[site] = plain
        else:
            loose.add(plain)
    for file in files:
        name, found = file.site, file.fingerprint
        if named.get(name, found) != found or (name not in named and found not in loose):
            raise InputError(
                f"{file.path}: its fingerprint is {found}, which is not the one expected of site {name!r}; the file is "
                "not the one that the site wrote, or no fingerprint was given for it: ask the site"
            )
    for name in sorted(set(named) - {file.site for file in files}):
        raise InputError(f"expect names site {name!r}, and there is no file of it; add its file, or omit it")
    for number in sorted(loose - {file.fingerprint for file in files}):
        raise InputError(f"expect is {number}: no file has this fingerprint; ask the site")
