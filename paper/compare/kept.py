"""The kept results of the comparison, by method, data set, budget and number of the run."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipate.errors import InputError
from ipate.files import write_text
from paper.compare.outcome import Outcome

Results = dict[str, dict[str, Any]]


def cell_key(method: str, data: str, budget: str) -> str:
    """Return the key of a cell in the kept results."""
    return f"{method}|{data}|{budget}"


@dataclass
class Kept:
    """The results so far: outcomes by cell and run, and for chosen settings what each setting gave."""

    runs: Results = field(default_factory=dict)
    tuning: Results = field(default_factory=dict)  # cell → setting → accuracies on the runs that chose

    @classmethod
    def read(cls, path: Path) -> "Kept":
        """Read the kept results from a file that `write` or the page wrote; none where there is no file."""
        if not path.is_file():
            return cls()
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(runs=dict(values["runs"]), tuning=dict(values["tuning"]))
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}: it holds no kept results of `python -m paper compare`") from None

    def json(self) -> dict[str, Any]:
        """Return everything as plain data, in a fixed order."""
        return {
            name: {key: dict(sorted(own.items())) for key, own in sorted(getattr(self, name).items())}
            for name in ("runs", "tuning")
        }

    def write(self, path: Path) -> None:
        """Write the kept results, one cell a line."""
        parts = [
            f'"{name}": {{\n' + ",\n".join(f"{json.dumps(key)}: {json.dumps(own)}" for key, own in rows.items()) + "\n}"
            for name, rows in self.json().items()
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "{\n" + ",\n".join(parts) + "\n}\n")

    def merge(self, other: "Kept") -> None:
        """Take over the results of another call; its own win."""
        for name in ("runs", "tuning"):
            for key, own in getattr(other, name).items():
                getattr(self, name).setdefault(key, {}).update(own)

    def outcomes(self, method: str, data: str, budget: str) -> dict[int, Outcome]:
        """Return the outcomes of a cell by run."""
        own = self.runs.get(cell_key(method, data, budget), {})
        return {int(seed): Outcome.of(values) for seed, values in sorted(own.items(), key=lambda pair: int(pair[0]))}
