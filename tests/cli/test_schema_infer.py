"""`omnigraph schema infer`: what it prints and writes, and that a graph can be made of it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import RECORDS, Cli


def test_from_a_file_to_a_graph(cli: Cli) -> None:
    written = cli("schema", "infer", "d.jsonl", "--output", "new.pg")
    assert (written.code, written.lines) == (0, ["new.pg written: 2 node types and 2 edge types from 1 file"])
    assert cli("fmt", "--check", "new.pg").code == 0
    assert cli("init", "--schema", "new.pg", "--store", "new.omni").code == 0
    loaded = cli("load", "--data", "d.jsonl", "--mode", "append", "--store", "new.omni")
    assert f"{len(RECORDS.splitlines())} entities" in loaded.out


def test_rows_name_their_types(cli: Cli) -> None:
    Path("p.csv").write_text("name;code\nAda;007\nBob;008\n")
    Path("k.tsv").write_text("from\tto\nAda\tBob\n")
    done = cli("schema", "infer", "--type", "Person=p.csv", "--edge", "Knows:Person:Person=k.tsv", "--delimiter", ";")
    assert done.code == 1  # the delimiter is that of all files
    Path("k.csv").write_text("from;to\nAda;Bob\n")
    done = cli("schema", "infer", "--type", "Person=p.csv", "--edge", "Knows:Person:Person=k.csv", "--delimiter", ";")
    assert (done.code, "edge Knows: Person -> Person" in done.out, "name: String @key" in done.out) == (0, True, True)
    assert "code: String\n" in done.out


def test_json_has_the_columns_and_their_properties(cli: Cli) -> None:
    Path("people.csv").write_text("id,First Name\n1,Ada\n2,Bob\n")
    [person] = cli("schema", "infer", "people.csv", "--json", "--sample", "1").json["types"]
    assert person == {
        "name": "People", "kind": "node", "files": ["people.csv"], "rows": 1, "key": "id",
        "columns": {"id": "id", "First Name": "first_name"},
    }  # fmt: skip


def test_wrong_usage(cli: Cli) -> None:
    assert cli("schema", "infer").code == 2
    assert cli("schema", "infer", "-").code == 2
    assert "--type takes NAME=FILE" in cli("schema", "infer", "--type", "Person").err
    assert "--edge takes NAME:FROM:TO=FILE" in cli("schema", "infer", "--edge", "Knows=k.csv").err
    kept = cli("schema", "infer", "d.jsonl", "--output", "s.pg")
    assert (kept.code, "'s.pg' exists; choose another --output, or pass --force" in kept.err) == (1, True)
    assert "`schema infer` does not address a graph" in cli("schema", "infer", "d.jsonl", "--store", "g").err
