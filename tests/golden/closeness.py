"""How numbers are compared: bit for bit where they were recorded, and to nine digits on other processors.

The last bit of a sum of exponentials depends on the instructions that numpy and its linear algebra use, and so on the
processor. Labels, histograms and predictions do not depend on it; costs may differ by 1e-15 of their size.
"""

import math
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

TOLERANCE = 1e-9


def here() -> dict[str, Any]:
    """Return what the last bits of numbers depend on: libraries, and the instructions that they use."""
    kernels = {pool["architecture"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    found = np.show_config(mode="dicts")["SIMD Extensions"]
    return {"numpy": np.__version__, "scipy": scipy.__version__, "blas": sorted(kernels), "simd": found["found"]}


def same(recorded: Any, found: Any, *, exactly: bool) -> bool:
    """Return whether two results are equal; with `exactly` false, fractions may differ in their last digits."""
    if isinstance(recorded, list) and isinstance(found, list):
        pairs = zip(recorded, found, strict=False)
        return len(recorded) == len(found) and all(same(*pair, exactly=exactly) for pair in pairs)
    if isinstance(recorded, dict) and isinstance(found, dict):
        pairs = ((recorded[name], found.get(name)) for name in recorded)
        return recorded.keys() == found.keys() and all(same(*pair, exactly=exactly) for pair in pairs)
    if not exactly and isinstance(recorded, float) and isinstance(found, float):
        return math.isclose(recorded, found, rel_tol=TOLERANCE)
    return type(recorded) is type(found) and recorded == found
