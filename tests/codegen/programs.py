"""Programs to generate code for: the examples of the repository, one query per feature, random reads, and names that
mean something to Python or TypeScript."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from omnigraph.codegen.model import Program, QuerySource, read_program
from omnigraph.errors import CompileError
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import compile_schema
from tests.engine.query_graphs import MIXED
from tests.support.feature_queries import SCHEMA, STORED_TEXT
from tests.support.random_reads import RandomRead, random_read

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE_FOLDERS = ("library", "social_network", "followers", "supply_chain", "cluster/library", "cluster/staff")
SEEDS = range(160)

AWKWARD_SCHEMA = """
node Any @description("Ends in a \\"quote\\"") {
    id: String @key  class: String? @description("a */ b \\\\ c")  str: I32?
}
node Promise { entity_id: String @key  int: I64?  list: [String]?  date: Date?  when: DateTime?  self: F64? }
node Error { message: String @key  copy: Bool?  _x: U64?  model_name: F32?  json: enum(a-b, 007, none)?  value: Date? }
node Path { length: I32 @key  row: String? }
node Date { _dt: Date }
node AQuiteLongNameOfATypeThatNobodyWouldWriteWithoutBeingMadeToDoSoByATest {
    a_quite_long_name_of_a_property_that_nobody_would_write_without_being_made_to: [DateTime]?
    status: enum(a_value_of_some_length, another_value_of_some_length, a_third_value_of_some_length)
}
edge Error: Any -> Error { from_: String?  id: I32?  src: Date? }
edge Links: Any -> Promise
edge Reads: Any -> AQuiteLongNameOfATypeThatNobodyWouldWriteWithoutBeingMadeToDoSoByATest
"""
AWKWARD_QUERIES = """
query class($graph: String, $rows: I64?, $params: Date, $class: [F64], $none: Bool?) {
    match { $a: Any { id: $graph }  $a links $p  $p.date = $params or $p.int = $rows or $p.self in $class }
    return { $a, $p as p, $p.self as "price with tax", $p.list as "say \\"hi\\"", $p.date as date, $none as "it's" }
}
query delete($if_commit: String, $idempotency_key: String?) {
    delete Any where id = $if_commit or class = $idempotency_key
}
query list() @description("`backticks`, ${braces}, \\\\ and \\"quotes\\"") {
    match { $e: Error }
    return { $e.json as row, $e as value, $e._x, "a`b${c}\\\\" as text, 1.0 / 2.0 as half, [[$e]] as deep }
}
query everything() {
    match { $x: *  $y: *  $x * $y }
    return { $x, $y, record(all: [$x], n: record(d: $x.@id, f: [0.5])) as "1st" }
}
query promise() { match { $d: Date } return { $d._dt as _dt, $d as d, collect($d._dt) as days } }
query quite_a_long_name_of_a_query_that_nobody_would_write() {
    match { $a: Any  $a reads $long }
    return { $long as a_long_name_of_a_column_that_is_hard_to_put_on_a_line, $long.status as status }
}
"""

ENDS_SCHEMA = """
interface Content { title: String? }
node Post implements Content { slug: String @key }
node Photo implements Content { slug: String @key }
node Person { name: String @key }
edge Likes: Person -> Content { source_type: String? }
edge Cites: Content -> Content
edge Wrote: Person -> Post
"""
ENDS_QUERIES = """
query likes() { match { $p: Person  $p $e:likes $x } return { $e, $x } order { $x.@type } }
query every_edge() { match { $x: *  $y: *  $x $e:* $y } return { $e } order { $e.@type, $e.@id } }
"""


def random_programs() -> list[tuple[str, RandomRead]]:
    """The random reads that compile and don't ask for the time, with names of their own."""
    catalog = compile_schema(MIXED)
    reads = []
    for seed in SEEDS:
        read = random_read(seed)
        if "now()" in read.text:
            continue
        try:
            _ = compile_queries(read.text, catalog).query("q").plan
        except CompileError:
            continue
        reads.append((read.text.replace("query q(", f"query q{seed}(", 1), read))
    return reads


@cache
def programs() -> dict[str, Program]:
    """All programs, by names that modules may have."""
    texts = {
        "features": (SCHEMA, [QuerySource("features.gq", STORED_TEXT)]),
        "awkward": (AWKWARD_SCHEMA, [QuerySource("awkward.gq", AWKWARD_QUERIES)]),
        "ends": (ENDS_SCHEMA, [QuerySource("ends.gq", ENDS_QUERIES)]),
        "random": (MIXED, [QuerySource("random.gq", "\n".join(text for text, _ in random_programs()))]),
        "no_queries": (SCHEMA, []),
    }
    for folder in EXAMPLE_FOLDERS:
        files = sorted((EXAMPLES / folder).rglob("*.gq"))
        sources = [QuerySource(str(file), file.read_text()) for file in files]
        texts[folder.replace("/", "_")] = ((EXAMPLES / folder / "schema.pg").read_text(), sources)
    return {name: read_program(compile_schema(schema), sources) for name, (schema, sources) in texts.items()}
