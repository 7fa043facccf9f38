"""One site: its own people, budgets and teachers, all in its own folder; only votes ever leave it."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._version import __version__
from ipate.allocation.allocation import Allocation, class_warning
from ipate.errors import InputError, show
from ipate.files import FileLock, write_text
from ipate.parties.archive import Encoding, canonical, new_npz, require_new, sha256
from ipate.parties.manifest import FORMAT, DeclaredGroup, DeclaredTeacher, Manifest, check_site
from ipate.parties.queries import Asked, Queries, allocate_people, read_rows
from ipate.parties.teachers import check_private, fit_teachers, hear_teachers
from ipate.teachers.engines import Engine
from ipate.teachers.ensemble import fingerprint
from ipate.votes.store import vote_dtype

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_SITE = "ipate site 1"
_NOTE = """What lies here is private: who taught which teacher, and the teachers. It never leaves this site; what leaves
it are the vote files of `ipate party vote`. The teachers are pickled: load them from nowhere but here.
"""


@contextmanager
def _quiet(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show no bar."""
    del title, total
    yield lambda done: None


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """A site that is fitted: its name, its encoding, its allocation and the hashes of its teachers."""

    folder: Path
    name: str
    fit: str
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
        check_private(private)
        try:
            values = json.loads(stated.read_text(encoding="utf-8"))
            if values["format"] != _SITE:
                raise InputError(f"{stated}: its format is {show(values['format'])}, not {_SITE!r}; fit the site again")
            encoding = Encoding.model_validate(values["encoding"])
            allocation = Allocation.load(private / "allocation.npz")
            name, fit, hashes = check_site(values["name"]), str(values["fit"]), tuple(values["teachers"])
        except (ValueError, KeyError, TypeError, OSError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{stated}: not readable ({show(str(error))}); fit the site again") from None
        if len(hashes) != allocation.n_teachers:
            raise InputError(f"{stated}: names {len(hashes)} of {allocation.n_teachers} teachers; fit the site again")
        return cls(folder=path, name=name, fit=fit, encoding=encoding, allocation=allocation, hashes=hashes)

    @property
    def groups(self) -> tuple[DeclaredGroup, ...]:
        """What the site declares: groups under its own name, in order of their ids."""
        declared = (
            DeclaredGroup(
                id=self._own(g.id), epsilon=g.epsilon, delta=g.delta, teachers=self.allocation.layout.teachers[g.id]
            )
            for g in self.allocation.groups
        )
        return tuple(sorted(declared, key=lambda group: group.id))

    def _own(self, name: str) -> str:
        """Put a name under the site's: what two sites call 'high' are two groups."""
        return f"{self.name}/{name}"

    def vote(
        self, queries: Queries, out: Path, *, again: bool = False, n_jobs: int | None = None, bar: Bar = _quiet
    ) -> tuple[Manifest, str]:
        """Let all teachers vote and write the vote file; returns its manifest and its fingerprint.

        Every labelling spends the people's budgets anew, so a site that has voted on other queries before is refused
        unless `again` says that its budgets were meant for each of them. What is given is noted before it is.
        """
        require_new(out)
        Engine(n_jobs=n_jobs)
        with self._held():
            self._check(queries, again)
            return self._write(queries, out, n_jobs, bar)

    def _held(self) -> FileLock:
        """Let one process vote at a time: two could each believe that the other queries were never asked."""
        refusal = InputError(f"{self.folder}: another process votes here; wait for it to end")
        return FileLock(self.folder / "private" / ".lock", refusal=refusal)

    def _write(self, queries: Queries, out: Path, n_jobs: int | None, bar: Bar) -> tuple[Manifest, str]:
        teachers = tuple(
            DeclaredTeacher(id=self._own(str(number)), group=self._own(group))
            for number, group in enumerate(self.allocation.teacher_groups or ())
        )
        shape = (len(teachers), len(queries))
        with new_npz(out) as archive, bar("teachers heard", len(teachers)) as progress:
            votes = archive.stream(
                "votes",
                dtype=vote_dtype(len(self.encoding.classes)),
                shape=shape,
                blocks=self._heard(queries, n_jobs, progress),
            )
            manifest = Manifest(
                format=FORMAT, ipate=__version__, site=self.name, fit=self.fit, variant=self.allocation.variant,
                queries=queries.sha256, votes=votes, n_queries=len(queries), encoding=self.encoding,
                groups=self.groups, teachers=teachers,
            )  # fmt: skip
            stated = canonical(manifest.model_dump(mode="json"))
            archive.add("manifest", np.frombuffer(stated, dtype=np.uint8))
            archive.add("sha256", np.frombuffer(bytes.fromhex(sha256(stated)), dtype=np.uint8))
            self._note(queries)
        return manifest, sha256(stated)

    def _heard(self, queries: Queries, n_jobs: int | None, progress: Callable[[int], None]) -> Iterator[NDArray[Any]]:
        X = self.encoding.transform(queries.X)
        folder = self.folder / "private" / "teachers"
        rows = hear_teachers(folder, self.hashes, X, n_classes=len(self.encoding.classes), n_jobs=n_jobs)
        for done, row in enumerate(rows, start=1):
            yield row
            progress(done)

    def _check(self, queries: Queries, again: bool) -> None:
        differs = queries.encoding.differences(self.encoding)
        if differs:
            raise InputError(
                f"the queries are encoded otherwise than {self.folder}: {differs}; use the queries file that the site "
                "was fitted with, or fit it again"
            )
        others = [given for given in self._given() if given != queries.sha256]
        if others and not again:
            raise InputError(
                f"{self.folder}: has voted on other queries before ({others[0][:16]}…), and every labelling spends "
                "people's budgets anew; ask all points in one queries file, or say --again if budgets hold for each"
            )

    @property
    def _record(self) -> Path:
        return self.folder / "private" / "given.json"

    def _given(self) -> list[str]:
        """The hashes of the queries that the site has voted on; what cannot be read is refused, not forgotten."""
        if not self._record.is_file():
            return []
        try:
            return [str(given) for given in json.loads(self._record.read_text())]
        except ValueError:
            raise InputError(
                f"{self._record}: not readable, so nobody knows what this site has voted on; put it back from a copy"
            ) from None

    def _note(self, queries: Queries) -> None:
        write_text(self._record, json.dumps(sorted({*self._given(), queries.sha256}), indent=2) + "\n")


def fit_site(
    data: Path,
    out: Path,
    *,
    name: str,
    encoding: Encoding,
    asked: Asked,
    estimator: Any,
    n_jobs: int | None = None,
    bar: Bar = _quiet,
) -> Site:
    """Allocate a site's people to teachers, train them and keep both in its private folder.

    A folder in which fitting was interrupted is continued, if data and settings are the same.
    """
    check_site(name)
    Engine(n_jobs=n_jobs)
    private, stated = out / "private", out / "private" / "site.json"
    if stated.exists():
        raise InputError(f"{out}: already holds a fitted site; name another folder, or remove this one")
    rows = read_rows(data, encoding, asked)
    X = encoding.transform(rows.X)
    allocation = allocate_people(rows, asked, data)
    class_warning(allocation, rows.y)
    dealt = [allocation.rows_of_teacher(teacher) for teacher in range(allocation.n_teachers)]
    budgets = [asdict(group) for group in allocation.groups]
    mark = fingerprint(X, rows.y, *dealt, estimator, asked.seed, name, budgets, allocation.teacher_groups)
    _begin(out, private, mark)
    allocation.save(private / "allocation.npz")
    with bar("teachers trained", len(dealt)) as progress:
        hashes = fit_teachers(
            estimator, X, rows.y, rows=dealt, folder=private / "teachers", seed=asked.seed, n_jobs=n_jobs,
            progress=progress,
        )  # fmt: skip
    facts = {
        "format": _SITE,
        "ipate": __version__,
        "name": name,
        "fit": secrets.token_hex(16),
        "encoding": encoding.model_dump(mode="json"),
        "teachers": hashes,
    }
    write_text(stated, json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return Site.open(out)


def _begin(out: Path, private: Path, mark: str) -> None:
    """Make the folder, or find the one in which the same fitting was interrupted."""
    started = private / "fitting"
    if started.is_file() and started.read_text().strip() != mark:
        raise InputError(f"{out}: another fitting was begun here, with other data or settings; name another folder")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; a site is kept in a folder, so name another place")
    if not started.is_file() and any((private / "teachers").glob("*")):
        raise InputError(f"{private / 'teachers'}: holds files that no fitting put there; name another folder")
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    (private / "teachers").mkdir(mode=0o700, exist_ok=True)
    write_text(private / "README", _NOTE)
    write_text(started, f"{mark}\n")
