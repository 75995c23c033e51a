"""Bounded ranking: a fusion that looks at the beginnings of its arms gives the rows of one that ranks everything."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.api.queries import OperatorProfile, ReadPoint
from omnigraph.engine.query.read import run_query
from omnigraph.engine.query.search import bm25 as ranked_search
from omnigraph.engine.query.search import scored_texts
from omnigraph.engine.query.search.bm25 import TextRanking, bm25
from omnigraph.engine.query.search.ranked_rows import Candidates, best_fused, deciding_places, fused_scores
from omnigraph.engine.snapshot import Snapshot
from omnigraph.graph import Graph
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of
from omnigraph.storage.cache import SHARED_MEMORY
from tests.engine.search_tables import TEXT_WAYS, Shelf, choose_text_way

WORDS = ["moss", "tide", "sea", "guide", "survey", "lichen"]
NOTES = 260
SCHEMA = """
node Note {
  slug: String @key
  title: String? @index
  body: String? @index
  shelf: I32? @index
  vec: Vector(2)? @index
}
node Folder { slug: String @key }
edge Filed: Note -> Folder
"""


# ---- the bound ------------------------------------------------------------------------------------------


@st.composite
def two_arms(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """The places of some nodes in two arms, each of which ranks a part of them."""
    nodes = draw(st.integers(1, 60))
    arms = []
    for _ in range(2):
        ranked = draw(st.permutations(range(nodes)))[: draw(st.integers(0, nodes))]
        places = np.full(nodes, -1)
        places[ranked] = np.arange(len(ranked))
        arms.append(places)
    return arms[0], arms[1]


@given(arms=two_arms(), limit=st.integers(1, 8), k=st.integers(1, 9), cut=st.booleans())
def test_the_best_nodes_are_at_the_beginning_of_an_arm(
    arms: tuple[np.ndarray, np.ndarray], limit: int, k: int, cut: bool
) -> None:
    first, second = arms
    if cut:
        first = np.where(first < limit, first, -1)
    best, scores = best_fused(first, second, limit, k)
    best, scores = best[scores > 0], scores[scores > 0]
    deciding = deciding_places(limit, k, other_is_cut=cut)
    beginning = np.flatnonzero(((first >= 0) & (first < deciding)) | ((second >= 0) & (second < deciding)))
    bounded, bounded_scores = best_fused(first[beginning], second[beginning], limit, k)
    assert beginning[bounded].tolist() == best.tolist()
    assert bounded_scores.tolist() == scores.tolist()


def test_one_place_less_would_not_do() -> None:
    """A node on the last deciding place of both arms beats all nodes that only one of them ranks, but the first."""
    limit, k = 3, 4
    deciding = deciding_places(limit, k, other_is_cut=False)
    last_in_both = fused_scores([np.array([deciding - 2]), np.array([deciding - 2])], k)
    last_of_the_best = fused_scores([np.array([limit - 1]), np.array([-1])], k)
    assert last_in_both >= last_of_the_best > fused_scores([np.array([deciding]), np.array([deciding])], k)


# ---- places in a text ranking ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> list[Shelf]:
    """Texts that often tie, in numbers that are indexed, indexed in part, changed since, and not indexed."""
    chance = random.Random(3)
    ids = [f"d{i * 7 % NOTES:03d}" for i in range(NOTES)]
    texts = [None if i % 19 == 0 else " ".join(chance.choices(WORDS, k=chance.randrange(1, 5))) for i in range(NOTES)]
    numbers = [i % 10 for i in range(NOTES)]
    half, place = NOTES // 2, tmp_path_factory.mktemp("shelves")
    return [
        Shelf(place / "plain").add(ids, texts, numbers),
        Shelf(place / "indexed").add(ids, texts, numbers).index_text(),
        Shelf(place / "partly")
        .add(ids[:half], texts[:half], numbers[:half])
        .index_text()
        .add(ids[half:], texts[half:], numbers[half:]),
        Shelf(place / "updated")
        .add(ids, texts[::-1], numbers)
        .index_text()
        .put(ids[:half], texts[:half], numbers[:half]),
    ]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_counted_places_are_those_of_the_whole_ranking(shelves: list[Shelf], data: st.DataObject) -> None:
    shelf = data.draw(st.sampled_from(shelves))
    query = " ".join(data.draw(st.lists(st.sampled_from([*WORDS, "absent"]), min_size=1, max_size=3)))
    every = shelf.row_ids_of(shelf.texts())
    chosen = [every[data.draw(st.integers(0, 2)) :: data.draw(st.integers(1, 3))] if data.draw(st.booleans()) else None]
    visible = np.sort(every[:: data.draw(st.integers(1, 3))]) if data.draw(st.booleans()) else None
    filter_ = data.draw(st.sampled_from([None, "shelf < 5", "shelf = 3", "shelf > 100"]))
    candidates = Candidates(filter_, chosen[0])
    limit = data.draw(st.integers(1, 40))
    with pytest.MonkeyPatch.context() as patch:
        whole = bm25(shelf.table, "text", query, candidates, None, visible)
        if data.draw(st.booleans()):
            SHARED_MEMORY.clear()
        patch.setattr(ranked_search, "_FEW_ROWS", data.draw(st.sampled_from([0, 2048])))
        patch.setattr(scored_texts, "_SPARSE", data.draw(st.sampled_from([0, 4])))
        patch.setattr(ranked_search, "_SPARE_PROPOSALS", data.draw(st.sampled_from([0, 24])))
        choose_text_way(patch, data.draw(st.sampled_from(TEXT_WAYS)))
        best = bm25(shelf.table, "text", query, candidates, limit, visible)
        assert best.row_ids.tolist() == whole.row_ids[:limit].tolist()
        assert best.values.tolist() == whole.values[:limit].tolist()
        ranking = TextRanking(shelf.table, "text", query, candidates, visible, with_places=True)
        if data.draw(st.booleans()):
            assert ranking.best(limit).row_ids.tolist() == whole.row_ids[:limit].tolist()
        # Of candidates only: those that the whole ranking has, and those that hold none of the words.
        unranked = shelf.row_ids_of([name for name, text in shelf.texts().items() if not text])
        rows = np.sort(np.concatenate((whole.row_ids[data.draw(st.integers(0, 30)) :: 7], unranked)))
        expected = {row: place for place, row in enumerate(whole.row_ids.tolist())}
        assert ranking.places(rows).tolist() == [expected.get(row, -1) for row in rows.tolist()]


# ---- fusions in queries ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Vectors and texts that often tie, nulls of each, half of it indexed, some of it changed since."""
    chance = random.Random(5)

    def words(share: int, i: int) -> str | None:
        return None if i % share == 0 else " ".join(chance.choices(WORDS, k=chance.randrange(1, 5)))

    lines = []
    for i in range(NOTES):
        vector = None if i % 17 == 0 else [float(chance.randrange(9)), float(chance.randrange(9))]
        note = {"slug": f"n{i * 7 % NOTES:03d}", "title": words(13, i), "body": words(11, i), "vec": vector}
        lines.append(json.dumps({"type": "Note", "data": note | {"shelf": i % 40 if i % 9 else None}}))
    lines += [json.dumps({"type": "Folder", "data": {"slug": f"f{i}"}}) for i in range(5)]
    for i in range(NOTES):
        for folder in {chance.randrange(8), chance.randrange(8)} & set(range(5)):
            lines.append(json.dumps({"edge": "Filed", "from": f"n{i:03d}", "to": f"f{folder}"}))
    with Graph.init(tmp_path_factory.mktemp("notes") / "g", SCHEMA) as made:
        made.load("\n".join(lines[: NOTES // 2]), mode="append")
        made.maintenance.optimize()
        made.load("\n".join(lines[NOTES // 2 :]), mode="append")
        made.mutate('query q() { update Note set { title: "sea tide" } where shelf = 7 }')
        yield made


@pytest.fixture(scope="module")
def states(graph: Graph) -> list[Snapshot]:
    """The graph for everybody, and for a reader of a part of it."""
    whole = graph.snapshot()
    type_ = graph.catalog.type_named("node:Note")
    rule = check_row_filter('shelf < 25 or slug starts_with "n1"', type_, graph.catalog)
    return [whole, whole.restricted_to(visibility_of([TypeVisibility(type_, for_actor(rule, "ann"))]))]


MATCHES = (
    "$n: Note",
    "$n: Note  $n.shelf < 20",
    "$n: Note  $n.shelf = 3",
    '$n: Note  search($n.body, "moss")',
    "$n: Note  $n.shelf % 3 = 1",
    "$n: Note  $n filed $f",
    "$n: Note  not { $n filed $_ }",
    '$n: Note  $n filed $f  $f.slug = "f2"',
)
arms = st.one_of(
    st.builds(lambda x, y: f"nearest($n.vec, [{x}, {y}])", st.integers(0, 8), st.integers(0, 8)),
    st.builds(
        lambda column, words: f'bm25($n.{column}, "{" ".join(words)}")',
        st.sampled_from(["title", "body"]),
        st.lists(st.sampled_from([*WORDS, "absent"]), min_size=1, max_size=3),
    ),
)


@dataclass(frozen=True)
class Fusion:
    """A fused query, and its answer made of what its arms rank when each is asked for everything."""

    state: Snapshot
    match: str
    arms: tuple[str, str]
    k: int
    limit: int
    offset: int

    @property
    def text(self) -> str:
        call = f"rrf({self.arms[0]}, {self.arms[1]}, {self.k})"
        return (
            f"query q() {{ match {{ {self.match} }} return {{ $n.slug as slug, {call} as score }} "
            f"order {{ score desc }} limit {self.limit} offset {self.offset} }}"
        )

    def ranked(self, arm: str) -> list[str]:
        text = f"query q() {{ match {{ {self.match} }} return {{ $n.slug as slug }} order {{ {arm} }} limit 1000000 }}"
        nodes = list(dict.fromkeys(row["slug"] for row in run_query(self.state, ReadPoint("main"), (text, "q", {}))))
        return nodes[: self.limit + self.offset] if arm.startswith("nearest") else nodes

    def expected(self) -> list[tuple[str, float]]:
        scores: dict[str, float] = {}
        for arm in self.arms:
            for place, slug in enumerate(self.ranked(arm)):
                scores[slug] = scores.get(slug, 0.0) + 1 / (self.k + place + 1)
        return sorted(scores.items(), key=lambda entry: -entry[1])[: self.limit + self.offset]

    def given(self) -> list[tuple[str, float]]:
        rows = run_query(self.state, ReadPoint("main"), (self.text, "q", {})).rows()
        return [(row["slug"], row["score"]) for row in rows]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_fusion_is_that_of_its_whole_arms(states: list[Snapshot], data: st.DataObject) -> None:
    limit = data.draw(st.one_of(st.integers(1, 5), st.integers(30, 300)))
    fusion = Fusion(
        state=data.draw(st.sampled_from(states)),
        match=data.draw(st.sampled_from(MATCHES)),
        arms=(data.draw(arms), data.draw(arms)),
        k=data.draw(st.sampled_from([1, 2, 60, 1000])),
        limit=limit,
        offset=data.draw(st.integers(0, 3)),
    )
    with pytest.MonkeyPatch.context() as patch:
        choose_text_way(patch, data.draw(st.sampled_from(TEXT_WAYS)))
        patch.setattr(ranked_search, "_FEW_ROWS", data.draw(st.sampled_from([0, 2048])))
        if data.draw(st.booleans()):
            SHARED_MEMORY.clear()
        rows = fusion.given()
    nodes = list(dict.fromkeys(rows))  # a node has all its rows, one after the other, cut by the limit
    expected = fusion.expected()
    if "filed $f" not in fusion.match:
        assert rows == expected[fusion.offset :]
    elif not fusion.offset:
        assert nodes == expected[: len(nodes)]
        assert len(rows) == limit or len(nodes) == len(expected)


def notes_of(profile: OperatorProfile) -> list[str]:
    return [*profile.notes, *(note for below in profile.inputs for note in notes_of(below))]


def test_a_profile_tells_how_an_arm_was_ranked(graph: Graph) -> None:
    text = (
        "query q() { match { $n: Note  $n.shelf < 30 } return { $n.slug } "
        'order { rrf(nearest($n.vec, [1, 1]), bm25($n.body, "moss")) } limit 2 }'
    )
    notes = notes_of(graph.profile(text))
    assert any(note.startswith("candidates: ") and note.endswith("beginnings of both arms") for note in notes)
    assert any(note.startswith("bm25: ") and note.endswith("scored in memory") for note in notes)
    assert any(note.startswith("filter tested on the best ") for note in notes)


def test_what_is_remembered_of_a_filter_ends_with_a_commit_of_another_handle(tmp_path: Path) -> None:
    lines = [
        json.dumps({"type": "Note", "data": {"slug": f"n{i:03d}", "body": "moss" + " tide" * (i % 7), "shelf": i % 50}})
        for i in range(NOTES)
    ]
    text = 'match { $n: Note  $n.shelf < 10 } return { $n.slug as s } order { bm25($n.body, "moss tide") } limit 500'
    with Graph.init(tmp_path / "g", SCHEMA) as writer:
        writer.load("\n".join(lines), mode="append")
        writer.maintenance.optimize()
        with Graph.open(tmp_path / "g") as reader:
            for slug in ("n003", "n102", "n204"):
                before = {row["s"] for row in reader.query(f"query q() {{ {text} }}").rows()}
                assert slug in before
                writer.mutate(f'query q() {{ update Note set {{ shelf: 40 }} where slug = "{slug}" }}')
                assert {row["s"] for row in reader.query(f"query q() {{ {text} }}").rows()} == before - {slug}


def test_a_limit_of_nothing_gives_nothing(graph: Graph) -> None:
    text = 'match { $n: Note } return { $n.slug } order { rrf(nearest($n.vec, [1, 1]), bm25($n.body, "moss")) } limit 0'
    assert graph.query(f"query q() {{ {text} }}").rows() == []
