"""The cases whose results are frozen: a name, and the steps that a user would take.

A step is a verb of `drive.Play` with its options. Verbs and options keep their names, whatever a rearrangement renames.
Settings and seeds are explicit, because the figures of the chooser may change; the exceptions are the cases whose name
begins with "automatic". With `seed` the noise is seeded, as `--seed` does it. In a case that is `replayed` the noise is
secure and its secret keys are replaced, which pins guarantees, published files and the ledgers beside the data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """A verb of `drive.Play` and its options."""

    verb: str
    given: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Steps in one folder, one after another."""

    steps: tuple[Step, ...]
    replayed: bool = False


def step(verb: str, /, **given: Any) -> Step:
    """Return a step."""
    return Step(verb, given)


VARIANTS = ("standard", "weighting", "upsampling", "vanishing")

# --- data ---

PEOPLE = {
    "file": "people.csv",
    "label": "sick",
    "level": "consent",
    "person": "person",
    "classes": ["0", "1"],
    "public": 60,
    "test": 20,
    "public_without_protection": True,
    "policy": {"high": 20.0, "low": 50.0},
    "delta": 1e-4,
    "points": "points.csv",
}
HOSPITAL = {
    "file": "private.csv",
    "public_file": "public.csv",
    "test_file": "test.csv",
    "person": "patient",
    "level": "consent",
    "label": "outcome",
    "classes": ["home", "readmitted"],
    "drop": ["note", "agreed", "version"],
    "policy": {"high": 20.0, "low": 40.0},
    "delta": 1e-4,
    "points": "patients.csv",
}
DECLARED = {
    "numbers": {"age": [18.0, 95.0], "bmi": [10.0, 60.0]},
    "categories": {"ward": ["A", "B", "C", "D"], "sex": ["F", "M"]},
    "dates": ["admitted"],
    "missing": ["bmi"],
    "drop": ["note"],
    "consent_date": "agreed",
    "consent_version": "version",
    "policy_version": "2",
    "policy_date": "2023-12-01",
}
PARQUET = {"file": "private.parquet", "public_file": "public.parquet", "test_file": "test.parquet"}
ARRAYS = {
    "file": "people.npz",
    "classes": ["x", "y", "z"],
    "public": 80,
    "test": 40,
    "public_without_protection": True,
    "delta": 1e-4,
}
BLOBS = {  # the same people, budgets and pool as in a fit
    "file": "blobs.csv",
    "public_file": "blobs-pool.csv",
    "test_file": "blobs-test.csv",
    "person": "person",
    "level": "level",
    "label": "y",
    "classes": ["0", "1", "2"],
    "policy": {"high": 8.0, "low": 24.0},
    "delta": 1e-4,
}
SYNTHETIC = {
    "name": "synthetic",
    "public": 400,
    "test": 300,
    "policy": {"high": 8.0, "average": 12.0, "low": 16.0},
    "delta": 1e-6,
    "points": "synthetic",
}
DIGITS = {
    "name": "digits",
    "public": 500,
    "test": 200,
    "policy": {"high": 6.0, "low": 20.0},
    "shares": {"high": 0.6, "low": 0.4},
    "delta": 1e-4,
    "points": "digits",
}

# --- settings ---

SEEDS = {"seed": 5, "split_seed": 3}
PARTS = {"backend": "sequential", "jobs": 1, "student": "bayes", "min_labels": 0}
CHECKED = {"aggregator": "confident", "sigma": 2.0, "check_sigma": 4.0, "threshold": 6.0}
TEACHERS = {
    **PARTS,
    **CHECKED,
    "engine": "teachers",
    "teacher": "bayes",
    "teachers": 12,
    "variant": "weighting",
    "bound": "gdp",
    "conversion": "improved",
    "stop": "budget",
    "queries": "random",
    "counts": False,
    **SEEDS,
}
BALLOTS = {
    "engine": "ballots",
    "variant": "weighting",
    "bound": "gdp",
    "embedding": "auto",
    "student": "bayes",
    "jobs": 1,
    **SEEDS,
}
GNMAX = {"aggregator": "gnmax", "check_sigma": None, "threshold": None, "sigma": 6.0}
LNMAX = {"aggregator": "lnmax", "check_sigma": None, "threshold": None, "sigma": None, "scale": 4.0}
ASKED = {"aggregator": "interactive"}
GRAPH = {**GNMAX, "queries": "coverage", "counts": True, "student": "graph"}
ROUNDS = {**GRAPH, "sigma": "auto"}  # only where σ is automatic is the number of queries fixed, and are there rounds
PTR = {"bound": "ptr", "accuracy": 0.95}
UNLIKE = {**PTR, "accuracy": 0.999, "policy": {"high": 10.0, "low": 20.0}, "delta": 1e-3}  # what the votes are not
SECRET = {"seed": None}


def run(data: dict[str, Any], **options: Any) -> Step:
    """Return a run with teachers."""
    return step("run", **{**data, **TEACHERS, **options})


def cast(data: dict[str, Any], **options: Any) -> Step:
    """Return a run with ballots."""
    return step("run", **{**data, **BALLOTS, **options})


def resume(data: dict[str, Any]) -> Step:
    """Return the end of a run that was stopped."""
    return step("resume", points=data["points"])


def of(variant: str) -> dict[str, Any]:
    """Return a variant with a number of teachers that is fast; with copies there are several times as many as named."""
    return {"variant": variant, "teachers": {"upsampling": 4, "vanishing": 8}.get(variant, 12)}


def case(*steps: Step) -> Case:
    """Return a case whose noise is seeded, as far as a step says so."""
    return Case(steps)


def secure(*steps: Step) -> Case:
    """Return a case whose secure noise is replayed."""
    return Case(steps, replayed=True)


def runs() -> Iterator[tuple[str, Case]]:
    """Runs on a file of people: variants, bounds, rules, stops, aggregators, and ballots."""
    for variant in VARIANTS:
        for bound in ("gdp", "sup", "tight"):
            yield f"run {variant} {bound}", case(run(PEOPLE, **of(variant), bound=bound))
    for variant in ("standard", "weighting"):
        yield f"run {variant} ptr", case(run(PEOPLE, variant=variant, **PTR))
    more: dict[str, dict[str, Any]] = {
        "weighting loose": {"bound": "loose"},
        "weighting exact": {"bound": "exact"},
        "weighting drop": {"stop": "drop", "rule": "uniform"},
        "weighting count": {"stop": "count", "max_labels": 7},
        "weighting proportional": {"rule": "proportional"},
        "vanishing power": {"variant": "vanishing", "power": 0.5},
        "gnmax": GNMAX,
        "gnmax counts": {**GNMAX, "counts": True},
        "confident counts": {"counts": True},
        "lnmax": {**LNMAX, "bound": "loose"},
        "lnmax vanishing": {**LNMAX, "bound": "loose", "variant": "vanishing"},
        "interactive": ASKED,
        "interactive vanishing": {**ASKED, "variant": "vanishing"},
        "typical queries": {"queries": "typical"},
        "coverage graph": GRAPH,
        "ptr failed": UNLIKE,
        "ptr fallback": {**UNLIKE, "fallback": True},
        "logistic forest": {"teacher": "logistic", "student": "forest"},
        "forest teachers": {"teacher": "forest", "teacher_options": {"n_estimators": 5}, "teachers": 6},
        "worker process": {"backend": "loky"},
        "larger groups": {"min_group_size": 100},
    }
    for name, options in more.items():
        yield f"run {name}", case(run(PEOPLE, **options))
    yield "run ballots weighting", case(cast(PEOPLE))
    yield "run ballots standard", case(cast(PEOPLE, variant="standard"))
    yield "run ballots sup", case(cast(PEOPLE, bound="sup"))
    yield "run ballots as given", case(cast(PEOPLE, embedding="given"))
    yield "run ballots graph", case(cast(PEOPLE, student="graph"))


def sources() -> Iterator[tuple[str, Case]]:
    """Runs on named data and on every kind of file."""
    synthetic = {"teachers": 60, "sigma": 10.0, "check_sigma": 14.0, "threshold": 30.0}
    digits = {"teachers": 30, "sigma": 3.0, "check_sigma": 6.0, "threshold": 12.0}
    yield "data synthetic", case(run(SYNTHETIC, **synthetic))
    yield "data synthetic ballots", case(cast(SYNTHETIC))
    yield "data digits rounds", case(run(DIGITS, **{**digits, **ROUNDS}))
    yield "data digits interactive", case(run(DIGITS, **{**digits, **ASKED}))
    yield "data digits ballots", case(cast(DIGITS))
    yield "data digits compared", case(run({**DIGITS, "public": 200, "test": 100}, **digits, compare=True))
    yield "data csv", case(run(HOSPITAL))
    yield "data csv declared", case(run({**HOSPITAL, **DECLARED}, teacher="logistic"))
    yield "data csv rounds", case(run(HOSPITAL, **ROUNDS))
    yield "data csv ballots", case(cast({**HOSPITAL, **DECLARED}))
    yield "data parquet", case(run({**HOSPITAL, **DECLARED, **PARQUET}, teacher="logistic"))
    yield "data arrays", case(run(ARRAYS))
    who = {key: value for key, value in PEOPLE.items() if key not in ("public", "test", "public_without_protection")}
    yield "data column of public people", case(run({**who, "file": "agreed.csv", "public_column": "agreed"}))
    own = {"file": "budgets.csv", "epsilon_column": "eps", "person": "who", "level": None, "policy": None}
    yield "data budgets of their own", case(run({**PEOPLE, **own}, max_groups=4, merge_within=0.02))
    yield "data budgets of their own ballots", case(cast({**PEOPLE, **own}, max_groups=4))
    yield (
        "data schema of an earlier run",
        case(
            run({**HOSPITAL, **DECLARED}, out="first"),
            run({**HOSPITAL, "schema_file": "first/schema.json"}, teacher="logistic"),
        ),
    )
    yield "data overlap", case(run({**HOSPITAL, "allow_overlap": True}))


def automatic() -> Iterator[tuple[str, Case]]:
    """Runs and fits with everything automatic, whose settings the chooser may change."""
    alone = {"engine": "auto", "student": "auto", "jobs": 1, **SEEDS}
    yield "automatic run synthetic", case(step("run", **{**SYNTHETIC, **alone, "teacher": "bayes"}))
    yield "automatic run people", case(step("run", **{**PEOPLE, **alone, "backend": "sequential"}))
    yield "automatic fit", case(step("fit", table="blobs", engine="auto", classes=[0, 1, 2], **SEEDS))


FIT = {
    "engine": "teachers",
    "teacher": "bayes",
    "student": "bayes",
    "teachers": 20,
    "variant": "weighting",
    "aggregator": "confident",
    "sigma": 4.0,
    "check_sigma": 6.0,
    "threshold": 10.0,
    "bound": "gdp",
    "conversion": "improved",
    "stop": "budget",
    "queries": "random",
    "counts": False,
    "min_labels": 0,
    "delta": 1e-4,
    "classes": [0, 1, 2],
    **SEEDS,
}
NO_CHECK = {"aggregator": "gnmax", "check_sigma": "auto", "threshold": "auto", "sigma": 6.0}
LEVELS: dict[str, Any] = {
    "given": ("levels", "person_id", "X_public", "y_public"),
    "policy": {"high": 8.0, "low": 24.0},
}
POOR = {"high": 4.0, "low": 12.0}
PERSONS: dict[str, Any] = {"given": ("budgets", "person_id", "X_public", "y_public")}
VOTERS = {"engine": "ballots", "student": "bayes", "bound": "gdp", "delta": 1e-4, "classes": [0, 1, 2], **SEEDS}
SHARED = {"ledger": "people.sqlite", **PERSONS}


def fit(**options: Any) -> Step:
    """Return a fit with teachers."""
    return step("fit", **{"table": "blobs", **FIT, **options})


def poll(**options: Any) -> Step:
    """Return a fit with ballots."""
    return step("fit", **{"table": "blobs", **VOTERS, **options})


def fits() -> Iterator[tuple[str, Case]]:
    """Fits on arrays and frames."""
    for variant in VARIANTS:
        for bound in ("gdp", "tight"):
            yield f"fit {variant} {bound}", case(fit(variant=variant, bound=bound, **PERSONS))
    more: dict[str, dict[str, Any]] = {
        "sup": {"bound": "sup"},
        "levels": LEVELS,
        "one budget": {"epsilon": 16.0, "given": ("X_public",)},
        "gnmax counts": {**NO_CHECK, "counts": True},
        "lnmax": {**NO_CHECK, "aggregator": "lnmax", "sigma": "auto", "scale": 4.0, "bound": "loose"},
        "interactive": {"aggregator": "interactive"},
        "rounds": {**NO_CHECK, "sigma": "auto", "queries": "coverage", "counts": True, "student": "graph"},
        "typical queries": {"queries": "typical"},
        "ptr": {"bound": "ptr", "accuracy": 0.9, "teachers": 12},
        "ptr failed": {"bound": "ptr", "accuracy": 0.999, "seed": 16, **LEVELS, "policy": POOR},
        "public fraction": {"public_fraction": 0.2, "given": ("budgets", "person_id")},
        "labelled too": {"given": ("budgets", "X_public", "labelled")},
        "gaps": {"table": "blobs with gaps"},
        "drop": {"stop": "drop"},
        "count": {"stop": "count", "max_labels": 9},
        "overlap": {"allow_overlap": True},
        "pandas": {"form": "pandas"},
        "pandas by name": {"form": "pandas", "by_name": True, **PERSONS},
        "polars by name": {"form": "polars", "by_name": True, **PERSONS},
        "pyarrow": {"form": "pyarrow"},
        "logistic": {"teacher": "logistic", "student": "logistic"},
    }
    for name, options in more.items():
        yield f"fit {name}", case(fit(**options))
    mixed = {"table": "wards", "teacher": "mixed columns", "student": "mixed columns", "classes": ["home", "ward"]}
    yield "fit mixed columns pandas", case(fit(form="pandas", **mixed, **PERSONS))
    yield "fit mixed columns polars", case(fit(form="polars", **mixed, **PERSONS))
    for name, options in {
        "weighting": PERSONS,
        "standard": {"variant": "standard"},
        "sup": {"bound": "sup"},
        "sparse": {"form": "sparse", "student": "logistic"},
        "pandas": {"form": "pandas"},
        "gaps": {"table": "blobs with gaps"},
        "public fraction": {"public_fraction": 0.2, "given": ("budgets", "person_id")},
        "mixed columns": {**mixed, "form": "pandas", "teacher": None},
    }.items():
        yield f"fit ballots {name}", case(poll(**options))
    secret = {"seed": None, "classes": None}
    yield "fit warnings", secure(fit(**secret), poll(**secret, public_fraction=0.2, given=("budgets",)))
    again = {"given": ("budgets", "X_public"), "search": True}
    yield "fit warnings in a search", secure(fit(**again, **secret))
    yield (
        "fit guarantees",
        secure(fit(**SECRET), fit(**SECRET, bound="tight"), fit(**SECRET, allow_overlap=True), poll(**SECRET)),
    )


def ledgers_of_fits() -> Iterator[tuple[str, Case]]:
    """Fits that share a ledger on disk."""
    first, second = fit(**SHARED, max_labels=4), fit(**SHARED)
    yield "ledger two fits", case(first, second, second)
    yield "ledger two secure fits", secure(fit(**SHARED, **SECRET, max_labels=4), fit(**SHARED, **SECRET))
    yield "ledger two fits of other variants", case(first, fit(**SHARED, variant="upsampling"))
    yield "ledger fit and ballots", case(first, poll(**SHARED), poll(**SHARED))
    yield (
        "ledger larger budgets",
        case(
            fit(**{**LEVELS, "policy": POOR}, ledger="people.sqlite"),
            fit(**LEVELS, ledger="people.sqlite"),
            fit(**LEVELS, ledger="people.sqlite", accept_larger_budgets=True),
        ),
    )
    yield (
        "ledger fit stopped before its student",
        case(fit(**SHARED, max_labels=4, stop_at="before the student of a fit"), second),
    )


NOISE = {"sigma": 12.0, "check_sigma": 15.0, "threshold": 45.0}
LABEL = {"votes": "votes.npz", "groups": "groups.csv", **NOISE, "seed": 11}
COPIES = {"votes": "mixed.npz", "groups": "copies.csv"}
SURE = {"votes": "sure.npz", "groups": "sure.csv", "sigma": 4.0, "check_sigma": 8.0, "threshold": 16.0}
SURE_COPIES = {"votes": "sure-mixed.npz", "groups": "sure-copies.csv"}
PLAIN = {"check_sigma": None, "threshold": None}
ALL = {"votes": "ballots.npz", "groups": "voters.csv", "seed": 11}
OPEN = {"seed": None}


def label(**options: Any) -> Step:
    """Return a labelling of votes."""
    return step("label", **{**LABEL, **options})


def labels() -> Iterator[tuple[str, Case]]:
    """Labellings of votes and ballots that are there already."""
    for variant in VARIANTS:
        files = COPIES if variant == "upsampling" else {}
        for bound in ("loose", "gdp", "sup", "tight", "exact"):
            yield f"label {variant} {bound}", case(label(**files, variant=variant, bound=bound))
    more: dict[str, dict[str, Any]] = {
        "counts": {"counts": True, **PLAIN},
        "counts confident": {"counts": True},
        "gnmax": PLAIN,
        "lnmax": {**PLAIN, "sigma": None, "aggregator": "lnmax", "scale": 20.0, "bound": "loose"},
        "interactive": {"student_probs": "probs.npy", "gamma": 0.9},
        "interactive counts": {"student_probs": "probs.npy", "gamma": 0.5, "counts": True},
        "drop": {"stop": "drop", "weights": "uniform"},
        "count": {"stop": "count", "max_labels": 5},
        "queries": {"stop": "count", "max_queries": 12},
        "order": {"order_seed": 4},
        "ids": {"votes": "named.npz", "order_seed": 4},
        "weights of the csv": {"groups": "weights.csv", "weights": "file"},
        "weights of the npz": {"votes": "weighted.npz", "weights": "file"},
        "classic sup": {"bound": "sup", "conversion": "classic", "orders": "2:20"},
        "vanishing power": {"variant": "vanishing", "power": 0.5, "split_seed": 6},
        "algorithm2": {"weights": "algorithm2"},
        "ptr standard": {**SURE, "bound": "ptr", "variant": "standard", "accuracy": 0.95},
        "ptr upsampling": {**SURE, **SURE_COPIES, "bound": "ptr", "accuracy": 0.95},
        "ptr failed": {**SURE, "votes": "sure-others.npz", "bound": "ptr", "accuracy": 0.999},
        "ptr reference": {**SURE, "bound": "ptr", "reference": "sure-others.npz"},
    }
    for name, options in more.items():
        yield f"label {name}", case(label(**options))
    yield (
        "label ptr design",
        case(
            step("design", out="design.json", accuracy=0.95, **SURE), label(**SURE, bound="ptr", design="design.json")
        ),
    )
    for name, own in {
        "ballots": {},
        "ballots by group": {"votes": "ballots-by-group.npz"},
        "ballots bare": {"votes": "ballots-bare.npz"},
        "ballots sup": {"bound": "sup"},
        "ballots loose": {"bound": "loose"},
    }.items():
        yield f"label {name}", case(step("label", **{**ALL, **own}))
    yield "label budgets too small", case(label(sigma=0.5, check_sigma=0.5))
    yield "label in a process", case(label(process="whole"))
    yield "label twice", secure(label(**OPEN), label(**OPEN))
    yield "label counts twice", secure(*[label(**OPEN, **PLAIN, counts=True)] * 2)
    yield "label twice on a seeded ledger", case(*[label(ledger="own.sqlite")] * 2)
    yield "label more", secure(label(**OPEN, max_labels=3), label(**OPEN, max_labels=8), label(**OPEN))
    other = {**OPEN, **PLAIN, "max_queries": 20}
    yield "label with other noise", secure(label(**other, sigma=20.0), label(**other, sigma=9.0))
    yield (
        "label counts after labels",
        secure(label(**OPEN, **PLAIN, max_queries=5), label(**OPEN, **PLAIN, max_queries=9, counts=True)),
    )
    yield "label after a private bound", secure(label(**OPEN, bound="tight", max_labels=3), label(**OPEN, max_labels=6))
    yield "label ballots twice", secure(*[step("label", **{**ALL, **OPEN})] * 2)
    yield (
        "label ballots of spent budgets",
        secure(
            step("label", **{**ALL, **OPEN, "votes": "ballots-bare.npz"}),
            step("label", **{**ALL, **OPEN, "ledger": "ballots-bare.ledger.sqlite"}),
        ),
    )
    yield "label ptr twice", secure(*[label(**SURE, **OPEN, bound="ptr", accuracy=0.95)] * 2)
    yield "label spent budgets", secure(label(**SURE, **OPEN), label(**SURE, **OPEN, bound="ptr", accuracy=0.95))
    yield (
        "label stopped",
        secure(label(**OPEN, stop_at="after 6 queries"), label(**OPEN, stop_at="after 14 queries"), label(**OPEN)),
    )
    yield "label stopped before the file", secure(label(**OPEN, stop_at="before the labels file"), label(**OPEN))


def accounts() -> Iterator[tuple[str, Case]]:
    """Accounts of releases."""
    base = {"votes": "votes.npz", "groups": "groups.csv", **NOISE}
    for name, options in {
        "all": {"bound": "all"},
        "gdp": {"history": True},
        "tight": {"bound": "tight", "answered": "answered.npy", "history": True, "stopped_by": "account"},
        "exact": {"bound": "exact", "answered": "answered.npy"},
        "sup stopped otherwise": {"bound": "sup", "stopped_by": "other"},
        "upsampling": {**COPIES, "bound": "exact"},
        "turns": {"votes": "turns.npz", "bound": "tight"},
        "counts": {**PLAIN, "counts": True},
        "lnmax": {**PLAIN, "sigma": None, "aggregator": "lnmax", "scale": 20.0, "bound": "loose"},
        "interactive": {"student_probs": "probs.npy", "bound": "tight", "answered": "answered.npy"},
        "weights": {"groups": "weights.csv", "bound": "loose", "conversion": "classic"},
    }.items():
        yield f"account {name}", case(step("account", **{**base, **options}))


def sites() -> Iterator[tuple[str, Case]]:
    """Several sites, end to end."""
    merged = {"votes": "merged/votes.npz", "groups": "merged/groups.csv", "seed": 7}
    noise = {"sigma": 6.0, "check_sigma": 9.0, "threshold": 12.0}
    three = ["north", "south", "west"]
    yield (
        "sites votes",
        case(
            step("site votes", sites=three),
            step("label", **merged, **noise, weights="file"),
            step("label", **merged, **noise, out="vanishing.csv", variant="vanishing"),
        ),
    )
    yield (
        "sites votes merged equal",
        case(
            step(
                "site votes", sites=three[:2], merge_equal=True, weights="proportional", variant="standard", points=15
            ),
            step("label", **merged, **noise, weights="file", bound="tight"),
        ),
    )
    sums = {"votes": "merged/ballots.npz", "groups": "merged/groups.csv"}
    yield (
        "sites ballots",
        secure(
            step("site ballots", sites=three),
            step("label", **sums, seed=7),
            step("label", **sums, out="real.csv"),
            step("label", **sums, out="real.csv"),
        ),
    )


def open_runs() -> Iterator[tuple[str, Case]]:
    """Runs with secure noise: what they promise and publish, and the ledger beside the file that they share."""
    for name, made in {
        "gdp": run(PEOPLE, **SECRET),
        "tight": run(PEOPLE, **SECRET, bound="tight"),
        "ptr": run(PEOPLE, **SECRET, **PTR),
        "rounds": run(HOSPITAL, **{**ROUNDS, **SECRET}),
        "interactive": run(HOSPITAL, **SECRET, **ASKED),
        "ballots": cast(HOSPITAL, **SECRET),
        "overlap": run({**HOSPITAL, "allow_overlap": True}, **SECRET),
    }.items():
        yield f"open {name}", secure(made)
    few = run(PEOPLE, **SECRET, out="few", max_labels=4)
    told = tuple(step("statement", out="out", person=person) for person in ("p5", "p6"))
    yield "twice two runs", secure(few, run(PEOPLE, **SECRET), *told)
    yield "twice spent", secure(run(PEOPLE, **SECRET, out="all"), run(PEOPLE, **SECRET))
    yield (
        "twice spent and dropped",
        secure(run(PEOPLE, **SECRET, out="all", rule="uniform"), run(PEOPLE, **SECRET, stop="drop")),
    )
    yield "twice ballots", secure(cast(PEOPLE, **SECRET, out="all"), cast(PEOPLE, **SECRET))
    yield "twice ballots after labels", secure(few, cast(PEOPLE, **SECRET))
    yield (
        "twice after a private bound",
        secure(run(PEOPLE, **SECRET, out="few", max_labels=4, bound="exact"), run(PEOPLE, **SECRET)),
    )
    yield (
        "twice on a seeded ledger",
        case(run(PEOPLE, out="few", max_labels=4, ledger="own.sqlite"), run(PEOPLE, ledger="own.sqlite")),
    )
    yield "twice resumed", case(run(PEOPLE), resume(PEOPLE))
    larger = {**PEOPLE, "policy": {"high": 30.0, "low": 60.0}}
    yield (
        "twice larger budgets",
        secure(few, run(larger, **SECRET, out="no"), run(larger, **SECRET, accept_larger_budgets=True)),
    )


def stopped() -> Iterator[tuple[str, Case]]:
    """Runs that are stopped in the middle and resumed."""
    go_on, in_hospital = resume(PEOPLE), resume(HOSPITAL)
    for name, (moment, options) in {
        "before training": ("before training", {}),
        "while training": ("after 5 teachers", {}),
        "after training": ("after training", {}),
        "while labelling": ("after 6 queries", {}),
        "while labelling tight": ("after 6 queries", {"bound": "tight"}),
        "while labelling drop": ("after 16 queries", {"stop": "drop", "rule": "uniform"}),
        "before the record": ("before the record", {}),
        "before the record ptr": ("before the record", PTR),
        "before the student": ("before the student", {}),
        "before the student counts": ("before the student", {**GNMAX, "counts": True}),
        "between rounds interactive": ("between rounds", ASKED),
    }.items():
        yield f"stopped {name}", case(run(PEOPLE, stop_at=moment, **options), go_on)
    yield "stopped between rounds graph", case(run(HOSPITAL, **ROUNDS, stop_at="between rounds"), in_hospital)
    yield "stopped in the second round graph", case(run(HOSPITAL, **ROUNDS, stop_at="after 10 queries"), in_hospital)
    yield "stopped in the second round interactive", case(run(PEOPLE, **ASKED, stop_at="after 24 queries"), go_on)
    for moment in ("before the release", "before the record"):
        yield f"stopped {moment} ballots", case(cast(PEOPLE, stop_at=moment), go_on)
    yield (
        "stopped again and again",
        case(
            run(PEOPLE, stop_at="after 5 teachers"),
            step("resume", stop_at="after 4 queries"),
            step("resume", stop_at="after 10 queries"),
            step("resume", stop_at="before the student"),
            go_on,
            go_on,
        ),
    )
    yield "stopped by a kill", case(run(PEOPLE, stop_at="after 6 queries", process="killed"), go_on)
    changed = step("spoil", file="people.csv", old=",high,p7\n", new=",low,p7\n")
    yield "stopped and changed", case(run(PEOPLE, stop_at="after 6 queries"), changed, go_on)
    other = run(PEOPLE, **SECRET, out="other", max_labels=5)
    yield "stopped and overtaken", secure(run(PEOPLE, **SECRET, stop_at="after 6 queries"), other, go_on)


def left() -> Iterator[tuple[str, Case]]:
    """Withdrawals between two runs, in the middle of one, and after it."""
    go_on, in_hospital = resume(PEOPLE), resume(HOSPITAL)
    leave = step("leave", person="p7")
    told = step("statement", person="p7")
    few = run(PEOPLE, **SECRET, out="few", max_labels=4)
    from_few = step("leave", person="p7", out="few")
    yield "left between two runs", secure(few, from_few, run(PEOPLE, **SECRET), told, step("statement", person="p8"))
    yield "left between two runs of ballots", secure(few, from_few, cast(PEOPLE, **SECRET), told)
    yield (
        "left between a run and fits",
        secure(
            run(BLOBS, **SECRET, max_labels=4, ledger="people.sqlite"),
            step("leave", person="7"),
            fit(**{**LEVELS, **SECRET}, ledger="people.sqlite"),
            poll(**{**LEVELS, **SECRET}, ledger="people.sqlite"),
        ),
    )
    yield (
        "left and consented again",
        secure(few, from_few, step("leave", person="p7", out="few", again=True), run(PEOPLE, **SECRET), told),
    )
    for variant in VARIANTS:
        yield (
            f"left while labelling {variant}",
            case(run(PEOPLE, **of(variant), stop_at="after 6 queries"), leave, go_on, told),
        )
    yield "left before labelling", case(run(PEOPLE, stop_at="after training"), leave, go_on, told)
    yield "left before training", case(run(PEOPLE, stop_at="before training"), leave, go_on, told)
    yield "left while labelling tight", case(run(PEOPLE, bound="tight", stop_at="after 6 queries"), leave, go_on, told)
    yield (
        "left while labelling openly",
        secure(run(PEOPLE, **SECRET, stop_at="after 6 queries"), leave, step("leave", person="p9"), go_on, told),
    )
    yield "left between rounds graph", case(run(HOSPITAL, **ROUNDS, stop_at="between rounds"), leave, in_hospital)
    yield "left between rounds interactive", case(run(PEOPLE, **ASKED, stop_at="between rounds"), leave, go_on)
    yield "left after the run", case(run(PEOPLE), leave, go_on, told, leave)
    yield "left before ballots", case(cast(PEOPLE, stop_at="before the release"), leave, go_on, told)
    yield "left after ballots", case(cast(PEOPLE, stop_at="before the record"), leave, go_on, told)
    yield "left after the test", case(run(PEOPLE, **PTR, stop_at="before the record"), leave, go_on)
    yield (
        "left while another run waits",
        secure(
            run(PEOPLE, **SECRET, out="few", max_labels=4),
            run(PEOPLE, **SECRET, stop_at="after training"),
            from_few,
            go_on,
            told,
        ),
    )


def refused() -> Iterator[tuple[str, Case]]:
    """Commands and fits that are refused, with the exit code and the line that is printed."""
    poor = {**PEOPLE, "policy": {"high": 0.5, "low": 1.0}}
    yield "refused too few labels", case(run(poor, min_labels=20))
    yield "refused ballots of noise", case(cast({**PEOPLE, "policy": {"high": 0.001, "low": 0.002}}))
    yield "refused unknown level", case(run({**PEOPLE, "policy": {"high": 20.0, "lax": 50.0}}))
    yield "refused too many teachers", case(run(PEOPLE, teachers=1000))
    yield "refused ptr vanishing", case(run(PEOPLE, **PTR, variant="vanishing"))
    yield "refused second run in a folder", case(run(PEOPLE), run(PEOPLE))
    yield "refused unknown person", case(run(PEOPLE), step("leave", person="nobody"), step("statement", person="no"))
    yield "refused fit of too few labels", case(fit(epsilon=0.5, given=("X_public",), min_labels=20))
    yield "refused fit without a pool", case(fit(given=("budgets",)))
    yield "refused fit of copies", case(fit(table="blobs of copies"))
    yield "refused ptr without a guess", case(label(bound="ptr"))


CASES: dict[str, Case] = {
    name: made
    for cases in (
        runs,
        sources,
        automatic,
        fits,
        ledgers_of_fits,
        labels,
        accounts,
        sites,
        open_runs,
        stopped,
        left,
        refused,
    )
    for name, made in cases()
}
