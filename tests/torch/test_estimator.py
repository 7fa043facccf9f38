"""TorchClassifier and module_classifier as scikit-learn estimators."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

from torch import nn

from ipate.errors import InputError
from ipate.torch.nets import PRESETS

PRESET = replace(PRESETS["small"], batch_size=8, steps=60)


def test_torch_classifier_follows_scikit_learn(world):
    base = pytest.importorskip("sklearn.base")
    from ipate.torch.estimator import TorchClassifier

    X, y = world
    names = np.array(["ant", "bee", "cat"])
    model = base.clone(TorchClassifier(preset=PRESET, steps=40, device="cpu"))
    assert model.fit(X[:60].reshape(60, 64), names[y[:60]]) is model
    assert model.classes_.tolist() == names.tolist()
    assert model.score(X[60:].reshape(30, 64), names[y[60:]]) > 0.9
    one = TorchClassifier(preset=PRESET, steps=2, device="cpu", classes=names).fit(X[:1], names[:1])
    assert one.predict_proba(X).shape == (90, 3)
    with pytest.raises(InputError, match="not among the classes"):
        one.fit(X[:1], ["dog"])


def test_module_classifier_accepts_float64(world):
    pytest.importorskip("skorch")
    from ipate.torch.estimator import module_classifier

    X, y = world
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    model = module_classifier(module, max_epochs=60, lr=0.05, device="cpu").fit(X.astype(np.float64), y)
    assert (model.predict(X.astype(np.float64)) == y).mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-4)
