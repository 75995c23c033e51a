"""Values of stored nodes and edges: null entities, variables of several types, keys, matches; rows beside a graph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.query.bindings import Bindings, member_column
from omnigraph.engine.query.context import ReadContext, RowsContext
from omnigraph.engine.query.read import context_of
from omnigraph.engine.query.values.evaluate import evaluate
from omnigraph.engine.query.values.predicates import filter_rows, predicate_mask, table_mask
from omnigraph.engine.query.values.stored import load_together, variable_columns
from omnigraph.graph import Graph
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.ir import Operator
from omnigraph.language.query.row_filter import UNRESTRICTED, TypeVisibility, Visibility
from omnigraph.language.query.syntax import ArithmeticOperator, MetaField, TextFunction
from omnigraph.language.query.value_types import F64, I64, STRING, EntityType, list_of
from omnigraph.language.types import PropertyType, Scalar
from tests.engine.query.value_rows import call, constant, results

SCHEMA = """
node Author { name: String @key @index  born: I32? }
node Book { isbn: I64 @key  title: String? @index  pages: I32?  born: F64?  vec: Vector(2)? }
node Day { on: Date @key }
edge Wrote: Author -> Book { year: I32? }
"""
RECORDS = [
    {"type": "Author", "data": {"name": "lem", "born": 1921}},
    {"type": "Author", "data": {"name": "eco"}},
    {"type": "Book", "data": {"isbn": 7, "title": "Solaris the ocean", "pages": 200, "born": 1.5}},
    {"type": "Book", "data": {"isbn": 8, "vec": [1.0, 0.0]}},
    {"edge": "Wrote", "from": "lem", "to": 7, "data": {"year": 1961}},
    {"edge": "Wrote", "from": "eco", "to": 8, "data": {}},
]


class Library:
    """A graph with its types, and the row ids of its nodes by id."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.catalog: Catalog = graph.snapshot().catalog
        self.author, self.book = self.catalog.nodes["Author"], self.catalog.nodes["Book"]
        self.wrote = self.catalog.edges["Wrote"]
        self.rows = {type_.name: self._rows_of(type_) for type_ in (self.author, self.book, self.wrote)}

    def _rows_of(self, type_: TableType) -> dict[str, int]:
        read = self.graph.snapshot().table(type_.type_key).read(["id"], row_ids=True)
        return dict(zip(read.column("id").to_pylist(), read.column("_rowid").to_pylist(), strict=True))

    def context(self, visibility: Visibility = UNRESTRICTED) -> ReadContext:
        return context_of(self.graph.snapshot(), self.catalog, visibility, {ir.NOW_PARAMETER: 0})

    def node(self, name: str) -> int:
        return {**self.rows["Author"], **self.rows["Book"]}[name]

    def prop(self, variable: str, type_: TableType, name: str) -> ir.PropertyValue:
        return ir.PropertyValue(variable, type_, type_.properties[name], optional=True)

    @property
    def either(self) -> Bindings:
        """`$x`: an author, a book, nothing, another author."""
        rows = [self.node("lem"), self.node("7"), -1, self.node("eco")]
        return Bindings({"x": np.array(rows), member_column("x"): np.array([0, 1, 0, 0])}, 4)

    @property
    def books(self) -> Bindings:
        """`$b`: both books and nothing, one of them twice."""
        return Bindings({"b": np.array([self.node(i) if i else -1 for i in ("7", "8", "", "7")])}, 4)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with Graph.init(tmp_path_factory.mktemp("values") / "g", SCHEMA) as graph:
        graph.load("\n".join(map(json.dumps, RECORDS)), mode="append")
        yield Library(graph)


def values(value: ir.Value, rows: Bindings, context: ReadContext | RowsContext) -> list[Any]:
    return results(evaluate(value, rows, context), rows.length)


def test_a_null_entity_has_null_everywhere(library: Library) -> None:
    context, rows = library.context(), library.books
    title, pages = library.prop("b", library.book, "title"), library.prop("b", library.book, "pages")
    assert values(title, rows, context) == ["Solaris the ocean", None, None, "Solaris the ocean"]
    assert values(call("upper", title), rows, context)[0] == "SOLARIS THE OCEAN"
    identity = ir.MetaValue("b", (library.book,), MetaField.ID, optional=True)
    assert values(identity, rows, context) == ["7", "8", None, "7"]
    assert values(ir.IsNull(ir.EntityValue("b", EntityType((library.book,), True))), rows, context)[2] is True
    more = ir.Compare(pages, Operator.GREATER, constant(100))
    assert list(predicate_mask(more, rows, context)) == [True, False, False, True]
    assert list(predicate_mask(ir.Not(more), rows, context)) == [False] * 4
    assert filter_rows(rows, [more, ir.IsNull(title, negated=True)], context).length == 2


def test_edges_have_ends(library: Library) -> None:
    edges = np.array([*library.rows["Wrote"].values(), -1])
    rows = Bindings({"e": edges}, len(edges))
    for field, ends in ((MetaField.SRC, ["eco", "lem"]), (MetaField.DST, ["7", "8"])):
        ids = values(ir.MetaValue("e", (library.wrote,), field, optional=True), rows, library.context())
        assert sorted(ids[:2]) == ends
        assert ids[2] is None


def test_a_variable_of_several_types_is_read_type_by_type(library: Library) -> None:
    context, rows = library.context(), library.either
    members = (library.author, library.book)
    born = ir.UnionProperty("x", tuple(library.prop("x", m, "born") for m in members), F64.as_nullable())
    assert values(born, rows, context) == [1921.0, 1.5, None, None]
    pages = ir.UnionProperty("x", (None, library.prop("x", library.book, "pages")), I64.as_nullable())
    assert values(pages, rows, context) == [None, 200, None, None]
    for field, expected in (
        (MetaField.ID, ["lem", "7", None, "eco"]),
        (MetaField.TYPE, ["Author", "Book", None, "Author"]),
    ):
        assert values(ir.MetaValue("x", members, field, optional=True), rows, context) == expected
    only = ir.UnionProperty("x", (library.prop("x", library.author, "born"), None), I64.as_nullable())
    assert values(only, rows, context) == [1921, None, None, None]


def test_columns_are_read_together(library: Library) -> None:
    context, rows = library.context(), library.either
    members = (library.author, library.book)
    born = ir.UnionProperty("x", tuple(library.prop("x", m, "born") for m in members), F64.as_nullable())
    identity = ir.MetaValue("x", members, MetaField.ID, optional=True)
    deep = ir.Not(ir.Or((ir.IsNull(born), ir.IsNull(call("lower", identity)))))
    load_together([deep], rows, context)
    before = context.snapshot.requests
    assert list(predicate_mask(deep, rows, context)) == [True, True, False, False]
    assert context.snapshot.requests == before


def test_a_property_that_the_snapshot_lacks_is_null(library: Library) -> None:
    later = library.book.properties["title"]
    prop = type(later)(name="later", id=99, type=STRING.as_nullable(), column="later")
    assert values(ir.PropertyValue("b", library.book, prop), library.books, library.context()) == [None] * 4


def test_matches_are_never_null(library: Library) -> None:
    context = library.context()
    title = library.prop("b", library.book, "title")
    match = ir.TextMatch(TextFunction.SEARCH, title, constant("ocean"))  # type: ignore[arg-type]
    assert values(match, library.books, context) == [True, False, False, True]
    assert list(predicate_mask(ir.Not(match), library.books, context)) == [False, True, True, False]
    either = ir.UnionProperty(
        "x", (library.prop("x", library.author, "name"), library.prop("x", library.book, "title")), STRING
    )
    ocean = ir.TextMatch(TextFunction.SEARCH, either, constant("ocean"))  # type: ignore[arg-type]
    assert values(ocean, library.either, context) == [False, True, False, False]
    absent = ir.UnionProperty("x", (library.prop("x", library.author, "name"), None), STRING)
    eco = ir.TextMatch(TextFunction.SEARCH, absent, constant("eco"))  # type: ignore[arg-type]
    assert values(eco, library.either, context) == [False, False, False, True]


def test_scores_are_null_without_a_rank(library: Library) -> None:
    near = ir.NearestRank(library.prop("b", library.book, "vec"), ir.Constant((0.0, 0.0), PropertyType.vector(2)))
    assert values(ir.Score(near), library.books, library.context()) == [None, 1.0, None, None]
    part = ir.UnionProperty("x", (None, library.prop("x", library.book, "vec")), PropertyType.vector(2))
    scored = values(ir.Score(ir.NearestRank(part, near.query)), library.either, library.context())
    assert scored == [None] * 4


def test_keys_are_the_visible_properties_that_are_not_null(library: Library) -> None:
    entity = ir.EntityValue("x", EntityType((library.author, library.book), True))
    names = [["born", "name"], ["born", "isbn", "pages", "title"], None, ["name"]]
    assert values(call("keys", entity), library.either, library.context()) == names
    masked = TypeVisibility(library.book, masked=frozenset({"pages"}))
    context = library.context(Visibility({library.book.type_key: masked}))
    assert values(call("keys", entity), library.either, context)[1] == ["born", "isbn", "title"]


def test_nodes_have_ids_by_their_keys(library: Library) -> None:
    rows = Bindings({}, 1)
    day = library.catalog.nodes["Day"]
    for node, key, expected in (
        (library.author, constant("lem"), "lem"),
        (library.book, constant(7), "7"),
        (library.book, constant("7"), "7"),
        (library.book, constant(None), None),
        (library.book, constant(1.5), "1.5"),
        (day, ir.Constant("1970-01-03", PropertyType(Scalar.DATE)), "2"),
        (day, constant("1970-01-03"), "2"),
    ):
        assert values(ir.NodeKey(node, key), rows, library.context()) == [expected]


def test_columns_of_variables(library: Library) -> None:
    context = library.context()
    both = EntityType((library.book, library.author))
    book = ir.EntityValue("b", EntityType((library.book,), True))
    columns = variable_columns("n", both, evaluate(book, library.books, context), book.type, 4, context)
    rows = library.books.binding(columns)
    assert values(ir.MetaValue("n", both.members, MetaField.ID), rows, context) == ["7", "8", None, "7"]
    assert list(rows.rows["n"]) == list(rows.rows["b"])
    pages = library.prop("b", library.book, "pages")
    wide = variable_columns("p", F64, evaluate(pages, library.books, context), pages.type, 4, context)
    assert values(ir.VariableValue("p", F64.as_nullable()), Bindings(wide, 4), context) == [200.0, None, None, 200.0]
    nothing = variable_columns("p", I64, pa.scalar(None, pa.string()), constant(None).type, 2, context)
    assert values(ir.VariableValue("p", I64.as_nullable()), Bindings(nothing, 2), context) == [None, None]


def table(library: Library, columns: Mapping[str, list[Any]]) -> pa.Table:
    """Rows of books as a table has them."""
    types = {"isbn": pa.int64(), "title": pa.string(), "pages": pa.int32()}
    named = {library.book.properties[name].column: pa.array(v, types[name]) for name, v in columns.items()}
    return pa.table({"id": pa.array([str(n) for n in columns["isbn"]]), **named})


def test_rows_beside_a_graph(library: Library) -> None:
    rows = table(library, {"isbn": [1, 2, 3], "title": ["a", None, "c"], "pages": [10, 20, None]})
    pages, title = (ir.PropertyValue(ir.ROW, library.book, library.book.properties[n]) for n in ("pages", "title"))
    many = ir.Compare(pages, Operator.GREATER, constant(15))
    assert list(table_mask(ir.Or((many, ir.IsNull(pages))), rows, {})) == [False, True, True]
    assert list(table_mask(ir.Not(many), rows, {})) == [True, False, False]
    one = ir.Compare(ir.MetaValue(ir.ROW, (library.book,), MetaField.ID), Operator.EQUAL, constant("3"))
    assert list(table_mask(one, rows, {})) == [False, False, True]
    limit = ir.Compare(pages, Operator.LESS, ir.ParameterValue("n", I64))
    assert list(table_mask(limit, rows, {"n": 15})) == [True, False, False]
    context = RowsContext.over(rows, {})
    more = ir.Arithmetic(pages, ArithmeticOperator.ADD, constant(1), I64.as_nullable())
    bindings = Bindings({ir.ROW: np.array([2, 1])}, 2)
    assert values(more, bindings, context) == [None, 21]
    assert values(ir.ListOf((title,), list_of(STRING)), bindings, context) == [["c"], [None]]
