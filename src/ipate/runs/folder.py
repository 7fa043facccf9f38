"""The folder of a run: publishable files in `public`, all others in `private`, every file written atomically."""

import json
import secrets
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ipate._version import library_versions
from ipate.config import RunConfig
from ipate.engines.choose import read_settings
from ipate.engines.context import Settings
from ipate.errors import InputError
from ipate.files import FileLock, write_text
from ipate.models.named import NETS

_FORMAT = "ipate run 1"
_PRIVATE_NOTE = """This folder is private: it holds the votes of the teachers, the assignment of people to teachers, the
charges to each account, costs that were computed from votes, and notes about teachers that failed. Only the data owner
may see it; publish from the folder 'public' only.
"""


class RunFolder:
    """The files of one run; `create` makes the folder and `open` continues an existing run."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path, self.config = path, config
        self.public, self.private, self._lock_file = path / "public", path / "private", path / ".lock"

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> "RunFolder":
        """Create the folder; raise `InputError` if it already holds a run, so that nothing is overwritten."""
        check_new(path)
        folder = cls(path, config)
        folder.public.mkdir(parents=True, exist_ok=True)
        folder.private.mkdir(exist_ok=True)
        folder.private.chmod(0o700)
        write_text(folder.private / "README", _PRIVATE_NOTE)
        facts = {
            "format": _FORMAT,
            "id": f"{path.absolute().name}-{secrets.token_hex(4)}",
            "begun": datetime.now(UTC).isoformat(timespec="microseconds"),
            "noise": config.noise,
            "split_seed": config.split_seed,
            "versions": versions(config),
        }
        folder.write(path / "run.json", facts)  # before config.json, whose existence marks a run
        folder.write(path / "config.json", config.model_dump(mode="json"))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an existing run with its stored configuration."""
        stated = path / "config.json"
        if not stated.is_file():
            raise InputError(f"{path}: holds no run (it has no config.json)")
        values = cls.read(stated, advice="the run cannot be continued")
        folder = cls(path, RunConfig.from_mapping(values or {}, where=str(stated)))
        noise = folder.facts["noise"]
        if noise != folder.config.noise:  # never mix the two kinds of noise
            raise InputError(
                f"{stated}: seed is {folder.config.seed}, but the run began with {noise} noise: put the seed "
                "back, or begin a new run in another folder"
            )
        return folder

    @property
    def id(self) -> str:
        """The run's name in a ledger; it is unique, even among folders of the same name."""
        return str(self.facts["id"])

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The contents of `run.json`: the id, the start time, the kind of noise, and the versions."""
        stated = self.path / "run.json"
        found = self.read(stated, advice="the run cannot be continued")
        if found is None:
            raise InputError(f"{stated}: no such file; the run cannot be continued without it")
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
        """Whether the settings have been resolved; from then on they are read from the folder."""
        return (self.path / "settings.json").is_file() or (self.private / "allocation.npz").is_file()

    @cached_property
    def settings(self) -> Settings:
        """The resolved settings of the run, from `settings.json`; they are never chosen again."""
        return read_settings(self.path / "settings.json")

    def note_versions(self) -> None:
        """Record the library versions of a resumed run where they differ from the last ones."""
        found, here = self.facts, versions(self.config)
        later = found.get("resumed_with", [])
        if here != (later[-1] if later else found["versions"]):
            found["resumed_with"] = [*later, here]
            self.write(self.path / "run.json", found)

    @property
    def notes(self) -> Path:
        """The file of what private rows made fail, warn or unusable, for the data owner alone."""
        return self.private / "notes.json"

    def note_privately(self, **sections: Any) -> None:
        """Add sections to the private notes."""
        self.write(self.notes, {**(self.read(self.notes) or {}), **sections})

    def discard(self) -> None:
        """Remove a new run that was refused before its teachers voted; other files in its folder stay."""
        if (self.private / "votes").exists() or (self.private / "ledger.json").exists():
            return
        for part in (self.public, self.private):
            shutil.rmtree(part, ignore_errors=True)
        for name in (
            "config.json",
            "run.json",
            "data.json",
            "schema.json",
            "settings.json",
            "queries.npz",
            self._lock_file.name,
        ):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # it holds other files
            self.path.rmdir()

    def locked(self) -> FileLock:
        """Lock the folder for one process, because two processes would draw the same labels twice."""
        refusal = InputError(f"{self.path}: another process is working on this run; wait for it to end")
        return FileLock(self._lock_file, refusal=refusal, timeout=0.2)  # `busy` holds the lock briefly

    @property
    def busy(self) -> bool:
        """Whether a process is working on the run now."""
        return FileLock.is_held(self._lock_file)

    @staticmethod
    def write(path: Path, payload: dict[str, Any]) -> None:
        """Write JSON atomically."""
        write_text(path, json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    @staticmethod
    def read(path: Path, *, advice: str = "restore it, or remove it so that it is made again") -> dict[str, Any] | None:
        """Read JSON; return None where the file does not exist, so the stage has not been completed."""
        try:
            return json.loads(path.read_text()) if path.is_file() else None
        except ValueError as error:
            raise InputError(f"{path}: not readable ({error}); {advice}") from None


def check_new(path: Path | None) -> None:
    """Refuse a path that cannot be the folder of a new run."""
    if path is None:
        return
    if (path / "config.json").exists():
        raise InputError(f"{path}: already holds a run; continue it with --resume {path}, or name another folder")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; a run needs a folder, so name another path")


def refuse_public(target: Path, what: str, *, near: Path) -> None:
    """Refuse a file in the public folder of a run: of one that it lies in, and of those that `near` lies in."""
    place = target.resolve()
    for run in {place, *place.parents, *target.absolute().parents, near, *near.absolute().parents}:
        if (run / "run.json").is_file() and place.is_relative_to((run / "public").resolve()):
            raise InputError(f"{target}: {what} must not lie in the run's public folder")


def versions(config: RunConfig) -> dict[str, str]:
    """Return the library versions that a run depends on, with torch where its models need it."""
    models = (config.teachers.model, config.student.model)
    own = [name.partition(":")[0].partition(".")[0] for name in models if ":" in name]
    nets = ["torch"] if any(name in NETS for name in models) else []
    return library_versions(*nets, *(name for name in dict.fromkeys(own) if name not in ("sklearn", "ipate")))
