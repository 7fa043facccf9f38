"""Cells for the ballots of several sites: sites declare their people, and the aggregator makes one public cells file.

A declaration is JSON with a site's groups, their budgets and numbers of people; no row decides anything else in it. The
cells file is a sealed npz with the features, the cells and the design that all declarations and the queries give:
everything in it is public, and every site casts its people's ballots into the same cells with the stated units.

Ballots of several sites: each site sends the exact sum of its own people's ballots, and the aggregator adds them.

A site's ballot file is a sealed npz with `ballots`, (partitions, cells, classes) in whole multiples of the grid. It
holds no row and nothing about single people, but no noise either: the aggregator must be trusted with it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from ipate._version import __version__
from ipate.data.overlap import row_hashes
from ipate.engines.ballots.design import Design, ballot_terms, make_design, state_design
from ipate.engines.ballots.given import check_sum
from ipate.engines.ballots.release import PublicMaps, sum_private
from ipate.engines.context import Progress
from ipate.errors import InputError, show
from ipate.files import read_npz, replacing, write_text
from ipate.parties import exchange
from ipate.parties.exchange import (
    RESEND,
    Declared,
    Encoding,
    NpzWriter,
    Part,
    Record,
    SiteFile,
    Stated,
    array_sha256,
    check_site,
)
from ipate.parties.merge import Combined, check_expected, in_order
from ipate.parties.queries import Queries
from ipate.parties.site import SiteOptions, check_public, make_private, note, people_of, read_rows
from ipate.people.budgets import Budget, Group, GroupRow
from ipate.people.people import People
from ipate.public.cells import PARTITIONS, Cells
from ipate.public.features import Features, fit_features

_GRID = "2^-20"
DECLARATION, CELLS = "ipate site declaration 1", "ipate cells 1"
_FEATURES = ("kind", "shape", "gradients", "centre", "gain", "components", "net")
_ARRAYS = (*_FEATURES, "centres", "pool")


class DeclaredPeople(Declared):
    """A declared group and its number of people."""

    people: int

    @property
    def group(self) -> Group:
        """The group with its budget and its number of people."""
        return Group(id=self.id, budget=Budget(self.epsilon, self.delta), people=self.people)


class Declaration(Stated):
    """What a site declares before ballots are cast: its groups, their budgets and numbers of people."""

    groups: tuple[DeclaredPeople, ...]
    queries: str  # the hash of the queries, whose encoding the site's rows have

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for group in self.groups:
            _ = group.group  # a number of people below 1 is refused
        return self

    def text(self) -> str:
        """Return the declaration as it is written."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def read_declaration(path: Path) -> Declaration:
    """Read the declaration of a site."""
    return exchange.read_stated(path, Declaration, kind=DECLARATION, what="a declaration", by="ipate party declare")


class CellsManifest(Part):
    """The description in a cells file; its hash, the fingerprint, identifies cells, units and declarations."""

    format: str
    ipate: str
    queries: str
    encoding: Encoding
    shape: tuple[int, int, int]  # partitions, cells, classes
    grid: str
    units: dict[str, int]  # by group id: what one row adds to its cell in every partition, in multiples of the grid
    sites: tuple[Declaration, ...]  # in the order of their names
    arrays: dict[str, str]  # the hashes of the arrays

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        declared = [group.id for site in self.sites for group in site.groups]
        if len({site.site for site in self.sites}) < len(self.sites) or set(declared) != set(self.units):
            raise ValueError("its units do not match the declared groups of its sites")
        if self.grid != _GRID:
            raise ValueError(f"its grid is {self.grid}, and this ipate has {_GRID}")
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteCells:
    """A cells file that was read and passed all checks."""

    path: Path
    manifest: CellsManifest
    fingerprint: str
    maps: PublicMaps

    def declaration(self, site: str) -> Declaration:
        """Return what a site has declared; a site that is not counted in is refused."""
        for found in self.manifest.sites:
            if found.site == site:
                return found
        named = [found.site for found in self.manifest.sites]
        raise InputError(f"{self.path}: does not count in site {site!r}, but {show(named)}; send its declaration first")

    def design(self, declared: Declaration) -> Design:
        """Return the design for the people of one site; units that a declared budget does not afford are refused."""
        units = {group.id: self.manifest.units[group.id] for group in declared.groups}
        terms = ballot_terms([group.group for group in declared.groups])
        return state_design(terms, shape=self.manifest.shape, units=units)


def make_site_cells(
    queries: Queries,
    declarations: Sequence[Declaration],
    out: Path,
    *,
    partitions: int = PARTITIONS,
    cells: int | None = None,
    as_given: bool = False,
    n_jobs: int | None = None,
) -> tuple[SiteCells, Design]:
    """Make the cells of all sites from public facts alone, and write their file.

    `cells` is their number per partition (default: by the rule of the design); with `as_given` the encoded
    features, such as embeddings, are used as they are.
    """
    exchange.require_new(out)
    ordered = tuple(sorted(declarations, key=lambda declared: declared.site))
    _check_declarations(ordered, queries)
    encoding = queries.encoding
    groups = [group.group for declared in ordered for group in declared.groups]
    n_classes = len(encoding.classes)
    design = make_design(
        ballot_terms(groups), n_classes=n_classes, n_pool=len(queries), partitions=partitions, cells=cells
    )
    pool = queries.points
    features = fit_features(pool, n_classes=n_classes, kind="given" if as_given else None, shape=encoding.shape)
    maps = PublicMaps.make(
        pool, n_classes=n_classes, cells=design.cells, partitions=partitions, features=features, n_jobs=n_jobs
    )
    arrays = {**maps.features.arrays(), **maps.cells.arrays(), "pool": maps.pool}
    manifest = CellsManifest(
        format=CELLS,
        ipate=__version__,
        queries=queries.sha256,
        encoding=encoding,
        shape=(partitions, maps.cells.cells, n_classes),
        grid=_GRID,
        units=dict(design.units),
        sites=ordered,
        arrays={name: _hash(array) for name, array in arrays.items()},
    )
    with exchange.new_npz(out) as archive:
        for name, array in arrays.items():
            archive.add(name, array)
        fingerprint = exchange.seal(archive, manifest)
    out.chmod(0o644)
    return SiteCells(path=out, manifest=manifest, fingerprint=fingerprint, maps=maps), design


def read_cells(path: Path) -> SiteCells:
    """Read a cells file; one that was altered, is incomplete or has an unknown format is refused by name."""
    manifest, fingerprint, arrays = exchange.read_sealed(
        path, CellsManifest, names=_ARRAYS, kind=CELLS, what="a cells file", by="ipate parties cells"
    )
    if {name: _hash(arrays[name]) for name in _ARRAYS} != manifest.arrays:
        raise InputError(f"{path}: its arrays do not match its manifest, so the file was altered; {RESEND}")
    try:
        maps = _maps(arrays)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: its cells cannot be used ({show(str(error))}); {RESEND}") from None
    if (maps.cells.partitions, maps.cells.cells, len(manifest.encoding.classes)) != manifest.shape:
        raise InputError(f"{path}: its cells have another shape than {manifest.shape}, which it states; {RESEND}")
    return SiteCells(path=path, manifest=manifest, fingerprint=fingerprint, maps=maps)


def _maps(arrays: Mapping[str, NDArray[Any]]) -> PublicMaps:
    features, cells = Features.from_arrays(arrays), Cells.from_arrays(arrays)
    if features.dimensions != cells.centres.shape[2] or arrays["pool"].shape[1:] != (cells.partitions,):
        raise InputError("features, cells and pool do not belong together")
    return PublicMaps(features=features, cells=cells, pool=np.asarray(arrays["pool"], dtype=np.int32))


def _hash(array: NDArray[Any]) -> str:
    return array_sha256(np.atleast_1d(array))


def _check_declarations(declarations: Sequence[Declaration], queries: Queries) -> None:
    if not declarations:
        raise InputError("there are no declarations: name at least one")
    for before, declared in pairwise(declarations):
        if before.site == declared.site:
            raise InputError(f"duplicate site {declared.site!r}: its people would be counted twice; leave one out")
    for declared in declarations:
        if declared.queries != queries.sha256:
            raise InputError(
                f"site {declared.site!r} has declared for the queries {declared.queries[:16]}…, and yours are "
                f"{queries.sha256[:16]}…; send it the same queries file and let it declare again"
            )


BALLOTS = "ipate site ballots 1"
_README = """This folder is private: it holds the site's rows, as they were declared. It never leaves this site; only
declaration.json and the ballot files of `ipate party ballots` do.
"""


class BallotManifest(Stated):
    """The description in a ballot file: the cells, and what the site has declared for them."""

    groups: tuple[DeclaredPeople, ...]
    cells: str  # the fingerprint of the cells file
    ballots: str  # the hash of the ballots


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteBallots(SiteFile):
    """A ballot file that was read; its sum is compared with the declaration when it is merged."""

    manifest: BallotManifest
    ballots: NDArray[Any]


def declare_site(
    data: Path, out: Path, *, name: str, queries: Queries, options: SiteOptions
) -> tuple[Declaration, tuple[str, ...]]:
    """Read a site's rows into its private folder and write its declaration; notes say which budgets became stricter.

    Nothing that the rows hold is visible but the groups: what could not be read is noted in the private folder.
    Declaring again replaces rows and declaration; what the site has sent stays on record.
    """
    check_site(name)
    encoding = queries.encoding
    rows = read_rows(data, encoding, options)
    check_public(row_hashes(encoding.transform(rows.X)), queries.points)
    most = options.max_groups if isinstance(options.max_groups, int) else None
    people = people_of(rows, options, data).merged(max_groups=most, min_group_size=options.min_group_size)
    order = sorted(range(len(people.groups)), key=lambda place: people.groups[place].id)
    groups = [people.groups[place] for place in order]
    declared = Declaration(
        format=DECLARATION,
        ipate=__version__,
        site=name,
        queries=queries.sha256,
        groups=tuple(
            DeclaredPeople(id=f"{name}/{g.id}", epsilon=g.epsilon, delta=g.delta, people=g.people or 0) for g in groups
        ),
    )
    private = make_private(out)
    with Record(out).locked():
        if not (private / "README").exists():
            write_text(private / "README", _README)
        with replacing(private / "declared.npz", private=True) as file:
            np.savez(
                file,
                X=rows.X,
                y=rows.y,
                person_of_row=people.person_of_row,
                group_of_person=np.argsort(order)[people.group_of_person],
            )
        unit = [line for line in [encoding.other_unit(rows.X)] if line]
        note(private, data=[*rows.private_notes, *unit])
        write_text(private / "declaration.json", declared.text())
    write_text(out / "declaration.json", declared.text())
    return declared, people.notes


def cast_ballots(site: Path, cells: SiteCells, out: Path, *, again: bool = False) -> tuple[BallotManifest, str]:
    """Sum the ballots of a site's people and write the ballot file; returns its manifest and its fingerprint.

    Every labelling spends people's budgets again, so a site that has sent votes or ballots for something else is
    refused unless `again` says that its budgets hold for each: other cells, or other rows in the same cells. What is
    sent is recorded before the file is released.
    """
    exchange.require_new(out)
    private = site / "private"
    if not (private / "declaration.json").is_file():
        raise InputError(f"{site}: holds no declared site; `ipate party declare DATA --out {site} …` makes one")
    record = Record(site)
    with record.locked():
        declared = read_declaration(private / "declaration.json")
        counted = cells.declaration(declared.site)
        if (counted.queries, counted.groups) != (declared.queries, declared.groups):
            raise InputError(
                f"{cells.path}: counts in another declaration than that of {site}: send {site / 'declaration.json'} to "
                "the aggregator, and ask for cells that are made from it"
            )
        design = cells.design(declared)
        held = read_npz(private / "declared.npz", ("X", "y", "person_of_row", "group_of_person"))
        people = People(
            groups=tuple(group.group for group in declared.groups),
            ids=np.arange(len(held["group_of_person"])).astype(str),
            group_of_person=np.array(held["group_of_person"]),
            person_of_row=np.array(held["person_of_row"]),
        )
        X = cells.manifest.encoding.transform(held["X"])
        total = sum_private(X, held["y"], people, design=design, maps=cells.maps)
        sent = f"{cells.fingerprint} {exchange.array_sha256(total)}"  # other rows in the same cells are another release
        record.check(sent, again=again)
        with exchange.new_npz(out) as archive:
            manifest = BallotManifest(
                format=BALLOTS,
                ipate=__version__,
                site=declared.site,
                cells=cells.fingerprint,
                ballots=archive.add("ballots", total),
                groups=declared.groups,
            )
            fingerprint = exchange.seal(archive, manifest)
            record.add(sent)
    return manifest, fingerprint


def read_site_ballots(path: Path) -> SiteBallots:
    """Read a ballot file; one that was altered, is incomplete or has an unknown format is refused by name."""
    manifest, fingerprint, arrays = exchange.read_sealed(
        path, BallotManifest, names=("ballots",), kind=BALLOTS, what="a site's ballot file", by="ipate party ballots"
    )
    if exchange.array_sha256(arrays["ballots"]) != manifest.ballots:
        raise InputError(f"{path}: its ballots do not match its manifest, so the file was altered; {RESEND}")
    return SiteBallots(
        path=path, site=manifest.site, manifest=manifest, fingerprint=fingerprint, ballots=arrays["ballots"]
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class MergedBallots(Combined):
    """The sum of the ballots of all sites."""

    name: ClassVar[str] = "ballots"

    files: tuple[SiteBallots, ...]  # in the order of the sites' names
    total: NDArray[np.int64]
    cells: SiteCells
    groups: tuple[DeclaredPeople, ...]  # of all sites, in the order of the sites

    def add_to(self, archive: NpzWriter, progress: Progress) -> None:
        """Add the sum, the cells of the points, and the units of the groups."""
        del progress  # there are no teachers
        units = self.cells.manifest.units
        archive.add("ballots", self.total)
        archive.add("cells", self.cells.maps.pool)
        archive.add("groups", np.array([group.id for group in self.groups]))
        archive.add("units", np.array([units[group.id] for group in self.groups], dtype=np.int64))
        archive.add("maps", np.array(self.cells.fingerprint))

    def facts(self) -> dict[str, Any]:
        """Return the origin of the ballots for the record: sites, fingerprints, groups and units."""
        manifest = self.cells.manifest
        return {
            "ipate": __version__,
            "queries": manifest.queries,
            "cells": self.cells.fingerprint,
            "shape": list(manifest.shape),
            "fingerprints_checked": self.checked,
            "sites": [
                {"site": file.manifest.site, "fingerprint": file.fingerprint, "ipate": file.manifest.ipate}
                for file in self.files
            ],
            "groups": [{**group.model_dump(), "units": manifest.units[group.id]} for group in self.groups],
        }


def merge_ballots(
    files: Sequence[SiteBallots], cells: SiteCells, *, queries: Queries | None = None, expect: Sequence[str] = ()
) -> MergedBallots:
    """Add the ballots of all sites; every site that the cells count in sends one file, and each is checked by itself.

    `queries` is the aggregator's own copy, whose ids the labels carry; `expect` lists fingerprints as for votes.
    """
    ordered = in_order(files)
    parts = [_checked(file, cells) for file in ordered]
    missing = sorted({site.site for site in cells.manifest.sites} - {file.site for file in ordered})
    if missing:
        raise InputError(
            f"{cells.path}: counts in site {show(missing[0])}, and there is no file of it; add its file, or make cells "
            "without its declaration and let the other sites cast ballots again (--again)"
        )
    if queries is not None and queries.sha256 != cells.manifest.queries:
        raise InputError(f"{cells.path}: is for other queries than your queries file; name the one it was made from")
    check_expected(ordered, expect)
    total = np.asarray(np.sum(parts, axis=0))
    groups = tuple(group for file in ordered for group in file.manifest.groups)
    return MergedBallots(
        files=ordered,
        total=total,
        cells=cells,
        groups=groups,
        classes=cells.manifest.encoding.classes,
        rows=tuple(GroupRow(group=g.id, epsilon=g.epsilon, delta=g.delta, people=g.people) for g in groups),
        queries=queries,
        checked=bool(expect),
    )


def _checked(file: SiteBallots, cells: SiteCells) -> NDArray[np.int64]:
    """Return a site's sum if it is for these cells and can be a sum of the people that the site has declared."""
    manifest = file.manifest
    if manifest.cells != cells.fingerprint:
        raise InputError(
            f"{file.path}: is for the cells {manifest.cells[:16]}…, and {cells.path} is {cells.fingerprint[:16]}…; "
            f"send site {manifest.site!r} these cells and let it cast its ballots again"
        )
    declared = cells.declaration(manifest.site)
    if manifest.groups != declared.groups:
        raise InputError(f"{file.path}: its groups are not those that {cells.path} counts in; {RESEND}")
    if file.ballots.shape != cells.manifest.shape:
        raise InputError(f"{file.path}: has the shape {file.ballots.shape}, not {cells.manifest.shape}; {RESEND}")
    most = sum(group.people * cells.manifest.units[group.id] for group in declared.groups)
    try:
        return check_sum(file.ballots, most=most)
    except InputError as error:
        raise InputError(f"{file.path}: {error}; {RESEND}") from None
