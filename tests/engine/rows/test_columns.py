"""How catalog types lie in tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from omnigraph.engine.rows.columns import as_table_rows, column_of, rows_schema, table_schema
from omnigraph.engine.rows.kernels.decoder import decode
from omnigraph.storage.location import Location
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.tables import TableReader
from omnigraph.storage.tables.staging import Staging
from tests.engine.museum import lines, museum, node
from tests.support.lance_tables import lance_of


def test_every_type_has_its_arrow_column() -> None:
    sample = rows_schema(museum().nodes["Sample"])
    assert {field.name: field.type for field in sample} == {
        "id": pa.string(),
        "code": pa.uint32(),
        "day": pa.date32(),
        "days": pa.list_(pa.field("item", pa.date32())),
        "flag": pa.bool_(),
        "large": pa.int64(),
        "moment": pa.timestamp("ms", tz="UTC"),
        "narrow": pa.float32(),
        "positive": pa.uint64(),
        "scores": pa.list_(pa.field("item", pa.int32())),
        "small": pa.int32(),
        "wide": pa.float64(),
    }
    assert [field.name for field in sample if not field.nullable] == ["id", "code"]
    assert rows_schema(museum().nodes["Exhibit"]).field("vec").type == pa.list_(pa.field("item", pa.float32()), 3)


def test_edges_carry_their_ends() -> None:
    schema = table_schema(museum().edges["Guards"])
    assert schema.names == ["id", "src", "dst", "since"]
    assert [field.nullable for field in schema] == [False, False, False, True]


def test_columns_are_found_by_name() -> None:
    guards = museum().edges["Guards"]
    assert (column_of(guards, "src"), column_of(guards, "since"), column_of(guards, "nope")) == ("src", "since", None)


def test_decoded_rows_are_what_a_table_takes_and_blobs_stay_apart(tmp_path: Path) -> None:
    exhibit = museum().nodes["Exhibit"]
    photos = ["base64:QUJD", "base64:", None]
    data = lines(*(node("Exhibit", accession=i, wing="w", photo=photo) for i, photo in enumerate(photos)))
    rows = as_table_rows(exhibit, decode(data, museum()).by_type["node:Exhibit"].rows)
    assert rows.schema == table_schema(exhibit)

    reader = TableReader(Location.parse(str(tmp_path)))
    staging = Staging(reader, Trace())
    state = staging.create("nodes/exhibit", "exhibit", table_schema(exhibit))
    staged = staging.append(state, rows)
    dataset = lance_of(reader.open(staged.state))
    assert dataset.to_table(columns=["id"]).num_rows == 3
    found = dataset.take_blobs("photo", indices=[0, 1])
    assert [blob.readall() for blob in found] == [b"ABC", b""]
    assert as_table_rows(exhibit, rows_schema(exhibit).empty_table()).schema == table_schema(exhibit)


def test_kernels_do_not_load_lance() -> None:
    loaded = "import sys, omnigraph.engine.rows.kernels; sys.exit('lance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
