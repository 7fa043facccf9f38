"""Nets as teachers: whole blocks of an ensemble in one batched model on a GPU, worker processes on a CPU."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate.errors import TeacherError, TrainingError
from ipate.votes.store import VoteStore

Ints = NDArray[np.int64]
BLOCK = 250  # teachers per call of train_ensemble; an interrupted block is trained again


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

    The preset, epochs and steps are those of `estimator`, a TorchClassifier; the seed of a block is derived
    from `seed`. `slots` is the number of people dealt to each teacher. The length of training follows from it
    alone, and it is public: nobody's rows, and nobody who left, change the training of other teachers.
    """
    from ipate.torch.nets import find_preset
    from ipate.torch.training import train_ensemble

    preset = find_preset(estimator.preset).lasting(epochs=estimator.epochs, steps=estimator.steps)
    steps = preset.n_steps(float(np.mean(slots)))
    for start in range(0, len(rows), BLOCK):
        block = range(start, min(start + BLOCK, len(rows)))
        if all(store.done[teacher] for teacher in block):
            continue
        nothing = np.empty(0, dtype=np.int64)  # a teacher that has voted is not trained again but keeps its number
        members = [nothing if store.done[teacher] else rows[teacher] for teacher in block]
        ensemble = train_ensemble(
            X, y, members,
            n_classes=store.n_classes, preset=estimator.preset, steps=steps,
            seed=int(np.random.SeedSequence([seed, start]).generate_state(1)[0]), device=device, n_jobs=n_jobs,
            on_failure="fixed", progress=_counted(progress, start, steps),
        )  # fmt: skip
        failed = {failure.teacher for failure in ensemble.failures}
        votes = np.concatenate([part for _, part in ensemble.vote(X_public)], axis=1)
        for index, teacher in enumerate(block):
            if index not in failed and not store.done[teacher]:
                store.put(teacher, votes[index])
        if failed:
            reasons = TrainingError(ensemble.failures, ensemble)
            raise TeacherError(f"{reasons}. The other {int(store.done.sum())} teachers have voted")


def _counted(progress: Callable[[int], None] | None, first: int, steps: int) -> Callable[[int, int], None] | None:
    """Turn a block's count of steps × teachers into the number of teachers trained so far in all blocks."""
    if progress is None:
        return None
    return lambda done, _: progress(first + done // steps)
