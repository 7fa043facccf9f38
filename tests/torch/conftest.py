"""Data of the torch tests: 8×8 images of three classes that are easy to separate."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread, so that tests do not compete for cores and sums are reproducible."""
    pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def world():
    """Return 90 labelled images."""
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = generator.normal(0, 0.2, (90, 8, 8)).astype(np.float32)
    for c in range(3):
        X[y == c, 2 * c : 2 * c + 3, 2:6] += 1
    return X, y
