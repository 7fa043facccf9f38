"""Teachers: disjoint groups of people teach models, which vote on public points, with noise on their votes (PATE)."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Ints
from ipate.accounting.bounds import Meter, queries_afforded
from ipate.allocation.allocation import Allocation
from ipate.data.frames import n_rows
from ipate.engines.base import Attacks, Engine, Forecast, Means, Round
from ipate.engines.context import Bar, Facts, StandingOf, Store, Task, silent
from ipate.engines.teachers.asking import Asking, ask, plan_queries
from ipate.engines.teachers.forecast import forecast
from ipate.engines.teachers.influence import single_class_groups
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.outlook import check_enough
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.settings import TeacherOptions, TeacherSettings, choose_settings, designed
from ipate.engines.teachers.store import VoteStore, erase_votes, learnt_from, voted_in
from ipate.engines.teachers.tested import label_tested
from ipate.engines.teachers.tuning import group_limit
from ipate.engines.teachers.variants import allocate, find_variant
from ipate.engines.teachers.votes import Votes, count_votes
from ipate.engines.teachers.wording import described
from ipate.errors import BudgetExceededError, InputError
from ipate.files import fingerprint
from ipate.ledger.base import Checked, Ledger
from ipate.ledger.records import PRIVATE_COSTS, Terms
from ipate.models.named import NETS, as_teacher, dry_fit, dry_fit_net, make_model
from ipate.models.training import train_and_vote, train_nets_and_vote, vote_dtype
from ipate.people.budgets import Group
from ipate.people.people import People
from ipate.release.answers import paid_answers
from ipate.release.description import Description, from_outside
from ipate.release.lesson import Lesson
from ipate.release.noise import make_noise
from ipate.release.results import Labelling, Record
from ipate.students.confidence import label_distributions


@dataclass(kw_only=True)
class Teachers(TeacherOptions, Engine[TeacherSettings]):
    """Train teachers on disjoint people, let them vote on public points, and add noise to their votes.

    Every label has a cost, which is charged before the label is seen. See `ipate.engines.teachers` for the steps.
    """

    name: ClassVar[str] = "teachers"
    title: ClassVar[str] = "teachers"
    trains: ClassVar[bool] = True
    attacks: ClassVar[Attacks | None] = Attacks(by="ipate.audit.teachers:attack", real_people=True)

    @property
    def meter(self) -> Meter:
        """The bound and the conversion that count costs."""
        return Meter(self.bound, self.conversion)

    @property
    def nets(self) -> bool:
        """Whether the teachers are nets of the extra torch, which learn features of their own."""
        return isinstance(self.model, str) and self.model in NETS

    def group_limit(self, facts: Facts) -> int | None:
        """Return how many groups the expected teachers can serve."""
        return group_limit(
            facts.max_groups,
            n_people=facts.people.n_people,
            n_classes=facts.n_classes,
            n_teachers=self.number,
            points_per_teacher=self.points,
        )

    def chosen(self, means: Means) -> TeacherSettings:
        """Return the settings, every "auto" resolved from public facts and from what is left of the budgets."""
        return choose_settings(self, means)

    def settle(
        self, facts: Facts, standing: StandingOf, *, needed: int | str = "auto", key: str = "min_labels"
    ) -> TeacherSettings:
        """Return the settings of a run, with the design of a tested release made from its reference."""
        settings = super().settle(facts, standing, needed=needed, key=key)
        return self._designed(settings, facts) if settings.meter.whole else settings

    def varied(self, settings: TeacherSettings, variant: str, facts: Facts) -> TeacherSettings:
        """Return the same settings for another variant; under ptr with a new design, or else with gdp."""
        made = replace(settings, variant=variant, options={}, design=None)
        if settings.meter.whole and settings.reference is not None and settings.reference.simulator is not None:
            return self._designed(made, facts)
        return replace(made, meter=Meter("gdp"), reference=None) if settings.meter.whole else made

    def _designed(self, settings: TeacherSettings, facts: Facts) -> TeacherSettings:
        """Return the settings with the design of a tested release for all points of the pool."""
        allocation = self.allocate(settings.merged(facts.people), settings, facts.seed)
        queries = [str(index) for index in range(facts.n_pool)]
        return designed(settings, allocation, n_classes=facts.n_classes, queries=queries)

    def raw_accuracy(self, store: Store, task: Task) -> dict[str, float | None]:
        """Return the accuracy of the teachers and of their plurality on the pool, from private votes."""
        place, truth = store.place("votes"), task.truth
        if place is None or truth is None or (truth < 0).all():
            return {"accuracy": None, "plurality_accuracy": None}
        votes, known = np.load(place / "votes.npy", mmap_mode="r"), truth >= 0
        right = count_votes(votes, task.n_classes).argmax(axis=1) == truth
        accuracy = float(np.mean(votes[:, known] == truth[known]))
        return {"accuracy": accuracy, "plurality_accuracy": float(right[known].mean())}

    def read(self, values: dict[str, Any]) -> TeacherSettings:
        """Return the settings that were stored as plain data."""
        return TeacherSettings.from_plain(values)

    def check_useful(
        self, settings: TeacherSettings, means: Means, *, needed: int | str = "auto", key: str = "min_labels"
    ) -> None:
        """Refuse budgets and a pool that are expected to afford too few labels."""
        check_enough(self, settings, means, needed=needed, key=key)

    def forecast(self, means: Means, *, bar: Bar = silent) -> Forecast:
        """Return what budgets afford under every variant, with the settings that are chosen for it."""
        return forecast(self, means, bar=bar)

    def allocate(self, people: People, settings: TeacherSettings, seed: int) -> Allocation:
        """Return which people each teacher learns from, and what its vote weighs."""
        return allocate(settings.variant, people=people, n_teachers=settings.n_teachers, seed=seed, **settings.options)

    def terms(self, run: Round[TeacherSettings]) -> list[Terms]:
        """Return one account per group, or per teacher where teachers take turns."""
        settings, allocation = run.settings, run.allocation
        return account_terms(Panel.of(allocation.layout), settings.meter, settings.aggregator(allocation.scale))

    def maps(self, run: Round[TeacherSettings]) -> Asking:
        """Return the points to ask, which are stored before the first is asked and never chosen again."""
        settings, task = run.settings, run.task
        if settings.meter.whole:  # the design lists the queries in the order of the pool
            return Asking(first=np.arange(task.shape[0]))
        pool = task.pool("numbers" if settings.queries != "random" else self.form)
        made = plan_queries(
            pool, settings, n_classes=task.n_classes, seed=task.seed, n_jobs=run.compute.n_jobs, kind=self.kind(run)
        )
        first = run.store.once("queries", lambda: {"queries": made.first}, public=True)["queries"]
        rest = None if made.rest is None else made.rest[~np.isin(made.rest, first)]
        return replace(made, first=first, rest=rest)

    def check(self, run: Round[TeacherSettings], checked: Checked) -> None:
        """Refuse a run in which an account cannot pay for one more query, under a data-independent bound."""
        settings, allocation = run.settings, run.allocation
        if settings.meter.whole or allocation.participation is not None or not settings.meter.data_independent:
            return
        noise = settings.aggregator(allocation.scale).mechanism
        poor = []
        for row in checked.accounts:
            entry, account = row.terms, row.terms.account
            check, price = entry.meter.worst_query(
                sensitivity=account.sensitivity, sigma=noise.sigma, check_sigma=noise.check_sigma, noise=noise.noise
            )
            if row.opening.any() and not entry.fits(row.opening + check + price):
                poor.append((entry, entry.epsilon(row.opening)))
        if poor and (settings.stop != "drop" or len(poor) == len(checked.accounts)):
            entry, so_far = poor[0]
            spent = f"earlier runs spent ε = {so_far:.6g} of its budget {entry.account.epsilon:.6g}"
            raise BudgetExceededError(
                f"{checked.where}: group {entry.account.group.id!r} cannot pay for one more query: "
                f"{PRIVATE_COSTS if checked.private else spent}; leave its people out, ask for a new consent, or set "
                'stop = "drop" so that the other groups continue without them'
            )

    def try_out(self, run: Round[TeacherSettings]) -> None:
        """Refuse a teacher that fails on made-up rows, unless all teachers have voted already."""
        place, n_teachers = run.store.place("votes"), run.allocation.n_teachers
        if place is not None and voted_in(place).sum() >= n_teachers:
            return
        pool, teacher, compute = run.task.pool(self.form), self.teacher(), run.compute
        if self.nets:
            dry_fit_net(teacher, pool, n_classes=run.task.n_classes, device=compute.device, name=self.model)
            return
        rows = max(len(run.allocation.rows_of_teacher(index)) for index in range(n_teachers))
        named: dict[str, Any] = {"name": self.model} if isinstance(self.model, str) else {}
        known: dict[str, Any] = {"engine": compute, "cpu_seconds": compute.cpu_seconds, **named}
        dry_fit(teacher, pool, n_classes=run.task.n_classes, rows=rows, **known)

    def prepare(self, run: Round[TeacherSettings], maps: Asking) -> Votes:
        """Train the teachers that have not voted yet; votes are stored as they arrive, and notes on them privately."""
        task, allocation, place = run.task, run.allocation, run.store.place("votes")
        X, y, pool = task.rows(self.form), task.codes, task.pool(self.form)
        rows = [allocation.rows_of_teacher(index) for index in range(allocation.n_teachers)]
        votes = np.zeros((len(rows), n_rows(pool)), dtype=vote_dtype(task.n_classes))
        if place is None:
            self._train(run, rows, range(len(rows)), votes.__setitem__)
        else:
            store = VoteStore(
                place,
                n_teachers=len(rows),
                n_queries=n_rows(pool),
                n_classes=task.n_classes,
                fingerprint=fingerprint(pool, self.teacher(), task.seed),
                learnt=learnt_from(X, y, rows),
                vacant=allocation.vacant,
            )
            if allocation.teacher_groups is not None:
                store.describe(groups=allocation.teacher_groups)
            with store.writing() as put:
                self._train(run, rows, store.missing, put)
            votes = store.matrix
        return Votes(votes=votes, n_classes=task.n_classes, labels=task.truth)

    def _train(
        self, run: Round[TeacherSettings], rows: Sequence[Ints], missing: Sequence[int], put: Callable[[int, Any], None]
    ) -> None:
        """Train the missing teachers and pass on their votes; notes about them are kept whatever happens."""
        compute, allocation, notes = run.compute, run.allocation, dict[int, list[str]]()
        X, y, pool = run.task.rows(self.form), run.task.codes, run.task.pool(self.form)
        given: dict[str, Any] = {
            "rows": rows,
            "X_public": pool,
            "n_classes": run.task.n_classes,
            "missing": missing,
            "seed": run.task.seed,
            "notes": notes,
        }
        try:
            with run.bar("teachers trained", len(rows)) as progress:
                if self.nets:
                    given |= {"slots": allocation.teacher_sizes, "device": compute.device}
                    voted = train_nets_and_vote(
                        self.teacher(), X, y, n_jobs=compute.n_jobs or 1, progress=progress, **given
                    )
                else:
                    given |= {"n_jobs": compute.n_jobs, "backend": compute.backend, "address": compute.address}
                    voted = train_and_vote(
                        self.teacher(), X, y, cpu_seconds=compute.cpu_seconds, progress=progress, **given
                    )
                with closing(voted):
                    for number, own in voted:
                        put(number, own)
        finally:
            kept = run.store.noted().get("teachers", {})
            kept = {teacher: lines for teacher, lines in kept.items() if int(teacher) not in set(missing)}
            found = kept | {str(teacher): lines for teacher, lines in sorted(notes.items())}
            groups = [str(group) for group in single_class_groups(allocation, y)]
            run.store.note(teachers=found, groups=groups)

    def release(self, run: Round[TeacherSettings], maps: Asking, inputs: Votes, ledger: Ledger) -> Lesson:
        """Label the points in one round or two; every label is charged before it is released."""
        with run.bar("queries labelled", len(maps.first) + maps.later) as progress:

            def answer(order: Ints, after: Labelling | None = None, probs: Floats | None = None) -> Labelling:
                before = 0 if after is None else len(after.queries)
                return self._label(
                    run, inputs, ledger, order, after=after, probs=probs, progress=lambda done: progress(before + done)
                )

            result = ask(
                maps,
                answer,
                n_classes=inputs.n_classes,
                total_weight=float(run.allocation.weights.sum()),
                guess=None if run.guess is None else partial(run.guess, run),
                keep=lambda later: run.store.once("queries-later", lambda: {"queries": later})["queries"],
            )
        return self._lesson(run, run.recorded(result, ledger))

    def _label(
        self,
        run: Round[TeacherSettings],
        votes: Votes,
        ledger: Ledger,
        order: Ints,
        *,
        after: Labelling | None,
        probs: Floats | None,
        progress: Callable[[int], None],
    ) -> Labelling:
        """Label points; without a student's probabilities a check compares votes alone, at the same cost."""
        settings, allocation = run.settings, run.allocation
        aggregator, panel = settings.aggregator(allocation.scale), Panel.of(allocation.layout)
        aggregator = aggregator.without_student() if probs is None else aggregator
        ballot = replace(votes, groups=allocation.teacher_groups, weights=allocation.weights)
        if allocation.participation is not None:
            asked = order if after is None else np.concatenate([after.queries, order])
            present = allocation.participation.in_order(votes.n_queries, asked)
            ballot = replace(ballot, participation=present, weights=None)
        noise = make_noise(run.noise_seed)
        if settings.meter.whole:
            if settings.design is None:
                raise InputError("bound is 'ptr' without a design or a reference to make one from")
            return label_tested(
                ballot, panel, aggregator, settings.design, order=order, noise=noise, ledger=ledger, progress=progress
            )
        return label(
            ballot,
            panel,
            aggregator,
            settings.meter,
            stop=settings.stop,
            max_labels=settings.max_labels,
            order=order,
            noise=noise,
            ledger=ledger,
            progress=progress,
            after=after,
            student_probs=probs,
        )

    def restore(self, run: Round[TeacherSettings], maps: Asking, record: Record, ledger: Ledger) -> Lesson:
        """Return the lesson of an earlier labelling, whose answers must be those that the ledger was charged for."""
        record.check_answers({query: answer[0] for query, answer in paid_answers(ledger).answers.items()})
        return self._lesson(run, record)

    def lesson(self, run: Round[TeacherSettings], found: Labelling) -> Lesson:
        """Return what the labels so far teach, with the posterior of their counts."""
        return self._lesson(run, Record.of(found, n_public=run.task.shape[0]))

    def _lesson(self, run: Round[TeacherSettings], record: Record) -> Lesson:
        """Return the labels, with the posterior of their counts where counts were released."""
        if record.noisy_votes is None or record.step is None:
            return Lesson(record=record)
        targets = label_distributions(
            record.labels,
            n_classes=run.task.n_classes,
            noisy_votes=record.noisy_votes,
            step=record.step,
            total_weight=float(run.allocation.weights.sum()),
        )
        given = [query for query in record.queries if record.step[query] > 0]
        names = run.task.points[given]
        counts = {"queries": names, "counts": record.noisy_votes[given], "step": record.step[given]}
        return Lesson(record=record, targets=targets, arrays={"counts": {**counts, "labels": record.labels[given]}})

    def teacher(self) -> Any:
        """Return the untrained model of a teacher."""
        return make_model(self.model, self.options) if isinstance(self.model, str) else as_teacher(self.model)

    @property
    def form(self) -> str:
        """The form in which teachers read rows."""
        return "images" if self.nets else "model"

    def standard_labels(self, settings: TeacherSettings, groups: Sequence[Group], record: Record) -> int | None:
        """Return how many labels standard PATE affords at the strictest budget, by data-independent accounting.

        The pool and the share of queries that are answered are those of the record.
        """
        answer_rate = record.n_labels / max(1, record.n_queries)
        known = settings.meter.data_independent and not settings.meter.whole
        meter = settings.meter if known else Meter("gdp")
        noise = settings.aggregator().mechanism
        queries = queries_afforded(
            meter,
            epsilon=min(group.epsilon for group in groups),
            delta=min(group.delta for group in groups),
            sensitivity=1.0,
            sigma=noise.sigma,
            check_sigma=noise.check_sigma,
            noise=noise.noise,
            answer_rate=answer_rate,
        )
        labels = int(min(queries, len(record.labels)) * answer_rate)
        return labels if settings.max_labels is None else min(labels, settings.max_labels)

    def parts(self, settings: TeacherSettings) -> dict[str, object]:
        """Return the parts that the promise rests on, by kind."""
        own = {"variant": find_variant(settings.variant), "aggregator": settings.aggregator()}
        return super().parts(settings) | own

    def report(self, settings: TeacherSettings, allocation: Allocation) -> Description:
        """Return what the engine states about a labelling for its report."""
        teacher = self.model if isinstance(self.model, str) else type(self.model).__name__
        return described(settings, allocation, teacher=teacher, outside=from_outside(**self.parts(settings)))

    def trained(self, private: Path) -> NDArray[np.bool_]:
        """Return which teachers of a run have voted; empty before the first."""
        return voted_in(private / "votes")

    def forget(self, private: Path, models: Sequence[int]) -> None:
        """Erase the votes of some teachers of a run, so that they are trained again."""
        erase_votes(private / "votes", models)
