"""The aliases of array types that every room uses."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.integer[Any]]
Floating: TypeAlias = NDArray[np.floating[Any]]
