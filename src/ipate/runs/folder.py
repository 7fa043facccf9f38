"""A run's folder: what may be shown in `public`, what must not in `private`, each file whole or not there."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipate.config import RunConfig
from ipate.errors import InputError
from ipate.tables import write_text

__all__ = ["RunFolder"]

_PRIVATE_NOTE = """What lies here is private: the votes of the teachers, who taught which teacher, and costs that were
computed from votes. Nobody but the holder of the data may see it; publish from the folder 'public' only.
"""


class RunFolder:
    """The files of one run.

    Parameters
    ----------
    path : path
        The folder; `create` makes it, `open` continues one.
    config : RunConfig
        As used, kept in `config.json`.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path, self.config = path, config
        self.public, self.private = path / "public", path / "private"

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> "RunFolder":
        """Make the folder; one that already holds a run is refused, so that nothing is overwritten."""
        if (path / "config.json").exists():
            raise InputError(f"{path}: already holds a run; continue it with --resume {path}, or name another folder")
        folder = cls(path, config)
        folder.public.mkdir(parents=True, exist_ok=True)
        folder.private.mkdir(exist_ok=True)
        folder.private.chmod(0o700)
        write_text(folder.private / "README", _PRIVATE_NOTE)
        folder.write(path / "config.json", config.model_dump(mode="json"))
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an earlier run, with its own configuration."""
        stated = path / "config.json"
        if not stated.is_file():
            raise InputError(f"{path}: holds no run (there is no config.json in it)")
        try:
            values = json.loads(stated.read_text())
        except ValueError as error:
            raise InputError(f"{stated}: not readable ({error}); the run cannot be continued") from None
        return cls(path, RunConfig.from_mapping(values, where=str(stated)))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one process: two that label would draw the same labels twice."""
        with (self.path / ".lock").open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{self.path}: another process is working on this run; wait for it to end") from None
            yield

    @staticmethod
    def write(path: Path, payload: dict[str, Any]) -> None:
        """Write JSON, whole or not at all."""
        write_text(path, json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    @staticmethod
    def read(path: Path) -> dict[str, Any] | None:
        """Read JSON, or None where the stage has not been done."""
        return json.loads(path.read_text()) if path.is_file() else None
