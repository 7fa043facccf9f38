"""Train teachers and write their votes, from npz files to an npz file, with numpy and torch alone.

    python -m ipate.torch.train --data X.npz --members M.npz --preset small --device cuda --out votes.npz

--data holds `X` and `y` (private rows), `public` (the points to vote on) and optionally `labels` (their
truth, for scoring only). --members holds `offsets` and `indices` (teacher t has the rows
indices[offsets[t]:offsets[t + 1]]), or a matrix `members` (teachers × slots), where −1 is an empty slot.
Optional `groups` and `weights`, one per teacher, are copied to the votes. Nothing is unpickled.
"""

import argparse
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import InputError, TrainingError
from ipate.torch.ensemble import Members
from ipate.torch.loop import Compute, chosen_device
from ipate.torch.nets import PRESETS
from ipate.torch.training import train_ensemble


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 if training failed, 2 if the input cannot be used."""
    args = _parser().parse_args(arguments)
    try:
        _run(args)
    except (InputError, TrainingError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1 if isinstance(error, TrainingError) else 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ipate.torch.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--members", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=list(PRESETS), default="small")
    parser.add_argument("--classes", type=int, help="number of classes; default: 1 + the largest label")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--split-seed", type=int, default=0, help="seed of training; votes hold no privacy noise")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=-1, help="worker processes on a CPU; −1 is one per core")
    parser.add_argument("--teachers-per-batch", type=int)
    parser.add_argument("--chunk", type=int, default=1024, help="public points voted on at a time")
    parser.add_argument("--amp", action="store_true", help="compute in bfloat16 where that is faster")
    parser.add_argument("--on-failure", choices=["raise", "fixed"], default="raise")
    return parser


def _run(args: argparse.Namespace) -> None:
    chosen_device(args.device)
    data = _read(args.data, needed=("X", "y", "public"), known=("labels",))
    teachers = _read(args.members, needed=(), known=("offsets", "indices", "members", "groups", "weights"))
    compute = Compute(amp=args.amp)
    start = time.perf_counter()
    ensemble = train_ensemble(
        data["X"],
        data["y"],
        _members(args.members, teachers),
        preset=args.preset,
        epochs=args.epochs,
        n_classes=_classes(args.classes, data["y"]),
        steps=args.steps,
        seed=args.split_seed,
        device=args.device,
        teachers_per_batch=args.teachers_per_batch,
        n_jobs=args.jobs,
        on_failure=args.on_failure,
        compute=compute,
        progress=_show,
    )
    sys.stderr.write(f"\ntrained {ensemble.n_teachers} teachers in {time.perf_counter() - start:.1f} s\n")
    for failure in ensemble.failures:
        sys.stderr.write(f"{failure}\n")
    copied = {name: teachers[name].tolist() for name in ("groups", "weights") if name in teachers}
    ensemble.write_votes(
        args.out, data["public"], chunk=args.chunk, labels=data.get("labels"), compute=compute, **copied
    )


def _show(done: int, total: int) -> None:
    sys.stderr.write(f"\rtraining {done / total:4.0%}")
    sys.stderr.flush()


def _classes(given: int | None, y: NDArray[Any]) -> int:
    if given is not None:
        return given
    found = int(y.max()) + 1 if y.size else 0
    sys.stderr.write(f"taking the classes to be 0 to {found - 1}, as in y: this treats them as public (--classes N)\n")
    return found


def _members(path: Path, arrays: dict[str, NDArray[Any]]) -> Members | NDArray[Any]:
    if "members" in arrays and arrays["members"].ndim == 2:
        return arrays["members"]
    if "offsets" not in arrays or "indices" not in arrays:
        raise InputError(f"{path}: it must hold 'offsets' and 'indices', or a matrix 'members'")
    return Members(offsets=arrays["offsets"], indices=arrays["indices"])


def _read(path: Path, *, needed: tuple[str, ...], known: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*needed, *known) if name in file.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable npz file ({error})") from error
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise InputError(f"{path}: holds no {missing[0]!r}; it must hold {', '.join(needed)}")
    return arrays


if __name__ == "__main__":
    sys.exit(main())
