"""The configuration of a run, from a TOML file or flags; errors name the key and suggest the nearest one."""

import tomllib
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
    ValidationError,
    model_validator,
)

from ipate.data import IMAGES
from ipate.data.schema import ORIGIN
from ipate.errors import InputError, check_number, nearest
from ipate.ledger.records import NoiseKind
from ipate.people.budgets import MIN_GROUP_SIZE
from ipate.people.policy import check_date, check_version
from ipate.students import usual_student
from ipate.teachers.models import DEFAULT

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


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DataConfig(_Section):
    """Where the data comes from: a named data set, or a file of people with public rows.

    Sizes are numbers of rows or shares below 1. Rows of a file of people are public or test data only where
    `public_column` says so, or without protection. `consent_date` and `consent_version` are the columns of the day on
    which a person agreed and of the policy's version that they agreed to.
    """

    name: str | None = None
    file: Path | None = None
    public_file: Path | None = None
    test_file: Path | None = None
    schema_file: Path | None = None
    data_dir: Path | None = None
    label: str | None = None
    level: str | None = None
    epsilon: str | None = None
    person: str | None = None
    consent_date: str | None = None
    consent_version: str | None = None
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] | dict[str, tuple[str | int | float | bool, ...]] = ()
    dates: tuple[str, ...] | dict[str, str] = ()
    numbers: tuple[str, ...] | dict[str, tuple[float, float]] = ()
    missing: tuple[str, ...] = ()
    origin: str = ORIGIN
    public: Size | None = None
    test: Size | None = None
    public_column: str | None = None
    public_without_protection: bool = False
    allow_overlap: bool = False

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

    `policy_version` and `policy_date` say which version of the policy this is and from which day on it is valid.
    Groups are merged downwards: budgets within a relative tolerance, more groups than `max_groups`, and groups below
    `min_group_size` people. A group that stays smaller is not counted in what leaves the data owner.
    """

    policy: dict[str, Epsilon] | None = None
    policy_version: Annotated[str, BeforeValidator(_version)] | None = None
    policy_date: Annotated[date, BeforeValidator(partial(_day, "policy_date"))] | None = None
    shares: dict[str, Positive] | None = None
    epsilon: Epsilon | None = None
    delta: Delta | Auto = "auto"
    merge_within: Annotated[float, Field(ge=0, le=1)] | None = None
    max_groups: Count | Auto = "auto"
    min_group_size: Count = MIN_GROUP_SIZE


class TeacherConfig(_Section):
    """The teachers: their model (a name, or a class as module:attribute), their number, and how they are trained."""

    model: str = DEFAULT
    options: dict[str, Any] = {}
    number: Count | Auto = "auto"
    points: Count | None = None
    n_jobs: int | None = -1
    backend: str | None = None
    address: str | None = None
    device: str = "auto"
    cpu_seconds: Positive | None = None

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
    embedding: Literal["auto", "given", "learnt"] = "auto"
    queries: str = "auto"
    counts: bool | Auto = "auto"
    variant: str = "weighting"
    rule: str | None = None
    power: float | None = None
    aggregator: str = "auto"
    sigma: Positive | Auto = "auto"
    check_sigma: Positive | Auto = "auto"
    threshold: Annotated[float, Field(allow_inf_nan=False)] | Auto = "auto"
    bound: str = "gdp"
    conversion: str = "improved"
    stop: str = "budget"
    max_labels: Count | None = None
    min_labels: Annotated[int, Field(ge=0)] | Auto = "auto"


class ReferenceConfig(_Section):
    """The reference for the test of the bound ptr: a public guess, votes of other teachers, or a design."""

    accuracy: Annotated[float, Field(gt=0, lt=1)] | None = None
    spread: Annotated[float, Field(ge=0, le=20)] = 2.0
    confusion: Annotated[float, Field(gt=0, lt=1)] = 0.65
    votes: Path | None = None
    design: Path | None = None
    reserve: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    fallback: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> "ReferenceConfig":
        if sum(part is not None for part in (self.accuracy, self.votes, self.design)) > 1:
            raise ValueError("reference sets more than one of accuracy, votes and design: give one")
        return self


class StudentConfig(_Section):
    """The model of the student and its options; "auto" is what suits the data (`ipate.students.usual_student`)."""

    model: str = "auto"
    options: dict[str, Any] = {}


class ReportConfig(_Section):
    """Who is responsible for a run and what it is for, as reports, statements and exports state it.

    Nothing else of a run depends on this section, so it may be corrected in `config.json` of the run's folder later.
    """

    controller: Text | None = None
    contact: Text | None = None
    purpose: Text | None = None
    region: Text | None = None
    sector: Text | None = None


class RunConfig(_Section):
    """The configuration of a run. `seed` seeds the noise: a seeded run is reproducible and NOT private.

    `benchmark` states that nobody in the data is real, which `compare` needs on files. `ledger` is the file that is
    charged. By default it lies beside a file of people, is found again by their ids, and is shared by all runs about
    them; seeded runs, benchmarks and data sets of this package have one in the run's folder.
    `code` is the folder of the modules of teacher and student; by default it is the folder of the TOML file.
    """

    data: DataConfig
    budgets: BudgetConfig = BudgetConfig()
    teachers: TeacherConfig = TeacherConfig()
    labelling: LabellingConfig = LabellingConfig()
    reference: ReferenceConfig = ReferenceConfig()
    student: StudentConfig = StudentConfig()
    report: ReportConfig = ReportConfig()
    split_seed: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] | None = None
    compare: bool = False
    code: Path | None = None
    benchmark: bool = False
    ledger: Path | None = None
    fresh_ledger: bool = False
    new_people: bool = False
    accept_larger_budgets: bool = False

    @model_validator(mode="after")
    def _only_benchmarks(self) -> "RunConfig":
        if self.compare and self.data.file is not None and not self.benchmark:
            raise ValueError(
                "compare uses the private data a second time, uncharged and partly without noise: it is refused on a "
                "file of people; set benchmark = true (--benchmark) if nobody in the file is real, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _chosen_student(self) -> "RunConfig":
        """Resolve the student once, so that a run that is resumed elsewhere has the same one."""
        if self.student.model == "auto":
            usual = usual_student(IMAGES.get(self.data.name or "", ()))
            object.__setattr__(self, "student", self.student.model_copy(update={"model": usual}))
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
