"""Record the results of the cases in `golden.json`, or of those that are named.

    python tests/golden/record.py [CASE…]

The file was recorded once, at commit 388d2b1, and is compared bit for bit by `test_golden.py` for as long as the
rearrangement of the package lasts. It is not to be recorded again to make a test pass: a result that must differ is
listed in `changed.py` with its reason. Only a new case is added, by its name, from a checkout of that commit.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from golden.cases import CASES  # noqa: E402
from golden.closeness import here  # noqa: E402
from golden.drive import play  # noqa: E402

FILE = HERE / "golden.json"


def spent() -> Any:
    """Return the processor time of this process and of its children so far, and the time of day."""
    return np.array([sum(os.times()[:4]), time.monotonic()])


def main(names: list[str]) -> int:
    """Play the cases and write their results, one line each; the first line says where they were recorded."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for name in names or list(CASES):
        begun = spent()
        with tempfile.TemporaryDirectory() as folder:
            kept[name] = play(CASES[name], Path(folder).resolve())
        sys.stderr.write("{:6.2f} s of processor time, {:6.2f} s  {}\n".format(*(spent() - begun), name))
    kept[""] = here()
    names = ["", *(name for name in CASES if name in kept)]
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name], ensure_ascii=False)}" for name in names]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
