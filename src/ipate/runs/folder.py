"""A run's folder: what may be shown in `public`, what must not in `private`, each file whole or not there."""

import json
import secrets
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ipate._version import library_versions
from ipate.errors import InputError
from ipate.files import FileLock, write_text
from ipate.ledger.records import NoiseKind, noise_kind
from ipate.planning.settings import Settings
from ipate.runs.config import RunConfig
from ipate.teachers.models import NETS

_FORMAT = "ipate run 1"
_PRIVATE_NOTE = """What lies here is private: the votes of the teachers, who taught which teacher, what was charged to
whom, and costs that were computed from votes. Nobody but the holder of the data may see it; publish from the folder
'public' only.
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
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: is a file; a run is kept in a folder, so name another place")
        folder = cls(path, config)
        folder.public.mkdir(parents=True, exist_ok=True)
        folder.private.mkdir(exist_ok=True)
        folder.private.chmod(0o700)
        write_text(folder.private / "README", _PRIVATE_NOTE)
        facts = {
            "format": _FORMAT,
            "id": f"{path.absolute().name}-{secrets.token_hex(4)}",
            "begun": datetime.now(UTC).isoformat(timespec="microseconds"),
            "noise": noise_kind(seeded=config.seed is not None),
            "split_seed": config.split_seed,
            "versions": versions(config),
        }
        folder.write(path / "run.json", facts)  # before config.json, which makes the folder a run
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
        folder = cls(path, RunConfig.from_mapping(values, where=str(stated)))
        if folder.noise != noise_kind(seeded=folder.config.seed is not None):  # labels of both kinds must not be mixed
            raise InputError(
                f"{stated}: seed is {folder.config.seed} and the run began with {folder.noise} noise: put the seed "
                "back as it was, or begin a new run in another folder"
            )
        return folder

    @property
    def id(self) -> str:
        """The run's name in a ledger; no other run has it, even in a folder of the same name."""
        return str(self.facts["id"])

    @property
    def noise(self) -> NoiseKind:
        """The kind of noise that the run began with."""
        return noise_kind(seeded=self.facts["noise"] == "seeded")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What was noted when the run began: its id, when, the noise, versions."""
        stated = self.path / "run.json"
        try:
            found = self.read(stated)
        except ValueError as error:
            raise InputError(f"{stated}: not readable ({error}); the run cannot be continued") from None
        if found is None:
            raise InputError(f"{stated}: it is not there; the run cannot be continued without it")
        if found.get("format") != _FORMAT:
            raise InputError(
                f"{stated}: its format is {found.get('format')!r}, and this version of ipate reads {_FORMAT!r}; "
                "begin a new run in another folder"
            )
        if not {"id", "noise", "versions"} <= found.keys():
            raise InputError(f"{stated}: it is incomplete; the run cannot be continued without it")
        return found

    @property
    def begun(self) -> bool:
        """Whether the settings were resolved: from then on they are read from the folder."""
        return (self.path / "settings.json").is_file() or (self.private / "allocation.npz").is_file()

    @cached_property
    def settings(self) -> Settings:
        """The settings that the run began with, from `settings.json`; nobody chooses them again."""
        return Settings.read(self.path / "settings.json")

    def note_versions(self) -> None:
        """Note the versions of whoever continues the run, where they are others than before."""
        found, here = self.facts, versions(self.config)
        later = found.get("resumed_with", [])
        if here != (later[-1] if later else found["versions"]):
            found["resumed_with"] = [*later, here]
            self.write(self.path / "run.json", found)

    def locked(self) -> FileLock:
        """Lock the folder for one process: two that label would draw the same labels twice."""
        refusal = InputError(f"{self.path}: another process is working on this run; wait for it to end")
        return FileLock(self._lock_file, refusal=refusal, timeout=0.2)  # `busy` takes the lock for an instant

    @property
    def busy(self) -> bool:
        """Whether a process is working on the run now."""
        return FileLock.is_held(self._lock_file)

    @property
    def _lock_file(self) -> Path:
        return self.path / ".lock"

    @staticmethod
    def write(path: Path, payload: dict[str, Any]) -> None:
        """Write JSON, whole or not at all."""
        write_text(path, json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    @staticmethod
    def read(path: Path) -> dict[str, Any] | None:
        """Read JSON, or None where the stage has not been done."""
        return json.loads(path.read_text()) if path.is_file() else None


def versions(config: RunConfig) -> dict[str, str]:
    """Return the versions that a run of this configuration depends on; torch where its models need it."""
    models = (config.teachers.model, config.student.model)
    own = [name.partition(":")[0].partition(".")[0] for name in models if ":" in name]
    nets = ["torch"] if any(name in NETS for name in models) else []
    return library_versions(*nets, *(name for name in dict.fromkeys(own) if name not in ("sklearn", "ipate")))
