"""A site's vote file: predictions, and a manifest that says whose they are, on what, and under which budgets.

An npz with three members: `votes` (teachers × queries, class ids), `manifest` (JSON, as bytes) and `sha256` (of
those bytes). The manifest holds the hash of the votes, so its own hash, the *fingerprint*, stands for the whole
file. There is no signature: hashes inside a file show accidents; whoever can write the file can write them anew.
Only a fingerprint that came by another way shows that.
"""

import json
import re
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ipate.errors import InputError, check_id, check_number, show
from ipate.files import read_npz
from ipate.parties.archive import Encoding, array_sha256, sha256
from ipate.people.budgets import Budget
from ipate.votes.store import vote_dtype

FORMAT = "ipate site votes 1"
_MEMBERS = ("manifest", "sha256", "votes")
_ANEW = "ask the site to send the file again"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DeclaredGroup(_Part):
    """A group that a site declares: its id (SITE/GROUP), its budget, and how many teachers learnt from it."""

    id: str
    epsilon: float
    delta: float
    teachers: int

    @model_validator(mode="after")
    def _usable(self) -> Self:
        check_id(self.id)
        check_number("epsilon", self.epsilon, of=self.id)
        check_number("delta", self.delta, of=self.id)
        return self

    @property
    def budget(self) -> Budget:
        """The budget of its people."""
        return Budget(self.epsilon, self.delta)


class DeclaredTeacher(_Part):
    """A row of the votes: the teacher's id (SITE/NUMBER), and the group whose people it learnt from."""

    id: str
    group: str


class Manifest(_Part):
    """What a vote file says of itself; nothing about people but groups, budgets and numbers of teachers.

    Attributes
    ----------
    format, ipate : str
        The version of the format and of the program that wrote it.
    site : str
        The site's name, the first part of all its ids.
    fit : str
        A random mark of the teachers: the same teachers under another name are recognised.
    variant : str
        How the site gave its people to teachers.
    queries, votes : str
        The hashes of the queries and of the votes.
    n_queries : int
    encoding : Encoding
        How rows were encoded.
    groups, teachers : tuple
        The groups in order of their ids, and the teachers in the order of the votes' rows.
    """

    format: str
    ipate: str
    site: str
    fit: str
    variant: str
    queries: str
    votes: str
    n_queries: int
    encoding: Encoding
    groups: tuple[DeclaredGroup, ...]
    teachers: tuple[DeclaredTeacher, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_site(self.site)
        own = f"{self.site}/"
        for many in ([group.id for group in self.groups], [teacher.id for teacher in self.teachers]):
            for name in many:
                if not name.startswith(own) or name == own:
                    raise ValueError(f"the id {show(name)} is not one of site {self.site!r}")
            if len(set(many)) < max(1, len(many)):
                raise ValueError("ids of groups or teachers stand twice, or there are none")
        declared = {group.id: group.teachers for group in self.groups}
        if declared != Counter(teacher.group for teacher in self.teachers):
            raise ValueError("the teachers' groups are not those that are declared")
        return self


def check_site(name: str) -> str:
    """Return a site's name if it is short, and of letters, digits, dots, dashes and underscores."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise InputError(f"site is {show(name)}: it must be letters, digits, '.', '-' or '_', 64 of them at most")
    return name


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteVotes:
    """A vote file that was read and found whole."""

    path: Path
    manifest: Manifest
    fingerprint: str
    votes: NDArray[np.integer[Any]]


def read_site_votes(path: Path) -> SiteVotes:
    """Read a vote file; one that was altered, is not whole or has an unknown format is refused by name."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; `ipate party vote` makes a vote file")
    arrays = _members(path)
    stated = arrays["manifest"].tobytes()
    try:
        values = json.loads(stated)
    except (ValueError, RecursionError):  # brackets in brackets without end
        raise InputError(f"{path}: its manifest is no JSON, so the file was altered; {_ANEW}") from None
    found = values.get("format") if isinstance(values, dict) else None
    if found != FORMAT:
        raise InputError(
            f"{path}: its format is {show(found)}, and this ipate reads {FORMAT!r}; let all sites and the aggregator "
            "use the same version of ipate"
        )
    if arrays["sha256"].tobytes() != bytes.fromhex(sha256(stated)):
        raise InputError(f"{path}: its manifest is not the one that was hashed, so the file was altered; {_ANEW}")
    try:
        manifest = Manifest.model_validate_json(stated)
    except (ValidationError, InputError) as error:
        raise InputError(f"{path}: its manifest cannot be used ({_first(error)}); {_ANEW}") from None
    votes = arrays["votes"]
    _check_votes(path, votes, manifest)
    return SiteVotes(path=path, manifest=manifest, fingerprint=sha256(stated), votes=votes)


def _members(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(archive.namelist())
            packed = any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist())
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError) as error:  # RuntimeError: unknown zip versions
        raise InputError(f"{path}: is no readable vote file ({error}); {_ANEW}") from None
    if names != [f"{name}.npy" for name in _MEMBERS]:
        raise InputError(f"{path}: holds {show(names)}: a site's vote file holds {', '.join(_MEMBERS)}; {_ANEW}")
    if packed:  # ipate packs nothing: what unpacks to more than the file holds could fill the memory
        raise InputError(f"{path}: is compressed, which a site's vote file never is; {_ANEW}")
    try:
        arrays = read_npz(path, _MEMBERS)
    except InputError as error:
        raise InputError(f"{error}; {_ANEW}") from None
    for name in ("manifest", "sha256"):
        if arrays[name].dtype != np.uint8 or arrays[name].ndim != 1:
            raise InputError(f"{path}: {name!r} is not made of bytes, so the file was altered; {_ANEW}")
    return arrays


def _check_votes(path: Path, votes: NDArray[Any], manifest: Manifest) -> None:
    shape = (len(manifest.teachers), manifest.n_queries)
    dtype = vote_dtype(len(manifest.encoding.classes))
    if votes.shape != shape or votes.dtype != dtype or array_sha256(votes) != manifest.votes:
        raise InputError(f"{path}: its votes are not those of its manifest, so the file was altered; {_ANEW}")
    n_classes = len(manifest.encoding.classes)
    for row in votes:
        if int(row.max(initial=0)) >= n_classes:
            raise InputError(f"{path}: votes hold the class {int(row.max())}: there are {n_classes}; {_ANEW}")


def _first(error: Exception) -> str:
    """The first problem of a manifest in words."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}"
