"""Every type error of the query language by its code, what is accepted beside it, and which one comes first."""

from __future__ import annotations

import pytest

from .query_archive import findings, read, write

ANY = "$a: Person  $p: Paper  $s: Slot"
BOUND = f"{ANY}  $a $w:wrote $p"


def first(text: str) -> tuple[str, str]:
    found = findings(text)
    assert found, f"expected a type error in: {text}"
    return found[0].code, found[0].message


REJECTED = [
    # T1: a binding names a node type.
    ("T1", read("$b: Book"), "unknown node type 'Book'"),
    ("T1", read("$b: Named"), "interface"),
    ("T1", read("$b: Wrote"), "edge type"),
    # T2: a pin names a property.
    ("T2", read("$p: Paper { isbn: 1 }"), "has no property 'isbn'"),
    ("T2", read('$p: Paper { id: "x" }'), "has no property 'id'"),
    # T3: a literal fits its property.
    ("T3", read("$p: Paper { doi: 3 }"), "has type String but got I64"),
    ("T3", read('$p: Paper { pages: "3" }'), "has type I32? but got String"),
    ("T3", read('$p: Paper { added: date("2024-01-01") }'), "has type DateTime? but got Date"),
    ("T3", read('$p: Paper { state: "lost" }'), "expects one of [draft, final, withdrawn]"),
    ("T3", read('$p: Paper { scan: "base64:" }'), "Blob"),
    ("T3", read("$p: Paper { scan: $x }", params="$x: Blob"), "Blob"),
    ("T3", read('$p: Paper { keywords: ["a"] }'), "list equality is not supported"),
    ("T3", read("$p: Paper { keywords: 3 }"), "has type [String]? but got I64"),
    ("T3", read("$p: Paper { vec: [1, 2, 3] }"), "list of 3 numbers"),
    ("T3", read("$p: Paper { doi: [1] }"), "but got [I64]"),
    ("T3", write('update Paper set { pages: "x" } where doi = "a"'), "has type I32? but got String"),
    ("T3", write('update Paper set { state: "gone" } where doi = "a"'), "expects one of"),
    ("T3", write('update Paper set { scan: "base64:AA==" } where doi = "a"'), "no literal"),
    ("T3", write('update Paper set { vec: [1.0, 2.0] } where doi = "a"'), "list of 2 numbers"),
    ("T3", write('update Paper set { vec: [] } where doi = "a"'), "Vector(4)"),
    ("T3", write('update Paper set { ratings: [1, 2.5] } where doi = "a"'), "fraction"),
    ("T3", write("delete Paper where doi = 3"), "has type String but got I64"),
    ("T3", write('delete Paper where state = "gone"'), "expects one of"),
    ("T3", write("delete Wrote where from = 3"), "has type String but got I64"),
    # T4: a traversal names an edge.
    ("T4", read("$a: Person  $a reviewed $p"), "unknown edge type 'reviewed'"),
    # T5: endpoints have the types of the edge.
    ("T5", read("$s: Slot  $s wrote $p"), "has type Slot, but edge 'Wrote' expects Person or Paper"),
    ("T5", read("$s: Slot  $a wrote $s"), "has type Slot"),
    ("T5", read("$a: Person  $b: Person  $a wrote $b"), "'$b' has type Person, but edge 'Wrote' expects Paper"),
    ("T5", read("$x wrote $x"), "'$x' has type Person, but edge 'Wrote' expects Paper"),
    # T6: a property access finds its variable and its property.
    ("T6", read(ANY, "$z.name"), "variable '$z' is not bound"),
    ("T6", read(ANY, "$p.id"), "has no property 'id'"),
    ("T6", read(BOUND, "$w.src"), "edge type 'Wrote' has no property 'src'"),
    ("T6", read("$p.pages > 3  $p: Paper"), "variable '$p' is not bound"),
    ("T6", read("$a: Person  not { $a wrote $p }", "$p.doi"), "not bound"),
    ("T6", read(ANY, "1 as one", "order { $p.isbn }"), "has no property"),
    ("T6", read(ANY, "count($p.isbn)"), "has no property"),
    ("T6", read(ANY + ' search($p.isbn, "x")'), "has no property"),
    ("T6", read(ANY + " search($p.title, $p.isbn)"), "has no property"),
    ("T6", read(ANY + ' fuzzy($p.title, "x", $p.isbn)'), "has no property"),
    ("T6", read(ANY, "rrf(bm25($p.isbn, $q), bm25($p.title, $q))", params="$q: String"), "has no property"),
    ("T6", read(ANY, "nearest($p.vec, $p.isbn)"), "has no property"),
    ("T6", read(ANY, "$q.x", params="$q: String"), "variable '$q' is not bound"),
    # T7: operands meet.
    ("T7", read(ANY + ' $p.pages = "3"'), "cannot compare I32? with String"),
    ("T7", read(ANY + ' $p.added > date("2024-01-01")'), "cannot compare DateTime? with Date"),
    ("T7", read(ANY + " $p.pages = true"), "cannot compare I32? with Bool"),
    ("T7", read(ANY + " $p = $x", params="$x: String"), "scalar operands"),
    ("T7", read(ANY + " $p.pages = pages"), "scalar operands"),
    ("T7", read(ANY + " $p.pages = count($p)"), "scalar operands"),
    ("T7", read(ANY + " $p.vec = $x", params="$x: Vector(4)"), "scalar operands"),
    ("T7", read(ANY + " $p.doi = $x", params="$x: Blob"), "scalar operands"),
    ("T7", read(ANY + " $x = $y", params="$x: Blob, $y: Blob"), "scalar operands"),
    ("T7", read(ANY + " $p.keywords = $x", params="$x: [String]"), "list operands"),
    ("T7", read(ANY + " $p.keywords contains $x", params="$x: [String]"), "contains requires a scalar right"),
    ("T7", read(ANY + " $p.keywords contains 3"), "cannot compare the items of [String]? with I64"),
    ("T7", read(ANY + " $p.title contains 3"), "requires a String right operand"),
    ("T7", read(ANY + ' $p.pages contains "3"'), "requires a String or list left operand"),
    ("T7", read(ANY + ' $p.keywords starts_with "3"'), "list operands"),
    ("T7", read(ANY + " $p.title starts_with now()"), "requires a String right operand"),
    ("T7", read("$p: Paper { pages: $x }", params="$x: String"), "cannot assign/compare String with I32?"),
    ("T7", read("$p: Paper { keywords: $x }", params="$x: [String]"), "cannot assign/compare [String]"),
    ("T7", read("$p: Paper { title: now() }"), "cannot assign/compare DateTime"),
    ("T7", write('update Paper set { title: now() } where doi = "a"'), "cannot assign/compare DateTime"),
    ("T7", write('update Paper set { pages: $x } where doi = "a"', "$x: Date"), "cannot assign/compare Date"),
    ("T7", write('update Paper set { vec: $x } where doi = "a"', "$x: Vector(3)"), "Vector(3)"),
    ("T7", write('update Paper set { moments: now() } where doi = "a"'), "cannot assign/compare DateTime"),
    ("T7", write("delete Paper where pages = $x", "$x: String"), "cannot assign/compare String"),
    # T8: aggregates of the right kind.
    ("T8", read(ANY, "sum($p.title)"), "requires a numeric type"),
    ("T8", read(ANY, "avg($p.ratings)"), "requires a numeric type"),
    ("T8", read(ANY, "min($p.added)"), "requires a numeric or string type"),
    ("T8", read(ANY, "max($a.active)"), "requires a numeric or string type"),
    ("T8", read(ANY, "max($p.vec)"), "requires a numeric or string type"),
    # T9: negations reach out; grouping keys are keys.
    ("T9", read("$a: Person  not { $x knows $y }"), "must reference"),
    ("T9", read("$a: Person  not { $x: Paper  not { $a wrote $x } }"), "must reference"),
    ("T9", read("$a: Person  not { $q = 3 }", params="$q: I32"), "must reference"),
    ("T9", read("$a: Person  not { $p: Paper  nearest($p.vec, $q) < 1.0 }", params="$q: String"), "must reference"),
    ("T9", read(ANY, "count($p), 3"), "property accesses or variables"),
    ("T9", read(ANY, "now(), count($p)"), "property accesses or variables"),
    # T10, T11: mutations name types and properties.
    ("T10", write('insert Book { isbn: "x" }'), "unknown node/edge type 'Book'"),
    ("T10", write('delete Named where name = "x"'), "unknown node/edge type"),
    ("T11", write('insert Paper { isbn: "x" }'), "has no property 'isbn'"),
    ("T11", write('update Paper set { isbn: "x" } where doi = "a"'), "has no property 'isbn'"),
    ("T11", write('delete Paper where isbn = "x"'), "has no property 'isbn'"),
    ("T11", write('delete Paper where from = "x"'), "has no property 'from'"),
    ("T11", write('delete Wrote where src = "x"'), "has no property 'src'"),
    ("T11", write("delete Paper where scan = $x", "$x: Blob"), "WHERE"),
    # T12: inserts are complete.
    ("T12", write('insert Paper { doi: "x", title: "t" }'), "must provide non-nullable property 'state'"),
    ("T12", write("insert Memo { topic: [1, 2, 3] }"), "'text'"),
    ("T12", write('insert Note { tag: "x" }'), "'gist' or its embed source 'body'"),
    ("T12", write('insert Wrote { from: "a" }'), "required endpoint 'to'"),
    ("T12", write('insert Reserved { from: "a", to: "b" }'), "non-nullable property 'at'"),
    # T13 to T16.
    ("T13", write('update Paper set { pages: 1, pages: 2 } where doi = "a"'), "duplicate assignment"),
    ("T13", write('insert Wrote { from: "a", from: "b", to: "c" }'), "duplicate assignment of 'Wrote.from'"),
    ("T14", write('update Paper set { pages: $n } where doi = "a"'), "must be a declared query parameter"),
    ("T14", write("delete Paper where doi = $d"), "must be a declared query parameter"),
    ("T14", write("insert Wrote { from: $a, to: $b }", "$b: String"), "'$a' must be a declared"),
    ("T14", read("$a: Person  $p: Paper { doi: $a }"), "must be a declared query parameter"),
    ("T15", read("$a: Person  $a knows{0,2} $b"), "1 or more"),
    ("T15", read("$a: Person  $a knows{3,2} $b"), "end before they begin"),
    ("T15", read("$a: Person  $a knows{1,} $b"), "unbounded traversal is disabled"),
    ("T15", read(ANY, "1 as one", "order { nearest($z.vec, $q) } limit 1", "$q: Vector(4)"), "'$z' is not bound"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vector, $q) } limit 1", "$q: Vector(4)"), "has no property"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.title, $q) } limit 1", "$q: Vector(4)"), "a Vector property"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vec, $q) } limit 1", "$q: Vector(3)"), "needs Vector(4)"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vec, [1, 2]) } limit 1"), "4 numbers but got 2"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vec, $q) } limit 1", "$q: [F32]"), "but got [F32]"),
    ("T15", read(ANY, "1 as one", 'order { nearest($p.vec, ["a", "b", "c", "d"]) } limit 1'), "but got [String]"),
    ("T16", write('update Wrote set { note: "x" } where from = "a"'), "not supported"),
    # T17, T18, T21: rankings and limits.
    ("T17", read(ANY, "$p.doi", "order { nearest($p.vec, $q) }", "$q: Vector(4)"), "requires a limit"),
    ("T17", read(ANY, "nearest($p.vec, $q) as d", "order { d }", "$q: Vector(4)"), "requires a limit"),
    ("T18", read(ANY, "$p.doi as doi", "order { nearest($p.vec, $q), doi } limit 3", "$q: Vector(4)"), "together"),
    ("T21", read(ANY, "1", "order { rrf(nearest($p.vec, $q), bm25($p.title, $q)) }", "$q: String"), "a limit"),
    (
        "T21",
        read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q)) as r", "order { r desc }", "$q: String"),
        "a limit",
    ),
    ("T21", read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q), 0)", params="$q: String"), "greater than 0"),
    ("T21", read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q), 1.5)", params="$q: String"), "integer"),
    # T19, T20: text search.
    ("T19", read(ANY + ' search($p.pages, "x")'), "search() field must be String but got I32?"),
    ("T19", read(ANY + " search($p.title, 3)"), "search() query must be String"),
    ("T19", read(ANY + ' search($p.keywords, "x")'), "must be String"),
    ("T19", read(ANY + ' search($p, "x")'), "must be String but got node 'Paper'"),
    ("T19", read(ANY + ' search($p.scan, "x")'), "must be String but got Blob?"),
    ("T19", read(ANY + ' fuzzy($p.title, "x", 1.5)'), "integer scalar"),
    ("T19", read(ANY + ' fuzzy($p.title, "x", "1")'), "integer scalar"),
    ("T20", read(ANY + ' match_text($p.pages, "x")'), "match_text() field must be String"),
    ("T20", read(ANY, "1 as one", "order { bm25($p.pages, $q) }", "$q: String"), "bm25() field must be String"),
    ("T20", read(ANY, "1 as one", "order { bm25($p.title, 3) }"), "bm25() query must be String"),
    # T22, T23: undirected and bound edges.
    ("T22", read("$a: Person  $a <wrote> $p"), "asymmetric"),
    ("T23", read("$a: Person  $a $w:knows{1,2} $b"), "multi-hop"),
    ("T23", read("$a: Person  $a $_:knows{1,2} $b"), "not one edge"),
    ("T23", read("$a: Person  $a $a:knows $b"), "distinct"),
    ("T23", read("$a: Person  $a $b:knows $b"), "distinct"),
    ("T23", read("$a: Person  $p: Paper  $a $p:knows $b"), "already in use"),
    ("T23", read("$a: Person  $a $w:wrote $p  $a $w:knows $b"), "already in use"),
    ("T23", read("$a: Person  $a $q:wrote $p", params="$q: String"), "already in use"),
    ("T23", read(BOUND + "  $w cites $x"), "can't be an endpoint"),
    ("T23", read(BOUND + "  $p cites $w"), "can't be an endpoint"),
    ("T23", read(BOUND + "  $w: Paper"), "already names an edge"),
    ("T23", read(BOUND, "$w"), "can't stand alone"),
    ("T23", read(BOUND, "count($w)"), "can't stand alone"),
    ("T23", read(BOUND + "  $w = 3"), "can't stand alone"),
    ("T23", read(BOUND + '  search($w.note, "x")'), "node properties"),
    ("T23", read(BOUND, "1 as one", 'order { bm25($w.note, "x") }'), "node properties"),
    ("T23", read("$a: Person  not { $a $w:wrote $p }  $a $w:wrote $q"), "inside a negation"),
    ("T23", read("$a: Person  not { $a $w:wrote $p }  $w: Paper"), "inside a negation"),
    # T24: Blobs are not read.
    # T25: a row has one value by each name.
    ("T25", read(ANY, "1 as x, 2 as x"), "two columns are called 'x'"),
    ("T25", read(ANY, "1, 2"), "two columns are called 'literal'"),
    ("T25", read(ANY, "$p.doi, $p.doi"), "two columns are called 'p.doi'"),
    ("T25", read(ANY, "$p.pages, sum($p.pages)"), "an aggregate without a name has that of its argument"),
    ("T25", read(ANY, "$p, count($p)"), "two columns are called 'p'"),
    ("T24", read(ANY, "$p.scan"), "not available as a .gq read value"),
    ("T24", read(BOUND, "$w.receipt"), "not available"),
    ("T24", read(ANY, "$x", params="$x: Blob"), "not available"),
    ("T24", read(ANY, "count($p.scan)"), "not available"),
    ("T24", read(ANY, "1 as one", "order { $p.scan }"), "not available"),
    ("T24", read(ANY + " $p.scan = $x", params="$x: Blob"), "not available"),
    ("T24", read(ANY + " $x = $p.scan", params="$x: String"), "not available"),
    # T36: a word of another language where a value is returned.
    ("T36", read(ANY, "distinct $p.doi"), "'distinct' is not a value"),
    # Without a code of their own.
    ("type error", read(ANY, params="$__nanograph_now: DateTime"), "reserved"),
    ("type error", read(ANY, params="$x: Text"), "unknown type 'Text'"),
    ("type error", read(ANY, params="$x: Vector"), "dimension"),
    ("type error", read(ANY, params="$x: String(4)"), "unknown type 'String(4)'"),
    ("type error", read(ANY, params="$x: Vector(0)"), "Vector dimension must be greater than zero"),
    ("type error", read(ANY, params="$x: Vector(2147483648)"), "exceeds maximum supported"),
    ("type error", read(ANY, params="$x: I32, $x: I64"), "declared twice"),
    ("type error", read("$p: Paper  $p: Person"), "already bound to another type"),
    ("type error", read("$a wrote $p  $a: Paper"), "already bound to another type"),
    ("type error", read("$_: Paper"), "never binds"),
    ("type error", read("$a: Person  not { $a wrote $x }  $x: Slot"), "bound to another type outside"),
    ("type error", read("$a: Person  not { $a wrote $p  not { $p cites $x } }  $x: Slot"), "another type outside"),
    ("type error", read(ANY, "$z"), "variable '$z' is not bound"),
    ("type error", read(ANY, "[1, [2]]"), "another list"),
    ("type error", read(ANY, '[1, "a"]'), "mixes I64 and String"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "query", "message"), REJECTED)
def test_rejected(code: str, query: str, message: str) -> None:
    found_code, found_message = first(query)
    assert found_code == code, found_message
    assert message in found_message


def test_every_code_is_covered() -> None:
    assert {code for code, _, _ in REJECTED} == {f"T{n}" for n in range(1, 26)} | {"T36", "type error"}


ACCEPTED = [
    # Bindings and pins.
    read("$p: Paper { keywords: \"a\", moments: now(), added: now() }"),
    read("$p: Paper { pages: 2.5, price: 3, big: $x }", params="$x: F32"),
    read("$p: Paper { state: $x }", params="$x: String"),
    read("$p: Paper { vec: [1, 2, 3, 4.5] }"),
    read("$p: Paper { vec: $x }", params="$x: Vector(4)"),
    read("$p: Paper  $p: Paper { doi: \"x\" }"),
    read("$p: Paper", "$p, $p.doi", params="$p: String"),
    # Traversals: lookup, direction, anonymous ends, bounds.
    read("$a: Person  $a wROTE $p"),
    read("$p: Paper  $p wrote $a  $a.name = \"x\""),
    read("$a wrote $p  $a: Person"),
    read("$_ wrote $_  $_ wrote $_"),
    read("$a: Person  $a <knows>{1,4} $b  $a $k:<knows> $c  $k.since > date(\"2020-01-01\")"),
    read("$a: Person  $a $_:wrote $p"),
    read("$a: Person  $a wrote{2,3} $p"),
    # Filters.
    read(ANY + " $p.pages = 2.7  $p.big > $p.price  $a.active > false  $p.state < \"m\""),
    read(ANY + ' $p.title contains "x"  "abc" contains $p.title  $p.keywords contains $p.title'),
    read(ANY + ' $p.state starts_with "f"  $p.ratings contains 2.5'),
    read(ANY + " $p.state = \"no such value\""),
    read(ANY + " $p.doi = $x  $p.pages > $y", params="$x: String?, $y: U64"),
    read(ANY + ' search($p.title, "x") = false  match_text($p.title, $q)  fuzzy($p.state, $q, $n)',
         params="$q: String, $n: I32"),
    read("1 = 1"),
    # Negation.
    read("$a: Person  not { $a wrote $_ }  not { $a: Person { age: 3 } }  not { $a.age > 3 }"),
    read("$a: Person  $a $w:wrote $p  not { $w.on > date(\"2020-01-01\") }"),
    read("$a: Person  not { search($a.name, \"x\") }"),
    read("$a: Person  not { $a wrote $p  not { $p.pages > 3 } }"),
    read("$a: Person  not { $a wrote $x }  not { $a reserved $x }  not { $a $x:knows $_ }"),
    read("$a: Person  not { $a wrote $p }  $p: Paper"),
    # Projections.
    read(ANY, "$a, $a.name, $q, 3, now(), [1, 2.5] as two, [] as none, unknown_alias", params="$q: [Date]?"),
    read(ANY, "count($p), sum($p.pages), avg($p.price), min($p.title), max($p.state), $a.name, $s"),
    read(ANY, "count($q), max($q) as most", params="$q: I32"),
    read(ANY, "sum($a), min($a) as least"),
    read(ANY, "nearest($p.vec, $q) as d, bm25($p.title, $q) as s, search($p.title, $q)", params="$q: String"),
    # Order.
    read(ANY, "$p.doi", "order { $p.title desc, $a.name asc } limit 0"),
    read(ANY, "$p.doi as doi", "order { doi, nothing_of_that_name }"),
    read(ANY, "1 as one", "order { nearest($p.vec, [1, 2, 3, 4]) } limit 1"),
    read(ANY, "1 as one", "order { nearest($p.vec, \"text\"), $p.doi } limit 1"),
    read(ANY, "nearest($p.vec, \"text\") as d", "order { d } limit 1"),
    read(ANY, "1 as one", "order { bm25($p.abstract, \"text\") }"),
    # Writes.
    write('insert Paper { doi: "x", title: "t", state: "draft", ratings: [1, 2], weights: [1, 2.5] }'),
    write('insert Paper { doi: "x", title: "t", state: "draft", price: 3, pages: 2.5, vec: [1, 2, 3, 4] }'),
    write('insert Memo { text: "x" }'),
    write('insert Memo { text: "x", topic: [1, 2, 3] }'),
    write('insert Person { handle: "x", name: "n", photo: $x }', "$x: Blob?"),
    write('insert Person { handle: "x", name: "n", photo: $x }', "$x: String"),
    write('insert Wrote { from: "a", to: "b", on: date("2024-01-01") }'),
    write("insert Wrote { to: $b, from: $a, note: $n }", "$a: String, $b: String, $n: String?"),
    write('update Person set { seen: now(), karma: 3 } where age >= 3'),
    write('update Paper set { doi: "new" } where doi = "old"'),
    write('delete Wrote where from = "a"  delete Person where born < date("2000-01-01")'),
    write('insert Wrote { from: "a", to: "b" } delete Paper where keywords = $k', "$k: [String]"),
    write('delete WROTE where from = "a"'),
]  # fmt: skip


@pytest.mark.parametrize("query", ACCEPTED)
def test_accepted(query: str) -> None:
    assert findings(query) == ()


PRECEDENCE = [
    # Operand types resolve before they are compared, the left one first.
    (read(ANY + " $p.scan = $x", params="$x: Blob"), ["T24", "T7"]),
    (read(ANY + " $p.isbn = $p.scan"), ["T6", "T24"]),
    # Projections and sort keys before limits; T21 before T17 before T18; grouping last.
    (
        read(
            ANY,
            "count($p), 3, $p.isbn",
            "order { rrf(bm25($p.title, $q), bm25($p.title, $q)), nearest($p.vec, $v), n }",
            "$q: String, $v: Vector(4)",
        ),
        ["T6", "T21", "T17", "T18", "T9"],
    ),
    # The match block before what is returned.
    (read("$b: Book  $p: Paper { isbn: 1 }", "$p.isbn", "order { $p.scan }"), ["T1", "T2", "T6", "T24"]),
    # Parameters before everything.
    (read("$b: Book", params="$x: Text"), ["type error", "T1"]),
]


@pytest.mark.parametrize(("query", "codes"), PRECEDENCE)
def test_findings_come_in_the_order_of_precedence(query: str, codes: list[str]) -> None:
    assert [finding.code for finding in findings(query)] == codes


def test_one_mistake_is_reported_once() -> None:
    """What hangs on a broken name is not reported again."""
    broken = '$b: Book  $b cites $c  $c.title = 3  search($b.title, "x")  not { $b cites $d }'
    assert findings(read(broken, "$b, $b.title, count($b)", "order { $b.title }"))[0].code == "T1"
    query = read("$b: Book  $b.pages > 3", "$b.title, $b", "order { $b.title }")
    assert [f.code for f in findings(query)] == ["T1"]
    assert [f.code for f in findings(read("$a: Person  $a authored $p  $p.title = 3", "$p"))] == ["T4"]
    assert [f.code for f in findings(write("delete Paper where doi = $x", "$x: Text"))] == ["type error"]


def test_a_broken_edge_variable_is_not_reported_again() -> None:
    query = read("$a: Person  $a $e:authored $p  $e.on = 3  $p.title = 3", "$e.x")
    assert [f.code for f in findings(query)] == ["T4"]


def test_every_mistake_is_reported() -> None:
    query = write(
        "insert Book { isbn: 1 } insert Paper { doi: 1, doi: 2, isbn: 3, pages: $n } "
        "update Wrote set { note: 1 } where from = 1"
    )
    assert [f.code for f in findings(query)] == ["T10", "T3", "T13", "T11", "T14", "T12", "T12", "T16"]


SUGGESTIONS = [
    (read("$p: Papr"), "did you mean 'Paper'?"),
    (read('$p: Paper { titel: "x" }'), "did you mean 'title'?"),
    (read("$a: Person  $a wrot $p"), "did you mean 'wrote'?"),
    (read("$person: Person", "$persn.name"), "did you mean '$person'?"),
    (read('$p: Paper { state: "Final" }'), "did you mean 'final'?"),
    (write('delete Paper where titel = "x"'), "did you mean 'title'?"),
    (write("delete Paper where doi = $papr", "$paper: String"), "did you mean '$paper'?"),
    (read(ANY, params="$x: Strng"), "did you mean 'String'?"),
]


@pytest.mark.parametrize(("query", "suggestion"), SUGGESTIONS)
def test_a_near_name_is_suggested(query: str, suggestion: str) -> None:
    assert findings(query)[0].suggestion == suggestion


def test_a_finding_points_at_the_name_that_is_wrong() -> None:
    source = "query q() {\n    match {\n        $p: Papr\n    }\n    return { $p }\n}"
    (finding,) = findings(source)
    assert (finding.span and (finding.span.line, finding.span.column)) == (3, 13)
    assert finding.source_line == "        $p: Papr"
