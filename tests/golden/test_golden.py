"""Results stay bit for bit as they were recorded at commit 388d2b1, unless `changed.py` lists them with a reason."""

import json
from pathlib import Path

import pytest

from golden.cases import CASES
from golden.changed import CHANGED
from golden.closeness import here, same
from golden.drive import play

FILE = Path(__file__).with_name("golden.json")
RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
EXACTLY = RECORDED.pop("") == here()


def leaves(found, path=""):
    """Yield every value in results with its path, lists as a whole."""
    if not isinstance(found, dict):
        yield path, found
        return
    for name, value in found.items():
        yield from leaves(value, f"{path}.{name}" if path else name)


def differing(recorded, found):
    """Return the paths at which results differ, with both values."""
    before, now = dict(leaves(recorded)), dict(leaves(found))
    return {
        path: (before.get(path, "nothing"), now.get(path, "nothing"))
        for path in sorted(before.keys() | now.keys())
        if not same(before.get(path, "nothing"), now.get(path, "nothing"), exactly=EXACTLY)
    }


def covers(place, path):
    return place in ("", path) or path.startswith(f"{place}.")


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_recorded(name, tmp_path):
    unlike, meant = differing(RECORDED[name], play(CASES[name], tmp_path.resolve())), CHANGED.get(name, {})
    new = {path: pair for path, pair in unlike.items() if not any(covers(place, path) for place in meant)}
    told = "\n".join(f"  {path}: {before} before, {now} now" for path, (before, now) in new.items())
    assert not new, f"{name} differs:\n{told}"
    idle = [place for place in meant if not any(covers(place, path) for path in unlike)]
    assert not idle, f"listed as changed, but as recorded: {idle}"


def test_every_case_is_recorded_in_a_small_file():
    assert list(RECORDED) == list(CASES)
    assert CHANGED.keys() <= CASES.keys()
    assert FILE.stat().st_size < 300_000
