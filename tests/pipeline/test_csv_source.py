"""CSV on Spark by RFC 4180: names decide and never positions, whatever is split, compressed, queried or far away."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.cli.main import run as command
from omnigraph.engine.rows.kernels.csv_rows import STRAY_QUOTE, TEXT_BEHIND_QUOTE, UNCLOSED_QUOTE
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.pipeline import export_types, read_pipeline, run
from omnigraph.pipeline.file import TypeMapping
from tests.engine.stored import rows
from tests.pipeline.library import rejected_rows

SCHEMA = """
node Text { key: String @key  first: String?  second: String?  day: Date?  size: I64? }
edge After: Text -> Text
"""
COLUMNS = ("key", "first", "second")
PIECES = ["a", "zwei", ",", '"', '""', "\r\n", "\n", "\r", ";", "\t", " ", "é", "\ufeff", "𝄞", "\\", "#row", "NULL"]


def tables(prefix: str, seed: int, files: int, most: int) -> list[list[dict[str, str]]]:
    """Rows of random texts, file by file."""
    chance = random.Random(seed)

    def text() -> str:
        return "".join(chance.choices(PIECES, k=chance.randrange(1, 6)))

    return [
        [{"key": f"{prefix}-{n}-{row}", "first": text(), "second": text()} for row in range(chance.randrange(1, most))]
        for n in range(files)
    ]


def written(table: Sequence[dict[str, str]], seed: int, encoding: str = "utf-8") -> bytes:
    """A table as Python's csv module writes it, with its columns in some order."""
    chance = random.Random(seed)
    file = io.StringIO(newline="")
    quoting: Any = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.DictWriter(file, chance.sample(COLUMNS, len(COLUMNS)), quoting=quoting)
    writer.writeheader()
    writer.writerows(table)
    return file.getvalue().encode(encoding)


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


BAD = [
    (b"short", "it has 1 value where its file has 2 columns"),
    (b"l,o,ng", "it has 3 values where its file has 2 columns"),
    (b"caf\xe9,1", "it has bytes that are not utf-8"),
    (b'5" disk,1', STRAY_QUOTE),
    (b'"x"y,1', TEXT_BEHIND_QUOTE),
    (b'eve,"open', UNCLOSED_QUOTE),
]
PIPELINE = """
version: 1
mode: append
sources:
  split: {{format: csv, path: split, options: {{header: true}}}}
  whole: {{format: csv, path: "whole/*", options: {{header: true, multiLine: true, escape: '"'}}}}
  asked: {{sql: "select key, nullif(`first`, '') as one, second, '2026-01-02' as day from whole"}}
  bare:
    format: csv
    path: bare.csv
    options: {{header: false, sep: ;, quote: "'", encoding: ISO-8859-1, nullValue: NULL}}
  days:  {{format: csv, path: days, options: {{header: "true"}}}}
  far:   {{format: csv, path: "{far}", options: {{header: true}}}}
  next:  {{format: csv, path: days, options: {{header: true}}}}
nodes:
  Text: {{from: split, select: {{key: key, first: first, second: second}}}}
edges: {{After: {{from: next, src: k, dst: k, where: "size > 4"}}}}
quality: {{on_error: quarantine, quarantine: rejected}}
spark: {{conf: {{spark.sql.files.maxPartitionBytes: 4k}}}}
"""
# A file can map a type once only; the others are what a run does with the same type again.
MORE = {
    "asked": {"key": "key", "first": "one", "second": "second", "day": "day"},
    "bare": {"key": "_c0", "first": "_c1", "second": "concat(_c1, '!')"},
    "days": {"key": "k", "day": "day", "size": "size"},
    "far": {"key": "key", "first": "upper(`first`)", "second": "second"},
}


def test_what_was_written_is_stored_and_what_is_no_row_is_told(tmp_path: Path, spark: SparkSession) -> None:
    split, whole, far = tables("split", 1, 4, 300), tables("whole", 2, 6, 20), tables("far", 3, 2, 60)
    for number, table in enumerate(split):
        put(tmp_path / f"split/{number}.csv", written(table, number))
    put(tmp_path / "split/empty.csv", b"")
    for number, table in enumerate(whole):
        data = written(table, number, "utf-8-sig" if number % 2 else "utf-8")
        zipped = number == 0
        put(tmp_path / f"whole/{number} %20[x].csv{'.gz' if zipped else ''}", gzip.compress(data) if zipped else data)
    bad = [b'key,first,second\n"whole-good","",', *(b"%d," % n + text for n, (text, _) in enumerate(BAD))]
    put(tmp_path / "whole/zz.csv", b"\n".join([*bad, b"whole-last,not,swallowed"]))
    put(tmp_path / "bare.csv", "bare-é;NULL\n'bare-;\n';'it''s'\n\n".encode("latin-1"))
    put(tmp_path / "days/day=2026-01-01/a.csv", b"k,size\ndays-1,5\n")
    put(tmp_path / "days/day=2026-01-02/b.csv", b"size,k\n4,days-2\n")
    for number, table in enumerate(far):
        put(tmp_path / f"elsewhere/{number}.csv", written(table, number))
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.far.link./in", f"file:{tmp_path}/elsewhere")

    graph = Graph.init(tmp_path / "graph", SCHEMA)
    pipeline = read_pipeline(PIPELINE.format(far="viewfs://far/in"), path="p.yaml", directory=str(tmp_path))
    mappings = (*(TypeMapping("Text", source, select) for source, select in MORE.items()), *pipeline.mappings)
    report = run(replace(pipeline, mappings=mappings), graph=graph, spark=spark)

    expected = {row["key"]: (row["first"], row["second"], None, None) for table in split for row in table}
    day = "2026-01-02"
    expected |= {row["key"]: (row["first"], row["second"], day, None) for table in whole for row in table}
    expected |= {"whole-good": (None, None, day, None), "whole-last": ("not", "swallowed", day, None)}
    expected |= {row["key"]: (row["first"].upper(), row["second"], None, None) for table in far for row in table}
    expected |= {"bare-é": (None, None, None, None), "bare-;\n": ("it's", "it's!", None, None)}
    expected |= {"days-1": (None, None, "2026-01-01", 5), "days-2": (None, None, day, 4)}
    stored = {
        key: (row["first"], row["second"], None if row["day"] is None else str(row["day"]), row["size"])
        for key, row in rows(graph, "node:Text").items()
    }
    assert stored == expected
    assert [edge["src"] for edge in rows(graph, "edge:After").values()] == ["days-1"]

    # Only a query reads `whole`, and its bad records are told all the same: once each, by file, row and line.
    told = [
        (r["source"], Path(r["file"]).name, r["row"], r["line"], r["reason"], r["record"])
        for r in rejected_rows(report.quarantine)
    ]
    assert told == [
        ("whole", "zz.csv", n + 2, n + 3, f"the record is malformed: {reason}".replace(" 2 col", " 3 col"), record)
        for n, (text, reason) in enumerate(BAD)
        for record in [f"{n}," + text.decode(errors="backslashreplace")]
        for reason in [reason.replace("has 3 values", "has 4 values").replace("has 1 value ", "has 2 values ")]
    ]
    assert "#" not in json.dumps([wire.to_builtins(report)["types"], *rejected_rows(report.quarantine)]).replace(
        "#row", ""
    )
    assert graph.maintenance.verify().clean

    export_types(spark, graph, str(tmp_path / "out"), format="csv", types=["Text"])
    copy = Graph.init(tmp_path / "copy", SCHEMA)
    data = str(tmp_path / "out/nodes/Text")
    assert command(["load", copy.uri, "--mode", "append", "--type", "Text", "--data", data, "--format", "csv"]) == 0
    assert rows(copy, "node:Text") == rows(graph, "node:Text")


def test_files_that_do_not_fit_together_and_options_that_mean_nothing_are_refused(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph.init(tmp_path / "graph", SCHEMA)

    def load(*data: str) -> tuple[int, str, str]:
        code = command(["load", graph.uri, "--mode", "append", "--type", "Text", "--json", *data])
        return code, *capsys.readouterr()

    empty = put(tmp_path / "empty.csv", b"")
    code, out, _ = load("--data", str(empty))
    assert (code, json.loads(out)["total_entities"]) == (0, 0)
    put(tmp_path / "two/a.csv", b"key,first\n1,2\n")
    put(tmp_path / "two/b.csv", b"key,frist\n3,4\n")
    code, _, err = load("--data", str(tmp_path / "two"))
    assert code == 1
    assert f"{tmp_path}/two/b.csv: its columns are not those of {tmp_path}/two/a.csv: it has no 'first'" in err
    latin = put(tmp_path / "latin.csv", "key,first\né,1\n".encode("latin-1"))
    code, _, err = load("--data", str(latin))
    assert (code, "latin.csv, line 2: the record is malformed: it has bytes that are not utf-8" in err) == (1, True)

    text = f"""\
version: 1
sources: {{a: {{format: csv, path: '{empty}', options: OPTIONS}}}}
nodes: {{Text: {{from: a, select: {{key: kye}}}}}}
"""
    nothing = run(read_pipeline(text.replace("OPTIONS", "{header: true}")), graph=graph, spark=spark)
    assert (nothing.rejected, nothing.commit_id is not None) == (0, True)
    put(empty, b"key,first\n1,2\n")
    with pytest.raises(BadRequestError) as unknown:
        run(read_pipeline(text.replace("OPTIONS", "{header: true}")), graph=graph, spark=spark)
    assert "`key`, `first`" in str(unknown.value)
    assert "#" not in str(unknown.value) + capsys.readouterr().err
    for options, told in {
        "{delimeter: ;}": "no option 'delimeter'; did you mean",
        "{sep: '||'}": "must be one ASCII character",
        "{inferSchema: true}": "values are texts",
        "{escape: '\\'}": "written twice",
        "{encoding: klingon}": "no encoding named",
        "{mode: DROPMALFORMED}": "quality.on_error",
    }.items():
        with pytest.raises(CompileError, match="P017") as refused:
            read_pipeline(text.replace("OPTIONS", options))
        assert told in str(refused.value)
    assert graph.snapshot().count("node:Text") == 0
