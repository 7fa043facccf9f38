"""The ledger of a run, with rollback detection, and the record of what it charged and released."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.allocation.allocation import Allocation
from ipate.config import RunConfig
from ipate.engines.ballots.design import make_design
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import BudgetExceededError, InputError
from ipate.files import write_csv, write_npz
from ipate.ledger.admission import Roster
from ipate.ledger.base import Ledger
from ipate.ledger.finding import Choice, choose_ledger
from ipate.ledger.records import PRIVATE_COSTS, Head, PolicyTerms, RunRow
from ipate.ledger.sqlite import SqliteLedger, opening_accounts, runs_on
from ipate.people.budgets import shown_counts
from ipate.planning.settings import Settings
from ipate.planning.standing import private_history
from ipate.release.results import Labelling, Record, ballot_figures
from ipate.runs.asking import Asking, ask, plan_queries
from ipate.runs.fitting import charged_terms, run_labelling
from ipate.runs.folder import RunFolder, refuse_public
from ipate.runs.task import Task, embedding

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]  # a title and a total


def ledger_path(folder: RunFolder) -> Path:
    """Return the ledger that a run is charged to, from its record; before it is opened, the one that is named.

    The ledger of a file of people lies beside that file and is found by `choose`; a seeded run and a data set of this
    package have one of their own.
    """
    kept = folder.read(folder.private / "ledger.json")
    if kept is not None:
        return folder.path / str(kept["path"])  # a ledger of the run's own is found after the folder was moved
    path = folder.config.ledger
    if path is None:
        return folder.private / "ledger.sqlite"
    refuse_public(path, "a ledger is private and", near=folder.path)
    return path


def choose(folder: RunFolder, roster: Roster) -> Choice:
    """Return the ledger to charge: the recorded one, the run's own, or the one that knows these people."""
    path, config = ledger_path(folder), folder.config
    if _own(config) or (folder.private / "ledger.json").is_file():
        return Choice(path=path, announcement=f"charging {path}")
    apart = _apart(config)
    return choose_ledger(
        path if apart else config.ledger,
        beside=config.data.file,
        people=None if roster.rows else roster.everybody,
        run=folder.id,
        fresh=config.fresh_ledger or apart,
    )


def find_ledger(config: RunConfig, roster: Roster) -> Choice | None:
    """Return the ledger that a run would charge before it has a folder; None if it begins one of its own."""
    if (_own(config) and config.ledger is None) or _apart(config) or config.fresh_ledger:
        return None
    if _own(config):
        return Choice(path=Path(config.ledger or ""), announcement="")
    people = None if roster.rows else roster.everybody
    return choose_ledger(config.ledger, beside=config.data.file, people=people)


def _own(config: RunConfig) -> bool:
    """Whether no ledger of people is looked for: the noise is seeded, or the data set belongs to this package."""
    return config.seed is not None or config.data.file is None


def _apart(config: RunConfig) -> bool:
    """Whether the ledger is in the run's folder, and charges elsewhere are not counted."""
    return config.benchmark and config.ledger is None


def roster_of(folder: RunFolder, allocation: Allocation, unprotected: NDArray[np.str_]) -> Roster:
    """Return the people of a run for its ledger, with the answers of the configuration."""
    config = folder.config
    return Roster(
        people=allocation.members(),
        unprotected=unprotected.tolist(),
        withdrawn=allocation.former(),
        policy=_policy(folder),
        rows=config.data.file is None or config.data.person is None,
        overlap=config.data.allow_overlap,
        new_people=config.new_people,
        accept_larger_budgets=config.accept_larger_budgets,
    )


def _policy(folder: RunFolder) -> PolicyTerms | None:
    """Return what the people of a run agreed to; None without a version, or where everybody chose their own ε."""
    given = folder.config.budgets
    levels = given.policy or ({} if given.epsilon is None else {"everybody": given.epsilon})
    if given.policy_version is None or not levels:
        return None
    delta = None if given.delta == "auto" else given.delta
    return PolicyTerms(given.policy_version, tuple(sorted(levels.items())), delta)


def ledger_ahead(
    folder: RunFolder, allocation: Allocation, *, unprotected: NDArray[np.str_] | None = None
) -> Path | None:
    """Return the ledger that a run is or will be charged to; None if it begins a new one when it is opened."""
    config = folder.config
    if config.fresh_ledger and config.ledger is None and not (folder.private / "ledger.json").is_file():
        return None
    return choose(folder, roster_of(folder, allocation, np.array(() if unprotected is None else unprotected))).path


def heads_beside(folder: RunFolder, path: Path) -> tuple[Head, ...]:
    """Return the heads of a ledger that other runs in the same parent folder have recorded: rollback detection."""
    found: list[Head] = []
    for stated in folder.path.absolute().parent.glob("*/private/ledger.json"):
        kept = folder.read(stated) or {}
        other = RunFolder(stated.parents[1], folder.config)
        if (other.path / str(kept.get("path"))).absolute() == path.absolute():
            found += known_heads(other).values()
    return tuple(found)


def known_heads(folder: RunFolder) -> dict[str, Head]:
    """Return every head of the ledger that this run has recorded, by the file that holds it."""
    places = [folder.private / "ledger.json", folder.private / "labelling.json"]
    places += [shown / name for shown in (folder.public, folder.private) for name in ("guarantee.json", "report.json")]
    found = {}
    for path in places:
        found_in = folder.read(path) or {}
        parts = (found_in, *(found_in.get(block) or {} for block in ("publishable", "private")))
        stated = next((part["ledger_head"] for part in parts if part.get("ledger_head") is not None), None)
        if stated is not None:
            found[str(path.relative_to(folder.path))] = Head.parse(str(stated))
    return found


def newest_head(folder: RunFolder) -> Head | None:
    """Return the latest head that this run has recorded; None before its ledger was opened."""
    return max(known_heads(folder).values(), key=lambda head: head.entries, default=None)


def _part(folder: RunFolder, path: Path, roster: Roster) -> tuple[str, str | None]:
    """Return the name of the run on its ledger, and the name of the part that it continues, if any.

    After a withdrawal the run continues as a new run of the ledger: balances of the others carry over, answers are
    shared, and the person who withdrew is in no account any more. Whoever left before the run was opened is in none of
    its parts, and its name does not show that they left.
    """
    parts: list[RunRow] = []
    for row in runs_on(path) if roster.withdrawn else ():
        if row.name == folder.id or (parts and row.parent == parts[-1].name):
            parts.append(row)
    if not parts:
        return folder.id, None
    last, people = parts[-1], set((roster.people or {}).items())
    if people < set(last.members):
        return f"{folder.id} (part {len(parts) + 1})", last.name
    return last.name, last.parent


@contextmanager
def opened(
    folder: RunFolder, allocation: Allocation, settings: Settings, *, pool: str, unprotected: NDArray[np.str_]
) -> Iterator[Ledger]:
    """Open the ledger to charge this run; balances carry over from earlier runs by person id.

    `pool` is the fingerprint of the public points, from `data.json`: runs on the same pool share answers.
    """
    roster = roster_of(folder, allocation, unprotected)
    chosen = choose(folder, roster)
    path = chosen.path
    name, parent = _part(folder, path, roster)
    with SqliteLedger.open(
        path,
        charged_terms(allocation, settings),
        run=name,
        pool=pool,
        people=roster,
        noise=folder.config.noise,
        parent=parent,
        reason=None if parent is None else "withdrawal",
        replaces=chosen.replaces,
        expected_head=newest_head(folder),
    ) as ledger:
        kept = folder.private / "ledger.json"
        if (folder.read(kept) or {}).get("run") != ledger.run:  # from now on an older or missing ledger is refused
            inside = path.is_relative_to(folder.path)
            stated = path.relative_to(folder.path) if inside else path
            folder.write(kept, {"path": str(stated), "run": ledger.run, "ledger_head": str(ledger.head)})
        yield ledger


@contextmanager
def reading(folder: RunFolder) -> Iterator[Ledger]:
    """Open the ledger of a charged run read-only; refuse an older copy, another ledger, or a missing one."""
    name = (folder.read(folder.private / "ledger.json") or {}).get("run", folder.id)
    with SqliteLedger.open(ledger_path(folder), run=name, expected_head=newest_head(folder), readonly=True) as ledger:
        for head in known_heads(folder).values():
            ledger.check_head(head)
        yield ledger


def check_affordable(
    folder: RunFolder,
    allocation: Allocation,
    settings: Settings,
    *,
    unprotected: NDArray[np.str_],
    n_classes: int,
    n_public: int,
) -> None:
    """Choose the ledger, and refuse a run that it does not admit or cannot pay for, before any teacher is trained.

    Under a data-independent bound, the budget left must pay for at least one query, or for a ballot. A run that has
    begun labelling continues with whatever is left, also after a withdrawal.
    """
    roster = roster_of(folder, allocation, unprotected)
    chosen = choose(folder, roster)
    told = logging.getLogger("ipate")
    if (folder.private / "ledger.json").is_file():
        told.info(chosen.announcement)
        return
    path, terms = chosen.path, charged_terms(allocation, settings)
    if not path.parent.is_dir():
        raise InputError(f"ledger is {str(path)!r}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise InputError(f"ledger is {str(path)!r}: it is a folder; name a file")
    accounts = opening_accounts(
        path, terms, run=folder.id, noise=folder.config.noise, people=roster, heads=heads_beside(folder, path)
    )
    told.info(chosen.announcement)
    if settings.ballots:
        opening = {row.id: row.opening for row in accounts}  # empty if the ledger is new
        design = make_design(terms, n_classes=n_classes, n_pool=n_public, spent=opening)
        private = bool(accounts) and private_history(path)
        design.check_useful(private=private)
        for note in () if private else design.notes:
            told.warning("warning: %s", note)
        return
    panel, aggregator = Panel.of(allocation.layout), settings.aggregator(allocation.scale)
    if settings.meter.whole or panel.rotating or not settings.meter.data_independent:
        return
    noise = aggregator.mechanism
    poor = []
    for row in accounts:
        entry, account = row.terms, row.terms.account
        check, label = entry.meter.worst_query(
            sensitivity=account.sensitivity, sigma=noise.sigma, check_sigma=noise.check_sigma, noise=noise.noise
        )
        if row.opening.any() and not entry.fits(row.opening + check + label):
            poor.append((entry, entry.epsilon(row.opening)))
    if poor and (settings.stop != "drop" or len(poor) == len(accounts)):
        entry, so_far = poor[0]
        spent = f"earlier runs spent ε = {so_far:.6g} of its budget {entry.account.epsilon:.6g}"
        raise BudgetExceededError(
            f"{path}: group {entry.account.group.id!r} cannot pay for one more query: "
            f"{PRIVATE_COSTS if private_history(path) else spent}; leave its people out, ask for a new consent, or "
            'set stop = "drop" so that the other groups continue without them'
        )


def student_folder(folder: RunFolder, record: Record) -> Path:
    """Return the folder of the deployed student, which is public if the record is publishable."""
    return (folder.public if record.publishable else folder.private) / "student"


def publish(folder: RunFolder, record: Record, classes: tuple[str, ...], rows: NDArray[np.int64]) -> None:
    """Write costs and labels, to the public folder if the record is publishable, else to the private one.

    Labels are in the order asked; the id of a query is its row in the data. A column `reinforced` says where the label
    is a student's own class, if that is so anywhere.
    """
    shown = folder.public if record.publishable else folder.private
    stated = record.as_json(answers=False)
    least = folder.config.budgets.min_group_size
    sizes = shown_counts((group["people"] for group in stated["groups"]), least=least)
    for group, size in zip(stated["groups"], sizes, strict=True):
        group["people"] = size
    stated["ballots"] = ballot_figures(record.ballots, record.groups, least=least)
    folder.write(shown / "guarantee.json", stated)
    if record.noisy_votes is not None and record.step is not None:
        given = [query for query in record.queries if record.step[query] > 0]
        counted = {"queries": rows[given], "counts": record.noisy_votes[given], "step": record.step[given]}
        write_npz(shown / "counts.npz", {**counted, "labels": record.labels[given]})
    table, own = [], set(record.reinforced)
    for query in record.queries:
        label = int(record.labels[query])
        cells = [int(rows[query]), int(label >= 0), classes[label] if label >= 0 else ""]
        table.append([*cells, int(query in own)] if own else cells)
    write_csv(shown / "labels.csv", ["query", "answered", "label", *(["reinforced"] if own else [])], table)


def read_record(folder: RunFolder) -> Record | None:
    """Return the record of an earlier labelling, or None; released labels are never drawn again."""
    found: dict[str, Any] | None = folder.read(folder.private / "labelling.json")
    if found is None:
        return None
    try:
        return Record.from_json(found)
    except (TypeError, KeyError) as error:
        raise InputError(
            f"{folder.private / 'labelling.json'}: it was edited, or written by another version of ipate ({error}); "
            "remove it, and --resume restores it from the ledger"
        ) from None


def label_once(
    folder: RunFolder,
    votes: Votes,
    *,
    allocation: Allocation,
    settings: Settings,
    task: Task,
    bar: Bar,
    guess: Callable[[Labelling], Floats | None],
) -> Record:
    """Label the pool, or restore an earlier labelling: a charged label is never drawn twice.

    The ledger is authoritative: an interrupted run continues from its entries, and an existing record is checked
    against them. `guess` returns a student's probabilities, for an aggregator that compares votes with a student.
    """
    record = read_record(folder)
    if record is not None:
        with reading(folder) as ledger:
            record.check_answers({query: answer[0] for query, answer in ledger.stored().answers.items()})
        return record
    asking = _asking(folder, settings, task)
    with (
        opened(folder, allocation, settings, pool=task.pool, unprotected=task.unprotected) as ledger,
        bar("queries labelled", len(asking.first) + asking.later) as progress,
    ):

        def label(order: NDArray[np.int64], after: Labelling | None = None, probs: Floats | None = None) -> Labelling:
            before = 0 if after is None else len(after.queries)
            return run_labelling(
                votes,
                allocation,
                settings,
                noise_seed=folder.config.seed,
                ledger=ledger,
                overlap=task.overlap,
                order=order,
                progress=lambda done: progress(before + done),
                after=after,
                student_probs=probs,
            )[0]

        result = ask(
            asking,
            label,
            n_classes=votes.n_classes,
            total_weight=float(allocation.weights.sum()),
            guess=guess,
            keep=lambda later: _kept(folder.private / "queries-later.json", later),  # labels decide them
        )
        return record_labelling(folder, result, ledger, n_public=votes.n_queries)


def _asking(folder: RunFolder, settings: Settings, task: Task) -> Asking:
    """Return the points to ask, which are stored before the first is asked and never chosen again."""
    data, config = task.data, folder.config
    if settings.meter.whole:  # the design lists the queries in the order of the pool
        return Asking(first=np.arange(len(task.parts.public)))
    pool = np.asarray(data.X[task.parts.public])
    made = plan_queries(
        pool,
        settings,
        n_classes=data.n_classes,
        seed=config.split_seed,
        n_jobs=config.teachers.n_jobs,
        kind=embedding(config, pool.shape[1:]),
    )
    first = _kept(folder.path / "queries.json", made.first)
    rest = None if made.rest is None else made.rest[~np.isin(made.rest, first)]
    return replace(made, first=first, rest=rest)


def _kept(path: Path, queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Store positions in the pool, or return those that were stored."""
    found = RunFolder.read(path)
    if found is None:
        RunFolder.write(path, {"queries": queries.tolist()})
        return queries
    return np.array(found["queries"], dtype=np.int64)


def record_labelling(folder: RunFolder, result: Labelling, ledger: Ledger, *, n_public: int) -> Record:
    """Write the record of a labelling that the ledger was charged for."""
    record = Record.of(result, n_public=n_public, ledger_head=str(ledger.head))
    folder.write(folder.private / "labelling.json", record.as_json(answers=True))
    return record
