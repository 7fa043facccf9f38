"""Which ledger is charged: the one that knows these people, found again beside the data or the votes."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ipate.errors import InputError, IpateError, show
from ipate.ledger.chain import Acquaintance
from ipate.ledger.durable import DurableLedger, head_file
from ipate.ledger.sqlite import SqliteLedger
from ipate.people.ids import alike, alike_sentence, warn_alike

LEDGER: type[DurableLedger] = SqliteLedger
"""The backend that keeps ledgers; another one is a file of its own and this line."""
SUFFIX = LEDGER.storage.suffix


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The ledger that is charged, what it knows, and other ledgers of these people whose charges it does not count."""

    path: Path
    announcement: str  # one line
    replaces: str | None = None


def choose_ledger(
    named: Path | None,
    *,
    beside: Path | None,
    people: Collection[str] | None = None,
    pool: str | None = None,
    run: str | None = None,
    fresh: bool = False,
    further: Iterable[Path] = (),
) -> Choice:
    """Return the ledger to charge; refuse where that would give people a second budget unless `fresh` says so.

    Parameters
    ----------
    named : path, optional
        The ledger that the user names.
    beside : path, optional
        The data or votes file. The default ledger lies in its folder and has its name.
    people : collection of str, optional
        The ids of everybody in the data, by which their ledger is found under any name. None: there are no ids.
    pool : str, optional
        The fingerprint of a votes file, by which its ledger is found under any name.
    run : str, optional
        The name of a run that is charged where it was opened.
    fresh : bool
        Begin a new ledger although another one knows these people.
    further : iterable of path
        Other folders to search.
    """
    folders = [*(path.absolute().parent for path in (beside, named) if path is not None), *further]
    target = None if named is None else named.absolute()
    usual = None if beside is None else beside.absolute().with_name(f"{beside.stem}{SUFFIX}")
    found = {item.path: item for item in _search(folders, (target, usual), pool=pool, run=run)}
    own = frozenset(people or ())
    if people is not None:
        knowing = {path: item for path, item in found.items() if item.people & own and not item.seeded}
    else:
        here = (path for path, item in found.items() if item.knows_pool or path == usual)
        knowing = {path: found[path] for path in here if found[path].runs and not found[path].seeded}
    path = next((path for path, item in found.items() if item.knows_run), None)
    if path is None:
        path = _pick(target, usual, found, knowing, own, fresh=fresh)
    _check_folder(path, chosen=named is None)
    others = {other.name: item for other, item in knowing.items() if other != path} if fresh else {}
    known = found.get(path, Acquaintance(path=path))
    for item in found.values() if people is not None else ():
        if item.path != path and not (item.seeded or fresh or path in knowing or known.knows_run):
            _refuse_alike(own, item)
    if people is not None and known.people - own:
        warn_alike(sorted(own - known.people), sorted(known.people), where=path.name)
    replaces = ", ".join(sorted(others)) or None
    return Choice(path=path, announcement=_announce(known, people, replaces), replaces=replaces)


def _pick(
    target: Path | None,
    usual: Path | None,
    found: Mapping[Path, Acquaintance],
    knowing: Mapping[Path, Acquaintance],
    own: frozenset[str],
    *,
    fresh: bool,
) -> Path:
    """Return the named ledger, a new one, or the one that knows these people."""
    if target is None and usual is None:
        raise InputError("no ledger is named, and there is no file beside which it could be kept: name one")
    if fresh:
        if target is not None and target in found and found[target].runs:
            raise InputError(f"fresh_ledger: {target} holds runs already; name a file that does not exist yet")
        return target if target is not None else _free(usual)  # type: ignore[arg-type]
    if target is not None:
        mine = found.get(target, Acquaintance(path=target))
        for other in knowing.values():
            lost = (other.people & own) - mine.people
            if other.path != target and (lost or (not own and target not in knowing)):
                who = f"{len(lost):,} of these people, such as {show(min(lost))}" if lost else "these votes"
                raise InputError(
                    f"{target} does not know {who}, and {other.path} does: leave --ledger out to charge that one; "
                    "--fresh-ledger gives these people a second budget, and the report says so"
                )
        return target
    if len(knowing) > 1:
        listed = ", ".join(sorted(path.name for path in knowing))
        raise InputError(f"several ledgers know these people ({listed}): name the one to charge with --ledger")
    return next(iter(knowing), usual)  # type: ignore[return-value]


def _refuse_alike(own: frozenset[str], other: Acquaintance) -> None:
    """Refuse to begin a ledger for people most of whom another one seems to know under ids written in another way."""
    pairs = alike(sorted(own - other.people), sorted(other.people))
    if 2 * len(pairs) > len(own):
        raise InputError(
            f"{other.path}: {alike_sentence(pairs)}; no other ledger knows these people, so write ids as in earlier "
            "runs, or begin a new ledger for other people with --fresh-ledger"
        )


def _announce(known: Acquaintance, people: Collection[str] | None, replaces: str | None) -> str:
    runs = f"{known.runs:,} earlier {'run' if known.runs == 1 else 'runs'}" if known.runs else "new"
    if people is not None:
        own = frozenset(people)
        runs += (
            f", {len(own & known.people):,} of {len(own):,} people known" if known.runs else f", {len(own):,} people"
        )
    return f"charging {known.path.name}: {runs}" + (f"; charges of {replaces} are not counted" if replaces else "")


def _free(usual: Path) -> Path:
    """Return the usual path, or a numbered one if there is or was a ledger."""
    stem = usual.name.removesuffix(SUFFIX)
    path, number = usual, 1
    while path.exists() or head_file(path).exists():
        number += 1
        path = usual.with_name(f"{stem}-{number}{SUFFIX}")
    return path


def _check_folder(path: Path, *, chosen: bool) -> None:
    """Refuse a ledger in a folder that does not exist or cannot be written, before anything is computed."""
    if path.is_dir():
        raise InputError(f"ledger is {str(path)!r}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"ledger is {str(path)!r}: the folder {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        way_out = "name another place with --ledger" if chosen else "name a file in another folder"
        raise InputError(f"{path}: its folder cannot be written, and the ledger must be kept: {way_out}")


def _search(
    folders: Iterable[Path], expected: Collection[Path | None], *, pool: str | None, run: str | None
) -> Iterator[Acquaintance]:
    """Yield what each ledger in these folders knows; other files are left out."""
    ending = Path(SUFFIX).suffix
    files = {file for folder in folders if folder.is_dir() for file in folder.glob(f"*{ending}") if file.is_file()}
    for file in sorted(files):
        try:
            yield LEDGER.look(file, pool=pool, run=run)
        except IpateError:
            if file.name.endswith(SUFFIX) or file in expected:  # it may be the ledger of these people
                raise
