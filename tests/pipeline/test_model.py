"""Pipeline files: what they mean, and that every mistake is reported with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from omnigraph.api.enums import LoadMode
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.language.schema.compile import accept_schema
from omnigraph.pipeline.file import Duplicates, OnError, check_against, load_pipeline, read_pipeline
from omnigraph.pipeline.sources.csv_files import check_columns
from tests.pipeline.library import SCHEMA

WHOLE = """\
version: 1
name: library
graph: ./library.omni
branch: ingest/nightly
from: main
mode: append
spark: {master: "local[1]", conf: {spark.x: true}}
sources:
  people: {format: csv, path: data/people/*.csv, options: {header: true}}
  recent: {sql: "select * from people"}
nodes:
  Reader: {from: people, select: {name: full_name, age: "cast(age as int)"}, where: "full_name is not null"}
edges:
  Borrowed: {from: recent, src: full_name, dst: isbn, select: {on: day}}
quality: {on_error: quarantine, quarantine: out/rejected, max_rejected: 7}
index: true
"""


def test_a_file_says_everything_a_run_needs(tmp_path: Path) -> None:
    file = tmp_path / "library.yaml"
    file.write_text(WHOLE)
    pipeline = load_pipeline(file)
    assert (pipeline.name, pipeline.branch, pipeline.base, pipeline.mode) == (
        "library", "ingest/nightly", "main", LoadMode.APPEND,
    )  # fmt: skip
    assert pipeline.sources["people"].options == {"header": "true"}
    assert pipeline.spark.conf == {"spark.x": "true"}
    reader, borrowed = pipeline.mappings
    assert reader.columns == {"name": "full_name", "age": "cast(age as int)"}
    assert borrowed.columns == {"from": "full_name", "to": "isbn", "on": "day"}
    assert pipeline.quality.on_error is OnError.QUARANTINE
    assert pipeline.index
    assert pipeline.resolve_path("data/x.csv") == str(tmp_path / "data/x.csv")
    assert pipeline.resolve_path("s3://bucket/x.csv") == "s3://bucket/x.csv"


@pytest.mark.parametrize(
    ("rule", "merged_keys", "merged_ids", "appended"),
    [
        (None, True, True, False),
        (Duplicates.LAST, True, True, True),
        (Duplicates.REJECT, False, False, False),
        (Duplicates.LOAD, False, True, False),
    ],
)
def test_whether_the_last_row_of_a_repeated_id_counts(
    rule: Duplicates | None, merged_keys: bool, merged_ids: bool, appended: bool
) -> None:
    quality = f"\nquality: {{duplicates: {rule}}}" if rule else ""
    given = read_pipeline(f"version: 1{quality}\nsources: {{a: {{format: graph, path: x}}}}").quality
    assert given.keeps_last(LoadMode.MERGE, keyed=True) is merged_keys
    assert given.keeps_last(LoadMode.MERGE, keyed=False) is merged_ids
    for mode in (LoadMode.APPEND, LoadMode.OVERWRITE):
        assert [given.keeps_last(mode, keyed=keyed) for keyed in (True, False)] == [appended, appended]


MISTAKES = [
    ("nothing", "", (1, 1), "the file is empty"),
    ("no YAML", "version: [1", (1, 12), "this is not YAML"),
    ("another version", "version: 2\nsources: {a: {format: graph, path: x}}", (1, 10), "version 1"),
    ("unknown setting", "version: 1\nsorces: {}", (2, 1), "did you mean 'sources'?"),
    ("missing sources", "version: 1\n", (1, 1), "lacks the key 'sources'"),
    ("source without format", "version: 1\nsources:\n  a: {path: x}", (3, 6), "needs 'format'"),
    ("query with a path", "version: 1\nsources:\n  a: {sql: select 1, path: x}", (3, 6), "takes no format"),
    ("graph without a path", "version: 1\nsources:\n  a: {format: graph}", (3, 6), "source 'a' needs 'path'"),
    ("bad Lance version", "version: 1\nsources:\n  a: {format: lance, path: x, options: {version: new}}", (3, 40),
     "must be a whole number"),
    ("bad mode", "version: 1\nmode: mrge\nsources: {a: {format: graph, path: x}}", (2, 7), "did you mean 'merge'?"),
    ("unknown source", "version: 1\nsources: {loans: {format: csv}}\nnodes:\n  R: {from: loan, select: {n: n}}",
     (4, 13), "did you mean 'loans'?"),
    ("edge without dst", "version: 1\nsources: {a: {format: csv, path: x}}\nedges:\n  E: {from: a, src: s}",
     (4, 6), "lacks the key 'dst'"),
    ("quarantine nowhere", "version: 1\nsources: {a: {format: graph, path: x}}\nquality: {on_error: quarantine}",
     (3, 10), "needs 'quarantine'"),
    ("a type twice", "version: 1\nsources: {a: {format: csv, path: x}}\nnodes:\n  R: {from: a, select: {}}\n  R: {}",
     (5, 3), "holds the key 'R' twice"),
    ("nothing mapped", "version: 1\nsources: {a: {format: csv, path: x}}", (1, 1), "nothing is mapped"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "message"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_shown_where_it_stands(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(CompileError) as raised:
        read_pipeline(text, path="p.yaml")
    found = next(d for d in raised.value.diagnostics if message in d.render())
    assert found.span is not None
    assert (found.span.line, found.span.column) == place


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(CompileError) as raised:
        read_pipeline("version: 2\nmode: x\nindex: maybe\nsources: {a: {format: graph, path: x}}")
    assert [d.span.line for d in raised.value.diagnostics if d.span] == [1, 2, 3]


MISFITS = [
    ("Raeder: {from: a, select: {name: n}}", "did you mean 'Reader'?"),
    ("Reader: {from: a, select: {name: n, agee: x}}", "did you mean 'age'?"),
    ("Book: {from: a, select: {isbn: n}}", "Book.title is not nullable"),
]


@pytest.mark.parametrize(("node", "message"), MISFITS)
def test_a_mapping_that_the_schema_has_no_place_for_is_shown_in_the_file(node: str, message: str) -> None:
    pipeline = read_pipeline(f"version: 1\nsources: {{a: {{format: csv, path: x}}}}\nnodes:\n  {node}\n", path="p.yaml")
    with pytest.raises(CompileError, match=r"p\.yaml:4") as raised:
        check_against(pipeline, accept_schema(SCHEMA))
    assert message in str(raised.value)


def test_a_mapping_may_leave_out_what_has_a_default() -> None:
    pipeline = read_pipeline(
        "version: 1\nsources: {a: {format: csv, path: x}}\nnodes:\n  A: {from: a, select: {k: k}}\n"
    )
    check_against(pipeline, accept_schema("node A { k: String @key  n: I32 = 0 }"))
    with pytest.raises(CompileError, match=r"A\.n is not nullable and nothing is selected for it"):
        check_against(pipeline, accept_schema("node A { k: String @key  n: I32 }"))


def test_a_file_that_is_not_there_is_a_bad_request(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="can't read the pipeline file"):
        load_pipeline(tmp_path / "no.yaml")


HEADERS = """\
version: 1
sources:
  people: {format: csv, path: "data/*.csv"}
  parted: {format: csv, path: parted}
  bare: {format: csv, path: bare.csv, options: {header: false, sep: ;}}
  zipped: {format: csv, path: zipped.csv.gz}
  gone: {format: csv, path: gone.csv}
  far: {format: csv, path: "s3://bucket/x.csv"}
nodes:
  Reader: {from: people, select: {name: NAME, age: cast(agee as int)}}
edges:
  Knows: {from: SOURCE, src: SRC, dst: DST}
"""


@pytest.mark.parametrize(
    ("source", "src", "message"),
    [
        ("people", "name", None),
        ("people", "'`NAME`'", None),
        ("people", "nmae", "have no column 'nmae'\n.*did you mean 'name'"),
        ("people", "_c0", "with `options: {header: false}`"),
        ("parted", "day", None),
        ("parted", "dya", "have no column 'dya'"),
        ("zipped", "nmae", "did you mean 'name'"),
        ("bare", "_c1", None),
        ("gone", "nmae", None),
        ("far", "nmae", None),
    ],
)
def test_columns_that_reachable_csv_files_lack_are_shown_in_the_file(
    tmp_path: Path, source: str, src: str, message: str | None
) -> None:
    for name, text in {
        "data/a.csv": "name,age\nann,3\n",
        "parted/day=2026-01-01/a.csv": "name,age\n",
        "bare.csv": "ann;3\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "zipped.csv.gz").write_bytes(gzip.compress(b"name,age\n"))
    text = HEADERS.replace("SOURCE", source).replace("SRC", src).replace("DST", src)
    pipeline = read_pipeline(text, path="p.yaml", directory=str(tmp_path))
    if message is None:
        check_columns(pipeline)
        return
    with pytest.raises(CompileError, match=rf"(?s)p\.yaml:12:\d+.*{message}"):
        check_columns(pipeline)


def test_a_header_that_is_broken_is_reported_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,name\n")
    text = "version: 1\nsources: {a: {format: csv, path: a.csv}}\nnodes: {Reader: {from: a, select: {name: name}}}\n"
    with pytest.raises(CompileError, match=r"a\.csv: the header names the column 'name' twice"):
        check_columns(read_pipeline(text, path="p.yaml", directory=str(tmp_path)))
