"""One query for each feature of the query language, over one small graph, with its answer.

Every interface (Python, HTTP, the remote client, the command line, the shell, MCP) runs the same examples in its own
test module `test_feature_queries.py`, and so does lint. An interface that renders, decodes or refuses something in its
own way fails there under the name of the feature.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from omnigraph import Graph

_COMPACT: Final[dict[str, Any]] = {"ensure_ascii": False, "separators": (",", ":")}


def cell_value(text: str, value: Any) -> Any:
    """What a cell of text says, for the value that it is expected to say: objects and lists are compact JSON."""
    if isinstance(value, dict | list):
        read = json.loads(text)
        return read if json.dumps(read, **_COMPACT) == text else text
    return value if text == cell_text(value) else text


def cell_text(value: Any) -> str:
    """A value that is not an object as text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


SCHEMA = """
interface Named { name: String }
node Author implements Named { slug: String @key  name: String  born: Date? }
node Book {
    isbn: String @key
    title: String
    pages: I32?
    price: F64?
    tags: [String]?
    status: enum(kept, lent, lost)?
}
node Reader @label("READER") implements Named { card: String @key  name: String  age: I32? }
node Shelf { id: String @key  room: String? }
edge WroteBy: Book -> Author
edge Borrowed: Reader -> Book { on: Date?  days: I32? }
edge Follows: Reader -> Reader @label("FOLLOWS") { since: I32?  @key(@src, @dst) }
edge Stands: Book -> Shelf
"""


def node(type_name: str, **data: Any) -> str:
    return json.dumps({"type": type_name, "data": data})


def edge(type_name: str, source: str, target: str, **data: Any) -> str:
    return json.dumps({"edge": type_name, "from": source, "to": target, "data": data})


RECORDS = "\n".join(
    (
        node("Author", slug="ann", name="Ann", born="1950-01-02"),
        node("Author", slug="bob", name="Bob"),
        node("Book", isbn="b1", title="One", pages=100, price=1.5, tags=["x", "y"], status="lost"),
        node("Book", isbn="b2", title="Two", tags=[], status="lent"),
        node("Book", isbn="b3", title="Three", pages=300, price=0.5),
        node("Reader", card="r1", name="Rita", age=30),
        node("Reader", card="r2", name="Rob"),
        node("Reader", card="r3", name="Rex", age=17),
        node("Shelf", id="s1", room="A"),
        edge("WroteBy", "b1", "ann", id="w1"),
        edge("WroteBy", "b2", "bob", id="w2"),
        edge("WroteBy", "b3", "ann", id="w3"),
        edge("Borrowed", "r1", "b1", id="l1", on="2024-01-01", days=1),
        edge("Borrowed", "r1", "b2", id="l2", on="2024-02-01", days=2),
        edge("Borrowed", "r2", "b2", id="l3"),
        edge("Follows", "r1", "r2", since=1),
        edge("Follows", "r2", "r3", since=2),
        edge("Follows", "r3", "r1", since=3),
        edge("Stands", "b1", "s1", id="t1"),
    )
)
"""Rita has borrowed a lost and a lent book, Rob the lent one, Rex nothing. They follow each other in a circle."""


ENTITIES: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("Shelf", "s1"): {"@id": "s1", "id": "s1", "room": "A"},
    ("Follows", '["r1","r2"]'): {"id": '["r1","r2"]', "src": "r1", "dst": "r2", "since": 1},
}
"""A node whose type declares `id`, and an edge with a key, by type and id as they are read one by one."""


def feature_graph(path: Path) -> Graph:
    graph = Graph.init(path, SCHEMA)
    graph.load(RECORDS, mode="append")
    return graph


@dataclass(frozen=True)
class Example:
    """A read. Its rows are as JSON has them; `kinds` and `reads` are what lint says of it."""

    feature: str
    text: str
    rows: list[dict[str, Any]]
    params: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    """The kind of each column."""
    reads: str = ""

    @property
    def name(self) -> str:
        """The name of the query in the text."""
        return name_of(self.text)


@dataclass(frozen=True)
class Write:
    """A mutation, the nodes and edges that its receipt counts, and a read that shows what it wrote."""

    feature: str
    text: str
    counts: tuple[int, int]
    shown_by: str
    rows: list[dict[str, Any]]
    params: dict[str, Any] = field(default_factory=dict)
    reads: str = ""
    writes: str = ""

    @property
    def name(self) -> str:
        return name_of(self.text)


def name_of(text: str) -> str:
    return text.partition("query ")[2].partition("(")[0]


def label(example: Example | Write) -> str:
    """The name of a test that runs it."""
    return f"{example.feature}: {example.name}"


def plain(value: Any) -> Any:
    """A value of Arrow or of a frame as JSON has it: days as texts, and the properties that only some of several types
    have among the others."""
    match value:
        case date():
            return value.isoformat()
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            members = {name: plain(member) for name, member in value.items()}
            return members | json.loads(members.pop("properties", "{}"))
        case list():
            return [plain(item) for item in value]
        case _:
            return value


RITA = {"@id": "r1", "@type": "Reader", "card": "r1", "name": "Rita", "age": 30}
ROB = {"@id": "r2", "@type": "Reader", "card": "r2", "name": "Rob", "age": None}
REX = {"@id": "r3", "@type": "Reader", "card": "r3", "name": "Rex", "age": 17}
ANN = {"@id": "ann", "@type": "Author", "slug": "ann", "name": "Ann", "born": "1950-01-02"}
LOAN = {"@id": "l1", "@type": "Borrowed", "@src": "r1", "@dst": "b1", "on": "2024-01-01", "days": 1}


def follows(source: str, target: str, since: int) -> dict[str, Any]:
    """An edge whose id is made of its ends."""
    ends = {"@src": source, "@dst": target}
    return {"@id": json.dumps([source, target], **_COMPACT), "@type": "Follows", **ends, "since": since}


READS = (
    Example(
        "boolean expressions",
        """query conditions($isbns: [String]) {
            match { $b: Book  $b.pages > 100 or $b.pages is null  not ($b.isbn in $isbns) }
            return {
                $b.isbn as isbn,
                $b.pages is null as unknown,
                $b.status in ["lost", "lent"] as away,
                $b.price > 1.0 and $b.pages != 300 as dear
            }
            order { isbn }
        }""",
        [
            {"isbn": "b2", "unknown": True, "away": True, "dear": None},
            {"isbn": "b3", "unknown": False, "away": None, "dear": False},
        ],
        {"isbns": ["b1"]},
        {"isbn": "string", "unknown": "bool", "away": "bool", "dear": "bool"},
        "node:Book",
    ),
    Example(
        "blocks as values",
        """query blocks() {
            match { $r: Reader  exists { $r borrowed $_ } }
            return {
                $r.card as card,
                exists { $r follows $x  $x.age > 10 } as followed,
                count { $r borrowed $_ } as loans,
                max($l.on) { $r $l:borrowed $_ } as latest
            }
            order { count { $r borrowed $_ } desc }
        }""",
        [
            {"card": "r1", "followed": False, "loans": 2, "latest": "2024-02-01"},
            {"card": "r2", "followed": True, "loans": 1, "latest": None},
        ],
        kinds={"card": "string", "followed": "bool", "loans": "bigint", "latest": "date"},
        reads="edge:Borrowed edge:Follows node:Book node:Reader",
    ),
    Example(
        "edge selection",
        """query selected() {
            match { $b: Book { isbn: "b1" }  $b $e:(wroteBy | stands) $x }
            return { $e.@type as edge, $e.@id as id, $e.@src as src, $e.@dst as dst, $x.@type as kind }
            order { edge }
        }""",
        [
            {"edge": "Stands", "id": "t1", "src": "b1", "dst": "s1", "kind": "Shelf"},
            {"edge": "WroteBy", "id": "w1", "src": "b1", "dst": "ann", "kind": "Author"},
        ],
        kinds={"edge": "string", "id": "string", "src": "string", "dst": "string", "kind": "string"},
        reads="edge:Stands edge:WroteBy node:Author node:Book node:Shelf",
    ),
    Example(
        "edge selection",
        """query around() {
            match { $b: Book { isbn: "b1" }  $x: *  $b * $x }
            return { $x.@type as kind, $x.@id as id }
            order { kind, id }
        }""",
        [{"kind": "Author", "id": "ann"}, {"kind": "Reader", "id": "r1"}, {"kind": "Shelf", "id": "s1"}],
        kinds={"kind": "string", "id": "string"},
        reads="edge:Borrowed edge:Stands edge:WroteBy node:Author node:Book node:Reader node:Shelf",
    ),
    Example(
        "entities as objects",
        """query objects() {
            match { $r: Reader  $r $l:borrowed $b  $b.status = "lost"  $b wroteBy $a }
            return { $r, $l as loan, [$a] as authors, record(author: $a, days: $l.days) as facts }
        }""",
        [{"r": RITA, "loan": LOAN, "authors": [ANN], "facts": {"author": ANN, "days": 1}}],
        kinds={"r": "object", "loan": "object", "authors": "list", "facts": "record"},
        reads="edge:Borrowed edge:WroteBy node:Author node:Book node:Reader",
    ),
    Example(
        "order by any expression",
        """query ordered() {
            match { $b: Book }
            return { $b.isbn as isbn }
            order { coalesce($b.pages, 0) % 7 desc nulls last, lower($b.title) }
        }""",
        [{"isbn": "b3"}, {"isbn": "b1"}, {"isbn": "b2"}],
        kinds={"isbn": "string"},
        reads="node:Book",
    ),
    Example(
        "order by any expression",
        """query extremes() {
            match { $b: Book  $b wroteBy $a }
            return { $a.name as author, min($b.title) as first, max($b.pages) as longest, max($a.born) as born }
            order { max($b.pages) desc nulls first }
        }""",
        [
            {"author": "Bob", "first": "Two", "longest": None, "born": None},
            {"author": "Ann", "first": "One", "longest": 300, "born": "1950-01-02"},
        ],
        kinds={"author": "string", "first": "string", "longest": "int", "born": "date"},
        reads="edge:WroteBy node:Author node:Book",
    ),
    Example(
        "edge keys, id as a name",
        """query keyed() {
            match { $s: Shelf { id: "s1" }  $r: Reader { card: "r1" }  $r $f:follows $_ }
            return { $s.id as id, $s.@id as "the id", $f.@id as edge }
        }""",
        [{"id": "s1", "the id": "s1", "edge": '["r1","r2"]'}],
        kinds={"id": "string", "the id": "string", "edge": "string"},
        reads="edge:Follows node:Reader node:Shelf",
    ),
    Example(
        "stages, unwind",
        """query stages($cards: [String]) {
            unwind $cards as $card
            match { $r: Reader { card: $card }  $r borrowed $b }
            return { $r, count($b) as loans }
            order { loans desc }
            limit 2
            then
            match { $loans >= 1  $r follows $f }
            return { $r.name as reader, $loans * 10 as points, $f.name as follows }
            order { points desc }
        }""",
        [{"reader": "Rita", "points": 20, "follows": "Rob"}, {"reader": "Rob", "points": 10, "follows": "Rex"}],
        {"cards": ["r2", "r1", "nobody"]},
        {"reader": "string", "points": "bigint", "follows": "string"},
        "edge:Borrowed edge:Follows node:Book node:Reader",
    ),
    Example(
        "union",
        """query names() {
            {
                match { $r: Reader  $r.age > 20 } return { $r.name as name, $r.age as n }
                union
                match { $a: Author } return { $a.name as name, null as n }
            }
            then
            return { $name as name, $n as n }
            order { name }
        }""",
        [{"name": "Ann", "n": None}, {"name": "Bob", "n": None}, {"name": "Rita", "n": 30}],
        kinds={"name": "string", "n": "int"},
        reads="node:Author node:Reader",
    ),
    Example(
        "optional",
        """query lost_books() {
            match { $r: Reader  optional { $r $l:borrowed $b  $b.status = "lost" } }
            return { $r.name as name, $b.title as lost, $l as loan }
            order { name }
        }""",
        [
            {"name": "Rex", "lost": None, "loan": None},
            {"name": "Rita", "lost": "One", "loan": LOAN},
            {"name": "Rob", "lost": None, "loan": None},
        ],
        kinds={"name": "string", "lost": "string", "loan": "object"},
        reads="edge:Borrowed node:Book node:Reader",
    ),
    Example(
        "distinct, collect, aggregates",
        """query collected() {
            match { $r: Reader  optional { $r $l:borrowed $b } }
            return { $r, $b, $l }
            order { $r.card, $b.isbn }
            then
            return {
                count(*) as rows,
                count(distinct $b) as books,
                collect(distinct $r.name) as names,
                collect($b.pages) as pages,
                stdevp($l.days) as spread,
                percentile_disc($l.days, 0.5) as middle
            }
        }""",
        [
            {
                "rows": 4,
                "books": 2,
                "names": ["Rita", "Rob", "Rex"],
                "pages": [100],
                "spread": 0.5,
                "middle": 1,
            }
        ],
        kinds={
            "rows": "bigint",
            "books": "bigint",
            "names": "list",
            "pages": "list",
            "spread": "float",
            "middle": "int",
        },
        reads="edge:Borrowed node:Book node:Reader",
    ),
    Example(
        "distinct, collect, aggregates",
        """query states() {
            match { $r: Reader  $r borrowed $b }
            return distinct { $b.status as status }
            order { status }
        }""",
        [{"status": "lent"}, {"status": "lost"}],
        kinds={"status": "string"},
        reads="edge:Borrowed node:Book node:Reader",
    ),
    Example(
        "limit and offset parameters",
        """query page($size: I64, $skip: I32) {
            match { $b: Book }
            return { $b.isbn as isbn }
            order { isbn }
            limit $size
            offset $skip
        }""",
        [{"isbn": "b2"}],
        {"size": 1, "skip": 1},
        {"isbn": "string"},
        "node:Book",
    ),
    Example(
        "arithmetic, functions, case",
        """query calculated() {
            match { $b: Book { isbn: "b1" }  $b wroteBy $a }
            return {
                $b.pages / 7 + 1 as weeks,
                -$b.price * 2 as debt,
                upper(left($b.title, 2)) + "-" + to_string($b.pages % 7) as label,
                case when $b.pages is null then "?" when $b.pages > 99 then "thick" else "thin" end as size,
                map($t in $b.tags where $t != "y" : $t + $t) as tags,
                add_days($a.born, 30) as later,
                record(year: year($a.born), all: any($t in $b.tags : $t = "x")) as facts,
                9007199254740993 as big,
                0.0 / 0.0 as nan
            }
        }""",
        [
            {
                "weeks": 15,
                "debt": -3.0,
                "label": "ON-2",
                "size": "thick",
                "tags": ["xx"],
                "later": "1950-02-01",
                "facts": {"year": 1950, "all": True},
                "big": 9007199254740993,
                "nan": "NaN",
            }
        ],
        kinds={
            "weeks": "bigint",
            "debt": "float",
            "label": "string",
            "size": "string",
            "tags": "list",
            "later": "date",
            "facts": "record",
            "big": "bigint",
            "nan": "float",
        },
        reads="edge:WroteBy node:Author node:Book",
    ),
    Example(
        "paths, each",
        """query ways($since: I32) {
            match {
                $a: Reader { card: "r1" }
                $b: Reader { card: "r3" }
                path $p: shortest $a follows{1,6} $b each $f $_ { $f.since <= $since }
            }
            return { length($p) as steps, map($n in nodes($p) : $n.name) as names, $p as way }
        }""",
        [
            {
                "steps": 2,
                "names": ["Rita", "Rob", "Rex"],
                "way": {
                    "length": 2,
                    "nodes": [RITA, ROB, REX],
                    "edges": [follows("r1", "r2", 1), follows("r2", "r3", 2)],
                },
            }
        ],
        {"since": 2},
        {"steps": "bigint", "names": "list", "way": "path"},
        "edge:Follows node:Reader",
    ),
    Example(
        "paths, each",
        """query reached() {
            match { $a: Reader { card: "r2" }  $a follows{0,1} $b  $b follows{2,} $c }
            return { $b.card as near, collect($c.card) as far }
            order { near }
        }""",
        [{"near": "r2", "far": ["r1"]}, {"near": "r3", "far": ["r2"]}],
        kinds={"near": "string", "far": "list"},
        reads="edge:Follows node:Reader",
    ),
    Example(
        "variables of several types",
        """query named($q: String) {
            match { $x: (Author | Reader)  lower($x.name) contains $q  $y: Named  $y.name = $x.name }
            return { $x, $x.@type as kind, $x.age? as age, $x.born? as born, $y.@id as y }
            order { $x.name }
        }""",
        [
            {"x": ANN, "kind": "Author", "age": None, "born": "1950-01-02", "y": "ann"},
            {"x": RITA, "kind": "Reader", "age": 30, "born": None, "y": "r1"},
        ],
        {"q": "a"},
        {"x": "object", "kind": "string", "age": "int", "born": "date", "y": "string"},
        "node:Author node:Reader",
    ),
    Example(
        "explain statements",
        """explain query plan($age: I32) {
            match { $r: Reader  $r.age > $age }
            return { $r.name as name }
            order { name }
            limit 2
        }""",
        [
            {"tree": "plan", "depth": 0, "node": "Project", "detail": '{"text":"Project name","rows":1}'},
            {"tree": "plan", "depth": 1, "node": "Limit", "detail": '{"text":"Limit 2","rows":1}'},
            {"tree": "plan", "depth": 2, "node": "Sort", "detail": '{"text":"Sort by $r.name, $r.@id","rows":1}'},
            {
                "tree": "plan",
                "depth": 3,
                "node": "Scan",
                "detail": '{"text":"Scan $r: Reader where $r.age > $age","rows":1,"notes":["in the scan: `age` > 20"]}',
            },
        ],
        {"age": 20},
    ),
)
STORED = tuple(example for example in READS if not example.text.startswith("explain"))
"""What may be stored, or be a handle: `explain query` is a statement."""

WRITES = (
    Write(
        "writes from a match",
        """query lend_all($cards: [String], $day: Date) {
            unwind $cards as $c
            match { $r: Reader { card: $c }  $b: Book { isbn: "b3" }  not { $r borrowed $b } }
            insert Borrowed { from: $r, to: $b, on: $day, days: size($r.name) }
            update $b set { status: "lent" }
        }""",
        (1, 2),
        """query shown() {
            match { $r: Reader  $r $l:borrowed $b  $b.isbn = "b3" }
            return { $r.card as card, $l.on as on, $l.days as days, $b.status as status }
            order { card }
        }""",
        [
            {"card": "r2", "on": "2031-05-04", "days": 3, "status": "lent"},
            {"card": "r3", "on": "2031-05-04", "days": 3, "status": "lent"},
        ],
        {"cards": ["r3", "nobody", "r2"], "day": "2031-05-04"},
        "edge:Borrowed node:Book node:Reader",
        "edge:Borrowed node:Book",
    ),
    Write(
        "writes from a match",
        """query forget_lost() {
            match { $r: Reader  $r $l:borrowed $b  $b.status = "lost" }
            delete $l
        }""",
        (0, 1),
        "query shown() { match { $r: Reader  $r $l:borrowed $_ } return { $l.@id as id } order { id } }",
        [{"id": "l2"}, {"id": "l3"}],
        reads="edge:Borrowed node:Book node:Reader",
        writes="edge:Borrowed",
    ),
    Write(
        "edge update",
        """query prolong($least: I32) {
            update Borrowed set { days: days * 2 + 1 } where days >= $least or @src = "r2"
        }""",
        (0, 2),
        """query shown() {
            match { $r: Reader  $r $l:borrowed $_ }
            return { $l.@id as id, $l.days as days }
            order { id }
        }""",
        [{"id": "l1", "days": 1}, {"id": "l2", "days": 5}, {"id": "l3", "days": None}],
        {"least": 2},
        "edge:Borrowed",
        "edge:Borrowed",
    ),
    Write(
        "insert new, upsert",
        """query register($card: String) {
            insert new Reader { card: $card, name: "Zoe" }
            upsert Reader { card: "r1", name: "Ria" }
        }""",
        (2, 0),
        """query shown() {
            match { $r: Reader  $r.card in ["r1", "r9"] }
            return { $r }
            order { $r.card }
        }""",
        [
            {"r": RITA | {"name": "Ria"}},
            {"r": {"@id": "r9", "@type": "Reader", "card": "r9", "name": "Zoe", "age": None}},
        ],
        {"card": "r9"},
        "node:Reader",
        "node:Reader",
    ),
    Write(
        "edge keys, id as a name",
        """query befriend() {
            insert Follows { from: "r1", to: "r2", since: 9 }
            insert Shelf { id: "s2", room: "B" }
        }""",
        (1, 1),
        """query shown() {
            match { $r: Reader { card: "r1" }  $r $f:follows $_  $s: Shelf }
            return { $f, $s.id as shelf }
            order { shelf }
        }""",
        [{"f": follows("r1", "r2", 9), "shelf": "s1"}, {"f": follows("r1", "r2", 9), "shelf": "s2"}],
        reads="edge:Follows node:Reader node:Shelf",
        writes="edge:Follows node:Shelf",
    ),
)


@dataclass(frozen=True)
class Refusal:
    """A calculation or a write that fails on the data, with what its error says beside the message."""

    text: str
    type: str
    fields: dict[str, Any]

    @property
    def writes(self) -> bool:
        return "return" not in self.text

    @property
    def name(self) -> str:
        return name_of(self.text)


def evaluation(text: str, rule: str, expression: str, **entity: str) -> Refusal:
    fields = {"rule": rule, "expression": expression, "type_name": None, "entity_id": None, **entity}
    return Refusal(text, "evaluation", fields)


REFUSALS = (
    evaluation(
        "query by_zero() { match { $b: Book } return { $b.pages / ($b.pages - 100) as n } }",
        "division_by_zero",
        "$b.pages / ($b.pages - 100)",
    ),
    evaluation(
        "query too_much() { match { $b: Book } return { $b.pages * 9223372036854775807 as n } }",
        "arithmetic_overflow",
        "$b.pages * 9223372036854775807",
    ),
    evaluation(
        "query before() { match { $b: Book } return { left($b.title, 0 - $b.pages) as t } }",
        "bad_argument",
        "left($b.title, 0 - $b.pages)",
    ),
    evaluation(
        'query pattern() { match { $b: Book } return { matches($b.title, $b.title + "(") as t } }',
        "invalid_pattern",
        'matches($b.title, $b.title + "(")',
    ),
    evaluation(
        'query twice() { match { $r: Reader  $b: Book { isbn: "b1" } } update $b set { title: $r.name } }',
        "ambiguous_write",
        "$r.name",
        type_name="Book",
        entity_id="b1",
    ),
)


STORED_TEXT = "\n".join(example.text for example in (*STORED, *WRITES))
"""One file of all queries."""

# Statements


@dataclass(frozen=True)
class Statement:
    """A text to `mutate` with, and the members of its receipt that don't differ from one run to the next. With a
    branch it is a query."""

    text: str
    receipt: dict[str, Any]
    branch: str | None = None


def statements(prefix: str) -> list[Statement]:
    """A whole life of branches. The names begin with a prefix, so that tests can share a graph."""
    work, copy = f"{prefix}/work", f"{prefix}-copy"
    nothing: dict[str, Any] = {"affected_nodes": 0, "affected_edges": 0}

    def receipt(branch: str, name: str, kind: str, **merge: str) -> dict[str, Any]:
        return {"branch": branch, "query_name": f"branch {name}", **nothing, "outcome": {"kind": kind, **merge}}

    add = f'query add() {{ insert Shelf {{ id: "{prefix}" }} }}'
    added = {"branch": work, "query_name": "add", "affected_nodes": 1, "affected_edges": 0}
    return [
        Statement(f'branch create "{work}" from main', receipt(work, "create", "created")),
        Statement(f'branch create "{copy}" // from main\n;', receipt(copy, "create", "created")),
        Statement(add, added, work),
        Statement(f'branch merge "{work}" into "{copy}"', receipt(copy, "merge", "merged", merge="fast_forward")),
        Statement(f'branch merge "{work}" into "{copy}"', receipt(copy, "merge", "merged", merge="already_up_to_date")),
        Statement(f'branch delete "{work}"', receipt(work, "delete", "deleted")),
        Statement(f'branch delete "{copy}"', receipt(copy, "delete", "deleted")),
    ]


def lasting(receipt: dict[str, Any]) -> dict[str, Any]:
    """The members of a receipt that a `Statement` has. Of the statements, only a merge that wrote has a commit."""
    kept = {name: value for name, value in receipt.items() if name not in ("commit", "actor_id", "note")}
    outcome = receipt.get("outcome", {"merge": "fast_forward"})
    assert (receipt["commit"] is not None) is (outcome.get("merge") == "fast_forward")
    return kept


_EXPLAIN = "explain query q() { match { $r: Reader } return { $r.card as card } }"

WRONG_READS: list[tuple[dict[str, Any], str]] = [
    ({"query": "branch create x"}, "`branch create` changes branches: use POST /mutate"),
    ({"query": "branch merge x into y"}, "`branch merge` changes branches: use POST /mutate"),
    ({"query": "branch list", "name": "q"}, "`branch list` stands alone: leave out the name of a query"),
    ({"query": "branch list", "params": {"x": 1}}, "`branch list` stands alone: leave out parameters"),
    ({"query": "branch list", "branch": "main"}, "`branch list` stands alone: leave out a branch or snapshot to read"),
    ({"query": f"branch list\n{_EXPLAIN.removeprefix('explain ')}"}, "Q004"),
    ({"query": 'explain query q() { insert Shelf { id: "x" } }'}, "contains mutations"),
    ({"query": _EXPLAIN, "name": "other"}, "query 'other' not found"),
    ({"query": _EXPLAIN.replace("$r.card", "$r.cart")}, "did you mean 'card'?"),
    ({"query": "set traversal_work = 3"}, "Q003"),
    ({"query": "query q() { match { $r: Reader } return { $r.card, $r.card } }"}, "T25"),
]
"""What is sent to be read, and a part of the error: statements at the wrong door or with something beside them, and
two columns of one name."""

WRONG_WRITES: list[tuple[dict[str, Any], str]] = [
    ({"query": "branch list"}, "`branch list` reads: use POST /query"),
    ({"query": _EXPLAIN}, "`explain` reads: use POST /query"),
    ({"query": "branch create x", "name": "q"}, "`branch create` stands alone: leave out the name of a query"),
    ({"query": "branch create x", "params": {"x": 1}}, "`branch create` stands alone: leave out parameters"),
    ({"query": "branch create x", "branch": "main"}, "`branch create` stands alone: leave out a branch to write to"),
    ({"query": "branch delete nobody"}, "branch 'nobody' not found"),
    ({"query": "branch create main"}, "branch 'main'"),
]
