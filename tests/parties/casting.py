"""Small example sites that cast ballots: their rows, declarations, cells and ballot files."""

import hashlib
import json

import numpy as np

from ipate.parties.site import SiteOptions
from ipate.parties.sums import cast_ballots, declare_site, make_site_cells
from ipate.people.policy import Policy
from parties.making import COLUMNS, points

POLICY = "high = 1.0\nlow = 3.0\n"
SITES = {"north": (0, 300), "south": (300, 420), "west": (420, 800)}  # which of the 800 people
HEADER = "patient,bmi,diagnosis,age,consent"


def people_rows():
    """The rows of 800 people, by person: some have several, some have labels or cells that cannot be read."""
    X, y = points(1200, 5)
    found = {}
    for row in range(1200):
        person = row % 800
        label = "neither" if row % 37 == 3 else "ill" if y[row] else "well"
        age = "unknown" if row % 41 == 5 else repr(float(X[row, 0]))
        level = "high" if person % 3 else "low"
        found.setdefault(person, []).append(f"p{person},{float(X[row, 1])!r},{label},{age},{level}")
    return found


def write_rows(folder, chosen, *, change=None):
    lines = [line for person, own in people_rows().items() if person in chosen for line in own]
    (folder / "rows.csv").write_text("\n".join([HEADER, *(change(lines) if change else lines)]) + "\n")
    (folder / "policy.toml").write_text(POLICY)
    return folder / "rows.csv"


def declared(folder, site, queries, *, people=None, **changes):
    folder.mkdir(exist_ok=True)
    rows = write_rows(folder, range(*SITES[site]) if people is None else people, change=changes.pop("change", None))
    policy = Policy.from_file(folder / "policy.toml")
    options = SiteOptions(**{**COLUMNS, "policy": policy, **changes})
    return declare_site(rows, folder / "site", name=site, queries=queries, options=options)[0]


def three_sites(folder, queries, **options):
    """Let all sites declare, make their cells, and let all cast; returns the cells and the ballot files."""
    found = [declared(folder / site, site, queries) for site in SITES]
    cells, _ = make_site_cells(queries, found, folder / "cells.npz", partitions=4, **options)
    for site in SITES:
        cast_ballots(folder / site / "site", cells, folder / f"{site}.npz")
    return cells, [folder / f"{site}.npz" for site in SITES]


def rewrite(path, *, ballots=None, **changes):
    """Write a site's ballot file anew, with all hashes right: only its contents can be refused."""
    with np.load(path, allow_pickle=False) as held:
        table, manifest = held["ballots"], json.loads(held["manifest"].tobytes())
    table = table if ballots is None else ballots(table)
    about = f"{table.dtype.newbyteorder('<').str} {list(table.shape)}\n".encode()
    manifest |= {"ballots": hashlib.sha256(about + table.tobytes()).hexdigest(), **changes}
    stated = json.dumps(manifest).encode()
    with path.open("wb") as stream:
        np.savez(
            stream,
            ballots=table,
            manifest=np.frombuffer(stated, dtype=np.uint8),
            sha256=np.frombuffer(hashlib.sha256(stated).digest(), dtype=np.uint8),
        )
    return path
