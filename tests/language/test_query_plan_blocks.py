"""Plans of blocks, optional blocks, walks, paths and variables of several types."""

from __future__ import annotations

import pytest

from omnigraph.language.query import ir
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import compile_schema

from .plans import expected, lines
from .query_archive import read

# ---- blocks as values -----------------------------------------------------------------------------------

BLOCKS = [
    (
        read("$a: Person  exists { $a wrote $p  $p.pages > 3 } and $a.age > 30", "$a.name"),
        """
        Project a.name
          SemiJoin on $a
            Scan $a: Person where $a.age > 30
            Expand $a -[Wrote]-> $p where $p.pages > 3
              Outer $a
        """,
    ),
    (
        read("$a: Person  not exists { $a wrote $_ }  not { $_ knows $a }", "$a.name"),
        """
        Project a.name
          AntiJoin on $a
            AntiJoin on $a
              Scan $a: Person
              Expand $a -[Wrote]-> $#1
                Outer $a
            Expand $a <-[Knows]- $#3
              Outer $a
        """,
    ),
    (
        read("$a: Person  exists { $a wrote $_ } or $a.age is null", "$a.name"),
        """
        Project a.name
          Filter where $#block2 or $a.age is null
            BlockJoin $#block2: exists on $a
              Scan $a: Person
              Expand $a -[Wrote]-> $#1
                Outer $a
        """,
    ),
    (
        read("$a: Person", "$a.name, count { $_ knows $a } as n", "order { sum($p.pages) { $a wrote $p } } limit 3"),
        """
        Project a.name, n
          BlockJoin $#block2: count(*) on $a
            Limit 3
              Sort by $#block3, $a.@id
                BlockJoin $#block3: sum($p.pages) on $a
                  Scan $a: Person
                  Expand $a -[Wrote]-> $p
                    Outer $a
            Expand $a <-[Knows]- $#1
              Outer $a
        """,
    ),
    (
        read("$a: Person  $p: Paper", "count { $a wrote $q  exists { $q cites $p  $p.pages < $q.pages } } as n"),
        """
        Project n
          BlockJoin $#block2: count(*) on $a, $p
            CrossJoin
              Scan $a: Person
              Scan $p: Paper
            SemiJoin on $p, $q
              Expand $a -[Wrote]-> $q
                Outer $a, $p
              Close $q -[Cites]-> $p
                Filter where $p.pages < $q.pages
                  Outer $p, $q
        """,
    ),
    (
        read("$a: Person", "exists { $a wrote $_ } as writes, sum(count { $a knows $_ }) as n", "order { writes }"),
        """
        Sort by column 1
          Aggregate writes, n
            BlockJoin $#block4: count(*) on $a
              BlockJoin $#block2: exists on $a
                Scan $a: Person
                Expand $a -[Wrote]-> $#1
                  Outer $a
              Expand $a -[Knows]-> $#3
                Outer $a
        """,
    ),
]


@pytest.mark.parametrize(("query", "plan"), BLOCKS)
def test_blocks(query: str, plan: str) -> None:
    assert lines(query) == expected(plan)


def test_a_block_sees_what_its_argument_reads_of_the_outer_row() -> None:
    query = read("$a: Person  $b: Person", "sum($b.age + $p.pages) { $a wrote $p } as n")
    assert lines(query)[1] == "  BlockJoin $#block1: sum($b.age + $p.pages) on $a, $b"


def test_a_name_that_is_bound_later_is_another_variable_in_an_earlier_block() -> None:
    query = read("$b: Person  exists { $a knows $b  $a.age = $b.age }  $a: Person", "$a.name")
    assert "  SemiJoin on $b" in lines(query)


# ---- optional blocks ------------------------------------------------------------------------------------

OPTIONAL = [
    (
        read('$a: Person  optional { $a wrote $p  $p.state = "final" }  $a.age > 30', "$a.name, $p.title"),
        """
        Project a.name, p.title
          OptionalJoin $p on $a
            Scan $a: Person where $a.age > 30
            Expand $a -[Wrote]-> $p where $p.state = "final"
              Outer $a
        """,
    ),
    (
        read("$a: Person  optional { $a wrote $p }  $p.pages > 3"),
        """
        Project one
          Filter where $p.pages > 3
            OptionalJoin $p on $a
              Scan $a: Person
              Expand $a -[Wrote]-> $p
                Outer $a
        """,
    ),
    (
        read("$a: Person  optional { $a wrote $p }  optional { $p cites $q }  $p is null  $q.pages > 3"),
        """
        Project one
          Filter where $q.pages > 3
            OptionalJoin $q on $p
              Filter where $p is null
                OptionalJoin $p on $a
                  Scan $a: Person
                  Expand $a -[Wrote]-> $p
                    Outer $a
              Expand $p -[Cites]-> $q
                Outer $p
        """,
    ),
    (
        read('$a: Person  optional { $a wrote $p }  $b: Person { handle: "b" }  $b wrote $p  not { $p cites $_ }'),
        """
        Project one
          AntiJoin on $p
            Expand $p <-[Wrote]- $b where $b.handle = "b"
              OptionalJoin $p on $a
                Scan $a: Person
                Expand $a -[Wrote]-> $p
                  Outer $a
            Expand $p -[Cites]-> $#1
              Outer $p
        """,
    ),
    (
        read('$a: Person  optional { $a wrote $p }  $p: Paper { state: "final" }'),
        """
        Project one
          Filter where $p is not null and $p.state = "final"
            OptionalJoin $p on $a
              Scan $a: Person
              Expand $a -[Wrote]-> $p
                Outer $a
        """,
    ),
    (
        read('optional { $a: Person { handle: "x" } }', "$a.name"),
        """
        Project a.name
          OptionalJoin $a
            Outer
            CrossJoin
              Outer
              Scan $a: Person where $a.handle = "x"
        """,
    ),
    (
        read("$a: Person  optional { $a wrote $p  optional { $p cites $q } }", "$q.title"),
        """
        Project q.title
          OptionalJoin $p, $q on $a
            Scan $a: Person
            OptionalJoin $q on $p
              Expand $a -[Wrote]-> $p
                Outer $a
              Expand $p -[Cites]-> $q
                Outer $p
        """,
    ),
]


@pytest.mark.parametrize(("query", "plan"), OPTIONAL)
def test_optional(query: str, plan: str) -> None:
    assert lines(query) == expected(plan)


def test_a_binding_that_an_earlier_optional_block_reads_runs_before_it() -> None:
    query = read("$a: Person  $b: Person  optional { $a wrote $p  $b knows $a }  $b wrote $p")
    assert lines(query) == expected(
        """
        Project one
          Close $b -[Wrote]-> $p
            OptionalJoin $p on $a, $b
              CrossJoin
                Scan $a: Person
                Scan $b: Person
              Expand $a -[Wrote]-> $p
                Close $b -[Knows]-> $a
                  Outer $a, $b
        """
    )


def test_the_order_of_clauses_around_an_optional_block_means_nothing() -> None:
    clauses = ["$a: Person", "$a.age > 3", "$p.pages > 3", "$p cites $q", "$q.pages > 3", "not { $q cites $_ }"]
    block = "optional { $a wrote $p }"
    plain = lines(read("  ".join([clauses[0], block, *clauses[1:]])))
    assert plain == lines(read("  ".join([clauses[0], clauses[1], block, *clauses[2:]])))
    assert plain == lines(read("  ".join([clauses[0], block, *clauses[2:], clauses[1]])))


# ---- walks and paths ------------------------------------------------------------------------------------

WALKS = [
    (
        read('$p: Paper  $a (wrote | memo) $p  $a: Person { handle: "x" }'),
        """
        Project one
          Expand $p <-[Wrote|Memo]- $a where $a.handle = "x"
            Scan $p: Paper
        """,
    ),
    (
        read('$a: Person { handle: "x" }  $a knows{0,} $b'),
        """
        Project one
          Expand $a -[Knows{0,}]-> $b
            Scan $a: Person where $a.handle = "x"
        """,
    ),
    (
        read('$b: Person  $a: Person { handle: "x" }  path $k: shortest $a knows $b  length($k) > 2', "$k"),
        """
        Project k
          Filter where length($k) > 2
            Path $k: shortest $a -[Knows{1,}]-> $b
              Scan $a: Person where $a.handle = "x"
        """,
    ),
    (
        read('$b: Person { handle: "x" }  $a knows{1,3} $b each $e $_ { $e.since > $d }', params="$d: Date"),
        """
        Project one
          Expand $b <-[Knows{1,3}]- $a each $e $#1 { $e.since > $d }
            Scan $b: Person where $b.handle = "x"
        """,
    ),
    (
        read('$b: Person { handle: "x" }  $a knows{1,3} $b each $_ $n { $n.age > 17 }'),
        """
        Project one
          Expand $a -[Knows{1,3}]-> $b each $#1 $n { $n.age > 17 } where $b.handle = "x"
            Scan $a: Person
        """,
    ),
    (
        read('$a: Person { handle: "x" }  $q: Person  $a knows{1,3} $b each $_ $n { $n.age > $q.age }'),
        """
        Project one
          Expand $a -[Knows{1,3}]-> $b each $#1 $n { $n.age > $q.age }
            CrossJoin
              Scan $a: Person where $a.handle = "x"
              Scan $q: Person
        """,
    ),
    (
        read('$b: Person { handle: "x" }  path $k: trails $a knows $b  path $l: trails $c knows $b'),
        """
        Project one
          Close path $l: trails $c -[Knows{1,}]-> $b
            CrossJoin
              Close path $k: trails $a -[Knows{1,}]-> $b
                CrossJoin
                  Scan $b: Person where $b.handle = "x"
                  Scan $a: Person
              Scan $c: Person
        """,
    ),
    (
        read("$a: Person  $a $e:* $b  $b: Paper", "$e.@type as kind", "order { kind }"),
        """
        Project kind
          Sort by $e.@type, $a.@id, $b.@id, $e.@id
            Expand $a -[$e:Wrote|Memo]-> $b
              Scan $a: Person
        """,
    ),
]


@pytest.mark.parametrize(("query", "plan"), WALKS)
def test_walks(query: str, plan: str) -> None:
    assert lines(query) == expected(plan)


def test_paths_break_ties_by_their_edges() -> None:
    query = read("$a: Person  path $k: trails $a knows{1,2} $b", "$k", "order { $a.age }")
    assert lines(query)[1] == "  Sort by $a.age, $a.@id, $b.@id, $k"


# ---- several types --------------------------------------------------------------------------------------

SEVERAL_TYPES = [
    (read('$x: Named { name: "a" }'), ["Project one", '  Scan $x: Person where $x.name = "a"']),
    (read("$x: *  $x.pages? > 3"), ["Project one", "  TypeUnionScan $x: Paper where $x.pages > 3"]),
    (read('$x: (Person | Paper)  $x.@type = "Paper"'), ["Project one", "  TypeUnionScan $x: Paper"]),
    (
        read('$x: (Person | Paper)  search($x.title?, "a") or $x.age? > 3'),
        [
            "Project one",
            '  TypeUnionScan $x: Person where false or $x.age > 3 | Paper where search($x.title, "a") or null > 3',
        ],
    ),
    (
        read("$x: (Person | Paper)  not { $x: Paper { pages: 3 } }"),
        [
            "Project one",
            "  AntiJoin on $x",
            "    TypeUnionScan $x: Person | Paper",
            '    Filter where $x.@type = "Paper" and $x.pages? = 3',
            "      Outer $x",
        ],
    ),
]


@pytest.mark.parametrize(("query", "plan"), SEVERAL_TYPES)
def test_several_types(query: str, plan: list[str]) -> None:
    assert lines(query) == plan


def test_a_number_of_one_type_is_widened_as_all_types_are() -> None:
    catalog = compile_schema("node Small { n: I32? }  node Large { n: F64? }")
    query = compile_queries("query q() { match { $x: *  $x.n? / 2 > 1.5 } return { $x.n? } }", catalog).query()
    assert [ir.operator_text(op) for op, _ in ir.plan_levels(query.read_plan.root)] == [
        "Project x.n",
        "TypeUnionScan $x: Small where to_float($x.n) / 2 > 1.5 | Large where $x.n / 2 > 1.5",
    ]


def test_a_ranking_of_several_types_stands_on_their_scans() -> None:
    catalog = compile_schema("node A { v: Vector(2)  n: I32 }  node B { v: Vector(2)  n: I32 }")
    text = "query q($v: Vector(2)) { match { $x: *  $x.n > 3 } return { $x.@id } order { nearest($x.v, $v) } limit 2 }"
    query = compile_queries(text, catalog).query()
    assert [ir.operator_text(op) for op, _ in ir.plan_levels(query.read_plan.root)] == [
        "Project x.@id",
        "Limit 2",
        "Rank by nearest($x.v, $v)",
        "TypeUnionScan $x: A where $x.n > 3 | B where $x.n > 3",
    ]
