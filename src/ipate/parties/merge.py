"""Votes of several sites made one vote file: the same queries, disjoint teachers, weights by declared budgets.

Everything meets by id. Sites stand in the order of their names, whatever the order of the files, so that nothing
depends on who was named first; a group's weight and its account are found by the group's id.
"""

import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._version import __version__
from ipate.allocation.weighting import weights_for
from ipate.errors import InputError, refuse_name, show
from ipate.files import write_text
from ipate.parties.archive import new_npz, require_new
from ipate.parties.manifest import Manifest, SiteVotes
from ipate.parties.queries import Queries
from ipate.people.budgets import Group, GroupRow, write_groups

RULES = ("gdp", "proportional", "classic", "uniform")
_HEX = set("0123456789abcdef")


@dataclass(frozen=True, kw_only=True)
class MergedGroup:
    """An account of the merged votes: its budget, its teachers and sites, and what each teacher's vote weighs."""

    id: str
    epsilon: float
    delta: float
    teachers: int
    sites: tuple[str, ...]
    weight: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Merged:
    """The votes of all sites together.

    Attributes
    ----------
    files : tuple of SiteVotes
        In the order of the sites' names.
    groups : tuple of MergedGroup
        In the order of their ids.
    teacher_groups : tuple of str
        Every teacher's group, in the order of the files and of their rows.
    rule : str
        How budgets became weights.
    queries : Queries, optional
        The aggregator's own copy of the queries.
    checked : bool
        Whether every file's fingerprint was compared with one that came by another way.
    """

    files: tuple[SiteVotes, ...]
    groups: tuple[MergedGroup, ...]
    teacher_groups: tuple[str, ...]
    rule: str
    queries: Queries | None
    checked: bool

    @property
    def weights(self) -> NDArray[np.float64]:
        """Every teacher's weight, found by its group's id; they sum to the number of teachers."""
        weight = {group.id: group.weight for group in self.groups}
        return np.array([weight[name] for name in self.teacher_groups])

    @property
    def rows(self) -> tuple[GroupRow, ...]:
        """The groups as `ipate label` and `ipate account` read them."""
        return tuple(GroupRow(group=g.id, epsilon=g.epsilon, delta=g.delta, weight=g.weight) for g in self.groups)

    def write(self, out: Path, *, progress: Callable[[int], None] | None = None) -> None:
        """Write `votes.npz`, `groups.csv` and `sites.json` into a new folder, all of them or none.

        `progress` receives the number of teachers whose votes are written.
        """
        require_new(out)
        aside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
        aside.mkdir(mode=0o700)
        try:
            self._write_votes(aside / "votes.npz", progress)
            write_groups(aside / "groups.csv", self.rows)
            write_text(aside / "sites.json", json.dumps(self.facts(), indent=2, ensure_ascii=False) + "\n")
            os.rename(aside, out)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def _votes(self, progress: Callable[[int], None] | None) -> Iterator[NDArray[Any]]:
        """Yield every teacher's votes in turn: all of them are never in memory at once."""
        for done, row in enumerate((row for file in self.files for row in file.votes), start=1):
            yield row
            if progress is not None:
                progress(done)

    def _write_votes(self, path: Path, progress: Callable[[int], None] | None) -> None:
        classes = self.files[0].manifest.encoding.classes
        shape = (len(self.teacher_groups), self.files[0].manifest.n_queries)
        with new_npz(path) as archive:
            archive.stream("votes", dtype=self.files[0].votes.dtype, shape=shape, blocks=self._votes(progress))
            archive.add("weights", self.weights)
            archive.add("groups", np.array(self.teacher_groups))
            archive.add("classes", np.array(classes))
            if self.queries is not None and self.queries.ids is not None:
                archive.add("queries", np.array(self.queries.ids))

    def facts(self) -> dict[str, Any]:
        """Where the votes come from, for the record: sites, fingerprints, groups and weights."""
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
            "groups": [{**vars(group), "sites": list(group.sites)} for group in self.groups],
        }


def merge(
    files: Sequence[SiteVotes],
    *,
    rule: str = "gdp",
    merge_equal: bool = False,
    queries: Queries | None = None,
    expect: Sequence[str] = (),
) -> Merged:
    """Combine the votes of several sites; whatever does not belong together is refused by the file's name.

    Parameters
    ----------
    files : sequence of SiteVotes
        In any order.
    rule : {"gdp", "proportional", "classic", "uniform"}
        How declared budgets become weights, as in `weights_for`; over the teachers of all sites they sum to k.
    merge_equal : bool
        Give groups of equal ε and δ one account, whichever site they are at.
    queries : Queries, optional
        The aggregator's own copy: votes on others are refused, and labels carry its ids.
    expect : sequence of str
        Fingerprints that came by another way, FINGERPRINT or SITE=FINGERPRINT; where there is one, every file
        needs one.
    """
    if rule not in RULES:
        refuse_name("weights", rule, RULES)
    if not files:
        raise InputError("there are no vote files: name at least one")
    ordered = tuple(sorted(files, key=lambda file: file.manifest.site))
    _check_sites(ordered)
    _check_encoding(ordered, queries)
    _check_queries(ordered, queries)
    _check_expected(ordered, expect)
    accounts = _accounts([file.manifest for file in ordered], merge_equal)
    teacher_groups = tuple(accounts[t.group] for file in ordered for t in file.manifest.teachers)
    return Merged(
        files=ordered,
        groups=_groups([file.manifest for file in ordered], accounts, teacher_groups, rule),
        teacher_groups=teacher_groups,
        rule=rule,
        queries=queries,
        checked=bool(expect),
    )


def _accounts(manifests: Sequence[Manifest], merge_equal: bool) -> dict[str, str]:
    """Return the account that each declared group pays from: its own, or that of all groups of equal budget."""
    return {
        group.id: f"eps={group.epsilon!r}_delta={group.delta!r}" if merge_equal else group.id
        for manifest in manifests
        for group in manifest.groups
    }


def _groups(
    manifests: Sequence[Manifest], accounts: Mapping[str, str], teacher_groups: Sequence[str], rule: str
) -> tuple[MergedGroup, ...]:
    declared = {accounts[group.id]: group for manifest in manifests for group in manifest.groups}
    sites: dict[str, list[str]] = {}
    for manifest in manifests:
        for group in manifest.groups:
            sites.setdefault(accounts[group.id], []).append(manifest.site)
    counts = Counter(teacher_groups)
    budgets = [Group(id=name, budget=declared[name].budget) for name in sorted(declared)]
    weight = weights_for(rule=rule, groups=budgets, teachers_per_group=counts)
    return tuple(
        MergedGroup(
            id=group.id,
            epsilon=group.epsilon,
            delta=group.delta,
            teachers=counts[group.id],
            sites=tuple(dict.fromkeys(sites[group.id])),
            weight=weight[group.id],
        )
        for group in budgets
    )


def _check_sites(files: Sequence[SiteVotes]) -> None:
    """Refuse a site, or the same teachers under two names, that stands twice: its people would pay twice."""
    sites: dict[str, Path] = {}
    fits: dict[str, SiteVotes] = {}
    for file in files:
        name = file.manifest.site
        if name in sites:
            raise InputError(
                f"{file.path}: is of site {name!r}, and so is {sites[name]}; leave one out, or let two sites that "
                "share a name be fitted under different ones"
            )
        other = fits.get(file.manifest.fit)
        if other is not None:
            raise InputError(
                f"{file.path}: holds the teachers of {other.path} under another name; leave one of the two out"
            )
        sites[name], fits[file.manifest.fit] = file.path, file


def _check_queries(files: Sequence[SiteVotes], queries: Queries | None) -> None:
    """Refuse votes on other queries than the aggregator's own, or than the first site's."""
    first = files[0].manifest
    wanted, whose = (first.queries, str(files[0].path)) if queries is None else (queries.sha256, "your queries file")
    for file in files:
        if file.manifest.queries != wanted:
            raise InputError(
                f"{file.path}: is for the queries {file.manifest.queries[:16]}…, and {whose} for {wanted[:16]}…; send "
                f"site {file.manifest.site!r} the same queries file and let it vote again"
            )
        if file.manifest.n_queries != (first.n_queries if queries is None else len(queries)):
            raise InputError(f"{file.path}: has votes on {file.manifest.n_queries} queries, which is not their number")


def _check_encoding(files: Sequence[SiteVotes], queries: Queries | None) -> None:
    """Refuse other classes, features or bounds: a vote for class 1 must mean the same at every site."""
    wanted, whose = files[0].manifest.encoding, str(files[0].path)
    if queries is not None:
        wanted, whose = queries.encoding, "your queries file"
    for file in files:
        differs = file.manifest.encoding.differences(wanted)
        if differs:
            raise InputError(
                f"{file.path}: is encoded otherwise than {whose}: {differs}; let site {file.manifest.site!r} be fitted "
                "with the same queries file"
            )


def _check_expected(files: Sequence[SiteVotes], expect: Sequence[str]) -> None:
    """Compare fingerprints with those that came by another way; one that is given obliges all."""
    if not expect:
        return
    named: dict[str, str] = {}
    loose: set[str] = set()
    for text in expect:
        site, _, number = text.rpartition("=")
        plain = "".join(number.split()).replace(":", "").replace("-", "").lower()
        if len(plain) != 64 or not set(plain) <= _HEX:
            raise InputError(f"expect is {show(text)}: it must be SITE=FINGERPRINT or a FINGERPRINT of 64 hex digits")
        if site in named and named[site] != plain:
            raise InputError(f"expect names site {site!r} twice, with different fingerprints")
        if site:
            named[site] = plain
        else:
            loose.add(plain)
    for file in files:
        name, found = file.manifest.site, file.fingerprint
        if named.get(name, found) != found or (name not in named and found not in loose):
            raise InputError(
                f"{file.path}: its fingerprint is {found}, which is not the one expected of site {name!r}; the file is "
                "not the one that the site made, or no fingerprint was given for it: ask the site"
            )
    for name in sorted(set(named) - {file.manifest.site for file in files}):
        raise InputError(f"expect names site {name!r}, and there is no file of it; add the file, or leave it out")
    for number in sorted(loose - {file.fingerprint for file in files}):
        raise InputError(f"expect is {number}: no file has this fingerprint")
