"""Policies and consent records carry a version and a date."""

import pickle
from datetime import date, datetime, timedelta

import pytest

from ipate.errors import InputError
from ipate.people.consent import check_consent
from ipate.people.policy import Policy, check_date

LINES = ["p1,high,2026-02-01,2", "p2,low,2026-03-01,2", "p3,low,2026-01-15,2"]


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "policy.toml").write_text("high = 1.0\nlow = 3.0\ndelta = 1e-6\nversion = 2\ndate = 2026-01-01\n")
    return Policy.from_file(tmp_path / "policy.toml")


def checked(tmp_path, policy, lines):
    (tmp_path / "people.csv").write_text("\n".join(["patient,consent,agreed,version", *lines]) + "\n")
    return check_consent(
        tmp_path / "people.csv",
        policy=policy,
        person="patient",
        level="consent",
        consent_date="agreed",
        consent_version="version",
    )


def test_policy_file_states_version_and_date(policy):
    assert (policy.version, policy.date) == ("2", date(2026, 1, 1))
    assert dict(policy.levels) == {"high": 1.0, "low": 3.0}
    assert pickle.loads(pickle.dumps(policy)) == policy


@pytest.mark.parametrize(
    ("key", "words"),
    [('version = ""', "version of the policy"), ("version = 1.5", "version of the policy"), ('date = "May"', "a day")],
)
def test_invalid_version_or_date_is_refused(tmp_path, key, words):
    (tmp_path / "policy.toml").write_text(f"high = 1.0\n{key}\n")
    with pytest.raises(InputError, match=words):
        Policy.from_file(tmp_path / "policy.toml")


def test_days_are_read_from_dates_and_text():
    day = date(2026, 5, 1)
    for given in (day, datetime(2026, 5, 1, 12), "2026-05-01", " 2026-05-01T08:30:00 "):
        assert check_date(given, what="day") == day


def test_consent_check_reports_days_and_versions(tmp_path, policy):
    found = checked(tmp_path, policy, LINES)
    assert found.problems == ()
    assert found.dates == ("2026-01-15", "2026-03-01")
    assert found.versions == {"2": 3}
    assert (found.policy_version, found.policy_date) == ("2", "2026-01-01")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("p4,low,2026-13-01,2", "agreed is '2026-13-01': it must be a day"),
        ("p4,low,,2", "agreed is missing: every row needs one"),
        (f"p4,low,{date.today() + timedelta(days=3)},2", "it is in the future"),
        ("p4,low,2026-02-01,1", "version is '1': the policy is version '2'"),
        ("p4,low,2025-12-31,2", "agreed is '2025-12-31': the policy is valid from 2026-01-01"),
    ],
)
def test_invalid_consent_records_are_named_with_lines(tmp_path, policy, line, words):
    found = checked(tmp_path, policy, [*LINES, line])
    (problem,) = found.problems
    assert words in problem.text
    assert (problem.lines, found.unusable, found.groups) == ((5,), 1, ())


def test_latest_day_of_a_person_decides_about_the_policy(tmp_path, policy):
    found = checked(tmp_path, policy, [*LINES, "p4,low,2025-12-31,2", "p4,low,2026-02-01,2"])
    assert found.problems == ()
