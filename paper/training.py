"""Run training jobs on a machine that has only numpy and torch; some jobs need more.

    python -m paper.training JOBS --data-dir DATA --device cuda --out VOTES

JOBS holds the *.job.npz files that `python -m paper NAME --job-files JOBS` wrote; they are run in the order of their
names, and each result is written at once, so that an interrupted call loses one job at most and the next call
continues. DATA holds NAME.npz (`X` images and `y`, in the data set's row order) or the official files. Forests need
scikit-learn; jobs of the students "graph" and "semi" need scikit-learn, scipy and narwhals, and "semi" also skorch.
"""

import argparse
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ipate.errors import InputError, IpateError
from ipate.torch.ensemble import Ensemble, Members
from ipate.torch.loop import Compute, chosen_device
from ipate.torch.training import train_ensemble
from paper.jobs import (
    FOREST,
    GRAPH,
    SEMI,
    Job,
    Result,
    narrow,
    read_job,
    read_result,
    run_forests,
    write_result,
)
from paper.times import steps

Images: TypeAlias = tuple[NDArray[Any], NDArray[Any]]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0, 1 where a job failed, 2 where the input cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m paper.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("jobs", type=Path, help="folder of job files")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--n-jobs", type=int, default=-1, help="processes on a CPU; −1 is one per core")
    parser.add_argument("--amp", action="store_true", help="bfloat16 where it pays")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no job that would end later")
    parser.add_argument("--tar", type=int, help="put results into part-N.tar files of at most so many bytes")
    try:
        return _run(parser.parse_args(arguments))
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def run_job(
    job: Job,
    images: Images,
    *,
    device: str = "auto",
    n_jobs: int = -1,
    compute: Compute | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Train a job's models and ask them; images are (N, H, W) or (N, H, W, C), or features for forests, and classes."""
    if job.preset == FOREST:
        return run_forests(job, images, n_jobs=n_jobs, progress=progress)
    if job.preset in (GRAPH, SEMI):
        from paper.pool_students import run_pool_student

        return run_pool_student(job, images, device=device)
    X, y = images
    settings, start = compute or Compute(), time.perf_counter()
    learnt, y_learnt, indices = X, y, job.indices.astype(np.int64)
    if job.labels is not None:  # the same point may have another label for each student
        learnt, y_learnt, indices = X[job.indices], job.labels, np.arange(len(job.indices))
    members = Members(offsets=job.offsets.astype(np.int64), indices=indices)
    ensemble = train_ensemble(
        _channels_first(learnt),
        y_learnt,
        members,
        n_classes=job.n_classes,
        preset=job.preset,
        epochs=job.epochs,
        steps=job.steps,
        seed=job.seed,
        device=device,
        n_jobs=n_jobs,
        compute=settings,
        progress=progress,
    )
    trained = time.perf_counter()
    predicted = _predict(job, ensemble, X, settings)
    meta = {
        "train_s": round(trained - start, 2),
        "ask_s": round(time.perf_counter() - trained, 2),
        "device": torch.cuda.get_device_name() if ensemble.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "models": job.n_models,
        "silent": len(ensemble.silent),
    }
    return Result(predicted=predicted, truth=narrow(y[job.asked]), meta=meta)


def _predict(job: Job, ensemble: Ensemble, X: NDArray[Any], compute: Compute) -> NDArray[Any]:
    """Return the votes of all models on `asked`, or each model's predictions of its own pool."""
    rows, place = np.unique(job.asked, return_inverse=True)
    shown = _channels_first(X[rows])
    predicted = np.concatenate([votes for _, votes in ensemble.vote(shown, chunk=1024, compute=compute)], axis=1)
    place = place.reshape(job.asked.shape)
    if job.pool is None:
        return predicted[:, place]
    return np.take_along_axis(predicted, place[job.pool], axis=1)


def _channels_first(X: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(X.transpose(0, 3, 1, 2)) if X.ndim == 4 else X


def _images(name: str, folder: Path) -> Images:
    """Return a data set's images and classes: NAME.npz, or the official files by the loader (needs scipy for some)."""
    file = folder / f"{name}.npz"
    if file.is_file():
        with np.load(file, allow_pickle=False) as arrays:
            if not {"X", "y"} <= set(arrays.files):
                raise InputError(f"{file}: it must hold the arrays 'X' and 'y'")
            return arrays["X"], arrays["y"]
    from paper.data import load

    dataset = load(name, data_dir=folder, download=False)
    return dataset.X if dataset.kind == "image" else dataset.features(), dataset.y


def _work(job: Job) -> float:
    """Return a number of steps to which the time of a job is proportional, for jobs of one preset."""
    if job.preset in (FOREST, GRAPH, SEMI):
        return float(len(job.indices))
    return steps(job)


def _run(args: argparse.Namespace) -> int:
    chosen_device(args.device)
    paths = sorted(args.jobs.glob("*.job.npz"))
    if not paths:
        raise InputError(f"{args.jobs}: holds no *.job.npz file")
    args.out.mkdir(parents=True, exist_ok=True)
    deadline, data, failed, left = time.perf_counter() + args.seconds, {}, 0, []
    rates: dict[str, float] = {}  # seconds per step by preset, from the jobs that have run
    packed, compute = _packed(args.out), Compute(amp=args.amp)
    for number, path in enumerate(paths, start=1):
        job = read_job(path)
        if job.name in packed or read_result(job, args.out) is not None:
            continue
        if deadline - time.perf_counter() <= rates.get(job.preset, 0.0) * _work(job):
            left.append(job.name)
            continue
        if job.dataset not in data:
            data[job.dataset] = _images(job.dataset, args.data_dir)
        begin = time.perf_counter()
        try:
            result = run_job(job, data[job.dataset], device=args.device, n_jobs=args.n_jobs, compute=compute)
        except (IpateError, RuntimeError) as error:
            sys.stderr.write(f"{job.name} failed: {error}\n")
            failed += 1
            continue
        end = time.perf_counter()
        rates[job.preset] = (end - begin) / _work(job)
        _pack(write_result(job, result, args.out), args.tar)
        sys.stderr.write(f"[{number}/{len(paths)}] {job.name}: {_summary(result)}, {deadline - end:.0f} s left\n")
    if left:
        sys.stderr.write(f"no time for {len(left)} jobs: {', '.join(left)}\n")
    return 1 if failed else 0


def _summary(result: Result) -> str:
    right = f", accuracy {np.mean(result.predicted == result.truth):.4f}" if result.truth.ndim == 1 else ""
    return f"{result.meta['models']} models in {result.meta['train_s']} + {result.meta['ask_s']} s{right}"


def _parts(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob("part-*.tar"), key=lambda path: int(path.stem.removeprefix("part-")))


def _packed(folder: Path) -> set[str]:
    """Return the names of the jobs whose results are in the folder's tar files."""
    found = set()
    for part in _parts(folder):
        with tarfile.open(part) as archive:
            found |= {name.rsplit(".", 2)[0] for name in archive.getnames()}
    return found


def _pack(path: Path, most: int | None) -> None:
    """Move a result into the last tar file, or a new one where it would grow beyond `most` bytes."""
    if most is None:
        return
    parts = _parts(path.parent)
    last = parts[-1] if parts else path.parent / "part-1.tar"
    if last.exists() and last.stat().st_size + path.stat().st_size + 20480 > most:
        last = path.parent / f"part-{len(parts) + 1}.tar"
    with tarfile.open(last, "a") as archive:
        archive.add(path, arcname=path.name)
    path.unlink()


if __name__ == "__main__":
    sys.exit(main())
