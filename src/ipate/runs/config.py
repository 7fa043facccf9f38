"""The configuration of a run, from a TOML file or flags; errors name the key and suggest the nearest one."""

import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ipate.data.schema import ORIGIN
from ipate.errors import InputError, check_number, nearest
from ipate.ledger.records import NoiseKind
from ipate.people.budgets import MIN_GROUP_SIZE
from ipate.teachers.models import DEFAULT

Auto = Literal["auto"]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Epsilon = Annotated[float, AfterValidator(partial(check_number, "epsilon"))]
Delta = Annotated[float, AfterValidator(partial(check_number, "delta"))]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


class DataConfig(_Section):
    """Where the data comes from: a named data set, or a file of people with public rows.

    Sizes are numbers of rows or shares below 1. Rows of a file of people are public or test data only where
    `public_column` says so, or without protection.
    """

    name: str | None = None
    """A data set by name: synthetic, digits, mnist, fashion-mnist, svhn or adult."""
    file: Path | None = None
    """A file of people instead of a data set: csv, parquet or npz."""
    public_file: Path | None = None
    """The pool: a file with the same columns, labels optional."""
    test_file: Path | None = None
    """Labelled test rows, for scores."""
    schema_file: Path | None = None
    """The schema.json of an earlier run, used instead of the keys that describe columns."""
    data_dir: Path | None = None
    """The folder with the files of a named data set."""
    label: str | None = None
    """The column of the class."""
    level: str | None = None
    """The column of consent levels; needs budgets.policy."""
    epsilon: str | None = None
    """The column of everybody's own ε, instead of consent levels."""
    person: str | None = None
    """The column of person ids; without it every row is one person."""
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
        if (self.name is None) == (self.file is None):
            raise ValueError("data needs either a name or a file")
        if self.file is None:
            for key in sorted(set(type(self).model_fields) - {"name", "data_dir", "public", "test"}):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(
                        f"{key} is for a file of people: leave it out, or name a file instead of a data set"
                    )
            return self
        if self.label is None and self.file.suffix.lower() != ".npz":
            raise ValueError("a file needs label, the name of the class column")
        if self.classes is None and self.file.suffix.lower() != ".npz":
            raise ValueError(
                'a file needs classes, the public class set: classes = ["no", "yes"], or --classes no,yes; it is not '
                "read off private labels"
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


class BudgetConfig(_Section):
    """The budgets: a policy for consent levels, shares to draw levels at random, or one ε for everybody.

    Groups are merged downwards: budgets within a relative tolerance, more groups than `max_groups`, and groups below
    `min_group_size` people. A group that stays smaller is not counted in what leaves the data owner.
    """

    policy: dict[str, Epsilon] | None = None
    """The ε of each consent level."""
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


class TeacherConfig(_Section):
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


class LabellingConfig(_Section):
    """Who votes, how votes are aggregated into labels and how releases are charged.

    `embedding` says in which features the cells of ballots are cut: "auto" by the rule of `ipate.public.features`,
    "given" if the columns are an embedding already, "learnt" by a net trained on the pool's images (extra torch).
    `queries` is the rule by which points of the pool are asked, and `counts` whether noisy counts are released with
    their labels; "auto" is what suits the student.
    """

    voting: Literal["teachers", "ballots", "auto"] = "teachers"
    """Who votes: teachers, one ballot per person, or the engine that public figures suggest."""
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
    """gnmax, confident, interactive or lnmax."""
    sigma: Positive | Auto = "auto"
    """σ, the standard deviation of the noise of a label."""
    check_sigma: Positive | Auto = "auto"
    """σ_T, the standard deviation of the noise of a check."""
    threshold: Annotated[float, Field(allow_inf_nan=False)] | Auto = "auto"
    """T, the threshold of the check."""
    bound: str = "gdp"
    """What a release is charged: gdp, loose, sup, tight, exact or ptr."""
    conversion: str = "improved"
    """How Rényi costs become ε: improved or classic."""
    stop: str = "budget"
    """What ends the labelling: the first budget that is exhausted, the last one (drop), or max_labels (count)."""
    max_labels: Count | None = None
    """The most labels."""
    min_labels: Annotated[int, Field(ge=0)] | Auto = "auto"
    """The run is refused if the budgets afford fewer; auto is the number of classes."""


class ReferenceConfig(_Section):
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


class StudentConfig(_Section):
    """The model of the student and its options."""

    model: str = DEFAULT
    """As for teachers, or graph, or semi for images."""
    options: dict[str, Any] = {}
    """Parameters of the model."""


class RunConfig(_Section):
    """The configuration of a run. `seed` seeds the noise: a seeded run is reproducible and NOT private.

    `benchmark` states that nobody in the data is real, which `compare` needs on files. `ledger` is the file that is
    charged. By default it lies beside a file of people, is found again by their ids, and is shared by all runs about
    them; seeded runs, benchmarks and data sets of this package have one in the run's folder.
    `code` is the folder of the modules of teacher and student; by default it is the folder of the TOML file.
    """

    data: DataConfig
    """The data."""
    budgets: BudgetConfig = BudgetConfig()
    """The budgets."""
    teachers: TeacherConfig = TeacherConfig()
    """The teachers."""
    labelling: LabellingConfig = LabellingConfig()
    """The labelling."""
    reference: ReferenceConfig = ReferenceConfig()
    """The reference of ptr."""
    student: StudentConfig = StudentConfig()
    """The student."""
    split_seed: Annotated[int, Field(ge=0)] = 0
    """Seeds partition, allocation and training."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """Seeds the noise: the run can be repeated and is not private."""
    compare: bool = False
    """Also tries the other engines, on benchmark data only."""
    code: Path | None = None
    """The folder of the modules of teacher and student."""
    benchmark: bool = False
    """States that nobody in the data is real."""
    ledger: Path | None = None
    """The ledger that is charged."""
    fresh_ledger: bool = False
    """Begins a new ledger for people who have one."""
    new_people: bool = False
    """Accepts that most people are unknown to the ledger."""
    accept_larger_budgets: bool = False
    """Accepts larger budgets than in the same people's last run."""

    @model_validator(mode="after")
    def _only_benchmarks(self) -> "RunConfig":
        if self.compare and self.data.file is not None and not self.benchmark:
            raise ValueError(
                "compare uses the private data a second time, uncharged and partly without noise: it is refused on a "
                "file of people; set benchmark = true (--benchmark) if nobody in the file is real, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _shared_ledger(self) -> "RunConfig":
        if self.ledger is not None and self.compare:
            raise ValueError("compare uses the private data a second time, uncharged: leave out compare or ledger")
        if self.ledger is not None and self.data.file is not None and self.data.person is None:
            raise ValueError(
                "a shared ledger needs data.person, the column of person ids, because balances are stored by person id"
            )
        return self

    @property
    def noise(self) -> NoiseKind:
        """The kind of noise: seeded with `seed`, else secure."""
        return "secure" if self.seed is None else "seeded"

    @classmethod
    def from_mapping(cls, values: dict[str, Any], *, where: str = "configuration") -> "RunConfig":
        """Validate a configuration; an error is one line that says what is wrong and what is allowed."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InputError(f"{where}: {_explain(cls, error)}") from None

    @classmethod
    def from_file(cls, path: Path) -> "RunConfig":
        """Read a TOML file."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{path}: no such file; a run is described by a TOML file or by --dataset") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise InputError(f"{path}: not a readable TOML file ({error})") from None
        return cls.from_mapping(values, where=str(path))


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    """Describe the first error: the key, its value, what is allowed, and the nearest name."""
    first = error.errors(include_url=False)[0]
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        section: Any = model
        for part in place[:-1]:
            section = section.model_fields[part].annotation
        names = sorted(section.model_fields)
        near = nearest(place[-1], names)
        return f"unknown key {'.'.join(place)!r}: nearest is {near!r}; allowed are {', '.join(names)}"
    keys = [part for part in place if not part.startswith(("constrained-", "literal", "function-"))]
    if not keys:  # the error concerns the whole configuration
        return str(first["msg"]).removeprefix("Value error, ")
    fields: Any = getattr(model.model_fields[keys[0]].annotation, "model_fields", {})
    keyed = len(keys) > 2 and "dict[" in str(fields[keys[1]].annotation)  # the key of a level or an option
    name = ".".join(keys[: 3 if keyed else 2])
    stated = first["type"] != "missing" and not isinstance(first["input"], dict)
    value = f" is {first['input']!r}" if stated else ""
    return f"{name}{value}: {first['msg'].removeprefix('Value error, ')}"
