"""A small library whose mutations the tests of writes run: readers, books, notes, and the edges between them."""

from __future__ import annotations

from typing import Any

from omnigraph import Graph
from omnigraph.api.load import MutationReceipt
from tests.engine.museum import edge, lines, node
from tests.engine.stored import rows

SCHEMA = """
node Reader {
    card: String @key
    name: String
    age: I32?
    email: String?
    @unique(email)
    @range(age, 0..150)
}
node Book {
    isbn: String @key
    title: String
    pages: I32?
    status: enum(free, lent, lost)?
    tags: [String]?
    cover: Blob?
}
node Day { on: Date @key  note: String? }
node Note { text: String  stars: I32? }
edge Borrowed: Reader -> Book @card(0..3) { on: Date?  times: I32? }
edge Follows: Reader -> Reader { weight: F64?  label: String?  @unique(src, dst, label) }
edge Seen: Reader -> Day
"""
START = lines(
    node("Reader", card="r1", name="Ann", age=30, email="ann@x"),
    node("Reader", card="r2", name="Bob", age=40),
    node("Reader", card="r3", name="Cid"),
    node("Book", isbn="b1", title="One", pages=100, status="free", tags=["a"], cover="base64:Yg=="),
    node("Book", isbn="b2", title="Two", pages=200, status="lent"),
    node("Book", isbn="b3", title="Three"),
    node("Day", on="2031-05-04"),
    edge("Borrowed", "r1", "b1", id="l1", times=1),
    edge("Borrowed", "r1", "b2", id="l2", times=2),
    edge("Borrowed", "r2", "b2", id="l3"),
    edge("Follows", "r1", "r2", id="f1", weight=0.5),
    edge("Follows", "r2", "r3", id="f2", weight=1.5),
)


def run(
    graph: Graph, body: str, params: dict[str, object] | None = None, *, declare: str = "", **options: Any
) -> MutationReceipt:
    """Run one mutation given by its statements."""
    receipt: MutationReceipt = graph.mutate(f"query it({declare}) {{ {body} }}", "it", params, **options)
    return receipt


def affected(receipt: MutationReceipt) -> tuple[int, int]:
    return receipt.affected_nodes, receipt.affected_edges


def column(graph: Graph, type_key: str, name: str) -> dict[str, Any]:
    """One property of all entities of a type, by id."""
    return {entity_id: row[name] for entity_id, row in rows(graph, type_key).items()}


def ends(graph: Graph, edge_type: str) -> list[tuple[str, str]]:
    """Where the edges of a type lead from and to, in order."""
    return sorted((row["src"], row["dst"]) for row in rows(graph, f"edge:{edge_type}").values())
