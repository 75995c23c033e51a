"""Type errors by their code, what is accepted beside each, and which one comes first: names, properties, literals,
comparisons, search and rankings. The other `test_query_typecheck_*` modules go on with the rest of the language."""

from __future__ import annotations

import pytest

from . import (
    test_query_typecheck_patterns,
    test_query_typecheck_stages,
    test_query_typecheck_values,
    test_query_typecheck_writes,
)
from .query_archive import findings, read, write

ANY = "$a: Person  $p: Paper  $s: Slot"
BOUND = f"{ANY}  $a $w:wrote $p"


REJECTED = [
    # T1: a binding names a node type.
    ("T1", read("$b: Book"), "unknown node type 'Book'"),
    ("T1", read("$b: Wrote"), "edge type"),
    # T2: a pin names a property.
    ("T2", read("$p: Paper { isbn: 1 }"), "has no property 'isbn'"),
    ("T2", read('$p: Paper { id: "x" }'), "has no property 'id'"),
    # T3: a literal fits its property, and its own range.
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
    ("T3", read(f"{ANY} $p.pages > 9223372036854775808"), "beyond the range of I64"),
    ("T3", read(f"{ANY} $p.price > 1e999"), "beyond the range of F64"),
    # T4: a traversal names an edge.
    ("T4", read("$a: Person  $a reviewed $p"), "unknown edge type 'reviewed'"),
    # T5: endpoints have the types of the edge.
    ("T5", read("$s: Slot  $s wrote $p"), "has type Slot, but edge 'Wrote' expects Person or Paper"),
    ("T5", read("$s: Slot  $a wrote $s"), "has type Slot"),
    ("T5", read("$a: Person  $b: Person  $a wrote $b"), "'$b' has type Person, but edge 'Wrote' expects Paper"),
    ("T5", read("$x wrote $x"), "'$x' has type Person, but edge 'Wrote' expects Paper"),
    ("T5", read("$a: Person  $a wrote{1,4} $p"), "leads from Person to Paper"),
    ("T5", read("$a: Person  $a wrote{0,1} $p"), "leads from Person to Paper"),
    ("T5", read("$a: Person  $a wrote{1,} $p"), "{1,} hops lead nowhere"),
    # T6: what is named is there.
    ("T6", read(ANY, "$z.name"), "variable '$z' is not bound"),
    ("T6", read(ANY, "$z"), "variable '$z' is not bound"),
    ("T6", read(ANY, "$z.@id"), "variable '$z' is not bound"),
    ("T6", read(ANY, "$p.id"), "has no property 'id'"),
    ("T6", read(BOUND, "$w.src"), "edge type 'Wrote' has no property 'src'"),
    ("T6", read(BOUND, "$p.@src"), "a node and has no @src"),
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
    ("T6", read(ANY + " $p.pages = pages"), "'pages' is a bare name"),
    ("T6", read(ANY + ' @id = "x"'), "'@id' needs a variable"),
    # T7: operands meet.
    ("T7", read(ANY + ' $p.pages = "3"'), "cannot compare I32? with String"),
    ("T7", read(ANY + ' $p.added > date("2024-01-01")'), "cannot compare DateTime? with Date"),
    ("T7", read(ANY + " $p.pages = true"), "cannot compare I32? with Bool"),
    ("T7", read(ANY + " $p = $x", params="$x: String"), "cannot compare node 'Paper' with String"),
    ("T7", read(ANY + " $a = $p"), "cannot compare node 'Person' with node 'Paper'"),
    ("T7", read(ANY + " $a > $a"), "have no order"),
    ("T7", read(BOUND + "  $w = 3"), "cannot compare edge 'Wrote' with I64"),
    ("T7", read(ANY + " $p.pages = count($p)"), "an aggregate, count(), can't stand in a filter"),
    ("T7", read(ANY + " nearest($p.vec, $q) < 0.5", params="$q: Vector(4)"), "nearest() can't stand in a filter"),
    ("T7", read(ANY + " $p.vec = $x", params="$x: Vector(4)"), "scalar operands"),
    ("T7", read(ANY + " $p.doi = $x", params="$x: Blob"), "scalar operands"),
    ("T7", read(ANY + " $x = $y", params="$x: Blob, $y: Blob"), "scalar operands"),
    ("T7", read(ANY + " $p.keywords < $x", params="$x: [String]"), "lists compare with = and != only"),
    ("T7", read(ANY + " $p.keywords = $x", params="$x: [I32]"), "cannot compare [String]? with [I32]"),
    ("T7", read(ANY + " $p.keywords = \"x\""), "cannot compare [String]? with String"),
    ("T7", read(ANY + " $p.keywords contains $x", params="$x: [String]"), "contains requires a scalar right"),
    ("T7", read(ANY + " $p.keywords contains 3"), "cannot compare the items of [String]? with I64"),
    ("T7", read(ANY + " $p.title contains 3"), "requires a String right operand"),
    ("T7", read(ANY + ' $p.pages contains "3"'), "requires a String or list left operand"),
    ("T7", read(ANY + ' $p.keywords starts_with "3"'), "requires a String left operand"),
    ("T7", read(ANY + " $p.title starts_with now()"), "requires a String right operand"),
    ("T7", read(ANY + " $p.scan is null"), "'is null' takes no Blob"),
    ("T7", read("$p: Paper { pages: $x }", params="$x: String"), "cannot assign/compare String with I32?"),
    ("T7", read("$p: Paper { keywords: $x }", params="$x: [String]"), "cannot assign/compare [String]"),
    ("T7", read("$p: Paper { title: now() }"), "cannot assign/compare DateTime"),
    # T14, T44, T45: pins are constants.
    ("T14", read("$a: Person  $p: Paper { doi: $a }"), "must be a declared query parameter"),
    ("T14", read("$a: Person  $p: Paper { doi: $z }"), "must be a declared query parameter"),
    ("T44", read("$a: Person  $p: Paper { pages: count($a) }"), "can't stand in a pin"),
    ("T44", read("$a: Person  $p: Paper { pages: count { $a wrote $_ } }"), "can't stand in a pin"),
    ("T44", read('$a: Person { active: search($a.name, "x") }'), "can't stand in a pin"),
    ("T44", read("$p: Paper { price: nearest($p.vec, $q) }", params="$q: Vector(4)"), "can't stand in a pin"),
    ("T45", read("$a: Person  $p: Paper { doi: $a.handle }"), "$a.handle can't stand in a pin"),
    ("T45", read("$a: Person  $p: Paper { doi: $a.@id }"), "$a.@id can't stand in a pin"),
    ("T45", read("$p: Paper { doi: title }"), "'title' is a bare name"),
    ("T101", read("$p: Paper { pages: null }"), "is null"),
    # T15: hop bounds, and nearest.
    ("T15", read("$a: Person  $a knows{3,2} $b"), "end before they begin"),
    ("T15", read(ANY, "1 as one", "order { nearest($z.vec, $q) } limit 1", "$q: Vector(4)"), "'$z' is not bound"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vector, $q) } limit 1", "$q: Vector(4)"), "has no property"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.title, $q) } limit 1", "$q: Vector(4)"), "a Vector property"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vec, $q) } limit 1", "$q: Vector(3)"), "needs Vector(4)"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vec, [1, 2]) } limit 1"), "4 numbers but got 2"),
    ("T15", read(ANY, "1 as one", "order { nearest($p.vec, $q) } limit 1", "$q: [F32]"), "but got [F32]"),
    ("T15", read(ANY, "1 as one", 'order { nearest($p.vec, ["a", "b", "c", "d"]) } limit 1'), "but got [String]"),
    ("T15", read(ANY, "nearest($p.vec, $p.title) as d"), "the same for every row"),
    # T17, T18, T21: rankings and limits.
    ("T17", read(ANY, "$p.doi", "order { nearest($p.vec, $q) }", "$q: Vector(4)"), "requires a limit"),
    ("T17", read(ANY, "nearest($p.vec, $q) as d", "order { d }", "$q: Vector(4)"), "requires a limit"),
    ("T18", read(ANY, "$p.doi as doi", "order { nearest($p.vec, $q), doi } limit 3", "$q: Vector(4)"), "together"),
    ("T21", read(ANY, "1", "order { rrf(nearest($p.vec, $q), bm25($p.title, $q)) }", "$q: String"), "a limit"),
    ("T21", read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q)) as r", "order { r desc }", "$q: String"),
     "a limit"),
    ("T21", read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q), 0) as r", params="$q: String"), "greater than 0"),
    ("T21", read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q), 1.5) as r", params="$q: String"), "integer"),
    ("T21", read(ANY, "rrf(bm25($p.title, $q), bm25($p.title, $q), $p.pages) as r", params="$q: String"), "every row"),
    ("T21", read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q)) as r", params="$q: String"), "orders by it"),
    # T19, T20: text search.
    ("T19", read(ANY + ' search($p.pages, "x")'), "search() field must be String but got I32?"),
    ("T19", read(ANY + " search($p.title, 3)"), "search() query must be String"),
    ("T19", read(ANY + ' search($p.keywords, "x")'), "must be String"),
    ("T19", read(ANY + ' search($p, "x")'), "must be String but got node 'Paper'"),
    ("T19", read(ANY + ' search($p.scan, "x")'), "must be String but got Blob?"),
    ("T19", read(ANY + ' search("abc", "x")'), "searches a property of a node"),
    ("T19", read(ANY + " search($p.title, $p.abstract)"), "the same for every row"),
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
    ("T23", read(BOUND + '  search($w.note, "x")'), "node properties"),
    ("T23", read(BOUND, "1 as one", 'order { bm25($w.note, "x") }'), "node properties"),
    ("T23", read("$a: Person  not { $a $w:wrote $p }  $a $w:wrote $q"), "inside a negation"),
    ("T23", read("$a: Person  not { $a $w:wrote $p }  $w: Paper"), "inside a negation"),
    # T24: Blobs are not read.
    ("T24", read(ANY, "$p.scan"), "not available as a .gq read value"),
    ("T24", read(BOUND, "$w.receipt"), "not available"),
    ("T24", read(ANY, "$x", params="$x: Blob"), "not available"),
    ("T24", read(ANY, "count($p.scan)"), "not available"),
    ("T24", read(ANY, "collect($p.scan)"), "not available"),
    ("T24", read(ANY, "1 as one", "order { $p.scan }"), "not available"),
    ("T24", read(ANY + " $p.scan = $x", params="$x: Blob"), "not available"),
    ("T24", read(ANY + " $x = $p.scan", params="$x: String"), "not available"),
    # T47, T48, T49, T50: names and types of parameters and variables.
    ("T47", read(ANY, params="$__nanograph_now: DateTime"), "reserved"),
    ("T48", read(ANY, params="$x: Text"), "unknown type 'Text'"),
    ("T48", read(ANY, params="$x: Vector"), "dimension"),
    ("T48", read(ANY, params="$x: String(4)"), "unknown type 'String(4)'"),
    ("T48", read(ANY, params="$x: Vector(0)"), "Vector dimension must be greater than zero"),
    ("T48", read(ANY, params="$x: Vector(2147483648)"), "exceeds maximum supported"),
    ("T49", read("$__x: Person"), "begins with '__'"),
    ("T49", read("$a: Person  $a $__e:wrote $p"), "begins with '__'"),
    ("T49", read("$a: Person  $a wrote $__p"), "begins with '__'"),
    ("T49", read(ANY, params="$__x: I32"), "begins with '__'"),
    ("T50", read(ANY, params="$x: I32, $x: I64"), "declared twice"),
    ("T50", read("$p: Paper  $p: Person"), "already bound to another type"),
    ("T50", read("$a wrote $p  $a: Paper"), "already bound to another type"),
    ("T50", read("$a: Person  not { $a wrote $x }  $x: Slot"), "bound to another type outside"),
    ("T50", read("$a: Person  not { $a wrote $p  not { $p cites $x } }  $x: Slot"), "another type outside"),
    ("T100", read("$_: Paper"), "never binds"),
]  # fmt: skip


def first(text: str) -> tuple[str, str]:
    problems = findings(text)
    assert problems, f"expected a type error in: {text}"
    return problems[0].code, problems[0].message


@pytest.mark.parametrize(("code", "query", "message"), REJECTED)
def test_rejected(code: str, query: str, message: str) -> None:
    actual_code, actual_message = first(query)
    assert actual_code == code, actual_message
    assert message in actual_message


@pytest.mark.parametrize("query", [query for _, query, _ in REJECTED])
def test_every_finding_has_a_place_and_a_remedy(query: str) -> None:
    for finding in findings(query):
        assert finding.span is not None
        assert finding.suggestion, finding.message


ACCEPTED = [
    # Bindings and pins.
    read("$p: Paper { keywords: \"a\", moments: now(), added: now() }"),
    read("$p: Paper { pages: 2.5, price: 3, big: $x }", params="$x: F32"),
    read("$p: Paper { pages: 2 + 3, price: -1.5e-3, title: lower($x) }", params="$x: String"),
    read("$p: Paper { state: $x }", params="$x: String"),
    read("$p: Paper { vec: [1, 2, 3, 4.5] }"),
    read("$p: Paper { vec: $x }", params="$x: Vector(4)"),
    read("$a: Person { active: true or $flag }", params="$flag: Bool?"),
    read("$p: Paper  $p: Paper { doi: \"x\" }"),
    read("$p: Paper", "$p, $p.doi", params="$p: String"),
    # Traversals: lookup, direction, anonymous ends, bounds.
    read("$a: Person  $a wROTE $p"),
    read("$p: Paper  $p wrote $a  $a.name = \"x\""),
    read("$a wrote $p  $a: Person"),
    read("$_ wrote $_  $_ wrote $_"),
    read("$a: Person  $a <knows>{1,4} $b  $a $k:<knows> $c  $k.since > date(\"2020-01-01\")"),
    read("$a: Person  $a $_:wrote $p"),
    read("$a: Person  $a wrote{1,1} $p  $a knows{0,2} $b  $a knows{2,} $c"),
    # Filters.
    read(ANY + " $p.pages = 2.7  $p.big > $p.price  $a.active > false  $p.state < \"m\""),
    read(ANY + ' $p.title contains "x"  "abc" contains $p.title  $p.keywords contains $p.title'),
    read(ANY + ' $p.state starts_with "f"  $p.ratings contains 2.5'),
    read(ANY + " $p.state = \"no such value\""),
    read(ANY + " $p.doi = $x  $p.pages > $y", params="$x: String?, $y: U64"),
    read(ANY + " $p.keywords = $x  $p.ratings != [1.5, 2]  $p.weights = []", params="$x: [String]?"),
    read(ANY + ' search($p.title, "x") = false  match_text($p.title, $q)  fuzzy($p.state, $q, $n)',
         params="$q: String, $n: I32"),
    read(BOUND + ' $p.@id = "x"  $w.@src != $w.@dst  $w.@type = "Wrote"  $a.@type = "Person"'),
    read(ANY + " $p.price > -9223372036854775808"),
    read("1 = 1"),
    # Projections.
    read(ANY, "$a, $a.name, $q, 3, now(), [1, 2.5] as two, [] as none, null as no, -3 as less", params="$q: [Date]?"),
    read(BOUND, "$w, $w.@src, $w.@dst, $w.@id, $w.@type, count($w) as n"),
    read(ANY, "nearest($p.vec, $q) as d, bm25($p.title, $q) as s, search($p.title, $q)", params="$q: String"),
    read(ANY, "nearest($p.vec, $q) < 0.5 as near", params="$q: Vector(4)"),
    # Order.
    read(ANY, "1 as one", "order { nearest($p.vec, [1, 2, 3, 4]) } limit 1"),
    read(ANY, "1 as one", "order { nearest($p.vec, \"text\"), $p.doi } limit 1"),
    read(ANY, "1 as one", "order { nearest($p.vec, \"text\") } limit $n offset $n", "$n: U32"),
    read(ANY, "nearest($p.vec, \"text\") as d", "order { d } limit 1"),
    read(ANY, "1 as one", "order { bm25($p.abstract, \"text\") }"),
    read(ANY, "rrf(bm25($p.title, $q), bm25($p.abstract, $q)) as r, $p.doi", "order { r desc } limit 3", "$q: String"),
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
            "count($p) + $p.pages as n, $p.isbn",
            "order { rrf(bm25($p.title, $q), bm25($p.title, $q)), nearest($p.vec, $v), n }",
            "$q: String, $v: Vector(4)",
        ),
        ["T6", "T21", "T17", "T18", "T9"],
    ),
    # The match block before what is returned.
    (read("$b: Book  $p: Paper { isbn: 1 }", "$p.isbn", "order { $p.scan }"), ["T1", "T2", "T6", "T24"]),
    # Parameters before everything.
    (read("$b: Book", params="$x: Text"), ["T48", "T1"]),
]


@pytest.mark.parametrize(("query", "codes"), PRECEDENCE)
def test_findings_come_in_the_order_of_precedence(query: str, codes: list[str]) -> None:
    assert [finding.code for finding in findings(query)] == codes


BROKEN_NAMES = [
    ("T1", read('$b: Book  $b.pages > 3  search($b.title, "x")', "$b.title, $b", "order { $b.title }")),
    ("T1", read("$b: Book  $b cites $c  not { $b cites $d }  exists { $b cites $c }", "$b")),
    ("T1", read("$b: (Book | Paper)  $b.x = 1  map($x in $b.list : $x) = []", "$b.@id")),
    ("T4", read("$a: Person  $a authored $p  $p.title = 3", "$p")),
    ("T4", read("$a: Person  $a $e:authored $p  $e.on = 3  $p.title = 3", "$e.x")),
    ("T4", read("$a: Person  path $w: shortest $a authored $p", "$w, length($w) as n, $p.x")),
    ("T4", read("optional { $a: Person  $a authored $p }  $p.title = 3", "$p")),
    ("T48", write("delete Paper where doi = $x", "$x: Text")),
    ("T48", read("$p: Paper { pages: $x }  $p.price > $x", "$x + 1 as y", "limit $x", "$x: Text")),
    ("T6", "query q() { match { $a: Person } return { $a.nme as n, $a } then return { $n, $a } }"),
    ("T111", "query q() { unwind 3 as $x match { $p: Paper { pages: $x } } return { $x + 1 as y } }"),
]


@pytest.mark.parametrize(("code", "query"), BROKEN_NAMES)
def test_what_hangs_on_a_broken_name_is_not_reported_again(code: str, query: str) -> None:
    assert [finding.code for finding in findings(query)] == [code]


SUGGESTIONS = [
    (read("$p: Papr"), "did you mean 'Paper'?"),
    (read('$p: Paper { titel: "x" }'), "did you mean 'title'?"),
    (read("$a: Person  $a wrot $p"), "did you mean 'wrote'?"),
    (read("$person: Person", "$persn.name"), "did you mean '$person'?"),
    (read('$p: Paper { state: "Final" }'), "did you mean 'final'?"),
    (write('delete Paper where titel = "x"'), "did you mean 'title'?"),
    (write("delete Paper where doi = $papr", "$paper: String"), "did you mean '$paper'?"),
    (read(ANY, params="$x: Strng"), "did you mean 'String'?"),
    (read("$a: Person", "$a.size"), "choose from handle, email, age, karma, active, born, seen, aliases, …"),
    (read("$p: Paper  title = \"x\""), "write $p.title for the property"),
    (read("$p: Paper  $p.added > \"2024-05-01\""), 'write datetime("2024-05-01")'),
    (read("$p: Paper  $p.pages = null"), "write `$p.pages is null` or `$p.pages is not null`"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "suggestion"), SUGGESTIONS)
def test_a_near_name_is_suggested(query: str, suggestion: str) -> None:
    assert findings(query)[0].suggestion == suggestion


def test_a_finding_points_at_the_name_that_is_wrong() -> None:
    source = "query q() {\n    match {\n        $p: Papr\n    }\n    return { $p }\n}"
    (finding,) = findings(source)
    assert (finding.span and (finding.span.line, finding.span.column)) == (3, 13)
    assert finding.source_line == "        $p: Papr"


def test_negated_patterns_share_names_with_what_follows() -> None:
    accepted = [
        "$a: Person  not { $a wrote $x }  not { $a reserved $x }  not { $a $x:knows $_ }",
        "$a: Person  not { $a wrote $p }  $p: Paper",
        "$a: Person  not { $a wrote $_ }  not { $a: Person { age: 3 } }  not { $a.age > 3 }",
        "$a: Person  $a $w:wrote $p  not { $w.on > date(\"2020-01-01\") }",
        "$a: Person  not { $a wrote $p  not { $p.pages > 3 } }",
    ]  # fmt: skip
    for match in accepted:
        assert findings(read(match)) == ()


EVERY_CODE = {f"T{number}" for number in (*range(1, 16), *range(17, 26), 36, *range(39, 51), 53, *range(100, 114))}
"""What the checker may report. T16 and T52 are never raised, and an unknown type is T1, T10 or T48 instead of T51."""


def test_every_code_is_covered() -> None:
    """T46 and T112 have tests of their own, because they need other schemas."""
    modules = (test_query_typecheck_values, test_query_typecheck_patterns, test_query_typecheck_stages)
    codes = {code for module in modules for code, _, _ in module.REJECTED}
    codes |= {code for code, _, _ in (*REJECTED, *test_query_typecheck_writes.REJECTED)}
    assert codes == EVERY_CODE - {"T46", "T112"}
