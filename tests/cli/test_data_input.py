"""What `load` makes of its `--data` before anything is read: the format, the engine, and what to say when it can't."""

from __future__ import annotations

import builtins
import gzip
import io
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.api.governance import Limits
from omnigraph.cli.data_input import DataFormat, DataInput, excess
from omnigraph.cli.target import StoreScope
from tests.cli.conftest import RECORDS, Cli


@pytest.mark.parametrize(
    ("name", "format", "in_process"),
    [
        ("a.jsonl", DataFormat.GRAPH, True),
        ("a.ndjson", DataFormat.GRAPH, True),
        ("a", DataFormat.GRAPH, True),
        ("a.ndjson.gz", DataFormat.GRAPH, True),
        ("*.ndjson", DataFormat.GRAPH, True),
        (".", DataFormat.GRAPH, True),
        ("a.ndjson.lz4", DataFormat.GRAPH, False),
        ("s3://bucket/a.ndjson", DataFormat.GRAPH, False),
        ("a.csv", DataFormat.CSV, True),
        ("A.TSV.GZ", DataFormat.CSV, True),
        ("a.arrow", DataFormat.ARROW, True),
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
    assert (found.format, found.why_not_in_process() is None) == (format, in_process)


@pytest.mark.parametrize(
    ("given", "in_process"),
    [("all", False), ("all/*", True), ("all/year=1/a.csv", True), ("all/*/*.csv", True), ("a*", False)],
)
def test_only_directories_below_the_given_one_add_columns(
    given: str, in_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("all/year=1").mkdir(parents=True)
    Path("all/year=1/a.csv").touch()
    assert (DataInput.of(given, DataFormat.CSV, typed=True).why_not_in_process() is None) is in_process


def test_a_file_beyond_the_limits_says_by_how_much(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    file.write_text(RECORDS)
    twice = [str(file), str(file)]
    assert excess(twice, DataFormat.GRAPH, Limits()) is None
    assert "has 10 lines, more than the 9" in str(excess(twice, DataFormat.GRAPH, Limits(rows=9)))
    assert f"has {2 * len(RECORDS)} bytes, more than the 100" in str(excess(twice, DataFormat.GRAPH, Limits(bytes=100)))
    pq.write_table(pa.table({"name": ["a", "b"]}), tmp_path / "d.parquet")
    given = [str(tmp_path / "d.parquet")]
    assert excess(given, DataFormat.PARQUET, Limits()) is None
    assert "has 2 rows, more than the 1" in str(excess(given, DataFormat.PARQUET, Limits(rows=1)))
    assert "bytes, more than the 3" in str(excess(given, DataFormat.PARQUET, Limits(bytes=3)))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--data", "rows.csv"], 1, "give --type <Type>"),
        (["--data", "rows.csv"], 1, "omnigraph pipeline run"),
        (["--data", "."], 1, "several formats (csv, graph)"),
        (["--data", "none/*.csv"], 1, "no file matches 'none/*.csv'"),
        (["--data", "empty"], 1, "a directory without data files"),
        (["--data", "empty", "--type", "City", "--format", "csv"], 1, "a directory without data files"),
        (["--data", "empty*", "--type", "City", "--format", "csv"], 1, "no file matches 'empty*'"),
        (["--data", "d.jsonl", "--data", "-"], 2, "stdin (-)"),
        (["--data", "-", "--engine", "spark"], 2, "Spark can't read stdin"),
        (["--data", "d.jsonl", "--format", "graph", "--type", "City"], 2, "mutually exclusive"),
        (["--data", "d.jsonl", "--data", "d.jsonl"], 1, "d.jsonl, line 3: @unique violation on City.name"),
        (["--data", "d.jsonl", "--data", "rows.csv", "--type", "City", "--engine", "local"], 1, "several formats"),
        (["--data", "d.jsonl", "--delimiter", ";"], 2, "--delimiter and --encoding are for CSV"),
        (["--data", "rows.csv", "--type", "City", "--encoding", "klingon"], 1, "no encoding named 'klingon'"),
        (["--data", "rows.csv", "--type", "City", "--delimiter", "||"], 1, "must be one ASCII character"),
        (["--data", "rows.csv", "--type", "City", "--delimiter", ""], 1, "must be one ASCII character"),
        (["--data", "rows.arrow", "--type", "City"], 1, "rows.arrow: Not an Arrow file"),
        (["--data", "rows.arrow", "--type", "City", "--engine", "spark"], 2, "Spark does not read Arrow files"),
        (["--data", "rows.orc", "--type", "City", "--engine", "local"], 1, "has the format orc, and --engine local"),
        (["--data", "rows.csv", "--type", "Citty"], 1, "no type 'Citty'; did you mean 'City'?"),
    ],
)
def test_data_that_can_not_be_loaded_as_asked_is_refused_with_a_way_out(
    arguments: list[str], code: int, message: str, cli: Cli, g: str
) -> None:
    Path("rows.csv").write_text("name\nRome\n")
    Path("empty").mkdir()
    Path("rows.orc").touch()
    Path("rows.arrow").write_text("an Arrow file has a magic word at its beginning")
    if "." in arguments:
        Path("rows.orc").unlink()
        Path("rows.arrow").unlink()
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


def test_files_of_an_export_load_back(cli: Cli, g: str) -> None:
    before = cli("export", "--store", g).out
    for format_ in ("csv", "parquet", "arrow"):
        assert cli("export", "--store", g, "--format", format_, "--out", format_).code == 0
        for kind, name in (("node", "City"), ("node", "Person"), ("edge", "Knows")):
            file = f"{format_}/{kind}.{name}.{format_}"
            loaded = cli("load", g, "--data", file, "--type", name, "--mode", "overwrite", "--engine", "local")
            assert loaded.code == 0, loaded.err
        assert cli("export", "--store", g).out == before


def test_a_compressed_file_that_goes_on_is_refused(cli: Cli, g: str) -> None:
    packed = zlib.compress(b'{"type":"City","data":{"name":"Rome"}}\n')
    for rest in (b"", b"more", b"\0" * (5 << 20)):
        Path("d.jsonl.deflate").write_bytes(packed + rest)
        loaded = cli("load", g, "--data", "d.jsonl.deflate", "--mode", "merge")
        assert (loaded.code, "goes on behind the compressed data" in loaded.err) == ((1, True) if rest else (0, False))


def test_every_file_has_the_delimiter_of_its_name(cli: Cli, g: str) -> None:
    Path("both").mkdir()
    Path("both/a.csv").write_bytes("name,age\nZoë,1\n".encode("latin-1"))
    Path("both/b.tsv").write_bytes("name\tage\nÉva\t2\n".encode("latin-1"))
    loaded = cli("load", g, "--data", "both", "--type", "Person", "--mode", "append", "--encoding", "latin-1")
    assert loaded.code == 0, loaded.err
    names = cli("query", "-e", "query q() { match { $p: Person } return { $p.name } }", "--store", g, "--format", "csv")
    assert {"Zoë", "Éva"} <= set(names.out.splitlines())


def test_ten_rows_start_no_java(g: str, tmp_path: Path) -> None:
    """In a process of its own, where Java can't be found and importing Spark fails."""
    rows = [{"name": f"p{n}", "age": n} for n in range(10)]
    for name, separator in (("people.csv", ","), ("people.tsv", "\t")):
        lines = [separator.join(map(str, row)) for row in (rows[0], *(row.values() for row in rows))]
        Path(name).write_text("\n".join(lines))
    for name in ("people.ndjson", "people.jsonl"):
        Path(name).write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), "people.parquet")
    Path("people.csv.gz").write_bytes(gzip.compress(Path("people.csv").read_bytes()))
    Path("people.d").mkdir()
    for half in (0, 1):
        Path(f"people.d/{half}.csv").write_text("\n".join(["name,age", *(f"p{n},{n}" for n in range(half, 10, 2))]))
    fence = tmp_path / "fence" / "pyspark"
    fence.mkdir(parents=True)
    (fence / "__init__.py").write_text("raise AssertionError('Spark was imported')")
    path = os.pathsep.join([str(fence.parent), *filter(None, sys.path)])
    script = (
        "import glob; from omnigraph.cli.main import run; "
        f"load = ['load', {g!r}, '--type', 'Person', '--mode', 'merge', '--json', '--data']; "
        "loads = [*([file] for file in sorted(glob.glob('people.*')))]; "
        "loads.append(['people.d/0.csv', '--data', 'people.d/1.csv']); "
        f"export = ['export', {g!r}, '--format', 'csv', '--out', 'exported']; "
        "raise SystemExit(any(run([*load, *files]) for files in loads) or run(export))"
    )
    environment = {**os.environ, "PYTHONPATH": path, "JAVA_HOME": str(tmp_path / "no-java")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"entities_loaded": 10') == 8
    assert "p7,7,,p7" in Path("exported/node.Person.csv").read_text()
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


def test_a_row_of_one_of_several_files_is_refused_with_its_file_and_line(cli: Cli, g: str) -> None:
    Path("many").mkdir()
    Path("many/1.csv").write_text("name;age\nEve;7\n")
    Path("many/2.csv").write_text('age;name\n8;"Dan\nny"\n9;Kim\n')
    Path("many/3.csv").write_text("age;name\n3;Lee\nold;Max\n")
    load = ("load", g, "--mode", "append", "--type", "Person", "--delimiter", ";", "--data", "many")
    assert "many/3.csv, line 3: node:Person: property 'age': expects I32" in cli(*load).err
    Path("many/3.csv").write_text("name;level\nLee;3\n")
    assert "many/3.csv: its columns are not those of many/1.csv: it has no 'age'" in cli(*load).err
    Path("many/3.csv").write_text("name;age;nick\nLee;3;x\n")
    Path("many/0.csv").write_text("name;age;nick\nIda;3;x\n")
    assert "many/0.csv: node:Person has no property for the column 'nick'" in cli(*load).err
    Path("many/0.csv").unlink()
    Path("many/3.csv").write_text("name;age\nEve;3\n")
    assert "many/3.csv, line 2: @unique violation on Person.name" in cli(*load).err
    Path("many/3.csv").unlink()
    assert cli(*load, "--json").json["total_entities"] == 3

    Path("a.jsonl").write_text('{"type": "Person", "data": {"name": "Ola"}}')
    bad = '{"type": "Person", "data": {"name": 5}}'
    Path("b.jsonl").write_text(f'\n{{"type": "Person", "data": {{"name": "Pia"}}}}\n{bad}\n')
    records = ("load", g, "--mode", "append", "--data", "a.jsonl", "--data", "b.jsonl")
    assert "b.jsonl, line 3: node:Person: property 'name': expects String" in cli(*records).err
    Path("b.jsonl").write_text('{"type": "Person", "data": {"name": "Pia"}}')
    assert cli(*records, "--json").json["total_entities"] == 2


def test_an_export_replaces_files_only_when_it_is_told_to(cli: Cli, g: str) -> None:
    export = ("export", g, "--format", "csv", "--out", "out")
    assert cli(*export).code == 0
    kept = Path("out/node.Person.csv")
    kept.write_text("mine")
    refused = cli(*export)
    assert (refused.code, kept.read_text()) == (1, "mine")
    assert "exists already; export into another directory, or replace it (force=True, --force)" in refused.err
    assert cli(*export, "--force").code == 0
    assert kept.read_text().startswith("id,")
    assert sorted(path.name for path in Path("out").iterdir() if path.name.startswith(".")) == []
    assert cli("export", g, "--force").code == 2
