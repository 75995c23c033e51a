"""Rules that span rows, judged on the final image: uniqueness, endpoints, cardinality, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import BadRequestError
from tests.engine.museum import edge, lines, node
from tests.engine.stored import everything, rows

SCHEMA = """
node Reader {
  card: String @key
  email: String?
  first: String?
  last: String?
  born: Date?
  active: Bool?
  score: F64?
  labels: [String]?
  @unique(email)
  @unique(first, last)
  @unique(born)
  @unique(score)
  @unique(labels)
}
node Book { isbn: String @key }
node Desk { name: String @key }
edge Borrowed: Reader -> Book { copy: I32?  @unique(src, dst, copy) }
edge Owns: Reader -> Desk @card(1..2)
edge Follows: Reader -> Reader
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        yield graph


def reader(card: str, **data: object) -> str:
    return node("Reader", card=card, **data)


def refused(graph: Graph, given: bytes, mode: str = "merge") -> str:
    """The reason for a refusal that left everything as it was."""
    before, version = everything(graph), graph.snapshot().version
    with pytest.raises(BadRequestError) as error:
        graph.load(given, mode=mode)
    assert (everything(graph), graph.snapshot().version) == (before, version)
    return str(error.value)


# Uniqueness


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ({"email": "a@b"}, {"email": "a@b"}, "@unique violation on Reader.email: value 'a@b' held by 'r1' and 'r2'"),
        (
            {"first": "a", "last": "b"},
            {"first": "a", "last": "b"},
            "@unique violation on Reader.(first, last): value '(a, b)' held by 'r1' and 'r2'",
        ),
        ({"born": "2031-05-04"}, {"born": 22403}, "@unique violation on Reader.born: value '2031-05-04' held by"),
        ({"score": 0.0}, {"score": -0.0}, "@unique violation on Reader.score"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_tuple_has_one_holder(
    graph: Graph, one: dict[str, object], other: dict[str, object], reason: str, together: bool
) -> None:
    if together:
        found = refused(graph, lines(reader("r1", **one), reader("r2", **other)))
    else:
        graph.load(lines(reader("r1", **one)), mode="append")
        found = refused(graph, lines(reader("r2", **other)))
    assert reason in found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"first": "a"}, {"first": "a"}),
        ({"first": "p,q", "last": "r"}, {"first": "p", "last": "q,r"}),
        ({"email": None}, {"email": None}),
        ({"email": "A@b"}, {"email": "a@b"}),
        ({"active": True}, {"active": True}),
    ],
)
def test_nulls_exempt_and_tuples_compare_member_by_member(
    graph: Graph, one: dict[str, object], other: dict[str, object]
) -> None:
    graph.load(lines(reader("r1", **one)), mode="append")
    graph.load(lines(reader("r2", **other)), mode="append")


def test_an_entity_does_not_clash_with_what_it_replaces(graph: Graph) -> None:
    graph.load(lines(reader("r1", email="a"), reader("r2", email="b")), mode="append")
    graph.load(lines(reader("r1", email="b"), reader("r2", email="a")), mode="merge")
    assert {i: r["email"] for i, r in rows(graph, "node:Reader").items()} == {"r1": "b", "r2": "a"}


def test_uniqueness_of_an_overwrite_is_judged_on_its_own_rows(graph: Graph) -> None:
    graph.load(lines(reader("r1", email="a")), mode="append")
    graph.load(lines(reader("r2", email="a")), mode="overwrite")
    assert set(rows(graph, "node:Reader")) == {"r2"}


def test_edges_may_be_unique_by_their_ends(graph: Graph) -> None:
    graph.load(lines(reader("r1"), node("Book", isbn="b"), edge("Borrowed", "r1", "b", id="x", copy=1)), mode="append")
    graph.load(lines(edge("Borrowed", "r1", "b", copy=2), edge("Borrowed", "r1", "b")), mode="append")
    reason = refused(graph, lines(edge("Borrowed", "r1", "b", id="y", copy=1)))
    # Rule columns stand in the order of their names.
    assert "@unique violation on Borrowed.(copy, dst, src): value '(1, b, r1)' held by 'x' and 'y'" in reason


def test_a_list_can_not_be_unique(graph: Graph) -> None:
    graph.load(lines(reader("r1")), mode="append")
    assert "unsupported column type [String]?" in refused(graph, lines(reader("r2", labels=["a"])))


def test_many_values_are_checked_like_few(graph: Graph) -> None:
    """Beyond the probing bounds the committed side is scanned; the verdict is the same."""
    graph.load(lines(*(reader(f"r{i}", email=f"e{i}") for i in range(12_000))), mode="append")
    graph.load(lines(*(reader(f"r{i}", email=f"e{i}") for i in range(11_000))), mode="merge")
    clash = [reader(f"n{i}", email=f"x{i}") for i in range(11_000)]
    reason = refused(graph, lines(*clash, reader("late", email="e11999")))
    assert "value 'e11999' held by 'r11999' and 'late'" in reason
    assert refused(graph, lines(*(edge("Follows", f"r{i}", f"r{i + 1}") for i in range(12_000)))).endswith(
        "dst 'r12000' not found in Reader"
    )


# Endpoints


def test_the_order_of_records_does_not_matter(graph: Graph) -> None:
    graph.load(lines(edge("Borrowed", "r1", "b"), node("Book", isbn="b"), reader("r1")), mode="append")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (edge("Borrowed", "nobody", "b"), "line 1: edge Borrowed: src 'nobody' not found in Reader"),
        (edge("Borrowed", "r1", "nothing"), "line 1: edge Borrowed: dst 'nothing' not found in Book"),
        (edge("Borrowed", "b", "r1"), "src 'b' not found in Reader"),
    ],
)
def test_ends_are_found_by_type_and_id(graph: Graph, given: str, reason: str) -> None:
    graph.load(lines(reader("r1"), node("Book", isbn="b")), mode="append")
    assert reason in refused(graph, lines(given), "append")


def test_a_delete_and_an_edge_to_what_it_deletes_can_not_both_stand(graph: Graph) -> None:
    graph.load(lines(reader("r1"), reader("r2"), edge("Follows", "r1", "r2")), mode="append")
    graph.mutate('query gone() { delete Reader where card = "r2" }')
    assert rows(graph, "edge:Follows") == {}
    assert "dst 'r2' not found in Reader" in refused(graph, lines(edge("Follows", "r1", "r2")))


def test_ids_with_quotes_and_backslashes_are_plain_data(graph: Graph) -> None:
    odd = "r'1\\' OR '1'='1"
    graph.load(lines(reader(odd), reader("r2")), mode="append")
    graph.load(lines(edge("Follows", odd, odd)), mode="append")
    source = "query gone($c: String) { delete Reader where card = $c }"
    receipt = graph.mutate(source, "gone", {"c": odd})
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)
    assert set(rows(graph, "node:Reader")) == {"r2"}


# Cardinality


@pytest.fixture
def office(graph: Graph) -> Graph:
    graph.load(
        lines(
            reader("r1"),
            reader("r2"),
            *(node("Desk", name=n) for n in "abc"),
            edge("Owns", "r1", "a", id="o1"),
            edge("Owns", "r1", "b", id="o2"),
            edge("Owns", "r2", "c", id="o3"),
        ),
        mode="append",
    )
    return graph


def mutated(body: str) -> Callable[[Graph], object]:
    return lambda graph: graph.mutate(f"query it() {{ {body} }}")


def loaded(mode: str, *records: str) -> Callable[[Graph], object]:
    return lambda graph: graph.load(lines(*records), mode=mode)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (loaded("append", edge("Owns", "r1", "c")), "source 'r1' has 3 edges (max 2)"),
        (mutated('insert Owns { from: "r1", to: "c" }'), "source 'r1' has 3 edges (max 2)"),
        (mutated('delete Owns where to = "c"'), "source 'r2' has 0 edges (min 1)"),
        (mutated('delete Desk where name = "c"'), "source 'r2' has 0 edges (min 1)"),
        (loaded("merge", edge("Owns", "r1", "c", id="o3")), "source 'r1' has 3 edges (max 2)"),
        (loaded("merge", edge("Owns", "r2", "a", id="o1"), edge("Owns", "r2", "b", id="o2")), "source 'r2' has 3"),
        (loaded("overwrite", edge("Owns", "r1", "a")), "source 'r2' has 0 edges (min 1)"),
        (
            loaded("overwrite", *(edge("Owns", "r1", d) for d in "abc"), edge("Owns", "r2", "a")),
            "source 'r1' has 3 edges (max 2)",
        ),
    ],
)
def test_touched_sources_keep_their_bounds(office: Graph, write: Callable[[Graph], object], reason: str) -> None:
    before = everything(office)
    with pytest.raises(BadRequestError) as error:
        write(office)
    assert f"@card violation on edge Owns: {reason}" in str(error.value)
    assert everything(office) == before


@pytest.mark.parametrize(
    "write",
    [
        loaded("append", reader("r3")),
        loaded("merge", edge("Owns", "r1", "c", id="o1")),
        mutated('delete Owns where to = "a"'),
        mutated('delete Reader where card = "r2"'),
        mutated('delete Reader where card = "r2" delete Desk where name = "c"'),
        loaded("overwrite", edge("Owns", "r1", "a"), edge("Owns", "r2", "a")),
        loaded("overwrite", reader("r1"), edge("Owns", "r1", "a")),
    ],
)
def test_untouched_and_removed_sources_are_not_judged(office: Graph, write: Callable[[Graph], object]) -> None:
    version = office.snapshot().version
    write(office)
    assert office.snapshot().version == version + 1


def test_an_edge_given_twice_counts_once(office: Graph) -> None:
    office.load(lines(edge("Owns", "r2", "a", id="new"), edge("Owns", "r2", "b", id="new")), mode="merge")
    assert {r["dst"] for r in rows(office, "edge:Owns").values() if r["src"] == "r2"} == {"b", "c"}
