"""The configuration of a run: errors take one line and suggest the nearest name."""

from datetime import date

import pytest

from ipate.config import RunConfig
from ipate.errors import InputError


def write(folder, text):
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_toml_file_fills_every_section(tmp_path):
    path = write(
        tmp_path,
        """
        split_seed = 4
        [data]
        name = "synthetic"
        public = 2000
        test = 0.1
        [budgets]
        policy = { high = 1.0, low = 3.0 }
        delta = 1e-6
        [teachers]
        model = "forest"
        options = { n_estimators = 10 }
        number = 50
        [labelling]
        variant = "upsampling"
        sigma = 8.0
        [student]
        model = "boosting"
        """,
    )
    config = RunConfig.from_file(path)
    assert (config.split_seed, config.seed, config.data.public, config.data.test) == (4, None, 2000, 0.1)
    assert config.budgets.policy == {"high": 1.0, "low": 3.0}
    assert config.teachers.options == {"n_estimators": 10}
    assert (config.labelling.variant, config.labelling.sigma, config.labelling.threshold) == ("upsampling", 8.0, "auto")
    again = RunConfig.from_mapping(config.model_dump(mode="json"))
    assert again == config


BASE = '[data]\nname = "synthetic"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BASE + "[labelling]\nvoting = 'ballot'\n", "labelling.voting is 'ballot': allowed are auto, ballots"),
        (BASE + "[labelling]\nvarient = 'weighting'\n", "unknown key 'labelling.varient': nearest is 'variant'"),
        (BASE + "[laballing]\n", "nearest is 'labelling'"),
        ("seed = 1\n", "there is no section [data]: add it, with name or file"),
        ("", "there is no section [data]"),
        ("data = 3\n", "data is 3: it must be a section: its name in brackets"),
        ("[data]\n", "a name or a file"),
        ('[data]\nname = "a"\nfile = "b.csv"\n', "name and file are both given, 'a' (--dataset) and 'b.csv' (--file)"),
        ('[data]\nfile = "b.csv"\nlabel = "?"\n', "label is '?', as ipate schema proposed: set it"),
        ('[data]\nfile = "b.csv"\nlabel = "y"\n', 'classes = ["no", "yes"] in [data]'),
        ('[data]\nfile = "b.csv"\nlabel = "y"\nclasses = []\n', "classes are empty: set all classes"),
        ('[data]\nfile = "b.csv"\nlabel = "y"\nclasses = ["a"]\n', "classes are 'a': set all classes"),
        ('[data]\nfile = "b.csv"\nclasses = "a"\n', 'data.classes is \'a\': it must be a list such as ["a", "b"]'),
        (
            '[data]\nfile = "b.csv"\ncategories = "a"\n',
            'data.categories is \'a\': it must be a list such as ["a", "b"], or a table',
        ),
        ('[data]\nfile = "b.csv"\n', "label"),
        (BASE + "[labelling]\nsigma = -2\n", "labelling.sigma is -2"),
        (BASE + "[budgets]\ndelta = 1.5\n", "budgets.delta is 1.5"),
        (BASE + "[budgets]\nepsilon = 0\n", "budgets.epsilon is 0"),
        (BASE + "[teachers]\nnumber = 0\n", "teachers.number is 0: it must be 1 or above, or 'auto'"),
        (BASE + "[teachers]\nnumber = 'many'\n", "teachers.number is 'many': it must be a whole number, or 'auto'"),
        (BASE + "[budgets]\npolicy = 3\n", "budgets.policy is 3: it must be a table such as { high = 1.0"),
        (BASE + "[budgets]\npolicy = { strict = 'a' }\n", "budgets.policy.strict is 'a': it must be a number"),
        ("[data", "not a readable TOML file"),
        (BASE.replace("[data]", "split_seed = -1\n[data]"), "split_seed is -1"),
    ],
)
def test_invalid_configuration_is_explained_in_one_line(tmp_path, text, words):
    with pytest.raises(InputError) as caught:
        RunConfig.from_file(write(tmp_path, text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_report_section_and_policy_version_are_read(tmp_path):
    text = (
        BASE
        + """
[budgets]
policy = { high = 1.0 }
policy_version = 2
policy_date = 2026-01-31
[report]
controller = " St. Mary "
contact = "dpo@stmary.example"
"""
    )
    found = RunConfig.from_file(write(tmp_path, text))
    assert (found.report.controller, found.report.contact, found.report.purpose) == (
        "St. Mary",
        "dpo@stmary.example",
        None,
    )
    assert (found.budgets.policy_version, found.budgets.policy_date) == ("2", date(2026, 1, 31))
    stored = found.model_dump(mode="json")
    assert RunConfig.from_mapping(stored) == found  # as it is read from a run's folder


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('[report]\ncontroler = "x"', "nearest is 'controller'"),
        ('[report]\ncontact = ""', "report.contact is ''"),
        ('[budgets]\npolicy_date = "soon"', "it must be a day such as 2026-01-31"),
        ('[budgets]\npolicy_version = ""', "it must be text of 1 to 60 characters"),
    ],
)
def test_invalid_report_and_policy_keys_are_named(tmp_path, line, words):
    with pytest.raises(InputError) as caught:
        RunConfig.from_file(write(tmp_path, f"{BASE}\n{line}\n"))
    assert words in str(caught.value)


def test_missing_configuration_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        RunConfig.from_file(tmp_path / "none.toml")


def test_invalid_level_of_policy_is_named():
    values = {"data": {"name": "digits"}, "budgets": {"policy": {"high": -1.0, "low": 3.0}}}
    with pytest.raises(InputError, match=r"budgets\.policy\.high is -1\.0"):
        RunConfig.from_mapping(values)
