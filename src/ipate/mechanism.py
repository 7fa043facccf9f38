"""What noise a voting adds: the parameters of its releases, checked once."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ipate.accounting._checks import check_positive
from ipate.errors import InputError

__all__ = ["Mechanism", "Noise"]

Noise: TypeAlias = Literal["gaussian", "laplace"]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The releases of one query: a label, and before it a check where σ_T and T are given.

    Attributes
    ----------
    sigma : float
        σ of the label's noise; under Laplace noise its scale.
    check_sigma, threshold : float, optional
        σ_T and T of the check; both or neither.
    noise : {"gaussian", "laplace"}
        The label's noise. Laplace is the historical LNMax, which has no check.
    """

    sigma: float
    check_sigma: float | None = None
    threshold: float | None = None
    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        check_positive("sigma" if self.noise == "gaussian" else "scale", self.sigma)
        if (self.check_sigma is None) != (self.threshold is None):
            missing = "threshold" if self.threshold is None else "check_sigma"
            raise InputError(f"{missing} is not given: a check needs both check_sigma and threshold")
        if self.check_sigma is not None and self.threshold is not None:
            check_positive("check_sigma", self.check_sigma)
            if not np.isfinite(self.threshold):
                raise InputError(f"threshold is {self.threshold}: it must be a finite number of votes")
            if self.noise == "laplace":
                raise InputError("check_sigma is given: LNMax has no check; use the confident aggregator")

    @property
    def has_check(self) -> bool:
        """Whether a consensus check precedes the label."""
        return self.check_sigma is not None
