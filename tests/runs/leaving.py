"""Small runs on a file of synthetic people, which tests interrupt at a chosen point."""

from contextlib import contextmanager

import numpy as np

from ipate.config import RunConfig
from ipate.ledger.sqlite import SqliteLedger
from ipate.runs.folder import RunFolder
from ipate.runs.ledgers import ledger_path
from ipate.runs.stages import allocated, execute
from ipate.runs.withdrawal import withdraw

N_ROWS = 420


class StoppedError(Exception):
    """Raised by a test to interrupt a run."""


def people_file(path, *, blank=()):
    """Write people of one or two rows each; `blank` names people whose values are overwritten."""
    rng = np.random.default_rng(5)
    y = rng.integers(2, size=N_ROWS)
    X = rng.normal(size=(N_ROWS, 2)) + 2.5 * y[:, None]
    lines = ["a,b,sick,consent,person"]
    for row in range(N_ROWS):
        person = f"p{row % 330}"
        level = "low" if row % 330 % 3 == 0 else "high"
        a, b, sick = (0.0, 0.0, 0) if person in blank else (*X[row], y[row])
        lines.append(f"{a:.4f},{b:.4f},{sick},{level},{person}")
    path.write_text("\n".join(lines) + "\n")


def settings(file, *, seed=None, ledger=None, split_seed=0, fresh_ledger=False, **labelling):
    values = {
        "data": {
            "file": file,
            "label": "sick",
            "level": "consent",
            "person": "person",
            "classes": ["0", "1"],
            "public": 60,
            "test": 20,
            "public_without_protection": True,
        },
        "budgets": {"policy": {"high": 20.0, "low": 50.0}, "delta": 1e-4},
        "teachers": {"model": "bayes", "number": 12, "backend": "sequential"},
        "labelling": {"sigma": 2.0, "check_sigma": 4.0, "threshold": 6.0, **labelling},
        "student": {"model": "bayes"},
        "seed": seed,
        "split_seed": split_seed,
        "ledger": ledger,
        "fresh_ledger": fresh_ledger,
    }
    if labelling.get("voting") == "ballots":
        values |= {"teachers": {"model": "bayes", "backend": "sequential"}, "labelling": labelling}
    return RunConfig.from_mapping(values)


def begin(tmp_path, name="run", **options):
    """Create the folder of a run; no stage has been executed yet."""
    file = tmp_path / "people.csv"
    if not file.is_file():
        people_file(file)
    return RunFolder.create(tmp_path / name, settings(file, **options))


def go_on(folder, *, until=None, monkeypatch=None):
    """Run the remaining stages, or stop labelling after `until` queries."""

    @contextmanager
    def bar(title, _):
        def tell(done):
            if title == "queries labelled" and until is not None and done >= until:
                raise StoppedError

        yield tell

    if until is not None:
        monkeypatch.setattr("ipate.engines.teachers.loop.batch_size", lambda *_: 2)
    try:
        return execute(RunFolder.open(folder.path), bar=bar)
    except StoppedError:
        return None
    finally:
        if until is not None:
            monkeypatch.undo()


def leave(folder, person):
    with folder.locked():
        return withdraw(folder, allocated(folder), person)


def votes_of(folder):
    return np.array(np.load(folder.private / "votes" / "votes.npy")), np.load(folder.private / "votes" / "done.npy")


def spent(folder, person):
    """Return the cost of a person over all runs on the ledger, as μ²."""
    from ipate.accounting.bounds import Meter

    with SqliteLedger.read(ledger_path(folder)) as ledger:
        return float(ledger.cost_of(person, Meter("gdp"))[0])
