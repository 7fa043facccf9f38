"""Play a case with today's ipate and return its results: the only place that knows today's names.

Everything that a rearrangement may rename stands here: commands and flags, sections and keys of a configuration,
parameters and attributes of `PATEClassifier`, files in a run's folder, keys of the printed JSON, and the internals that
are replaced to stop a run in the middle. The cases (`cases.py`) use the names on the left of the tables below, which
stay. Whoever renames something edits this file, and neither the cases nor the recorded results.

Results are plain values: numbers as they are, hashes of arrays and of tables (`digest`), and class names.
"""

import contextlib
import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import linecache
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import typer.main
from sklearn.model_selection import cross_validate
from threadpoolctl import threadpool_limits

import ipate
from golden import inputs
from golden.cases import Case, Step
from ipate import PATEClassifier
from ipate.cli.app import _run
from ipate.errors import IpateError
from ipate.release.noise import SecureNoise, SeededNoise

TESTS = Path(__file__).resolve().parents[1]
REPLAY = 11  # the seed that replaces the secret keys where a case needs secure noise and equal results

# --- names: on the left those of the cases, on the right those of today ---

COMMANDS = {
    "run": ("run",),
    "resume": ("run", "--resume"),
    "leave": ("withdraw",),
    "statement": ("statement",),
    "predict": ("predict",),
    "label": ("label",),
    "account": ("account",),
    "design": ("design",),
    "site queries": ("parties", "queries"),
    "site fit": ("party", "fit"),
    "site vote": ("party", "vote"),
    "site declare": ("party", "declare"),
    "site cells": ("parties", "cells"),
    "site ballots": ("party", "ballots"),
    "site merge": ("parties", "merge"),
}

SECTIONS = {  # of a configuration ("" is its head), with the keys that have the name of their option
    "data": "name file public_file test_file schema_file label level person consent_date consent_version classes "
    "features drop categories dates numbers missing public test public_column public_without_protection allow_overlap",
    "budgets": "policy policy_version policy_date shares epsilon delta merge_within max_groups min_group_size",
    "teachers": "backend",
    "labelling": "embedding queries counts variant rule power aggregator sigma check_sigma threshold scale bound "
    "conversion stop max_labels min_labels",
    "reference": "accuracy spread confusion reserve fallback",
    "": "seed split_seed compare benchmark ledger fresh_ledger new_people accept_larger_budgets",
}
KEYS = {name: (section, name) for section, names in SECTIONS.items() for name in names.split()}
KEYS |= {  # the other keys
    "epsilon_column": ("data", "epsilon"),
    "teacher": ("teachers", "model"),
    "teacher_options": ("teachers", "options"),
    "teachers": ("teachers", "number"),
    "jobs": ("teachers", "n_jobs"),
    "engine": ("labelling", "voting"),
    "student": ("student", "model"),
    "student_options": ("student", "options"),
}

SAME = (
    "teacher student embedding queries counts variant epsilon delta merge_within max_groups min_group_size aggregator "
)
SAME += "sigma check_sigma threshold scale bound conversion stop max_labels min_labels public_fraction allow_overlap "
SAME += "classes backend ledger accept_larger_budgets"
PARAMETERS = {name: name for name in SAME.split()}  # of PATEClassifier
PARAMETERS |= {
    "engine": "voting",
    "teachers": "n_teachers",
    "points": "points_per_teacher",
    "accuracy": "reference",
    "jobs": "n_jobs",
    "split_seed": "random_state",
    "seed": "noise_seed",
}

FLAGS: dict[str, str] = {}  # of commands on votes, where they are not the name of the option
SWITCHES = {"counts", "fallback", "fresh_ledger", "accept_larger_budgets", "merge_equal"}  # flags without a value

MOMENTS = {  # where a run can be stopped, and the functions that are replaced for it
    "before training": ("ipate.engines.teachers.engine.Teachers.prepare",),
    "after training": ("ipate.runs.ledgers.FolderBook.begin",),
    "between rounds": ("ipate.engines.teachers.asking.next_queries", "ipate.pipeline.guess"),
    "before the release": ("ipate.engines.ballots.engine.release",),
    "before the record": ("ipate.runs.store.FolderStore.keep_record",),
    "before the student": ("ipate.pipeline.Pupil.taught",),
    "before the student of a fit": ("ipate.pipeline.Pupil.taught",),
    "before the labels file": ("ipate.cli.label._finish",),
}
BARS = {"queries": ("queries labelled", "labelling"), "teachers": ("teachers trained",)}  # titles of progress bars
BAR_OF = ("ipate.cli.run.progress_bar", "ipate.cli.label.progress_bar")
BATCH = "ipate.engines.teachers.loop.batch_size"
IDLE = {  # what costs time and gives no result: reports, waiting for a disk, reading options and versions anew
    "ipate.runs.stages.write_report": lambda folder, **_: SimpleNamespace(html=folder.path / "report.html"),
    "os.fsync": lambda _: None,
    "typer.main.get_command": cache(typer.main.get_command),
    "importlib.metadata.version": cache(importlib.metadata.version),
}
if importlib.util.find_spec("torch"):  # no teacher here uses it, and skops imports it where it is installed
    IDLE |= {"torch.manual_seed": lambda _: None, "torch.cuda.seed_all": lambda: None}

ALLOCATION, VOTES = "private/allocation.npz", "private/votes/votes.npy"  # files of a run's folder
SHOWN = ("public", "private")
LABELS, COUNTS, BALLOTS, COSTS = "labels.csv", "counts.npz", "ballots.npz", "guarantee.json"


def named(same: str, **others: str) -> dict[str, str]:
    """Return names of results with their keys of today, which are the same unless they are given."""
    return {name: name for name in same.split()} | others


GROUP = named(  # a group's budget and cost in JSON
    "people teachers weight budget delta sensitivity order exhausted_at",
    before="spent_before",
    own="this_run_alone",
    cost="epsilon",
    labels="labels_until_exhausted",
)
FACTS = named(  # of a run or a labelling in JSON
    "guarantee seeded overlap variant teachers people unprotected sigma check_sigma threshold bound conversion "
    "engine stopped_by passed labels queries reinforced answered counts ballots",
    scale="laplace_scale",
    standard_pate="labels_of_standard_pate",
    labels_right="voting_accuracy",
    right="accuracy",
    student_right="student_accuracy",
)
COMPARED = named("labels", labels_right="voting_accuracy", student_right="student_accuracy")
STATEMENT = named("asked group budget guaranteed seeded private_costs allowed labels checks ballots spent left")
ENTRY = named("group budget bound labels checks ballots epsilon")
LEFT = named("group teachers trained labelling labels checks ballots bound kind epsilon")
DESIGN = named("queries levels pass_probability_at_best reserve fallback groups")
PROMISE = named("seeded overlap")  # attributes of a guarantee
DIFFERENT = {  # parts of messages that differ between two runs of a case
    r"\b[0-9a-f]{32,}\b": "HASH",
    r"\b(fit|label) [0-9a-f]{16}\b": r"\1 ID",
    r"(?<=-)[0-9a-f]{8}\b": "ID",
    r"\d{4}-\d\d-\d\dT[\d:.]+([+-]\d\d:\d\d|Z)?": "TIME",
}


# --- playing a case ---


def play(case: Case, folder: Path) -> dict[str, Any]:
    """Return the results of every step of a case, which is played in an empty folder."""
    with contextlib.chdir(folder), ExitStack() as stack:
        for target, nothing in IDLE.items():
            stack.enter_context(mock.patch(target, nothing))
        stack.enter_context(threadpool_limits(1))
        stack.enter_context(noise_of_seeds(secure=case.replayed))
        made = Play(folder)
        found = {f"{place} {step.verb}": made.step(step) for place, step in enumerate(case.steps, 1)}
    return dict(json.loads(json.dumps(found, allow_nan=False)))


@contextmanager
def noise_of_seeds(*, secure: bool) -> Iterator[None]:
    """Draw the test of ptr from the seed alone, and with `secure` all secure noise from a fixed seed.

    Without this, the draw of the test depends on the name of the run, of which a part is random. Secure noise from a
    seed still counts as secure, so guarantees, published files and ledgers are those of a run without a seed.
    """
    uniform = SeededNoise.uniform

    def tested(self: Any, purpose: str, queries: Sequence[str], width: int) -> Any:
        return uniform(self, purpose, ["the test"] * len(queries), width)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(SeededNoise, "uniform", tested))
        for kind in ("normal", "laplace", "uniform") if secure else ():
            drawn = getattr(SeededNoise(REPLAY), kind)
            stack.enter_context(mock.patch.object(SecureNoise, kind, lambda _, *given, own=drawn: own(*given)))
        yield


class Play:
    """The steps of one case; a step's verb is the name of a method."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def step(self, step: Step) -> dict[str, Any]:
        """Write the files that a step names, play it, and return its results."""
        for value in step.given.values():
            if isinstance(value, str):
                inputs.provide(value, self.folder)
        found: dict[str, Any] = getattr(self, step.verb.replace(" ", "_"))(**step.given)
        return found

    def command(self, name: str, *arguments: object, moment: str | None = None, process: str | None = None) -> "Ran":
        """Run a command, in this process unless a case wants another; it may be stopped or killed at a moment."""
        argv = [*COMMANDS[name], *(str(argument) for argument in arguments if argument is not None)]
        if process is not None:
            return self.process(argv, moment if process == "killed" else None)
        out, err = io.StringIO(), io.StringIO()
        with stopped_at(moment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _run(argv)
        return Ran(code, out.getvalue(), err.getvalue(), self.folder)

    def process(self, argv: Sequence[str], moment: str | None) -> "Ran":
        """Run a command in a process of its own, which is killed at a moment if one is named."""
        paths = [str(Path(ipate.__file__).resolve().parents[1]), str(TESTS)]
        if moment is None:
            command = [sys.executable, "-m", "ipate", *argv]
        else:
            code = "import json, sys; from golden.drive import die; die(sys.argv[1], json.loads(sys.argv[2]))"
            command = [sys.executable, "-c", code, moment, json.dumps(list(argv))]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        return Ran(ran.returncode, ran.stdout, ran.stderr, self.folder)

    # --- runs ---

    def run(
        self,
        *,
        out: str = "out",
        stop_at: str | None = None,
        points: str | None = None,
        process: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Begin a run in a folder, from a configuration file."""
        (self.folder / f"{out}.toml").write_text(configuration(options), encoding="utf-8")
        ran = self.command("run", f"{out}.toml", "--out", out, "--json", moment=stop_at, process=process)
        return self.outcome(ran, out, points)

    def resume(self, *, out: str = "out", stop_at: str | None = None, points: str | None = None) -> dict[str, Any]:
        """Go on with a run."""
        return self.outcome(self.command("resume", out, "--json", moment=stop_at), out, points)

    def outcome(self, ran: "Ran", out: str, points: str | None) -> dict[str, Any]:
        """Return what a run printed and what is in its folder."""
        found = ran.end()
        if ran.code == 0:
            facts = flat(json.loads(ran.out))
            compared = {
                kind: chosen(own, COMPARED)
                for kind, own in (facts.get("compare") or {}).items()
                if isinstance(own, dict)
            }
            found |= chosen(facts, FACTS) | {"groups": of_groups(facts["groups"])}
            found |= {"compared": compared} if compared else {}
            found |= {} if points is None else {"predicted": self.predicted(out, points)}
        return found | self.held(self.folder / out)

    def held(self, folder: Path) -> dict[str, Any]:
        """Return hashes of the files of a run: allocation, votes, labels, counts and ballots, as far as they exist."""
        found: dict[str, Any] = {}
        if (folder / ALLOCATION).is_file():
            with np.load(folder / ALLOCATION) as kept:
                found |= dealt(kept["persons"], kept["offsets"], kept["weights"])
        if (folder / VOTES).is_file():
            found["votes"] = digest(np.load(folder / VOTES))
        for place in SHOWN:
            shown = folder / place
            if (shown / LABELS).is_file():
                found |= {"published": place == "public", "labels_file": digest_csv(shown / LABELS)}
                found |= chosen(json.loads((shown / COSTS).read_text(encoding="utf-8")), {"passed": "passed"})
            if (shown / COUNTS).is_file():
                found["counts_file"] = digest_npz(shown / COUNTS)
            if (shown / BALLOTS).is_file():
                found["ballots_file"] = digest_npz(shown / BALLOTS, only=("histogram", "confidence"))
        return found

    def predicted(self, out: str, points: str) -> Any:
        """Return the hash of the classes that the student of a run predicts at points."""
        inputs.provide(points, self.folder)
        file = of_data_set(points, self.folder)
        ran = self.command("predict", out, file, "--out", f"{out}.predictions.csv", "--json")
        return digest_csv(self.folder / f"{out}.predictions.csv") if ran.code == 0 else ran.end()["error"]

    def leave(self, *, person: str, out: str = "out", again: bool = False) -> dict[str, Any]:
        """Withdraw a person, or record that they consented again."""
        ran = self.command("leave", out, person, "--consented-again" if again else "--yes", "--json")
        return ran.end() | (chosen(json.loads(ran.out), LEFT) if ran.code == 0 else {})

    def statement(self, *, person: str, out: str = "out") -> dict[str, Any]:
        """Return what a run and its ledger state about a person, for the data owner."""
        ran = self.command("statement", out, person, "--private", "--json")
        if ran.code:
            return ran.end()
        told = json.loads(ran.out)
        left = {"withdrawn": True} if told.get("withdrawn") is not None else {}
        entries = [chosen(entry, ENTRY) for entry in told.get("entries", [])]
        return ran.end() | chosen(told, STATEMENT) | left | {"entries": entries}

    def spoil(self, *, file: str, old: str, new: str) -> dict[str, Any]:
        """Replace text in an input file."""
        text = (self.folder / file).read_text(encoding="utf-8")
        (self.folder / file).write_text(text.replace(old, new), encoding="utf-8")
        return {"replaced": text.count(old)}

    # --- votes that are there already ---

    def label(
        self,
        *,
        votes: str,
        groups: str,
        out: str = "labels.csv",
        stop_at: str | None = None,
        process: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Label the queries of a votes file, or the points of a file of ballots."""
        given = [votes, "--groups", groups, "--out", out, *flags(options), "--json"]
        ran = self.command("label", *given, moment=stop_at, process=process)
        found, path = ran.end(), self.folder / out
        if ran.code == 0:
            told = json.loads(ran.out)
            facts = flat(told)
            found |= chosen(facts, FACTS) | {"groups": of_groups(facts["groups"])}
            found["stored"] = [{k: v for k, v in entry.items() if k != "run"} for entry in facts.get("stored") or []]
            found |= {"ledger": Path(told["files"]["ledger"]).name} if told["files"]["ledger"] else {}
        found |= {"labels_file": digest_csv(path)} if path.is_file() else {}
        for name in ("counts", "confidence"):
            beside = path.with_name(f"{out}.{name}.npz")
            only = ("labels", "confidence", "counts", "step", "queries")
            found |= {f"{name}_file": digest_npz(beside, only=only)} if beside.is_file() else {}
        return found

    def account(self, *, votes: str, groups: str, history: bool = False, **options: Any) -> dict[str, Any]:
        """Account for releases on a votes file."""
        more = ["--history", "history.csv"] if history else []
        ran = self.command("account", votes, "--groups", groups, *flags(options), *more, "--json")
        found = ran.end()
        if ran.code == 0 and options.get("bound") == "all":
            told = json.loads(ran.out)
            for bound in sorted({*told["publishable"]["bounds"], *told["private"]["bounds"]}):
                own = {block: told[block]["bounds"].get(bound) for block in ("publishable", "private")}
                facts = flat(own)
                found[bound] = chosen(facts, FACTS) | {"groups": of_groups(facts["groups"])}
        elif ran.code == 0:
            facts = flat(json.loads(ran.out))
            found |= chosen(facts, FACTS) | {"groups": of_groups(facts["groups"])}
        file = self.folder / "history.csv"
        return found | ({"history": digest_csv(file, digits=9)} if file.is_file() else {})

    def design(self, *, votes: str, groups: str, out: str, **options: Any) -> dict[str, Any]:
        """Design the test of the bound ptr."""
        ran = self.command("design", votes, "--groups", groups, "--out", out, *flags(options), "--json")
        return ran.end() | (chosen(json.loads(ran.out), DESIGN) if ran.code == 0 else {})

    # --- sites ---

    def site_votes(
        self,
        *,
        sites: Sequence[str],
        teacher: str = "bayes",
        variant: str = "weighting",
        points: int = 20,
        split_seed: int = 3,
        merge_equal: bool = False,
        weights: str = "gdp",
    ) -> dict[str, Any]:
        """Let sites fit teachers and vote on the aggregator's queries, and merge their votes into `merged`."""
        found = self.site_queries()
        for name in sites:
            inputs.site(self.site_folder(name), name)
            given = ["--queries", "queries.npz", *self.roles(name), "--variant", variant, "--teacher", teacher]
            given += ["--points-per-teacher", points, "--split-seed", split_seed, "--out", f"{name}/site", "--json"]
            ran = self.command("site fit", f"{name}/rows.csv", *given)
            told = json.loads(ran.out)
            found[name] = ran.end() | {"people": told["people"], "teachers": told["teachers"], "groups": told["groups"]}
            ran = self.command("site vote", f"{name}/site", "queries.npz", "--out", f"{name}.npz", "--json")
            with np.load(f"{name}.npz") as sent:
                found[name] |= {"vote": ran.code, "votes": digest(sent["votes"])}
        files = [f"{name}.npz" for name in sites]
        given = ["--queries", "queries.npz", "--weights", weights, *(["--merge-equal"] if merge_equal else [])]
        ran = self.command("site merge", *files, *given, "--out", "merged", "--json")
        merged = {"votes": digest_npz(Path("merged/votes.npz")), "groups": digest_csv(Path("merged/groups.csv"))}
        return found | {"merged": ran.end() | {"rows": json.loads(ran.out)["groups"]} | merged}

    def site_ballots(self, *, sites: Sequence[str]) -> dict[str, Any]:
        """Let sites declare their people and cast ballots into the aggregator's cells, and merge the sums."""
        found = self.site_queries()
        for name in sites:
            inputs.site(self.site_folder(name), name)
            given = ["--queries", "queries.npz", *self.roles(name), "--out", f"{name}/site", "--json"]
            ran = self.command("site declare", f"{name}/rows.csv", *given)
            told = json.loads(ran.out)
            found[name] = ran.end() | {"people": told["people"], "groups": told["groups"]}
        declared = [f"{name}/site/declaration.json" for name in sites]
        ran = self.command("site cells", "queries.npz", *declared, "--partitions", 4, "--out", "cells.npz", "--json")
        units = [group["units"] for group in json.loads(ran.out)["groups"]]
        found["cells"] = ran.end() | {"units": units}
        for name in sites:
            ran = self.command("site ballots", f"{name}/site", "cells.npz", "--out", f"{name}.npz", "--json")
            with np.load(f"{name}.npz") as sent:
                found[name] |= {"cast": ran.code, "ballots": digest(sent["ballots"])}
        files = [f"{name}.npz" for name in sites]
        given = ["--cells", "cells.npz", "--queries", "queries.npz", "--out", "merged", "--json"]
        ran = self.command("site merge", *files, *given)
        only = ("ballots", "cells", "groups", "units", "queries")
        merged = {"ballots": digest_npz(Path("merged/ballots.npz"), only=only)}
        return found | {"merged": ran.end() | {"rows": json.loads(ran.out)["groups"]} | merged}

    def site_queries(self) -> dict[str, Any]:
        """Make the queries of all sites."""
        inputs.provide("pool.csv", self.folder)
        given = ["--classes", "well,ill", "--bounds", "bounds.csv", "--id-column", "name", "--out", "queries.npz"]
        ran = self.command("site queries", "pool.csv", *given, "--json")
        return {"queries": ran.end() | {"number": json.loads(ran.out)["queries"]}}

    def site_folder(self, name: str) -> Path:
        """Make the folder of a site."""
        (self.folder / name).mkdir()
        return self.folder / name

    def roles(self, name: str) -> list[str]:
        """Return the options that say which columns of a site's rows are what."""
        columns = ["--label", "diagnosis", "--level", "consent", "--person", "patient"]
        return ["--site", name, *columns, "--policy", f"{name}/policy.toml"]

    # --- the classifier ---

    def fit(
        self,
        *,
        table: str,
        form: str = "array",
        given: Sequence[str] = ("budgets", "X_public", "y_public"),
        by_name: bool = False,
        policy: Mapping[str, float] | None = None,
        stop_at: str | None = None,
        search: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Fit a `PATEClassifier`, and return its attributes, its predictions, and where its warnings point."""
        world = inputs.TABLES[table]()
        X, y = inputs.frame(form, world["X"]), world["y"]
        more = {name: world[name] for name in given}
        for name in {"X_public"} & more.keys():
            more[name] = inputs.frame(form, more[name])
        if "labelled" in more:
            more["labelled"] = (inputs.frame(form, world["labelled"][0]), world["labelled"][1])
        if by_name:  # columns of the private frame are named instead of given
            columns = {"y": y, **{name: more[name] for name in ("budgets", "levels", "person_id") if name in more}}
            own = world["X"] if isinstance(world["X"], dict) else {f"x{p}": c for p, c in enumerate(world["X"].T)}
            X, y = inputs.frame(form, {**own, **columns}), "y"
            more |= {name: name for name in columns if name != "y"}
        more |= {} if policy is None else {"policy": dict(policy)}
        wanted = {PARAMETERS[name]: model_of(value) for name, value in options.items() if value is not None}
        model = PATEClassifier(**wanted, verbose=0)
        with warnings.catch_warnings(record=True) as caught, stopped_at(stop_at):
            warnings.simplefilter("always")
            if search:  # a cross-validation, as a warning says not to
                cross_validate(model, X, y, cv=2, params=more, error_score="raise")
                failed: dict[str, Any] = {}
            else:
                failed = attempt(lambda: model.fit(X, y, **more))
        found = failed | {"warned": [pointed(warning) for warning in caught if is_ours(warning)]}
        return found if search or failed else found | fitted(model, inputs.frame(form, world["points"]))


def fitted(model: Any, points: Any) -> dict[str, Any]:
    """Return the attributes of a fitted classifier, and the classes that it predicts at points."""
    labelling, allocation, promise = model.labelling_, model.allocation_, model.guarantee_
    arrays = {
        "labels_": model.labels_,
        "noisy_votes_": model.noisy_votes_,
        "asked": labelling.queries,
        "answered": labelling.answered,
        "reinforced": labelling.reinforced,
        "confidence": labelling.confidence,
        "predicted": model.predict(points),
        "classes": model.classes_,
    }
    return {
        **{name: digest(value) for name, value in arrays.items() if value is not None},
        **dealt(allocation.persons, allocation.offsets, allocation.weights),
        "guarantee": promise.kind,
        "publishable": promise.publishable,
        **chosen(vars(promise), PROMISE),
        "labels": labelling.n_labels,
        "queries": labelling.n_queries,
        "stopped_by": labelling.stopped_by,
        **({} if labelling.passed is None else {"passed": labelling.passed}),
        "bound": labelling.meter.bound,
        "conversion": labelling.meter.conversion,
        "engine": model.choice_.engine,
        "variant": allocation.variant,
        "teachers": allocation.n_teachers,
        "people": allocation.people.n_people,
        "right": model.vote_accuracy_,
        "rows_without_class": model.private_notes_["rows_without_class"],
        "groups": of_groups([group.as_json() for group in model.guarantees_]),
    }


def dealt(persons: Any, offsets: Any, weights: Any) -> dict[str, Any]:
    """Return hashes of who sits where and of what the votes weigh, and the number of empty places."""
    empty = int(np.count_nonzero(np.asarray(persons) < 0))
    return {"dealt": [digest(persons), digest(offsets), digest(weights)]} | ({"empty": empty} if empty else {})


def attempt(call: Callable[[], object]) -> dict[str, Any]:
    """Call a function; return nothing, or what it was refused with."""
    try:
        call()
    except KeyboardInterrupt:
        return {"error": "stopped"}
    except IpateError as error:
        return {"error": f"{type(error).__name__}: {plain(str(error), Path.cwd())}"}
    return {}


def is_ours(warning: warnings.WarningMessage) -> bool:
    """Return whether a warning is one of ipate's."""
    return warning.category.__module__.startswith("ipate")


def pointed(warning: warnings.WarningMessage) -> list[Any]:
    """Return a warning's category, whose file it points to, and whether that line calls `fit`."""
    line, file = linecache.getline(warning.filename, warning.lineno), Path(warning.filename)
    whose = (
        "the caller"
        if file == Path(__file__)
        else next((name for name in reversed(file.parts) if name in ("sklearn", "ipate", "golden")), "another")
    )
    return [warning.category.__name__, whose, ".fit(X" in line]


def model_of(value: Any) -> Any:
    """Return what a classifier takes for a model: a name as it is, or the estimator of a case."""
    return inputs.mixed_columns() if value == "mixed columns" else value


# --- stopping in the middle ---


@contextmanager
def stopped_at(moment: str | None, *, stop: Callable[[], None] | None = None) -> Iterator[None]:
    """Stop what happens inside at a moment: one of `MOMENTS`, or such as "after 6 queries" or "after 5 teachers"."""
    if moment is None:
        yield
        return
    end = stop or interrupt
    with ExitStack() as stack:
        if moment in MOMENTS:
            for target in MOMENTS[moment]:
                stack.enter_context(mock.patch(target, side_effect=lambda *_, **__: end()))
        else:
            _, number, unit = moment.split()
            for target in BAR_OF:
                stack.enter_context(mock.patch(target, ending_bar(BARS[unit], int(number), end)))
            if unit == "queries":
                stack.enter_context(mock.patch(BATCH, return_value=2))
        yield


def interrupt() -> None:
    """Do what ^C does."""
    raise KeyboardInterrupt


def ending_bar(titles: Sequence[str], number: int, end: Callable[[], None]) -> Callable[..., Any]:
    """Return a progress bar that shows nothing and ends the command when so many are done."""

    @contextmanager
    def bar(title: str, _: int, **__: object) -> Iterator[Callable[[int], None]]:
        yield lambda done: end() if title in titles and done >= number else None

    return bar


def die(moment: str, argv: list[str]) -> None:
    """Run a command in this process, which is a child's, and end the process at a moment as a kill would."""
    with stopped_at(moment, stop=lambda: os._exit(9)):
        sys.exit(_run(argv))


# --- options ---


def configuration(options: Mapping[str, Any]) -> str:
    """Return the TOML text of a run with these options."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if value is not None:
            section, key = KEYS[name]
            sections.setdefault(section, {})[key] = value
    lines = [f"{key} = {toml(value)}" for key, value in sections.pop("", {}).items()]
    for section, keys in sections.items():
        lines += [f"[{section}]", *(f"{key} = {toml(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(own)}" for key, own in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as flags of the command line."""
    found: list[str] = []
    for name, value in options.items():
        if value is not None:
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            found += ([flag] if value else []) if name in SWITCHES else [flag, str(value)]
    return found


def of_data_set(points: str, folder: Path) -> Path:
    """Return a file of points to predict; a data set of the package gives its first rows."""
    if points not in ("digits", "synthetic"):
        return folder / points
    data = ipate.load(points)
    if data.kind == "image":
        path = folder / "images.npz"
        np.savez(path, X=data.X[:300])
        return path
    path, rows = folder / "rows.csv", np.asarray(data.X[:300])
    inputs.table(path, [dict(zip(data.feature_names, row, strict=True)) for row in rows.tolist()])
    return path


# --- results ---


@dataclass(frozen=True)
class Ran:
    """What a command answered in a folder."""

    code: int
    out: str
    err: str
    folder: Path

    def end(self) -> dict[str, Any]:
        """Return the exit code, and the last line of stderr where a command has failed or refused its input."""
        if self.code not in (1, 2):
            return {"exit": self.code}
        lines = self.err.strip().splitlines() or [""]
        return {"exit": self.code, "error": plain(lines[-1], self.folder)}


def plain(text: str, folder: Path) -> str:
    """Return a message without what differs between two recordings: the folder, ids of runs, times and hashes."""
    text = text.replace(str(folder.resolve()), "DIR").replace(str(folder), "DIR")
    for pattern, name in DIFFERENT.items():
        text = re.sub(pattern, name, text)
    return text


def flat(told: Mapping[str, Any]) -> dict[str, Any]:
    """Join the public and the private block of printed results; groups are joined by their names."""
    public, private = told.get("publishable") or {}, told.get("private") or {}
    costs = {group["group"]: group for group in private.get("groups", ())}
    joined = {**private, **{name: value for name, value in public.items() if value is not None}}
    rows = public.get("groups") or private.get("groups", ())
    return joined | {"groups": [{**group, **costs.get(group["group"], {})} for group in rows]}


def chosen(facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts that a case compares, under their own names; what is missing, None or false is left out."""
    found = {name: facts[key] for name, key in names.items() if facts.get(key) is not None}
    return {name: value for name, value in found.items() if value is not False or name == "passed"}


def of_groups(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return every group's budget and costs; a sensitivity that is the weight and a cost of 0 before are left out."""
    found = {str(row["group"]): chosen(row, GROUP) for row in rows}
    for group in found.values():
        if group.get("sensitivity") == group.get("weight"):
            group.pop("sensitivity", None)
        if group.get("before") == 0:
            del group["before"]
    return found


def digest(array: Any) -> str:
    """Return a hash of an array's shape and elements, whatever the width of its numbers and the order of bytes."""
    values = np.asarray(array)
    if values.dtype.kind in "biu":
        data = np.ascontiguousarray(values, dtype="<i8").tobytes()
    elif values.dtype.kind == "f":
        data = np.ascontiguousarray(values, dtype="<f8").tobytes()
    else:
        data = json.dumps([str(value) for value in values.ravel().tolist()]).encode()
    return hashlib.sha256(f"{list(values.shape)}\n".encode() + data).hexdigest()[:16]


def digest_csv(path: Path, *, digits: int | None = None) -> list[Any]:
    """Return the number of rows of a table and a hash of its cells, whatever the ends of lines.

    With `digits`, fractions are rounded: a hash of their last bits would be another one on another processor.
    """
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    if digits is not None:
        rows = [
            [f"{float(cell):.{digits}g}" if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", cell) else cell for cell in row]
            for row in rows
        ]
    return [len(rows) - 1, hashlib.sha256("\n".join(",".join(row) for row in rows).encode()).hexdigest()[:16]]


def digest_npz(path: Path, *, only: Sequence[str] = ()) -> dict[str, str]:
    """Return a hash of every array of a file, or of some."""
    with np.load(path, allow_pickle=False) as held:
        return {name: digest(held[name]) for name in sorted(held.files) if not only or name in only}
