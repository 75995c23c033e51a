"""The ends of edges: an id, or the key of the node in its own type, on every way into the graph."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import BadRequestError, CompileError, ConstraintError
from tests.engine.stored import rows

SCHEMA = """
node Hub { number: I64 @key }
node Day { on: Date @key }
node Moment { at: DateTime @key }
node Level { height: F64 @key }
node Flag { set: Bool @key }
node Big { number: U64 @key }
node Tag { name: String @key }
node Seat { row: String  place: I32  on: Date  @key(row, place, on) }
edge ToHub: Hub -> Hub { note: String? }
edge ToDay: Hub -> Day { note: String? }
edge ToMoment: Hub -> Moment { note: String? }
edge ToLevel: Hub -> Level { note: String? }
edge ToFlag: Hub -> Flag { note: String? }
edge ToBig: Hub -> Big { note: String? }
edge ToTag: Hub -> Tag { note: String? }
edge ToSeat: Hub -> Seat { note: String? }
"""
DAY, MOMENT = dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 1, 2, 3, 4000, dt.UTC)
NODES: list[tuple[str, dict[str, Any]]] = [
    ("Hub", {"number": 7}),
    ("Hub", {"number": -8}),
    ("Day", {"on": "2020-02-29"}),
    ("Moment", {"at": "2020-02-29T01:02:03.004Z"}),
    ("Level", {"height": 1.5}),
    ("Flag", {"set": True}),
    ("Big", {"number": 2**64 - 1}),
    ("Tag", {"name": "red"}),
    ("Seat", {"row": "a", "place": 3, "on": "2020-02-29"}),
]


@dataclass(frozen=True)
class Case:
    """A key as JSON, Python, Arrow and CSV have it, how a query declares it, and the id it stands for."""

    edge: str
    json: Any
    python: Any
    arrow: pa.DataType
    declared: str
    id: str
    text: str


SEAT = {"row": "a", "place": 3, "on": "2020-02-29"}
CASES = [
    Case("ToHub", -8, -8, pa.int32(), "I64", "-8", "-08"),
    Case("ToDay", "2020-02-29", DAY, pa.date32(), "Date", "18321", "2020-02-29"),
    Case("ToDay", 18321, DAY, pa.timestamp("us"), "Date", "18321", "18321"),
    Case("ToMoment", "2020-02-29T02:02:03.004+01:00", MOMENT, pa.timestamp("us", "UTC"), "DateTime", "1582938123004",
         "2020-02-29T01:02:03.004Z"),
    Case("ToLevel", 1.5, 1.5, pa.float32(), "F64", "1.5", "1.50"),
    Case("ToFlag", True, True, pa.bool_(), "Bool", "true", "True"),
    Case("ToBig", 2**64 - 1, 2**64 - 1, pa.uint64(), "U64", str(2**64 - 1), str(2**64 - 1)),
    Case("ToTag", "red", "red", pa.string(), "String", "red", "red"),
    Case("ToSeat", SEAT, {**SEAT, "on": DAY},
         pa.struct([("on", pa.date32()), ("place", pa.int16()), ("row", pa.string())]), "String",
         '["18321","3","a"]', '["18321","3","a"]'),
]  # fmt: skip


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(tmp_path_factory.mktemp("graph") / "graph", SCHEMA)
    graph.load("\n".join(json.dumps({"type": name, "data": data}) for name, data in NODES), mode="append")
    return graph


@pytest.fixture
def graph(made_once: Graph) -> Graph:
    """Without edges, as far as a test is concerned: each looks at the one it has made."""
    return made_once


def records(graph: Graph, case: Case, _: Path) -> None:
    edges = [{"edge": case.edge, "from": 7, "to": case.json}, {"edge": case.edge, "from": "7", "to": case.id}]
    graph.load("\n".join(map(json.dumps, edges)), mode="append")


def lenient(graph: Graph, case: Case, _: Path) -> None:
    graph.load_lenient(json.dumps({"edge": case.edge, "from": 7, "to": case.json}), mode="append")


def dictionaries(graph: Graph, case: Case, _: Path) -> None:
    graph.load([{"from": 7, "to": case.python}, {"src": "7", "dst": case.id}], type=case.edge, mode="append")


def frame(graph: Graph, case: Case, _: Path) -> None:
    # Arrow makes no uint64 of a large integer by itself.
    is_large = case.arrow == pa.uint64()
    ends = pa.array([case.python], case.arrow) if is_large else pa.array([case.python]).cast(case.arrow)
    table = pa.table({"src": pa.array([7], pa.uint8()), "dst": ends})
    graph.load(table, type=case.edge, mode="append")


def csv(graph: Graph, case: Case, files: Path) -> None:
    path = files / "edges.csv"
    quoted = case.text.replace('"', '""')
    path.write_text(f'from,to\n7,"{quoted}"\n')
    graph.load(path, type=case.edge, mode="append")


def parameters(graph: Graph, case: Case, _: Path) -> None:
    is_text = case.declared == "String"
    for declared, value in [("String", case.id), *([] if is_text else [(case.declared, case.python)])]:
        text = f"query link($from: I64, $to: {declared}) {{ insert {case.edge} {{ from: $from, to: $to }} }}"
        graph.mutate(text, params={"from": 7, "to": value})


WAYS: list[Callable[[Graph, Case, Path], None]] = [records, lenient, dictionaries, frame, csv, parameters]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.edge}-{case.arrow}")
def test_an_end_is_the_key_in_its_own_type(graph: Graph, tmp_path: Path, case: Case) -> None:
    for way in WAYS:
        way(graph, case, tmp_path)
        found = {(edge["src"], edge["dst"]) for edge in rows(graph, f"edge:{case.edge}").values()}
        assert found == {("7", case.id)}, way.__name__
    if case.declared != "String":
        text = f"query unlink($to: {case.declared}) {{ delete {case.edge} where to = $to }}"
        assert graph.mutate(text, params={"to": case.python}).affected_edges > 0
    else:
        graph.mutate(f"query unlink($from: I64) {{ delete {case.edge} where from = $from }}", params={"from": 7})
    assert rows(graph, f"edge:{case.edge}") == {}


def test_literals_name_nodes_too(graph: Graph) -> None:
    graph.mutate(
        """query link() {
            insert ToDay { from: 7, to: date("2020-02-29") }
            insert ToLevel { from: "7", to: 1.5 }
            insert ToFlag { from: 7, to: true }
        }"""
    )
    assert [edge["dst"] for edge in rows(graph, "edge:ToDay").values()] == ["18321"]
    gone = graph.mutate(
        """query unlink() {
            delete ToDay where to = date("2020-02-29")
            delete ToLevel where to != 2.5
            delete ToFlag where from = 7
            delete ToHub where from = 2.5
        }"""
    )
    assert gone.affected_edges == 3


@pytest.mark.parametrize(
    ("edge", "ends", "mentions"),
    [
        (
            "ToDay",
            {"from": 7, "to": True},
            "'to' must be a string, the id of a Day, or a value of its key: expects Date",
        ),
        (
            "ToHub",
            {"from": 7.5, "to": 7},
            "'from' must be a string, the id of a Hub, or a value of its key: expects I64",
        ),
        ("ToBig", {"from": 7, "to": -1}, "of its key: -1 is outside the range of U64"),
        ("ToTag", {"from": 7, "to": 5}, "'to' must be a string, the id of a node; got an integer"),
        ("ToTag", {"from": 7, "to": None}, "'to' must be a string, the id of a node; got null"),
        ("ToSeat", {"from": 7, "to": {"row": "a"}}, "expects an object with on, place, row, got one with row"),
        ("ToSeat", {"from": 7, "to": {**SEAT, "place": "x"}}, "place: expects I32, got a string"),
        ("ToDay", {"from": 7, "to": "2020-02-30"}, "dst '2020-02-30' not found in Day"),
        ("ToHub", {"from": 7, "to": 9}, "dst '9' not found in Hub"),
    ],
)
def test_what_names_no_node_is_refused(graph: Graph, edge: str, ends: dict[str, Any], mentions: str) -> None:
    head = graph.resolve_snapshot()
    with pytest.raises(ConstraintError) as refused:
        graph.load(json.dumps({"edge": edge, **ends}), mode="append")
    assert mentions in str(refused.value)
    if edge != "ToTag":
        with pytest.raises(ConstraintError) as refused:
            graph.load([ends], type=edge, mode="append")
        assert mentions in str(refused.value)
    assert graph.resolve_snapshot() == head


def test_a_column_of_another_type_is_refused_row_by_row(graph: Graph) -> None:
    table = pa.table({"from": [7, 7], "to": pa.array([18321.0, 0.5])})
    with pytest.raises(ConstraintError, match="row 2: edge:ToHub: 'to' must be a string"):
        graph.load(table, type="ToHub", mode="append")
    with pytest.raises(BadRequestError, match="edge:ToTag: column 'to' must hold ids as strings, not bool"):
        graph.load(pa.table({"from": [7], "to": [True]}), type="ToTag", mode="append")


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ("insert ToDay { from: $n, to: $n }", r"cannot assign/compare I64 with Date \(ToDay.to\)"),
        ("insert ToTag { from: $n, to: $n }", r"cannot assign/compare I64 with String \(ToTag.to\)"),
        ("insert ToSeat { from: $n, to: $n }", r"cannot assign/compare I64 with String \(ToSeat.to\)"),
        ("insert ToDay { from: $n, to: 5 }", "has type Date but got I64"),
        ("delete ToHub where from < $n", "is the id of a node and has no order"),
    ],
)
def test_a_query_that_can_not_name_a_node_does_not_compile(graph: Graph, body: str, mentions: str) -> None:
    with pytest.raises(CompileError, match=mentions):
        graph.mutate(f"query q($n: I64) {{ {body} }}", params={"n": 7})
