"""Official files of data sets: found in a folder or in the cache, or downloaded there.

Only downloads are verified by checksum. A file that exists already may be compressed differently and still contain the
same data, so it is verified by its parser (rows, shapes, classes).
"""

import hashlib
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipate.errors import InputError, IpateError, show
from ipate.files import replacing

_BLOCK = 1 << 20


class DataUnavailableError(IpateError):
    """A data set's files are not cached and not downloadable; the message says where to get and put them."""


@dataclass(frozen=True, kw_only=True)
class OfficialFile:
    """One published file of a data set."""

    name: str
    urls: tuple[str, ...]
    size: int
    sha256: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which the file is searched: also unpacked, and with `.idx` for `-idx`."""
        plain = self.name.removesuffix(".gz")
        return self.name, plain, plain.replace("-idx", ".idx"), self.name.replace("-idx", ".idx")


def official_files(urls: Sequence[str], *files: tuple[str, int, str]) -> tuple[OfficialFile, ...]:
    """Describe files by name, size in bytes and SHA-256; every one of the `urls` is a folder of all of them."""
    return tuple(
        OfficialFile(name=name, urls=tuple(url + name for url in urls), size=size, sha256=sha256)
        for name, size, sha256 in files
    )


def cache_folder() -> Path:
    """Return the cache of downloads: $IPATE_DATA, else $XDG_CACHE_HOME/ipate, else ~/.cache/ipate."""
    if own := os.environ.get("IPATE_DATA"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")  # its specification says to ignore a relative path
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "ipate"


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """How to obtain files. `timeout` limits each wait for a server in seconds, not the whole download."""

    data_dir: str | Path | None = None
    download: bool = True
    timeout: float = 30.0

    def __post_init__(self) -> None:
        if self.data_dir is not None and not Path(self.data_dir).is_dir():
            raise InputError(f"data_dir is {show(str(self.data_dir))}: there is no such folder")
        if not 0 < self.timeout < float("inf"):
            raise InputError(f"timeout is {show(self.timeout)}: it must be a number of seconds above 0")

    def folders(self, dataset: str) -> tuple[Path, ...]:
        """Return the folders to search, in order; each time the data set's own subfolder comes first."""
        places = [] if self.data_dir is None else [Path(self.data_dir)]
        places.append(cache_folder())
        return tuple(folder for place in places for folder in (place / dataset, place))

    def find(self, dataset: str, files: Sequence[OfficialFile]) -> tuple[Path, ...]:
        """Return the paths of all files in one folder, which never mixes two copies, and download those missing."""
        folders = self.folders(dataset)
        for folder in folders:
            paths = [_existing(folder, file) for file in files]
            if all(paths):
                return tuple(path for path in paths if path is not None)
        if not self.download:
            raise DataUnavailableError(_advice(dataset, files, folders, "download is off"))
        target = cache_folder() / dataset
        return tuple(_existing(target, file) or self._download(dataset, file, files, target) for file in files)

    def _download(self, dataset: str, file: OfficialFile, files: Sequence[OfficialFile], folder: Path) -> Path:
        reasons = []
        for url in file.urls:
            try:
                return self._download_from(url, file, folder)
            except (OSError, http.client.HTTPException) as error:  # URLError, timeouts and resets are OSErrors
                reasons.append(f"{url}: {_reason(error)}")
        raise DataUnavailableError(_advice(dataset, files, self.folders(dataset), "; ".join(reasons)))

    def _download_from(self, url: str, file: OfficialFile, folder: Path) -> Path:
        digest, received = hashlib.sha256(), 0
        logging.getLogger("paper").info("downloading %s, %.0f MB", url, file.size / 1e6)
        request = urllib.request.Request(url, headers={"User-Agent": "ipate"})  # noqa: S310  (from our own list)
        with _open(request, timeout=self.timeout) as answer:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(folder / file.name) as out:  # the file appears only if nothing below fails
                while received <= file.size and (block := answer.read(_BLOCK)):
                    received += len(block)
                    digest.update(block)
                    out.write(block)
                if received < file.size:
                    raise OSError(f"interrupted after {received:,} of {file.size:,} bytes")
                if digest.hexdigest() != file.sha256:
                    raise OSError(f"the checksum is wrong: sha256 {digest.hexdigest()}, not {file.sha256}")
        return folder / file.name


def _open(request: urllib.request.Request, *, timeout: float) -> Any:
    """Open a URL, and retry once if the server is busy; tests replace this function."""
    try:
        return urllib.request.urlopen(request, timeout=timeout)  # noqa: S310  (http and https from our own list)
    except urllib.error.HTTPError as error:
        busy = error.code in (429, 503)
        error.close()
        if not busy:
            raise
    time.sleep(1.0)
    return urllib.request.urlopen(request, timeout=timeout)  # noqa: S310


def _existing(folder: Path, file: OfficialFile) -> Path | None:
    return next((path for name in file.names if (path := folder / name).is_file()), None)


def _reason(error: BaseException) -> str:
    cause = getattr(error, "reason", error) if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "timed out"
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return " ".join(str(cause).split()) or type(cause).__name__


def _advice(dataset: str, files: Sequence[OfficialFile], folders: Sequence[Path], reason: str) -> str:
    """Return one line that tells how to put the files in place by hand."""
    names = ", ".join(file.name for file in files)
    sources = " or ".join(dict.fromkeys(url.rsplit("/", 1)[0] + "/" for file in files for url in file.urls))
    looked = ", ".join(str(folder) for folder in folders)
    lacking = {folder: [file.name for file in files if _existing(folder, file) is None] for folder in folders}
    partly = [f"; {folder} lacks only {', '.join(some)}" for folder, some in lacking.items() if len(some) < len(files)]
    return (
        f"the files of {dataset!r} are not cached and could not be downloaded ({reason}): "
        f"put {names} from {sources} together into one of {looked}{''.join(partly[:1])}"
    )
