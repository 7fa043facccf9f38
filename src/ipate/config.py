"""The configuration of a run, from a TOML file or flags; errors name the key and suggest the nearest one."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from ipate.data import DATASETS
from ipate.errors import InputError, nearest
from ipate.ledger.records import NoiseKind
from ipate.options import (
    BudgetConfig,
    DataConfig,
    LabellingConfig,
    ReferenceConfig,
    ReportConfig,
    Section,
    StudentConfig,
    TeacherConfig,
)
from ipate.students.student import usual_student


class RunConfig(Section):
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
    report: ReportConfig = ReportConfig()
    """What the report and letters say about the controller."""
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
    def _chosen_student(self) -> "RunConfig":
        """Resolve the student once, so that a run that is resumed elsewhere has the same one."""
        if self.student.model == "auto":
            source = DATASETS.get(self.data.name or "")
            usual = usual_student(() if source is None else source.shape)
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


def check_report(**given: Any) -> ReportConfig:
    """Return who is responsible, checked as `[report]` of a configuration is."""
    try:
        return ReportConfig.model_validate(given)
    except ValidationError as error:
        raise InputError(_explain(ReportConfig, error)) from None


_MUST_BE = {  # what pydantic's kinds of errors mean in TOML
    "tuple_type": 'a list such as ["a", "b"]',
    "dict_type": "a table such as {{ high = 1.0, low = 3.0 }}",
    "model_type": "a section: its name in brackets on a line of its own, and its keys below",
    "string_type": 'text in quotes, such as "a"',
    "path_type": "a path in quotes",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length} characters",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "literal_error": "{expected}",
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or above",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or below",
}
_KIND = re.compile(r"constrained-.*|(literal|tuple|dict|function-\w+)\[.*|function-.*|int|float|bool|str")  # of a union


def find_key(name: str) -> str | None:
    """Return where a key of the configuration is set, in words; None if there is no such key."""
    fields = RunConfig.model_fields
    if name in fields and not _section(fields[name]):
        return f"{name} at the head of a TOML file"
    places = [f"[{section}]" for section, field in fields.items() if name in _section(field)]
    return f"{name} in {' or '.join(places)} of a TOML file" if places else None


def _section(field: Any) -> Any:
    """Return the keys of a field that is a section; nothing for any other."""
    return getattr(field.annotation, "model_fields", {})


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    """Describe the first error: the key, its value, what is allowed, and the nearest name."""
    found = error.errors(include_url=False)
    first = found[0]
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        section: Any = model
        for part in place[:-1]:
            section = section.model_fields[part].annotation
        names = sorted(section.model_fields)
        near = nearest(place[-1], names)
        return f"unknown key {'.'.join(place)!r}: nearest is {near!r}; allowed are {', '.join(names)}"
    keys = [part for part in place if _KIND.fullmatch(part) is None]
    if not keys:  # the error concerns the whole configuration
        return str(first["msg"]).removeprefix("Value error, ")
    fields = _section(model.model_fields[keys[0]])
    if first["type"] == "missing" and fields and len(keys) == 1:
        return f"there is no section [{keys[0]}]: add it, with {' or '.join(list(fields)[:2])}"
    keyed = len(keys) > 2 and "dict[" in str(fields[keys[1]].annotation)  # the key of a level or an option
    name = ".".join(keys[: 3 if keyed else 2])
    stated = first["type"] != "missing" and not isinstance(first["input"], dict)
    value = f" is {first['input']!r}" if stated else ""
    if first["type"] not in _MUST_BE:
        return f"{name}{value}: {first['msg'].removeprefix('Value error, ')}"
    same = [entry for entry in found if entry["loc"][: len(keys)] == first["loc"][: len(keys)]]
    kinds = [first, *(entry for entry in same[1:] if entry["type"].endswith(("_type", "literal_error")))]
    allowed = [_MUST_BE[entry["type"]].format(**entry.get("ctx", {})) for entry in kinds if entry["type"] in _MUST_BE]
    return f"{name}{value}: it must be {', or '.join(dict.fromkeys(allowed))}"
