"""`ipate label`: label public points with teachers trained, or ballots cast, elsewhere, within every budget.

Charges are kept in a ledger on disk, by default beside the file; the same command continues an interrupted run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Context, Option

from ipate.cli import options
from ipate.cli.charging import charging_ledger, write_head
from ipate.cli.describing import Describer
from ipate.cli.output import (
    BUDGET_COLUMNS,
    COST_COLUMNS,
    budget_cells,
    cell,
    cost_cells,
    print_blocks,
    print_json,
    progress_bar,
)

if TYPE_CHECKING:
    from ipate.engines.ballots.given import GivenBallots
    from ipate.engines.base import Engine
    from ipate.engines.context import GivenBook, GivenTask
    from ipate.engines.teachers.votes import Votes
    from ipate.ledger.base import Ledger
    from ipate.ledger.records import Terms
    from ipate.release.history import StoredAnswers
    from ipate.release.lesson import Lesson
    from ipate.release.results import Labelling

EXAMPLE = (
    "Example: ipate label votes.npz --groups groups.csv --sigma 40 --check-sigma 150 --threshold 200 "
    "--delta 1e-5 --out labels.csv. labels.csv has the columns query,answered,label, one row per query "
    "asked, in the order asked. A file with an array ballots is labelled by one release of all ballots: "
    "ipate label ballots.npz --groups groups.csv --out labels.csv."
)


BALLOTS = "the file holds ballots, which are all released at once with the noise σ = 1"
OF_BALLOTS = (
    "votes",
    "groups",
    "out",
    "bound",
    "conversion",
    "delta",
    "orders",
    "seed",
    "ledger",
    "fresh_ledger",
    "accept_larger_budgets",
    "report",
    "controller",
    "contact",
    "as_json",
)


def command(
    context: Context,
    votes: Annotated[
        Path, Argument(help="The teachers' votes (npz, folder or npy), or the sum of ballots (npz).", metavar="VOTES")
    ],
    groups: Annotated[Path, Option(help="csv file of group budgets.", metavar="GROUPS.csv")],
    out: Annotated[Path, Option(help="The csv file of labels to write.", metavar="LABELS.csv")],
    variant: Annotated[
        str, Option(help="standard, weighting, upsampling or vanishing; auto: weighting if the votes have groups.")
    ] = "auto",
    aggregator: options.Aggregator = "auto",
    sigma: options.Sigma = None,
    check_sigma: options.CheckSigma = None,
    threshold: options.Threshold = None,
    scale: Annotated[float | None, Option(help="The Laplace scale of lnmax.")] = None,
    student_probs: options.StudentProbs = None,
    counts: Annotated[
        bool, Option("--counts", help="Release the noisy counts with the labels, at no further cost (bound gdp only).")
    ] = False,
    gamma: Annotated[
        float | None, Option(help="Interactive: return the student's class above this probability; default: 0.9.")
    ] = None,
    weights: options.Weights = "gdp",
    power: Annotated[
        float | None, Option(help="Vanishing: teachers take part in a share (ε/ε_max)^power of the queries.")
    ] = None,
    bound: Annotated[
        str, Option(help="loose, gdp, sup, tight, exact, or ptr: one private test, then all labels or none.")
    ] = "gdp",
    conversion: Annotated[str, Option(help="classic or improved; ignored by the bound gdp.")] = "improved",
    delta: options.Delta = 1e-5,
    orders: options.Orders = "2:50",
    classes: options.Classes = None,
    stop: Annotated[
        str,
        Option(
            help="budget: stop when a group is exhausted; drop: continue without it; count: stop at a given number."
        ),
    ] = "budget",
    max_labels: Annotated[int | None, Option(help="Stop after this many labels.")] = None,
    max_queries: Annotated[int | None, Option(help="Stop after this many queries.")] = None,
    seed: Annotated[int | None, Option(help="Seed of the noise: the run is then NOT private.")] = None,
    ledger: Annotated[
        Path | None,
        Option(help="The ledger that is charged; default: beside the votes, shared by all labellings of them."),
    ] = None,
    fresh_ledger: options.FreshLedger = False,
    accept_larger_budgets: options.AcceptLargerBudgets = False,
    design: Annotated[Path | None, Option(help="ptr: the design file, made by ipate design.")] = None,
    accuracy: options.Accuracy = None,
    spread: options.Spread = None,
    confusion: options.Confusion = None,
    reference: options.ReferenceVotes = None,
    reserve: options.Reserve = None,
    fallback: options.Fallback = False,
    order_seed: Annotated[int | None, Option(min=0, help="Seed for shuffling the queries.")] = None,
    report: Annotated[
        Path | None, Option(help="Also write a public report of the labels.", metavar="REPORT.html")
    ] = None,
    controller: Annotated[str | None, Option(help="Who is responsible, for the report.")] = None,
    contact: Annotated[str | None, Option(help="Whom people write to, for the report.")] = None,
    split_seed: Annotated[int, Option(min=0, help="Vanishing: public seed of the participation schedule.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Label public points with teachers trained or ballots cast elsewhere; no one's budget is exceeded."""
    import numpy as np

    from ipate.accounting.bounds import Meter
    from ipate.engines.ballots.given import holds_ballots, read_ballots
    from ipate.engines.context import GivenBook, GivenTask
    from ipate.engines.teachers.aggregators import build_aggregator
    from ipate.engines.teachers.costs import check_supported
    from ipate.engines.teachers.given import GivenVotes
    from ipate.engines.teachers.influence import TrainedElsewhere
    from ipate.engines.teachers.loop import Stop
    from ipate.engines.teachers.reference import write_design
    from ipate.engines.teachers.variants import panel_for
    from ipate.engines.teachers.votes import read_votes
    from ipate.engines.teachers.wording import described_elsewhere
    from ipate.errors import InputError, check_number
    from ipate.ledger.admission import Roster
    from ipate.people.budgets import check_delta, read_groups
    from ipate.people.people import People
    from ipate.release.history import stored_answers

    check_number("delta", delta)
    meter = Meter(bound, conversion, options.parse_orders(orders))
    charging = partial(
        charging_ledger,
        votes,
        out,
        ledger,
        fresh=fresh_ledger,
        seeded=seed is not None,
        roster=Roster(accept_larger_budgets=accept_larger_budgets),
    )
    rows = read_groups(groups)
    check_delta([row.as_group(delta) for row in rows])
    describer = Describer.of(
        report, votes, rows, meter, seeded=seed is not None, controller=controller, contact=contact
    )
    if holds_ballots(votes):
        options.refuse_unused(BALLOTS, **options.on_command_line(context, but=OF_BALLOTS))
        ballots = read_ballots(votes, rows, delta=delta, meter=meter)
        _label_ballots(ballots, out, charging, describer, seed=seed, as_json=as_json)
        return
    chosen = build_aggregator(
        aggregator,
        sigma=sigma,
        check_sigma=check_sigma,
        threshold=threshold,
        scale=scale,
        gamma=gamma,
        student_probs=student_probs,
        counts=counts or None,
    )
    check_supported(meter, chosen.mechanism)
    ballot = read_votes(votes, classes=classes)
    probs = options.load_probs(student_probs, ballot)
    order = None if order_seed is None else np.random.default_rng(order_seed).permutation(ballot.n_queries)
    given = TrainedElsewhere(
        votes=ballot, rows=rows, delta=delta, weights=weights, power=power, order=order, split_seed=split_seed
    )
    ballot, panel, name = panel_for(variant, given)
    _warn_of_threshold(chosen.mechanism, panel.total_weight)
    testing = {
        "reference": reference,
        "accuracy": accuracy,
        "spread": spread,
        "confusion": confusion,
        "reserve": reserve,
        "fallback": fallback,
    }
    test = None
    if meter.whole:
        test = options.chosen_design(
            design, ballot, panel, chosen.mechanism, order=order, max_queries=max_queries, quiet=as_json, **testing
        )
        if stop != "budget" or max_labels is not None:
            raise InputError(f"bound is 'ptr' with stop {stop!r}, max_labels {max_labels}: a design asks a fixed list")
    else:
        options.refuse_unused("it is for the bound ptr", design=design, **testing)
    digest = None if test is None else test.digest
    more = ("counts",) if counts else ()
    request = (variant, weights, power, stop, max_labels, max_queries, order_seed, split_seed, digest, *more)
    run, pool = _name_run(ballot, panel.groups, panel.weights, repr(chosen), meter, probs, *request, seed)
    if counts:
        options.check_out(_counts_file(out), "a file of noisy counts")
    engine = GivenVotes(
        votes=ballot,
        panel=panel,
        variant=name,
        aggregator=chosen,
        counted=meter,
        stop=cast("Stop", stop),
        max_labels=max_labels,
        max_queries=max_queries,
        order=order,
        student_probs=probs,
        design=test,
    )
    task = GivenTask(
        name=votes.name,
        people=People.unnamed([account.group for account in panel.groups]),
        n_points=ballot.n_queries,
        classes=tuple(range(ballot.n_classes)),
        fingerprint=pool,
        accept_larger_budgets=accept_larger_budgets,
    )

    stored: list[StoredAnswers] = []

    def describe(result: "Labelling", book: "Ledger | None") -> None:
        facts = described_elsewhere(
            result,
            chosen,
            variant=name,
            teachers=len(panel.weights),
            stop=stop,
            max_labels=max_labels,
            design=test,
        )
        sizes = {"n_pool": ballot.n_queries, "n_classes": ballot.n_classes}
        describer.write(result, book, facts, queries=ballot.queries, **sizes)
        stored.extend(stored_answers(result, book, ballot.queries))

    @contextmanager
    def opened(terms: "list[Terms]") -> "Iterator[Ledger | None]":
        with charging(terms, run=run, pool=pool) as book:
            if test is not None:  # before anything is paid, so that the same command finds it again
                write_design(out.with_name(f"{out.name}.design.json"), test)
            yield book

    charged = GivenBook(opened, describe)
    result, _ = _trained(engine, task, charged, seed=seed, quiet=as_json)
    _write_counts(_counts_file(out), ballot, result)
    counted = None if result.noisy_votes is None else str(_counts_file(out))
    inputs = {"variant": name, "engine": "teachers"}
    _finish(result, ballot, inputs, out, charged.durable, as_json, stored, counts=counted)


def _trained(
    engine: "Engine[Any]", task: "GivenTask", book: "GivenBook", *, seed: int | None, quiet: bool
) -> "tuple[Labelling, Lesson]":
    """Label by the way of a run, without people and without a student."""
    from ipate.engines.ballots.engine import Ballots
    from ipate.engines.choose import Request
    from ipate.engines.teachers.engine import Teachers
    from ipate.errors import IpateError
    from ipate.pipeline import Options, train

    request = Request(engine=engine.name, teachers=Teachers(), ballots=Ballots(), other=engine)
    asked = Options(request=request, pupil=None, noise_seed=seed)
    trained = train(task, asked, book=book, store=book.store, bar=partial(progress_bar, quiet=quiet))
    if book.store.labelling is None:
        raise IpateError("nothing was labelled")
    return book.store.labelling, trained.lesson


def _label_ballots(
    ballots: "GivenBallots",
    out: Path,
    charging: "Callable[..., AbstractContextManager[Ledger | None]]",
    describer: Describer,
    *,
    seed: int | None,
    as_json: bool,
) -> None:
    """Label the points of a file of ballots, and write how clear each label is beside the labels."""
    from ipate.engines.ballots.given import SummedBallots
    from ipate.engines.ballots.wording import described_elsewhere
    from ipate.engines.context import GivenBook, GivenTask
    from ipate.files import write_npz
    from ipate.people.people import People

    task = GivenTask(
        name=out.name,
        people=People.unnamed(ballots.groups),
        n_points=len(ballots.cells),
        classes=tuple(range(ballots.total.shape[-1])),
        fingerprint=ballots.pool,
    )

    def describe(result: "Labelling", book: "Ledger | None") -> None:
        sizes = {"n_pool": len(ballots.cells), "n_classes": ballots.total.shape[-1]}
        describer.write(result, book, described_elsewhere(result), queries=ballots.queries, **sizes)

    charged = GivenBook(partial(charging, run=ballots.run(seed), pool=ballots.pool), describe)
    result, lesson = _trained(SummedBallots(given=ballots), task, charged, seed=seed, quiet=as_json)
    beside = out.with_name(f"{out.name}.confidence.npz")
    write_npz(beside, dict(lesson.arrays["confidence"]))
    inputs = {"variant": None, "engine": "ballots"}
    _finish(result, ballots, inputs, out, charged.durable, as_json, confidence=str(beside))


def _name_run(votes: "Votes", *inputs: Any) -> tuple[str, str]:
    """Return the run's name, a hash of votes and all other inputs, and the hash that identifies its pool, the votes.

    By its name the same command continues a run; by its pool another labelling of these votes reuses paid answers.
    """
    from ipate.files import fingerprint

    turns = () if votes.participation is None else votes.participation
    pool = fingerprint(*votes.votes, votes.n_classes, votes.queries, *turns)  # row by row: votes may be memory-mapped
    return f"label {fingerprint(pool, *inputs)[:16]}", pool


def _warn_of_threshold(mechanism: Any, total_weight: float) -> None:
    """Warn if the threshold exceeds the total weight, with the probability that a unanimous query passes."""
    import warnings

    from scipy.special import ndtr

    if mechanism.threshold is not None and mechanism.threshold > total_weight:
        chance = float(ndtr((total_weight - mechanism.threshold) / mechanism.check_sigma))
        warnings.warn(
            f"threshold {mechanism.threshold:g} is above the weight of all votes, {total_weight:g}: "
            f"a unanimous query passes the check with probability {chance:.3g}",
            stacklevel=2,
        )


def _finish(
    result: "Labelling",
    votes: "Votes | GivenBallots",
    inputs: dict[str, Any],
    out: Path,
    book: "Ledger | None",
    as_json: bool,
    stored: "Sequence[StoredAnswers]" = (),
    **files: str | None,
) -> None:
    """Write the labels, record the ledger's head beside them, and print the result."""
    _write_labels(out, votes, result)
    if book is not None:
        write_head(out, book)
    _show(result, votes, inputs, out, book, as_json, stored, files)


def _write_labels(path: Path, votes: "Votes | GivenBallots", result: "Labelling") -> None:
    """Write the labels file atomically; every label in it has been charged."""
    from ipate.files import write_csv

    labelled = result.answered | result.reinforced
    own = bool(result.reinforced.any())  # a column says where the label is the student's own class
    columns = (array.tolist() for array in (result.queries, labelled, result.labels, result.reinforced))
    rows = (
        [query if votes.queries is None else votes.queries[query], int(answered), label if answered else ""]
        + ([int(kept)] if own else [])
        for query, answered, label, kept in zip(*columns, strict=True)
    )
    write_csv(path, ["query", "answered", "label", *(["reinforced"] if own else [])], rows, newline="\r\n")


def _counts_file(out: Path) -> Path:
    """Return the file of noisy counts beside the labels."""
    return out.with_name(f"{out.name}.counts.npz")


def _write_counts(path: Path, votes: "Votes", result: "Labelling") -> None:
    """Write the noisy counts, if asked for, atomically: a row for every row of the labels file that has them."""
    import numpy as np

    from ipate.files import replacing

    if result.noisy_votes is None or result.step is None:
        return
    known = np.flatnonzero(result.step)
    places = result.queries[known]
    arrays = {
        "queries": places if votes.queries is None else np.array([votes.queries[place] for place in places], np.str_),
        "counts": result.noisy_votes[known],
        "step": result.step[known],
        "labels": result.labels[known],
    }
    with replacing(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _show(
    result: "Labelling",
    votes: "Votes | GivenBallots",
    inputs: dict[str, Any],
    out: Path,
    book: "Ledger | None",
    as_json: bool,
    stored: "Sequence[StoredAnswers]",
    files: dict[str, str | None],
) -> None:
    from dataclasses import asdict

    import numpy as np

    from ipate.people.budgets import shown_counts
    from ipate.release.history import told_stored
    from ipate.release.results import blocks

    labelled = result.answered | result.reinforced
    scores: dict[str, float | None] = {"accuracy": None}
    if votes.labels is not None and labelled.any():
        scores["accuracy"] = float(np.mean(result.labels[labelled] == votes.labels[result.queries[labelled]]))
    if as_json:
        outcome = {
            "labels": result.n_labels,
            "queries": result.n_queries,
            "stored": [asdict(answers) for answers in stored],
            "reinforced": int(np.count_nonzero(result.reinforced & ~result.repeated)),
            "stopped_by": result.stopped_by,
            "passed": result.passed,
            "counts": None if result.step is None else int(np.count_nonzero((result.step > 0) & ~result.repeated)),
            "ledger_head": None if book is None else str(book.head),
        }
        inputs |= {"bound": result.meter.bound, "conversion": result.meter.conversion}
        written = {"labels": str(out), "ledger": None if book is None else str(book.path), **files}
        found = blocks(result.guarantee, inputs=inputs, outcome=outcome, groups=result.groups, scores=scores)
        print_json({**found, "files": written})
        return
    where = f"Labels: {out}. " + ("Charges were kept in memory only." if book is None else f"Charged to: {book.path}")
    if result.step is not None:
        without = int(np.count_nonzero(result.answered & (result.step == 0) & ~result.repeated))
        earlier = f" {without} labels were paid for earlier without their counts, and have none." if without else ""
        where = f"Noisy counts: {_counts_file(out)}.{earlier} {where}"
    engine = inputs["engine"]
    who = {"teachers": "teachers", "ballots": "people"}[engine]
    people = shown_counts(group.group.people for group in result.groups)
    numbers = [group.teachers for group in result.groups] if engine == "teachers" else people
    print_blocks(
        result.guarantee,
        about=f"{inputs['variant'] or engine}, {result.meter.bound} bound",
        outcome=f"{result.n_labels} labels from {result.n_queries} queries{told_stored(result.n_labels, stored)}",
        inputs=(
            ["group", who, "weight", *BUDGET_COLUMNS],
            [
                [group.id, "mixed" if number is None else str(number), cell(group.weight, ".4g"), *budget_cells(group)]
                for group, number in zip(result.groups, numbers, strict=True)
            ],
        ),
        costs=(
            [*COST_COLUMNS, "exhausted at label"],
            [[*cost_cells(group), cell(group.labels_until_exhausted)] for group in result.groups],
        ),
        scores=[["labels right", f"{accuracy:.1%}"] for accuracy in scores.values() if accuracy is not None],
        notes=[_remark(result), where],
    )


def _remark(result: "Labelling") -> str:
    ended = {
        "budget": "Stopped before the first query that could have exceeded a group's budget.",
        "count": "Stopped at the number fixed beforehand.",
        "pool": "Every query was asked." if result.passed is None else "The test was passed: every query was asked.",
        "failed": "The test was not passed: nothing but this answer was released, and the budgets are spent.",
    }[result.stopped_by]
    if result.passed is False and result.stopped_by != "failed":
        ended = f"The test was not passed; the part of the budget that was kept for this paid for these. {ended}"
    idle = [group.id for group in result.groups if group.used < 0.8]
    if result.stopped_by == "budget" and idle:
        first = [group.id for group in result.groups if group.labels_until_exhausted is not None]
        ended += (
            f" {', '.join(first)} was exhausted while {', '.join(idle)} had more than a fifth of the budget "
            "left: the weights do not match the budgets."
        )
    return ended
