"""Everything that works for a query asks its deadline and its memory, often enough for both to be kept.

One table of queries, in whose plans every operator, predicate, aggregate, ranking and text function of the language
occurs: a new one without a case fails here. The deadline is kept if the processor time of the query's thread between
two questions is short, which says what a deadline at the worst moment costs and does not depend on who else is busy.
Memory is what Python, NumPy and Arrow allocate meanwhile; what Lance reads ahead is its own.
"""

from __future__ import annotations

import ctypes
import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_args

import pyarrow as pa
import pytest
from msgspec import Struct

from omnigraph.api.queries import ReadPoint
from omnigraph.api.service.routes import ROUTES, Media
from omnigraph.engine.query import properties
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.limits import Cancellation
from omnigraph.engine.query.read import ReadOptions, stream_query
from omnigraph.engine.query.result import QueryStream
from omnigraph.engine.query.values import predicates
from omnigraph.errors import QueryCancelledError, ResourceLimitError
from omnigraph.graph import Graph
from omnigraph.language.query import ir
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.syntax import AggregateFunction, TextFunction
from omnigraph.server.http.streaming import json_array, row_chunks
from omnigraph.storage.tables import rows as table_rows
from tests.engine.query_graphs import build_indexes, edge, node

DOCS, TEXT_BYTES = 40, 50_000
SCHEMA = """
node Doc {
  slug: String @key  n: I32  large: I64
  text: String? @index  plain: String?  tags: [String]?  vec: Vector(64)? @index
}
node Memo { slug: String @key  text: String? }
edge Next: Doc -> Doc { w: I32? }
edge About: Memo -> Doc { w: I32? }
"""
LONGEST_GAP = 0.1
WATCHED_SECONDS = 0.12
"""Seconds of processor time."""
MEMORY_BYTES = 8 << 20
"""A few times as much as the texts of the graph, and many times less than what the queries make of them."""
PAIRS = "match { $a: Doc  $b: Doc  %s } return { count($a) as c }"
WORDS = " ".join(f"zq{number:05d}" for number in range(12_000))

CASES: dict[str, str] = {
    "two properties": PAIRS % "$a.text != $b.plain  $a.text >= $b.plain  $a.text > $b.plain",
    "two properties, turned": PAIRS % "$b.plain <= $a.text  $b.plain < $a.text  $b.plain = $a.text",
    "two properties, part": PAIRS % "$a.text contains $b.plain",
    "two properties, beginning": PAIRS % "$a.text starts_with $b.plain",
    "two properties, member": PAIRS % "$a.tags contains $b.slug",
    "two properties, long member": PAIRS % "$a.tags contains $b.text",
    "a constant contains": "match { $a: Doc  $a.text contains $words } return { count($a) as c }",
    "text": "match { $a: Doc } return { $a.text as t, $a.plain as p }",
    "text for every pair": "match { $a: Doc  $b: Doc } return { $a.text as t, $words as w }",
    "an edge": "match { $a: Doc  $a $e:next $b  $e.w >= 0 } return { $a.text as t, $b.text as u, $e.w as w }",
    "hops": "match { $a: Doc  $a next{1,9223372036854775807} $b  $b.n >= 0 } return { $a.text as t, $b.n as n }",
    "reached": "match { $a: Doc  $a next{1,30} $b } return { $a.n as n, count($b) as c }",
    "closing": "match { $a: Doc  $b: Doc  $a next{1,5} $b } return { $a.n as n, $b.text as t }",
    "meeting": "match { $a: Doc  $a next $b  $b next $c  $a <next> $c } return { $a.text as t, $c.plain as p }",
    "merged": "match { $a: Doc  $b: Doc  $a next $c } return { $a.n as n, $c.text as t, count($c.plain) as c }",
    "negation": "match { $a: Doc  not { $a next $b  $b.text = $a.plain } } return { $a.text as t }",
    "groups": "match { $a: Doc  $b: Doc } return { $a.text as t, $b.n as n, count($b) as c } order { c desc } limit 9",
    "groups of lists": "match { $a: Doc } return { $a.tags as t, count($a) as c }",
    "extremes": "match { $a: Doc  $b: Doc } return { $a.n as n, min($b.text) as s, max($b.text) as l }",
    "sums": "match { $a: Doc  $b: Doc } return { $a.text as t, sum($b.n) as s, avg($b.n) as m }",
    "sums of large numbers": "match { $a: Doc  $b: Doc  $c: Doc } return { sum($a.large) as s, avg($b.large) as m }",
    "groups of large numbers": "match { $a: Doc  $b: Doc  $c: Doc  $d: Doc  $d.n < 9 } "
    "return { $a.n as n, $b.n as m, $d.n as o, avg($c.large) as s }",
    "order": "match { $a: Doc  $b: Doc } return { $a.text as t } order { $a.text desc, $b.plain } limit 2000",
    "search": "match { $a: Doc  search($a.text, $words) } return { $a.text as t }",
    "match_text": "match { $a: Doc  match_text($a.plain, $words) } return { $a.text as t }",
    "fuzzy": "match { $a: Doc  fuzzy($a.text, $words, 1) } return { count($a) as c }",
    "fuzzy, many edits": "match { $a: Doc  fuzzy($a.plain, $words, 9) } return { count($a) as c }",
    "search as a value": "match { $a: Doc  $a.n >= 0 } return { search($a.text, $words) as hit, $a.text as t }",
    "bm25": "match { $a: Doc } return { $a.text as t, bm25($a.text, $words) as s } "
    "order { bm25($a.text, $words) } limit 50",
    "bm25 of few": "match { $a: Doc  $a next $b } return { $a.text as t } order { bm25($b.plain, $words) } limit 50",
    "nearest": "match { $a: Doc } return { $a.text as t } order { nearest($a.vec, $v) } limit 50",
    "nearest of pairs": "match { $a: Doc  $a next $b } return { $a.text as t } order { nearest($b.vec, $v) } limit 50",
    "rrf": "match { $a: Doc  $a next $b } return { $b.text as t } "
    "order { rrf(nearest($a.vec, $v), bm25($a.text, $words)) } limit 50",
    "numbers": "match { $a: Doc  $b: Doc  $c: Doc  $c.n < 20 } return { "
    "$a.n as n, $b.n as m, $a.vec as v, $c.n as o, $b.slug as s }",
    "the clock": "match { $a: Doc  $a.n >= 0 } return { now() as at, $a.text as t }",
    "optional": "match { $a: Doc  optional { $a next $b  $b.text = $a.plain } } return { $a.text as t, $b.text as u }",
    "optional pairs": "match { $a: Doc  $c: Doc  optional { $a next{1,9} $b } } return { $a.n as n, $b.text as t }",
    "exists": "match { $a: Doc  exists { $a next $b  $b.text != $a.plain } } return { $a.text as t }",
    "blocks": "match { $a: Doc  $c: Doc } return { $a.n as n, count { $a next{1,5} $_ } as c, "
    "collect($b.text) { $a next $b } as l }",
    "unwind": "match { $a: Doc  $b: Doc } return { $a.tags as g, $b.text as t } then unwind $g as $w "
    "return { upper($w) as w, $t as t }",
    "few keys": 'unwind split($words, " ") as $w match { $a: Doc { slug: $w } } return { $a.text as t, $w as w }',
    "equal sides": "match { $a: Doc  $b: Doc  $c: Doc  $a.text = $b.text } return { $c.text as t, $b.plain as p }",
    "a stage": "match { $a: Doc  $b: Doc } return { $a.text + $b.plain as t, $b } "
    'then match { (not ($t contains "zz") and $b.n >= 0) or $b.n is null } return { $t, $b }',
    "a stage that orders": "match { $a: Doc  $b: Doc } return { $a.text + $b.plain as t, $b } order { $b.n, t } "
    "limit 90 then match { $b next $c } return { $t as t, $c.n as n }",
    "distinct": "match { $a: Doc  $b: Doc } return distinct { $a.text as t, $b.plain as p, $a.tags as g }",
    "union": "match { $a: Doc } return { $a.text as t, $a.n as n } union "
    "match { $a: Doc  $b: Doc } return { $a.plain as t, $b.large as n }",
    "union all": "match { $a: Doc  $b: Doc } return { $a.text as t } union all "
    "match { $m: Memo } return { $m.text as t }",
    "several types": "match { $x: (Doc | Memo)  $y: Doc  not $x.text contains $y.plain } "
    "return { $x.@type as k, $x.@id as i, $x.text as t, $x.plain? as p } order { k, i }",
    "a walk": "match { $x: (Doc | Memo)  $x (next | about){1,9} $y each $f $n { $f.w >= 0 } } "
    "return { $x.@id as i, $y.text as t }",
    "edges of several types": "match { $x: (Doc | Memo)  $x $e:(next | about) $y } return { $e, $y.text as t }",
    "shortest paths": "match { $a: Doc  path $p: shortest $a next $b } return { $p, $a.text as t }",
    "all shortest paths": "match { $a: Doc  path $p: all_shortest $a next $b } "
    "return { length($p) as l, $b.text as t }",
    "trails": "match { $a: Doc  path $p: trails $a next{1,9} $b } return { $p }",
    "trails, counted": "match { $a: Doc  path $p: trails $a next{1,5} $b } return { $b.n as n, count($p) as c }",
    "made paths": "match { $a: Doc  $a $e:next $b  $b $f:next $c } return { path($a, $e, $b, $f, $c) as p }",
    "objects": "match { $a: Doc  $b: Doc } return { $a, [$a, $b] as l, record(b: $b, n: $a.n) as q }",
    "objects of several types": "match { $x: (Doc | Memo)  $b: Doc } return { $x, [$x] as l, keys($x) as k }",
    "collected": "match { $a: Doc  $b: Doc } return { $a.n as n, collect($b.text) as t, collect($b) as l }",
    "collected once": "match { $a: Doc  $b: Doc } return { $a.n as n, collect(distinct $b.text) as t, "
    "count(distinct $b) as c }",
    "statistics": "match { $a: Doc  $b: Doc  $c: Doc } return { $a.text as t, stdev($b.n) as s, stdevp($b.large) as q, "
    "percentile_cont($b.n, 0.3) as p, percentile_disc($b.large, 0.7) as d }",
    "calculations": "match { $a: Doc  $b: Doc } return { -($a.n * 3 - $b.n) as n, $a.n + 0.5 as f, "
    "case when $a.n in [1, 2, $b.n] then upper($a.text) else $b.plain end as c, $a.n = 3 or $b.n != 4 as o }",
    "lists": "match { $a: Doc  $b: Doc } return { map($x in $a.tags where $x != $b.slug : upper($x)) as m, "
    'reduce($s = 0, $x in $b.tags : $s + size($x)) as r, any($x in $a.tags : $x contains "9") as y }',
    "functions": "match { $a: Doc  $b: Doc } return { $a.text + $b.text as r, left($a.text, $b.n) as l, "
    '$a.tags + tail($b.tags) as g, size(split($a.text, "")) as n, replace($a.plain, "word", $b.slug) as w }',
    "records": "match { $a: Doc  $b: Doc } return { record(t: $a.text, n: $b.n) as q } "
    "then return { $q.t as t, $q.n as n }",
}
PARAMETERS: dict[str, Any] = {"words": WORDS, "v": [0.5] * 64}


def query_of(name: str) -> str:
    return f"query q($words: String, $v: Vector(64)) {{ {CASES[name]} }}"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Long texts of few words; half of the documents are indexed."""
    chance = random.Random(3)
    vocabulary = [f"word{number:03d}" for number in range(800)]

    def text() -> str:
        return " ".join(chance.choices(vocabulary, k=TEXT_BYTES // 8))

    docs = [
        node(
            "Doc",
            f"d{i:03d}",
            n=i,
            large=(-1) ** i * 9 * 10**18,
            text=text(),
            plain=text()[: TEXT_BYTES // 2],
            tags=[f"d{i:03d}", *chance.choices(vocabulary, k=2_000)],
            vec=[chance.random() for _ in range(64)],
        )
        for i in range(DOCS)
    ]
    memos = [node("Memo", f"m{i}", text=text()) for i in range(4)]
    memos += [edge("About", f"m{i % 4}", f"d{i:03d}", w=i) for i in range(DOCS)]
    steps = [edge("Next", f"d{i:03d}", f"d{(i * 7 + k) % DOCS:03d}", w=k) for i in range(DOCS) for k in range(4)]
    with Graph.init(tmp_path_factory.mktemp("docs") / "g", SCHEMA) as made:
        made.load("\n".join(docs[: DOCS // 2]), mode="append")
        build_indexes(made)
        made.load("\n".join((*docs[DOCS // 2 :], *steps, *memos)), mode="append")
        yield made


@pytest.fixture(autouse=True)
def _both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "csr")


def streamed(graph: Graph, name: str, options: ReadOptions) -> QueryStream:
    return stream_query(graph.snapshot(), ReadPoint("main"), (query_of(name), None, PARAMETERS), options)


def drained(stream: QueryStream) -> None:
    for _ in stream:
        pass


def written(media: Media) -> Callable[[QueryStream], None]:
    def write(stream: QueryStream) -> None:
        for _ in row_chunks(stream, media):
            pass

    return write


RENDERERS: dict[str, Callable[[QueryStream], object]] = {
    "batches": drained,
    "rows": lambda stream: [None for _ in stream.rows()],
    Media.NDJSON: written(Media.NDJSON),
    Media.CSV: written(Media.CSV),
    Media.ARROW: written(Media.ARROW),
    Media.JSON: lambda stream: json_array(stream, 10**6),
    "collected": lambda stream: stream.collect(),
}


class Stopwatch(Cancellation):
    """Measures the processor time of a thread between two questions, for so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.longest = 0.0
        self._last = time.thread_time()
        self._until = self._last + seconds

    def check(self) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        if now > self._until:
            self.cancel()
        super().check()


def longest_gap(graph: Graph, name: str, render: Callable[[QueryStream], object]) -> float:
    """Between two questions, and behind the last one, of a query that is ended after a while."""
    watch = Stopwatch(WATCHED_SECONDS)
    stream = streamed(graph, name, ReadOptions(cancellation=watch, returns_at_once=False))
    watch.check()
    watch.longest = 0.0  # compiling has limits of its own
    with suppress(QueryCancelledError):
        render(stream)
        watch.check()
    return watch.longest


def assert_ends_soon(gap: Callable[[], float]) -> None:
    """Repeated before it counts as broken: a busy machine makes processor time longer too."""
    gaps: list[float] = []
    gc.disable()
    try:
        while not gaps or (min(gaps) >= LONGEST_GAP and len(gaps) < 4):
            gaps.append(gap())
    finally:
        gc.enable()
    assert min(gaps) < LONGEST_GAP


def memory_used(graph: Graph, name: str, render: Callable[[QueryStream], object]) -> int:
    """The most that Python, NumPy and Arrow held at a time."""
    refused: list[str] = []

    def run() -> None:
        watch = Stopwatch(WATCHED_SECONDS)
        options = ReadOptions(memory_bytes=MEMORY_BYTES, cancellation=watch, returns_at_once=False)
        try:
            render(streamed(graph, name, options))
        except QueryCancelledError:
            pass  # it has done enough
        except ResourceLimitError as error:
            refused.append(error.resource)

    # Once before it counts: what a process imports, compiles and keeps for all later queries has limits of its own.
    run()
    refused.clear()
    outer = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(outer)
    # Caches of the process keep arrays of this pool, and give them back to it whenever they are emptied, also at exit.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        run()
        assert refused in ([], ["query_memory_bytes"])
        return tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(outer)


def assert_keeps_memory(used: Callable[[], int]) -> None:
    """Repeated before it counts as broken: what other threads allocate meanwhile is counted too."""
    most = 1.2 * MEMORY_BYTES
    assert used() < most or used() < most or used() < most


def test_every_part_of_the_language_has_a_case(graph: Graph) -> None:
    found: set[object] = set()

    def collect(part: object) -> None:
        if isinstance(part, tuple | list):
            for item in part:
                collect(item)
        elif isinstance(part, Struct) and type(part).__module__.startswith(ir.__name__):
            found.add(type(part))
            for name in part.__struct_fields__:
                collect(getattr(part, name))
        elif isinstance(part, ir.Operator | TextFunction | AggregateFunction):
            found.add(part)

    for name in CASES:
        collect(compile_queries(query_of(name), graph.snapshot().catalog).query(None).read_plan.root)
    wanted = {*get_args(ir.ReadOperator), *get_args(ir.Predicate), *get_args(ir.Value), *get_args(ir.Ranking)}
    # A node is named by its key only where rows are written.
    assert {*wanted, *ir.Operator, *TextFunction, *AggregateFunction} - found == {ir.NodeKey}
    formats = {media for route in ROUTES if route.operation_id == "query" for media in route.media}
    assert formats - set(RENDERERS) == set()


@pytest.mark.parametrize("name", CASES)
def test_a_query_ends_soon_after_its_deadline(graph: Graph, name: str) -> None:
    assert_ends_soon(lambda: longest_gap(graph, name, drained))


@pytest.mark.parametrize("name", CASES)
def test_a_query_keeps_to_its_memory(graph: Graph, name: str) -> None:
    assert_keeps_memory(lambda: memory_used(graph, name, drained))


@pytest.mark.parametrize("renderer", RENDERERS)
def test_an_answer_keeps_to_both_in_every_format(graph: Graph, renderer: str) -> None:
    assert_ends_soon(lambda: longest_gap(graph, "numbers", RENDERERS[renderer]))
    for name in ("numbers", "text for every pair"):
        assert_keeps_memory(lambda name=name: memory_used(graph, name, RENDERERS[renderer]))


class Counting(Cancellation):
    """Counts how often a query asks whether to go on."""

    asked = 0

    def check(self) -> None:
        self.asked += 1
        super().check()


def test_a_long_list_is_had_once_for_all_rows(graph: Graph) -> None:
    """Too long to be pushed into the scan, and the longer it is, the fewer rows would be tested at a time."""
    counts = []
    for size in (10_001, 80_000):
        text = f"query q() {{ match {{ $a: Doc  {list(range(size))} contains $a.n }} return {{ count($a) as c }} }}"
        counting = Counting()
        options = ReadOptions(cancellation=counting, returns_at_once=False)
        assert graph.query(text, options=options).rows() == [{"c": DOCS}]
        counts.append(counting.asked)
    assert counts[0] == counts[1]


MILLION = "x" * 1_000_000
BIG_SCHEMA = "node Big { slug: String @key  text: String }\nnode Row { slug: String @key  n: I32 }"
TEXTS = "query q() { match { $b: Big  $r: Row } return { $b.text as t } }"


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """One long text beside 2,200 rows: every pair is more than 2 GiB of text in one column."""
    lines = [node("Big", "b", text=MILLION), *(node("Row", f"r{i}", n=i) for i in range(2_200))]
    with Graph.init(tmp_path_factory.mktemp("big") / "g", BIG_SCHEMA) as made:
        made.load("\n".join(lines), mode="append")
        yield made


def test_more_than_2_gib_of_text_in_one_column_are_streamed_in_small_batches(big: Graph) -> None:
    options = ReadOptions(memory_bytes=200 << 20)
    sizes = [batch.nbytes for batch in big.stream(TEXTS, options=options)]
    assert sum(sizes) > 2**31
    assert max(sizes) < 32 << 20
    with pytest.raises(ResourceLimitError, match="query_memory_bytes"):
        big.query(TEXTS, options=options)


@pytest.mark.parametrize("kind", ["min", "max"])
def test_aggregates_of_more_than_2_gib_are_refused_within_the_memory_of_the_query(big: Graph, kind: str) -> None:
    text = f"query q() {{ match {{ $b: Big  $r: Row }} return {{ $r.n as n, {kind}($b.text) as t }} }}"
    with pytest.raises(ResourceLimitError, match="query_memory_bytes"):
        big.query(text, options=ReadOptions(memory_bytes=200 << 20))


def test_columns_too_large_for_narrow_offsets_give_the_same_answers(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 2 GiB texts and lists of them move to wider types, which here happens to all of them."""
    asked = [
        "return { $a.text as t, $a.tags as g }",
        "$a.text >= $b.plain  $a.text contains $b.plain  return { $a.slug as s }",
        "$a.tags contains $b.slug  return { $a.slug as s, $b.tags as g }",
        "$a.text != $b.text  return { $a.text as t, count($b) as c, max($b.plain) as m } order { t desc } limit 3",
        "return { $a.tags as g, count($b) as c }",
        'search($a.plain, "word001")  return { $a.plain as t } order { $a.plain desc }',
        "upper($a.text) != $b.plain  return { $a.slug as s, left($a.text, 3) as t, tail($a.tags) + [$b.slug] as g }",
        "$a.slug in $a.tags or not ($a.tags = $b.tags)  return { map($x in $a.tags : size($x)) as g }",
        "return distinct { case when $a.n > 5 then $a.text else $a.plain end as t, reverse($a.tags) as g }",
    ]

    def answers() -> list[pa.Table]:
        found = []
        for rest in asked:
            tests, _, result = rest.partition("return")
            match = f"$a: Doc  $b: Doc {{ n: 3 }}  $a.n < 9  {tests}"
            found.append(graph.query(f"query q() {{ match {{ {match} }} return {result} }}").to_arrow())
        return found

    expected = answers()
    monkeypatch.setattr(properties, "_INT32_OFFSETS", 0)
    monkeypatch.setattr(table_rows, "_INT32_OFFSETS", 0)
    monkeypatch.setattr(properties, "_GATHERED_BYTES", 1 << 17)
    monkeypatch.setattr(predicates, "_ROWS_PER_CHECK", 3)
    for table, other in zip(answers(), expected, strict=True):
        assert table.combine_chunks() == other.combine_chunks()
