"""Interfaces at the ends of edge types: declarations, catalogs, changes of schemas, and the types of traversals."""

from __future__ import annotations

import msgspec
import pytest

from omnigraph.errors import CompileError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import accept_schema, compile_schema
from omnigraph.language.schema.formatter import format_schema
from omnigraph.language.schema.migration import evolve

NODES = """
interface Content { title: String? }
node Post implements Content { slug: String @key  title: String? }
node Photo implements Content { slug: String @key  title: String? }
node Person { name: String @key }
"""
SCHEMA = NODES + "edge Likes: Person -> Content\nedge Cites: Content -> Content\n"


# ---- declarations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        (NODES + "edge E: Person -> Contents", "unknown target type 'Contents'; did you mean 'Content'?"),
        (NODES + "edge E: Persom -> Content", "unknown source type 'Persom'; did you mean 'Person'?"),
        (NODES + "interface Lone {} edge E: Lone -> Person", "no node type implements it"),
        (NODES + "edge E: Person -> Content { to_type: String? }", "'to_type' in edge 'E' is taken by the type of"),
    ],
)
def test_what_is_wrong_with_an_end(text: str, fragment: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_schema(text)
    (found,) = caught.value.diagnostics
    assert fragment in f"{found.message}; {found.suggestion}"


def test_a_node_type_comes_before_an_interface_of_its_name() -> None:
    edge = compile_schema("interface X {} node X {} node Y implements X {} edge E: Y -> X").edges["E"]
    assert (edge.has_interface_end, edge.target_types) == (False, ("X",))


def test_names_of_end_types_are_free_where_no_end_is_an_interface() -> None:
    assert "to_type" in compile_schema("node N {} edge E: N -> N { to_type: String? }").edges["E"].properties


def test_the_catalog_says_which_types_an_end_may_have() -> None:
    catalog = accept_schema(SCHEMA)
    edge = catalog.edges["Likes"]
    assert (edge.source_types, edge.target_types, edge.is_symmetric) == (("Person",), ("Photo", "Post"), False)
    assert [each.name for each in catalog.incident_edges("Photo")] == ["Cites", "Likes"]
    assert Catalog.from_json(catalog.to_json()) == catalog


def test_older_releases_refuse_the_catalog() -> None:
    assert msgspec.json.decode(accept_schema(SCHEMA).to_json())["format"] == 3
    assert msgspec.json.decode(accept_schema(NODES + "edge E: Person -> Post").to_json())["format"] == 1


def test_the_formatter_keeps_the_end() -> None:
    assert "edge Likes: Person -> Content" in format_schema(SCHEMA)


# ---- changes --------------------------------------------------------------------------------------------


def steps(old: str, new: str) -> list[str]:
    return [step.line() for step in evolve(accept_schema(old), new).plan.steps]


def test_an_end_is_widened_to_an_interface_of_its_type() -> None:
    old, new = NODES + "edge E: Post -> Post", NODES + "edge E: Content -> Content"
    assert steps(old, new) == [
        "widen the source of edge type 'E' from 'Post' to 'Content'",
        "widen the target of edge type 'E' from 'Post' to 'Content'",
    ]
    widened = evolve(accept_schema(old), new).catalog
    post = widened.nodes["Post"]
    assert [end.tag_of("Post") for end in widened.edges["E"].ends] == ["", ""]
    assert all(end.interface is not None and end.interface.base == post.id for end in widened.edges["E"].ends)
    assert evolve(widened, new).plan.steps == ()


def test_a_type_that_is_renamed_meanwhile_is_the_same_type() -> None:
    new = NODES.replace("node Post", 'node Article @rename_from("Post")') + "edge E: Person -> Content"
    assert steps(NODES + "edge E: Person -> Post", new) == [
        "rename node type 'Post' -> 'Article'",
        "widen the target of edge type 'E' from 'Post' to 'Content'",
    ]


def test_an_end_is_widened_in_the_change_that_implements_the_interface() -> None:
    assert steps("node Post { slug: String @key } edge E: Post -> Post", NODES + "edge E: Post -> Content") == [
        "add interface type 'Content'",
        "add node type 'Person'",
        "add node type 'Photo'",
        "change the interfaces of node type 'Post' (+Content)",
        "add property 'Post.title' (String?) on node 'Post'",
        "widen the target of edge type 'E' from 'Post' to 'Content'",
    ]


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        ("edge E: Person -> Person", "edge E: Person -> Content", "Person does not implement Content"),
        ("edge E: Person -> Content", "edge E: Person -> Post", "declare a new edge type, fill it"),
        ("edge E: Person -> Post", "edge E: Person -> Photo", "declare a new edge type, fill it"),
    ],
)
def test_other_changes_of_ends_are_not_possible(old: str, new: str, fragment: str) -> None:
    plan = evolve(accept_schema(NODES + old), NODES + new).plan
    assert plan.first_blocker is not None
    assert fragment in plan.first_blocker.reason


def test_types_of_one_birth_name_have_different_names_in_the_ids_of_edges() -> None:
    renamed = evolve(accept_schema(SCHEMA), SCHEMA.replace("node Post", 'node Article @rename_from("Post")')).catalog
    again = evolve(renamed, SCHEMA + "node Article implements Content { slug: String @key  title: String? }").catalog
    interface = again.edges["Likes"].to_interface
    assert interface is not None
    names = {member.name: member.key_name for member in interface.members}
    assert names["Article"] == "Post"
    assert names["Post"] == f"Post#{again.nodes['Post'].id}"


# ---- traversals -----------------------------------------------------------------------------------------


def walk(clauses: str) -> ir.Walk:
    text = "query q() { match { " + clauses + " } return { count(*) as n } }"
    plan = compile_queries(text, compile_schema(SCHEMA)).query("q").read_plan
    waiting: list[ir.ReadOperator] = [plan.root]
    while waiting:
        operator = waiting.pop()
        if isinstance(operator, ir.ExpandWalk | ir.PathExpand):
            return operator.walk
        waiting += ir.inputs_of(operator)
    raise AssertionError("there is no walk")


def ways(clauses: str) -> set[tuple[str, str, str]]:
    return {(step.start.name, step.direction.value, step.end.name) for step in walk(clauses).steps}


def test_a_variable_at_an_interface_has_its_types() -> None:
    found = walk("$p: Person  $p likes $x")
    assert {member.name for member in (*found.source_members, *found.destination_members)} == {
        "Person",
        "Post",
        "Photo",
    }


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("$p: Person  $p likes $x", {("Person", "out", "Post"), ("Person", "out", "Photo")}),
        ("$p: Person  $x: Photo  $p likes $x", {("Person", "out", "Photo")}),
        ("$a: Post  $b: Post  $a <cites> $b", {("Post", "both", "Post")}),
        ("$a: Post  $b: Photo  $a <cites> $b", {("Post", "out", "Photo"), ("Post", "in", "Photo")}),
        ("$a: Post  $b: Post  $a *{1,2} $b", {("Post", "out", "Post")}),
    ],
)
def test_a_hop_connects_pairs_of_node_types(clauses: str, expected: set[tuple[str, str, str]]) -> None:
    assert ways(clauses) == expected


def test_an_edge_is_walked_against_its_direction_where_its_ends_say_so() -> None:
    assert ways("$x: Photo  $p: Person  $x likes $p") == {("Photo", "in", "Person")}


def test_an_end_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CompileError, match=r"T5: variable '\$b' has type Person, but edge 'Likes' expects Content"):
        walk("$a: Person  $b: Person  $a likes $b")


def test_a_binding_further_down_narrows_the_end() -> None:
    assert [member.name for member in walk("$p: Person  $p likes $x  $x: Post").destination_members] == ["Post"]


def test_a_search_passes_through_the_types_that_it_reaches() -> None:
    assert ways("$a: Person  $a likes{1,2} $b") == {("Person", "out", "Post"), ("Person", "out", "Photo")}
    assert len(ways("$a: Post  $a cites{1,} $b")) == 4
