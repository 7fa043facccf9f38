"""Who is responsible for a run, what its people agreed to, and fingerprints that tell nothing about private rows."""

import csv
import hashlib
import hmac
import json
import stat
from datetime import date, timedelta

import pytest

from ipate.cli.app import _run
from ipate.config import RunConfig
from ipate.errors import InputError
from ipate.runs.folder import RunFolder
from ipate.runs.provenance import identity_of
from ipate.runs.reporting import write_report
from ipate.runs.statements import state, write_letters
from ipate.runs.task import prepare
from runs.leaving import go_on, leave, people_file, settings
from runs.making import quiet

ABOUT = {"controller": "St. Mary", "contact": "dpo@stmary.example"}


def with_consent(path, *, version="2"):
    """Write people whose rows have a day and a version; a person's later row has the later day."""
    people_file(path)
    lines = path.read_text().splitlines()
    days = [f",2026-{1 + row // 330:02d}-{1 + row % 28:02d},{version}" for row in range(len(lines) - 1)]
    head = f"{lines[0]},agreed,version"
    path.write_text("\n".join([head, *(line + day for line, day in zip(lines[1:], days, strict=True))]) + "\n")


def configured(file, **labelling):
    values = settings(file, **labelling).model_dump()
    values["data"] |= {"consent_date": "agreed", "consent_version": "version"}
    values["budgets"] |= {"policy_version": "2", "policy_date": "2026-01-01"}
    return RunConfig.from_mapping({**values, "report": ABOUT})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("hospital")
    with_consent(place / "people.csv")
    made = RunFolder.create(place / "run", configured(place / "people.csv"))
    go_on(made)
    return made


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_statement_has_latest_consent_of_the_person(folder):
    records = {row["person"]: row for row in rows_of(folder.private / "consent.csv")}
    for person, record in list(records.items())[:40]:
        own = [row for row in rows_of(folder.path.parent / "people.csv") if row["person"] == person]
        assert record["date"] == max(row["agreed"] for row in own)
    person = next(iter(records))
    found = state(folder, person).agreement
    assert (found.consent_date, found.consent_version) == (records[person]["date"], "2")
    assert (found.policy_version, found.policy_date) == ("2", "2026-01-01")
    assert (found.controller, found.contact) == ("St. Mary", "dpo@stmary.example")


def test_consent_of_another_version_is_refused(tmp_path):
    with_consent(tmp_path / "people.csv", version="1")
    made = RunFolder.create(tmp_path / "run", configured(tmp_path / "people.csv"))
    said = r"people\.csv, line 3: consent_version 'version' is '1', the first of .* rows, and the policy is version '2'"
    with pytest.raises(InputError, match=said):
        go_on(made)


def test_invalid_day_of_consent_is_refused(tmp_path):
    with_consent(tmp_path / "people.csv")
    path = tmp_path / "people.csv"
    path.write_text(path.read_text().replace("2026-01-05", "5th of May", 1))
    made = RunFolder.create(tmp_path / "run", configured(path))
    with pytest.raises(InputError, match="'5th of May': it must be a day such as 2026-01-31"):
        go_on(made)


def test_private_file_has_a_keyed_fingerprint(folder):
    found = json.loads((folder.private / "fingerprint.json").read_text())
    content = (folder.path.parent / "people.csv").read_bytes()
    assert found["hmac_sha256"] == hmac.new(bytes.fromhex(found["key"]), content, hashlib.sha256).hexdigest()
    assert len(found["key"]) == 64
    private = write_report(folder, audience="private")
    assert found["hmac_sha256"] in private.html.read_text()
    assert found["key"] not in private.html.read_text() + private.json.read_text()


def test_public_files_have_no_hash_of_private_rows(folder):
    found = json.loads((folder.private / "fingerprint.json").read_text())
    content = (folder.path.parent / "people.csv").read_bytes()
    secret = {found["hmac_sha256"], found["key"], hashlib.sha256(content).hexdigest()}
    report = write_report(folder)
    texts = [path.read_text(errors="replace") for path in folder.public.rglob("*") if path.is_file()]
    for text in (*texts, report.html.read_text(), report.json.read_text()):
        assert not [value for value in secret if value in text]
    days = {row["date"] for row in rows_of(folder.private / "consent.csv")} - {"2026-01-01"}
    assert not [day for day in days if day in report.html.read_text()]


def test_two_runs_on_one_file_have_different_fingerprints(folder, tmp_path):
    """Without the key, a fingerprint does not even show that two runs used the same file."""
    (tmp_path / "people.csv").write_bytes((folder.path.parent / "people.csv").read_bytes())
    other = RunFolder.create(tmp_path / "run", configured(tmp_path / "people.csv"))
    go_on(other)
    first, second = (json.loads((made.private / "fingerprint.json").read_text()) for made in (folder, other))
    assert first["hmac_sha256"] != second["hmac_sha256"]
    public = [json.loads(write_report(made).json.read_text())["publishable"]["identity"] for made in (folder, other)]
    assert public[0]["fingerprints"]["settings"] == public[1]["fingerprints"]["settings"]


def test_fingerprints_do_not_depend_on_the_seed(folder):
    """Whoever sees a hash that covers a small seed could find it by trying, and with it the noise."""
    data = json.loads((folder.path / "data.json").read_text())
    plain = identity_of(folder, data).fingerprints
    seeded = RunFolder(folder.path, folder.config.model_copy(update={"seed": 5}))
    assert identity_of(seeded, data).fingerprints == plain
    other = RunFolder(folder.path, folder.config.model_copy(update={"split_seed": 5}))
    assert identity_of(other, data).fingerprints != plain


def test_private_report_states_when_people_agreed(folder):
    private = json.loads(write_report(folder, audience="private").json.read_text())
    days = sorted(row["date"] for row in rows_of(folder.private / "consent.csv"))
    assert private["private"]["consent"]["dates"] == [days[0], days[-1]]
    assert private["private"]["consent"]["versions"] == {"2": len(days)}
    assert json.loads(write_report(folder).json.read_text())["private"] is None


def test_letters_reach_everybody_and_nobody_else_can_read_them(folder, tmp_path):
    written = write_letters(folder, tmp_path / "letters", bar=quiet)
    index = rows_of(tmp_path / "letters" / "index.csv")
    data = json.loads((folder.path / "data.json").read_text())
    assert written == len(index) == data["people"] + data["unprotected"]
    assert len({row["file"] for row in index}) == written
    for path in ((tmp_path / "letters"), *(tmp_path / "letters").iterdir()):
        assert path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == 0
    for row in (index[0], index[-1]):
        assert f"To the person with the id {row['person']}" in (tmp_path / "letters" / row["file"]).read_text()
    with pytest.raises(InputError, match="not an empty folder"):
        write_letters(folder, tmp_path / "letters", bar=quiet)
    with pytest.raises(InputError, match="must not lie in the run's public folder"):
        write_letters(folder, folder.public / "letters", bar=quiet)


def test_batch_letters_equal_single_statements(folder, tmp_path, capsys):
    write_letters(folder, tmp_path / "letters", bar=quiet)
    for row in rows_of(tmp_path / "letters" / "index.csv")[::60]:
        target = tmp_path / "one.html"
        assert _run(["statement", str(folder.path), row["person"], "--html", str(target)]) == 0
        assert target.read_text() == (tmp_path / "letters" / row["file"]).read_text()
    assert target.stat().st_mode & 0o077 == 0


def test_statement_command_refuses_unclear_requests(folder, tmp_path, capsys):
    run = str(folder.path)
    for arguments, says in (
        ([run], "name one person"),
        ([run, "p1", "--all", str(tmp_path / "x")], "name one person"),
        ([run, "p1", "--private", "--html", str(tmp_path / "x.html")], "a letter is for the person"),
        ([run, "--all", str(tmp_path / "x"), "--html", str(tmp_path / "x.html")], "--html is for one person"),
        ([run, "p1", "--html", str(tmp_path / "x.pdf")], "must end in .html"),
    ):
        assert _run(["statement", *arguments]) == 2
        assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::ipate.errors.SimilarIdsWarning")
def test_letters_after_withdrawal_and_for_odd_ids(tmp_path):
    with_consent(tmp_path / "people.csv")
    path = tmp_path / "people.csv"
    path.write_text(path.read_text().replace(",p7,", ",a/b,").replace(",p8,", ",P9,"))
    path.write_text(path.read_text().replace(",p10,", ",=1+1,").replace(",p11,", ",Con.1,").replace(",p12,", ",lpt1,"))
    made = RunFolder.create(tmp_path / "run", configured(path))
    go_on(made)
    gone = rows_of(made.private / "consent.csv")[0]["person"]
    leave(made, gone)
    write_letters(made, tmp_path / "letters", bar=quiet)
    files = {row["person"]: row["file"] for row in rows_of(tmp_path / "letters" / "index.csv")}
    assert len({name.casefold() for name in files.values()}) == len(files)
    assert "/" not in files["a/b"]
    assert "'=1+1" in files
    assert not any(person.startswith(("=", "+", "-", "@")) for person in files)
    for person in ("Con.1", "lpt1"):
        assert files[person].startswith("letter-")
    assert "You withdrew on" in (tmp_path / "letters" / files[gone]).read_text()


def test_day_of_consent_in_the_future_is_refused(tmp_path):
    with_consent(tmp_path / "people.csv")
    path, later = tmp_path / "people.csv", date.today() + timedelta(days=3)
    path.write_text(path.read_text().replace("2026-01-05", str(later), 1))
    made = RunFolder.create(tmp_path / "run", configured(path))
    with pytest.raises(InputError, match=rf"people\.csv.*: consent_date 'agreed' is '{later}': it is in the future"):
        go_on(made)


def test_consent_before_the_policy_is_refused(tmp_path):
    """Of several rows of a person the latest day counts."""
    path = tmp_path / "people.csv"
    with_consent(path)
    config = configured(path)
    people = prepare(config).people
    once, twice = (next(name for name in people.ids.tolist() if len(people.rows_of(name)) == rows) for rows in (1, 2))
    lines = path.read_text().splitlines()
    for person, rows in ((once, None), (twice, 1)):  # all rows of the first, the first row of the second
        own = [row for row, line in enumerate(lines) if f",{person}," in line][:rows]
        for row in own:
            lines[row] = lines[row][: lines[row].rindex(",2026")] + ",2025-12-31,2"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(
        InputError, match=rf"agreed is '2025-12-31' for person '{once}', .* 2026-01-01: 1 of 250 people"
    ):
        prepare(config)


def test_version_that_stood_for_another_budget_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    with_consent(path)
    go_on(RunFolder.create(tmp_path / "april", configured(path, max_labels=3)))
    values = configured(path, max_labels=3).model_dump() | {"accept_larger_budgets": True}
    values["budgets"]["policy"] = {"high": 30.0, "low": 50.0}
    with pytest.raises(InputError, match="version '2' of the policy was ε = 20 at level 'high' and now is 30"):
        go_on(RunFolder.create(tmp_path / "may", RunConfig.from_mapping(values)))
    values["budgets"]["policy_version"] = "3"
    path.write_text(path.read_text().replace(",2\n", ",3\n"))
    assert go_on(RunFolder.create(tmp_path / "june", RunConfig.from_mapping(values))) is not None
