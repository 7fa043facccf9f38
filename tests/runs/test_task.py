"""The input of a run: who is protected and who is not."""

import pytest

from ipate.config import RunConfig
from ipate.errors import InputError
from ipate.runs.task import options_of, prepare
from runs.leaving import people_file, settings


def _file(path, ids):
    rows = "".join(f"{name},{index % 7},{index % 2},1.5\n" for index, name in enumerate(ids))
    path.write_text("person,x,sick,eps\n" + rows)
    return path


def _task(file, **more):
    data = {
        "file": file,
        "label": "sick",
        "epsilon": "eps",
        "classes": ["0", "1"],
        "public": 20,
        "test": 10,
        "public_without_protection": True,
        **more,
    }
    return prepare(RunConfig.from_mapping({"data": data}))


def test_people_of_pool_and_test_rows_are_unprotected(tmp_path):
    names = [f" p{index // 2} " for index in range(120)]
    task = _task(_file(tmp_path / "people.csv", names), person="person")
    assert len(task.unprotected) == len(set(task.unprotected)) == 30  # sizes count people
    assert {*task.unprotected} | {*task.people.ids} == {name.strip() for name in names}
    assert not {*task.unprotected} & {*task.people.ids}


def test_rows_without_ids_are_people_of_their_own(tmp_path):
    task = _task(_file(tmp_path / "people.csv", map(str, range(120))))
    assert len(task.unprotected) == 30
    assert {*task.unprotected} | {*task.people.ids} == {str(row) for row in range(120)}


def test_configuration_limits_number_and_size_of_groups(tmp_path):
    file = tmp_path / "people.csv"
    rows = [f"{index % 7},{index % 2},{1 + index % 40 / 10}\n" for index in range(400)]
    file.write_text("x,sick,eps\n" + "".join(rows))

    def people(**budgets):
        data = {"file": file, "label": "sick", "epsilon": "eps", "classes": ["0", "1"], "public": 30, "test": 10}
        data["public_without_protection"] = True
        config = RunConfig.from_mapping({"data": data, "budgets": budgets})
        task = prepare(config)
        options = options_of(config, n_classes=task.n_classes)
        return options.request.teachers.means(options.facts(task), lambda *_: None)

    assert len(people().groups) == 8
    assert len(people(max_groups=3).groups) == 3
    assert len(people(max_groups=40, min_group_size=1).groups) == 40
    merged = people(max_groups=40, min_group_size=12)
    assert sorted(group.people for group in merged.groups)[1] >= 12
    assert len(people(merge_within=1.0).groups) == 3


def test_text_in_number_column_of_pool_is_noted(tmp_path):
    people = _file(tmp_path / "people.csv", [f"p{index}" for index in range(120)])
    people.write_text(people.read_text().replace("p7,0,", "p7,martian,"))
    pool = tmp_path / "pool.csv"
    pool.write_text('x\n1\n""\nold\nnan\nolder\n' + "5\n6\n" * 20)
    task = _task(
        people,
        person="person",
        numbers=["x"],
        public=None,
        test=None,
        public_file=pool,
        public_without_protection=False,
    )
    assert task.data.notes == (
        f"{pool}, line 4: column 'x' is 'old', which is no number, the first of 2 such cells: taken as missing",
    )


def test_delta_of_one_over_the_people_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    people_file(path)
    values = settings(path).model_dump()
    values["budgets"]["delta"] = 0.1
    with pytest.raises(InputError, match=r"delta is 0\.1 .* N = 250 people.*choose at most 1/\(10·N\) = 0\.0004"):
        prepare(RunConfig.from_mapping(values))
    values["budgets"]["delta"] = 0.0039
    assert prepare(RunConfig.from_mapping(values)).people.groups[0].delta == 0.0039
