import hashlib
import io
import urllib.error
from pathlib import Path

import pytest

from ipate.data import load
from ipate.errors import InputError, IpateError
from paper import fetch
from paper.fetch import DataUnavailableError, Fetch, OfficialFile, cache_folder

CONTENT = b"some official bytes" * 1000


def official(name="a.gz", *, content=CONTENT, mirrors=1, **changes):
    made = {
        "name": name,
        "urls": tuple(f"https://host{mirror}.example/data/{name}" for mirror in range(mirrors)),
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return OfficialFile(**{**made, **changes})


@pytest.fixture
def cache(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    monkeypatch.setenv("IPATE_DATA", str(folder))
    return folder


@pytest.fixture
def server(monkeypatch):
    """Replaces the network: answers by host and records the requests."""

    class Server:
        def __init__(self):
            self.asked, self.answers = [], {}

        def open(self, request, *, timeout):
            self.asked.append((request.full_url, timeout))
            answer = self.answers.get(request.host, CONTENT)
            if isinstance(answer, BaseException):
                raise answer
            return answer if hasattr(answer, "read") else io.BytesIO(answer)

    made = Server()
    monkeypatch.setattr(fetch, "_open", made.open)
    return made


class Breaking(io.BytesIO):
    """A connection that delivers something and then fails."""

    def __init__(self, error):
        super().__init__(CONTENT)
        self.error, self.calls = error, 0

    def read(self, size=-1):
        self.calls += 1
        if self.calls > 1:
            raise self.error
        return super().read(100)


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_download_is_verified_reported_and_cached(cache, server, caplog):
    caplog.set_level("INFO", logger="paper")
    paths = Fetch(timeout=7).find("set", [official()])
    assert paths == (cache / "set" / "a.gz",)
    assert paths[0].read_bytes() == CONTENT
    assert "downloading https://host0.example/data/a.gz, 0 MB" in caplog.text
    assert server.asked == [("https://host0.example/data/a.gz", 7)]
    assert Fetch().find("set", [official()]) == paths
    assert len(server.asked) == 1
    assert files_in(cache) == ["set/a.gz"]


def test_next_mirror_is_tried_after_a_failure(cache, server):
    server.answers["host0.example"] = b"x" * len(CONTENT)
    assert Fetch().find("set", [official(mirrors=2)])[0].read_bytes() == CONTENT
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"y" * len(CONTENT), "the checksum is wrong: sha256 "),
        (CONTENT + b"more", "the checksum is wrong"),
        (CONTENT[:-1], "interrupted after 18,999 of 19,000 bytes"),
        (TimeoutError("timed out"), "timed out"),
        (urllib.error.URLError(TimeoutError("timed out")), "timed out"),
        (urllib.error.URLError("no route"), r"\(https://host0.example/data/a.gz: no route\)"),
        (Breaking(ConnectionResetError("reset by peer")), "reset by peer"),
        (Breaking(TimeoutError()), "timed out"),
    ],
)
def test_failed_download_leaves_no_file_and_gives_advice(cache, server, answer, words):
    server.answers["host0.example"] = answer
    with pytest.raises(DataUnavailableError, match=words) as caught:
        Fetch().find("set", [official()])
    assert files_in(cache) == []
    text = str(caught.value)
    assert "put a.gz from https://host0.example/data/ together into one of" in text
    assert str(cache / "set") in text
    assert "\n" not in text
    assert isinstance(caught.value, IpateError)


def test_http_status_is_named_in_the_message(cache, server):
    error = urllib.error.HTTPError("https://host0.example", 404, "gone", None, None)
    server.answers["host0.example"] = error
    with pytest.raises(DataUnavailableError, match="HTTP 404"):
        Fetch().find("set", [official()])


def test_interrupted_download_leaves_no_file(cache, server):
    server.answers["host0.example"] = Breaking(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Fetch().find("set", [official()])
    assert files_in(cache) == []


def test_endless_download_is_stopped(cache, server):
    class Endless(io.BytesIO):
        def read(self, size=-1):
            return b"z" * size

    server.answers["host0.example"] = Endless()
    with pytest.raises(DataUnavailableError, match="checksum"):
        Fetch().find("set", [official()])
    assert files_in(cache) == []


def test_unwritable_cache_is_reported(cache, server):
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataUnavailableError, match=r"Not a directory|File exists"):
        Fetch().find("set", [official()])


def test_data_dir_comes_first_and_folders_are_not_mixed(cache, server, tmp_path):
    mine = tmp_path / "mine"
    (mine / "set").mkdir(parents=True)
    (cache / "set").mkdir(parents=True)
    wanted = [official("a.gz"), official("b.gz")]
    (mine / "a.gz").write_text("flat")
    (mine / "set" / "b").write_text("own folder")
    (cache / "set" / "a.gz").write_text("kept")
    (cache / "set" / "b").write_text("kept")
    assert Fetch(data_dir=mine).find("set", wanted) == (cache / "set" / "a.gz", cache / "set" / "b")
    (mine / "b").write_text("flat")
    assert Fetch(data_dir=mine).find("set", wanted) == (mine / "a.gz", mine / "b")
    (mine / "set" / "a.gz").write_text("own folder")
    assert Fetch(data_dir=mine).find("set", wanted) == (mine / "set" / "a.gz", mine / "set" / "b")
    assert server.asked == []


def test_missing_files_are_named_without_download(cache, server, tmp_path):
    (tmp_path / "a.gz").write_text("here")
    with pytest.raises(DataUnavailableError, match="download is off") as caught:
        Fetch(data_dir=tmp_path, download=False).find("set", [official("a.gz"), official("b.gz")])
    assert f"{tmp_path} lacks only b.gz" in str(caught.value)
    assert server.asked == []


def test_every_data_set_names_its_missing_files(cache, server, tmp_path):
    for name, file in (
        ("mnist", "t10k-labels-idx1-ubyte.gz"),
        ("fashion-mnist", "train-images-idx3-ubyte.gz"),
        ("svhn", "test_32x32.mat"),
        ("adult", "adult.test"),
    ):
        with pytest.raises(DataUnavailableError, match=file):
            load(name, data_dir=tmp_path, download=False)


def test_invalid_data_dir_and_timeout_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such folder"):
        load("mnist", data_dir=tmp_path / "nowhere")
    with pytest.raises(InputError, match="timeout is 0"):
        Fetch(timeout=0)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("IPATE_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("IPATE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x" / "ipate"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "ipate"


def test_busy_server_is_retried_once(monkeypatch):
    answers = [urllib.error.HTTPError("https://h.example", 503, "busy", None, None), io.BytesIO(b"now")]

    def urlopen(request, timeout):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(fetch.urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    assert fetch._open("https://h.example", timeout=1).read() == b"now"
    answers.append(urllib.error.HTTPError("https://h.example", 404, "gone", None, None))
    with pytest.raises(urllib.error.HTTPError):
        fetch._open("https://h.example", timeout=1)
