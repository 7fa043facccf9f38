"""The configuration of a run: a TOML file or flags, checked once; an unknown key gets the nearest name."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ipate.errors import InputError, nearest
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
            raise ValueError("data needs a name or a file, one of the two")
        if self.file is not None and self.label is None:
            raise ValueError("a file needs label, the name of the column that holds the class")
        if self.file is not None and (self.public is None or self.test is None):
            raise ValueError("a file needs public and test: how many of its rows may be treated as public")
        return self


class BudgetConfig(_Section):
    """What people's consent means: a policy for levels, shares where levels are drawn, or one ε for all."""

    policy: dict[str, Positive] | None = None
    shares: dict[str, Positive] | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | Auto = "auto"


class TeacherConfig(_Section):
    """What teachers are, and how many: a name, or a class as module:attribute."""

    model: str = DEFAULT
    options: dict[str, Any] = {}
    number: Count | Auto = "auto"
    points: Count | None = None
    n_jobs: int | None = -1
    backend: str | None = None
    address: str | None = None
    device: str = "auto"


class LabellingConfig(_Section):
    """How votes become labels, and how they are charged."""

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
    """What the test of the bound ptr is designed from: a public guess, votes of other teachers, or a design."""

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
            raise ValueError("reference has several of accuracy, votes and design: give one")
        return self


class StudentConfig(_Section):
    """What the student is."""

    model: str = DEFAULT
    options: dict[str, Any] = {}


class RunConfig(_Section):
    """A whole run. `seed` is the noise alone: with it a run can be repeated and is NOT private.

    `ledger` is a file that several runs share, so that balances carry over; by default a run has its own.
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
                "a ledger that runs share needs data.person, the column of person ids: what a person spent is "
                "looked up by their id"
            )
        return self

    @classmethod
    def from_mapping(cls, values: dict[str, Any], *, where: str = "configuration") -> "RunConfig":
        """Check a configuration; one line says what is wrong and what is allowed."""
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
    """The first problem in words: which key, which value, what is allowed, and the nearest name."""
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
    if not keys:  # of the whole, not of one key
        return str(first["msg"]).removeprefix("Value error, ")
    name = ".".join(keys[:2])
    value = (
        "" if first["type"] == "missing" else f" is {first['input']!r}" if not isinstance(first["input"], dict) else ""
    )
    return f"{name}{value}: {first['msg'].removeprefix('Value error, ')}"
