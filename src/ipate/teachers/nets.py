"""Nets as teachers: whole blocks of an ensemble in one batched model on a GPU, worker processes on a CPU."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import TeacherError
from ipate.votes.store import VoteStore

Ints = NDArray[np.int64]
BLOCK = 250  # teachers trained together; a block that was interrupted begins again


def train_nets_and_vote(
    estimator: Any,
    X: NDArray[Any],
    y: Ints,
    *,
    rows: Sequence[Ints],
    slots: Ints,
    X_public: NDArray[Any],
    store: VoteStore,
    seed: int = 0,
    device: str = "auto",
    n_jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Train the teachers that have not voted, in blocks, and put their votes into the store.

    Parameters
    ----------
    estimator : ipate.torch.TorchClassifier
        Its preset, epochs and steps; a block's own seed comes from `seed`.
    rows, slots
        The rows of each teacher, and how many people it was dealt. The length of training follows from the
        number of people alone, which is public: nobody's rows, and nobody who left, changes it for others.
    device : str
        "auto", "cpu" or "cuda".
    n_jobs : int
        Worker processes on a CPU; −1 for one per core.
    """
    from ipate.errors import TrainingError
    from ipate.torch.nets import find_preset
    from ipate.torch.training import train_ensemble

    preset = find_preset(estimator.preset).lasting(epochs=estimator.epochs, steps=estimator.steps)
    steps = preset.n_steps(float(np.mean(slots)))

    failed: TrainingError | None = None
    for start in range(0, len(rows), BLOCK):
        block = range(start, min(start + BLOCK, len(rows)))
        if all(store.done[teacher] for teacher in block):
            continue
        nothing = np.empty(0, dtype=np.int64)  # who has voted is not trained again, and keeps a place in the block
        members = [nothing if store.done[teacher] else rows[teacher] for teacher in block]
        try:
            ensemble = train_ensemble(
                X, y, members,
                n_classes=store.n_classes, preset=estimator.preset, steps=steps,
                seed=int(np.random.SeedSequence([seed, start]).generate_state(1)[0]), device=device, n_jobs=n_jobs,
                progress=_counted(progress, start),
            )  # fmt: skip
        except TrainingError as error:
            failed, ensemble = error, error.ensemble
        broken = set() if failed is None else {failure.teacher for failure in failed.failures}
        votes = np.concatenate([part for _, part in ensemble.vote(X_public)], axis=1)
        for index, teacher in enumerate(block):
            if index not in broken and not store.done[teacher]:
                store.put(teacher, votes[index])
        if failed is not None:
            done = int(store.done.sum())
            raise TeacherError(f"{failed}. The other {done} teachers have voted")


def _counted(progress: Callable[[int], None] | None, first: int) -> Callable[[int, int], None] | None:
    """Turn a block's own count into the number of teachers trained so far."""
    if progress is None:
        return None
    return lambda done, _: progress(first + done)
