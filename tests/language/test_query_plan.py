"""The shape of plans: where predicates run, what columns are called, what execution refuses, what writes carry."""

from __future__ import annotations

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir

from .query_archive import compiled, read, refusals, statements, tree, write


def operators(op: ir.ReadOperator) -> list[str]:
    """The operators from the top down the input side."""
    names = [type(op).__name__]
    below = getattr(op, "input", None) or getattr(op, "left", None)
    return names if below is None else names + operators(below)


def find(op: ir.ReadOperator, kind: type[ir.ReadOperator]) -> list[ir.ReadOperator]:
    found = [op] if isinstance(op, kind) else []
    for name in ("input", "left", "right", "inner", "first", "second"):
        below = getattr(op, name, None)
        if isinstance(below, ir.ReadOperator):
            found += find(below, kind)
    return found


def ties(sort: ir.Sort) -> tuple[str, ...]:
    return tuple(tie.variable for tie in sort.tie_break)


def test_predicates_on_one_variable_run_where_it_is_bound() -> None:
    plan = tree(
        read(
            '$a: Person { handle: "a" }  $a $w:wrote $p  $p.pages > 3  $w.share > 0.5  search($p.title, "x")  '
            "$a.age = $p.pages"
        )
    )
    (scan,) = find(plan, ir.Scan)
    (expand,) = find(plan, ir.Expand)
    (filter_,) = find(plan, ir.Filter)
    assert isinstance(scan, ir.Scan)
    assert len(scan.predicates) == 1
    assert isinstance(expand, ir.Expand)
    assert len(expand.predicates) == 3
    assert isinstance(filter_, ir.Filter)
    assert [ir.predicate_variables(p) for p in filter_.predicates] == [{"a", "p"}]


def test_the_first_binding_of_a_group_is_its_root() -> None:
    plan = tree(read("$a wrote $p  $p: Paper  $a: Person  $s: Slot"))
    assert [scan.variable for scan in find(plan, ir.Scan) if isinstance(scan, ir.Scan)] == ["p", "s"]
    (expand,) = find(plan, ir.Expand)
    assert isinstance(expand, ir.Expand)
    assert (expand.source, expand.direction, expand.destination) == ("p", ir.Direction.IN, "a")


DIRECTIONS = [
    ("$a: Person  $a wrote $p", ("a", "out", "p")),
    ("$a: Person  $p wrote $a", ("a", "out", "p")),
    ("$p: Paper  $p wrote $a", ("p", "in", "a")),
    ("$p: Paper  $a wrote $p", ("p", "in", "a")),
    ("$a: Person  $a knows $b", ("a", "out", "b")),
    ("$a: Person  $b knows $a", ("a", "in", "b")),
    ("$a: Person  $b <knows> $a", ("a", "both", "b")),
    ("$a wrote $p", ("a", "out", "p")),
]


@pytest.mark.parametrize(("match", "expected"), DIRECTIONS)
def test_direction_is_resolved(match: str, expected: tuple[str, str, str]) -> None:
    (expand,) = find(tree(read(match)), ir.Expand)
    assert isinstance(expand, ir.Expand)
    assert (expand.source, expand.direction.value, expand.destination) == expected


def test_anonymous_ends_are_hidden_and_never_shared() -> None:
    plan = tree(read("$a: Person  $a wrote $_  $a wrote $_", "$a", "order { $a.name }"))
    hidden = [e.destination for e in find(plan, ir.Expand) if isinstance(e, ir.Expand)]
    assert len(set(hidden)) == 2
    assert all(name.startswith("#") for name in hidden)
    (sort,) = find(plan, ir.Sort)
    assert isinstance(sort, ir.Sort)
    assert ties(sort) == ("a",)


def test_the_tie_break_names_every_variable_by_its_id_column() -> None:
    plan = tree(read("$ab: Person  $a: Person  $a_b: Person  $a $w:wrote $p", "$a", "order { $a.name }"))
    (sort,) = find(plan, ir.Sort)
    assert isinstance(sort, ir.Sort)
    assert ties(sort) == ("a", "a_b", "ab", "p", "w")
    assert ties(sort) == tuple(sorted(ties(sort), key=lambda v: f"{v}.id"))


def test_a_test_runs_before_an_expansion() -> None:
    plan = tree(read("$a: Person  $b: Person  $a wrote $p  $a knows $b  $b wrote $p"))
    assert operators(plan)[:4] == ["Project", "Expand", "Expand", "Expand"]
    closing = [e.closing for e in find(plan, ir.Expand) if isinstance(e, ir.Expand)]
    assert closing == [True, False, False]


def test_a_negation_reads_only_what_it_mentions() -> None:
    plan = tree(read("$a: Person  $s: Slot  $p: Paper  not { $a wrote $x  not { $x cites $p } }"))
    outer, inner = find(plan, ir.AntiJoin)
    assert isinstance(outer, ir.AntiJoin)
    assert isinstance(inner, ir.AntiJoin)
    assert outer.correlated == ("a", "p")
    assert inner.correlated == ("p", "x")


COLUMN_NAMES = [
    ("$p.title", "p.title", "title"),
    ("$p", "p", "p"),
    ("$q", "q", "q"),
    ("3", "literal", "literal"),
    ("[1]", "literal", "literal"),
    ("now()", "__nanograph_now", "now"),
    ("count($p)", "p", "count"),
    ("sum($p.pages)", "p.pages", "sum"),
    ("max($q)", "q", "max"),
    ("bm25($p.title, $q)", "bm25", "bm25"),
    ("nearest($p.vec, $q)", "nearest", "nearest"),
    ("search($p.title, $q)", "search", "search"),
    ("count($p) as n", "n", "n"),
]


@pytest.mark.parametrize(("projection", "executed", "described"), COLUMN_NAMES)
def test_column_names(projection: str, executed: str, described: str) -> None:
    query = compiled(read("$p: Paper", projection, params="$q: String"))
    assert [column.name for column in query.read_plan.columns] == [executed]
    assert [column.name for column in query.operation.result] == [described]


def test_column_types() -> None:
    query = compiled(
        read("$p: Paper", "$p, $p.pages, $p.vec, $p.keywords, now(), bm25($p.title, $q) as s", params="$q: String")
    )
    shown = [str(column.type) for column in query.read_plan.columns]
    assert shown == ["node Paper", "I32?", "Vector(4)?", "[String]?", "DateTime", "F64"]
    aggregated = compiled(
        read("$p: Paper", "count($p), sum($p.pages), sum($p.price), avg($p.pages) as mean, max($p.title), $p.state")
    )
    shown = [str(column.type) for column in aggregated.read_plan.columns]
    assert shown == ["I64", "I64?", "F64?", "F64?", "String?", "enum(draft, final, withdrawn)"]


def test_a_ranked_group_leads_the_cross_join() -> None:
    plan = tree(read("$a: Person  $p: Paper", "$p", "order { nearest($p.vec, $q) } limit 3", "$q: Vector(4)"))
    (join,) = find(plan, ir.CrossJoin)
    assert isinstance(join, ir.CrossJoin)
    assert isinstance(join.left, ir.Rank)


def test_a_ranking_has_few_other_ways_to_its_nodes_and_equalities_come_first() -> None:
    more = "".join(f"  $x{i} wrote $p  $x{i}.age < {i}" for i in range(9))
    match = f'$p: Paper  $z wrote $p  $z.age > 3{more}  $y wrote $p  $y.handle = "b"'
    (rank,) = find(tree(read(match, "$p", "order { nearest($p.vec, $q) } limit 3", "$q: Vector(4)")), ir.Rank)
    assert isinstance(rank, ir.Rank)
    begun = [next(below for below in reversed(list(find(start, ir.Scan)))) for start in rank.starts]
    assert [scan.variable for scan in begun if isinstance(scan, ir.Scan)] == ["y", "z", "x0", "x1"]


REFUSED = [
    (write('insert Memo { text: "x" }'), "missing required property 'Memo.topic'"),
    (write('update Paper set { doi: "b" } where doi = "a"'), "cannot update @key property 'Paper.doi'"),
    (write('update Slot set { hour: 3 } where room = "a"'), "cannot update @key property 'Slot.hour'"),
    (write('match { $p: Paper } update $p set { doi: "b" }'), "cannot update @key property 'Paper.doi'"),
    (write('insert Wrote { from: "a", to: "b" } delete Paper where doi = "x"'), "inserts/updates and deletes"),
    (write('delete Paper where doi = "x" update Paper set { doi: "y" } where doi = "x"'), "split into separate"),
    (write('match { $p: Paper  $p cites $q } update $p set { pages: 1 } delete $q'), "split into separate"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "message"), REFUSED)
def test_refused_at_execution_but_not_by_the_type_checker(query: str, message: str) -> None:
    assert message in refusals(query)[0].message


def test_a_mix_is_refused_before_its_statements_are_looked_at() -> None:
    query = write('delete Paper where doi = "x" update Paper set { doi: "y" } where doi = "x"')
    assert [finding.code for finding in refusals(query)] == ["D2"]


def test_a_value_knows_the_variables_it_depends_on() -> None:
    query = read("$p: Paper  $a: Person", '$p.doi, $a, 3, bm25($p.title, "x"), search($a.name, "x")')
    (project,) = find(tree(query), ir.Project)
    assert isinstance(project, ir.Project)
    assert [list(ir.variables_of(column.value)) for column in project.columns] == [["p"], ["a"], [], ["p"], ["a"]]
    fused = 'rrf(bm25($p.title, "x"), bm25($a.name, "y"))'
    (project,) = find(tree(read("$p: Paper  $a: Person", fused, f"order {{ {fused} }} limit 3")), ir.Project)
    assert isinstance(project, ir.Project)
    assert list(ir.variables_of(project.columns[0].value)) == ["p", "a"]


def test_an_aggregate_sorts_by_what_it_returns() -> None:
    plan = tree(read("$p: Paper", "$p.doi, count($p) as n", "order { n desc, $p.doi } limit 3"))
    assert operators(plan) == ["Limit", "Sort", "Aggregate", "Scan"]
    (sort,) = find(plan, ir.Sort)
    assert isinstance(sort, ir.Sort)
    assert [key.value.index for key in sort.keys if isinstance(key.value, ir.OutputValue)] == [1, 0]
    assert ties(sort) == ()


# ---- writes ---------------------------------------------------------------------------------------------


def test_insert_node() -> None:
    (insert,) = statements(write('insert Slot { room: "a", hour: $h }', "$h: I32"))
    assert isinstance(insert, ir.InsertNode)
    assert insert.type.name == "Slot"
    assert [(a.property.name, type(a.value).__name__) for a in insert.assignments] == [
        ("room", "Constant"),
        ("hour", "ParameterValue"),
    ]


def test_insert_edge_takes_its_ends_apart_from_its_properties() -> None:
    (insert,) = statements(write('insert Wrote { note: "n", to: $b, from: "a" }', "$b: String"))
    assert isinstance(insert, ir.InsertEdge)
    assert insert.source == ir.Constant("a", ir.STRING)
    assert insert.target == ir.ParameterValue("b", ir.STRING)
    assert [a.property.name for a in insert.assignments] == ["note"]


def test_update_and_its_predicate() -> None:
    (update,) = statements(write("update Person set { seen: now() } where age >= 3"))
    assert isinstance(update, ir.Update)
    assert isinstance(update.assignments[0].value, ir.Now)
    assert isinstance(update.type, NodeType)
    assert ir.value_text(update.where) == "age >= 3"


def test_deleting_a_node_type_names_every_edge_type_it_cascades_to() -> None:
    (delete,) = statements(write('delete Person where handle = "a"'))
    assert isinstance(delete, ir.Delete)
    assert [edge.name for edge in delete.cascades] == ["Wrote", "Knows", "Reserved", "Memo"]


def test_deleting_edges_by_an_end() -> None:
    (delete,) = statements(write('delete Wrote where to = "p"'))
    assert isinstance(delete, ir.Delete)
    assert (delete.type.name, ir.value_text(delete.where), delete.cascades) == ("Wrote", '@dst = "p"', ())


def test_a_node_type_hides_an_edge_type_of_the_same_name() -> None:
    (delete,) = statements(write('delete Memo where text = "p"'))
    assert isinstance(delete, ir.Delete)
    assert isinstance(delete.type, NodeType)


def test_plans_know_whether_they_construct_or_destroy() -> None:
    plan = compiled(write('insert Wrote { from: "a", to: "b" }')).write_plan
    assert (plan.only_deletes, plan.is_insert_only) == (False, True)
    plan = compiled(write('delete Paper where doi = "a"')).write_plan
    assert (plan.only_deletes, plan.is_insert_only) == (True, False)


def test_each_kind_has_its_own_way_in() -> None:
    with pytest.raises(BadRequestError, match="contains mutations"):
        _ = compiled(write('delete Paper where doi = "a"')).read_plan
    with pytest.raises(BadRequestError, match="is a read"):
        _ = compiled(read("$p: Paper")).write_plan
