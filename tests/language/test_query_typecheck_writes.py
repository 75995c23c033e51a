"""Types of mutations: targets, assignments, conditions, ends of edges, and statements after a feed."""

from __future__ import annotations

import pytest

from omnigraph.errors import CompileError
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import compile_schema

from .query_archive import compiled, findings, write

FEED = "match { $a: Person  $a wrote $p }"


def plans(statements: str, params: str = "") -> list[object]:
    """The plans of the statements, those of feeds too."""
    body = compiled(write(statements, params)).resolved.body
    assert isinstance(body, resolved.Writes)
    listed: list[object] = []
    for statement in body.statements:
        inside = statement.statements if isinstance(statement, resolved.ForEachRow) else (statement,)
        listed += [each.plan for each in inside]
    return listed


REJECTED = [
    # T3: literals fit.
    ("T3", 'update Paper set { pages: "x" } where doi = "a"', "has type I32? but got String"),
    ("T3", 'update Paper set { state: "gone" } where doi = "a"', "expects one of"),
    ("T3", 'update Paper set { scan: "base64:AA==" } where doi = "a"', "no literal"),
    ("T3", 'update Paper set { vec: [1.0, 2.0] } where doi = "a"', "list of 2 numbers"),
    ("T3", 'update Paper set { vec: [] } where doi = "a"', "Vector(4)"),
    ("T3", 'update Paper set { ratings: [1, 2.5] } where doi = "a"', "fraction"),
    ("T3", 'update Paper set { title: null } where doi = "a"', "can't be null"),
    ("T3", "delete Paper where doi = 3", "has type String but got I64"),
    ("T3", 'delete Paper where state = "gone"', "expects one of"),
    ("T3", 'delete Paper where state in ["draft", "gone"]', "but got 'gone'"),
    ("T3", 'delete Paper where ["gone"] contains state', "but got 'gone'"),
    ("T3", "delete Wrote where from = 3", "has type String but got I64"),
    ("T3", "insert Wrote { from: 3, to: \"b\" }", "has type String but got I64"),
    # T7: values of the right type.
    ("T7", 'update Paper set { title: now() } where doi = "a"', "cannot assign/compare DateTime"),
    ("T7", 'update Paper set { pages: $day } where doi = "a"', "cannot assign/compare Date"),
    ("T7", 'update Paper set { vec: $vec } where doi = "a"', "Vector(3)"),
    ("T7", 'update Paper set { moments: now() } where doi = "a"', "cannot assign/compare DateTime"),
    ("T7", 'update Paper set { pages: pages / 2.0 } where doi = "a"', "cannot assign/compare F64"),
    ("T7", 'update Paper set { title: pages + 1 } where doi = "a"', "cannot assign/compare I64? with String"),
    ("T7", "delete Paper where pages = $text", "cannot compare I32? with String"),
    ("T7", "delete Paper where vec = $vec", "scalar operands"),
    ("T41", "delete Paper where pages + 1", "where needs a Bool but got I64?"),
    ("T41", "delete Paper where doi = \"a\" and pages", "'and' needs a Bool"),
    ("T101", "delete Paper where pages = null", "is null"),
    # T10, T11: types and properties.
    ("T10", 'insert Book { isbn: "x" }', "unknown node/edge type 'Book'"),
    ("T10", 'delete Named where name = "x"', "unknown node/edge type"),
    ("T10", f"{FEED} insert Book {{ isbn: $p.doi }}", "unknown node/edge type 'Book'"),
    ("T11", 'insert Paper { isbn: "x" }', "has no property 'isbn'"),
    ("T11", 'update Paper set { isbn: "x" } where doi = "a"', "has no property 'isbn'"),
    ("T11", 'update Paper set { title: isbn } where doi = "a"', "has no property 'isbn'"),
    ("T11", 'delete Paper where isbn = "x"', "has no property 'isbn'"),
    ("T11", 'delete Paper where from = "x"', "has no property 'from'"),
    ("T11", 'delete Wrote where src = "x"', "has no property 'src'"),
    ("T11", "delete Paper where scan = $blob", "WHERE"),
    ("T11", f"{FEED} update $p set {{ isbn: 1 }}", "has no property 'isbn'"),
    ("T6", 'delete Paper where @src = "x"', "a node and has no @src"),
    # T12: inserts are complete.
    ("T12", 'insert Paper { doi: "x", title: "t" }', "must provide non-nullable property 'state'"),
    ("T12", 'upsert Paper { doi: "x", title: "t" }', "must provide non-nullable property 'state'"),
    ("T12", "insert Memo { topic: [1, 2, 3] }", "'text'"),
    ("T12", 'insert Note { tag: "x" }', "'gist' or its embed source 'body'"),
    ("T12", 'insert Wrote { from: "a" }', "required endpoint 'to'"),
    ("T12", 'insert Reserved { from: "a", to: "b" }', "non-nullable property 'at'"),
    ("T12", f"{FEED} insert Wrote {{ from: $a }}", "required endpoint 'to'"),
    # T13, T14.
    ("T13", 'update Paper set { pages: 1, pages: 2 } where doi = "a"', "duplicate assignment"),
    ("T13", 'insert Wrote { from: "a", from: "b", to: "c" }', "duplicate assignment of 'Wrote.from'"),
    ("T14", 'update Paper set { pages: $n } where doi = "a"', "must be a declared query parameter"),
    ("T14", "delete Paper where doi = $d", "must be a declared query parameter"),
    ("T14", "delete Paper where $p.doi = \"a\"", "'$p' must be a declared query parameter"),
    ("T14", "delete Paper where $p.@id = \"a\"", "'$p' must be a declared query parameter"),
    ("T14", "insert Wrote { from: $z, to: \"b\" }", "'$z' must be a declared"),
    # T44, T45: only the row's own values, or constants.
    ("T44", 'update Paper set { pages: count(*) } where doi = "a"', "can't stand in an assigned value"),
    ("T44", 'update Paper set { pages: 1 } where search(title, "x")', "search() can't stand in where"),
    ("T44", "delete Paper where exists { $a wrote $b }", "can't stand in where"),
    ("T44", "delete Paper where not { $a wrote $b }", "can't stand in where"),
    ("T44", "delete Paper where count(*) > 1", "can't stand in where"),
    ("T44", "delete Paper where nearest($p.vec, $vec) < 1.0", "nearest() can't stand in where"),
    ("T44", 'insert Memo { text: count { $a wrote $b } }', "can't stand in an inserted value"),
    ("T44", f"{FEED} update $p set {{ pages: count(*) }}", "can't stand in the value of a statement"),
    ("T44", f"{FEED} update $p set {{ price: nearest($p.vec, $vec) }}", "can't stand in the value of a statement"),
    ("T45", "insert Memo { text: $p.title }", "$p.title can't stand in an inserted value"),
    ("T45", "insert Memo { text: $p.@id }", "$p.@id can't stand in an inserted value"),
    ("T45", "insert Memo { text: text }", "'text' is a bare name"),
    ("T45", "insert Memo { text: @id }", "'@id' needs a variable"),
    # T109: what a type or a place does not allow.
    ("T109", 'upsert Memo { text: "x" }', "node type 'Memo' has none"),
    ("T109", 'upsert Wrote { from: "a", to: "b" }', "edge type 'Wrote' has none"),
    ("T109", 'update Wrote set { from: "a" } where note = "x"', "an end of an edge can't be assigned: 'Wrote.from'"),
    ("T109", "match { $a $w:wrote $p } update $w set { to: $p }", "an end of an edge can't be assigned"),
    ("T109", f'{FEED} update Paper set {{ pages: 1 }} where doi = "a"', "can't follow a feed"),
    ("T109", f'{FEED} delete Paper where doi = "a"', "can't follow a feed"),
    # T5, T113: entities of feeds.
    ("T5", f"{FEED} insert Wrote {{ from: $p, to: $p }}", "'$p' is a Paper, but 'Wrote.from' is a Person"),
    ("T113", "match { $x: (Person | Paper) } delete $x", "'$x' has several types: Person | Paper"),
    ("T113", "match { $x: (Person | Paper) } insert Wrote { from: $x, to: \"b\" }", "several types"),
    ("T113", "unwind [1] as $n update $n set { pages: 1 }", "a value of type I64? and no node or edge"),
    ("T113", f"{FEED} delete $text", "a value of type String and no node or edge"),
    ("T6", f"{FEED} delete $z", "'$z' is not bound"),
    ("T6", f"{FEED} update $p set {{ pages: $z.age }}", "'$z' is not bound"),
    ("T7", f"{FEED} update $p set {{ title: $a }}", "cannot assign/compare node 'Person' with String"),
    ("T7", f"{FEED} update $p set {{ pages: $a.karma }}", "cannot assign/compare F64? with I32?"),
    ("T104", "match { $a: Person } return { $a.name as n } then match { $p: Paper } delete $a", "'$a'"),
]  # fmt: skip
PARAMETERS = "$day: Date, $vec: Vector(3), $text: String, $blob: Blob"


@pytest.mark.parametrize(("code", "statements", "message"), REJECTED)
def test_rejected(code: str, statements: str, message: str) -> None:
    problem, *_ = findings(write(statements, PARAMETERS))
    assert (problem.code, message in problem.message) == (code, True), problem.message
    assert problem.suggestion, problem.message


ACCEPTED = [
    write('insert Paper { doi: "x", title: "t", state: "draft", ratings: [1, 2], weights: [1, 2.5] }'),
    write('insert Paper { doi: "x", title: "t", state: "draft", price: 3, pages: 2.5, vec: [1, 2, 3, 4] }'),
    write('insert new Paper { doi: lower("X"), title: "a" + $t, state: "draft", ratings: [], pages: null }',
          "$t: String"),
    write('upsert Person { handle: "x", name: "n", age: -3 }'),
    write('insert Memo { text: "x" }'),
    write('insert Memo { text: "x", topic: [1, 2, 3] }'),
    write('insert Person { handle: "x", name: "n", photo: $x }', "$x: Blob?"),
    write('insert Person { handle: "x", name: "n", photo: $x }', "$x: String"),
    write('insert Person { handle: "x", name: "n", photo: null }'),
    write('insert Wrote { from: "a", to: "b", on: date("2024-01-01") }'),
    write("insert Wrote { to: $b, from: $a, note: $n }", "$a: String, $b: String, $n: String?"),
    write("update Person set { seen: now(), karma: 3 } where age >= 3"),
    write("update Paper set { pages: pages + 1, title: upper(title), price: pages } where pages is not null"),
    write('update Paper set { doi: "new" } where doi = "old"'),
    write('update Wrote set { note: "x" } where from = "a" and @dst in ["b", "c"]'),
    write('delete Wrote where from = "a"  delete Person where born < date("2000-01-01")'),
    write('insert Wrote { from: "a", to: "b" } delete Paper where keywords = $k', "$k: [String]"),
    write('delete Paper where not (pages > 3 or state != "draft") and @id starts_with "x" and true'),
    write('delete WROTE where from = "a"'),
    # Feeds.
    write(f"{FEED} insert Wrote {{ from: $a, to: $p, note: $a.name, on: $day }} "
          "update $p set { pages: $p.pages + 1 }", "$day: Date"),
    write("match { $a $w:wrote $p } update $w set { note: $p.title } delete $w"),
    write("unwind $ids as $i match { $p: Paper { doi: $i } } delete $p", "$ids: [String]"),
    write("unwind $ids as $i insert Wrote { from: $i, to: $i }", "$ids: [String]"),
    write("match { $a: Person } return { $a, count { $a wrote $_ } as n } then update $a set { age: $n }"),
    write("match { $a: Person } return { $a } then match { $a wrote $p } update $a set { age: count { $a knows $_ } }"),
    write("match { $x: (Person | Paper)  $x: Person } delete $x"),
    write("match { $a: Person  optional { $a wrote $p } } delete $p"),
]  # fmt: skip


@pytest.mark.parametrize("query", ACCEPTED)
def test_accepted(query: str) -> None:
    assert findings(query) == ()


def test_every_mistake_is_reported() -> None:
    query = write(
        "insert Book { isbn: 1 } insert Paper { doi: 1, doi: 2, isbn: 3, pages: $n } "
        "update Wrote set { note: 1 } where from = 1"
    )
    assert [f.code for f in findings(query)] == ["T10", "T3", "T13", "T11", "T14", "T12", "T12", "T3", "T3"]


def test_modes_of_inserts() -> None:
    mode = {"insert": (False, False), "insert new": (True, False), "upsert": (False, True)}
    for written, expected in mode.items():
        (plan,) = plans(f'{written} Person {{ handle: "x", name: "n" }}')
        assert isinstance(plan, ir.InsertNode)
        assert (plan.must_be_new, plan.keeps_rest) == expected


def test_bare_names_are_of_the_row() -> None:
    (plan,) = plans('update Paper set { pages: pages + 1 } where doi = "b"')
    assert isinstance(plan, ir.Update)
    assert set(ir.variables_of(plan.where)) == set(ir.variables_of(plan.assignments[0].value)) == {ir.ROW}


def test_an_end_meets_a_text_as_it_is_and_another_key_through_its_node() -> None:
    (plan,) = plans('delete Wrote where from = "a"')
    assert isinstance(plan, ir.Delete)
    (edge,) = plan.where.left.members  # type: ignore[union-attr]
    source = ir.MetaValue(ir.ROW, (edge,), ast.MetaField.SRC)
    assert plan.where == ir.Compare(source, ir.Operator.EQUAL, ir.Constant("a", ir.STRING))


def test_a_node_of_a_feed_is_an_end() -> None:
    (plan,) = plans(f"{FEED} insert Wrote {{ from: $a, to: $p.doi }}")
    assert isinstance(plan, ir.InsertEdge)
    assert isinstance(plan.source, ir.EntityValue)
    assert isinstance(plan.target, ir.PropertyValue)


def test_a_literal_that_is_called_like_a_property_has_two_meanings() -> None:
    catalog = compile_schema("node Switch { name: String @key  true: Bool?  moment: Date? }")
    for condition, codes in (('name = "a" and true', ["T46"]), ('name = "a" or false', [])):
        query = compile_queries(write(f"delete Switch where {condition}"), catalog).query()
        try:
            _ = query.resolved
            actual = []
        except CompileError as error:
            actual = [finding.code for finding in error.diagnostics]
        assert actual == codes


def test_ends_of_other_keys() -> None:
    catalog = compile_schema("node Day { day: Date @key }  edge Next: Day -> Day")
    query = compile_queries(write('delete Next where to = date("2024-01-01")'), catalog).query()
    (statement,) = query.resolved.body.statements  # type: ignore[union-attr]
    assert isinstance(statement, resolved.Write)
    assert isinstance(statement.plan, ir.Delete)
    assert isinstance(statement.plan.where, ir.Compare)
    key = statement.plan.where.right
    assert key == ir.NodeKey(catalog.nodes["Day"], ir.Constant("2024-01-01", ir.DATE))


def test_an_edge_with_a_key_keeps_it() -> None:
    catalog = compile_schema("node A { id: String @key }  edge E: A -> A { on: Date  n: I32?  @key(@src, @dst, on) }")

    def codes(statement: str) -> list[str]:
        query = compile_queries(write(statement), catalog).query()
        try:
            _ = query.resolved
        except CompileError as error:
            return [finding.code for finding in error.diagnostics]
        return []

    assert codes('upsert E { from: "a", to: "b", on: date("2024-01-01"), n: 1 }') == []
    assert codes('update E set { n: 2 } where on = date("2024-01-01")') == []
    assert codes('update E set { on: date("2024-01-02") } where n = 1') == ["T109"]
    assert codes("match { $a $e:e $b } update $e set { on: $e.on }") == ["T109"]


DEFAULTS = """
node Task {
    name: String @key  state: enum(todo, done) = todo  text: String = "-"
    vec: Vector(2) @embed("text", on_write=true)
}
edge Then: Task -> Task { weight: F64 = 1.0  since: Date }
"""


def plan_of(statement: str) -> ir.WritePlan:
    return compile_queries(f"query w() {{ {statement} }}", compile_schema(DEFAULTS)).query("w").write_plan


@pytest.mark.parametrize(
    "statement",
    ['insert Task { name: "a" }', 'insert new Task { name: "a", state: "done" }', 'upsert Task { name: "a" }',
     'unwind ["a"] as $n insert Task { name: $n }',
     'insert Then { from: "a", to: "b", since: date("2024-01-01") }'],
)  # fmt: skip
def test_an_insert_may_leave_out_what_has_a_default_and_the_vector_that_is_made_of_it(statement: str) -> None:
    assert plan_of(statement).statements


def test_an_insert_must_give_what_has_no_default() -> None:
    with pytest.raises(CompileError) as caught:
        plan_of('insert Then { from: "a", to: "b" }')
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.suggestion) == ("T12", "add `since: …`")


def test_null_is_not_a_way_to_ask_for_the_default() -> None:
    with pytest.raises(CompileError, match="can't be null"):
        plan_of('insert Task { name: "a", state: null }')
