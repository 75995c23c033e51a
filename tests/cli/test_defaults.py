"""Default values on the command line: loads of every format and mutations store them."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from tests.cli.conftest import Cli
from tests.engine.stored import everything
from tests.support import default_rows
from tests.support.default_rows import Row


def load(cli: Cli, place: str, way: str, type_name: str, rows: list[Row]) -> None:
    options = ["--store", place, "--mode", "append"]
    if way == "mutate":
        outcome = cli("mutate", "--store", place, "-e", default_rows.insert_text(type_name, rows[0]))
    elif way == "records":
        Path("rows.jsonl").write_text(default_rows.records(type_name, rows))
        outcome = cli("load", *options, "--data", "rows.jsonl")
    else:
        file = next(path for path in default_rows.write_files(Path("in"), rows) if path.suffix == f".{way}")
        outcome = cli("load", *options, "--data", str(file), "--type", type_name)
    assert outcome.code == 0, outcome


@pytest.mark.parametrize("way", ["records", "csv", "parquet", "ndjson", "mutate"])
def test_what_a_command_lacks_is_stored_as_its_default(cli: Cli, way: str, tmp_path: Path) -> None:
    Path("items.pg").write_text(default_rows.SCHEMA)
    assert cli("init", "--schema", "items.pg", "--store", "items.omni").code == 0
    default_rows.load_by(lambda t, rows: load(cli, "items.omni", way, t, rows), ragged=way == "records")
    with Graph.open("items.omni") as graph:
        assert everything(graph) == default_rows.stored_rows(tmp_path / "stored")


def test_the_schema_that_is_shown_has_the_defaults(cli: Cli) -> None:
    Path("items.pg").write_text("node A { k: String @key  n: [I32] = [1, 2] }\n")
    assert cli("init", "--schema", "items.pg", "--store", "items.omni").code == 0
    assert "n: [I32] = [1, 2]" in cli("schema", "show", "--store", "items.omni").out
