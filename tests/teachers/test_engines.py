"""Every engine gives the same votes, and a killed worker loses nothing."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed, register_parallel_backend
from joblib._parallel_backends import ThreadingBackend
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.tree import DecisionTreeClassifier

from ipate.cli.app import _run
from ipate.engines.teachers.store import VoteStore
from ipate.errors import InputError
from ipate.models import workers
from ipate.models.training import train_and_vote
from ipate.models.workers import Backend, Died

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
TEACHERS, MIDDLE = 50, 20


def noted_teacher(folder, *, slow=None):
    """Return a tree that records in a folder which process trains it; a local class, so it is pickled by value.

    The teacher `slow` hangs when it is trained for the first time.
    """

    class Noted(ClassifierMixin, BaseEstimator):
        def __init__(self, folder=None, slow=None, random_state=None):
            self.folder, self.slow, self.random_state = folder, slow, random_state

        def fit(self, X, y):
            first = int(X[0, 0])
            if first == self.slow and not list(Path(self.folder).glob(f"{first}-*")):
                Path(self.folder, f"{first}-{os.getpid()}-{time.monotonic_ns()}").touch()
                time.sleep(600)
            Path(self.folder, f"{first}-{os.getpid()}-{time.monotonic_ns()}").touch()
            self.tree_ = DecisionTreeClassifier(max_features=1, random_state=self.random_state).fit(X, y)
            self.classes_ = self.tree_.classes_
            return self

        def predict(self, X):
            return self.tree_.predict(X)

    return Noted(folder=str(folder), slow=slow)


def fragile():
    """Return a function that returns its task, and kills its process for task 3."""

    def told(task):
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    return told


def notes(folder):
    """Return (teacher, process) of every training that was started, in order."""
    entries = [tuple(map(int, path.name.split("-"))) for path in Path(folder).iterdir()]
    return [entry[:2] for entry in sorted(entries, key=lambda entry: entry[2])]


@contextmanager
def killing(folder):
    """Kill once the process that trains the middle teacher; yields a list that will hold its id."""
    killed, over = [], threading.Event()

    def watch():
        while not killed and not over.wait(0.02):
            busy = [process for teacher, process in notes(folder) if teacher == MIDDLE]
            if busy:
                killed.append(busy[0])
                os.kill(busy[0], signal.SIGKILL)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def votes_of(teacher, folder, *, teachers=TEACHERS, progress=None, **engine):
    """Return the votes of teachers whose own number is the first feature of their rows."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(teachers), 12)
    y = rng.integers(3, size=len(owner))
    X = np.column_stack([owner, rng.normal(size=(len(owner), 3)) + 2 * np.eye(3)[y]])
    pool = np.column_stack([np.zeros(40), rng.normal(size=(40, 3))])
    rows = [np.flatnonzero(owner == teacher) for teacher in range(teachers)]
    store = VoteStore(folder, n_teachers=teachers, n_queries=len(pool), n_classes=3, fingerprint="x")
    voted = train_and_vote(teacher, X, y, rows=rows, X_public=pool, n_classes=3, seed=3, progress=progress, **engine)
    with store.writing() as put:
        for number, votes in voted:
            put(number, votes)
    assert store.missing == ()
    return np.array(store.matrix)


@pytest.fixture(scope="module")
def by_loky(tmp_path_factory):
    """The votes of teachers trained by joblib's processes."""
    folder = tmp_path_factory.mktemp("loky")
    return votes_of(noted_teacher(folder), folder / "votes", n_jobs=2, backend="loky")


@pytest.fixture(scope="module")
def cluster():
    """The address of a Ray cluster in separate processes, with two workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="ray")  # short, because paths of sockets have a limit
    options = {"--num-cpus": 2, "--port": port, "--object-store-memory": 80 << 20, "--temp-dir": folder}
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--include-dashboard=false"]
    head = subprocess.Popen(
        [*command, *(f"{name}={value}" for name, value in options.items())],
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"127.0.0.1:{port}"
        _wait_for(address, head)
        yield address
    finally:
        head.terminate()
        head.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(address, head):
    """Wait until the cluster answers another process."""
    code = f"import ray; ray.init(address={address!r}); assert ray.cluster_resources()['CPU'] == 2"
    for _ in range(60):
        assert head.poll() is None, "the cluster did not start"
        try:
            Backend(backend="ray", address=address)
        except InputError:
            time.sleep(0.5)
            continue
        if subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=60).returncode == 0:
            return
    raise AssertionError("the cluster never answered")


@needs_ray
def test_ray_retrains_only_teachers_of_killed_worker(tmp_path, cluster, by_loky, capsys):
    """With kill -9 during fifty teachers on a running cluster, the votes are those of loky."""
    seen = []
    (tmp_path / "notes").mkdir()
    teacher = noted_teacher(tmp_path / "notes", slow=MIDDLE)
    with killing(tmp_path / "notes") as killed:
        votes = votes_of(teacher, tmp_path / "votes", backend="ray", address=cluster, progress=seen.append)
    np.testing.assert_array_equal(votes, by_loky)
    assert seen == list(range(1, TEACHERS + 1))  # counted across workers
    begun = notes(tmp_path / "notes")
    first, second = (process for number, process in begun if number == MIDDLE)
    assert killed == [first]
    assert second != first
    assert sorted(number for number, _ in begun) == sorted([*range(TEACHERS), MIDDLE])  # no other teacher started twice
    assert len({process for _, process in begun}) >= 2
    assert capsys.readouterr().out == ""  # Ray prints to stderr


@needs_ray
def test_ray_names_task_that_kills_every_worker(cluster):
    tasks = dict.fromkeys(range(4)) | {3: 3}
    engine = Backend(backend="ray", n_jobs=2, address=cluster, retries=1)
    done = dict(engine.run(fragile(), tasks, shared={}))
    assert done.pop(3).startswith("its worker died 2 times: ")
    assert done == dict.fromkeys(range(3))


@needs_ray
def test_ray_starts_locally_without_address():
    """Run in a new process, because Ray reads its token when it is imported; nothing is left behind."""
    code = """
import os, tempfile
import numpy as np
from pathlib import Path
from ipate.models.workers import Backend

def told(task, *, data):
    return task, int(data.sum()), os.environ.get("RAY_AUTH_MODE"), len(os.environ.get("RAY_AUTH_TOKEN", ""))

before = dict(os.environ)
engine = Backend(backend="ray", n_jobs=2)
found = dict(engine.run(told, {7: "a", 8: "b"}, shared={"data": np.ones(1000)}))
assert found == {7: ("a", 1000, "token", 64), 8: ("b", 1000, "token", 64)}, found
left = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED")}
assert left == {name: before.get(name) for name in left}, left
assert not list(Path(tempfile.gettempdir()).glob("ipate-ray-*"))
"""
    with tempfile.TemporaryDirectory(prefix="t") as short:
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TMPDIR": short},
        )
    assert done.returncode == 0, done.stderr[-2000:]


def test_loky_replaces_killed_worker(tmp_path, by_loky):
    (tmp_path / "notes").mkdir()
    teacher = noted_teacher(tmp_path / "notes", slow=MIDDLE)
    with killing(tmp_path / "notes") as killed:
        votes = votes_of(teacher, tmp_path / "votes", backend="loky", n_jobs=2)
    np.testing.assert_array_equal(votes, by_loky)
    assert killed


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_loky_gives_up_only_task_that_kills_workers(n_jobs):
    tasks = dict.fromkeys(range(4)) | {3: 3}
    done = dict(Backend(backend="loky", n_jobs=n_jobs).run(fragile(), tasks, shared={}))
    assert done.pop(3) == Died("its worker process died 2 times")
    assert done == dict.fromkeys(range(3))


def test_exception_of_task_in_worker_is_raised():
    def failing(task):
        raise OSError(f"disk full at {task}")

    with pytest.raises(OSError, match="disk full at 7"):
        dict(Backend(backend="loky", n_jobs=1).run(failing, {0: 7}, shared={}))


def test_user_can_use_joblib_before_and_after():
    squares = delayed(pow)
    for _ in range(2):
        assert Parallel(n_jobs=2)(squares(n, 2) for n in range(4)) == [0, 1, 4, 9]
        assert dict(Backend(backend="loky", n_jobs=2).run(pow, {0: 3}, shared={"exp": 2})) == {0: 9}


def test_pool_ends_quietly_when_interrupted_after_submission(monkeypatch):
    """An exception in the pool's own thread would be printed; at this moment the thread has not seen every task."""
    said = []
    monkeypatch.setattr(threading, "excepthook", lambda caught: said.append(caught.exc_type))

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    others = set(threading.enumerate())
    for _ in range(8):
        left = workers.run(abs, dict.fromkeys(range(8), 0), shared={}, n_workers=2, retries=0)
        next(left)
        with monkeypatch.context() as patch:
            patch.setattr(workers, "wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                list(left)
        for thread in set(threading.enumerate()) - others:
            thread.join(2)
        assert said == []


ORPHANS = """
import os, sys, time
import numpy as np
from ipate.models import workers

def work(task, *, rows):
    open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
    time.sleep(300)

if __name__ == "__main__":
    list(workers.run(work, {0: 0, 1: 1}, shared={"rows": np.zeros(200_000)}, n_workers=2, retries=0))
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    script, seen = tmp_path / "orphans.py", tmp_path / "seen"
    script.write_text(ORPHANS)
    seen.mkdir()
    command = [sys.executable, str(script), str(seen)]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(seen.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    pids = [int(path.name) for path in seen.iterdir()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, pids))


def test_worker_killed_while_idle_is_replaced():
    def process(task):
        return os.getpid()

    engine = Backend(backend="loky", n_jobs=1)
    first, again = (dict(engine.run(process, {0: None}, shared={}))[0] for _ in range(2))
    assert first == again  # workers wait for the next tasks
    os.kill(first, signal.SIGKILL)
    time.sleep(1)
    assert dict(engine.run(process, {0: None}, shared={}))[0] != first


class AllAtOnce(ThreadingBackend):
    """A custom backend that cannot return results one by one."""

    supports_return_generator = False


register_parallel_backend("all-at-once", AllAtOnce)


@pytest.mark.parametrize("backend", ["threading", "sequential", "all-at-once"])
def test_every_registered_backend_gives_same_votes(tmp_path, by_loky, backend):
    (tmp_path / "notes").mkdir()
    seen = []
    votes = votes_of(
        noted_teacher(tmp_path / "notes"), tmp_path / "votes", backend=backend, n_jobs=2, progress=seen.append
    )
    np.testing.assert_array_equal(votes, by_loky)
    assert seen == list(range(1, TEACHERS + 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "loki"}, r"backend is 'loki': it cannot be used .*'loky'"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"address": "a:1"}, "address is 'a:1': it needs the backend ray or dask, not None"),
        ({"backend": "loky", "address": "a:1"}, "needs the backend ray or dask, not 'loky'"),
    ],
)
def test_impossible_engine_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Backend(**options)


@needs_ray
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("somewhere", "must be host:port"),
        ("127.0.0.1:1", r"no Ray cluster answers there \("),
        ("127.0.0.1:99999", "no Ray cluster answers there"),
    ],
)
def test_unreachable_cluster_is_refused_at_construction(address, message):
    with pytest.raises(InputError, match=message):
        Backend(backend="ray", address=address)


@pytest.mark.parametrize(("backend", "package"), [("ray", r"ipate\[ray\]"), ("dask", r"dask\[distributed\]")])
def test_missing_backend_gives_install_hint(monkeypatch, backend, package):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("ipate.models.workers.find_spec", lambda name: None)
    for name in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"backend is '{backend}': .*pip install '{package}'"):
        Backend(backend=backend)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--backend", "loki"], "backend is 'loki': it cannot be used"),
        (["--address", "127.0.0.1:1"], "address is '127.0.0.1:1': it needs the backend ray or dask"),
        (["--backend", "loky", "--teacher", "small"], "backend is 'loky': small trains in one batched model"),
    ],
)
def test_run_refuses_bad_engine_before_creating_folder(tmp_path, capsys, monkeypatch, flags, message):
    monkeypatch.setattr("ipate.models.named._net", lambda name: lambda **options: DecisionTreeClassifier())
    assert _run(["run", "--dataset", "digits", "--epsilon", "2", "--out", str(tmp_path / "out"), *flags]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


@needs_ray
def test_run_trains_on_a_ray_cluster(tmp_path, cluster):
    """A process prints only JSON to stdout, and its configuration records the engine."""
    settings = ["--epsilon", "20", "--teachers", "8", "--teacher", "bayes", "--student", "bayes", "--public", "200"]
    where = ["--backend", "ray", "--address", cluster, "--out", str(tmp_path / "out"), "--json", "--min-labels", "10"]
    command = [str(Path(sys.executable).with_name("ipate")), "run", "--dataset", "digits", *settings, *where]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["publishable"]["teachers"] == 8
    assert json.loads((tmp_path / "out" / "config.json").read_text())["teachers"]["address"] == cluster
    assert np.load(tmp_path / "out" / "private" / "votes" / "done.npy").all()
