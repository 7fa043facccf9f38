"""Cells for the ballots of several sites: sites declare their people, and the aggregator makes one public cells file.

A declaration is JSON with a site's groups, their budgets and numbers of people; no row decides anything else in it. The
cells file is a sealed npz with the features, the cells and the design that all declarations and the queries give:
everything in it is public, and every site casts its people's ballots into the same cells with the stated units.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError, model_validator

from ipate._version import __version__
from ipate.ballots.design import Design, ballot_terms, make_design, state_design
from ipate.ballots.release import PublicMaps
from ipate.errors import InputError, show
from ipate.parties import exchange
from ipate.parties.exchange import RESEND, Declared, Encoding, Part, array_sha256, check_owned, first_problem
from ipate.parties.queries import Queries
from ipate.people.budgets import Budget, Group
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


class Declaration(Part):
    """What a site declares before ballots are cast: its groups, their budgets and numbers of people."""

    format: str
    ipate: str
    site: str
    queries: str  # the hash of the queries, whose encoding the site's rows have
    groups: tuple[DeclaredPeople, ...]  # in the order of their ids

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_owned(self.site, [group.id for group in self.groups])
        for group in self.groups:
            _ = group.group  # a number of people below 1 is refused
        return self

    def text(self) -> str:
        """Return the declaration as it is written."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def read_declaration(path: Path) -> Declaration:
    """Read the declaration of a site."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{path}: no such file; `ipate party declare` writes a declaration") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is not JSON; a declaration is written by `ipate party declare`") from None
    found = values.get("format") if isinstance(values, dict) else None
    if found != DECLARATION:
        raise InputError(f"{path}: its format is {show(found)}, not {DECLARATION!r}; {RESEND}")
    try:
        return Declaration.model_validate_json(json.dumps(values))
    except (ValidationError, InputError) as error:
        raise InputError(f"{path}: cannot be used ({first_problem(error)}); {RESEND}") from None


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

    `cells` is their number per partition (default: by the rule of `ipate.ballots.design`); with `as_given` the encoded
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
    pool = encoding.transform(queries.X)
    features = fit_features(pool, n_classes=n_classes, kind="given" if as_given else None, shape=encoding.shape)
    maps = PublicMaps.make(
        pool, n_classes=n_classes, cells=design.cells, partitions=partitions, features=features, n_jobs=n_jobs
    )
    arrays = {**maps.features.arrays(), **maps.cells.arrays(), "pool": maps.pool}
    manifest = CellsManifest(
        format=CELLS, ipate=__version__, queries=queries.sha256, encoding=encoding,
        shape=(partitions, maps.cells.cells, n_classes), grid=_GRID, units=dict(design.units), sites=ordered,
        arrays={name: _hash(array) for name, array in arrays.items()},
    )  # fmt: skip
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
