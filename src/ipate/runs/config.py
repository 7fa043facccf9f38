"""The configuration of a run, from a TOML file or flags; errors name the key and suggest the nearest one."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ipate.errors import InputError, nearest
from ipate.ledger.records import NoiseKind
from ipate.people.merging import MIN_GROUP_SIZE
from ipate.teachers.models import DEFAULT

Auto = Literal["auto"]
Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DataConfig(_Section):
    """Where the data comes from and how it is partitioned; sizes are numbers of rows or shares below 1."""

    name: str | None = None
    file: Path | None = None
    data_dir: Path | None = None
    label: str | None = None
    level: str | None = None
    epsilon: str | None = None
    person: str | None = None
    classes: tuple[str, ...] | None = None
    public: Size | None = None
    test: Size | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "DataConfig":
        if (self.name is None) == (self.file is None):
            raise ValueError("data needs either a name or a file")
        if self.file is not None and self.label is None:
            raise ValueError("a file needs label, the name of the class column")
        if self.file is not None and (self.public is None or self.test is None):
            raise ValueError(
                "a file needs public and test: how many of its rows are treated as public and as test data"
            )
        return self


class BudgetConfig(_Section):
    """The budgets: a policy for consent levels, shares to draw levels at random, or one ε for everybody.

    Groups are merged downwards: budgets within a relative tolerance, more groups than `max_groups`, and groups below
    `min_group_size` people.
    """

    policy: dict[str, Positive] | None = None
    shares: dict[str, Positive] | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | Auto = "auto"
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


class LabellingConfig(_Section):
    """How votes are aggregated into labels and how releases are charged."""

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
    """The model of the student and its options."""

    model: str = DEFAULT
    options: dict[str, Any] = {}


class RunConfig(_Section):
    """The configuration of a run. `seed` seeds the noise: a seeded run is reproducible and NOT private.

    `ledger` is a file shared by several runs, so that balances carry over; by default a run has its own.
    """

    data: DataConfig
    budgets: BudgetConfig = BudgetConfig()
    teachers: TeacherConfig = TeacherConfig()
    labelling: LabellingConfig = LabellingConfig()
    reference: ReferenceConfig = ReferenceConfig()
    student: StudentConfig = StudentConfig()
    split_seed: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] | None = None
    compare: bool = False
    ledger: Path | None = None

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
    name = ".".join(keys[:2])
    stated = first["type"] != "missing" and not isinstance(first["input"], dict)
    value = f" is {first['input']!r}" if stated else ""
    return f"{name}{value}: {first['msg'].removeprefix('Value error, ')}"
