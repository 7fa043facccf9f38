"""The loose bound: the Rényi divergence of the Gaussian vector behind a release.

It holds for all votes and in both directions, so its costs may be published. A check adds
N(0, σ_T²) to a maximum that moves by at most Δ; a label is post-processing of a noisy histogram
in which two classes move by Δ each.
"""

import numpy as np
from numpy.typing import ArrayLike

from ipate.accounting.conversion import Floats, check_orders, check_positive, check_sensitivity


def check_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, check_sigma: float) -> Floats:
    """Return αΔ²/(2σ_T²), the cost of one consensus check at every order.

    Mironov, "Rényi differential privacy" (2017), Proposition 7, at sensitivity Δ: the largest
    count moves by at most Δ, not by 2Δ.

    Parameters
    ----------
    orders : array of shape (A,)
        Rényi orders, each above 1.
    sensitivity : scalar or array
        Δ, the largest total weight that the person can move.
    check_sigma : float
        σ_T, the standard deviation of the check's noise.

    Returns
    -------
    array of shape (*sensitivity.shape, A)
    """
    ratio = check_sensitivity(sensitivity) / check_positive("check_sigma", check_sigma)
    return np.asarray(ratio[..., None] ** 2 * (check_orders(orders) / 2))


def label_rdp(orders: ArrayLike, *, sensitivity: ArrayLike, sigma: float) -> Floats:
    """Return αΔ²/σ², the cost of one noisy label at every order.

    Papernot et al., "Scalable private learning with PATE" (2018), Proposition 8, at sensitivity Δ
    (Individualized PATE, the theorem of the individual loose bound). Moves that spread over more
    than two classes cost less: their Euclidean length is at most √2·Δ.
    """
    ratio = check_sensitivity(sensitivity) / check_positive("sigma", sigma)
    return np.asarray(ratio[..., None] ** 2 * check_orders(orders))
