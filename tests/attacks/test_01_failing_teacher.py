"""One person's label decides whether a teacher can be fitted at all; nobody but the data owner may notice.

Two files differ in one label. In one of them a teacher of the kind quadratic discriminant analysis sees a class with a
single row, and cannot be fitted. Exit code, streams and public files of `ipate run` are the same for both.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ipate.options import DataConfig

CONSOLE = Path(sys.executable).with_name("ipate")
AGREED = "public_without_protection"  # an option that earlier versions did not have
CONFIG = """
split_seed = 0
[data]
file = "people.csv"
label = "ill"
person = "id"
classes = ["no", "yes", "unsure"]
public = 100
test = 20
[budgets]
epsilon = 8.0
[teachers]
model = "sklearn.discriminant_analysis:QuadraticDiscriminantAnalysis"
options = { solver = "eigen", shrinkage = 0.1 }
number = 8
n_jobs = 1
[labelling]
variant = "standard"
aggregator = "gnmax"
sigma = 4.0
max_labels = 30
"""
if AGREED in DataConfig.model_fields:
    CONFIG = CONFIG.replace("test = 20\n", f"test = 20\n{AGREED} = true\n")


def write_people(path, changed=()):
    """Write 280 people in three classes; those in `changed` have another class."""
    rng = np.random.default_rng(5)
    label = np.repeat(["no", "yes", "unsure"], [90, 90, 100])
    rng.shuffle(label)
    center = {"no": -2.0, "yes": 2.0, "unsure": 0.0}
    rows = [f"{i},{rng.normal(center[c]):.4f},{rng.normal():.4f}" for i, c in enumerate(label)]
    label[list(changed)] = "no"
    path.write_text("id,a,b,ill\n" + "".join(f"{row},{c}\n" for row, c in zip(rows, label, strict=True)))
    return label


def run(folder, *options, config=CONFIG):
    """Run `ipate run` as a process; return its exit code, its streams without random figures, and public files."""
    (folder / "run.toml").write_text(config)
    done = subprocess.run(
        [str(CONSOLE), "run", "run.toml", "--out", "out", *options],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    public = sorted(str(path.relative_to(folder / "out")) for path in (folder / "out" / "public").rglob("*"))
    streams = (_shape(stream.replace(str(folder), "FOLDER")) for stream in (done.stdout, done.stderr))
    return done.returncode, *streams, public


def _shape(text):
    """Return a text without what comes from released labels (figures, worst class, notes), and without widths."""
    text = re.sub(r"(?m)^ipate: warning: (no label was released|[0-9,]+ of [0-9,]+ labels )[^\n]*\n", "", text)
    text = re.sub(r"[\s─━]+", " ", re.sub(r"[0-9]+(\.[0-9]+)?", "#", text))
    return re.sub("(no|yes|unsure) #%", "# #%", text)


def folders(tmp_path):
    """Write the two files: in the second, one label more is changed, and a teacher has a class with a single row."""
    from ipate.config import RunConfig
    from ipate.runs.folder import RunFolder
    from ipate.runs.stages import allocated

    for name in ("probe", "one", "other"):
        (tmp_path / name).mkdir()
    label = write_people(tmp_path / "probe" / "people.csv")
    (tmp_path / "probe" / "run.toml").write_text(CONFIG)
    config = RunConfig.from_file(tmp_path / "probe" / "run.toml").model_dump()
    config["data"]["file"] = tmp_path / "probe" / "people.csv"
    allocation = allocated(RunFolder.create(tmp_path / "probe" / "run", RunConfig.from_mapping(config)))
    persons = allocation.persons[allocation.offsets[0] : allocation.offsets[1]]
    unsure = [int(allocation.people.ids[p]) for p in persons if label[int(allocation.people.ids[p])] == "unsure"]
    assert len(unsure) > 2
    write_people(tmp_path / "one" / "people.csv", unsure[2:])
    write_people(tmp_path / "other" / "people.csv", unsure[1:])
    return tmp_path / "one", tmp_path / "other"


def test_failing_teacher_is_not_visible(tmp_path):
    one, other = folders(tmp_path)
    found = run(one)
    assert found[0] == 0
    assert run(other) == found
    notes = json.loads((other / "out" / "private" / "notes.json").read_text())
    assert "only 1 sample" in notes["teachers"]["0"][0]
    assert "0" not in json.loads((one / "out" / "private" / "notes.json").read_text())["teachers"]


BOOM = '''
import os, sys, warnings
import numpy as np
from sklearn.naive_bayes import GaussianNB

class Boom(GaussianNB):
    """Raises, exits or crashes on some rows, and talks about others."""
    def fit(self, X, y):
        even = np.ptp(np.bincount(y)) <= 1  # as in the trial on made-up rows
        odd = 0 if even else 1 + int(1000 * abs(X).sum()) % 3
        if odd == 1: os.abort()
        if odd == 2: sys.exit(7)
        print("secret"); sys.stderr.write("secret"); os.system("echo secret >&2"); warnings.warn("secret")
        return super().fit(X, y)
    def predict(self, X):
        found = super().predict(X)
        return np.full(len(X), np.nan) if self.theta_[0, 0] < -2 else found
'''


def test_crash_exit_and_output_of_teachers_stay_private(tmp_path):
    """Not the exit code, a stream or a file tells that teachers raise, exit, abort, print, warn or vote nonsense."""
    quiet, loud = tmp_path / "quiet", tmp_path / "loud"
    for folder in (quiet, loud):
        folder.mkdir()
        write_people(folder / "people.csv")
    (loud / "boom.py").write_text(BOOM)
    kind = """sklearn.discriminant_analysis:QuadraticDiscriminantAnalysis"
options = { solver = "eigen", shrinkage = 0.1 }"""
    found = run(quiet, config=CONFIG.replace(kind, 'bayes"'))
    config = CONFIG.replace(kind, 'boom:Boom"')
    assert found[0] == 0
    assert run_with_path(loud, config) == found
    notes = json.loads((loud / "out" / "private" / "notes.json").read_text())["teachers"]
    said = json.dumps(notes)
    assert "secret" in said
    assert "worker process died" in said


def run_with_path(folder, config):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
        return run(folder, config=config)


def test_misconfigured_teacher_is_refused_before_private_rows(tmp_path):
    write_people(tmp_path / "people.csv")
    (tmp_path / "run.toml").write_text(CONFIG.replace("shrinkage = 0.1", "shrinkage = 7"))
    done = subprocess.run(
        [str(CONSOLE), "run", "run.toml", "--out", "out"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "made-up rows" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()
