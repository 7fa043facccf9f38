"""The record of what a site has sent: every labelling of its votes or ballots spends its people's budgets again.

What sites and aggregator exchange: npz files that are hashed by content, the encoding of rows, and vote files.

A *sealed* file is an npz with arrays, `manifest` (JSON, as bytes) and `sha256` (the hash of those bytes). The manifest
holds the hashes of the arrays, so its own hash, the *fingerprint*, identifies the whole file. A site's vote file is one
with the array `votes` (teachers × queries, class ids). There is no signature: the hashes detect accidental changes, and
anyone who can write the file can also write new hashes. Only a fingerprint received through a separate channel detects
that.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ipate.data.dataset import images_to_float, make_scaler
from ipate.errors import InputError, check_id, check_number, show
from ipate.files import FileLock, read_npz, replacing, write_text
from ipate.models.training import vote_dtype
from ipate.people.budgets import Budget, Group


class Record:
    """The hashes of the queries and cells for which a site has sent votes or ballots, in its private folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._file = folder, folder / "private" / "given.json"

    def locked(self) -> FileLock:
        """Let one process send at a time, so that no two send different things without knowing of each other."""
        refusal = InputError(f"{self.folder}: another process is voting here; wait for it to end")
        return FileLock(self.folder / "private" / ".lock", refusal=refusal)

    def check(self, asked: str, *, again: bool) -> None:
        """Refuse to send for other queries, cells or rows than before, unless budgets hold for each labelling."""
        others = [sent for sent in self._sent() if sent != asked]
        if others and not again:
            raise InputError(
                f"{self.folder}: has already sent votes or ballots for other queries, cells or rows "
                f"({others[0][:16]}…), and every labelling spends people's budgets again; let there be one labelling "
                "of all points, or use --again if budgets hold for each"
            )

    def add(self, asked: str) -> None:
        """Record queries or cells, before the file that answers them is released."""
        write_text(self._file, json.dumps(sorted({*self._sent(), asked}), indent=2) + "\n")

    def _sent(self) -> list[str]:
        """Return the recorded hashes; an unreadable record is an error."""
        if not self._file.is_file():
            return []
        try:
            return [str(asked) for asked in json.loads(self._file.read_text())]
        except ValueError:
            raise InputError(
                f"{self._file}: not readable, so it is unknown what this site has voted on; restore it from a backup"
            ) from None


M = TypeVar("M", bound=BaseModel)
FORMAT = "ipate site votes 1"
RESEND = "ask the sender to send the file again"
_BLOCK = 1 << 24  # bytes of an array that are hashed at a time
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal contents give equal files
_OUTSIDE = 0.5  # above this share of rows outside its bounds, a feature is taken to have another unit


def canonical_json(payload: Any) -> bytes:
    """Return JSON with one spelling per content: sorted keys, no spaces, UTF-8, no NaN or infinity."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def array_sha256(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's type, shape and elements, block by block so that a mapped file stays on disk."""
    digest = _new_hash(array.dtype, array.shape)
    rows = max(1, _BLOCK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        digest.update(_bytes(array[start : start + rows], array.dtype))
    return str(digest.hexdigest())


def _new_hash(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    return hashlib.sha256(f"{dtype.newbyteorder('<').str} {list(shape)}\n".encode())


def _bytes(block: NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    return np.ascontiguousarray(block, dtype=dtype.newbyteorder("<")).tobytes()


class NpzWriter(zipfile.ZipFile):
    """An npz file to which arrays are added; `new_npz` creates it."""

    def add(self, name: str, array: NDArray[Any]) -> str:
        """Add an array and return its `array_sha256`."""
        return self.stream(name, dtype=array.dtype, shape=array.shape, blocks=[array])

    def stream(self, name: str, *, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]) -> str:
        """Add an array block by block, so that it is never in memory as a whole, and return its `array_sha256`."""
        digest = _new_hash(dtype, shape)
        info = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
        with self.open(info, "w", force_zip64=True) as stream:
            header = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            for block in blocks:
                data = _bytes(block, dtype)
                digest.update(data)
                stream.write(data)
        return str(digest.hexdigest())


@contextmanager
def new_npz(path: Path) -> Iterator[NpzWriter]:
    """Write an uncompressed npz file atomically, readable by its owner only; equal contents give equal bytes."""
    with replacing(path, private=True) as file, NpzWriter(file, "w", zipfile.ZIP_STORED) as archive:
        yield archive


def seal(archive: NpzWriter, manifest: BaseModel) -> str:
    """Add a manifest and its hash to a file that holds the arrays, and return the fingerprint."""
    stated = canonical_json(manifest.model_dump(mode="json"))
    archive.add("manifest", np.frombuffer(stated, dtype=np.uint8))
    archive.add("sha256", np.frombuffer(bytes.fromhex(sha256(stated)), dtype=np.uint8))
    return sha256(stated)


def require_new(path: Path) -> None:
    """Raise an error, before any work is done, if a path exists or its folder does not."""
    if path.exists():
        raise InputError(f"{path}: already exists and is not overwritten; name another path, or remove it")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; create it first")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Write a new folder atomically, readable by its owner only."""
    require_new(out)
    aside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    aside.mkdir(mode=0o700)
    try:
        yield aside
        os.rename(aside, out)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


class Encoding(BaseModel):
    """How a row is encoded, identical for all sites and for the queries; all of it is public."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    classes: tuple[str, ...]  # in the order of the class ids
    features: tuple[str, ...] = ()  # in the order of the columns; empty for images
    bounds: tuple[tuple[float, float], ...] | None = None  # (low, high) per feature, mapped to [0, 1] and clipped
    shape: tuple[int, ...]  # of one row: (features,), or an image's height, width and channels

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.classes)) < max(2, len(self.classes)):
            raise ValueError(f"classes are {show(self.classes)}: there must be at least two, all different")
        if not all(name.strip() for name in self.classes):
            raise ValueError(f"classes are {show(self.classes)}: one has no name")
        if len(self.shape) == 1 and (len(set(self.features)) != self.shape[0] or len(self.features) != self.shape[0]):
            raise ValueError(f"there are {len(set(self.features))} feature names for {self.shape[0]} features")
        if len(self.shape) > 1 and (self.features or self.bounds is not None):
            raise ValueError("images have neither feature names nor bounds: pixels are 8-bit, or lie in [0, 1]")
        if self.bounds is not None and len(self.bounds) != len(self.features):
            raise ValueError(f"there are bounds for {len(self.bounds)} of {len(self.features)} features")
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows as the teachers' input: scaled by the bounds, images flattened with pixels in [0, 1]."""
        if len(self.shape) > 1:
            return images_to_float(X).reshape(len(X), -1)
        return X if self.bounds is None else make_scaler(bounds=self.bounds).transform(X)

    def check_rows(self, X: NDArray[Any], *, file: str) -> None:
        """Refuse rows of another shape; nothing that the cells of private rows hold is refused."""
        if X.shape[1:] != self.shape:
            raise InputError(f"{file}: rows have the shape {X.shape[1:]}, and those of the queries {self.shape}")

    def other_unit(self, X: NDArray[Any]) -> str:
        """Describe a feature that lies mostly outside its bounds and so has another unit; empty if there is none."""
        if self.bounds is None:
            return ""
        low, high = np.array(self.bounds).T
        outside = np.mean(np.less(X, low) | np.greater(X, high), axis=0)
        worst = int(np.argmax(outside))
        if outside[worst] <= _OUTSIDE:
            return ""
        return (
            f"feature {show(self.features[worst])} lies outside the bounds {self.bounds[worst]} in most rows: convert "
            "it to the unit of the bounds"
        )

    def difference(self, other: "Encoding") -> str:
        """Describe the first difference from another encoding; empty if there is none."""
        if self.classes != other.classes:
            return f"its classes are {show(self.classes)}, not {show(other.classes)}"
        if self.features != other.features:
            return f"its features are {show(self.features)}, not {show(other.features)}"
        if self.shape != other.shape:
            return f"its rows have the shape {self.shape}, not {other.shape}"
        if self.bounds is None or other.bounds is None:
            return "" if self.bounds == other.bounds else "one has bounds and the other has none"
        for name, mine, theirs in zip(self.features, self.bounds, other.bounds, strict=True):
            if mine != theirs:
                return f"its bounds of feature {show(name)} are {mine}, not {theirs}"
        return ""


class Part(BaseModel):
    """A part of what is exchanged: nothing unknown in it, nothing converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Declared(Part):
    """A group that a site declares: its id (SITE/GROUP) and its budget."""

    id: str
    epsilon: float
    delta: float

    @model_validator(mode="after")
    def _usable(self) -> Self:
        check_id(self.id)
        check_number("epsilon", self.epsilon, of=self.id)
        check_number("delta", self.delta, of=self.id)
        return self

    @property
    def group(self) -> Group:
        """The group with its budget."""
        return Group(id=self.id, budget=Budget(self.epsilon, self.delta))


class DeclaredGroup(Declared):
    """A declared group and its number of teachers."""

    teachers: int


class DeclaredTeacher(Part):
    """The teacher of one row of the votes: its id (SITE/NUMBER) and the group whose people it learnt from."""

    id: str
    group: str


class Stated(Part):
    """What a site states of itself: its name, and groups whose ids begin with it."""

    format: str
    ipate: str  # the version that wrote the file
    site: str
    groups: tuple[Declared, ...]  # in the order of their ids

    @model_validator(mode="after")
    def _owned(self) -> Self:
        check_owned(self.site, [group.id for group in self.groups])
        return self


class Manifest(Stated):
    """The description in a vote file; it holds nothing about people but groups, budgets and numbers of teachers."""

    groups: tuple[DeclaredGroup, ...]
    fit: str  # a random id of the fitted teachers, by which they are recognised under another site name
    variant: str
    queries: str  # the hash of the queries
    votes: str  # the hash of the votes
    n_queries: int
    encoding: Encoding
    teachers: tuple[DeclaredTeacher, ...]  # in the order of the rows of the votes

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_owned(self.site, [teacher.id for teacher in self.teachers])
        declared = {group.id: group.teachers for group in self.groups}
        if declared != Counter(teacher.group for teacher in self.teachers):
            raise ValueError("the teachers' groups do not match the declared groups")
        return self


def check_owned(site: str, ids: Sequence[str]) -> None:
    """Refuse ids of groups or teachers that do not belong to a site, are duplicate or missing."""
    own = f"{check_site(site)}/"
    for name in ids:
        if not name.startswith(own) or name == own:
            raise ValueError(f"the id {show(name)} does not belong to site {site!r}")
    if len(set(ids)) < max(1, len(ids)):
        raise ValueError("ids of groups or teachers are duplicate or missing")


def check_site(name: str) -> str:
    """Return a site's name if it is valid: at most 64 letters, digits, dots, dashes and underscores."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise InputError(f"site is {show(name)}: it must be letters, digits, '.', '-' or '_', 64 of them at most")
    return name


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteFile:
    """A sealed file of a site."""

    path: Path
    site: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteVotes(SiteFile):
    """A vote file that was read and passed all checks."""

    manifest: Manifest
    votes: NDArray[np.integer[Any]]


def read_site_votes(path: Path) -> SiteVotes:
    """Read a vote file; one that was altered, is incomplete or has an unknown format is refused by name."""
    manifest, fingerprint, arrays = read_sealed(
        path, Manifest, names=("votes",), kind=FORMAT, what="a site's vote file", by="ipate party vote"
    )
    votes, n_classes = arrays["votes"], len(manifest.encoding.classes)
    shape, dtype = (len(manifest.teachers), manifest.n_queries), vote_dtype(n_classes)
    if votes.shape != shape or votes.dtype != dtype or array_sha256(votes) != manifest.votes:
        raise InputError(f"{path}: its votes do not match its manifest, so the file was altered; {RESEND}")
    for row in votes:
        if int(row.max(initial=0)) >= n_classes:
            raise InputError(f"{path}: votes hold the class {int(row.max())}: there are {n_classes}; {RESEND}")
    return SiteVotes(path=path, site=manifest.site, manifest=manifest, fingerprint=fingerprint, votes=votes)


def read_sealed(
    path: Path, model: type[M], *, names: Collection[str], kind: str, what: str, by: str
) -> tuple[M, str, dict[str, NDArray[Any]]]:
    """Read a sealed file: its manifest, its fingerprint and its arrays, whose hashes are still to be compared."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; `{by}` writes {what}")
    arrays = _read_members(path, sorted(["manifest", "sha256", *names]), what)
    stated = arrays["manifest"].tobytes()
    _check_format(path, stated, kind)
    if arrays["sha256"].tobytes() != bytes.fromhex(sha256(stated)):
        raise InputError(f"{path}: its manifest does not match its hash, so the file was altered; {RESEND}")
    return _validated(path, model, stated), sha256(stated), arrays


def read_stated(path: Path, model: type[M], *, kind: str, what: str, by: str) -> M:
    """Read a JSON file of a site, such as its declaration."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; `{by}` writes {what}")
    stated = path.read_bytes()
    _check_format(path, stated, kind)
    return _validated(path, model, stated)


def _check_format(path: Path, stated: bytes, kind: str) -> None:
    """Refuse a manifest of another format than this version reads."""
    try:
        values = json.loads(stated)
    except (ValueError, RecursionError):  # RecursionError: brackets nested too deeply
        raise InputError(f"{path}: its manifest is not JSON, so the file was altered; {RESEND}") from None
    found = values.get("format") if isinstance(values, dict) else None
    if found != kind:
        raise InputError(
            f"{path}: its format is {show(found)}, and this ipate reads {kind!r}; use the same version of ipate at "
            "all sites and at the aggregator"
        )


def _validated(path: Path, model: type[M], stated: bytes) -> M:
    try:
        return model.model_validate_json(stated)
    except (ValidationError, InputError) as error:
        raise InputError(f"{path}: its manifest cannot be used ({first_problem(error)}); {RESEND}") from None


def members(path: Path, what: str = "an npz file") -> tuple[list[str], bool]:
    """Return the names of a file's arrays, and whether any of them is compressed."""
    try:
        with zipfile.ZipFile(path) as archive:
            compressed = any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist())
            return sorted(name.removesuffix(".npy") for name in archive.namelist()), compressed
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError) as error:  # RuntimeError: unknown zip versions
        raise InputError(f"{path}: is not readable as {what} ({error}); {RESEND}") from None


def _read_members(path: Path, wanted: Sequence[str], what: str) -> dict[str, NDArray[Any]]:
    names, compressed = members(path, what)
    if names != list(wanted):
        raise InputError(f"{path}: holds {show(names)}: {what} holds {', '.join(wanted)}; {RESEND}")
    if compressed:  # decompression could fill the memory of whoever merges
        raise InputError(f"{path}: is compressed, which {what} never is; {RESEND}")
    try:
        arrays = read_npz(path, wanted)
    except InputError as error:
        raise InputError(f"{error}; {RESEND}") from None
    for name in ("manifest", "sha256"):
        if arrays[name].dtype != np.uint8 or arrays[name].ndim != 1:
            raise InputError(f"{path}: {name!r} is not an array of bytes, so the file was altered; {RESEND}")
    return arrays


def first_problem(error: Exception) -> str:
    """Return the first problem of a failed validation as one phrase."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}"
