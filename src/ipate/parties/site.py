"""A fitted site: its people, budgets and teachers stay in its own folder, and only its votes leave it.

Teachers are stored by joblib, that is, pickled, and whoever can write such a file can run code here. So a teacher is
loaded only from its own site's private folder, only while nobody but the owner can write to that folder, and only if
its file has the hash that was recorded after training. Vote files hold no models and are read without pickle.
"""

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._version import __version__
from ipate.allocation.allocation import Allocation
from ipate.errors import InputError, TeacherError, show
from ipate.files import FileLock, write_text
from ipate.parties.exchange import (
    FORMAT,
    DeclaredGroup,
    DeclaredTeacher,
    Encoding,
    Manifest,
    canonical_json,
    check_site,
    new_npz,
    require_new,
    sha256,
)
from ipate.parties.queries import Queries
from ipate.teachers.engines import Engine, one_line
from ipate.teachers.ensemble import predict_votes
from ipate.votes.store import vote_dtype

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
SITE_FORMAT = "ipate site 1"


def no_bar(_title: str, _total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show no progress bar."""
    return nullcontext(lambda done: None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """A fitted site: its name, its encoding, its allocation and the hashes of its teachers' files."""

    folder: Path
    name: str
    fit: str  # a random id of the fitted teachers
    encoding: Encoding
    allocation: Allocation
    hashes: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> "Site":
        """Open a fitted site's folder."""
        private = path / "private"
        stated = private / "site.json"
        if not stated.is_file():
            raise InputError(f"{path}: holds no fitted site; `ipate party fit DATA --out {path} …` makes one")
        _check_private(private)
        try:
            values = json.loads(stated.read_text(encoding="utf-8"))
            if values["format"] != SITE_FORMAT:
                found = show(values["format"])
                raise InputError(f"{stated}: its format is {found}, not {SITE_FORMAT!r}; fit the site again")
            encoding = Encoding.model_validate(values["encoding"])
            allocation = Allocation.load(private / "allocation.npz")
            name, fit, hashes = check_site(values["name"]), str(values["fit"]), tuple(values["teachers"])
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InputError(f"{stated}: not readable ({show(str(error))}); fit the site again") from None
        if len(hashes) != allocation.n_teachers:
            raise InputError(f"{stated}: names {len(hashes)} of {allocation.n_teachers} teachers; fit the site again")
        return cls(folder=path, name=name, fit=fit, encoding=encoding, allocation=allocation, hashes=hashes)

    @property
    def groups(self) -> tuple[DeclaredGroup, ...]:
        """The groups that the site declares, with its name in their ids, in the order of the ids."""
        declared = (
            DeclaredGroup(
                id=self._own(g.id), epsilon=g.epsilon, delta=g.delta, teachers=self.allocation.layout.teachers[g.id]
            )
            for g in self.allocation.groups
        )
        return tuple(sorted(declared, key=lambda group: group.id))

    def _own(self, name: str) -> str:
        """Prefix an id with the site's name, because equal names at two sites are two groups."""
        return f"{self.name}/{name}"

    def vote(
        self, queries: Queries, out: Path, *, again: bool = False, n_jobs: int | None = None, bar: Bar = no_bar
    ) -> tuple[Manifest, str]:
        """Let all teachers vote and write the vote file; returns its manifest and its fingerprint.

        Every labelling spends the people's budgets again, so a site that has voted on other queries is refused unless
        `again` says that its budgets hold for each labelling. The queries are recorded before the file is released.
        """
        require_new(out)
        Engine(n_jobs=n_jobs)
        with self._locked():
            self._check(queries, again)
            return self._write(queries, out, n_jobs, bar)

    def _locked(self) -> FileLock:
        """Let one process vote at a time, so that no two vote on different queries without knowing of each other."""
        refusal = InputError(f"{self.folder}: another process is voting here; wait for it to end")
        return FileLock(self.folder / "private" / ".lock", refusal=refusal)

    def _check(self, queries: Queries, again: bool) -> None:
        difference = queries.encoding.difference(self.encoding)
        if difference:
            raise InputError(
                f"the encoding of the queries differs from that of {self.folder}: {difference}; use the queries file "
                "that the site was fitted with, or fit it again"
            )
        others = [asked for asked in self._voted_on() if asked != queries.sha256]
        if others and not again:
            raise InputError(
                f"{self.folder}: has already voted on other queries ({others[0][:16]}…), and every labelling spends "
                "people's budgets again; put all points into one queries file, or use --again if budgets hold for each"
            )

    def _write(self, queries: Queries, out: Path, n_jobs: int | None, bar: Bar) -> tuple[Manifest, str]:
        teachers = tuple(
            DeclaredTeacher(id=self._own(str(number)), group=self._own(group))
            for number, group in enumerate(self.allocation.teacher_groups or ())
        )
        with new_npz(out) as archive, bar("teachers voted", len(teachers)) as progress:
            votes = archive.stream(
                "votes",
                dtype=vote_dtype(len(self.encoding.classes)),
                shape=(len(teachers), len(queries)),
                blocks=self._votes(queries, n_jobs, progress),
            )
            manifest = Manifest(
                format=FORMAT, ipate=__version__, site=self.name, fit=self.fit, variant=self.allocation.variant,
                queries=queries.sha256, votes=votes, n_queries=len(queries), encoding=self.encoding,
                groups=self.groups, teachers=teachers,
            )  # fmt: skip
            stated = canonical_json(manifest.model_dump(mode="json"))
            archive.add("manifest", np.frombuffer(stated, dtype=np.uint8))
            archive.add("sha256", np.frombuffer(bytes.fromhex(sha256(stated)), dtype=np.uint8))
            voted_on = sorted({*self._voted_on(), queries.sha256})
            write_text(self._record, json.dumps(voted_on, indent=2) + "\n")
        return manifest, sha256(stated)

    def _votes(self, queries: Queries, n_jobs: int | None, progress: Callable[[int], None]) -> Iterator[NDArray[Any]]:
        """Yield the votes of every teacher in turn, one row of class ids each."""
        from joblib import Parallel, delayed

        folder = self.folder / "private" / "teachers"
        _check_private(folder.parent)
        _check_private(folder)
        X, n_classes = self.encoding.transform(queries.X), len(self.encoding.classes)
        tasks = (
            delayed(_load_and_vote)(teacher_file(folder, teacher), known, X, n_classes)
            for teacher, known in enumerate(self.hashes)
        )
        rows = Parallel(n_jobs=n_jobs, return_as="generator", pre_dispatch="2*n_jobs")(tasks)
        for done, row in enumerate(rows, start=1):
            yield row
            progress(done)

    @property
    def _record(self) -> Path:
        return self.folder / "private" / "given.json"

    def _voted_on(self) -> list[str]:
        """Return the hashes of the queries that the site has voted on; an unreadable record is an error."""
        if not self._record.is_file():
            return []
        try:
            return [str(asked) for asked in json.loads(self._record.read_text())]
        except ValueError:
            raise InputError(
                f"{self._record}: not readable, so it is unknown what this site has voted on; restore it from a backup"
            ) from None


def teacher_file(folder: Path, teacher: int) -> Path:
    """Return the file of one teacher."""
    return folder / f"{teacher:05d}.joblib"


def _check_private(folder: Path) -> None:
    """Refuse to load models from a folder that is a link, or that somebody else owns or can write to."""
    if folder.is_symlink():
        raise InputError(f"{folder}: is a link; a site's private folder must lie in the site itself")
    found = folder.stat()
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise InputError(
            f"{folder}: others own it or can write to it, and whoever writes a model can run code here; if you trust "
            "its files, make it yours alone (chown, chmod 700)"
        )


def _load_and_vote(path: Path, known: str, X: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Load one teacher, if its file has the known hash, and return its votes."""
    import joblib

    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path}: the teacher is missing, or is a link; fit the site again")
    data = path.read_bytes()
    if sha256(data) != known:
        raise InputError(f"{path}: this is not the teacher that was trained, and it is not loaded; fit the site again")
    try:
        return predict_votes(joblib.load(io.BytesIO(data)), X, n_classes=n_classes)
    except Exception as error:  # a model may fail in any way
        raise TeacherError(f"{path}: the teacher cannot vote ({type(error).__name__}: {one_line(error)})") from None
