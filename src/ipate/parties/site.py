"""One site: its own people, budgets and teachers, all in its own folder; only votes ever leave it."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate import __version__
from ipate.budgets import People, Policy
from ipate.data import Dataset, read_data
from ipate.errors import InputError
from ipate.npz import read_npz
from ipate.parties.archive import canonical, new_npz, require_new, sha256
from ipate.parties.encoding import Encoding
from ipate.parties.manifest import FORMAT, DeclaredGroup, DeclaredTeacher, Manifest, check_site
from ipate.parties.queries import Queries
from ipate.parties.teachers import check_private, fit_teachers, hear_teachers
from ipate.tables import show, write_text
from ipate.teachers.ensemble import fingerprint
from ipate.variants import Allocation, allocate, class_warning
from ipate.variants.rules import check_count, refuse_name

__all__ = ["Asked", "Site", "fit_site"]

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_SITE = "ipate site 1"
_NOTE = """What lies here is private: who taught which teacher, and the teachers. It never leaves this site; what leaves
it are the vote files of `ipate party vote`. The teachers are pickled: load them from nowhere but here.
"""
_REFUSED = {
    "upsampling": (
        "copies are whole numbers in the ratio of all people's budgets, and a site knows its own people only; and "
        "teachers that mix groups cannot be weighted by budgets when votes are merged; use weighting"
    ),
    "vanishing": (
        "who sits out depends on the budgets of all sites; fit with weighting, which trains the same teachers, and "
        "let the aggregator choose: ipate label --variant vanishing"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a site says about its data, its people's budgets and its teachers.

    Attributes
    ----------
    label, level, epsilon_column, person : str, optional
        The columns of the class, the consent level or the ε, and the person, as in `ipate.data.read_data`.
    policy : Policy, optional
        What levels mean.
    epsilon : float, optional
        One ε for everybody, where the data names none.
    delta : float, optional
        δ; the policy's unless given, else 1e-5. A δ made from the number of people would tell that number.
    merge_within : float, optional
        As in `People.from_budgets`.
    variant : {"weighting", "standard"}
    teachers, points : int
        How many teachers, or how many people each should have.
    seed : int
        The public split seed.
    """

    label: str | None = None
    level: str | None = None
    epsilon_column: str | None = None
    person: str | None = None
    policy: Policy | None = None
    epsilon: float | None = None
    delta: float | None = None
    merge_within: float | None = None
    variant: str = "weighting"
    teachers: int | None = None
    points: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variant in _REFUSED:
            raise InputError(f"variant is {self.variant!r}: {_REFUSED[self.variant]}")
        if self.variant not in ("weighting", "standard"):
            refuse_name("variant", self.variant, ("weighting", "standard"))


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
            DeclaredGroup(id=self._own(g.id), epsilon=g.epsilon, delta=g.delta, teachers=g.teachers)
            for g in self.allocation.groups
        )
        return tuple(sorted(declared, key=lambda group: group.id))

    def _own(self, name: str) -> str:
        """Put a name under the site's: what two sites call 'high' are two groups."""
        return f"{self.name}/{name}"

    def vote(
        self, queries: Queries, out: Path, *, again: bool = False, n_jobs: int | None = None, bar: Bar
    ) -> tuple[Manifest, str]:
        """Let all teachers vote and write the vote file; returns its manifest and its fingerprint.

        Every labelling spends the people's budgets anew, so a site that has voted on other queries before is refused
        unless `again` says that its budgets were meant for each of them. What is given is noted before it is.
        """
        self._check(queries, again)
        require_new(out)
        teachers = tuple(
            DeclaredTeacher(id=self._own(str(number)), group=self._own(group))
            for number, group in enumerate(self.allocation.teacher_groups or ())
        )
        shape = (len(teachers), len(queries))
        with new_npz(out) as archive, bar("teachers heard", len(teachers)) as progress:
            votes = archive.stream(
                "votes",
                dtype=np.dtype(np.uint8 if len(self.encoding.classes) <= 256 else np.uint16),
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
        return list(json.loads(self._record.read_text())) if self._record.is_file() else []

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
    bar: Bar,
) -> Site:
    """Allocate a site's people to teachers, train them and keep both in its private folder.

    A folder in which fitting was interrupted is continued, if data and settings are the same.
    """
    check_site(name)
    private, stated = out / "private", out / "private" / "site.json"
    if stated.exists():
        raise InputError(f"{out}: already holds a fitted site; name another folder, or remove this one")
    rows = _rows(data, encoding, asked)
    X = encoding.transform(rows.X)
    allocation = _allocate(rows, asked, data)
    class_warning(allocation, rows.y)
    dealt = [allocation.rows_of_teacher(teacher) for teacher in range(allocation.n_teachers)]
    budgets = [asdict(group) for group in allocation.groups]
    mark = fingerprint(
        X, rows.y, np.concatenate(dealt), estimator, asked.seed, name, budgets, allocation.teacher_groups
    )
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


def _rows(data: Path, encoding: Encoding, asked: Asked) -> Dataset:
    """Read a site's rows as the queries are encoded: the same features by name, the same classes in order."""
    if data.suffix.lower() == ".npz" and data.is_file():
        stated = tuple(str(name) for name in read_npz(data, ["classes"]).get("classes", np.array([])).ravel())
        if stated and stated != encoding.classes:
            raise InputError(
                f"{data}: its classes are {show(stated)}, and those of the queries {show(encoding.classes)}"
            )
    rows = read_data(
        data, label=asked.label, level=asked.level, epsilon=asked.epsilon_column, person=asked.person,
        features=encoding.features or None, classes=encoding.classes,
    )  # fmt: skip
    encoding.check_rows(rows.X, file=str(data))
    return rows


def _allocate(rows: Dataset, asked: Asked, data: Path) -> Allocation:
    people = _people(rows, asked, data)
    points = check_count("points", asked.points)
    wanted = max(len(people.groups), people.n_people // points) if asked.teachers is None else asked.teachers
    return allocate(asked.variant, people=people, n_teachers=wanted, seed=asked.seed)


def _people(rows: Dataset, asked: Asked, data: Path) -> People:
    """Whose rows these are and what they consent to: their own ε, their level under the policy, or one ε for all."""
    fallback = 1e-5 if asked.delta is None else asked.delta
    consent = rows.epsilon is not None or rows.levels is not None
    if consent and asked.epsilon is not None:
        raise InputError(f"epsilon is {asked.epsilon:g}: {data} says what its people consent to; leave it out")
    if rows.levels is None and asked.policy is not None:
        raise InputError(f"a policy is given, and {data} has no consent levels: name their column, or leave it out")
    if rows.levels is not None:
        if asked.policy is None:
            raise InputError(f"{data} has consent levels and no policy: say which ε each level means")
        if asked.merge_within is not None:
            raise InputError("merge_within is for budgets that are numbers: levels are few already")
        given = None if asked.delta is None and asked.policy.delta is not None else fallback
        return People.from_levels(rows.levels, policy=asked.policy, delta=given, person_id=rows.person_id)
    if rows.epsilon is None and asked.epsilon is None:
        raise InputError(f"{data} names no budgets: name its column of consent levels or of ε, or give one ε for all")
    epsilon = rows.epsilon if rows.epsilon is not None else np.full(rows.n_rows, asked.epsilon)
    return People.from_budgets(epsilon, delta=fallback, person_id=rows.person_id, merge_within=asked.merge_within)


def _begin(out: Path, private: Path, mark: str) -> None:
    """Make the folder, or find the one in which the same fitting was interrupted."""
    started = private / "fitting.json"
    if started.is_file() and json.loads(started.read_text()) != mark:
        raise InputError(f"{out}: another fitting was begun here, with other data or settings; name another folder")
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    (private / "teachers").mkdir(mode=0o700, exist_ok=True)
    write_text(private / "README", _NOTE)
    write_text(started, json.dumps(mark) + "\n")
