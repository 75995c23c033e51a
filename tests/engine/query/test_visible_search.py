"""Restricted search: generated rules and ranked queries give the results of a graph with the visible rows only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import Graph
from omnigraph.api.queries import ReadPoint
from omnigraph.engine.export import export_lines
from omnigraph.engine.query.read import run_query
from omnigraph.engine.query.search import bm25 as ranked_search
from omnigraph.engine.query.search import text as text_search
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of

SCHEMA = """
node Doc { slug: String @key  region: String @index  level: I32?  text: String? @index  vec: Vector(2)? @index }
edge Cites: Doc -> Doc { weight: I32? }
"""
WORDS = ("graph", "lake", "ocean", "robot", "station", "world")
# By type: what a rule may show. Nothing, by an index, by values alone, and by the ends of edges alone.
RULES: list[dict[str, str]] = [
    {"node:Doc": 'region = "eu"'},
    {"node:Doc": 'region = "us" and level >= 2 or slug = $actor'},
    {"node:Doc": 'text contains "ocean"', "edge:Cites": "weight < 20"},
    {"node:Doc": "false"},
    {"edge:Cites": "weight >= 15"},
    {"node:Doc": 'slug starts_with "d1"'},
]


def records(count: int = 48) -> Iterator[str]:
    for i in range(count):
        text = None if i % 11 == 0 else " ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 2 + i % 5))
        data = {
            "slug": f"d{i}",
            "region": "eu" if i % 3 else "us",
            "level": None if i % 7 == 0 else i % 5,
            "text": text,
            "vec": None if i % 13 == 0 else [i % 7, i % 5 + i / 64],
        }
        yield json.dumps({"type": "Doc", "data": data})
    for i in range(count):
        end = f"d{(i * 7 + 1) % count}"
        yield json.dumps({"edge": "Cites", "from": f"d{i}", "to": end, "data": {"id": f"c{i}", "weight": i % 30}})


@dataclass(frozen=True)
class Pair:
    """A state through a rule, and a graph made of what the rule shows."""

    state: Snapshot
    smaller: Graph


@pytest.fixture(scope="module", params=["indexed", "in part", "not indexed"])
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pair]]:
    folder: Path = tmp_path_factory.mktemp("pairs")
    whole = omnigraph.init(folder / "whole", SCHEMA)
    lines = list(records())
    half = lines[:20] if request.param == "in part" else lines
    whole.load("\n".join(half), mode="append")
    if request.param != "not indexed":
        whole.maintenance.ensure_indices()
    if half != lines:
        # Texts that the index knows otherwise, or no more.
        whole.mutate('query q() { update Doc set { text: "lake lake robot" } where level = 2 }')
        whole.mutate('query q() { delete Doc where slug = "d7" }')
        whole.load("\n".join(line for line in lines[20:] if '"d7"' not in line), mode="append")
    catalog = whole.catalog
    made = []
    for number, rule in enumerate(RULES):
        visibilities = []
        for key, text in rule.items():
            type_ = catalog.type_named(key)
            visibilities.append(TypeVisibility(type_, for_actor(check_row_filter(text, type_, catalog), "d5")))
        state = whole.snapshot().restricted_to(visibility_of(visibilities))
        smaller = omnigraph.init(folder / str(number), SCHEMA)
        smaller.load(b"\n".join(export_lines(state)), mode="append")
        if request.param == "indexed":
            smaller.maintenance.ensure_indices()
        made.append(Pair(state, smaller))
    yield made
    for pair in made:
        pair.smaller.close()
    whole.close()


@st.composite
def searches(draw: Any) -> str:
    """A ranked or filtered query over documents and what they cite."""
    word, other = draw(st.sampled_from(WORDS)), draw(st.sampled_from(WORDS))
    vector = f"[{draw(st.integers(0, 6))}.5, {draw(st.integers(0, 4))}.25]"
    clauses = draw(
        st.lists(
            st.sampled_from(
                [
                    f'search($d.text, "{word}")',
                    f'fuzzy($d.text, "{word[:-1]}x", 1)',
                    f'match_text($d.text, "{word} {other}")',
                    'not { $d cites $n  $n.region = "us" }',
                    "$d cites $e",
                    "$e cites{1,2} $d",
                    "$d.level >= 1",
                    '$d.slug = "d7"',
                    'search($e.text, "lake")',
                ]
            ),
            max_size=2,
            unique=True,
        )
    )
    if any("$e" in clause for clause in clauses) and not any("cites" in c and "$e" in c for c in clauses):
        clauses.append("$d cites $e")
    clauses.sort(key=lambda clause: "$e" not in clause or "cites" not in clause)  # what binds comes first
    match = "match { $d: Doc  " + "  ".join(clauses) + " }"
    ranking = draw(
        st.sampled_from(
            [
                f'bm25($d.text, "{word} {other}")',
                f"nearest($d.vec, {vector})",
                f'rrf(nearest($d.vec, {vector}), bm25($d.text, "{word}"))',
            ]
        )
    )
    shown = "$d.slug as s, $e.slug as t" if any("$e" in clause for clause in clauses) else "$d.slug as s"
    if "rrf" not in ranking and draw(st.booleans()):
        shown += f", {ranking} as score"
    if draw(st.booleans()):
        limit = draw(st.integers(1, 30))
        return f"query q() {{ {match} return {{ {shown} }} order {{ {ranking} }} limit {limit} }}"
    return f"query q() {{ {match} return {{ count($d) as n, min($d.slug) as first, max($d.level) as top }} }}"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, len(RULES) - 1), searches(), st.booleans())
def test_a_search_finds_and_ranks_what_is_visible_alone(pairs: list[Pair], which: int, text: str, few: bool) -> None:
    """Where few rows are candidates their texts are read; otherwise words are looked up."""
    pair = pairs[which]
    with pytest.MonkeyPatch.context() as patch:
        for module in (text_search, ranked_search):
            patch.setattr(module, "_FEW_ROWS", 2048 if few else 0)
        found = run_query(pair.state, ReadPoint("main"), (text, "q", {})).rows()
    assert found == pair.smaller.query(text, "q").rows(), (RULES[which], text)
