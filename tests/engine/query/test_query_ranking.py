"""Search inside a plan: what is ranked, what is filtered before and after, and the scores that can be projected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph.errors import BadRequestError
from omnigraph.graph import Graph
from tests.engine.query_graphs import edge, node

SCHEMA = """
node Note {
  slug: String @key
  title: String?
  status: String?
  vec: Vector(2)? @embed("title", model="toy")
}
node Folder { slug: String @key  name: String? }
edge Filed: Note -> Folder { at: I32? }
"""
NOTES: list[dict[str, Any]] = [
    {"slug": "n1", "title": "Lichen", "status": "closed", "vec": [0.0, 0.0]},
    {"slug": "n2", "title": "Lichen Field Guide", "status": "open", "vec": [1.0, 0.0]},
    {"slug": "n3", "title": "Lichen and Moss Survey Methods", "status": "open", "vec": [2.0, 0.0]},
    {"slug": "n4", "title": "Tide Tables", "status": "open", "vec": [3.0, 0.0]},
    {"slug": "n5", "title": None, "status": "open", "vec": None},
    {"slug": "n6", "title": "Tide Tables", "status": "closed", "vec": [3.0, 0.0]},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    lines = [json.dumps({"type": "Note", "data": note}) for note in NOTES]
    lines += [node("Folder", "f1", name="green things"), node("Folder", "f2", name="sea")]
    filed = [("n1", "f1", "x9"), ("n2", "f1", "x8"), ("n2", "f2", "x1"), ("n4", "f2", "x5"), ("n3", "f1", "x2")]
    lines += [edge("Filed", a, b, id=name) for a, b, name in filed]
    with Graph.init(tmp_path_factory.mktemp("notes") / "g", SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        yield made


def found(graph: Graph, match: str, rest: str, returned: str = "$n.slug", **params: Any) -> list[Any]:
    declared = ", ".join(f"${name}: {'Vector(2)' if isinstance(v, list) else 'String'}" for name, v in params.items())
    text = f"query q({declared}) {{ match {{ {match} }} return {{ {returned} }} {rest} }}"
    rows = [tuple(row.values()) for row in graph.query(text, params=params).rows()]
    return [row[0] for row in rows] if "," not in returned else rows


# ---- predicates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ('search($n.title, "lichens")', ["n1", "n2", "n3"]),
        ('search($n.title, "guide moss")', ["n2", "n3"]),
        ('search($n.title, "zzz")', []),
        ('match_text($n.title, "field")', ["n2"]),
        ('fuzzy($n.title, "tidd")', ["n4", "n6"]),
        ('search($n.title, "lichen")  search($n.title, "moss")', ["n3"]),
        ('search($n.title, "lichen")  $n.title contains "ld Gu"', ["n2"]),
        ('search($n.title, "lichen") = false', ["n4", "n5", "n6"]),
        ('search($n.title, "lichen") != true', ["n4", "n5", "n6"]),
        ('search($n.title, "tide")  $n.status = "open"', ["n4"]),
        ('not { search($n.title, "tide") }', ["n1", "n2", "n3", "n5"]),
    ],
)
def test_text_clauses_are_filters(graph: Graph, clauses: str, expected: list[str]) -> None:
    assert found(graph, f"$n: Note  {clauses}", "order { $n.slug }") == expected


def test_a_text_clause_works_on_a_reached_variable(graph: Graph) -> None:
    match = '$f: Folder { slug: "f1" }  $n filed $f  search($n.title, "guide survey")'
    assert found(graph, match, "order { $n.slug }") == ["n2", "n3"]


def test_two_variables_each_have_their_own_text(graph: Graph) -> None:
    match = '$n: Note  search($n.title, "lichen")  $n filed $f  search($f.name, "sea")'
    assert found(graph, match, "", "$n.slug, $f.slug") == [("n2", "f2")]


# ---- rankings -------------------------------------------------------------------------------------------


def test_nearest_takes_the_closest_that_satisfy_the_predicates(graph: Graph) -> None:
    origin = [0.0, 0.0]
    assert found(graph, "$n: Note", "order { nearest($n.vec, $q) } limit 3", q=origin) == ["n1", "n2", "n3"]
    pinned = '$n: Note { status: "open" }'
    assert found(graph, pinned, "order { nearest($n.vec, $q) } limit 3", q=origin) == ["n2", "n3", "n4"]
    both = '$n: Note  $n.status = "closed"  search($n.title, "tide")'
    assert found(graph, both, "order { nearest($n.vec, $q) } limit 3", q=origin) == ["n6"]


def test_ties_are_broken_by_id_and_nodes_without_a_vector_have_no_rank(graph: Graph) -> None:
    assert found(graph, "$n: Note", "order { nearest($n.vec, $q) } limit 9", q=[3.0, 0.0])[:2] == ["n4", "n6"]
    assert "n5" not in found(graph, "$n: Note", "order { nearest($n.vec, $q) } limit 9", q=[3.0, 0.0])


def test_bm25_ranks_matches_and_drops_the_rest(graph: Graph) -> None:
    assert found(graph, "$n: Note", 'order { bm25($n.title, "lichen") }') == ["n1", "n2", "n3"]
    assert found(graph, "$n: Note", 'order { bm25($n.title, "lichen") } limit 2') == ["n1", "n2"]
    opened = '$n: Note { status: "open" }'
    assert found(graph, opened, 'order { bm25($n.title, "lichen") } limit 1') == ["n2"]


def test_a_traversal_after_the_ranking_keeps_its_order_and_fills_the_limit(graph: Graph) -> None:
    rows = found(
        graph, "$n: Note  $n $e:filed $f", "order { nearest($n.vec, $q) } limit 3", "$n.slug, $f.slug", q=[1.1, 0.0]
    )
    assert rows == [("n2", "f2"), ("n2", "f1"), ("n3", "f1")]
    kept = found(graph, '$n: Note  $n filed $f  $f.slug = "f2"', "order { nearest($n.vec, $q) } limit 2", q=[0.0, 0.0])
    assert kept == ["n2", "n4"]


def test_a_reached_variable_can_be_ranked(graph: Graph) -> None:
    match = '$f: Folder { slug: "f1" }  $n filed $f'
    assert found(graph, match, "order { nearest($n.vec, $q) } limit 2", q=[2.0, 0.0]) == ["n3", "n2"]
    assert found(graph, match, 'order { bm25($n.title, "moss guide") }') == ["n2", "n3"]


def test_scores_are_values(graph: Graph) -> None:
    rows = found(graph, "$n: Note", "order { d } limit 2", "$n.slug, nearest($n.vec, $q) as d", q=[0.0, 2.0])
    assert [name for name, _ in rows] == ["n1", "n2"]
    assert [distance for _, distance in rows] == pytest.approx([2.0, 5.0**0.5])
    rows = found(
        graph, "$n: Note", "order { $n.slug }", '$n.slug, bm25($n.title, "tide") as s, search($n.title, "tide") as m'
    )
    assert [(name, score is None, match) for name, score, match in rows] == [
        ("n1", True, False),
        ("n2", True, False),
        ("n3", True, False),
        ("n4", False, True),
        ("n5", True, False),
        ("n6", False, True),
    ]


def test_a_score_may_be_sorted_against_its_direction(graph: Graph) -> None:
    rows = found(graph, '$n: Note { status: "open" }', "order { s } limit 2", '$n.slug, bm25($n.title, "lichen") as s')
    assert [name for name, _ in rows] == ["n4", "n5"]


# ---- fusion ---------------------------------------------------------------------------------------------


def test_fusion_adds_reciprocal_ranks(graph: Graph) -> None:
    """Arms n4, n6, n3 (nearest) and n1, n2, n3 (text): n3 is in both; the rest keep arm order."""
    order = 'order { rrf(nearest($n.vec, $q), bm25($n.title, "lichen")) } limit 3'
    assert found(graph, "$n: Note", order, q=[3.0, 0.0]) == ["n3", "n4", "n1"]


def test_the_fused_score_is_a_value(graph: Graph) -> None:
    call = 'rrf(nearest($n.vec, $q), bm25($n.title, "lichen"), 2)'
    rows = found(graph, "$n: Note", "order { s desc } limit 3", f"$n.slug, {call} as s", q=[3.0, 0.0])
    assert rows == [("n3", pytest.approx(1 / 5 + 1 / 5)), ("n4", pytest.approx(1 / 3)), ("n1", pytest.approx(1 / 3))]


def test_a_node_of_one_arm_still_has_the_score_of_the_other(graph: Graph) -> None:
    returned = '$n.slug, nearest($n.vec, $q) as d, bm25($n.title, "tide") as s'
    order = 'order { rrf(nearest($n.vec, $q), bm25($n.title, "tide")) } limit 2'
    rows = found(graph, '$n: Note { status: "open" }', order, returned, q=[1.0, 0.0])
    assert [(name, distance, score is None) for name, distance, score in rows] == [
        ("n2", 0.0, True),
        ("n4", 2.0, False),
    ]


def test_fusion_carries_the_rows_of_its_arms(graph: Graph) -> None:
    order = 'order { rrf(nearest($n.vec, $q), bm25($n.title, "guide")) } limit 4'
    rows = found(graph, "$n: Note  $n $e:filed $f", order, "$n.slug, $f.slug", q=[0.0, 0.0])
    assert rows == [("n2", "f2"), ("n2", "f1"), ("n1", "f1"), ("n3", "f1")]


# ---- query texts ----------------------------------------------------------------------------------------


class Toy:
    """Embeds every text as the vector that its length points at."""

    def __init__(self, model: str) -> None:
        self._model = model

    @property
    def model(self) -> str:
        return self._model

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        return np.array([len(text), *[0.0] * (dimension - 1)], np.float32)


def test_a_text_is_embedded_by_the_client_of_the_handle(graph: Graph) -> None:
    order = "order { nearest($n.vec, $t) } limit 1"
    assert found(graph.with_embedding(Toy("toy")), "$n: Note", order, t="ab") == ["n3"]
    with pytest.raises(BadRequestError, match=r"toy.*other"):
        found(graph.with_embedding(Toy("other")), "$n: Note", order, t="ab")
    with pytest.raises(BadRequestError, match="without an embedding client"):
        found(graph, "$n: Note", order, t="ab")


def test_a_limit_of_nothing_gives_nothing(graph: Graph) -> None:
    assert found(graph, "$n: Note", "order { nearest($n.vec, $q) } limit 0", q=[0.0, 0.0]) == []
