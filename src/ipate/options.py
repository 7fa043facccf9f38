"""The sections of a run's configuration; the text below a key is its description in the reference."""

from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from ipate.data.proposal import UNKNOWN
from ipate.data.schema import ORIGIN
from ipate.errors import InputError, check_number, nearest
from ipate.models.named import DEFAULT
from ipate.people.budgets import MIN_GROUP_SIZE
from ipate.people.policy import check_date, check_version

Auto = Literal["auto"]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Epsilon = Annotated[float, AfterValidator(partial(check_number, "epsilon"))]
Delta = Annotated[float, AfterValidator(partial(check_number, "delta"))]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


def _version(value: Any) -> str:
    try:
        return check_version(value)
    except InputError as error:
        raise ValueError(str(error)) from None


def _day(what: str, value: Any) -> date:
    try:
        return check_date(value, what=what)
    except InputError as error:
        raise ValueError(str(error)) from None


def _engine(value: str) -> str:
    names = ("auto", "ballots", "teachers")
    if value not in names and ":" not in value:
        near = nearest(value, names)
        raise ValueError(f"allowed are {', '.join(names)} and module:attribute; nearest is {near!r}")
    return value


class Section(BaseModel):
    """A section of the configuration: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


class DataConfig(Section):
    """Where the data comes from: a named data set, or a file of people with public rows.

    Sizes are numbers of rows or shares below 1. Rows of a file of people are public or test data only where
    `public_column` says so, or without protection. `consent_date` and `consent_version` are the columns of the day on
    which a person agreed and of the policy's version that they agreed to.
    """

    name: str | None = None
    """A data set by name: synthetic or digits."""
    file: Path | None = None
    """A file of people instead of a data set: csv, parquet or npz."""
    public_file: Path | None = None
    """The pool: a file with the same columns, labels optional."""
    test_file: Path | None = None
    """Labelled test rows, which must be public: the scores on them are published."""
    schema_file: Path | None = None
    """The schema.json of an earlier run, used instead of the keys that describe columns."""
    label: str | None = None
    """The column of the class."""
    level: str | None = None
    """The column of consent levels; needs budgets.policy."""
    epsilon: str | None = None
    """The column of everybody's own ε, instead of consent levels."""
    person: str | None = None
    """The column of person ids; without it every row is one person."""
    consent_date: str | None = None
    """The column of the day on which each person consented."""
    consent_version: str | None = None
    """The column of the policy version to which each person consented."""
    classes: tuple[str, ...] | None = None
    """The class set, which is public and must be declared."""
    features: tuple[str, ...] | None = None
    """The feature columns; by default all columns that no other key names."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    categories: tuple[str, ...] | dict[str, tuple[str | int | float | bool, ...]] = ()
    """Columns of categories, with the values of the public file or with a list of values each."""
    dates: tuple[str, ...] | dict[str, str] = ()
    """Columns of dates, in ISO form or with a format each."""
    numbers: tuple[str, ...] | dict[str, tuple[float, float]] = ()
    """Columns of numbers, scaled by the public file or by declared bounds."""
    missing: tuple[str, ...] = ()
    """Columns that get an indicator of missing values."""
    origin: str = ORIGIN
    """The day from which dates are counted."""
    public: Size | None = None
    """How many rows of the private file are public, without protection."""
    test: Size | None = None
    """How many rows of the private file are test data, without protection."""
    public_column: str | None = None
    """The column that says who agreed to be public or test data: public, test or empty."""
    public_without_protection: bool = False
    """States that the people whose rows `public` and `test` take agreed to have no protection."""
    allow_overlap: bool = False
    """For benchmarks: public rows may be private ones, and no guarantee remains."""

    @model_validator(mode="after")
    def _one_source(self) -> "DataConfig":
        for key in sorted(self.model_fields_set):
            if str(getattr(self, key)) == UNKNOWN:
                raise ValueError(f"{key} is {UNKNOWN!r}, as ipate schema proposed: set it, or leave it out")
        if self.name is not None and self.file is not None:
            raise ValueError(
                f"name and file are both given, {self.name!r} (--dataset) and {str(self.file)!r} (--file): the data "
                "comes from one of them; leave out the other"
            )
        if self.name is None and self.file is None:
            raise ValueError("data needs either a name or a file")
        if self.file is None:
            for key in sorted(set(type(self).model_fields) - {"name", "public", "test"}):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(
                        f"{key} is for a file of people: leave it out, or name a file instead of a data set"
                    )
            return self
        if self.label is None and self.file.suffix.lower() != ".npz":
            raise ValueError("a file needs label, the name of the class column")
        if self.classes is None and self.file.suffix.lower() != ".npz":
            raise ValueError(
                'a file needs classes, the public class set: classes = ["no", "yes"] in [data], or --classes no,yes; '
                "it is not read off private labels"
            )
        if self.classes is not None and len(set(self.classes)) < max(2, len(self.classes)):
            stated = f"are {', '.join(map(repr, self.classes))}" if self.classes else "are empty"
            raise ValueError(
                f'classes {stated}: set all classes, at least two and all different, as in classes = ["no", "yes"] in '
                "[data], or --classes no,yes"
            )
        return self._public_source()

    def _public_source(self) -> "DataConfig":
        if sum(given is not None for given in (self.public_file, self.public_column, self.public)) != 1:
            raise ValueError(
                "a file needs public rows from one place: public_file, public_column (who agreed to be public), or "
                "public, a number of its people, with public_without_protection = true"
            )
        if sum(given is not None for given in (self.test_file, self.test)) > 1:
            raise ValueError("test rows come from one place: test_file or test")
        if self.public_column is not None and self.test is not None:
            raise ValueError("public_column also says who is test data: leave out test")
        if (self.public is not None or self.test is not None) and not self.public_without_protection:
            key = "test" if self.public is None else "public"
            raise ValueError(
                f"{key} takes rows of the private file, whose people are then not protected: name a {key}_file, or set "
                "public_without_protection = true if they agreed"
            )
        if self.public_without_protection and self.public is None and self.test is None:
            raise ValueError("public_without_protection is set, but neither public nor test: leave it out")
        return self


class BudgetConfig(Section):
    """The budgets: a policy for consent levels, shares to draw levels at random, or one ε for everybody.

    `policy_version` and `policy_date` say which version of the policy this is and from which day on it is valid.
    Groups are merged downwards: budgets within a relative tolerance, more groups than `max_groups`, and groups below
    `min_group_size` people. A group that stays smaller is not counted in what leaves the data owner.
    """

    policy: dict[str, Epsilon] | None = None
    """The ε of each consent level."""
    policy_version: Annotated[str, BeforeValidator(_version)] | None = None
    """The version of the policy, for reports and letters."""
    policy_date: Annotated[date, BeforeValidator(partial(_day, "policy_date"))] | None = None
    """The day of that version."""
    shares: dict[str, Positive] | None = None
    """Draws consent levels at random in these shares, for data sets without levels."""
    epsilon: Epsilon | None = None
    """One ε for everybody."""
    delta: Delta | Auto = "auto"
    """The δ of every budget; auto is the smaller of 1e-5 and 0.1 over the number of people."""
    merge_within: Annotated[float, Field(ge=0, le=1)] | None = None
    """Merges budgets within this relative tolerance, downwards."""
    max_groups: Count | Auto = "auto"
    """Most groups; others are merged downwards. auto is a tenth of the teachers, from 8 to 32."""
    min_group_size: Count = MIN_GROUP_SIZE
    """A smaller group joins the next stricter one."""


class TeacherConfig(Section):
    """The teachers: their model (a name, or a class as module:attribute), their number, and how they are trained."""

    model: str = DEFAULT
    """logistic, forest, boosting, bayes, a net of the extra torch, or module:attribute."""
    options: dict[str, Any] = {}
    """Parameters of the model."""
    number: Count | Auto = "auto"
    """The number of teachers."""
    points: Count | None = None
    """People per teacher, where the number of teachers is auto."""
    n_jobs: int | None = -1
    """Worker processes; -1 is one per core."""
    backend: str | None = None
    """A joblib backend, or ray; by default loky."""
    address: str | None = None
    """The address of a Ray cluster."""
    device: str = "auto"
    """Where nets are trained: auto, cpu or cuda."""
    cpu_seconds: Positive | None = None
    """The limit of CPU time of one teacher."""

    @property
    def engine(self) -> str:
        """The backend; the default is worker processes, also for one job, so that a crash stays inside a worker."""
        return self.backend or "loky"


class LabellingConfig(Section):
    """Who votes, how votes are aggregated into labels and how releases are charged.

    `embedding` says in which features the cells of ballots are cut: "auto" by the rule of `ipate.public.features`,
    "given" if the columns are an embedding already, "learnt" by a net trained on the pool's images (extra torch).
    `queries` is the rule by which points of the pool are asked, and `counts` whether noisy counts are released with
    their labels; "auto" is what suits the student.
    """

    voting: Annotated[str, AfterValidator(_engine)] = "teachers"
    """Who votes: teachers, one ballot per person, auto (what public figures suggest), or module:attribute."""
    embedding: Literal["auto", "given", "learnt"] = "auto"
    """The features in which cells of ballots are cut."""
    queries: str = "auto"
    """Which points of the pool are asked: random, typical or coverage."""
    counts: bool | Auto = "auto"
    """Whether noisy counts are released with labels."""
    variant: str = "weighting"
    """How budgets become influence: weighting, upsampling, vanishing or standard."""
    rule: str | None = None
    """The rule of weights: gdp, proportional, classic, uniform or algorithm2."""
    power: float | None = None
    """The power of vanishing."""
    aggregator: str = "auto"
    """gnmax, confident, interactive (with a student of the first labels) or lnmax; auto: a scale selects lnmax."""
    sigma: Positive | Auto = "auto"
    """σ, the standard deviation of the noise of a label."""
    check_sigma: Positive | Auto = "auto"
    """σ_T, the standard deviation of the noise of a check."""
    threshold: Annotated[float, Field(allow_inf_nan=False)] | Auto = "auto"
    """T, the threshold of the check."""
    scale: Positive | Auto = "auto"
    """b, the scale of the Laplace noise of a label, for lnmax alone; with it, the bound loose mostly affords more."""
    bound: str = "gdp"
    """What a release is charged: gdp, loose, sup, tight, exact or ptr."""
    conversion: str = "improved"
    """How Rényi costs become ε: improved or classic."""
    stop: str = "budget"
    """What ends the labelling: the first budget that is exhausted, the last one (drop), or max_labels (count)."""
    max_labels: Count | None = None
    """The most labels."""
    min_labels: Annotated[int, Field(ge=0, strict=True)] | Auto = "auto"
    """The run is refused if it expects fewer; auto is 3 per class, or 1 where points are chosen (queries)."""


class ReferenceConfig(Section):
    """The reference for the test of the bound ptr: a public guess, votes of other teachers, or a design."""

    accuracy: Annotated[float, Field(gt=0, lt=1)] | None = None
    """How often a teacher is expected to be right, as a public guess."""
    spread: Annotated[float, Field(ge=0, le=20)] = 2.0
    """How unlike queries are expected to be."""
    confusion: Annotated[float, Field(gt=0, lt=1)] = 0.65
    """The share of wrong votes that go to the most likely wrong class."""
    votes: Path | None = None
    """Votes of other teachers on public data, instead of a guess."""
    design: Path | None = None
    """A design that was made before."""
    reserve: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """By how much the expected costs are raised."""
    fallback: bool = False
    """Keeps half of ε for a run after the answer no."""

    @model_validator(mode="after")
    def _one_source(self) -> "ReferenceConfig":
        if sum(part is not None for part in (self.accuracy, self.votes, self.design)) > 1:
            raise ValueError("reference sets more than one of accuracy, votes and design: give one")
        return self


class StudentConfig(Section):
    """The model of the student and its options; "auto" is what suits the data (`usual_student`)."""

    model: str = "auto"
    """As for teachers, or graph, or semi for images; "auto" is what suits the data."""
    options: dict[str, Any] = {}
    """Parameters of the model."""


class ReportConfig(Section):
    """Who is responsible for a run and what it is for, as reports, statements and exports state it.

    Nothing else of a run depends on this section, so it may be corrected in `config.json` of the run's folder later.
    """

    controller: Text | None = None
    """Who is responsible for the data and the run."""
    contact: Text | None = None
    """How to reach them, for questions and withdrawals."""
    purpose: Text | None = None
    """What the student is for."""
    region: Text | None = None
    """Where the people live, for the registry of deployments."""
    sector: Text | None = None
    """The sector of the controller, for the same registry."""
