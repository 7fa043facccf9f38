"""A vote file is whole or refused: a byte, a vote, a budget or a manifest that changed is noticed, and named."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipate.errors import InputError
from ipate.parties.manifest import read_site_votes
from parties.making import cast, declare, place_of, queries, read_file, send, write_file

BUDGETS = {"high": (1.0, 1e-5, 3), "low": (3.0, 1e-5, 3)}


@pytest.fixture
def asked(tmp_path):
    return queries(tmp_path)


@pytest.fixture
def file(tmp_path, asked):
    return send(tmp_path, "north", BUDGETS, asked)


def test_a_true_file_is_read_as_it_was_written(file):
    found = read_site_votes(file)
    votes, manifest, sha = read_file(file)
    np.testing.assert_array_equal(found.votes, votes)
    assert json.loads(found.manifest.model_dump_json()) == manifest
    assert found.fingerprint == sha.hex()


@pytest.mark.parametrize("member", ["votes", "manifest", "sha256"])
def test_one_flipped_bit_is_noticed(file, member):
    raw = bytearray(file.read_bytes())
    raw[place_of(file, member)] ^= 1
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"north\.npz.*ask the site to send the file again"):
        read_site_votes(file)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_byte_changes_nothing_else_is_ever_read(file, data):
    """Any byte of the file, headers too: it is refused in one line, or it says exactly what it said."""
    true, whole = read_site_votes(file), file.read_bytes()
    raw = bytearray(whole)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    other = file.with_name("other.npz")
    other.write_bytes(raw)
    try:
        found = read_site_votes(other)
    except InputError as error:
        told = str(error)
    else:
        told = "other.npz"
        assert found.fingerprint == true.fingerprint
        assert np.array_equal(found.votes, true.votes)
    assert "other.npz" in told


def test_one_vote_that_changed_is_noticed_whatever_the_archive_says(file):
    votes, manifest, sha = read_file(file)
    votes[2, 5] ^= 1
    write_file(file, manifest, votes, sha=sha)
    with pytest.raises(InputError, match="its votes are not those of its manifest"):
        read_site_votes(file)


def test_an_edited_budget_is_noticed(file):
    votes, manifest, sha = read_file(file)
    manifest["groups"][0]["epsilon"] = 5.0
    write_file(file, manifest, votes, sha=sha)
    with pytest.raises(InputError, match="not the one that was hashed"):
        read_site_votes(file)


@pytest.mark.parametrize("with_hash", [False, True], ids=["manifest alone", "manifest and hash"])
def test_swapped_manifests_are_noticed(tmp_path, asked, file, with_hash):
    other = send(tmp_path, "south", BUDGETS, asked, seed=1)
    members = [read_file(path) for path in (file, other)]
    for path, (votes, _, sha), (_, manifest, foreign) in zip((file, other), members, members[::-1], strict=True):
        write_file(path, manifest, votes, sha=foreign if with_hash else sha)
        with pytest.raises(InputError, match=rf"{path.name}.*so the file was altered"):
            read_site_votes(path)


def test_an_unknown_version_is_refused_with_what_to_do(file):
    votes, manifest, _ = read_file(file)
    write_file(file, {**manifest, "format": "ipate site votes 2"}, votes)
    with pytest.raises(InputError, match=r"north\.npz: its format is 'ipate site votes 2'.*same version of ipate"):
        read_site_votes(file)


def edit(**changes):
    return lambda manifest: manifest.update(changes)


UNUSABLE = {
    "an unknown key": (edit(people=50), "people"),
    "a missing key": (lambda m: m.pop("fit"), "fit"),
    "a site's name with a slash": (edit(site="north/high"), "north/high"),
    "a group of another site": (lambda m: m["groups"][0].update(id="south/high"), "south/high"),
    "a teacher of another site": (lambda m: m["teachers"][0].update(id="south/0"), "south/0"),
    "a teacher twice": (lambda m: m["teachers"][1].update(id="north/0"), "stand twice"),
    "a group twice": (lambda m: m["groups"].append(m["groups"][0]), "stand twice"),
    "teachers of no declared group": (
        lambda m: m["teachers"][0].update(group="north/mid"),
        "not those that are declared",
    ),
    "a wrong number of teachers": (lambda m: m["groups"][0].update(teachers=2), "not those that are declared"),
    "a budget of 0": (lambda m: m["groups"][0].update(epsilon=0.0), "above 0"),
    "a budget as text": (lambda m: m["groups"][0].update(epsilon="1"), "epsilon"),
    "a δ of 1": (lambda m: m["groups"][0].update(delta=1.0), "between 0 and 1"),
    "one class": (lambda m: m["encoding"].update(classes=["ill"]), "at least two"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_manifest_that_contradicts_itself_is_refused(file, case):
    change, words = UNUSABLE[case]
    votes, manifest, _ = read_file(file)
    change(manifest)
    write_file(file, manifest, votes)
    with pytest.raises(InputError, match=rf"north\.npz: its manifest cannot be used .*{words}"):
        read_site_votes(file)


def test_votes_for_a_class_that_does_not_exist_are_refused(tmp_path, asked):
    votes = cast(BUDGETS, asked, 0)
    votes[0, 0] = 2
    path = write_file(tmp_path / "north.npz", declare("north", BUDGETS, asked, votes), votes)
    with pytest.raises(InputError, match="votes hold the class 2: there are 2"):
        read_site_votes(path)


def test_votes_of_another_width_are_refused(tmp_path, asked):
    """They are written in the first site's type, in which another site's larger classes could become small ones."""
    votes = cast(BUDGETS, asked, 0).astype(np.uint16)
    path = write_file(tmp_path / "north.npz", declare("north", BUDGETS, asked, votes), votes)
    with pytest.raises(InputError, match="its votes are not those of its manifest"):
        read_site_votes(path)


def test_a_manifest_of_brackets_without_end_is_one_line_too(file):
    votes, _, _ = read_file(file)
    write_file(file, b"[" * 200_000, votes)
    with pytest.raises(InputError, match=r"north\.npz: its manifest is no JSON"):
        read_site_votes(file)


def test_nothing_but_the_three_members_is_taken(file, tmp_path):
    votes, manifest, _ = read_file(file)
    write_file(file, manifest, votes, extra={"rows": np.zeros(3)})
    with pytest.raises(InputError, match="rows"):
        read_site_votes(file)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(InputError, match=r"text\.npz: is no readable vote file"):
        read_site_votes(tmp_path / "text.npz")
    with pytest.raises(InputError, match="no such file"):
        read_site_votes(tmp_path / "nowhere.npz")


def test_a_compressed_file_is_refused(file):
    """What unpacks to more than the file holds could fill the memory of whoever merges."""
    members = dict(np.load(file, allow_pickle=False))
    with file.open("wb") as stream:
        np.savez_compressed(stream, **members)
    with pytest.raises(InputError, match=r"north\.npz: is compressed"):
        read_site_votes(file)


def test_nothing_is_unpickled(file):
    _, manifest, _ = read_file(file)
    stated = json.dumps(manifest).encode()
    with file.open("wb") as stream:
        np.savez(
            stream,
            votes=np.array([{"a": 1}], dtype=object),
            manifest=np.frombuffer(stated, dtype=np.uint8),
            sha256=np.frombuffer(hashlib.sha256(stated).digest(), dtype=np.uint8),
            allow_pickle=True,
        )
    with pytest.raises(InputError, match="pickle, which is refused"):
        read_site_votes(file)
