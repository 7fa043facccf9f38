"""How to compute: device, precision and kernels. Nothing here changes what is learnt but by rounding."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from ipate.torch.batched import ConvMode
from ipate.torch.errors import InputError
from ipate.torch.nets import Net, Shape

__all__ = ["Compute", "chosen_device", "chosen_jobs", "numerics", "teachers_that_fit"]


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Switches between equivalent ways to compute.

    Attributes
    ----------
    conv : "auto", "grouped", "matmul" or "first"
        How batched convolutions run (see `BatchedNet`); auto is "first" on a GPU, else "grouped".
    amp : bool
        Matrix products and convolutions in bfloat16; parameters and norms stay float32.
    tf32 : bool
        Allow TF32 in float32 matrix products on a GPU.
    fused : bool
        The optimiser updates all parameters in one kernel.
    compile : bool
        Pass the net through `torch.compile`: slow to start.
    cuda_graph : bool
        Record a training step once and replay it: pays where steps are tiny. GPU only.
    channels_last : bool
        Keep images with their channels innermost.
    autotune : bool
        Let cuDNN time its algorithms on the first step.
    deterministic : bool
        Ask cuDNN for algorithms that give the same bits every time.
    """

    conv: Literal["auto"] | ConvMode = "auto"
    amp: bool = False
    tf32: bool = True
    fused: bool = True
    compile: bool = False
    cuda_graph: bool = False
    channels_last: bool = False
    autotune: bool = True
    deterministic: bool = False

    def conv_mode(self, device: torch.device) -> ConvMode:
        """Return the way convolutions run on a device."""
        if self.conv == "auto":
            return "first" if device.type == "cuda" else "grouped"
        return self.conv


def chosen_device(device: str | torch.device) -> torch.device:
    """Return the device: "auto" is the GPU where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device is 'cuda', but torch sees no GPU here: use 'cpu' or 'auto'")
    return chosen


def chosen_jobs(n_jobs: int) -> int:
    """Return the number of processes; −1 is one per core that this process may use."""
    if n_jobs == -1:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs < 1:
        raise InputError(f"n_jobs is {n_jobs}: it must be at least 1, or −1 for every core")
    return n_jobs


@contextmanager
def numerics(compute: Compute) -> Iterator[None]:
    """Set torch's global switches for a while, then put them back."""
    cudnn = torch.backends.cudnn
    before = (torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic)
    torch.set_float32_matmul_precision("high" if compute.tf32 else "highest")
    cudnn.benchmark = compute.autotune and not compute.deterministic
    cudnn.deterministic = compute.deterministic
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.benchmark, cudnn.deterministic = before[1:]


def teachers_that_fit(net: Net, *, image: Shape, n_classes: int, batch_size: int, device: torch.device) -> int:
    """Return how many teachers to train together: all that fit in half of a GPU's free memory; one on a CPU."""
    if device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    activations = 4 * 3 * batch_size * net.activations(image, n_classes)
    parameters = 4 * 5 * net.parameters(image, n_classes)
    return max(1, int(free // 2 // (activations + parameters)))
