"""Label spreading on a sparse nearest-neighbour graph, in torch: the first targets of a semi-supervised student.

Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with local and global consistency", NIPS 2003: Z solves
Z = α·S·Z + Y, where S = D^-½·W·D^-½ for the symmetric weights W of the graph.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ipate.errors import InputError
from ipate.torch.loop import chosen_device

_BLOCK = 1 << 25  # similarities at a time


def spread_labels(
    features: NDArray[Any],
    labels: NDArray[Any],
    *,
    n_classes: int,
    sample_weight: NDArray[Any] | None = None,
    n_neighbors: int = 15,
    alpha: float | None = None,
    device: str | torch.device = "auto",
) -> NDArray[np.float32]:
    """Return the distribution over classes of every point, (N, classes); zeros where no label reaches.

    Parameters
    ----------
    features : array of shape (N, width)
        Compared by their angle.
    labels : integer array of shape (N,)
        Class ids, −1 without a label.
    n_classes : int
        The number of classes. Every class has the same mass at the start, whatever the number of its labels.
    sample_weight : array of shape (N,), optional
        How much each label counts.
    n_neighbors : int
        Edges per point, before the graph is made symmetric.
    alpha : float, optional
        How far labels spread, below 1. Default: .99 where at most one point in 75 has a label, else .95.
    device : str
        "auto", "cpu", "cuda" or another torch device.
    """
    chosen, known = chosen_device(device), np.flatnonzero(np.asarray(labels) >= 0)
    if not len(known):
        raise InputError("no point has a label, so there is nothing to spread")
    if alpha is None:
        alpha = 0.99 if 75 * len(known) <= len(labels) else 0.95
    if not 0 < alpha < 1:
        raise InputError(f"alpha is {alpha}: it must be between 0 and 1")
    given = np.zeros((len(labels), n_classes), dtype=np.float32)
    given[known, np.asarray(labels)[known]] = 1 if sample_weight is None else np.asarray(sample_weight)[known]
    given /= np.maximum(given.sum(axis=0), 1e-12)
    start = torch.from_numpy(given).to(chosen)
    graph = _graph(torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32)).to(chosen), n_neighbors)
    found = start
    for _ in range(round(6 / (1 - alpha))):  # what is left out is below α^steps < .3%
        found = alpha * torch.sparse.mm(graph, found) + start
    total = found.sum(dim=1, keepdim=True)
    spread: NDArray[np.float32] = torch.where(total > 0, found / total.clamp_min(1e-30), 0.0).cpu().numpy()
    return spread


def _graph(features: Tensor, n_neighbors: int) -> Tensor:
    """Return D^-½·W·D^-½ for w = exp(−d²/mean(d)²) between neighbours on the unit sphere, as a sparse matrix."""
    unit = functional.normalize(features, dim=1)
    n = len(unit)
    k = min(n_neighbors, n - 1)
    near, close = [], []
    for start in range(0, n, max(1, _BLOCK // n)):
        scores = unit[start : start + max(1, _BLOCK // n)] @ unit.t()
        own = torch.arange(len(scores), device=unit.device)
        scores[own, own + start] = -torch.inf
        best = scores.topk(k, dim=1)
        near.append(best.indices)
        close.append(best.values)
    columns = torch.cat(near).flatten()
    rows = torch.arange(n, device=unit.device).repeat_interleave(k)
    squares = (2 - 2 * torch.cat(close).flatten()).clamp_min(0)
    weights = torch.exp(-squares / squares.sqrt().mean().square().clamp_min(1e-12))
    ends = torch.stack([torch.cat([rows, columns]), torch.cat([columns, rows])])
    both = torch.sparse_coo_tensor(ends, weights.repeat(2), (n, n), check_invariants=True).coalesce()
    degree = torch.zeros(n, device=unit.device).index_add_(0, both.indices()[0], both.values())
    scale = degree.clamp_min(1e-12).rsqrt()
    values = both.values() * scale[both.indices()[0]] * scale[both.indices()[1]]
    return torch.sparse_coo_tensor(both.indices(), values, (n, n), is_coalesced=True, check_invariants=True)
