"""The digits that scikit-learn contains."""

import numpy as np

from ipate.data.dataset import Dataset


def load_digits() -> Dataset:
    """Load the 1,797 digits of 8 × 8 pixels that scikit-learn contains."""
    from sklearn import datasets

    pixels, y = datasets.load_digits(return_X_y=True)
    return Dataset(
        name="digits",
        X=(pixels.reshape(-1, 8, 8) / 16).astype(np.float32),
        y=y.astype(np.int64),
        classes=tuple("0123456789"),
        kind="image",
        notes=("Pixels from 0 to 16 are divided by 16.",),
        source="E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI (1998), by scikit-learn",
        licence="CC BY 4.0",
    )
