"""Types of patterns: blocks, `optional`, edge selections, variables of several types, hops with conditions, paths."""

from __future__ import annotations

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.query import ir, resolved
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.value_types import EntityType, display
from omnigraph.language.schema.compile import compile_schema

from .query_archive import compiled, findings, read

ANY = "$a: Person  $p: Paper"


def stage(query: str) -> resolved.Stage:
    body = compiled(query).resolved.body
    assert isinstance(body, resolved.Read)
    return body.chains[-1].stages[-1]


def variable_types(match: str) -> dict[str, str]:
    """The variables that a match binds, with their types."""
    return {name: display(type_) for name, type_ in stage(read(match)).variables.items()}


def walk(match: str) -> ir.Walk:
    (clause,) = [c for c in stage(read(match)).clauses if isinstance(c, resolved.WalkTraversal)]
    return clause.walk


def steps(match: str) -> list[str]:
    """The ways to take a hop, as `Edge:direction:Start>End`."""
    return [f"{s.edge.name}:{s.direction}:{s.start.name}>{s.end.name}" for s in walk(match).steps]


VARIABLES = [
    # What several edge types lead to has several types.
    ("$a: Person  $a (wrote | reserved) $x", {"a": "node Person", "x": "node Paper | Slot"}),
    ("$a: Person  $a $e:(wrote | knows) $x",
     {"a": "node Person", "x": "node Paper | Person", "e": "edge Wrote | Knows"}),
    ("$x (wrote | cites) $y", {"x": "node Person | Paper", "y": "node Paper"}),
    ("$a: Person  $a (wrote | wrote) $x", {"a": "node Person", "x": "node Paper"}),
    ("$a: Person  $a * $b  $b: Paper", {"a": "node Person", "b": "node Paper"}),
    # Interfaces, alternatives, every type; each clause narrows.
    ("$x: Named", {"x": "node Person"}),
    ("$x: (Paper | Slot)", {"x": "node Paper | Slot"}),
    ("$x: (Paper | Slot)  $x: Paper", {"x": "node Paper"}),
    ("$x: *  $x: (Slot | Paper)  $x: (Memo | Slot)", {"x": "node Slot"}),
    ("$a: Person  $a (wrote | reserved) $x  $x: Slot", {"a": "node Person", "x": "node Slot"}),
    # Optional variables may be null outside.
    ("$a: Person  optional { $a $w:wrote $p }", {"a": "node Person", "p": "node Paper?", "w": "edge Wrote?"}),
    ("optional { $a: Person  optional { $a wrote $p } }", {"a": "node Person?", "p": "node Paper?"}),
    ("$a: Person  optional { $a wrote $p }  $p cites $q", {"a": "node Person", "p": "node Paper?", "q": "node Paper"}),
    # Paths.
    ("$a: Person  path $w: shortest $a knows $b", {"a": "node Person", "b": "node Person", "w": "path"}),
    # What a block binds stays inside.
    ("$a: Person  exists { $a wrote $p }  not { $a knows $b }", {"a": "node Person"}),
    ("$a: Person  $a knows $b each $e $n { $n.age > 3 }", {"a": "node Person", "b": "node Person"}),
]  # fmt: skip


@pytest.mark.parametrize(("match", "types"), VARIABLES)
def test_types_of_variables(match: str, types: dict[str, str]) -> None:
    assert variable_types(match) == types


COLUMNS = [
    ("$a: Person  optional { $a $w:wrote $p }", "$p.title", "String?"),
    ("$a: Person  optional { $a $w:wrote $p }", "$w.@src", "String?"),
    ("$a: Person  optional { $a wrote $p }", "$p", "node Paper?"),
    ("$a: Person  optional { $a wrote $p }", "$p.title = \"x\"", "Bool?"),
    ("$a: Person  $a $e:(wrote | knows) $x", "$e.@type", "String"),
    ("$a: Person  $a $e:(wrote | knows) $x", "$e.on?", "Date?"),
    ("$x: (Person | Paper)", "$x.title?", "String?"),
    ("$x: (Person | Paper)", "$x", "node Person | Paper"),
    ("$x: (Note | Memo)", "$x.text?", "String?"),
    ("$a: Person", "count { $a wrote $_ }", "I64"),
    ("$a: Person", "exists { $a wrote $_ }", "Bool"),
    ("$a: Person", "not { $a wrote $_ }", "Bool"),
    ("$a: Person", "sum($p.pages) { $a wrote $p }", "I64?"),
    ("$a: Person", "collect($p.title) { $a wrote $p }", "[String]"),
    ("$a: Person", "count(distinct $p.title) { $a wrote $p }", "I64"),
    ("$a $e:knows $b", "path($a, $e, $b)", "path"),
    ("path $w: trails $a knows $b  $b $e:knows $c", "nodes(path($w, $e, $c))", "[node Person]"),
]  # fmt: skip


@pytest.mark.parametrize(("match", "expression", "expected"), COLUMNS)
def test_types_of_columns(match: str, expression: str, expected: str) -> None:
    (projection,) = stage(read(match, f"{expression} as it")).projections
    assert display(projection.value.type) == expected


STEPS = [
    # Each member of a selection has a direction of its own; the written one wins.
    ("$p: Paper  $p (wrote | cites) $x", ["Wrote:in:Paper>Person", "Cites:out:Paper>Paper"]),
    ("$a: Person  $a $e:(wrote | knows) $x", ["Wrote:out:Person>Paper", "Knows:out:Person>Person"]),
    ("$a: Person  $b: Person  $a <knows> $b each $e $_ { $e.since is null }", ["Knows:both:Person>Person"]),
    ("$a: Person  $p: Paper  $a * $p", ["Wrote:out:Person>Paper", "Memo:out:Person>Paper"]),
    ("$a: Person  $p: Paper  $p * $a", ["Wrote:in:Paper>Person", "Memo:in:Paper>Person"]),
    ("$a: Person  $b: Person  $a *{1,3} $b each $_ $n { $n.age > 3 }", ["Knows:out:Person>Person"]),
    ("$s: Slot  $m: Memo  $s * $m", []),
    # With an end of several types a member fits if one of them does, and `< >` takes both directions.
    ("$x: (Person | Slot)  $x wrote $p", ["Wrote:out:Person>Paper"]),
    ("$x: *  $x <wrote> $y", ["Wrote:out:Person>Paper", "Wrote:in:Paper>Person"]),
    ("$a: Person  $a (wrote | reserved) $x  $x: Slot", ["Reserved:out:Person>Slot"]),
    # Several hops pass through every type that the search reaches from the start.
    ("$a: Person  $x: *  $a (wrote | cites){1,3} $x", ["Wrote:out:Person>Paper", "Cites:out:Paper>Paper"]),
    ("$s: Slot  $x: *  $s (reserved | wrote){1,3} $x", ["Reserved:in:Slot>Person", "Wrote:out:Person>Paper"]),
    ("$x: *  $p: Paper  $x (wrote | knows){1,3} $p", ["Wrote:out:Person>Paper", "Knows:out:Person>Person"]),
]  # fmt: skip


@pytest.mark.parametrize(("match", "expected"), STEPS)
def test_steps_of_a_walk(match: str, expected: list[str]) -> None:
    assert steps(match) == expected


def test_a_plain_traversal_stays_one() -> None:
    for match in ("$a: Person  $a wrote $p", "$a: Person  $a (wrote | wrote) $p", "$a: Person  $a <knows>{0,} $b"):
        (traversal,) = [c for c in stage(read(match)).clauses if isinstance(c, resolved.Traversal)]
        assert traversal.source == "a"
    assert (traversal.min_hops, traversal.max_hops, traversal.direction) == (0, ir.UNBOUNDED, ir.Direction.BOTH)


def test_a_path_has_no_upper_bound_by_itself() -> None:
    assert (walk("path $w: shortest $a knows $b").min_hops, walk("path $w: shortest $a knows $b").max_hops) == (
        1,
        ir.UNBOUNDED,
    )


def test_a_narrowed_outer_variable_keeps_its_members() -> None:
    (binding, negation) = stage(read('$x: (Person | Paper)  not { $x: Paper { title: "t" }  $x.pages > 3 }')).clauses
    assert isinstance(binding, resolved.Binding)
    assert isinstance(negation, resolved.Negation)
    (narrowed, compared) = negation.clauses
    assert isinstance(narrowed, resolved.Binding)
    assert [type_.name for type_ in narrowed.types] == ["Paper"]
    assert isinstance(compared, resolved.Filter)
    assert isinstance(compared.predicate, ir.Compare)
    property_ = compared.predicate.left
    assert isinstance(property_, ir.UnionProperty)
    assert [part and part.owner.name for part in property_.parts] == [None, "Paper"]
    outside = negation.variables["x"]
    assert isinstance(outside, EntityType)
    assert outside.type_names == ("Person", "Paper")


def test_a_name_that_is_bound_later_is_another_variable_inside_a_block() -> None:
    query = compiled(read("$a: Person  count { $a wrote $p } > 1  $a wrote $p  $p.pages > 3", "$p.doi")).resolved
    (block,) = query.blocks.values()
    assert "p" not in block.variables
    assert len(block.variables) == 2


def test_the_value_of_a_block_is_a_hidden_variable() -> None:
    query = compiled(read("$a: Person  not { $a wrote $_ } or $a.age > 3")).resolved
    ((hidden, block),) = query.blocks.items()
    assert hidden.startswith("#")
    assert block.aggregate is None
    assert isinstance(query.body, resolved.Read)
    (_, condition) = query.body.chains[0].stages[0].clauses
    assert isinstance(condition, resolved.Filter)
    assert isinstance(condition.predicate, ir.Or)
    assert condition.predicate.operands[0] == ir.Not(ir.VariableValue(hidden, ir.BOOL))


REJECTED = [
    # Blocks speak of what is outside, and give a scalar.
    ("T9", read("$a: Person  not { $x knows $y }"), "must reference"),
    ("T9", read("$a: Person  not { $x: Paper  not { $a wrote $x } }"), "must reference"),
    ("T9", read("$a: Person  not { $q = 3 }", params="$q: I32"), "must reference"),
    ("T9", read("$a: Person  $a.age = 3 or not { $x knows $y }"), "must reference"),
    ("T39", read("$a: Person  exists { $x knows $y }"), "must reference"),
    ("T39", read("$a: Person", "count { $x knows $y } as n"), "must reference"),
    ("T39", read("$a: Person  exists { $a2: Person  exists { $a wrote $_ } }"), "must reference"),
    ("T40", read("$a: Person  sum($p) { $a wrote $p } > 3"), "aggregates a scalar but got node 'Paper'"),
    ("T40", read("$a: Person  sum($p.title) { $a wrote $p } > 3"), "requires a numeric type but got String"),
    ("T40", read("$a: Person  max($p.keywords) { $a wrote $p } = \"x\""), "aggregates a scalar"),
    ("T102", read("$a: Person  percentile_cont($p.pages) { $a wrote $p } > 1"), "takes two arguments"),
    ("T8", read("$a: Person  sum(count($p)) { $a wrote $p } > 3"), "can't stand in the argument of a block"),
    ("T6", read("$a: Person  exists { $a wrote $p }  $p.pages > 3"), "'$p' is not bound"),
    ("T6", read("$a: Person  exists { $a wrote $_  $p.pages > 3 }  $p: Paper"), "'$p' is not bound"),
    # Optional variables.
    ("T105", read("optional { $p: Paper }", "$p", "order { nearest($p.vec, $q) } limit 1", "$q: Vector(4)"), "null"),
    ("T105", read("optional { $p: Paper }", 'bm25($p.title, "x") as s'), "optional"),
    ("T6", read("$b.name = \"x\"  optional { $b: Person }"), "'$b' is not bound"),
    # Selections: every member fits, each property is shared.
    ("T4", read("$a: Person  $a (wrote | authored) $x"), "unknown edge type 'authored'"),
    ("T5", read("$a: Person  $a (wrote | cites) $x"), "has type Person, but edge 'Cites' expects Paper"),
    ("T5", read("$a: Person  $p: Paper  $a (wrote | knows) $p"), "has type Paper, but edge 'Knows' expects Person"),
    ("T5", read("$a: Person  $a (knows | wrote){1,2} $x"), "edge 'Wrote' leads from Person to Paper"),
    ("T5", read("$a: Person  $a (knows | cites){1,2} $x"), "has type Person, but edge 'Cites' expects Paper"),
    ("T5", read("$a (knows | cites){1,2} $b"), "edge 'Cites' is between nodes of type Paper"),
    ("T5", read("$a: Person  $a * $b"), "nothing declares '$b'"),
    ("T5", read("$a: Person  $a * $_"), "nothing declares '$_'"),
    ("T5", read("$a: Person  $p: Paper  $a *{1,2} $p"), "need one node type at both"),
    ("T22", read("$a: Person  $a <knows | wrote> $x"), "asymmetric"),
    ("T22", read("$a: Person  $p: Paper  $a <*> $p"), "need one node type at both"),
    ("T5", read("$s: Slot  $x: *  $s (reserved | cites){1,3} $x"), "begins at no type that $s reaches"),
    ("T23", read("$a: Person  $a $e:(wrote | knows){1,2} $b"), "multi-hop"),
    ("T6", read("$a: Person  $a $e:(wrote | knows) $x", "$e.note"), "'Knows' has no property 'note'"),
    ("T6", read("$a: Person  $a $e:(wrote | knows) $x", "$e.nothing?"), "none of the types 'Wrote', 'Knows'"),
    # Variables of several types.
    ("T1", read("$x: (Paper | Book)"), "unknown node type 'Book'"),
    ("T6", read("$x: (Person | Paper)", "$x.title"), "'Person' has no property 'title'"),
    ("T6", read('$x: (Person | Paper) { title: "t" }'), "'Person' has no property 'title'"),
    ("T50", read("$x: (Person | Paper)  $x: Slot"), "already bound to another type: Person | Paper, not Slot"),
    ("T5", read("$x: (Slot | Memo)  $x wrote $p"), "has type Slot | Memo, but edge 'Wrote' expects Person or Paper"),
    ("T105", read("$x: (Note | Slot)", 'bm25($x.body?, "x") as s'), "several types"),
    ("T105", read("$x: (Note | Slot)", 'rrf(bm25($x.body?, "x"), bm25($x.tag?, "x")) as s'), "several types"),
    # Hops with conditions.
    ("T107", read("$a: Person  $a knows $b each $e $n { $n: Person }"), "a binding can't stand in each"),
    ("T107", read("$a: Person  $a knows $b each $e $n { $n wrote $p }"), "a traversal can't stand in each"),
    ("T107", read("$a: Person  $a knows $b each $e $n { not { $n wrote $_ } }"), "a negation can't stand in each"),
    ("T107", read("$a: Person  $a knows $b each $e $n { exists { $n wrote $_ } }"), "can't stand in each"),
    ("T107", read('$a: Person  $a knows $b each $e $n { search($n.name, "x") }'), "search() can't stand in each"),
    ("T107", read("$a: Person  $a knows $b each $e $n { count($n) > 1 }"), "can't stand in each"),
    ("T107", read("$a: Person  $a knows $b each $e $n { $n.age > 3 }", "$n.age"), "'$n' is a part of a hop"),
    ("T107", read("$a: Person  $a knows $b each $e $_ { true }  $e.since is null"), "'$e' is a part of a hop"),
    ("T41", read("$a: Person  $a knows $b each $e $n { $n.age }"), "each needs a Bool"),
    ("T50", read("$a: Person  $a knows $b each $a $n { true }"), "already in use"),
    ("T50", read("$a: Person  $a knows $b each $n $n { true }"), "already in use"),
    ("T49", read("$a: Person  $a knows $b each $__e $_ { true }"), "begins with '__'"),
    # Paths.
    ("T5", read("$a: Person  path $w: shortest $a wrote $p"), "leads from Person to Paper"),
    ("T50", read("$a: Person  path $a: shortest $a knows $b"), "already in use"),
    ("T50", read("$a: Person  path $q: shortest $a knows $b", params="$q: I32"), "already in use"),
    ("T108", read("$a: Person  path $_: shortest $a knows $b"), "needs a name"),
    ("T50", read("$a: Person  path $w: trails $a knows $b  $w knows $c"), "can't be an endpoint"),
    ("T50", read("$a: Person  path $w: trails $a knows $b  $w: Person"), "bound to a value of type path"),
    ("T15", read("$a: Person  path $w: trails $a knows{3,2} $b"), "end before they begin"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "query", "message"), REJECTED)
def test_rejected(code: str, query: str, message: str) -> None:
    problem, *_ = findings(query)
    assert (problem.code, message in problem.message) == (code, True), problem.message
    assert problem.suggestion, problem.message


ACCEPTED = [
    read("$a: Person  exists { $a wrote $_ } or count { $a knows $b  $b.age > 3 } >= 2"),
    read("$a: Person  not { $a wrote $_ } and $a.age > 3  not exists { $_ knows $a }"),
    read("$a: Person  exists { $a wrote $p  not { $p.pages > 3 } }  not { search($a.name, \"x\") }"),
    read("$a: Person", "$a.name", "order { count { $_ knows $a } desc }"),
    read("$a: Person", "sum(count { $a wrote $_ }) as n"),
    read("optional { $a: Person }", "$a.name, count($a)"),
    read("$a: Person  optional { $a wrote $p  $p.state = \"draft\" }  $p is null  not { $p cites $_ }"),
    read("$a: Person  optional { $a wrote $p }  $p: Paper { pages: 3 }"),
    read("$a: Person  $x: *  $a $e:* $x", "$e, $e.@type, $x.name?, $x.title?"),
    read("$a: Person  $a \"wrote\" $p  $p (\"cites\" | contains) $q"),
    read("$a: Person  $a *{1,3} $b  $b: Person  $a <*>{0,2} $c  $c: Person"),
    read("$x: (Note | Memo)  $x.@type = \"Note\"  search($x.body?, \"x\")", "$x.@id"),
    read("$a: Person  $d: Paper  $a knows{1,} $b each $_ $n { $n.age > $d.pages  $n.name starts_with \"x\" }"),
    read("$a knows $b each $e $n { $n.age > 3 }  $n: Paper  $a knows $c each $e $_ { $e.since is null }", "$n.doi"),
    read("path $w: all_shortest $a knows{0,4} $b each $e $_ { $e.since is null }", "$w, length($w) as l"),
    read("$x: *  $a: Person  path $w: trails $a *{1,3} $x", "map($n in nodes($w) : $n.name?) as names"),
    read("$a: Person  path $w: shortest $a knows $b  count { $b wrote $_ } > length($w)"),
]  # fmt: skip


@pytest.mark.parametrize("query", ACCEPTED)
def test_accepted(query: str) -> None:
    assert findings(query) == ()


SEVERAL = """
node Cat { name: String @key  age: I32  kind: enum(tabby, wild)  vec: Vector(2)?  born: Date?  legs: I64 }
node Dog { name: String @key  age: I64?  kind: enum(wild, hound)  vec: Vector(2)?  born: DateTime?  legs: I64? }
node Cod { name: String @key  kind: String  vec: Vector(3)? }
edge Likes: Cat -> Dog { since: Date  much: I32 }
edge Bites: Dog -> Cat { since: Date?  much: F64 }
"""


def several(match: str, returns: str, params: str = "") -> tuple[list[str], list[str]]:
    """The types of the columns, or the codes of the findings."""
    query = compile_queries(read(match, returns, params=params), compile_schema(SEVERAL)).query()
    try:
        body = query.resolved.body
    except CompileError as error:
        return [], [finding.code for finding in error.diagnostics]
    assert isinstance(body, resolved.Read)
    return [display(column.type) for column in body.columns], []


PROPERTIES = [
    # The same base type: nullable if one is; values of enums unite, and an enum beside a String is a String.
    ("$x: (Cat | Dog)", "$x.legs", ["I64?"], []),
    ("$x: (Cat | Dog)", "$x.kind", ["enum(hound, tabby, wild)"], []),
    ("$x: *", "$x.kind", ["String"], []),
    ("$a $e:(likes | bites) $b", "$e.since", ["Date?"], []),
    # Disagreement is refused; with `?` numbers widen, and what is missing is null.
    ("$x: (Cat | Dog)", "$x.age", [], ["T112"]),
    ("$x: (Cat | Dog)", "$x.born", [], ["T112"]),
    ("$x: (Cat | Dog)", "$x.age?", ["I64?"], []),
    ("$x: (Cat | Dog)", "$x.born?", [], ["T112"]),
    ("$x: *", "$x.age?", ["I64?"], []),
    ("$a $e:(likes | bites) $b", "$e.much", [], ["T112"]),
    ("$a $e:(likes | bites) $b", "$e.much?", ["F64"], []),
    ("$x: (Cat | Dog) { age: 3 }", "$x", [], ["T112"]),
    ("$x: (Cat | Dog)  $x: Cat", "$x.age, $x.born", ["I32", "Date?"], []),
    # Vectors of one dimension and metric can be ranked together.
    ("$x: (Cat | Dog)", "nearest($x.vec, $q) as d", ["F64"], []),
    ("$x: (Cat | Cod)", "nearest($x.vec, $q) as d", [], ["T15"]),
    ("$x: (Cat | Dog)", 'search($x.name, "x") as hit', ["Bool"], []),
    ("$x: (Cat | Dog)", 'bm25($x.name, "x") as s', [], ["T105"]),
]  # fmt: skip


@pytest.mark.parametrize(("match", "returns", "types", "codes"), PROPERTIES)
def test_a_property_of_several_types(match: str, returns: str, types: list[str], codes: list[str]) -> None:
    assert several(match, returns, "$q: Vector(2)") == (types, codes)


def test_an_interface_without_types_and_a_schema_without_nodes_have_no_nodes() -> None:
    for schema, binding in (("interface Named { name: String }  node Cat { age: I32 }", "$x: Named"), ("", "$x: *")):
        query = compile_queries(read(binding, "$x.name"), compile_schema(schema)).query()
        with pytest.raises(CompileError) as error:
            _ = query.resolved
        assert [finding.code for finding in error.value.diagnostics] == ["T1"]
