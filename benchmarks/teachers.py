"""Teachers of an ensemble trained at once against one after another, in one run, with their votes as a file.

    PYTHONPATH=src python benchmarks/teachers.py --mnist DIR --teachers 250 --preset paper-mnist --out votes.npz
    PYTHONPATH=src python benchmarks/teachers.py --quick

DIR holds the four official idx files, packed (.gz) or not. The 60,000 training points are split among
the teachers; 9,000 of the 10,000 test points are the public ones, chosen by the seed. Needs numpy and
torch alone. What is timed is everything from arrays in memory to trained parameters on the device:
copying, initial weights, orders, augmentation and all steps, after a warm-up of a few steps.
"One after another" is measured on a few teachers, once with this same code and once with an ordinary
loop over an ordinary `nn.Module`, and multiplied up; the table says on how many.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ipate.torch.batched import affine_maps, moved
from ipate.torch.ensemble import Ensemble
from ipate.torch.loop import Compute
from ipate.torch.nets import PRESETS, Preset, single
from ipate.torch.training import train_ensemble

PUBLIC, TEST = 9_000, 1_000


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Private rows, public points and which teacher learns from what."""

    X: NDArray[np.uint8]
    y: NDArray[np.int64]
    public: NDArray[np.uint8]
    labels: NDArray[np.int64]
    members: list[NDArray[np.int64]]


def idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, the number of axes, their lengths, the bytes."""
    file = next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)
    if file is None:
        raise SystemExit(f"{folder / name}: no such file, nor with .gz")
    raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    if raw[:3] != b"\0\0\x08":
        raise SystemExit(f"{file}: not an idx file of bytes")
    shape = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4).astype(int)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def mnist(folder: Path, teachers: int, seed: int) -> Problem:
    """Split MNIST into the paper's sizes: 60,000 private points, 9,000 public ones."""
    X, y = idx(folder, "train-images-idx3-ubyte"), idx(folder, "train-labels-idx1-ubyte")
    rest, truth = idx(folder, "t10k-images-idx3-ubyte"), idx(folder, "t10k-labels-idx1-ubyte")
    generator = np.random.default_rng(seed)
    members = np.array_split(generator.permutation(len(X)), teachers)
    public = generator.permutation(PUBLIC + TEST)[:PUBLIC]
    return Problem(
        X=X, y=y.astype(np.int64), public=rest[public], labels=truth[public].astype(np.int64), members=members
    )


def toy(teachers: int, points: int, seed: int) -> Problem:
    """Make blurred prototypes of ten classes, for a run without any data."""
    generator = np.random.default_rng(seed)
    prototypes = np.kron(generator.integers(0, 2, (10, 7, 7)), np.ones((4, 4))) * 200
    y = generator.integers(0, 10, teachers * points + 500)
    X = np.clip(prototypes[y] + generator.normal(0, 60, (len(y), 28, 28)), 0, 255).astype(np.uint8)
    private = teachers * points
    members = np.array_split(generator.permutation(private), teachers)
    return Problem(X=X[:private], y=y[:private], public=X[private:], labels=y[private:], members=members)


def synced(device: torch.device, function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes until the device is done, and its result."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    result = function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, result


def plain_loop(problem: Problem, rows: NDArray[np.int64], preset: Preset, steps: int, device: torch.device) -> None:
    """Train one teacher as one would without batching: an ordinary module, torch's own optimiser and dropout."""
    images, labels = torch.from_numpy(problem.X[rows]).to(device), torch.from_numpy(problem.y[rows]).to(device)
    model = single(preset.net, image=(1, 28, 28), n_classes=10).to(device)
    kind = torch.optim.AdamW if preset.optimiser.decay else torch.optim.Adam
    optimiser = kind(model.parameters(), lr=preset.optimiser.rate, eps=preset.optimiser.eps)
    criterion = nn.CrossEntropyLoss(label_smoothing=preset.label_smoothing)
    key, size, maps = torch.zeros(1, dtype=torch.int64, device=device), preset.batch_size, None
    if preset.augmentation is not None:
        maps = affine_maps(preset.augmentation, keys=key, start=0, steps=steps, batch_size=size, image=(1, 28, 28))
    for step, rate in enumerate(preset.optimiser.rates(steps)):
        optimiser.param_groups[0]["lr"] = rate
        chosen = torch.randint(len(rows), (size,), device=device)
        batch = images[chosen][:, None].float().div_(255)
        if maps is not None:
            batch = moved(batch, maps[step])
        optimiser.zero_grad(set_to_none=True)
        criterion(model(batch), labels[chosen]).backward()
        optimiser.step()


def plain_loops(
    problem: Problem, members: list[NDArray[np.int64]], preset: Preset, steps: int, device: torch.device
) -> None:
    """Train teachers one after another."""
    for rows in members:
        plain_loop(problem, rows, preset, steps, device)


def measure(args: argparse.Namespace, problem: Problem) -> tuple[dict[str, Any], Ensemble]:
    """Train all at once and a few one after another; return the figures and the teachers."""
    device = torch.device(args.device)
    preset = PRESETS[args.preset].lasting(epochs=args.epochs, steps=args.steps)
    steps = preset.n_steps(float(np.mean([len(rows) for rows in problem.members])))
    compute = Compute(
        conv=args.conv,
        amp=args.amp,
        tf32=not args.no_tf32,
        fused=not args.no_fused,
        compile=args.compile,
        cuda_graph=args.cuda_graph,
        channels_last=args.channels_last,
        autotune=not args.no_autotune,
    )

    def train(members: list[NDArray[np.int64]], length: int, together: int | None, how: Compute) -> Ensemble:
        return train_ensemble(
            problem.X,
            problem.y,
            members,
            n_classes=10,
            preset=preset,
            steps=length,
            seed=args.seed,
            device=device,
            teachers_per_batch=together,
            n_jobs=args.jobs if together is None else 1,
            compute=how,
        )

    warming = synced(device, lambda: train(problem.members, 8, args.teachers_per_batch, compute))[0]
    batched, ensemble = synced(device, lambda: train(problem.members, steps, args.teachers_per_batch, compute))
    k, few = len(problem.members), problem.members[: args.sequential]
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "preset": args.preset,
        "teachers": k,
        "points": len(problem.members[0]),
        "steps": steps,
        "compute": asdict(compute),
        "jobs": args.jobs,
        "warm_up_s": warming,
        "batched_s": batched,
    }
    if few:
        train(few[:1], 8, 1, Compute(conv="grouped"))
        same, _ = synced(device, lambda: train(few, steps, 1, Compute(conv="grouped", fused=compute.fused)))
        plain_loop(problem, few[0], preset, 8, device)
        plain = synced(device, lambda: plain_loops(problem, few, preset, steps, device))[0]
        figures |= {
            "sequential_measured_on": len(few),
            "sequential_same_code_s": same * k / len(few),
            "speedup_same_code": same * k / len(few) / batched,
            "sequential_plain_s": plain * k / len(few),
            "speedup_plain": plain * k / len(few) / batched,
        }
    if device.type == "cuda":
        figures["peak_gpu_gib"] = torch.cuda.max_memory_allocated(device) / 2**30
    return figures, ensemble


def accuracy(votes: NDArray[Any], labels: NDArray[np.int64]) -> dict[str, float]:
    """Return how often a teacher is right (mean, worst) and how often the most voted class is."""
    right = (votes == labels).mean(axis=1)
    counts = np.stack([(votes == c).sum(axis=0) for c in range(10)])
    plurality = float((counts.argmax(axis=0) == labels).mean())
    return {"teacher_accuracy": float(right.mean()), "worst_teacher": float(right.min()), "plurality": plurality}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=Path, metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="a tiny run, on made-up data unless --mnist is given")
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--preset", choices=list(PRESETS), default="paper-mnist")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes on a CPU, instead of batches")
    parser.add_argument("--teachers-per-batch", type=int)
    parser.add_argument("--sequential", type=int, default=5, help="teachers to train one after another; 0: none")
    parser.add_argument("--threads", type=int, help="torch threads of this process")
    parser.add_argument("--chunk", type=int, default=1000, help="public points voted on at a time")
    parser.add_argument("--conv", choices=["auto", "grouped", "matmul", "first"], default="auto")
    for flag in ("amp", "compile", "cuda-graph", "channels-last", "no-tf32", "no-fused", "no-autotune"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--out", type=Path, help="write the votes file here")
    parser.add_argument("--labels", action="store_true", help="put the truth into the votes file, for scoring only")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    if args.mnist is None and not args.quick:
        parser.error("give --mnist DIR, or --quick for made-up data")
    return args


def main() -> None:
    """Print the figures as a table and as JSON."""
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.quick:
        args.teachers, args.steps, args.sequential = min(args.teachers, 8), args.steps or 60, min(args.sequential, 2)
    problem = mnist(args.mnist, args.teachers if not args.quick else 250, args.seed) if args.mnist else None
    problem = problem or toy(args.teachers, 60, args.seed)
    if len(problem.members) > args.teachers:  # quick: a few of the paper's 250
        problem = Problem(**{**vars(problem), "members": problem.members[: args.teachers]})
    figures, ensemble = measure(args, problem)
    seconds, votes = synced(ensemble.device, lambda: [v for _, v in ensemble.vote(problem.public, chunk=args.chunk)])
    figures |= {"voting_s": seconds, **accuracy(np.concatenate(votes, axis=1), problem.labels)}
    if args.out:
        truth = problem.labels if args.labels else None
        ensemble.write_votes(args.out, problem.public, chunk=args.chunk, labels=truth)
    for name, value in figures.items():
        if name != "compute":
            print(f"{name:24} {value:.4g}" if isinstance(value, float) else f"{name:24} {value}")
    print(json.dumps(figures))
    if args.json:
        args.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
