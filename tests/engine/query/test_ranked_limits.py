"""A ranked query gives the first `limit` rows of the ranking of everything that its match allows.

Held against a ranking made here, of all rows that the same match gives without one.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omnigraph.api.queries import OperatorProfile
from omnigraph.graph import Graph
from tests.engine.query_graphs import edge, node

NOTES, FOLDERS = 240, 40
SCHEMA = """
node Note {
  slug: String @key
  title: String? @index
  size: I32
  vec: Vector(2)? @index
}
node Folder { slug: String @key  colour: String  size: I32 }
edge Filed: Note -> Folder
edge Cites: Note -> Note
"""
WORDS = ["lichen", "moss", "tide", "sea", "guide", "survey"]

MATCHES = {
    "a rare colour": '$n: Note  $n filed $f  $f.colour = "red"',
    "a common colour": '$n: Note  $n filed $f  $f.colour = "grey"',
    "a folder by its key": '$n: Note  $n filed $f  $f.slug = "f07"',
    "an edge variable": '$n: Note  $n $e:filed $f  $f.colour = "red"',
    "two hops": '$n: Note  $n cites{1,2} $m  $m filed $f  $f.slug = "f07"',
    "a rare chain": "$n: Note  $n cites $m  $m filed $f",
    "a chain of three": '$n: Note  $n cites $m  $m cites $o  $o filed $f  $f.colour = "grey"',
    "a comparison of two variables": "$n: Note  $n filed $f  $f.size > $n.size  $f.size > 80",
    "a negation": "$n: Note  not { $n filed $_ }",
    "a negation over two hops": '$n: Note  not { $n filed $g  $g.colour = "grey" }  $n cites $m',
    "another node beside it": '$n: Note  $f: Folder { slug: "f07" }  $f.size = $n.size',
    "a predicate of its own": '$n: Note { size: 7 }  $n filed $f  $f.colour = "red"',
    "a text and a traversal": '$n: Note  search($n.title, "moss")  $n filed $f  $f.colour = "red"',
    "nothing": '$n: Note  $n filed $f  $f.colour = "none"',
    "everything": "$n: Note",
    "a reached variable": '$f: Folder { colour: "red" }  $n filed $f',
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Vectors and texts that often tie; notes far away are the ones that are filed. Half of it is indexed."""
    chance = random.Random(5)
    lines = []
    for i in range(NOTES):
        vector = None if i % 17 == 0 else [float(chance.randrange(12)), float(chance.randrange(12))]
        title = None if i % 13 == 0 else " ".join(chance.choices(WORDS, k=chance.randrange(1, 4)))
        lines.append(
            json.dumps(
                {
                    "type": "Note",
                    "data": {"slug": f"n{i * 7 % NOTES:03d}", "title": title, "vec": vector, "size": i % 50},
                }
            )
        )
    for i in range(FOLDERS):
        lines.append(node("Folder", f"f{i:02d}", colour="red" if i % 20 == 7 else "grey", size=i * 2 + 5))
    pairs = {(chance.randrange(NOTES // 2), chance.randrange(FOLDERS)) for _ in range(260)}
    lines += [edge("Filed", f"n{a:03d}", f"f{b:02d}", id=f"x{i}") for i, (a, b) in enumerate(sorted(pairs))]
    cited = {(chance.randrange(NOTES), chance.randrange(NOTES)) for _ in range(300)}
    lines += [edge("Cites", f"n{a:03d}", f"n{b:03d}") for a, b in sorted(cited)]
    with Graph.init(tmp_path_factory.mktemp("notes") / "g", SCHEMA) as made:
        made.load("\n".join(lines[: NOTES // 2]), mode="append")
        made.maintenance.optimize()
        made.load("\n".join(lines[NOTES // 2 :]), mode="append")
        yield made


def rows_of(graph: Graph, match: str, rest: str, *, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = "$f.slug" if "$f" in match else "$n.size"
    text = (
        f"query q($q: Vector(2), $w: String) {{ match {{ {match} }} "
        f"return {{ $n.slug, {found}, nearest($n.vec, $q) as d, bm25($n.title, $w) as s }} {rest} }}"
    )
    return [tuple(row.values()) for row in graph.query(text, params=params).rows()]


def ranked_by_distance(match: str, returned: str, limit: int) -> str:
    return (
        f"query q() {{ match {{ {match} }} return {{ {returned} }} order {{ nearest($n.vec, [0, 0]) }} limit {limit} }}"
    )


class RankedByHand:
    """The rows of a match, ranked by what each of them says of its own distance and score."""

    def __init__(self, graph: Graph, match: str, params: dict[str, Any]) -> None:
        self.rows = rows_of(graph, match, "", params=params)

    def nodes(self, by: str) -> list[str]:
        at, sign = {"nearest": (2, 1), "bm25": (3, -1)}[by]
        measures = {row[0]: sign * row[at] for row in self.rows if row[at] is not None}
        return sorted(measures, key=lambda slug: (measures[slug], slug))

    def fused(self, limit: int) -> list[str]:
        arms = [self.nodes("nearest")[:limit], self.nodes("bm25")]
        scores: dict[str, float] = {}
        for arm in arms:
            for place, slug in enumerate(arm):
                scores[slug] = scores.get(slug, 0.0) + 1 / (61 + place)
        return sorted(scores, key=lambda slug: -scores[slug])[:limit]

    def first(self, order: Sequence[str], limit: int) -> list[tuple[Any, ...]]:
        return [row for slug in order for row in sorted(r for r in self.rows if r[0] == slug)][:limit]


@pytest.mark.parametrize("match", MATCHES.values(), ids=MATCHES.keys())
def test_a_ranked_query_is_the_beginning_of_the_ranking_of_everything(graph: Graph, match: str) -> None:
    params = {"q": [2.0, 6.5], "w": "moss tide"}
    by_hand = RankedByHand(graph, match, params)
    for by in ("nearest($n.vec, $q)", "bm25($n.title, $w)"):
        order = by_hand.nodes(by.partition("(")[0])
        whole = rows_of(graph, match, f"order {{ {by} }} limit 100000", params=params)
        assert sorted(whole) == sorted(by_hand.first(order, 100000))
        assert [row[0] for row in whole] == [row[0] for row in by_hand.first(order, 100000)]
        for limit in (1, 5, 23):
            assert rows_of(graph, match, f"order {{ {by} }} limit {limit}", params=params) == whole[:limit], (by, limit)
    for limit in (1, 5, 23):
        order = f"order {{ rrf(nearest($n.vec, $q), bm25($n.title, $w)) }} limit {limit}"
        fused = rows_of(graph, match, order, params=params)
        expected = by_hand.first(by_hand.fused(limit), limit)
        assert [row[0] for row in fused] == [row[0] for row in expected], limit


def test_facets_are_of_the_best_nodes_that_have_rows(graph: Graph) -> None:
    match = MATCHES["a rare colour"]
    order = RankedByHand(graph, match, {"q": [0.0, 0.0], "w": "moss"}).nodes("nearest")
    text = ranked_by_distance(match, "$n.slug, count($f)", 4)
    assert [row["n.slug"] for row in graph.query(text).rows()] == order[:4]


@pytest.mark.parametrize("size", [40, 6_000])
def test_the_first_nodes_may_have_no_rows(tmp_path: Path, size: int) -> None:
    """Only the last but a few nodes have a chain: whole pieces of the match, and of the ranking, come to nothing."""
    schema = "node N { slug: String @key  word: String  vec: Vector(1) }\nedge Cites: N -> N"
    lines = [node("N", f"n{i:04d}", vec=[float(i)], word="moss") for i in range(size)]
    names = [f"n{size - left:04d}" for left in (10, 9, 8)]
    lines += [edge("Cites", source, target) for source, target in pairwise(names)]
    with Graph.init(tmp_path / "g", schema) as graph:
        graph.load("\n".join(lines), mode="append")
        arms = "nearest($n.vec, [0])", 'bm25($n.word, "moss")'
        for order in ("", *(f"order {{ {arm} }}" for arm in (*arms, f"rrf({', '.join(arms)})"))):
            for returned in ("$n.slug", "$n.slug, count($k)"):
                text = f"match {{ $n: N  $n cites $m  $m cites $k }} return {{ {returned} }} {order} limit 1"
                assert [row["n.slug"] for row in graph.query(f"query q() {{ {text} }}").rows()] == names[:1], text


def notes_of(profile: OperatorProfile) -> list[str]:
    return [*profile.notes, *(note for below in profile.inputs for note in notes_of(below))]


@pytest.mark.parametrize(
    ("match", "start"), [("a folder by its key", "$f"), ("a rare colour", "$f"), ("a common colour", None)]
)
def test_few_nodes_of_another_variable_name_the_candidates(graph: Graph, match: str, start: str | None) -> None:
    text = (
        f"query q() {{ match {{ {MATCHES[match]} }} return {{ $n.slug }} order {{ nearest($n.vec, [0, 0]) }} limit 3 }}"
    )
    noted = [note for note in notes_of(graph.profile(text)) if note.startswith("candidates")]
    assert len(noted) == (start is not None)
    assert all(note.endswith(f"reached from {start}") for note in noted)


class CountingEmbedder:
    """Embeds every text at the origin and counts how often it is asked."""

    model = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        self.asked += 1
        return np.full(dimension, math.sqrt(1 / dimension), np.float32)


def test_a_query_that_needs_more_candidates_embeds_its_text_once(graph: Graph) -> None:
    embedder = CountingEmbedder()
    text = ranked_by_distance(MATCHES["a common colour"], "$n.slug", 40).replace("[0, 0]", '"a text"')
    assert len(graph.with_embedding(embedder).query(text).rows()) == 40
    assert embedder.asked == 1
