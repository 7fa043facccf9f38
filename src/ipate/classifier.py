"""`PATEClassifier`: Individualized PATE as a scikit-learn classifier."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ipate._version import library_versions
from ipate.allocation.allocation import Allocation
from ipate.data import cells
from ipate.data.frames import check_form, check_shared, is_frame, matched, n_rows, parts, take, without
from ipate.engines.ballots.engine import Ballots
from ipate.engines.choose import Request
from ipate.engines.context import MemoryBook
from ipate.engines.teachers.engine import Teachers
from ipate.errors import InputError, IpateError
from ipate.files import fingerprint
from ipate.ledger.records import noise_kind
from ipate.models.named import as_teacher
from ipate.models.training import allows_missing, check_public
from ipate.models.workers import Backend
from ipate.people.budgets import MIN_GROUP_SIZE
from ipate.people.policy import Policy
from ipate.pipeline import Options, Pupil, train
from ipate.release.history import Extract
from ipate.release.lesson import Lesson
from ipate.runs import fits
from ipate.runs.fits import ArrayTask, FitBook, FitStore
from ipate.students.deployed import describe
from ipate.students.fitted import StudentMethods, student_of
from ipate.students.student import usual_student

_TEACHERS = (  # parameters that are options of teachers under the same name
    *("variant", "aggregator", "sigma", "check_sigma", "threshold", "scale", "bound", "conversion", "stop"),
    *("max_labels", "queries", "counts", "embedding"),
)


@dataclass(eq=False, repr=False)  # scikit-learn reads the parameters from the __init__ that this makes
class PATEClassifier(StudentMethods, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Train a student on noisy votes of teachers, with one privacy budget per person.

    Parameters
    ----------
    teacher : scikit-learn classifier or str, default LogisticRegression
        The model that is cloned for every teacher, or a name in `ipate.models.named.MODELS`. Put scalers
        and imputers inside it (a Pipeline as `teacher`), not in front of this estimator, where they would be fitted on
        private rows and not be applied to `X_public`.
    student : scikit-learn classifier or str, optional
        The model trained on the labelled public points, or a name in `ipate.students.student.STUDENTS`. Default:
        `LogisticRegression`, and for arrays of images "graph", or "semi" with a GPU.
    voting : {"teachers", "ballots", "auto"}
        Who votes: teachers, which pay for every label (PATE), or every person once, weighted by their budget, so that
        all labels cost one release, for few people or small budgets. "auto" decides by public figures.
    embedding : {"auto", "given", "learnt"}
        The features of ballots' cells: a rule from the pool, the columns as given, or a net trained on the pool.
    queries, counts : str, bool or "auto"
        Which points teachers are asked (random, typical, coverage), and whether noisy counts are released with labels
        (`noisy_votes_`, under gdp); "auto" is what suits the student.
    variant : {"weighting", "upsampling", "vanishing", "standard"}
        How larger budgets are given more influence; ballots know "weighting" and "standard".
    epsilon : float, optional
        A uniform budget, used if `fit` is given neither budgets nor levels.
    delta : float or "auto"
        δ of every person; "auto" is the smaller of 1e-5 and 1/(10·people).
    merge_within : float, optional
        Merge budgets downwards that differ by at most this relative tolerance (`People.from_budgets`).
    max_groups : int or "auto"
        The largest number of groups of equal budgets. More are merged downwards, with the smallest loss of μ; "auto"
        is a tenth of the teachers, at least 8 and at most 32. `allocation_.notes` states the loss.
    min_group_size : int
        Smaller groups join the next stricter one; the strictest group never does.
    n_teachers, sigma, check_sigma, threshold, scale : number or "auto"
        The number of teachers, the noise (`scale`: of Laplace noise, for "lnmax") and the threshold. "auto" chooses
        them from public information: sizes, classes, budgets, `points_per_teacher`, `proxy`.
    aggregator : str
        How votes become labels: "confident" (a label if a noisy check passes), "gnmax" (a label for every query),
        "lnmax" (the same with Laplace noise), "interactive" (after a third, a label only where votes contradict a
        student of the labels so far), or "auto": confident with a check, gnmax without, lnmax with a `scale`.
    points_per_teacher : int, optional
        The number of people per teacher if `n_teachers` is "auto".
    proxy : (X, y), optional
        A public labelled task similar to the private one, on which "auto" compares teacher sizes.
    bound, conversion : str
        The privacy bound and its conversion to (ε, δ). "gdp" (the default), "loose", "sup" and "ptr" are releasable;
        "ptr" makes one private test before all labels, benefits from teachers that agree, and needs a `reference`.
    reference : float, ipate.engines.teachers.reference.Reference, optional
        For "ptr": the expected accuracy of a teacher, from public knowledge, or a complete reference.
    stop : {"budget", "drop", "count"}
        The stopping rule of the labelling; "count" needs `max_labels`.
    max_labels, min_labels
        The largest number of labels; and `fit` is refused if it expects fewer than `min_labels`, "auto": 3 per class.
    public_fraction : float, optional
        Without `X_public`: the share of the rows (whole people) that is treated as public.
    allow_overlap : bool
        Accept public rows that are copies of private rows, on benchmark data: there is then no guarantee. By default
        `fit` refuses public rows most of which are copies (`ipate.data.overlap`).
    classes : sequence, optional
        All classes. By default they are inferred from `y`, which treats the set of classes as public.
    n_jobs, backend, address
        Where teachers are trained: in this process, in worker processes (two or more jobs, or the backend "loky"), by
        another joblib backend, or with "ray" at the address of a running cluster.
    cpu_seconds : float, optional
        The most CPU time that one teacher's fit, or its vote, may take; beyond it the teacher votes a fixed class.
    random_state : int, optional
        The seed of partition, allocation and training; it never seeds the noise.
    noise_seed : int, optional
        A seed that makes the noise reproducible: the result is then NOT private.
    ledger : path, optional
        A ledger on disk that several fits share: every label is charged there before it is used, and each fit starts
        with the remaining budgets. It needs `person_id`. By default costs are in memory only, with a `LedgerWarning`.
    fresh_ledger, new_people, accept_larger_budgets : bool
        Answers to what a ledger asks: begin a new one for people who have another, accept people who are mostly
        unknown to it, and accept larger budgets than in the last fit.
    verbose : int
        If 1, print the automatically chosen parameters and the reason to stderr.

    Attributes
    ----------
    classes_ : array of shape (C,)
        The class labels.
    guarantee_ : Guarantee
        Whether the costs are releasable or private, whether the noise was seeded, and the statement.
    guarantees_ : tuple of GroupResult
        The budget and cost of each group. If the guarantee is private, so is the cost.
    labels_ : array of shape (n_public,)
        The index in `classes_` of each public point's label; −1 if it has none.
    allocation_, ledger_, labelling_, choice_
        The assignment of people to teachers, the ledger, the labelling, and the settings with their reason.
    noisy_votes_ : array of shape (n_public, C) or None
        The released counts in steps of σ/8, zeros where there are none; None if none were asked for.
    student_ : classifier
        The trained student; its `classes_` and predictions are class labels. `save_student` deploys it.
    private_notes_ : dict
        PRIVATE: failed teachers, what teachers warned, logged or printed, and rows whose label is no class.
    vote_accuracy_ : float or None
        The accuracy of the labels if the truth of the public points is known.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2)); y = (X[:, 0] > 0).astype(int)
    >>> epsilon = rng.choice([1.0, 3.0], size=4000)
    >>> model = PATEClassifier(teacher=LogisticRegression(), classes=[0, 1], verbose=0, random_state=0)
    >>> model = model.fit(X, y, budgets=epsilon, X_public=rng.normal(size=(500, 2)))
    >>> all(g.cost <= g.budget.epsilon for g in model.guarantees_)
    True
    """

    teacher: Any = None
    student: Any = None
    _: KW_ONLY
    voting: str = "teachers"
    embedding: str = "auto"
    queries: str = "auto"
    counts: bool | str = "auto"
    variant: str = "weighting"
    epsilon: float | None = None
    delta: float | str = "auto"
    merge_within: float | None = None
    max_groups: int | str = "auto"
    min_group_size: int = MIN_GROUP_SIZE
    n_teachers: int | str = "auto"
    aggregator: str = "auto"
    sigma: float | str = "auto"
    check_sigma: float | str = "auto"
    threshold: float | str = "auto"
    scale: float | str = "auto"
    points_per_teacher: int | None = None
    proxy: tuple[Any, Any] | None = None
    bound: str = "gdp"
    conversion: str = "improved"
    reference: Any = None
    stop: str = "budget"
    max_labels: int | None = None
    min_labels: int | str = "auto"
    public_fraction: float | None = None
    allow_overlap: bool = False
    classes: Sequence[Any] | None = None
    n_jobs: int | None = None
    backend: str | None = None
    address: str | None = None
    cpu_seconds: float | None = None
    random_state: int | None = None
    noise_seed: int | None = None
    ledger: Any = None
    fresh_ledger: bool = False
    new_people: bool = False
    accept_larger_budgets: bool = False
    verbose: int = 1

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        budgets: Any = None,
        levels: Any = None,
        policy: Policy | Mapping[str, float] | None = None,
        person_id: Any = None,
        X_public: Any = None,
        y_public: Any = None,
        labelled: tuple[Any, Any] | None = None,
        **unsupported: Any,
    ) -> Self:
        """Train the teachers, label public points within everybody's budget, and train the student.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame
            The private features, one row per record. A frame of pandas, polars or pyarrow reaches teachers and the
            student as it is, with its column names, categories and missing values.
        y : array of shape (n,) or str
            The class of every row.
        budgets : array of shape (n,), str or DataFrame, optional
            The ε of every row's person.
        levels, policy
            Instead of `budgets`: a consent level per row, and the ε of each level. Without budgets and levels,
            `epsilon` of the constructor is used.
        person_id : array of shape (n,) or str, optional
            The person's id of every row. By default every row is one person.
        X_public : array, sparse matrix or DataFrame, optional
            The public pool, with the columns of `X`. Required unless `public_fraction` is set.
        y_public : array, optional
            The truth of the pool, for scoring only.
        labelled : (X, y), optional
            Public labelled data for the student, which is not protected.

        Notes
        -----
        If `y`, `budgets`, `levels` or `person_id` is a text, it names a column of the frame `X`, which is then no
        feature. Values with a pandas index are matched to the rows of `X` by label; labels that differ, or that are
        not unique while the order differs, raise `InputError`. Values without an index are matched by position. If
        `person_id` names a column, `budgets` and `levels` may be a frame with that column and one other, which has one
        row per person.

        Returns
        -------
        self
        """
        fits.refuse_parameters(unsupported)
        fits.warn_in_search(shared=self.ledger is not None)
        y = y if self.classes is None else cells.alone(y)
        given = {"y": y, "budgets": budgets, "levels": levels, "person_id": person_id}
        X, self._not_features, by_row = matched(X, given)
        X, codes = fits.hiding_values(partial(self._private_rows, X, by_row.pop("y")))
        uniform = self.epsilon if budgets is None and levels is None else None
        rules: dict[str, Any] = {
            "policy": policy,
            "epsilon": uniform,
            "delta": self.delta,
            "merge_within": self.merge_within,
        }
        fits.check_ledger_use(self.ledger, seeded=self.noise_seed is not None, named=person_id is not None)
        people = fits.make_people(len(codes), **by_row, **rules)  # refuses bad budgets before anything else
        everybody = fits.check_ids(people, named=person_id is not None)
        self._ids = (person_id, everybody) if isinstance(person_id, str) else None
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        if X_public is not None:
            pool, truth = self._public(X_public, y_public, "X_public", like=X)
        else:
            private, public = fits.split_public(people, self.public_fraction, seed=seed)
            pool, truth = take(X, public), codes[public]
            X, codes = take(X, private), codes[private]
            by_row = {name: None if values is None else values[private] for name, values in by_row.items()}
            people = fits.make_people(len(codes), **by_row, **rules)
        extra = None if labelled is None else self._public(*labelled, "labelled X", like=X)
        self._usual_student = usual_student(getattr(pool, "shape", ())[1:])
        task = ArrayTask(
            name=type(self).__name__,
            people=people,
            classes=tuple(self.classes_.tolist()),
            fingerprint=fingerprint(self.classes_, *parts(pool)),
            X=X,
            y=codes,
            points_given=pool,
            known=truth,
            extra=extra,
            unprotected=tuple(sorted(set(everybody) - set(people.ids.tolist()))),
            everybody=everybody,
            overlap=self.allow_overlap,
            seed=seed,
            new_people=self.new_people,
            accept_larger_budgets=self.accept_larger_budgets,
        )
        return self._trained(task, by_level=levels is not None, by_row=person_id is None)

    def _trained(self, task: ArrayTask, *, by_level: bool, by_row: bool) -> Self:
        """Train on a task, and keep what came of it."""
        noise = noise_kind(seeded=self.noise_seed is not None)
        book: FitBook | MemoryBook = MemoryBook()
        if self.ledger is not None:
            book = FitBook(self.ledger, task, noise=noise, fresh=self.fresh_ledger)

        def keep(lesson: Lesson, allocation: Allocation) -> None:
            """Keep what was paid for, before the student is trained."""
            if book.ledger is None:
                raise InputError("the fit charged nothing")
            self._record, self.allocation_, self.labelling_ = lesson.record, allocation, store.labelling
            self.ledger_ = book.ledger
            self._extract = (book.extract if isinstance(book, FitBook) else None) or Extract.of(book.ledger)
            self.private_notes_ = {**store.notes, "rows_without_class": int((task.codes < 0).sum())}
            self.labels_, self.noisy_votes_ = lesson.record.labels, lesson.record.noisy_votes

        store = FitStore(book, self._tell, keep)
        trained = train(task, self._options(task), book=book, store=store)
        record, given_label = self._record, self.labels_ >= 0
        self.choice_, self._engine = trained.settings, trained.engine
        if trained.lesson.failed:
            raise IpateError(
                "the private test was not passed: no label was released, but the budgets are spent as after a pass; "
                "fitting the same people again would spend them twice"
            )
        self.vote_accuracy_ = None
        if task.truth is not None and given_label.any():
            self.vote_accuracy_ = float(np.mean(self.labels_[given_label] == task.truth[given_label]))
        self.student_, self._frame = trained.student, describe(task.pool())
        for note in self._notes() if record.publishable else ():
            logging.getLogger("ipate").warning("warning: %s", note)
        self._tell("notes for the data owner alone are in private_notes_: read them before the student is used")
        self.guarantee_, self.guarantees_ = record.guarantee, record.groups
        self._unprotected = len(task.unprotected)
        self._by_level, self._by_row, self._versions = by_level, by_row, library_versions()
        return self

    def _options(self, task: ArrayTask) -> Options:
        """Return what the parameters ask of a run."""
        few = task.labelled is not None or task.shape[0] <= task.n_classes  # nothing to expect, or no need to
        teachers = Teachers(
            model=self._teacher(),
            number=self.n_teachers,
            points=self.points_per_teacher,
            reference=self.reference,
            proxy=None if self.proxy is None else self._public(*self.proxy, "proxy X", like=task.rows()),
            **{name: getattr(self, name) for name in _TEACHERS},
        )
        ballots = Ballots(**{name: getattr(self, name) for name in ("variant", "embedding", "bound", "conversion")})
        student = student_of(self)
        return Options(
            request=Request(
                engine=self.voting,
                teachers=teachers,
                ballots=ballots,
                needed=0 if few and self.min_labels == "auto" else self.min_labels,
            ),
            pupil=Pupil(student=student, model=student.make({}, seed=task.seed)),
            noise_seed=self.noise_seed,
            max_groups=self.max_groups,
            min_group_size=self.min_group_size,
            compute=Backend(
                backend=self.backend, n_jobs=self.n_jobs, address=self.address, cpu_seconds=self.cpu_seconds
            ),
        )

    def report(
        self,
        path: Any,
        private: bool = False,
        *,
        name: str = "PATEClassifier",
        controller: str | None = None,
        contact: str | None = None,
    ) -> Path:
        """Write the report of this fit as an HTML page and a JSON file of the same name, and return the page's path.

        Parameters
        ----------
        path : path
            The HTML file to write.
        private : bool
            If true, include private figures, for the data owner only; otherwise the report may be published.
        name : str
            The name of the data in the report.
        controller, contact : str, optional
            Who is responsible for the data and the fit, and how to reach them.
        """
        from ipate.report.assemble import Source
        from ipate.runs.reporting import report_fit

        check_is_fitted(self)
        source = Source(
            record=self._record,
            described=self._engine.report(self.choice_, self.allocation_),
            extract=self._extract,
            allocation=self.allocation_,
            student_model=type(self.student_).__name__,
            data_name=name,
            unprotected=self._unprotected,
            min_group_size=self.min_group_size,
            classes=tuple(str(label) for label in self.classes_.tolist()),
            noise_seed=self.noise_seed,
            split_seed=self.random_state if isinstance(self.random_state, int) else None,
            versions=self._versions,
            levels=self._by_level,
            by_row=self._by_row,
            overlap=self.allow_overlap,
        )
        return report_fit(
            source,
            path,
            private=private,
            label_accuracy=self.vote_accuracy_,
            controller=controller,
            contact=contact,
        )

    def __sklearn_tags__(self) -> Any:
        """Declare noisy labels, and results that are not deterministic unless the noise is seeded."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        tags.input_tags.allow_nan = allows_missing(self._teacher())
        tags.input_tags.sparse = get_tags(self._teacher()).input_tags.sparse
        return tags

    def _validated(self, X: Any, **options: Any) -> Any:
        """Validate X (and y) with scikit-learn; without y, X must match the fitted data. Frames stay as they are."""
        first = "y" in options
        if first:
            options["y"] = fits.check_targets(check_form(X, "X"), options["y"])
        if is_frame(X):
            return validate_data(self, X, reset=first, skip_check_array=True, **options)
        if first:
            options["ensure_min_samples"] = 2
        finite = "allow-nan" if allows_missing(self._teacher()) else True
        options |= {"ensure_all_finite": finite, "accept_sparse": "csr", "allow_nd": True}
        return validate_data(self, X, reset=first, **options)

    def _public(self, X: Any, y: Any, what: str, *, like: Any) -> tuple[Any, Any]:
        """Validate public features and encode their classes, matched by label.

        The features have the same type as `like`, the private rows, and are no copy of them.
        """
        if is_frame(X) != is_frame(like):
            raise InputError(f"X and {what} must both be DataFrames with the same columns, or both be arrays")
        target = what.replace("X", "y")
        table, _, found = matched(X, {target: y})
        rows = check_form(without(table, self._not_features), what)
        check_shared(rows, like, what)
        try:
            X = self._validated(rows)
        except ValueError as error:
            check_public(self._teacher(), X if is_frame(X) else np.asarray(X), called=what)
            raise InputError(f"{what}: {' '.join(str(error).split())}") from error
        truth = found[target]
        if truth is not None and truth.shape != (n_rows(X),):
            raise InputError(f"{target} has the shape {truth.shape} and {what} {n_rows(X)} rows: one per row is needed")
        if not self.allow_overlap:
            fits.check_copies(like, X, table, what=what, ids=self._ids)
        return X, None if truth is None else fits.encode(self.classes_, truth, target)

    def _private_rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return private rows and class ids; where the classes are declared, no cell of them is refused."""
        if self.classes is not None:
            X, self.classes_, y = fits.declared_rows(self, X, y, self.classes)
            return X, y
        X, y = self._validated(X, y=y)
        self.classes_ = fits.find_classes(y, None)
        return X, fits.encode(self.classes_, y, "y")

    def _tell(self, *notes: str) -> None:
        sys.stderr.writelines(f"ipate: {note}\n" for note in notes if self.verbose)

    def _teacher(self) -> Any:
        return as_teacher(self.teacher)
