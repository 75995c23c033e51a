"""What `load` makes of its `--data` before anything is read: the format, the engine, and what to say when it can't."""

from __future__ import annotations

import builtins
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.api.limits import Limits
from omnigraph.cli.data_input import DataFormat, DataInput
from omnigraph.cli.scope import StoreScope
from tests.cli.conftest import RECORDS, Cli


@pytest.mark.parametrize(
    ("name", "format", "in_process"),
    [
        ("a.jsonl", DataFormat.GRAPH, True),
        ("a.ndjson", DataFormat.GRAPH, True),
        ("a", DataFormat.GRAPH, True),
        ("a.ndjson.gz", DataFormat.GRAPH, False),
        ("*.ndjson", DataFormat.GRAPH, False),
        (".", DataFormat.GRAPH, False),
        ("s3://bucket/a.ndjson", DataFormat.GRAPH, False),
        ("a.csv", DataFormat.CSV, True),
        ("A.TSV.GZ".lower(), DataFormat.CSV, False),
        ("a.parquet", DataFormat.PARQUET, True),
        ("a.orc", DataFormat.ORC, False),
        ("gs://bucket/a.orc", DataFormat.ORC, False),
        ("file:///{}/a.ndjson", DataFormat.GRAPH, True),
    ],
)
def test_a_name_tells_the_format_and_whether_one_process_can_read_it(
    name: str, format: DataFormat, in_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / (name if name[0] not in "*." and "://" not in name else "a.ndjson")).touch()
    found = DataInput.of(name.replace("/{}", str(tmp_path)), None, typed=False)
    assert (found.format, found.is_plain_file) == (format, in_process)


def test_a_file_beyond_the_limits_says_by_how_much(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    file.write_text(RECORDS)
    given = DataInput.of(str(file), None, typed=False)
    assert given.excess(Limits()) is None
    assert "has 5 lines, more than the 4" in str(given.excess(Limits(rows=4)))
    assert f"has {len(RECORDS)} bytes, more than the 100" in str(given.excess(Limits(bytes=100)))
    pq.write_table(pa.table({"name": ["a", "b"]}), tmp_path / "d.parquet")
    given = DataInput.of(str(tmp_path / "d.parquet"), None, typed=True)
    assert given.excess(Limits()) is None
    assert "has 2 rows, more than the 1" in str(given.excess(Limits(rows=1)))
    assert "bytes, more than the 3" in str(given.excess(Limits(bytes=3)))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--data", "rows.csv"], 1, "give --type <Type>"),
        (["--data", "rows.csv"], 1, "omnigraph pipeline run"),
        (["--data", "."], 1, "several formats (csv, graph)"),
        (["--data", "none/*.csv"], 1, "no file matches 'none/*.csv'"),
        (["--data", "empty"], 1, "a directory without data files"),
        (["--data", "d.jsonl", "--data", "-"], 2, "stdin (-)"),
        (["--data", "-", "--engine", "spark"], 2, "Spark can't read stdin"),
        (["--data", "d.jsonl", "--format", "graph", "--type", "City"], 2, "mutually exclusive"),
        (["--data", "d.jsonl", "--data", "d.jsonl", "--engine", "local"], 1, "there are 2 inputs"),
        (["--data", "rows.orc", "--type", "City", "--engine", "local"], 1, "has the format orc, and --engine local"),
        (["--data", "rows.csv", "--type", "Citty"], 1, "no type 'Citty'; did you mean 'City'?"),
    ],
)
def test_data_that_can_not_be_loaded_as_asked_is_refused_with_a_way_out(
    arguments: list[str], code: int, message: str, cli: Cli, g: str
) -> None:
    Path("rows.csv").write_text("name\nRome\n")
    Path("empty").mkdir()
    if "rows.orc" in arguments:
        Path("rows.orc").touch()
    refused = cli("load", g, "--mode", "append", *arguments)
    assert refused.code == code
    assert message in refused.err


def test_records_may_come_from_stdin(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(RECORDS.encode())))
    assert cli("load", g, "--data", "-", "--mode", "merge", "--json").json["total_entities"] == 5


def test_rows_of_a_type_may_come_from_stdin(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name,age\nEve,7\nDan,x\n")))
    refused = cli("load", g, "--data", "-", "--mode", "merge", "--type", "Person", "--format", "csv")
    assert refused.code == 1
    assert "line 3: node:Person: property 'age': expects I32, got a string" in refused.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"name":"Eve","age":7}\n')))
    assert cli("load", g, "--data", "-", "--mode", "merge", "--type", "Person", "--json").json["total_entities"] == 1


def test_ten_rows_start_no_java(g: str, tmp_path: Path) -> None:
    """In a process of its own, where Java can't be found and importing Spark fails."""
    rows = [{"name": f"p{n}", "age": n} for n in range(10)]
    for name, separator in (("people.csv", ","), ("people.tsv", "\t")):
        lines = [separator.join(map(str, row)) for row in (rows[0], *(row.values() for row in rows))]
        Path(name).write_text("\n".join(lines))
    for name in ("people.ndjson", "people.jsonl"):
        Path(name).write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), "people.parquet")
    fence = tmp_path / "fence" / "pyspark"
    fence.mkdir(parents=True)
    (fence / "__init__.py").write_text("raise AssertionError('Spark was imported')")
    path = os.pathsep.join([str(fence.parent), *filter(None, sys.path)])
    script = (
        "import glob; from omnigraph.cli.main import run; "
        f"load = ['load', {g!r}, '--type', 'Person', '--mode', 'merge', '--json', '--data']; "
        "raise SystemExit(any(run([*load, file]) for file in sorted(glob.glob('people.*'))))"
    )
    environment = {**os.environ, "PYTHONPATH": path, "JAVA_HOME": str(tmp_path / "no-java")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"entities_loaded": 10') == 5
    assert Graph.open(g).entity("node:Person", "p7") == {"id": "p7", "name": "p7", "age": 7, "level": None}


def test_too_much_for_one_process_points_at_spark(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(target: StoreScope) -> Graph:
        return Graph.open(target.uri).with_limits(Limits(rows=3))

    monkeypatch.setattr("omnigraph.cli.commands.load.open_graph", small)
    refused = cli("load", g, "--data", "d.jsonl", "--mode", "merge", "--engine", "local")
    assert refused.code == 1
    assert "resource limit exceeded for load rows: actual 5, limit 3" in refused.err
    assert "--engine spark" in refused.err


def test_without_spark_the_extra_is_named(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark" or name.startswith("omnigraph.pip")]:
        monkeypatch.delitem(sys.modules, name)
    found = builtins.__import__

    def without_spark(name: str, *arguments: Any) -> Any:
        if name.split(".")[0] == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return found(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_spark)
    refused = cli("load", g, "--data", "d.jsonl", "--mode", "merge", "--engine", "spark")
    assert refused.code == 1
    assert "pip install 'omnigraph[spark]'" in refused.err


def test_the_file_may_stand_in_the_place_of_the_graph(cli: Cli, g: str) -> None:
    Path("people.csv").write_text("name,age\nEve,7\n")
    taken = cli("--store", g, "load", "people.csv", "--type", "Person", "--mode", "append", "--json")
    assert taken.json["total_entities"] == 1
    assert cli("--store", g, "load", "--type", "Person", "--mode", "append").code == 2
    assert "Missing option '--data'" in cli("load", g, "--mode", "append").err
