"""One person's feature and label cells change that person's encoded rows, and nothing else."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipate.data import raw as csvfile
from ipate.data.columns import Roles
from ipate.data.schema import Declared
from ipate.data.sources import Sources, read_data, read_parts

HEADER = ["who", "consent", "age", "sex", "seen", "sick"]
ROWS = [
    [f"p{i}", ("high", "low")[i % 2], str(20 + 3 * i), "FM"[i % 2], f"2024-01-{i + 1:02d}", ("no", "yes")[i % 2]]
    for i in range(12)
]
PUBLIC = {"age": [20, 40, 60], "sex": ["F", "M", "F"], "seen": ["2024-01-01", "2024-01-20", "2024-02-01"]}
NAMED = {"label": "sick", "level": "consent", "person": "who", "classes": ["no", "yes"]}
CELL = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["", "nan", "-inf", "1e999", "+7", " 8 ", "9\t", "1_0", "0x1", "NA", '"', 'a"b', '""', "2024-02-30", "F ", "\0"]
    ),
    st.floats().map(repr),
    st.dates().map(str),
)


def encoded(text):
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def written(rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
    return encoded(text.getvalue())


@pytest.fixture(params=["pyarrow", "python"])
def reader(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(csvfile, "find_spec", lambda name: None)
    else:
        pytest.importorskip("pyarrow")
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.csv"


def read(path, content):
    path.write_bytes(content)
    return read_data(path, **NAMED, public=PUBLIC)


def same_but_row(found, usual, row):
    assert found.schema == usual.schema
    assert (found.classes, found.notes, found.feature_names) == (usual.classes, usual.notes, usual.feature_names)
    assert np.array_equal(found.person_id, usual.person_id)
    assert np.array_equal(found.levels, usual.levels)
    assert np.isfinite(found.X).all()
    assert np.array_equal(np.delete(found.X, row, axis=0), np.delete(usual.X, row, axis=0))
    assert np.array_equal(np.delete(found.y, row), np.delete(usual.y, row))


@settings(max_examples=60)
@given(cells=st.lists(CELL, min_size=4, max_size=4), row=st.integers(0, 11))
def test_quoted_cells_of_one_row_change_that_row_alone(tmp_path_factory, cells, row):
    path = tmp_path_factory.getbasetemp() / "quoted.csv"
    rows = [list(cells_of) for cells_of in ROWS]
    rows[row][2:] = cells
    same_but_row(read(path, written(rows)), read(path, written(ROWS)), row)


@settings(max_examples=60)
@given(raw=st.binary(max_size=12).filter(lambda raw: not set(raw) & set(b'\n"')), row=st.integers(0, 11))
def test_raw_bytes_in_a_row_change_that_row_alone(tmp_path_factory, raw, row):
    path = tmp_path_factory.getbasetemp() / "raw.csv"
    lines = written(ROWS).split(b"\n")
    lines[row + 1] = b",".join([*lines[row + 1].split(b",")[:2], raw])
    same_but_row(read(path, b"\n".join(lines)), read(path, written(ROWS)), row)


@settings(max_examples=80)
@given(cells=st.lists(st.lists(CELL, min_size=4, max_size=4), min_size=1, max_size=6))
def test_both_readers_read_alike(tmp_path_factory, cells):
    path = tmp_path_factory.getbasetemp() / "alike.csv"
    content = written([[*ROWS[place][:2], *own] for place, own in enumerate(cells)])
    quick = read(path, content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csvfile, "find_spec", lambda name: None)
        slow = read(path, content)
    assert np.array_equal(quick.X, slow.X)
    assert np.array_equal(quick.y, slow.y)
    assert quick.private_notes == slow.private_notes


ODD = [
    b"61,F,2024-01-05,yes,more",
    b"61",
    b"",
    b"\xff\xfe,\x80,,",
    b"1" * 200_000 + b",F,2024-01-05,yes",
    b'"6"1,F"M,"2024-01\n-05",no',
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_lines_change_one_row_alone(path, reader, odd):
    lines = written(ROWS).split(b"\n")
    lines[4] = b"p3,low" + (b"," if odd else b"") + odd
    same_but_row(read(path, b"\n".join(lines)), read(path, written(ROWS)), 3)


def test_windows_lines_and_byte_order_mark_are_read(path, reader):
    usual = read(path, written(ROWS))
    found = read(path, b"\xef\xbb\xbf" + written(ROWS).replace(b"\n", b"\r\n") + b"\r\n\r\n")
    assert np.array_equal(found.X, usual.X)
    assert np.array_equal(found.y, usual.y)


def test_carriage_returns_end_lines_where_the_header_says_so(path, reader):
    usual = read(path, written(ROWS))
    assert np.array_equal(read(path, written(ROWS).replace(b"\n", b"\r")).X, usual.X)


def in_file(path, rows):
    if path.suffix == ".csv":
        path.write_bytes(written(rows))
    else:  # as pandas writes categories: each column has a list of all its values
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(rows, columns=HEADER).astype("category").to_parquet(path)
    sources = Sources(
        private=path,
        roles=Roles(label="sick", level="consent", person="who"),
        classes=["no", "yes"],
        declared=Declared(),
    )
    return read_parts(sources, n_public=6, n_test=0, seed=0)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_public_rows_of_the_file_alone_decide_the_schema(path, suffix):
    path = path.with_suffix(suffix)
    data, parts = in_file(path, ROWS)
    rows = [list(cells) for cells in ROWS]
    for row in parts.private.tolist():
        rows[row][2:] = ["1e9", "a long text", "never", "perhaps"]
    changed, again = in_file(path, rows)
    assert changed.schema == data.schema
    assert np.array_equal(parts.private, again.private)
    assert np.array_equal(changed.X[parts.public], data.X[parts.public])
    assert np.abs(changed.X).max() < 20


def test_frames_and_parquet_never_refuse_cells(tmp_path):
    pandas = pytest.importorskip("pandas")

    class Hostile:
        def __str__(self):
            raise RuntimeError

        __float__ = __hash__ = __str__

    frame = pandas.DataFrame(ROWS, columns=HEADER).astype(object)
    usual = read_data(frame, **NAMED, public=PUBLIC)
    for cells in ([Hostile(), [1], {}, Hostile()], [10**400, b"\xff", None, float("nan")], [None] * 4):
        changed = frame.copy()
        for place, cell in enumerate(cells):
            changed.iat[3, place + 2] = cell
        same_but_row(read_data(changed, **NAMED, public=PUBLIC), usual, 3)
