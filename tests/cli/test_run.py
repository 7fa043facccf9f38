"""`ipate run` as a user runs it: the whole way, interrupted and resumed, and every way to get it wrong."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from blocks import flat
from ipate.cli.app import _run
from ipate.runs.folder import RunFolder

PROGRAM = Path(sys.executable).with_name("ipate")
SMALL = """
[data]
name = "digits"
public = 500
test = 300
[budgets]
policy = { high = 6.0, low = 20.0 }
shares = { high = 0.6, low = 0.4 }
[teachers]
model = "bayes"
number = 30
[labelling]
sigma = 3.0
check_sigma = 6.0
threshold = 12.0
min_labels = 10
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(SMALL)
    return path


def run_json(capsys, *arguments):
    assert _run(["run", *map(str, arguments), "--json"]) == 0
    return flat(json.loads(capsys.readouterr().out))


def refusal(capsys, *arguments):
    assert _run(["run", *map(str, arguments)]) in (1, 2)
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_run_from_config_file_completes_all_stages(config, tmp_path, capsys):
    out = tmp_path / "out"
    report = run_json(capsys, config, "--out", out)
    assert report["guarantee"] == "releasable"
    assert report["seeded"] is False
    assert report["labels"] > 5
    assert report["student_accuracy"] > 0.3
    assert len(report["by_class"]) == 10
    assert 0 < report["labels_of_standard_pate"] < report["labels"]
    assert {g["group"]: g["budget"] for g in report["groups"]} == {"high": 6.0, "low": 20.0}
    for group in report["groups"]:
        assert 0 < group["epsilon"] <= group["budget"]
    assert (out / "private").stat().st_mode & 0o077 == 0
    with (out / "public" / "labels.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert sum(row["answered"] == "1" for row in rows) == report["labels"]
    assert {row["label"] for row in rows if row["answered"] == "0"} <= {""}


def test_run_without_guarantee_publishes_nothing(config, tmp_path, capsys):
    """A run without a guarantee publishes nothing: its labels stopped where private votes said so."""
    out = tmp_path / "out"
    config.write_text(SMALL + 'bound = "exact"\n')
    report = run_json(capsys, config, "--out", out)
    assert report["guarantee"] == "private"
    assert list((out / "public").iterdir()) == []
    assert (out / "private" / "labels.csv").exists()


def test_seeded_run_publishes_nothing_and_says_so(config, tmp_path, capsys):
    out = tmp_path / "out"
    assert _run(["run", str(config), "--out", str(out), "--seed", "1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "NOT TO BE PUBLISHED (NO GUARANTEE (SEEDED))" in text
    assert "RELEASABLE" not in text
    assert "publish nothing" in text
    assert "people without a guarantee" in text
    assert "protected" not in text
    card = (out / "private" / "student" / "README.md").read_text()
    assert "## No promise holds" in card
    assert "Nobody is protected: neither the" in card
    assert "It holds for" not in card
    assert _run(["report", str(out), "--out", str(tmp_path / "r.html"), "--model-card", str(tmp_path / "c.md")]) == 2
    refused = capsys.readouterr().err
    assert "must stay with the data owner" in refused
    assert "no student" not in refused
    assert list((out / "public").iterdir()) == []


def test_resuming_finished_run_draws_no_new_labels(config, tmp_path, capsys):
    out = tmp_path / "out"
    first = run_json(capsys, config, "--out", out)
    labels = (out / "public" / "labels.csv").read_text()
    (out / "public" / "labels.csv").unlink()
    (out / "public" / "guarantee.json").unlink()
    again = run_json(capsys, "--resume", out)
    assert (out / "public" / "labels.csv").read_text() == labels
    assert again["groups"] == first["groups"]
    assert json.loads((out / "public" / "guarantee.json").read_text())["n_labels"] == first["labels"]


def people_csv(path, levels):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=len(levels))
    X = rng.normal(size=(len(levels), 2)) + 2 * y[:, None]
    rows = [f"{a:.4f},{b:.4f},{label},{level}" for (a, b), label, level in zip(X, y, levels, strict=True)]
    path.write_text("a,b,sick,consent\n" + "\n".join(rows) + "\n")
    return rows


def people_run(folder, levels):
    people_csv(folder / "people.csv", levels)
    (folder / "run.toml").write_text(
        f"""
        [data]
        file = "{folder / "people.csv"}"
        label = "sick"
        level = "consent"
        classes = ["0", "1"]
        public = 200
        test = 100
        public_without_protection = true
        [budgets]
        policy = {{ high = 2.0, low = 8.0 }}
        """
    )
    return folder / "run.toml"


def test_resume_refuses_changed_people_or_budgets(tmp_path, capsys):
    """Strict people must never be charged at a lax person's budget because a file changed in between."""
    levels = ["high", "low"] * 500
    out = tmp_path / "out"
    run_json(capsys, people_run(tmp_path, levels), "--out", out)
    (out / "private" / "labelling.json").unlink()
    rows = (tmp_path / "people.csv").read_text().splitlines()
    (tmp_path / "people.csv").write_text("\n".join([rows[0], *rows[:0:-1]]) + "\n")
    assert "not those that this run began with" in refusal(capsys, "--resume", out)
    people_csv(tmp_path / "people.csv", ["high"] * 1000)
    assert "not those that this run began with" in refusal(capsys, "--resume", out)


def test_budgets_in_data_file_cannot_be_overridden(tmp_path, capsys):
    config = people_run(tmp_path, ["high", "low"] * 300)
    assert "epsilon is 50: people.csv already has budgets" in refusal(
        capsys, config, "--epsilon", "50", "--out", tmp_path / "a"
    )
    text = config.read_text()
    config.write_text(text.replace("policy = { high = 2.0, low = 8.0 }", ""))
    assert "people.csv has consent levels without a policy" in refusal(capsys, config, "--out", tmp_path / "b")
    config.write_text(text.replace("public = 200", ""))
    assert "a file needs public rows from one place: public_file" in refusal(capsys, config, "--out", tmp_path / "c")


def test_people_without_protection_are_reported(tmp_path, capsys):
    assert _run(["run", str(people_run(tmp_path, ["high", "low"] * 500)), "--out", str(tmp_path / "out")]) == 0
    err = capsys.readouterr().err
    assert "200 rows are treated as public and 100 as test data, and no budget protects them" in err
    assert "high ε = 2" in err


def test_two_processes_cannot_share_one_run(config, tmp_path, capsys):
    out = tmp_path / "out"
    run_json(capsys, config, "--out", out)
    with RunFolder.open(out).locked():
        assert "another process" in refusal(capsys, "--resume", out)


def test_interrupted_run_continues_with_resume(config, tmp_path):
    """^C while teachers train: the folder keeps their votes, and --resume finishes."""
    out = tmp_path / "out"
    slow = SMALL.replace('model = "bayes"\nnumber = 30', 'model = "forest"\nnumber = 30\nn_jobs = 1')
    config.write_text(slow)
    process = subprocess.Popen(
        [PROGRAM, "run", config, "--out", out], stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    done = out / "private" / "votes" / "done.npy"
    for _ in range(600):
        if done.exists() and np.load(done).any():
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    before = int(np.load(done).sum())
    assert 0 < before < 30
    assert not (out / "public" / "labels.csv").exists()
    finished = subprocess.run(
        [PROGRAM, "run", "--resume", out, "--json"], capture_output=True, text=True, check=False, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    assert flat(json.loads(finished.stdout))["labels"] > 0


def test_seed_repeats_the_run_with_a_note(config, tmp_path, capsys):
    one = run_json(capsys, config, "--out", tmp_path / "a", "--seed", 3)
    other = run_json(capsys, config, "--out", tmp_path / "b", "--seed", 3)
    assert one["seeded"]
    assert "not private" in one["statement"]
    own = dict.fromkeys(("run", "ledger", "ledger_head", "report", "student", "notes"))  # every folder has its own
    assert {**one, **own} == {**other, **own}


def test_compare_trains_private_baseline_and_ceiling(config, tmp_path, capsys):
    out = tmp_path / "out"
    assert _run(["run", str(config), "--out", str(out), "--compare", "--seed", "1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "individualized PATE (this run)" in text
    assert "Nothing is promised about the comparison" in text
    assert (out / "private" / "compare.json").exists()
    assert not (out / "public" / "compare.json").exists()


@pytest.mark.parametrize("variant", ["standard", "upsampling", "vanishing"])
def test_command_line_flags_override_config_file(config, tmp_path, capsys, variant):
    report = run_json(capsys, config, "--out", tmp_path / "out", "--variant", variant, "--min-labels", 0, "--seed", 1)
    assert report["variant"] == variant
    assert all(group["epsilon"] <= group["budget"] for group in report["groups"])


def test_run_reads_csv_with_privacy_levels(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1500)
    X = rng.normal(size=(1500, 3)) + 2 * y[:, None]
    rows = ["a,b,c,sick,consent"]
    rows += [
        f"{x[0]:.4f},{x[1]:.4f},{x[2]:.4f},{'yes' if label else 'no'},{'high' if i % 3 else 'low'}"
        for i, (x, label) in enumerate(zip(X, y, strict=True))
    ]
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "run.toml").write_text(
        f"""
        [data]
        file = "{tmp_path / "people.csv"}"
        label = "sick"
        level = "consent"
        classes = ["no", "yes"]
        public = 300
        test = 200
        public_without_protection = true
        [budgets]
        policy = {{ high = 2.0, low = 6.0 }}
        """
    )
    report = run_json(capsys, tmp_path / "run.toml", "--out", tmp_path / "out")
    assert report["student_accuracy"] > 0.8
    assert {g["group"] for g in report["groups"]} == {"high", "low"}


BAD = {
    "nothing": ([], "nothing to run"),
    "an unknown data set": (["--dataset", "mnits"], "python -m paper"),
    "an unknown model": (["--dataset", "digits", "--epsilon", "5", "--teacher", "forrest"], "'forest'"),
    "a model that cannot be imported": (
        ["--dataset", "digits", "--epsilon", "5", "--teacher", "no.where:X"],
        "no.where",
    ),
    "no consent levels": (["--dataset", "digits"], "no consent levels"),
    "more teachers than people": (["--dataset", "digits", "--epsilon", "5", "--teachers", "5000"], "5000"),
    "a share that is none": (["--dataset", "digits", "--share", "high"], "LEVEL=SHARE"),
    "shares where people have levels": (["--dataset", "synthetic", "--share", "high=0.3"], "budgets.shares is given"),
    "an endless pool": (["--dataset", "digits", "--epsilon", "5", "--public", "inf"], "data.public is inf"),
    "a file for a folder": (["--dataset", "digits", "--epsilon", "5", "--out", __file__], "is a file"),
    "a public pool that does not fit": (["--dataset", "digits", "--epsilon", "5", "--public", "5000"], "5,000"),
    "a run that is not there": (["--resume", "nowhere"], "nowhere"),
    "resume with a flag": (["--resume", "nowhere", "--epsilon", "3"], "leave out all other options"),
    "resume with more": (["--resume", "nowhere", "--dataset", "digits"], "leave out all other options"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_settings_are_refused_in_one_line(case, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, words = BAD[case]
    assert words in refusal(capsys, *arguments)


def test_existing_run_folder_is_not_overwritten(config, tmp_path, capsys):
    out = tmp_path / "out"
    run_json(capsys, config, "--out", out)
    assert "already holds a run" in refusal(capsys, config, "--out", out)


def test_unknown_model_leaves_no_run_folder(tmp_path, capsys):
    out = tmp_path / "out"
    refusal(capsys, "--dataset", "digits", "--epsilon", "5", "--teacher", "bayess", "--out", out)
    assert not out.exists()


def test_misconfigured_teacher_is_named_in_the_error(config, tmp_path, capsys):
    out = tmp_path / "out"
    config.write_text(SMALL.replace('model = "bayes"', 'model = "logistic"\noptions = { solver = "none" }'))
    assert _run(["run", str(config), "--out", str(out)]) == 2
    assert "teacher is logistic: it fails on 500 made-up rows" in capsys.readouterr().err
    assert not out.exists()


def test_dry_run_shows_plan_and_writes_nothing(config, tmp_path, run):
    planned, dry = run("plan", config, "--json"), run("run", config, "--dry-run", "--json")
    assert (planned.code, dry.code) == (0, 0)
    assert json.loads(dry.out) == json.loads(planned.out)
    assert [path.name for path in tmp_path.iterdir()] == [config.name]
    shown = run("run", config, "--dry-run")
    assert "What a student can expect from a pool of 500 points" in shown.out
    assert "What more consent would bring" in shown.out
    assert run("run", "--resume", tmp_path, "--dry-run").code == 2


def test_useless_run_is_refused_before_training(tmp_path, run):
    """With ε = 0.5 for 1,437 people the budgets pay for no label of ten classes."""
    out = tmp_path / "run"
    told = run("run", "--dataset", "digits", "--epsilon", "0.5", "--out", out)
    assert told.code == 2
    assert "afford about 0 labels for 10 classes" in told.err
    assert "a student needs 30 (3 per class; set labelling.min_labels or --min-labels to accept fewer)" in told.err
    assert "Ballots (voting = 'ballots') would label all 180 points at once" in told.err
    assert told.err.count("\n") == 1
    assert not out.exists()
    assert run("run", "--dataset", "digits", "--epsilon", "0.5", "--dry-run", "--min-labels", "0").code == 0


def test_models_beside_the_configuration_are_found(tmp_path, run, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "ownmodels.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n\n"
        "teacher = make_pipeline(StandardScaler(), GaussianNB(var_smoothing=0.1))\n\n\n"
        "def student():\n    return GaussianNB(var_smoothing=0.1)\n"
    )
    config = tmp_path / "run.toml"
    config.write_text(
        SMALL.replace('model = "bayes"', 'model = "ownmodels:teacher"\nn_jobs = 2')
        + '[student]\nmodel = "ownmodels:student"\n'
    )
    told = run("run", config, "--out", tmp_path / "out", "--json")
    assert told.code == 0, told.err
    assert json.loads((tmp_path / "out" / "config.json").read_text())["code"] == str(tmp_path)
    config.write_text(SMALL.replace('model = "bayes"', 'model = "nomodels:teacher"'))
    refused = run("run", config, "--out", tmp_path / "other")
    assert refused.code == 2
    assert "the folder of the TOML file" in refused.err
