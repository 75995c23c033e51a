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
    # Blocks, optional parts and conditions on hops.
    (
        """query a(){match{$r:Reader count{$r borrowed $b $b.x=1}>=$n exists{$r follows $_}or $r.age is   null
        optional{$r borrowed $b}optional{$r $l:borrowed $b $b.x=1}not{$r a $b}and $x exists{$b:Book}
        sum ( distinct $b.x ){$r borrowed $b}=1 $r(x|"in"|"y"){1,}$b $r $e:*$b $x:(A|B){a:1,}$x:* $r<*>$b
        path $p:trails $r follows{1,3}$b each $f $x{$x.age>17}
        $r follows{1,}$b each $f $_{$f.on>=$d $f.x is not null}}return{1 as one}}""",
        """\
query a() {
    match {
        $r: Reader
        count {
            $r borrowed $b
            $b.x = 1
        } >= $n
        exists { $r follows $_ } or $r.age is null
        optional { $r borrowed $b }
        optional {
            $r $l:borrowed $b
            $b.x = 1
        }
        not { $r a $b } and $x
        exists {
            $b: Book
        }
        sum(distinct $b.x) { $r borrowed $b } = 1
        $r (x | "in" | y){1,} $b
        $r $e:* $b
        $x: (A | B) { a: 1 }
        $x: *
        $r <*> $b
        path $p: trails $r follows{1,3} $b each $f $x { $x.age > 17 }
        $r follows{1,} $b each $f $_ {
            $f.on >= $d
            $f.x is not null
        }
    }
    return { 1 as one }
}
""",
    ),
    # Expressions: written parentheses stay, spaces are those of the language.
    (
        """query a(){return{((1+2)*-3)as a,not not $x as b not $x or($y and $z)as c,[1,[]]as d,$x.p?,$x.@id,
        case $x when 1 then 2 else 3 end as "any text",case when $x then 1 end as "plain" count(*)count(distinct $x)
        percentile_cont($x.p,0.50),map($y in $l where $y>1:$y*2)as e,reduce($s=0,$y in $l:$s+$y)as f,
        record(a:1,in:2)as g,any($y in $l:$y is not null)as h,$x in[1,2]as i,null as j,1E-3 as k,--1 as l}
        order{$x.p+1 desc nulls last,count(*),a nulls first}offset 3 limit $n}""",
        """\
query a() {
    return {
        ((1 + 2) * -3) as a,
        not not $x as b,
        not $x or ($y and $z) as c,
        [1, []] as d,
        $x.p?,
        $x.@id,
        case $x when 1 then 2 else 3 end as "any text",
        case when $x then 1 end as plain,
        count(*),
        count(distinct $x),
        percentile_cont($x.p, 0.50),
        map($y in $l where $y > 1 : $y * 2) as e,
        reduce($s = 0, $y in $l : $s + $y) as f,
        record(a: 1, in: 2) as g,
        any($y in $l : $y is not null) as h,
        $x in [1, 2] as i,
        null as j,
        1E-3 as k,
        --1 as l
    }
    order { $x.p + 1 desc nulls last, count(*), a nulls first }
    limit $n
    offset 3
}
""",
    ),
    # Stages, unions and lists.
    (
        """query a(){unwind $l as $x unwind $x.tags as $y match{$a:A}return distinct{$a}limit 3 then match{$a b $c}
        return{$c}union all{return{1 as c}union return{2 as c}}then return{$c}}""",
        """\
query a() {
    unwind $l as $x
    unwind $x.tags as $y
    match {
        $a: A
    }
    return distinct { $a }
    limit 3
    then
    match {
        $a b $c
    }
    return { $c }
    union all
    {
        return { 1 as c }
        union
        return { 2 as c }
    }
    then
    return { $c }
}
""",
    ),
    (
        """query a(){insert new A{a:b+1}upsert A{a:1}update A set{a:a+1}where a=1 and not b is null
        delete A where @id="x"or from=$f match{$a:A}insert A{a:$a.x}update $a set{a:1}delete $a
        return{1 as x}then insert A{a:$x}unwind $l as $y match{$a:A}delete $a}""",
        """\
query a() {
    insert new A { a: b + 1 }
    upsert A { a: 1 }
    update A set { a: a + 1 } where a = 1 and not b is null
    delete A where @id = "x" or from = $f
    match {
        $a: A
    }
    insert A { a: $a.x }
    update $a set { a: 1 }
    delete $a
    return { 1 as x }
    then
    insert A { a: $x }
    unwind $l as $y
    match {
        $a: A
    }
    delete $a
}
""",
    ),
    # Statements.
    ("branch   create a from \"main\"; // why\n", "branch create a from main  // why\n"),
    ('// b\nbranch merge "a b" into "in"', '// b\nbranch merge "a b" into "in"\n'),
    ("branch delete Work ;", "branch delete Work\n"),
    ("branch\nlist", "branch list\n"),
    (
        "explain query a($n:I32){return{$n as n}};",
        """\
explain query a($n: I32) {
    return { $n as n }
}
""",
    ),
    # What does not fit a line is broken before its operators, and at its brackets.
    (
        """query a() { match {
        $first_name.alpha_number_one = 1 and $second_name.beta_number_two = 2 or $third_name.gamma_three = 3
        not ($first_name.alpha_number_one = 1 and $second_name.beta_number_two = 2 and $third_name.gamma = 3)
        $first_name.alpha_number_one + $second_name.beta_number_two * $third_name.gamma_three - 4000 > 5
        $first_name.alpha_number_one in ["the first text", "the second text", "the third text", "a fourth"]
        lower($first_name.alpha_number_one) contains replace($second_name.beta_number_two, "the text", "another")
        case when $first_name.alpha_number_one = 1 then "the first text" else "the second and longer text" end = "x"
        } return { 1 } }""",
        """\
query a() {
    match {
        $first_name.alpha_number_one = 1 and $second_name.beta_number_two = 2
            or $third_name.gamma_three = 3
        not (
            $first_name.alpha_number_one = 1
                and $second_name.beta_number_two = 2
                and $third_name.gamma = 3
        )
        $first_name.alpha_number_one
            + $second_name.beta_number_two * $third_name.gamma_three
            - 4000 > 5
        $first_name.alpha_number_one in [
            "the first text",
            "the second text",
            "the third text",
            "a fourth"
        ]
        lower($first_name.alpha_number_one) contains replace(
            $second_name.beta_number_two,
            "the text",
            "another"
        )
        case
            when $first_name.alpha_number_one = 1 then "the first text"
            else "the second and longer text"
        end = "x"
    }
    return { 1 }
}
""",
    ),
    (
        """query a() {
        update A set { a: 1 } where first_property_name = 1 and second_property_name = 2 and third = 300000
        update A set { a: 1 } where first_property_name = 1 and second_property_name = 2
            and third_property_name = 30000000000000000
        delete A where first_property_name = 1 and second_property_name = 2 and third_property_name = 3000
        insert A { a: case when true then
            reduce($accumulated_total = 0, $item in $list_of_items : $accumulated_total + $item * $factor) end } }""",
        """\
query a() {
    update A set {
        a: 1
    } where first_property_name = 1 and second_property_name = 2 and third = 300000
    update A set { a: 1 }
    where first_property_name = 1
        and second_property_name = 2
        and third_property_name = 30000000000000000
    delete A where first_property_name = 1
        and second_property_name = 2
        and third_property_name = 3000
    insert A {
        a: case
            when true
                then reduce(
                    $accumulated_total = 0,
                    $item in $list_of_items
                    : $accumulated_total + $item * $factor
                )
        end
    }
}
""",
    ),
    # Comments in expressions stay with the operand, the branch or the clause that they are about.
    (
        """query a() { match {
            $a.x = 1 // first
              and /* why */ $b.y = 2 // second
            count { // these
               $a knows $b // both
            } > 1 // many
            $a.x = case // by kind
                when 1 then 2 // one
                // other
                else 3 end
            } // matched
            return { 1 } // before
            // then
            then // next
            return { 1 } offset 1 // skip
            limit 2 }""",
        """\
query a() {
    match {
        $a.x = 1  // first
            /* why */
            and $b.y = 2  // second
        count {
            // these
            $a knows $b  // both
        } > 1  // many
        $a.x = case
            // by kind
            when 1 then 2  // one
            // other
            else 3
        end
    }  // matched
    return { 1 }  // before
    // then
    then  // next
    return { 1 }
    // skip
    limit 2
    offset 1
}
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
