"""That what is declared is used: lookups by value read a few pages, however long the table, and find the same rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api.governance import Limits
from omnigraph.api.queries import ReadPoint
from omnigraph.engine.query.read import run_query
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of
from omnigraph.storage.tables.memory.columns import COLUMNS
from tests.support.lance_tables import build_index, lance_of

ROWS = 3_000
SCHEMA = """
node Part {
  code: String @key @index
  mail: String? @unique
  both: String? @unique @index
  name: String? @index
  size: I64? @unique
  plain: String?
}
node Bin { label: String @key }
edge Holds: Bin -> Part { slip: String? @unique  note: String? @index  lot: I32?  @unique(src, lot) }
"""


def text(kind: str, number: int) -> str:
    """Long and different in every row, so that a scan of the column can't go unnoticed."""
    return f"{kind} {number} {hashlib.sha256(f'{kind}{number}'.encode()).hexdigest()}"


def part(number: int, **given: object) -> str:
    values = {kind: text(kind, number) for kind in ("code", "mail", "both", "name", "plain")}
    return json.dumps({"type": "Part", "data": {**values, "size": number, **given}})


def holds(number: int, **given: object) -> str:
    values = {"slip": text("slip", number), "note": text("note", number), "lot": number}
    return json.dumps({"edge": "Holds", "from": "b", "to": text("code", number), "data": {**values, **given}})


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("g") / "graph", SCHEMA) as graph:
        lines = [json.dumps({"type": "Bin", "data": {"label": "b"}})]
        lines += [part(i) for i in range(ROWS)] + [holds(i) for i in range(ROWS)]
        graph.load("\n".join(lines), mode="append")
        graph.maintenance.ensure_indices()
        yield graph


@pytest.fixture(autouse=True)
def no_columns_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the indexes are asked."""
    monkeypatch.setattr(COLUMNS, "limit", 0)


def bytes_read(graph: Graph, type_key: str, work: Callable[[], object]) -> int:
    """What the work reads of the table once everything that is kept in memory is there."""
    table = graph.snapshot().table(type_key)
    work()
    before = lance_of(table).io_stats_snapshot().read_bytes
    work()
    return int(lance_of(table).io_stats_snapshot().read_bytes - before)


A_SCAN = ROWS * 40
"""Less than any column of texts takes on disk."""


def codes(graph: Graph, where: str) -> list[str]:
    found = graph.query(f"query it() {{ match {{ $p: Part {where} }} return {{ $p.size }} }}")
    return sorted(row["p.size"] for row in found.rows())


@pytest.mark.parametrize(
    ("where", "sizes"),
    [
        (f'{{ mail: "{text("mail", 77)}" }}', [77]),
        (f'{{ both: "{text("both", 77)}" }}', [77]),
        (f'{{ name: "{text("name", 77)}" }}', [77]),
        (f'{{ code: "{text("code", 77)}" }}', [77]),
        ("{ size: 77 }", [77]),
        (f'$p.name = "{text("name", 78)}"', [78]),
        (f'["{text("name", 5)}", "{text("name", 9)}", "none"] contains $p.name', [5, 9]),
        (f'["{text("mail", 5)}", "{text("mail", 9)}", "none"] contains $p.mail', [5, 9]),
        (f'["{text("code", 5)}", "{text("code", 9)}", "none"] contains $p.code', [5, 9]),
        (f'$p.name starts_with "{text("name", 79)[:30]}"', [79]),
        ('$p.code starts_with "code 299"', [299, *range(2990, 3000)]),
        ('$p.mail starts_with "mail 299"', [299, *range(2990, 3000)]),
        (f'$p.name contains "{text("name", 80)[20:60]}"', [80]),
        (f'$p.code contains "{text("code", 80)[20:60]}"', [80]),
        (f'$p.name in ["{text("name", 5)}", "{text("name", 9)}", "none"]', [5, 9]),
        (f'$p.mail in ["{text("mail", 5)}", "{text("mail", 9)}", "none"]', [5, 9]),
        (f'$p.code in ["{text("code", 5)}", "{text("code", 9)}", "none"]', [5, 9]),
        ("$p.size in [5, 9, 100000]", [5, 9]),
        (f'$p.name = "{text("name", 5)}" or $p.name = "{text("name", 9)}"', [5, 9]),
        (f'$p.mail = "{text("mail", 5)}" or "{text("mail", 9)}" = $p.mail or $p.mail in ["none"]', [5, 9]),
        ("$p.size = 5 or $p.size = 9 or $p.size in [77, 78]", [5, 9, 77, 78]),
        (f'$p.size = 5 or $p.mail = "{text("mail", 9)}"', [5, 9]),
        (f'($p.size = 5 or $p.size = 9) and $p.mail = "{text("mail", 9)}"', [9]),
        ("not ($p.size != 77)", [77]),
        ("not ($p.size < 77 or $p.size > 78)", [77, 78]),
        (f'$p.@id = "{text("code", 77)}"', [77]),
        (f'$p.@id = "{text("code", 77)}" or $p.@id = "{text("code", 78)}"', [77, 78]),
        (f'$p.@id in ["{text("code", 77)}", "none"]', [77]),
        (f'$p.@type = "Part" and $p.@id = "{text("code", 77)}"', [77]),
        (f'lower($p.plain) starts_with "plain" and $p.@id = "{text("code", 77)}"', [77]),
        (f'$p.code = lower("{text("code", 77).upper()}")', [77]),
        ("$p.size = 70 + 7", [77]),
    ],
)
def test_a_declared_text_is_found_without_a_scan(graph: Graph, where: str, sizes: list[int]) -> None:
    assert codes(graph, where) == sizes
    assert bytes_read(graph, "node:Part", lambda: codes(graph, where)) < A_SCAN / 4


def test_an_undeclared_text_is_scanned(graph: Graph) -> None:
    where = f'{{ plain: "{text("plain", 77)}" }}'
    assert codes(graph, where) == [77]
    assert bytes_read(graph, "node:Part", lambda: codes(graph, where)) > A_SCAN


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ("size in [5, 9]", [5, 9]),
        ("not (size != 5) or size = 9", [5, 9]),
        (f'@id = "{text("code", 5)}" or mail in ["{text("mail", 9)}", $actor]', [5, 9]),
        (f'size < 10 and not (size in [0, 1, 2, 3, 4, 6, 7, 8]) and lower(plain) != "{text("plain", 9)}"', [5]),
    ],
)
def test_a_row_filter_is_looked_up(graph: Graph, rows: str, sizes: list[int]) -> None:
    type_ = graph.catalog.nodes["Part"]
    shown = for_actor(check_row_filter(rows, type_, graph.catalog), "ann")
    state = graph.snapshot().restricted_to(visibility_of([TypeVisibility(type_, shown)]))
    source = "query it() { match { $p: Part } return { $p.size as s } order { s } }"

    def read() -> list[int]:
        return [row["s"] for row in run_query(state, ReadPoint("main"), (source, None, None)).rows()]

    assert read() == sizes
    assert bytes_read(graph, "node:Part", read) < A_SCAN / 4


@pytest.mark.parametrize("name", ["ab", "", "a b", "x-1", "Москва", "東京都", "it's", "%", "a%b_c"])
def test_texts_that_have_no_ngrams_are_found_all_the_same(tmp_path: Path, name: str) -> None:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        others = [part(1), part(2, name=f"{name}x"), part(3, name=f"x{name}"), part(4, name=None)]
        graph.load("\n".join([*others, part(5, name=name, code=name or "e")]), mode="append")
        for _ in range(2):
            for where, params in (("{ name: $n }", name), ("$p.name = $n", name), ("{ code: $n }", name or "e")):
                source = f"query it($n: String) {{ match {{ $p: Part {where} }} return {{ $p.size }} }}"
                assert [row["p.size"] for row in graph.query(source, params={"n": params}).rows()] == [5]
            graph.maintenance.ensure_indices()
        source = "query it($n: String) { update Part set { size: 50 } where name = $n }"
        assert graph.mutate(source, params={"n": name}).affected_nodes == 1


@pytest.mark.parametrize("where", [f'name = "{text("name", 3)}"', f'mail = "{text("mail", 3)}"', "size = 3"])
def test_an_update_finds_its_rows_without_a_scan(graph: Graph, where: str) -> None:
    strict = graph.with_limits(Limits(rows=0))  # stops after the rows are found: the table stays as it is

    def refused() -> None:
        with pytest.raises(Exception, match="keyed entities"):
            strict.mutate(f'query it() {{ update Part set {{ plain: "x" }} where {where} }}')

    assert bytes_read(graph, "node:Part", refused) < A_SCAN / 4


@pytest.mark.parametrize(
    ("insert", "type_key", "clash"),
    [
        ('insert Part {{ code: "new", mail: "{}" }}', "node:Part", text("mail", 9)),
        ('insert Part {{ code: "new", both: "{}" }}', "node:Part", text("both", 9)),
        ('insert Part {{ code: "new", size: {} }}', "node:Part", "9"),
        ('insert Holds {{ from: "b", to: "CODE", slip: "{}" }}', "edge:Holds", text("slip", 9)),
    ],
)
def test_uniqueness_is_judged_without_a_scan(graph: Graph, insert: str, type_key: str, clash: str) -> None:
    source = f"query it() {{ {insert.format(clash)} }}".replace("CODE", text("code", 1))

    def refused() -> None:
        with pytest.raises(Exception, match="@unique violation"):
            graph.mutate(source)

    assert bytes_read(graph, type_key, refused) < A_SCAN / 4


def test_a_tuple_is_probed_by_its_member_that_has_an_index(tmp_path: Path) -> None:
    schema = "node A { k: String @key } edge E: A -> A { name: String?  zone: String?  @unique(src, zone) }"
    with Graph.init(tmp_path / "graph", schema) as graph:
        lines = [json.dumps({"type": "A", "data": {"k": f"a{i}"}}) for i in range(ROWS)]
        lines += [
            json.dumps({"edge": "E", "from": f"a{i}", "to": "a0", "data": {"zone": text("zone", i)}})
            for i in range(ROWS)
        ]
        graph.load("\n".join(lines), mode="append")
        graph.maintenance.ensure_indices()

        def refused() -> None:
            with pytest.raises(Exception, match="@unique violation"):
                graph.mutate(f'query it() {{ insert E {{ from: "a7", to: "a1", zone: "{text("zone", 7)}" }} }}')

        assert bytes_read(graph, "edge:E", refused) < A_SCAN / 4


def test_only_the_first_built_of_two_indexes_of_a_column_is_asked(graph: Graph) -> None:
    """Why a text has n-grams or a BTREE and never both. When this fails, Lance has learnt to choose: declare both."""
    state = graph.snapshot().entry.tables["node:Part"]
    both = build_index(graph._workspace.root, state, "name", "BTREE", "name_btree").state
    scanner = lance_of(graph._workspace.root.reader.open(both)).scanner(columns=["id"], filter="name = 'x'")
    assert "ScalarIndexQuery" not in scanner.explain_plan(True)
