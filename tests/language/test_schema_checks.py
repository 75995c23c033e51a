"""Every rule of the schema language about meaning: what is refused, with which words, and what is admitted."""

from __future__ import annotations

import pytest

from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.schema.compile import compile_schema


def findings(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(CompileError) as caught:
        compile_schema(text)
    return caught.value.diagnostics


TYPES = [
    ("Vector(0)", "Vector dimension must be greater than zero"),
    ("Vector(2147483648)", "exceeds maximum supported"),
    ("Vector(99999999999999999999999)", "exceeds maximum supported"),
    ("Vector", "requires a dimension"),
    ("[Blob]", "list of Blob is not supported"),
    ("[[I32]]", "a list holds scalars only"),
    ("[enum(a)]", "a list holds scalars only"),
    ("[Vector(3)]", "a list holds scalars only"),
    ("[I32?]", "items of a list can't be marked nullable"),
    ("enum(a, b, a)", "duplicate values"),
    ("Text", "unknown type 'Text'"),
    ("I32(4)", "takes no argument"),
]


@pytest.mark.parametrize(("written", "fragment"), TYPES)
def test_refused_types(written: str, fragment: str) -> None:
    (found,) = findings(f"node A {{ p: {written} }}")
    assert fragment in found.message
    assert found.code == "parse error"


RESERVED = ["_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"]


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("head", ["interface I", "node A", "node N {} edge E: N -> N"])
def test_virtual_storage_columns_are_reserved(head: str, name: str) -> None:
    (found,) = findings(f"{head} {{ {name}: I32 }}")
    assert name in found.message
    assert "reserved" in found.message
    assert "exported" in found.message


@pytest.mark.parametrize("name", ["_row_id", "_rowId", "rowid", "id", "src", "dst"])
def test_names_that_only_look_reserved(name: str) -> None:
    compile_schema(f"node A {{ {name}: I32 }} edge E: A -> A {{ {name}: I32 }}")


def test_a_node_may_have_properties_that_an_edge_may_not() -> None:
    assert compile_schema("node A { from: I32  to: I32 }").nodes["A"].properties.keys() == {"from", "to"}


@pytest.mark.parametrize("head", ["node A", "node N {} edge E: N -> N"])
@pytest.mark.parametrize(
    ("label", "fragment"),
    [
        ("@label", "requires one non-empty string"),
        ('@label("")', "requires one non-empty string"),
        ("@label(name)", "requires one non-empty string"),
        ('@label("A", b="c")', "requires one non-empty string"),
        ('@label("A") @label("B")', "declares @label multiple times"),
    ],
)
def test_refused_labels(head: str, label: str, fragment: str) -> None:
    (found,) = findings(f"{head} {label}{' {}' if head == 'node A' else ''}")
    assert fragment in found.message


NODE_ANNOTATIONS = [
    ("@key", "only supported on node properties"),
    ("@unique", "only supported on node properties"),
    ("@index", "only supported on node properties"),
    ('@embed("p")', "only supported on node properties"),
    ('@metric("l2")', "only supported on node properties"),
    ("@range", "is a body rule"),
    ("@card", "@card must be the first thing after the target type"),
    ("@description", "requires a non-empty value"),
    ('@description("  ")', "requires a non-empty value"),
    ('@instruction("")', "requires a non-empty value"),
    ('@description("a") @description("b")', "declares @description multiple times"),
    ('@instruction("a") @instruction("b")', "declares @instruction multiple times"),
    ("@rename_from", "@rename_from on 'A' requires one non-empty name"),
    ('@rename_from(" ")', "@rename_from on 'A' requires one non-empty name"),
    ('@rename_from("B", x=1)', "@rename_from on 'A' takes no named arguments"),
    ('@rename_from("B") @rename_from("C")', "declares @rename_from multiple times"),
]


@pytest.mark.parametrize(("annotation", "fragment"), NODE_ANNOTATIONS)
def test_refused_annotations_of_a_node_type(annotation: str, fragment: str) -> None:
    (found,) = findings(f"node A {annotation} {{}}")
    assert fragment in found.message


@pytest.mark.parametrize("annotation", ["@key", "@unique", "@index", '@embed("p")'])
def test_refused_annotations_of_an_edge_type(annotation: str) -> None:
    (found,) = findings(f"node A {{}} edge E: A -> A {annotation}")
    assert "not supported on edges" in found.message


PROPERTY_ANNOTATIONS = [
    ("p: I32? @key", "cannot be nullable"),
    ("p: [I32] @key", "not supported on list property"),
    ("p: [I32] @unique", "not supported on list property"),
    ("p: [I32] @index", "not supported on list property"),
    ("p: Vector(3) @key", "not supported on vector property"),
    ("p: Vector(3) @unique", "not supported on vector property"),
    ("p: Blob @key", "not supported on blob property"),
    ("p: Blob @unique", "not supported on blob property"),
    ("p: Blob @index", "not supported on blob property"),
    ("p: I32 @unique @unique", "declares @unique multiple times"),
    ("p: I32 @index @index", "declares @index multiple times"),
    ("p: I32 @key @key", "declares @key multiple times"),
    ('p: I32 @instruction("x")', "only supported on node and edge types"),
    ('p: I32 @description("")', "requires a non-empty value"),
    ("p: I32 @range", "is a body rule"),
    ("p: I32 @check", "is a body rule"),
    ('s: String p: I32 @embed("s")', "@embed is only supported on vector properties"),
    ('s: String p: Blob @embed("s")', "@embed is not supported on blob property"),
    ("p: Vector(2) @embed", "requires a source property name"),
    ('p: Vector(2) @embed(" ")', "requires a non-empty source property name"),
    ("p: Vector(2) @embed(5)", "requires a source property name"),
    ('p: Vector(2) @embed("s")', "references unknown source property 's'"),
    ('s: I32 p: Vector(2) @embed("s")', "@embed source property A.s must be String"),
    ('s: [String] p: Vector(2) @embed("s")', "must be String"),
    ('s: String p: Vector(2) @embed("s", size=3)', "has unknown argument 'size=' (only 'model' is supported)"),
    ('s: String p: Vector(2) @embed("s", on_write="yes")', "takes on_write=true or on_write=false"),
    ('s: String p: Vector(2) @embed("s") @embed("s")', "declares @embed multiple times"),
    ('p: I32 @metric("l2")', "only supported on vector properties"),
    ('p: Vector(2) @metric("manhattan")', 'takes one of "l2", "cosine", "dot"'),
    ("p: Vector(2) @metric", "takes one of"),
    ("p: I32 @index(probes=2)", "has parameters for vectors only, and this property is I32"),
    ("p: Vector(2) @index(probes=0)", "must be a whole number from 1 to 65536"),
    ("p: Vector(2) @index(probes=1.5)", "must be a whole number from 1 to 65536"),
    ('p: Vector(2) @index(exact_rows="1")', "must be a whole number from 0 to"),
    ("p: Vector(2) @index(probes=2, probes=3)", "probes= of @index on 'A.p' is given twice"),
    ("p: Vector(2) @index(limit=2)", "unknown parameter 'limit='"),
    ("p: Vector(2) @index(probes=2) @index", "declares @index multiple times"),
    ("p: I32 @unique(probes=2)", "takes no named arguments, such as 'probes='"),
    ('p: Vector(2) @metric("l2") @metric("l2")', "declares @metric multiple times"),
]


@pytest.mark.parametrize(("members", "fragment"), PROPERTY_ANNOTATIONS)
def test_refused_annotations_of_a_node_property(members: str, fragment: str) -> None:
    (found,) = findings(f"node A {{ {members} }}")
    assert fragment in found.message
    assert found.span is not None


EDGE_MEMBERS = [
    ("p: I32 @key", "not supported on edge properties"),
    ('p: Vector(2) @embed("s")', "not supported on edge properties"),
    ('p: Vector(2) @metric("dot")', "not supported on edge properties"),
    ("p: I32 @key(p)", "must include both ends"),
    ("@key(@src)", "must include both ends"),
    ("@key(@src, @dst, @src)", "names '@src' twice"),
    ("@key(src, @dst, @src)", "names '@src' twice"),
    ("@key(@src, @dst) @key(@src, @dst)", "multiple @key"),
    ("p: I32? @key(@src, @dst, p)", "cannot be nullable"),
    ("p: [I32] @key(@src, @dst, p)", "not supported on list property"),
    ("p: Blob @key(@src, @dst, p)", "not supported on blob property"),
    ("@key(@src, @dst, p)", "references unknown property 'p'"),
    ("src: I32 @key(src, @dst)", "must include both ends"),
    ("p: I32 @range(p, 1..)", "not supported on edges"),
    ('p: String @check(p, "x")', "not supported on edges"),
    ("from: I32", "taken by an end of the edge"),
    ("to: I32", "taken by an end of the edge"),
    ("__p: I32", "begins with '__'"),
    ("@unique(from)", "references unknown property 'from'"),
    ("@unique(id)", "references unknown property 'id'"),
    ("b: Blob @unique(b)", "not supported on blob property"),
]


@pytest.mark.parametrize(("members", "fragment"), EDGE_MEMBERS)
def test_refused_members_of_an_edge(members: str, fragment: str) -> None:
    (found,) = findings(f"node A {{}} edge E: A -> A {{ {members} }}")
    assert fragment in found.message


BODY_RULES = [
    ("p: I32? @key(p)", "cannot be nullable"),
    ("p: [I32] @key(p)", "not supported on list property"),
    ("p: Vector(2) @key(p)", "not supported on vector property"),
    ("p: Blob @key(p)", "not supported on blob property"),
    ("p: Blob @unique(p)", "not supported on blob property"),
    ("p: Blob @index(p)", "not supported on blob property"),
    ("p: I32 @key(p) @key(p)", "multiple @key"),
    ("p: I32 @key q: I32 @key", "multiple @key"),
    ("p: I32 @key q: I32 @key(q)", "multiple @key"),
    ("p: I32 @key(q)", "references unknown property 'q'"),
    ("p: I32 @unique(p, q)", "references unknown property 'q'"),
    ("p: I32 @index(q)", "references unknown property 'q'"),
    ("p: I32 @range(q, 1..)", "references unknown property 'q'"),
    ('p: I32 @check(q, "x")', "references unknown property 'q'"),
    ("p: I32 @key(id)", "references unknown property 'id'"),
    ("p: I32 @key(p, p)", "names 'p' twice"),
    ("p: I32 @unique(@src)", "references unknown property '@src'"),
    ("p: I32 @unique(src)", "references unknown property 'src'"),
    ("p: String @range(p, 1..)", "requires a numeric type"),
    ("p: Vector(2) @range(p, 1..)", "requires a numeric type"),
    ('p: I32 @check(p, "x")', "requires String type"),
    ("p: I32 @range(p, " + "9" * 60 + "..)", "too long to be a number"),
    ("p: I32 p: String", "duplicate property 'p'"),
    ("__id: I32", "begins with '__'"),
]


@pytest.mark.parametrize(("members", "fragment"), BODY_RULES)
def test_refused_body_rules_of_a_node(members: str, fragment: str) -> None:
    (found,) = findings(f"node A {{ {members} }}")
    assert fragment in found.message


ADMITTED = [
    "node A { p: I32? @unique }",
    "node A { p: I32? @index }",
    "node A { p: Vector(2)? @index }",
    "node A { p: [I32] @unique(p) @index(p) }",
    "node A { p: Vector(2) @unique(p) @index(p) }",
    "node A { p: [I32] @range(p, 1..5) }",
    'node A { p: [String] @check(p, "x") q: enum(a) @check(q, "a") }',
    'node A { p: I32 @default(3) @anything(x, a=1) @anything("again") }',
    'node A @owner("team") {} edge E: A -> A @owner("team")',
    'node A { s: enum(a, b) v: Vector(2) @embed(s, model="m") @metric(cosine) }',
    "node A {} edge E: A -> A { on: Date? @unique(src, dst, on) @index(src) }",
    "node Shared {} edge Shared: Shared -> Shared interface Shared {}",
    'interface Unused { p: Blob @key @instruction("x") }',
    "node A { @unique(p, p) p: I32 }",
]


@pytest.mark.parametrize("text", ADMITTED)
def test_admitted(text: str) -> None:
    compile_schema(text)


INTERFACES = [
    ("node A implements I {}", "implements unknown interface 'I'"),
    (
        "interface I { p: I32 } node A implements I { p: I32? }",
        "'A.p' has type I32?, but interface 'I' declares it as I32",
    ),
    ("interface I { p: enum(a) } node A implements I { p: enum(a, b) }", "has type enum(a, b)"),
    ("interface I { p: Blob @index } node A implements I {}", "not supported on blob property"),
    ("interface I { p: I32 @key } node A implements I { q: I32 @key }", "multiple @key"),
    ('interface I { p: Vector(2) @embed("s") } node A implements I {}', "unknown source property 's'"),
    ("interface I { p: I32 @rename_from } node A implements I {}", "requires one non-empty name"),
    (
        "interface I { p: I32 } interface J { p: I32? } node A implements I, J {}",
        "incompatible property semantics",
    ),
    (
        "interface I { p: I32 } interface J { p: I32 @index } node A implements I, J {}",
        "incompatible property semantics",
    ),
]


@pytest.mark.parametrize(("text", "fragment"), INTERFACES)
def test_refused_interface_use(text: str, fragment: str) -> None:
    (found,) = findings(text)
    assert fragment in found.message


def test_an_embed_source_may_come_from_the_node_or_another_interface() -> None:
    compile_schema('interface I { v: Vector(2) @embed("s") } node A implements I { s: String }')
    compile_schema('interface I { v: Vector(2) @embed("s") } interface J { s: String } node A implements I, J {}')


def test_rename_hints_do_not_make_interfaces_disagree() -> None:
    compile_schema('interface I { p: I32 } interface J { p: I32 @rename_from("q") } node A implements I, J {}')


CATALOG = [
    ("node A {} node A {}", "duplicate node type 'A'"),
    ("node A {} edge E: A -> A edge E: A -> A", "duplicate edge type 'E'"),
    ("interface I {} interface I {}", "duplicate interface 'I'"),
    ("node A {} edge E: B -> A", "references unknown source type 'B'"),
    ("node A {} edge E: A -> B", "references unknown target type 'B'"),
    ("interface I {} node A {} edge E: A -> I", "no node type implements it"),
    ("node A {} edge Ab: A -> A edge AB: A -> A", "collision after case folding"),
]


@pytest.mark.parametrize(("text", "fragment"), CATALOG)
def test_catalog_errors(text: str, fragment: str) -> None:
    (found,) = findings(text)
    assert fragment in found.message
    assert found.code == "catalog error"


def test_cardinality_bounds_must_be_ordered() -> None:
    (found,) = findings("node A {} edge E: A -> A @card(5..1)")
    assert "cardinality min 5 exceeds max 1" in found.message


def test_all_errors_of_a_file_come_in_source_order() -> None:
    text = """
    node A { p: I33 @key  q: [I32] @unique }
    edge E: A -> B @card(2..1)
    node C implements I { x: }
    node A {}
    """
    found = findings(text)
    assert [d.span.line for d in found if d.span] == [2, 2, 3, 3, 4, 5]


def test_one_mistake_is_reported_once() -> None:
    (found,) = findings("node A { p: Strin @key  @range(p, 1..) } edge E: A -> A")
    assert found.message == "unknown type 'Strin'"
    (found,) = findings("node Broken { p } node B {} edge E: B -> Broken")
    assert found.message.startswith("unexpected")
    text = 'interface Broken { p } node B implements Broken { @key(q) v: Vector(2) @embed("q") }'
    (found,) = findings(text)
    assert found.message.startswith("unexpected")


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("node A { p: Sting }", "did you mean 'String'?"),
        ("interface Titled {} node A implements Tilted {}", "did you mean 'Titled'?"),
        ("node Reader {} edge E: Reader -> Raeder", "did you mean 'Reader'?"),
        ("node A { pages: I32 @range(page, 1..) }", "did you mean 'pages'?"),
        ("node A {} edge E: A -> A { @unique(from) }", "did you mean '@src'?"),
        ("node A { @unique(to) } ", None),
        ('node A { blurb: String v: Vector(2) @embed("blurp") }', "did you mean 'blurb'?"),
        ('node A { v: Vector(2) @metric("cosin") }', "did you mean 'cosine'?"),
        ("node A { v: Vector(2) @index(partition=2) }", "did you mean 'partitions'?"),
    ],
)
def test_near_names_are_suggested(text: str, suggestion: str | None) -> None:
    assert findings(text)[0].suggestion == suggestion


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=a)", "(?<!a)b", r"(a)\\1", "[z-a]", "x{2000}"])
def test_a_check_that_no_row_could_be_checked_with(pattern: str) -> None:
    (found,) = findings(f'node A {{\n  k: String @key\n  @check(k, "{pattern}")\n}}')
    assert "@check on 'A.k' has invalid regex" in found.message
    assert found.span is not None
    assert (found.span.line, found.span.column) == (3, 3)
    assert "RE2" in (found.suggestion or "")


@pytest.mark.parametrize(
    ("type_", "bounds"),
    [
        *(("I32", "5..1"), ("F64", "1.5..1.25"), ("I64", "1.2..1.8"), ("U32?", "-1..-2"), ("[I32]", "2..1")),
        *(("U64", "..-1"), ("I32", "5000000000.."), ("U32", "-9..-0.5")),
    ],
)
def test_a_range_without_a_value(type_: str, bounds: str) -> None:
    (found,) = findings(f"node A {{\n  n: {type_}\n  @range(n, {bounds})\n}}")
    assert "allows no value" in found.message
    assert found.span is not None
    assert (found.span.line, found.span.column) == (3, 3)


@pytest.mark.parametrize(
    ("type_", "bounds"),
    [
        *(("I32", "5..5"), ("F64", "1.2..1.8"), ("I64", "0.5..1.5"), ("I32", "5..")),
        *(("U64", "18446744073709551615.."), ("I64", "-9223372036854775808..-9223372036854775808"), ("U32", "..0")),
    ],
)
def test_a_range_with_a_value(type_: str, bounds: str) -> None:
    compile_schema(f"node A {{ n: {type_} @range(n, {bounds}) }}")


def test_ranges_that_contradict_each_other() -> None:
    (found,) = findings("node A {\n  n: I32\n  @range(n, 1..)\n  @range(n, ..5)\n  @range(n, 6..7)\n}")
    assert "nothing lies both within 1..5 and 6..7" in found.message
    assert found.span is not None
    assert (found.span.line, found.span.column) == (5, 3)
    compile_schema("node A { n: I32 m: I32 @range(n, 1..5) @range(n, 5..9) @range(m, 6..7) }")
