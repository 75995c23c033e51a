"""Default values: what a write leaves out is stored as if the default had been written, on every way into a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from omnigraph import Graph
from omnigraph.errors import ConstraintError, IdempotencyKeyReusedError
from tests.engine.stored import everything, rows
from tests.support import default_rows
from tests.support.default_rows import ROWS, Row


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Row]]:
    return default_rows.stored_rows(tmp_path_factory.mktemp("stored") / "g")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return default_rows.init(tmp_path / "g")


def arrow_file(path: Path, rows: list[Row]) -> Path:
    table = default_rows.table(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


RAGGED: dict[str, Callable[[Graph, str, list[Row], Path], object]] = {
    "records": lambda g, t, rows, _: g.load(default_rows.records(t, rows), mode="append"),
    "lenient records": lambda g, t, rows, _: g.load_lenient(default_rows.records(t, rows), mode="append"),
    "dictionaries": lambda g, t, rows, _: g.load(rows, type=t, mode="append"),
    "an iterator": lambda g, t, rows, _: g.load(iter(rows), type=t, mode="append"),
    "ndjson": lambda g, t, rows, at: g.load(file(at / "r.ndjson", default_rows.ndjson(rows)), type=t, mode="append"),
    "a mutation": lambda g, t, rows, _: g.mutate(
        "query add() { " + " ".join(default_rows.insert_statement(t, row) for row in rows) + " }"
    ),
    "upserts": lambda g, t, rows, _: g.mutate(
        ("query add() { " + " ".join(default_rows.insert_statement(t, row) for row in rows) + " }").replace(
            "insert", "upsert"
        )
    ),
}
UNIFORM: dict[str, Callable[[Graph, str, list[Row], Path], object]] = {
    "arrow": lambda g, t, rows, _: g.load(default_rows.table(rows), type=t, mode="append"),
    "pandas": lambda g, t, rows, _: g.load(pd.DataFrame(rows), type=t, mode="append"),
    "polars": lambda g, t, rows, _: g.load(pl.DataFrame(rows), type=t, mode="append"),
    "csv": lambda g, t, rows, at: g.load(file(at / "r.csv", default_rows.csv_text(rows)), type=t, mode="append"),
    "parquet": lambda g, t, rows, at: g.load(list(default_rows.write_files(at / "f", rows))[1], type=t, mode="append"),
    "an arrow file": lambda g, t, rows, at: g.load(arrow_file(at / "r.arrow", rows), type=t, mode="append"),
    "a feed": lambda g, t, rows, _: g.mutate(
        default_rows.insert_text(t, rows[0]).replace("insert", "unwind [1] as $n insert")
    ),
}


@pytest.mark.parametrize("way", [*RAGGED, *UNIFORM])
def test_what_rows_lack_is_stored_as_its_default(
    way: str, graph: Graph, stored: dict[str, dict[str, Row]], tmp_path: Path
) -> None:
    load = (RAGGED | UNIFORM)[way]
    default_rows.load_by(lambda t, some: load(graph, t, some, tmp_path), ragged=way in RAGGED)
    assert everything(graph) == stored


def test_an_explicit_null_is_not_replaced(graph: Graph) -> None:
    graph.load(ROWS, type="Item", mode="append")
    nulls = rows(graph, "node:Item")["nulls"]
    assert [nulls[name] for name in ("price", "seen", "days")] == [None, None, None]


NULLS: list[Callable[[Graph], object]] = [
    lambda g: g.load([{"code": "a", "count": None}], type="Item", mode="append"),
    lambda g: g.load(default_rows.records("Item", [{"code": "a", "count": None}]), mode="append"),
    lambda g: g.load(pa.table({"code": ["a"], "count": pa.nulls(1)}), type="Item", mode="append"),
    lambda g: g.load(pd.DataFrame({"code": ["a", "b"], "count": [1.0, None]}), type="Item", mode="append"),
    lambda g: g.mutate('query a($n: I64?) { insert Item { code: "a", count: $n } }', params={"n": None}),
]


@pytest.mark.parametrize("write", NULLS)
def test_an_explicit_null_of_a_required_property_is_refused(graph: Graph, write: Callable[[Graph], object]) -> None:
    with pytest.raises(ConstraintError) as caught:
        write(graph)
    assert (caught.value.rule, caught.value.property) == ("required", "count")
    assert everything(graph) == {"node:Item": {}, "edge:Near": {}}


def test_an_empty_cell_of_a_csv_column_is_an_explicit_null(graph: Graph, tmp_path: Path) -> None:
    graph.load(file(tmp_path / "r.csv", "code,price\na,\nb,2\n"), type="Item", mode="append")
    assert {code: row["price"] for code, row in rows(graph, "node:Item").items()} == {"a": None, "b": 2.0}


def test_the_lenient_grammar_reads_a_value_of_a_wrong_type_as_null_and_not_as_the_default(graph: Graph) -> None:
    receipt = graph.load_lenient(default_rows.records("Item", [{"code": "a", "price": "x"}]), mode="append")
    assert rows(graph, "node:Item")["a"]["price"] is None
    assert receipt.values_nulled == 1


# Rows that exist


def test_a_merge_and_an_insert_replace_a_row_by_one_with_defaults(graph: Graph) -> None:
    for replace in (
        lambda: graph.load([{"code": "whole"}], type="Item", mode="merge"),
        lambda: graph.mutate('query add() { insert Item { code: "whole" } }'),
    ):
        graph.load(ROWS, type="Item", mode="merge")
        before = rows(graph, "node:Item")
        replace()
        after = rows(graph, "node:Item")
        assert after.pop("whole") == {**before["bare"], "code": "whole"}
        assert after == {code: row for code, row in before.items() if code != "whole"}


def test_an_upsert_gives_defaults_to_new_rows_only(graph: Graph) -> None:
    graph.load([{"code": "old", "count": 5, "price": None}], type="Item", mode="append")
    graph.mutate('query add() { upsert Item { code: "old", on: false } upsert Item { code: "new", on: false } }')
    stored = rows(graph, "node:Item")
    assert {code: (row["count"], row["price"], row["on"]) for code, row in stored.items()} == {
        "old": (5, None, False),
        "new": (-3, 9.5, False),
    }


def test_an_update_never_brings_a_default_back(graph: Graph) -> None:
    graph.load([{"code": "a", "price": None, "count": 5}], type="Item", mode="append")
    graph.mutate('query set() { update Item set { note: "n" } where code = "a" }')
    row = rows(graph, "node:Item")["a"]
    assert (row["note"], row["price"], row["count"]) == ("n", None, 5)


def test_many_inserts_of_one_mutation_that_lack_different_members(graph: Graph) -> None:
    lacking = ["", ", count: 1", ", price: 1.0", ", status: done"]
    inserts = [f'insert Item {{ code: "c{n}"{lacking[n % 4]} }}' for n in range(2_000)]
    graph.mutate(f"query add() {{ {' '.join(inserts)} }}".replace("done", '"done"'))
    stored = rows(graph, "node:Item")
    assert [(stored[f"c{n}"]["count"], stored[f"c{n}"]["price"], stored[f"c{n}"]["status"]) for n in range(4)] == [
        (-3, 9.5, "todo"),
        (1, 9.5, "todo"),
        (-3, 1.0, "todo"),
        (-3, 9.5, "done"),
    ]


def test_statements_of_a_mutation_see_the_defaults_of_earlier_ones(graph: Graph) -> None:
    graph.mutate(
        'query add() { insert Item { code: "a" } update Item set { note: title } where count = -3 and status = "todo" }'
    )
    assert rows(graph, "node:Item")["a"]["note"] == 'un"titled"'


def test_a_repeat_may_write_the_default_that_the_first_load_left_out(graph: Graph) -> None:
    first = graph.load([{"code": "a"}], type="Item", mode="append", idempotency_key="k")
    again = graph.load([{"code": "a", "count": -3}], type="Item", mode="append", idempotency_key="k")
    assert again.replayed
    assert again.commit == first.commit
    with pytest.raises(IdempotencyKeyReusedError):
        graph.load([{"code": "a", "price": None}], type="Item", mode="append", idempotency_key="k")


def test_what_an_export_says_is_what_is_stored(graph: Graph, tmp_path: Path) -> None:
    default_rows.load_by(lambda t, some: graph.load(some, type=t, mode="append"), ragged=True)
    copy = default_rows.init(tmp_path / "copy")
    copy.load("\n".join(graph.export()), mode="append")
    assert everything(copy) == everything(graph)


# Rules and vectors


def test_defaults_obey_unique_like_written_values(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "u", "node A { name: String @key  slot: I32 = 1 @unique }")
    graph.load([{"name": "a"}], type="A", mode="append")
    with pytest.raises(ConstraintError, match=r"@unique violation on A\.slot: value '1' held by"):
        graph.load([{"name": "b"}], type="A", mode="append")


class Toy:
    """Embeds a text as its length."""

    model = "toy"

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        return np.full(dimension, len(text), np.float32)

    def embed_documents(self, texts: list[str], dimension: int) -> NDArray[np.float32]:
        return np.array([self.embed_query(text, dimension) for text in texts])


def test_a_default_is_the_source_of_a_vector_that_is_computed_on_write(tmp_path: Path) -> None:
    schema = 'node A { name: String @key  text: String = "four"  vec: Vector(2) @embed("text", on_write=true) }'
    graph = Graph.init(tmp_path / "v", schema).with_embedding(Toy())
    graph.load([{"name": "a"}], type="A", mode="append")
    graph.mutate('query add() { insert A { name: "b" } upsert A { name: "c" } insert A { name: "d", text: "ten" } }')
    assert {name: row["vec"][0] for name, row in rows(graph, "node:A").items()} == {"a": 4, "b": 4, "c": 4, "d": 3}


def test_a_type_with_nothing_but_defaults(tmp_path: Path) -> None:
    graph = Graph.init(tmp_path / "n", "node A { n: I32 = 7 }")
    graph.load('{"type": "A"}\n{"type": "A", "data": {}}', mode="append")
    graph.load([{}, {"n": 8}], type="A", mode="append")
    assert sorted(row["n"] for row in rows(graph, "node:A").values()) == [7, 7, 7, 8]
