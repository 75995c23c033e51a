"""An entity is written outside the graph in one form, to the byte, by whatever writes it; NaN has none."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.engine.rows.columns import rows_schema
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import ConstraintError
from tests.engine.every_type import RECORDS, SCHEMA, every_type

_encode = msgspec.json.Encoder().encode


def record(kind: str, name: str, entity_id: str, properties: dict[str, Any], ends: tuple[str, str] | None) -> bytes:
    """A graph record from the parts that entity reads and change images have."""
    data = {"id": entity_id, **properties}
    if ends is None:
        return _encode({"type": name, "data": data})
    return _encode({"edge": name, "from": ends[0], "to": ends[1], "data": data})


def exported(graph: Graph) -> list[bytes]:
    return [line.rstrip("\n").encode() for line in graph.export(epoch=True)]


def test_every_way_out_of_a_graph_writes_the_same_bytes(tmp_path: Path) -> None:
    with every_type(tmp_path / "graph") as graph:
        lines = exported(graph)
        assert len(lines) == len(RECORDS)
        whole = b"".join(line + b"\n" for line in lines)
        for write in (partial(graph.export_to, epoch=True), graph.changes.baseline):
            buffer = io.BytesIO()
            write(buffer)
            assert buffer.getvalue() == whole
        commit = graph.snapshot().commit_id
        images = []
        for change in graph.changes.of(commit):
            image = change.after
            assert image is not None
            ends = None if image.endpoints is None else (image.endpoints.source, image.endpoints.target)
            images.append(record(change.kind, change.type_name, change.id, image.properties, ends))
        assert sorted(images) == sorted(lines)
        for line in lines:
            parsed = json.loads(line)
            kind, name = ("edge", parsed["edge"]) if "edge" in parsed else ("node", parsed["type"])
            entity = graph.entity(f"{kind}:{name}", parsed["data"]["id"])
            assert entity is not None
            entity_id = entity.pop("id")
            ends = (entity.pop("src"), entity.pop("dst")) if kind == "edge" else None
            assert record(kind, name, entity_id, entity, ends) == line
        with Graph.init(tmp_path / "copy", SCHEMA) as copy:
            copy.load(b"\n".join(lines), mode="append")
            assert exported(copy) == lines


def test_an_external_blob_is_its_uri_on_every_way(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    uri = (tmp_path / "media/p.png").as_uri()
    (tmp_path / "media/p.png").write_bytes(b"picture")
    policy = ExternalBlobPolicy.allow(AllowedBase((tmp_path / "media").as_uri(), Scope.EMBEDDED_ONLY))
    with Graph.init(tmp_path / "graph", SCHEMA).with_external_blobs(policy) as graph:
        graph.load(json.dumps({"type": "Every", "data": {"key": "k", "blob": uri}}), mode="overwrite")
        (tmp_path / "media/p.png").unlink()
        (change,) = graph.changes.of(graph.snapshot().commit_id)
        assert change.after is not None
        entity = graph.entity("node:Every", "k")
        assert entity is not None
        assert [json.loads(exported(graph)[0])["data"]["blob"], change.after.properties["blob"], entity["blob"]] == [
            uri,
            uri,
            uri,
        ]


NOT_EXPORTABLE: list[tuple[str, Any]] = [
    ("f64", float("nan")),
    ("f32", float("-inf")),
    ("f64s", [1.0, None, float("inf")]),
    ("vec", [1.0, float("nan"), 2.0]),
]


@pytest.mark.parametrize(("property", "value"), NOT_EXPORTABLE, ids=[name for name, _ in NOT_EXPORTABLE])
def test_a_number_that_is_not_finite_is_refused_on_every_way(tmp_path: Path, property: str, value: Any) -> None:
    """No write of ours stores one; another tool may have."""
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load(json.dumps({"type": "Every", "data": {"key": "a"}}), mode="append")
        store_unchecked(graph, {"id": "bad", "key": "bad", property: value})
        commit = graph.snapshot().commit_id
        ways: list[Callable[[], object]] = [
            lambda: list(graph.export()),
            lambda: graph.changes.baseline(io.BytesIO()),
            lambda: graph.entity("node:Every", "bad"),
            lambda: list(graph.changes.of(commit)),
        ]
        for way in ways:
            with pytest.raises(ConstraintError, match="not finite, which JSON can't carry") as raised:
                way()
            error = raised.value
            assert (error.rule, error.type_key, error.property) == ("finite", "node:Every", property)
            assert (error.entity_id, error.line) == ("bad", None)
        assert graph.entity("node:Every", "a") is not None


def store_unchecked(graph: Graph, row: dict[str, Any]) -> None:
    """Put a row into a table as it is, which no load or mutation does."""
    type_ = graph.catalog.nodes["Every"]
    columns = {prop.column: row.get(prop.name) for prop in type_.property_list}
    rows = pa.Table.from_pylist([{"id": row["id"], **columns}], schema=rows_schema(type_))
    change = GraphChange.of(TypeChange(type_, rows, fresh=True))

    def prepare(txn: WriteTxn) -> PublishPlan:
        return PublishPlan(staged=txn.stage(change.staging_jobs(txn.root.staging)))

    graph._workspace.commit("main", prepare, Intent(kind="load"))
