"""Seeded and secure noise cannot share a ledger, whoever calls `label`: the kind is a typed fact of the run."""

import sqlite3

import numpy as np
import pytest

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.aggregators import GNMax, Mechanism
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.votes import Votes
from ipate.errors import InputError
from ipate.release.noise import SecureNoise, SeededNoise
from ledger.making import begin

LOUD = GNMax(mechanism=Mechanism(sigma=20.0))
KINDS = {"secure": SecureNoise(), "seeded": SeededNoise(3)}


def made():
    votes = np.random.default_rng(0).integers(0, 3, (8, 40))
    ballot = Votes(votes=votes, n_classes=3, groups=("all",) * 8)
    return ballot, Panel.from_votes(ballot, [("all", 2.0, 1e-5, None)], weights=np.ones(8))


@pytest.mark.parametrize(("first", "second"), [("secure", "seeded"), ("seeded", "secure")])
@pytest.mark.parametrize("name", ["run", "run (seeded)", "other"])
def test_label_refuses_the_other_kind_of_noise(tmp_path, first, second, name):
    votes, panel = made()
    terms = account_terms(panel, Meter(), LOUD)
    with begin(tmp_path / "l.sqlite", terms, run="run", noise=first) as book:
        label(votes, panel, LOUD, Meter(), noise=KINDS[first], ledger=book, max_queries=2)
        with pytest.raises(InputError, match="must not share a ledger"):
            label(votes, panel, LOUD, Meter(), noise=KINDS[second], ledger=book, max_queries=4)
        assert book.noise == first
    for noise in (first, second):
        with (
            pytest.raises(InputError, match=r"must not share a ledger|noise"),
            begin(tmp_path / "l.sqlite", terms, run=name, noise=noise) as book,
        ):
            label(votes, panel, LOUD, Meter(), noise=KINDS[second], ledger=book, max_queries=4)
    with sqlite3.connect(tmp_path / "l.sqlite") as connection:
        assert {kind for (kind,) in connection.execute("SELECT noise FROM runs")} == {first}
    connection.close()
