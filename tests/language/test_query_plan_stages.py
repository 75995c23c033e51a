"""Plans of stages, unions, aggregates, rankings in stages, and the rows that statements run for."""

from __future__ import annotations

import pytest

from omnigraph.language.query import ir

from .plans import expected, feeds, lines
from .query_archive import compiled, read, statements, tree, write

# ---- stages ---------------------------------------------------------------------------------------------

STAGES = [
    (
        (
            "match { $a: Person  $a wrote $p } return { $a, count($p) as papers } order { papers desc } limit 3 "
            "then match { $papers > 3  $a knows $f } return { $a.name as name, collect($f.name) as friends }"
        ),
        """
        Aggregate name, friends
          Expand $a -[Knows]-> $f
            Filter where $papers > 3
              Bind column 1 as $a, column 2 as $papers
                Limit 3
                  Sort by column 2 desc
                    Aggregate a, papers
                      Expand $a -[Wrote]-> $p
                        Scan $a: Person
        """,
    ),
    (
        (
            "match { $a: Person } return { $a as x, $a.age as age, $a.email as unused } "
            'then match { $age > 3  $x.name starts_with "A"  $x wrote $p  $p.pages > $age } return { $p.title as t }'
        ),
        """
        Project t
          Filter where $p.pages > $age
            Expand $x -[Wrote]-> $p
              Bind $a as $x, $a.age as $age
                Scan $a: Person where $a.age > 3 and $a.name starts_with "A"
        """,
    ),
    (
        (
            "match { $a: Person } return { $a.age as age, $a.name as name } order { age } "
            'then match { $age > 3 } return { $name } then match { $name != "x" } return { $name }'
        ),
        """
        Project name
          Bind $a.name as $name
            Sort by $a.age, $a.@id
              Scan $a: Person where $a.age > 3 and $a.name != "x"
        """,
    ),
    (
        "match { $a: Person } return { $a.age as age } limit 3 then match { $age > 3 } return { $age }",
        """
        Project age
          Filter where $age > 3
            Bind $a.age as $age
              Limit 3
                Scan $a: Person
        """,
    ),
    (
        "match { $a: Person } return { $a.age + 1 as age } then match { $age > 3 } return { $age }",
        """
        Project age
          Filter where $age > 3
            Bind $a.age + 1 as $age
              Scan $a: Person
        """,
    ),
    (
        "match { $a: Person } return { $a.age as age } then match { 10 / $age > 3 } return { $age }",
        """
        Project age
          Filter where 10 / $age > 3
            Bind $a.age as $age
              Scan $a: Person
        """,
    ),
    (
        (
            "match { $a: Person  optional { $a wrote $p } } return { $a, $p } "
            'then match { $p: Paper { state: "final" } } return { $a.name as name }'
        ),
        """
        Project name
          Filter where $p is not null and $p.state = "final"
            OptionalJoin $p on $a
              Scan $a: Person
              Expand $a -[Wrote]-> $p
                Outer $a
        """,
    ),
    (
        "match { $a: Person } return { $a.name as name } then return { count(*) as n }",
        """
        Aggregate n
          Bind
            Scan $a: Person
        """,
    ),
    (
        "unwind $ids as $i match { $p: Paper { doi: $i } } return { $i, $p.title as title }",
        """
        Project i, title
          Filter where $p.doi = $i
            CrossJoin
              Unwind $ids as $i
                Outer
              Scan $p: Paper
        """,
    ),
    (
        (
            "match { $a: Person } return { $a, $a.aliases as aliases } "
            "then unwind $aliases as $x match { $a.age > 3  $x != $a.name } return { $x }"
        ),
        """
        Project x
          Filter where $x != $a.name
            Unwind $aliases as $x
              Bind $a, $a.aliases as $aliases
                Scan $a: Person where $a.age > 3
        """,
    ),
    (
        (
            "match { $a: Person } return { $a } limit 3 "
            "then unwind $ids as $x match { $a.age > 3  $x != $a.name } return { $x }"
        ),
        """
        Project x
          Filter where $x != $a.name
            Unwind $ids as $x
              Filter where $a.age > 3
                Limit 3
                  Scan $a: Person
        """,
    ),
    ("return { 1 + 1 as two }", ["Project two", "  Outer"]),
]


@pytest.mark.parametrize(("body", "plan"), STAGES)
def test_stages(body: str, plan: str | list[str]) -> None:
    shown = lines(f"query q($ids: [String]) {{ {body} }}")
    assert shown == (plan if isinstance(plan, list) else expected(plan))


def test_a_later_stage_breaks_ties_by_what_it_still_has() -> None:
    body = "match { $a: Person  $a wrote $p } return { $a as x, $p.pages as n } then match { $x knows $f } "
    assert lines(f"query q() {{ {body} return {{ $f.name as name }} order {{ $n }} }}")[1:3] == [
        "  Sort by $n, $f.@id, $x.@id",
        "    Expand $x -[Knows]-> $f",
    ]


# ---- groups, distinct rows, orders ----------------------------------------------------------------------

OUTPUTS = [
    (
        "$a.age as age, sum($p.pages) / count(*) as mean, sum($p.pages) as pages",
        "order { mean desc, pages + 1 }",
        """
        Project age, mean, pages
          Sort by column 2 / column 3 desc, column 2 + 1
            Aggregate $a.age, sum($p.pages), count(*)
              Expand $a -[Wrote]-> $p
                Scan $a: Person
        """,
    ),
    (
        "lower($a.name) as name, lower($a.name) + to_string(max($p.pages)) as longest, $a.name as n",
        "order { n, $a.name }",
        """
        Project name, longest, n
          Sort by column 3, column 3
            Aggregate lower($a.name), max($p.pages), $a.name
              Expand $a -[Wrote]-> $p
                Scan $a: Person
        """,
    ),
    (
        "$a.age as age, count($p) as n, count($p) as m",
        "order { count($p) desc, age } limit 3 offset 2",
        """
        Limit 3 offset 2
          Sort by column 2 desc, column 1
            Aggregate age, n, m
              Expand $a -[Wrote]-> $p
                Scan $a: Person
        """,
    ),
    (
        "distinct $a.age as age, $p.title",
        "order { age desc nulls last, age + 1, $p.title } offset 1",
        """
        Project age, p.title
          Limit offset 1
            Sort by $age desc nulls last, $age + 1, $#column2
              Distinct $age, $#column2
                Bind $a.age as $age, $p.title as $#column2
                  Expand $a -[Wrote]-> $p
                    Scan $a: Person
        """,
    ),
    (
        "distinct $a.age as age, count(*) as n",
        "order { n + 1 }",
        """
        Project age, n
          Sort by $n + 1
            Distinct $age, $n
              Bind column 1 as $age, column 2 as $n
                Aggregate age, n
                  Expand $a -[Wrote]-> $p
                    Scan $a: Person
        """,
    ),
    (
        "$a.name as name",
        "order { lower(name), $p.pages * 2 desc, $p }",
        """
        Project name
          Sort by lower($a.name), $p.pages * 2 desc, $p, $a.@id, $p.@id
            Expand $a -[Wrote]-> $p
              Scan $a: Person
        """,
    ),
]


@pytest.mark.parametrize(("returns", "tail", "plan"), OUTPUTS)
def test_outputs(returns: str, tail: str, plan: str) -> None:
    word, rest = ("distinct ", returns.removeprefix("distinct ")) if returns.startswith("distinct ") else ("", returns)
    text = f"query q() {{ match {{ $a: Person  $a wrote $p }} return {word}{{ {rest} }} {tail} }}"
    assert lines(text) == expected(plan)


# ---- unions ---------------------------------------------------------------------------------------------

PEOPLE = "match { $a: Person } return { $a as x, 1 as n }"
PAPERS = "match { $p: Paper } return { $p as x, 2.5 as n }"
SLOTS = "match { $s: Slot } return { $s as x, 3 as n }"

UNIONS = [
    (
        f"{PEOPLE} union {PAPERS} union all {SLOTS}",
        """
        Project x, n
          UnionAll of 2
            Distinct $x, $n
              UnionAll of 2
                Bind $a as $x, 1 as $n
                  Scan $a: Person
                Bind $p as $x, 2.5 as $n
                  Scan $p: Paper
            Bind $s as $x, 3 as $n
              Scan $s: Slot
        """,
    ),
    (
        f"{PEOPLE} union all {PAPERS} union {SLOTS}",
        """
        Project x, n
          Distinct $x, $n
            UnionAll of 3
              Bind $a as $x, 1 as $n
                Scan $a: Person
              Bind $p as $x, 2.5 as $n
                Scan $p: Paper
              Bind $s as $x, 3 as $n
                Scan $s: Slot
        """,
    ),
    (
        f"{{ {PEOPLE} union all {PAPERS} }} then match {{ $n > 2  $x: Paper }} return {{ $x.@id as i }} order {{ $n }}",
        """
        Project i
          Sort by $n, $x.@id
            Filter where $n > 2 and $x.@type = "Paper"
              UnionAll of 2
                Bind $a as $x, 1 as $n
                  Scan $a: Person
                Bind $p as $x, 2.5 as $n
                  Scan $p: Paper
        """,
    ),
    (
        f"{PEOPLE} union all {{ {PAPERS} union {SLOTS} }}",
        """
        Project x, n
          UnionAll of 2
            Bind $a as $x, 1 as $n
              Scan $a: Person
            Bind $x, $n
              Distinct $x, $n
                UnionAll of 2
                  Bind $p as $x, 2.5 as $n
                    Scan $p: Paper
                  Bind $s as $x, 3 as $n
                    Scan $s: Slot
        """,
    ),
    (
        f"{{ {{ {PEOPLE} }} }} then return {{ $n }}",
        """
        Project n
          Bind 1 as $n
            Scan $a: Person
        """,
    ),
    (
        "match { $a: Person  $a wrote $b } return { count($b) } union all match { $b: Person } return { $b.age as b }",
        """
        Project b
          UnionAll of 2
            Bind column 1 as $#column1
              Aggregate b
                Expand $a -[Wrote]-> $b
                  Scan $a: Person
            Bind $b.age as $#column1
              Scan $b: Person
        """,
    ),
]


@pytest.mark.parametrize(("body", "plan"), UNIONS)
def test_unions(body: str, plan: str) -> None:
    assert lines(f"query q() {{ {body} }}") == expected(plan)


def test_the_parts_of_a_union_have_the_types_of_the_whole() -> None:
    plan = compiled(f"query q() {{ {PEOPLE} union all {PAPERS} }}").read_plan
    assert [str(column.type) for column in plan.columns] == ["node Person | Paper", "F64"]
    binds = [op for op, _ in ir.plan_levels(plan.root) if isinstance(op, ir.Bind)]
    assert [[str(column.type) for column in bind.columns] for bind in binds] == [["node Person | Paper", "F64"]] * 2


# ---- rankings -------------------------------------------------------------------------------------------

RANKED = "query q($v: Vector(4), $w: String) {{ {} }}"

RANKINGS = [
    (
        (
            "match { $p: Paper  $p.pages > 3  $a wrote $p } return { $p, nearest($p.vec, $v) as d } "
            "order { d } limit 3 offset 2 then match { $p cites $q } return { $q.title as t, $d as d } "
            "order { nearest($q.vec, $v) } limit 4"
        ),
        """
        Project t, d
          Limit 4
            Rank by nearest($q.vec, $v)
              Expand $p -[Cites]-> $q
                Bind $p, nearest($p.vec, $v) as $d
                  Limit 3 offset 2
                    Expand $p <-[Wrote]- $a
                      Rank by nearest($p.vec, $v)
                        Scan $p: Paper where $p.pages > 3
        """,
    ),
    (
        (
            "match { $a: Person } return { $a.age as age } limit 9 "
            "then match { $p: Paper  $p.pages > $age } return { $p.title as t } order { bm25($p.title, $w) } limit 5"
        ),
        """
        Project t
          Limit 5
            Filter where $p.pages > $age
              CrossJoin
                Rank by bm25($p.title, $w)
                  Scan $p: Paper
                Bind $a.age as $age
                  Limit 9
                    Scan $a: Person
        """,
    ),
    (
        (
            "match { $p: Paper  optional { $a wrote $p } } return { $p.state as s, count($a) as n } "
            "order { nearest($p.vec, $v) } limit 3 offset 1"
        ),
        """
        Limit 3 offset 1
          Aggregate s, n
            BestNodes 3 offset 1 of $p
              OptionalJoin $a on $p
                Rank by nearest($p.vec, $v)
                  Scan $p: Paper
                Expand $p <-[Wrote]- $a
                  Outer $p
        """,
    ),
    (
        "match { $p: Paper } return distinct { $p.state as s } order { nearest($p.vec, $v) } limit 3",
        """
        Project s
          Limit 3
            Distinct $s
              Bind $p.state as $s
                Rank by nearest($p.vec, $v)
                  Scan $p: Paper
        """,
    ),
    (
        (
            "match { $a: Person } return { $a } limit 9 then match { $a wrote $p } return { $p.title as t } "
            "order { rrf(nearest($p.vec, $v), bm25($p.title, $w)) } limit 5 offset 1"
        ),
        """
        Project t
          Limit 5 offset 1
            Fuse nearest($p.vec, $v) and bm25($p.title, $w), best 5 offset 1
              BestNodes 5 offset 1 of $p
                Rank by nearest($p.vec, $v)
                  Expand $a -[Wrote]-> $p
                    Limit 9
                      Scan $a: Person
              Rank by bm25($p.title, $w)
                Expand $a -[Wrote]-> $p
        """,
    ),
]


@pytest.mark.parametrize(("body", "plan"), RANKINGS)
def test_rankings(body: str, plan: str) -> None:
    assert lines(RANKED.format(body)) == expected(plan)


def test_many_fusions_share_what_they_stand_on() -> None:
    """Otherwise the rows of the first stage would be made twice for each stage above it."""
    rank = "order { rrf(nearest($p.vec, $v), bm25($p.title, $w)) } limit 5"
    stage = f"match {{ $p.pages > 1 }} return {{ $p }} {rank}"
    body = f"match {{ $p: Paper }} return {{ $p }} {rank}" + f" then {stage}" * 30
    root = tree(RANKED.format(body))
    assert len(list(ir.plan_levels(root))) < 400


def test_what_a_ranking_ranks_does_not_wait_for_an_optional_block() -> None:
    """Though nothing but an optional variable leads to it."""
    body = 'match { optional { $x: Person { handle: "a" } }  $x wrote $p  $p: Paper } return { $p } '
    assert lines(RANKED.format(body + "order { nearest($p.vec, $v) } limit 3")) == expected(
        """
        Project p
          Limit 3
            Close $x -[Wrote]-> $p
              OptionalJoin $x
                Rank by nearest($p.vec, $v)
                  Scan $p: Paper
                CrossJoin
                  Outer
                  Scan $x: Person where $x.handle = "a"
        """
    )


# ---- feeds ----------------------------------------------------------------------------------------------

FEEDS = [
    (
        (
            "unwind $ids as $h match { $a: Person { handle: $h }  $p: Paper { doi: $h }  not { $a wrote $p } } "
            "insert Wrote { from: $a, to: $p, note: $h } update $p set { pages: $p.pages + 1 }"
        ),
        """
        Bind $a, $p, $h
          AntiJoin on $a, $p
            Filter where $p.doi = $h
              CrossJoin
                Filter where $a.handle = $h
                  CrossJoin
                    Unwind $ids as $h
                      Outer
                    Scan $a: Person
                Scan $p: Paper
            Close $a -[Wrote]-> $p
              Outer $a, $p
        """,
    ),
    (
        (
            "match { $a: Person  $a wrote $p } return { $a, count($p) as n, $a.name as name } order { n desc } limit 3 "
            "then match { $a knows $f } update $f set { age: $n }"
        ),
        """
        Bind $f, $n
          Expand $a -[Knows]-> $f
            Bind column 1 as $a, column 2 as $n
              Limit 3
                Sort by column 2 desc
                  Aggregate a, n, name
                    Expand $a -[Wrote]-> $p
                      Scan $a: Person
        """,
    ),
    (
        "match { $a: Person  optional { $a wrote $p } } update $p set { pages: count { $p cites $_ } }",
        """
        Bind $p, $#block2
          BlockJoin $#block2: count(*) on $p
            OptionalJoin $p on $a
              Scan $a: Person
              Expand $a -[Wrote]-> $p
                Outer $a
            Expand $p -[Cites]-> $#1
              Outer $p
        """,
    ),
    (
        "match { $a: Person } return { $a } limit 3 then delete $a",
        """
        Bind $a
          Limit 3
            Scan $a: Person
        """,
    ),
]


@pytest.mark.parametrize(("body", "plan"), FEEDS)
def test_feeds(body: str, plan: str) -> None:
    assert lines(f"query q($ids: [String]) {{ {body} }}") == expected(plan)


def test_statements_keep_their_order_around_feeds() -> None:
    text = write(
        'insert Slot { room: "a", hour: 1 } '
        'match { $a: Person } update $a set { age: 1 } insert Slot { room: "b", hour: 2 }'
    )
    plan = compiled(text).write_plan
    assert [type(statement).__name__ for statement in plan.statements] == ["InsertNode", "ForEachRow"]
    (feed,) = feeds(plan)
    assert [type(statement).__name__ for statement in feed.statements] == ["UpdateVariable", "InsertNode"]
    assert not plan.only_deletes


def test_inserts_know_what_they_do_with_what_is_there() -> None:
    kinds = [
        (insert.must_be_new, insert.keeps_rest)
        for word in ("insert", "insert new", "upsert")
        for insert in statements(write(f'{word} Slot {{ room: "a", hour: 1 }}'))
        if isinstance(insert, ir.InsertNode)
    ]
    assert kinds == [(False, False), (True, False), (False, True)]


# ---- limits ---------------------------------------------------------------------------------------------


def test_parameters_that_count_rows_are_known() -> None:
    text = read("$a: Person", "$a", "order { $a.name } limit $n offset $o", "$n: I64, $o: U32, $other: I64")
    assert [p.name for p in compiled(text).read_plan.parameters if p.counts_rows] == ["n", "o"]
    feed = "query q($n: I64) { match { $a: Person } return { $a } limit $n then delete $a }"
    assert [p.name for p in compiled(feed).write_plan.parameters if p.counts_rows] == ["n"]
