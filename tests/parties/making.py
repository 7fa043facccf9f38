"""Small example sites: their data files, fitted sites, vote files, and ways to alter these."""

import hashlib
import json
import os
import tomllib
import zipfile

import numpy as np

from ipate.models.named import make_model
from ipate.parties.queries import make_queries
from ipate.parties.site import SiteOptions, fit_site
from ipate.people.policy import Policy

COLUMNS = {"label": "diagnosis", "level": "consent", "person": "patient"}
BOUNDS = "feature,low,high\nage,0,100\nbmi,10,50\n"
POLICY = {
    "north": "high = 1.0\nlow = 3.0\n",
    "south": "high = 0.5\nlow = 2.0\ndelta = 1e-6\n",
    "west": "high = 2.0\nlow = 8.0\n",
}
SIZES = {"north": (120, 80), "south": (60, 40), "west": (40, 160)}
PEOPLE = {site: sum(sizes) for site, sizes in SIZES.items()}


def points(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return np.column_stack([rng.normal(40 + 25 * y, 6), rng.normal(22 + 9 * y, 3)]), y


def write_pool(folder, *, n=60, seed=9, name="pool.csv"):
    X, _ = points(n, seed)
    (folder / "bounds.csv").write_text(BOUNDS)
    (folder / name).write_text("age,bmi\n" + "".join(f"{a!r},{b!r}\n" for a, b in X.tolist()))
    return folder / name


def queries(folder, **options):
    return make_queries(write_pool(folder, **options), classes=["well", "ill"], bounds=folder / "bounds.csv")


def write_site(folder, site, *, seed):
    """Write a site's rows, with columns in the site's own order, and its policy."""
    high, low = SIZES[site]
    X, y = points(high + low, seed)
    levels = ["high"] * high + ["low"] * low
    lines = [
        f"{site}-{i},{b!r},{'ill' if label else 'well'},{a!r},{level}"
        for i, ((a, b), label, level) in enumerate(zip(X.tolist(), y, levels, strict=True))
    ]
    (folder / "rows.csv").write_text("patient,bmi,diagnosis,age,consent\n" + "\n".join(lines) + "\n")
    (folder / "policy.toml").write_text(POLICY[site])
    return folder / "rows.csv"


def options_of(site, **changes):
    policy = Policy.from_mapping(tomllib.loads(POLICY[site]))
    return SiteOptions(**{**COLUMNS, "policy": policy, "n_teachers": 10, **changes})


def fitted(folder, site="north", *, encoding, estimator=None, **changes):
    folder.mkdir(exist_ok=True)
    rows = write_site(folder, site, seed=3)
    return fit_site(
        rows,
        folder / "site",
        name=site,
        encoding=encoding,
        options=options_of(site, **changes),
        estimator=make_model("bayes", {}) if estimator is None else estimator,
    )


def fit_east(rows, out, encoding, options, estimator=None):
    model = make_model("bayes", {}) if estimator is None else estimator
    return fit_site(rows, out, name="east", encoding=encoding, options=options, estimator=model)


class Planted:
    """A malicious replacement of a teacher, which creates a folder when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def digest(array):
    """Hash an array as the format defines it, independently of the implementation."""
    return hashlib.sha256(f"{array.dtype.str} {list(array.shape)}\n".encode() + array.tobytes()).hexdigest()


def declare(site, budgets, asked, votes, *, fit=None):
    """Return the manifest of a site whose groups have these budgets: {name: (ε, δ, teachers)}."""
    names = [name for name, (*_, teachers) in budgets.items() for _ in range(teachers)]
    return {
        "format": "ipate site votes 1",
        "ipate": "0",
        "site": site,
        "fit": fit or f"mark of {site}",
        "variant": "weighting",
        "queries": asked.sha256,
        "votes": digest(votes),
        "n_queries": votes.shape[1],
        "encoding": asked.encoding.model_dump(mode="json"),
        "groups": [
            {"id": f"{site}/{name}", "epsilon": epsilon, "delta": delta, "teachers": teachers}
            for name, (epsilon, delta, teachers) in budgets.items()
        ],
        "teachers": [{"id": f"{site}/{row}", "group": f"{site}/{name}"} for row, name in enumerate(names)],
    }


def write_file(path, manifest, votes, *, sha=None, extra=None):
    """Write a vote file with these members; the hash of the manifest is correct unless given."""
    stated = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    hashed = hashlib.sha256(stated).digest() if sha is None else sha
    members = {
        "votes": votes,
        "manifest": np.frombuffer(stated, dtype=np.uint8),
        "sha256": np.frombuffer(hashed, dtype=np.uint8),
    }
    with path.open("wb") as stream:
        np.savez(stream, **members, **(extra or {}))
    return path


def read_file(path):
    """Return the members of a vote file without any check: votes, manifest, hash."""
    with np.load(path, allow_pickle=False) as archive:
        return archive["votes"], json.loads(archive["manifest"].tobytes()), archive["sha256"].tobytes()


def cast(budgets, asked, seed):
    teachers = sum(many for *_, many in budgets.values())
    return np.random.default_rng(seed).integers(2, size=(teachers, len(asked)), dtype=np.uint8)


def send(folder, site, budgets, asked, *, seed=0, fit=None):
    """Write a valid vote file."""
    votes = cast(budgets, asked, seed)
    return write_file(folder / f"{site}.npz", declare(site, budgets, asked, votes, fit=fit), votes)


def last_byte_of(path, member):
    """Return the position in the file of the last byte of a member's array."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{member}.npy")
    raw = path.read_bytes()
    name, extra = (
        int.from_bytes(raw[info.header_offset + at : info.header_offset + at + 2], "little") for at in (26, 28)
    )
    return info.header_offset + 30 + name + extra + info.file_size - 1
