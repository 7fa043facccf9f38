"""A vote file is refused by name if a byte, a vote, a budget or its manifest was changed."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipate.errors import InputError
from ipate.parties.exchange import read_site_votes
from parties.making import cast, declare, last_byte_of, queries, read_file, send, write_file

BUDGETS = {"high": (1.0, 1e-5, 3), "low": (3.0, 1e-5, 3)}


@pytest.fixture
def asked(tmp_path):
    return queries(tmp_path)


@pytest.fixture
def file(tmp_path, asked):
    return send(tmp_path, "north", BUDGETS, asked)


def test_vote_file_is_read_as_written(file):
    found = read_site_votes(file)
    votes, manifest, sha = read_file(file)
    np.testing.assert_array_equal(found.votes, votes)
    assert json.loads(found.manifest.model_dump_json()) == manifest
    assert found.fingerprint == sha.hex()


@pytest.mark.parametrize("member", ["votes", "manifest", "sha256"])
def test_flipped_bit_is_detected(file, member):
    raw = bytearray(file.read_bytes())
    raw[last_byte_of(file, member)] ^= 1
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"north\.npz.*ask the sender to send the file again"):
        read_site_votes(file)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_byte_is_refused_or_changes_nothing(file, data):
    """A change of any byte, including headers, is refused, or the file still holds the same votes."""
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


def test_changed_vote_is_detected_despite_valid_archive(file):
    votes, manifest, sha = read_file(file)
    votes[2, 5] ^= 1
    write_file(file, manifest, votes, sha=sha)
    with pytest.raises(InputError, match="its votes do not match its manifest"):
        read_site_votes(file)


def test_edited_budget_is_detected(file):
    votes, manifest, sha = read_file(file)
    manifest["groups"][0]["epsilon"] = 5.0
    write_file(file, manifest, votes, sha=sha)
    with pytest.raises(InputError, match="does not match its hash"):
        read_site_votes(file)


@pytest.mark.parametrize("with_hash", [False, True], ids=["manifest alone", "manifest and hash"])
def test_swapped_manifests_are_detected(tmp_path, asked, file, with_hash):
    other = send(tmp_path, "south", BUDGETS, asked, seed=1)
    members = [read_file(path) for path in (file, other)]
    for path, (votes, _, sha), (_, manifest, foreign) in zip((file, other), members, members[::-1], strict=True):
        write_file(path, manifest, votes, sha=foreign if with_hash else sha)
        with pytest.raises(InputError, match=rf"{path.name}.*so the file was altered"):
            read_site_votes(path)


def test_unknown_format_is_refused_with_advice(file):
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
    "a duplicate teacher": (lambda m: m["teachers"][1].update(id="north/0"), "duplicate or missing"),
    "a duplicate group": (lambda m: m["groups"].append(m["groups"][0]), "duplicate or missing"),
    "a teacher of an undeclared group": (
        lambda m: m["teachers"][0].update(group="north/mid"),
        "do not match the declared groups",
    ),
    "a wrong number of teachers": (lambda m: m["groups"][0].update(teachers=2), "do not match the declared groups"),
    "a budget of 0": (lambda m: m["groups"][0].update(epsilon=0.0), "above 0"),
    "a budget as text": (lambda m: m["groups"][0].update(epsilon="1"), "epsilon"),
    "a δ of 1": (lambda m: m["groups"][0].update(delta=1.0), "between 0 and 1"),
    "one class": (lambda m: m["encoding"].update(classes=["ill"]), "at least two"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_inconsistent_manifest_is_refused(file, case):
    change, words = UNUSABLE[case]
    votes, manifest, _ = read_file(file)
    change(manifest)
    write_file(file, manifest, votes)
    with pytest.raises(InputError, match=rf"north\.npz: its manifest cannot be used .*{words}"):
        read_site_votes(file)


def test_votes_for_unknown_class_are_refused(tmp_path, asked):
    votes = cast(BUDGETS, asked, 0)
    votes[0, 0] = 2
    path = write_file(tmp_path / "north.npz", declare("north", BUDGETS, asked, votes), votes)
    with pytest.raises(InputError, match="votes hold the class 2: there are 2"):
        read_site_votes(path)


def test_votes_of_another_dtype_are_refused(tmp_path, asked):
    """All votes are merged in the first site's dtype, where wider class ids of another site could overflow."""
    votes = cast(BUDGETS, asked, 0).astype(np.uint16)
    path = write_file(tmp_path / "north.npz", declare("north", BUDGETS, asked, votes), votes)
    with pytest.raises(InputError, match="its votes do not match its manifest"):
        read_site_votes(path)


def test_deeply_nested_manifest_is_refused_in_one_line(file):
    votes, _, _ = read_file(file)
    write_file(file, b"[" * 200_000, votes)
    with pytest.raises(InputError, match=r"north\.npz: its manifest is not JSON"):
        read_site_votes(file)


def test_file_with_other_members_is_refused(file, tmp_path):
    votes, manifest, _ = read_file(file)
    write_file(file, manifest, votes, extra={"rows": np.zeros(3)})
    with pytest.raises(InputError, match="rows"):
        read_site_votes(file)
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(InputError, match=r"text\.npz: is not readable as a site's vote file"):
        read_site_votes(tmp_path / "text.npz")
    with pytest.raises(InputError, match="no such file"):
        read_site_votes(tmp_path / "nowhere.npz")


def test_compressed_file_is_refused(file):
    """Decompression could fill the memory of whoever merges."""
    members = dict(np.load(file, allow_pickle=False))
    with file.open("wb") as stream:
        np.savez_compressed(stream, **members)
    with pytest.raises(InputError, match=r"north\.npz: is compressed"):
        read_site_votes(file)


def test_pickled_votes_are_refused(file):
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
