"""What `load` makes of its `--data` before anything is read: the format, the engine, and what to say when it can't."""

from __future__ import annotations

import builtins
import io
import sys
from pathlib import Path
from typing import Any

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
        ("a.csv", DataFormat.CSV, False),
        ("A.TSV.GZ".lower(), DataFormat.CSV, False),
        ("a.parquet", DataFormat.PARQUET, False),
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
        (["--data", "rows.csv", "--type", "City", "--engine", "local"], 1, "use --engine spark"),
    ],
)
def test_data_that_can_not_be_loaded_as_asked_is_refused_with_a_way_out(
    arguments: list[str], code: int, message: str, cli: Cli, g: str
) -> None:
    Path("rows.csv").write_text("name\nRome\n")
    Path("empty").mkdir()
    refused = cli("load", g, "--mode", "append", *arguments)
    assert refused.code == code
    assert message in refused.err


def test_records_may_come_from_stdin(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(RECORDS.encode())))
    assert cli("load", g, "--data", "-", "--mode", "merge", "--json").json["total_entities"] == 5


def test_too_much_for_one_process_points_at_spark(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(target: StoreScope) -> Graph:
        return Graph.open(target.uri).with_limits(Limits(rows=3))

    monkeypatch.setattr("omnigraph.cli.commands.load.open_graph", small)
    refused = cli("load", g, "--data", "d.jsonl", "--mode", "merge", "--engine", "local")
    assert refused.code == 1
    assert "load rows: 5 is over the limit of 3" in refused.err
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
