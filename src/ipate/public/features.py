"""Features: the coordinates in which cells are cut, fitted on the pool alone.

The rule (docs/ballots.md has its measurements) needs the pool and the number of classes only:

- A *table* is standardised by the pool's means and deviations. Every numeric column then gets the weight √s, where s
  is the share of its variance that k-means with four clusters per class explains beyond chance: columns in which the
  pool has no structure would only blur the cells (compare Witten and Tibshirani, "A framework for feature selection in
  clustering", 2010). Columns of two values, such as those of categories, have the distance 1 between the two.
- *Images* become histograms of oriented gradients (`ipate.public.integers`), or stay pixels below 16 pixels a side.
- *Learnt* features are those of a net that was trained on the pool's images without labels (`ipate.torch.contrastive`,
  extra torch) and turned into whole numbers (`ipate.public.integers`); to apply them needs numpy alone.
- *Given* features, such as the user's own embeddings, are taken as they are.
- Tables beyond 64 columns and all images are rotated to their principal components: those that hold 90% of the
  variance, 64 at most.

Every value is rounded to a whole number before it enters a sum, and all sums stay below 2^53. So the features of a row
depend on that row alone, to the last bit, and not on the block of rows that it is computed with.
"""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats
from ipate.errors import InputError, check_count, show
from ipate.public.cells import LARGEST, check_grid
from ipate.public.integers import SMALLEST, ExactNet, gradients, quantise

if TYPE_CHECKING:
    from ipate.torch.contrastive import Encoder

Kind: TypeAlias = Literal["table", "image", "given", "learnt"]
DIMENSIONS = 64
SHARE = 0.9  # of the variance that the principal components keep
SHARE_LEARNT = 0.99  # the same for learnt features, of which the last components still tell classes apart
_TOP = 2.0**12  # where the largest value of the pool is on the grid; other rows are clipped at `LARGEST`
_UNIT = 2.0**14  # of the principal components
_ROWS = 4096  # rows at a time
_SEEDS, _SWEEPS = 5, 30
_ENCODERS: dict[Any, "Encoder"] = {}  # the last one: queries, cells and student of a run share it


@dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """A fixed map from rows to points on the grid: (x − centre)·gain, rounded, then principal components if any."""

    kind: Kind
    shape: tuple[int, ...]  # of one row
    gradients: bool  # whether images become histograms of oriented gradients first
    centre: Floats
    gain: Floats
    components: Floats | None  # (inputs, dimensions), whole numbers: unit vectors times 2^14
    net: ExactNet | None = None  # what images go through first, if features are learnt

    @property
    def dimensions(self) -> int:
        """The number of coordinates of a point."""
        return len(self.centre) if self.components is None else self.components.shape[1]

    def transform(self, rows: NDArray[Any]) -> Floats:
        """Return rows as points on the grid; a row that `readable` refuses becomes some point."""
        flat = self._flat(rows)
        return np.concatenate(
            [self._block(flat[start : start + _ROWS]) for start in range(0, max(1, len(flat)), _ROWS)]
        )

    def directions(self, rows: NDArray[Any]) -> Floats:
        """Return rows as points whose distances say how alike rows are: images, of any contrast, have the length 1."""
        points = self.transform(rows)
        return unit_length(points) if self.kind == "image" else points

    def readable(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows cast a ballot: those with finite values only, and of tables those with any.

        A missing value of a table becomes the pool's mean.
        """
        finite = np.isfinite(self._flat(rows))
        return np.asarray(finite.any(axis=1) if self.kind == "table" else finite.all(axis=1))

    def describe(self) -> dict[str, Any]:
        """Return the rule as plain data, for reports."""
        steps = {"table": "standardised, columns weighted by structure", "given": "as they are", "image": "pixels"}
        steps["learnt"] = "a net trained on the pool without labels"
        step = "histograms of oriented gradients" if self.gradients else steps[self.kind]
        principal = self.components is not None
        return {
            "kind": self.kind,
            "columns": int(np.prod(self.shape)),
            "steps": step,
            "principal_components": principal,
            "dimensions": self.dimensions,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the map as plain arrays, to be stored."""
        none = np.zeros((len(self.centre), 0))
        return {
            "kind": np.array(self.kind),
            "shape": np.array(self.shape),
            "gradients": np.array(self.gradients),
            "centre": self.centre,
            "gain": self.gain,
            "components": none if self.components is None else self.components,
            "net": np.zeros(0, np.int32) if self.net is None else self.net.array(),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the features that `arrays` describes."""
        components = np.asarray(arrays["components"], dtype=np.float64)
        kind: Any = str(arrays["kind"])
        return cls(
            kind=kind,
            shape=tuple(int(size) for size in arrays["shape"]),
            gradients=bool(arrays["gradients"]),
            centre=np.asarray(arrays["centre"], dtype=np.float64),
            gain=np.asarray(arrays["gain"], dtype=np.float64),
            components=components if components.size else None,
            net=ExactNet.from_array(arrays["net"]) if np.size(arrays["net"]) else None,
        )

    def _flat(self, rows: NDArray[Any]) -> NDArray[Any]:
        if rows.shape[1:] not in (self.shape, (int(np.prod(self.shape)),)):
            raise InputError(f"rows have the shape {rows.shape}: these features are for (rows, {self.shape})")
        return rows.reshape(len(rows), -1)

    def _block(self, flat: NDArray[Any]) -> Floats:
        inputs = self._inputs(flat)
        with np.errstate(invalid="ignore", over="ignore"):
            points = on_grid(np.where(np.isfinite(inputs), (inputs - self.centre) * self.gain, 0.0))
        if self.components is None:
            return points
        return on_grid((points @ self.components) / _UNIT)

    def _inputs(self, flat: NDArray[Any]) -> Floats:
        if self.net is not None:
            return self.net.features(_pictures(flat, self.shape))
        values = np.asarray(flat, dtype=np.float64)
        return gradients(_pictures(values, self.shape), bytes_=flat.dtype == np.uint8) if self.gradients else values


def _pictures(flat: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return flat rows as images (N, H, W) or (N, H, W, C); channels may come first, if they are at most four."""
    images = flat.reshape(-1, *shape)
    return np.moveaxis(images, 1, 3) if len(shape) == 3 and shape[0] <= 4 < shape[2] else images


def on_grid(values: Floats) -> Floats:
    """Round to whole numbers within ±`LARGEST`; what is no number becomes 0."""
    return np.clip(np.rint(np.nan_to_num(values, nan=0.0, posinf=LARGEST, neginf=-LARGEST)), -LARGEST, LARGEST)


def fit_features(
    pool: NDArray[Any],
    *,
    n_classes: int,
    kind: Kind | None = None,
    shape: tuple[int, ...] | None = None,
    encoder: "Encoder | None" = None,
) -> Features:
    """Fit features on the pool, (points, columns) or images.

    `kind` is by default "image" for arrays of images or where `shape`, the shape of one image in a flat row, is given,
    and "table" otherwise. Values of a table may be missing (not finite); they become the pool's mean. Learnt features
    are trained here (`ipate.torch.contrastive.train_encoder`) unless a trained `encoder` is given.
    """
    if pool.ndim < 2 or not pool.size:
        raise InputError(f"the pool has the shape {pool.shape}: it must be (points, columns) or images, and not empty")
    check_count("n_classes", n_classes, least=2)
    own = tuple(pool.shape[1:]) if shape is None else tuple(shape)
    if int(np.prod(own)) != int(np.prod(pool.shape[1:])):
        raise InputError(f"shape is {own}: a row of the pool has {int(np.prod(pool.shape[1:]))} values")
    kind = kind or ("image" if len(own) > 1 else "table")
    pictures = kind in ("image", "learnt")
    if kind not in ("table", "image", "given", "learnt") or (pictures and len(own) not in (2, 3)):
        kinds = "'table', 'given', or 'image' or 'learnt' for images (H × W or H × W × C)"
        raise InputError(f"kind is {show(kind)} for rows of the shape {own}: it must be {kinds}")
    flat = pool.reshape(len(pool), -1)
    if not np.isfinite(flat).all():
        if kind != "table":
            raise InputError("the pool has values that are not finite: it is public, so every value must be a number")
        flat = np.where(np.isfinite(flat), flat, np.nan)
    oriented = kind == "image" and min(_pictures(flat[:1], own).shape[1:3]) >= SMALLEST
    width = int(np.prod(own))
    if oriented:
        width = gradients(_pictures(np.zeros((1, width)), own), bytes_=False).shape[1]
    net = _learnt(_pictures(flat, own), encoder) if kind == "learnt" else None
    width = width if net is None else net.width
    blank = Features(
        kind=kind, shape=own, gradients=oriented, centre=np.zeros(width), gain=np.ones(width), components=None, net=net
    )
    inputs = np.concatenate([blank._inputs(flat[start : start + _ROWS]) for start in range(0, len(flat), _ROWS)])
    with warnings.catch_warnings():  # a column without any value has no mean; it counts for nothing
        warnings.simplefilter("ignore", RuntimeWarning)
        centre = np.nan_to_num(np.nanmean(inputs, axis=0))
    inputs = np.nan_to_num(inputs - centre)
    gain = np.ones(width)
    if kind == "table":
        gain = _table_gain(inputs, 4 * n_classes)
    gain = gain * _TOP / max(float(np.abs(inputs * gain).max()), 1e-300)
    points = on_grid(inputs * gain)
    rotate = pictures or (kind == "table" and width > DIMENSIONS)
    return Features(
        kind=kind,
        shape=own,
        gradients=oriented,
        centre=centre,
        gain=gain,
        components=_principal(points, SHARE_LEARNT if kind == "learnt" else SHARE) if rotate else None,
        net=net,
    )


def _learnt(images: NDArray[Any], encoder: "Encoder | None") -> ExactNet:
    """Return the net of an encoder, which is trained on these images unless it is given, in whole numbers."""
    state, pools = (encoder or pool_encoder(images)).convolutions()
    return quantise(state, pools, images)


def neighbourly(
    pool: NDArray[Any], *, n_classes: int, kind: Kind | None = None, shape: tuple[int, ...] | None = None
) -> Floats:
    """Return the pool as points whose distances say how alike they are, for graphs and queries of the pool alone."""
    if kind == "learnt":
        return unit_length(pool_encoder(pool).features(pool))
    return fit_features(pool, n_classes=n_classes, kind=kind, shape=shape).directions(pool)


def unit_length(points: NDArray[Any]) -> Floats:
    """Return points at the length 1; what has no length stays where it is."""
    found = np.asarray(points, dtype=np.float64)
    length = np.sqrt(np.square(found).sum(axis=1, keepdims=True))
    return found / np.where(length > 0, length, 1.0)


def pool_encoder(
    images: NDArray[Any], *, encoder: "Encoder | None" = None, steps: int | None = None, device: str = "auto"
) -> "Encoder":
    """Return the net of a pool of images: `encoder`, if it was trained before, or one that is trained without labels.

    The last one is remembered, so that queries, cells and student of a run have one net.
    """
    try:
        from ipate.torch.contrastive import NET, checked_images, train_encoder
    except ModuleNotFoundError as error:
        raise InputError(f"learnt features need PyTorch ({error}); pip install 'ipate[torch]'") from None
    pixels = checked_images(images, NET)
    as_bytes = pixels if pixels.dtype == np.uint8 else np.rint(255 * np.clip(pixels, 0, 1)).astype(np.uint8)
    key = hashlib.sha256(as_bytes.tobytes()).hexdigest(), pixels.shape, steps
    if encoder is not None or key not in _ENCODERS:
        _ENCODERS.clear()
        _ENCODERS[key] = encoder or train_encoder(images, steps=steps, device=device)
    return _ENCODERS[key]


def _table_gain(inputs: Floats, clusters: int) -> Floats:
    """Return the factor of every centred column: √s over its deviation, or 1 over the range of a two-valued column.

    A rare category has a small deviation and a cluster of its own: standardised, it would drown the other columns.
    """
    low, high, spread = inputs.min(axis=0), inputs.max(axis=0), inputs.std(axis=0)
    two = (spread > 0) & np.all((inputs == low) | (inputs == high), axis=0)
    gain = np.where(spread > 0, 1 / np.where(spread > 0, np.where(two, high - low, spread), 1.0), 0.0)
    numeric = ~two & (spread > 0)
    if numeric.any():
        weights = np.ones(len(gain))
        weights[numeric] = _structure(inputs[:, numeric] * gain[numeric], clusters)
        gain = gain * weights
    return np.asarray(gain)


def _structure(table: Floats, clusters: int) -> Floats:
    """Return √s of every standardised column: the share s of its variance between clusters, beyond chance."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    k = min(clusters, len(table) // 5)
    if k < 2 or len(np.unique(table, axis=0)) < k:
        return np.ones(table.shape[1])
    between, total = np.zeros(table.shape[1]), np.square(table).sum(axis=0)
    with threadpool_limits(limits=1):
        for seed in range(_SEEDS):
            found = KMeans(k, n_init=1, random_state=seed, max_iter=_SWEEPS).fit_predict(table)
            sums = np.stack([table[found == cluster].sum(axis=0) for cluster in range(k)])
            sizes = np.maximum(np.bincount(found, minlength=k), 1)
            between += (np.square(sums) / sizes[:, None]).sum(axis=0) / _SEEDS
    share = np.clip(between / np.where(total > 0, total, 1.0) - k / len(table), 0.0, 1.0)
    return np.sqrt(share / share.max()) if share.max() > 0 else np.ones(table.shape[1])


def _principal(points: Floats, share: float) -> Floats:
    """Return the principal components that hold a share of the pool's variance, at most 64, as whole numbers."""
    values, vectors = np.linalg.eigh(points.T @ points / len(points))
    values, vectors = np.clip(values[::-1], 0.0, None), vectors[:, ::-1]
    total = float(values.sum())
    wanted = int(np.searchsorted(np.cumsum(values), share * total)) + 1 if total > 0 else 1
    components = np.rint(vectors[:, : min(wanted, DIMENSIONS, len(values))] * _UNIT)
    check_grid(components.T, "components")
    return np.asarray(components)
