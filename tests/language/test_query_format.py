"""The canonical layout: what it looks like, that it changes nothing but layout, and that it is stable."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from omnigraph.errors import CompileError
from omnigraph.language.layout import WIDTH
from omnigraph.language.query.formatter import format_queries
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.source import comments

from .query_programs import programs

LAYOUTS = [
    ("", ""),
    (
        "query a($b: A // why b\n) { insert A { c: 1 } }",
        """\
query a(
    $b: A  // why b
) {
    insert A { c: 1 }
}
""",
    ),
    (
        "query a($b: A) // why a\n{ insert A { c: 1 } }",
        """\
query a($b: A) {
    // why a
    insert A { c: 1 }
}
""",
    ),
    (
        "query a($b: A) // why a\n@description(\"x\") { insert A { c: 1 } }",
        """\
query a($b: A)  // why a
    @description("x")
{
    insert A { c: 1 }
}
""",
    ),
    ("// only a comment", "// only a comment\n"),
    (
        "// license\n\n\n\nquery a() { delete A where b = 1\n\n\n\ndelete B where c = 1 }",
        """\
// license

query a() {
    delete A where b = 1

    delete B where c = 1
}
""",
    ),
    (
        """query a($q:String,$n:I32?){match{$p:Paper{doi:$q,}$a wrote{1,1}$p $a<knows>$b $a $w:wrote $p
        not{$a wrote $_}not{search($p.title,$q)}not{$a wrote $x $x.pages>3}not{$a:Person}}
        return{$p.doi as doi count($a)}order{doi desc,n}limit 007}""",
        """\
query a($q: String, $n: I32?) {
    match {
        $p: Paper { doi: $q }
        $a wrote{1,1} $p
        $a <knows> $b
        $a $w:wrote $p
        not { $a wrote $_ }
        not { search($p.title, $q) }
        not {
            $a wrote $x
            $x.pages > 3
        }
        not {
            $a: Person
        }
    }
    return { $p.doi as doi, count($a) }
    order { doi desc, n }
    limit 7
}
""",
    ),
    (
        """query w() @description("d") @instruction("i\\n") {insert A{a:1 b:now(),}
        update B set{c:[1,2.50]}where d>=date("x") delete C where e!=true}""",
        """\
query w()
    @description("d")
    @instruction("i\\n")
{
    insert A { a: 1, b: now() }
    update B set { c: [1, 2.50] } where d >= date("x")
    delete C where e != true
}
""",
    ),
    (
        "query a() { delete A where b = 1 } query b() { delete A where b = 1 }",
        """\
query a() {
    delete A where b = 1
}

query b() {
    delete A where b = 1
}
""",
    ),
    # Comments stay where they were written; one inside a line moves above it.
    (
        """\
// file

// about a
query a($q: String, // the text
        $n: I32) { // open
    match { // first
        $p: Paper { doi: $q /* pinned */ } // after

        // lone
        $p.title = /* inside */ $q
        // last
    } // matched
    return { $p } // returned
} // end
// tail
""",
        """\
// file

// about a
query a(
    $q: String,  // the text
    $n: I32
) {
    // open
    match {
        // first
        $p: Paper {
            doi: $q  /* pinned */
        }  // after

        // lone
        /* inside */
        $p.title = $q
        // last
    }  // matched
    return { $p }  // returned
}  // end
// tail
""",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("written", "canonical"), LAYOUTS)
def test_layout(written: str, canonical: str) -> None:
    assert format_queries(written) == canonical


@pytest.mark.parametrize("canonical", [canonical for _, canonical in LAYOUTS])
def test_the_canonical_layout_is_stable(canonical: str) -> None:
    assert format_queries(canonical) == canonical


def test_a_list_that_does_not_fit_gets_a_line_per_item() -> None:
    columns = ", ".join(f"$paper.property_number_{i} as column_{i}" for i in range(6))
    formatted = format_queries(f"query a() {{ match {{ $paper: Paper }} return {{ {columns} }} }}")
    assert "        $paper.property_number_0 as column_0,\n" in formatted
    assert "        $paper.property_number_5 as column_5\n    }\n" in formatted
    assert max(map(len, formatted.splitlines())) <= WIDTH


def test_broken_text_is_refused() -> None:
    with pytest.raises(CompileError):
        format_queries("query a( {")


@settings(max_examples=150, deadline=None)
@given(programs())
def test_formatting_changes_nothing_but_layout(program: str) -> None:
    parsed = parse_queries(program)
    formatted = format_queries(program)
    assert parse_queries(formatted) == parsed
    assert format_queries(formatted) == formatted
    kept = [comment.text for comment in comments(program)]
    assert sorted(comment.text for comment in comments(formatted)) == sorted(kept)
