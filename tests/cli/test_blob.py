"""blob get and blob stat."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from tests.cli.conftest import Cli

SCHEMA = "node Doc { name: String @key  body: Blob?  note: String? }\n"
LARGE = bytes(range(256)) * 20_000


@pytest.fixture
def docs(cli: Cli, tmp_path: Path) -> str:
    """A graph with a managed, an empty, a null and an external blob."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.bin").write_bytes(b"elsewhere")
    cells = {
        "full": f"base64:{base64.b64encode(LARGE).decode()}",
        "empty": "base64:",
        "null": None,
        "outside": (outside / "x.bin").as_uri(),
    }
    lines = [{"type": "Doc", "data": {"name": name, "body": body}} for name, body in cells.items()]
    policy = ExternalBlobPolicy.allow(AllowedBase(outside.as_uri(), Scope.EMBEDDED_ONLY))
    with Graph.init("docs.omni", SCHEMA) as graph:
        graph.with_external_blobs(policy).load("\n".join(json.dumps(line) for line in lines), mode="overwrite")
    return "docs.omni"


def get(docs: str, name: str, *more: str) -> list[str]:
    return ["blob", "get", "node", "Doc", name, "body", "--store", docs, *more]


@pytest.mark.parametrize(
    ("range_", "expected"),
    [
        ([], LARGE),
        (["--offset", "256", "--length", "3"], b"\x00\x01\x02"),
        (["--offset", str(len(LARGE) - 2)], LARGE[-2:]),
        (["--offset", str(len(LARGE) - 2), "--length", "99"], LARGE[-2:]),
    ],
)
def test_bytes_go_to_a_file(range_: list[str], expected: bytes, cli: Cli, docs: str) -> None:
    assert cli(*get(docs, "full", "--out", "b.bin", *range_)).code == 0
    assert Path("b.bin").read_bytes() == expected


def test_bytes_go_to_stdout(cli: Cli, docs: str) -> None:
    assert cli(*get(docs, "full", "--offset", "65", "--length", "4")).out == "ABCD"


def test_an_empty_blob_makes_an_empty_file(cli: Cli, docs: str) -> None:
    assert cli(*get(docs, "empty", "--out", "b.bin")).code == 0
    assert Path("b.bin").read_bytes() == b""


@pytest.mark.parametrize(
    ("name", "range_", "message"),
    [
        ("full", ["--length", "0"], "Blob range --length must be greater than zero"),
        ("full", ["--offset", str(2**64 - 1), "--length", "1"], "Blob range overflows u64"),
        ("full", ["--offset", str(len(LARGE))], "Blob range is not satisfiable"),
        ("empty", ["--offset", "0"], "Blob range is not satisfiable"),
        ("null", [], "Blob cell not found"),
        ("absent", [], "Blob cell not found"),
        ("outside", [], "external Blob is not downloaded; URI: file:///"),
        ("full", ["--branch", "nope"], "branch 'nope'"),
    ],
)
def test_a_refused_read_leaves_the_file_alone(name: str, range_: list[str], message: str, cli: Cli, docs: str) -> None:
    Path("b.bin").write_text("old")
    refused = cli(*get(docs, name, "--out", "b.bin", *range_))
    assert (refused.code, refused.out) == (1, "")
    assert message in refused.err
    assert Path("b.bin").read_text() == "old"


def test_a_selector_must_name_a_blob(cli: Cli, docs: str) -> None:
    for cell in (["node", "Doc", "full", "note"], ["node", "Nope", "full", "body"], ["edge", "Doc", "full", "body"]):
        assert "invalid Blob selector" in cli("blob", "get", *cell, "--store", docs).err
    assert cli("blob", "get", "vertex", "Doc", "full", "body", "--store", docs).code == 2


def test_stat_of_a_managed_blob(cli: Cli, docs: str) -> None:
    head = cli("commit", "list", docs, "--json").json["commits"][0]["graph_commit_id"]
    told = cli("blob", "stat", "node", "Doc", "full", "body", "--store", docs, "--json").json
    assert list(told) == ["selector", "kind", "size", "etag", "target"]
    assert told["selector"] == {"entity": "node", "type": "Doc", "id": "full", "property": "body"}
    assert (told["kind"], told["size"]) == ("managed", len(LARGE))
    assert told["target"] == {"branch": "main", "resolved_snapshot": head}
    lines = cli("blob", "stat", "node", "Doc", "full", "body", "--store", docs, "--snapshot", head).lines
    assert "selector.id: full" in lines
    assert f"size: {len(LARGE)}" in lines
    assert f"target.snapshot: {head}" in lines


def test_stat_of_an_external_blob(cli: Cli, docs: str) -> None:
    told = cli("blob", "stat", "node", "Doc", "outside", "body", "--store", docs, "--json").json
    assert list(told) == ["selector", "kind", "uri", "target"]
    assert told["kind"] == "external"
    assert told["uri"].endswith("/outside/x.bin")
