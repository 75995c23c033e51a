"""Mutations: what statements do, what later ones see, what is counted, and when there is no commit at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.governance import Limits
from omnigraph.errors import (
    BadRequestError,
    CompileError,
    ConflictError,
    PreconditionFailedError,
    ResourceLimitError,
)
from tests.engine.museum import SCHEMA, edge, lines, node
from tests.engine.stored import everything, rows
from tests.support.receipts import replayed

VASE = '["12","east"]'
BOWL = '["13","east"]'


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load(
            lines(
                node("Curator", badge="k7", name="Ines", level="senior", email="ines@museum", pay=100),
                node("Curator", badge="k8", name="Omar", level="junior"),
                node("Exhibit", accession=12, wing="east", title="Vase", photo="base64:aGk="),
                node("Exhibit", accession=13, wing="east", photo="base64:"),
                edge("Guards", "k7", VASE, id="g-1"),
                edge("Guards", "k8", BOWL, id="g-2"),
            ),
            mode="append",
        )
        yield graph


def run(graph: Graph, body: str, params: dict[str, object] | None = None, *, declare: str = "", **options: Any) -> Any:
    """Run one mutation given by its statements."""
    return graph.mutate(f"query it({declare}) {{ {body} }}", "it", params, **options)


def curators(graph: Graph, column: str) -> dict[str, Any]:
    return {badge: row[column] for badge, row in rows(graph, "node:Curator").items()}


# Inserts


def test_inserting_a_keyed_node_replaces_the_whole_entity(graph: Graph) -> None:
    receipt = run(graph, 'insert Curator { badge: "k7", name: "Ines B." }')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 0)
    assert rows(graph, "node:Curator")["k7"] == {
        **dict.fromkeys(("email", "hired", "level", "pay")),
        "badge": "k7",
        "name": "Ines B.",
    }


def test_inserting_an_unkeyed_node_always_adds_one(graph: Graph) -> None:
    for _ in range(2):
        run(graph, 'insert Memo { text: "a" }')
    ids = list(rows(graph, "node:Memo"))
    assert len(ids) == 2
    assert all(len(i) == 26 for i in ids)


def test_parallel_edges_are_legal(graph: Graph) -> None:
    body = "insert Guards { from: $c, to: $e }"
    receipt = run(graph, body, {"c": "k8", "e": BOWL}, declare="$c: String, $e: String")
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 1)
    assert [r["src"] for r in rows(graph, "edge:Guards").values() if r["dst"] == BOWL] == ["k8", "k8"]


def test_an_edge_may_name_a_node_inserted_after_it(graph: Graph) -> None:
    body = """insert Guards { from: "k9", to: $e } insert Curator { badge: "k9", name: "Noor" }"""
    receipt = run(graph, body, {"e": VASE}, declare="$e: String")
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)


@pytest.mark.parametrize(
    ("assignment", "stored"),
    [
        ("pay: 12", 12.0),
        ("pay: 12.5", 12.5),
    ],
)
def test_integers_widen_to_floats(graph: Graph, assignment: str, stored: float) -> None:
    run(graph, f'insert Curator {{ badge: "k9", name: "n", {assignment} }}')
    assert curators(graph, "pay")["k9"] == stored


@pytest.mark.parametrize(
    ("body", "declare", "params", "mentions"),
    [
        ("insert Sample { code: 1, small: $v }", "$v: F64", {"v": 1.5}, "small"),
        ("insert Sample { code: 1, small: $v }", "$v: I64", {"v": 2**31}, "range"),
        ("insert Sample { code: 1, narrow: $v }", "$v: F64", {"v": 1e39}, "Float32 range"),
        ("insert Sample { code: 1, day: $v }", "$v: Date", {"v": "2031-02-30"}, "invalid Date literal"),
        ("insert Memo { text: $v }", "$v: String?", {"v": None}, "non-nullable property 'text'"),
        ("insert Sample { code: $v }", "$v: U32?", {"v": None}, "code"),
        (
            'insert Guards { from: $v, to: "x" }',
            "$v: String?",
            {"v": None},
            "'from' must be a string, the id of a node; got null",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_a_bad_request(
    graph: Graph, body: str, declare: str, params: dict[str, object], mentions: str
) -> None:
    before = everything(graph)
    with pytest.raises(BadRequestError, match=mentions) as refused:
        run(graph, body, params, declare=declare)
    assert "statement 1" in str(refused.value)
    assert everything(graph) == before


# Updates


@pytest.mark.parametrize(
    ("where", "matched"),
    [
        ('badge = "k7"', {"k7"}),
        ('badge != "k7"', {"k8"}),
        ('level = "junior"', {"k8"}),
        ("pay > 10", {"k7"}),
        ("pay >= 100", {"k7"}),
        ("pay < 100", set()),
        ("pay != 5", {"k7"}),
        ('name >= "J"', {"k8"}),
        ('email = "nobody"', set()),
    ],
)
def test_an_update_touches_the_rows_its_predicate_is_true_for(graph: Graph, where: str, matched: set[str]) -> None:
    receipt = run(graph, f'update Curator set {{ hired: date("2031-05-04") }} where {where}')
    assert receipt.affected_nodes == len(matched)
    assert {badge for badge, day in curators(graph, "hired").items() if day} == matched


def test_a_null_value_matches_nothing(graph: Graph) -> None:
    receipt = run(graph, 'update Curator set { name: "x" } where email = $e', {"e": None}, declare="$e: String?")
    assert (receipt.affected_nodes, receipt.commit) == (0, None)


def test_unassigned_properties_and_blobs_are_kept(graph: Graph) -> None:
    receipt = run(graph, 'update Exhibit set { title: "Renamed" } where wing = "east"')
    assert receipt.affected_nodes == 2
    found = rows(graph, "node:Exhibit")
    assert (found[VASE]["title"], found[VASE]["photo"]) == ("Renamed", b"hi")
    assert (found[BOWL]["title"], found[BOWL]["photo"]) == ("Renamed", b"")


def test_a_blob_is_assigned_and_cleared(graph: Graph) -> None:
    body = "update Exhibit set { photo: $p } where accession = 12"
    run(graph, body, {"p": "base64:bmV3"}, declare="$p: Blob?")
    assert rows(graph, "node:Exhibit")[VASE]["photo"] == b"new"
    run(graph, body, {"p": None}, declare="$p: Blob?")
    assert rows(graph, "node:Exhibit")[VASE]["photo"] is None
    assert rows(graph, "node:Exhibit")[BOWL]["photo"] == b""


def test_one_mutation_may_keep_assign_and_insert_blobs_of_one_type(graph: Graph) -> None:
    run(
        graph,
        """update Exhibit set { photo: $p } where accession = 12
           update Exhibit set { title: "both" } where wing = "east"
           insert Exhibit { accession: 14, wing: "west", photo: $p }""",
        {"p": "base64:bmV3"},
        declare="$p: Blob",
    )
    found = rows(graph, "node:Exhibit")
    assert {i: (r["title"], r["photo"]) for i, r in found.items()} == {
        VASE: ("both", b"new"),
        BOWL: ("both", b""),
        '["14","west"]': (None, b"new"),
    }


def test_a_key_can_not_be_updated(graph: Graph) -> None:
    with pytest.raises(CompileError, match="cannot update @key property"):
        run(graph, 'update Curator set { badge: "k9" } where name = "Ines"')


@pytest.mark.parametrize(
    ("where", "matched"),
    [
        ("small < $v", {"1"}),
        ("small <= $v", {"1"}),
        ("small > $v", {"2"}),
        ("small >= $v", {"2"}),
        ("small = $v", set()),
        ("small != $v", {"1", "2"}),
        ("positive > $v", {"1", "2"}),
        ("wide > $v", {"2"}),
        ("narrow > $v", {"2"}),
    ],
)
def test_numbers_compare_by_value_across_their_types(graph: Graph, where: str, matched: set[str]) -> None:
    graph.load(
        lines(
            node("Sample", code=1, small=2, positive=2**64 - 1, wide=2.25, narrow=2.25),
            node("Sample", code=2, small=3, positive=3, wide=2.75, narrow=2.75),
            node("Sample", code=3),
        ),
        mode="append",
    )
    run(graph, f"update Sample set {{ flag: true }} where {where}", {"v": 2.5}, declare="$v: F64")
    assert {i for i, row in rows(graph, "node:Sample").items() if row["flag"]} == matched


@pytest.mark.parametrize(("value", "above"), [(2**40, set()), (-(2**40), {"1"})])
def test_a_number_no_column_can_hold_still_compares(graph: Graph, value: int, above: set[str]) -> None:
    graph.load(lines(node("Sample", code=1, small=2), node("Sample", code=2)), mode="append")
    run(graph, "update Sample set { flag: true } where small > $v", {"v": value}, declare="$v: I64")
    assert {i for i, row in rows(graph, "node:Sample").items() if row["flag"]} == above


@pytest.mark.parametrize(
    ("where", "declare", "value"),
    [
        ("day <= $v", "$v: Date", "2031-05-04"),
        ("moment < $v", "$v: DateTime", "2031-05-04T12:00:01Z"),
        ("flag = $v", "$v: Bool", False),
        ("flag < $v", "$v: Bool", True),
    ],
)
def test_dates_moments_and_booleans_compare(graph: Graph, where: str, declare: str, value: object) -> None:
    graph.load(
        lines(
            node("Sample", code=1, day="2031-05-04", moment="2031-05-04T12:00:00Z", flag=False),
            node("Sample", code=2, day="2031-05-05", moment="2031-05-05T12:00:00Z", flag=True),
            node("Sample", code=3),
        ),
        mode="append",
    )
    receipt = run(graph, f"update Sample set {{ small: 1 }} where {where}", {"v": value}, declare=declare)
    assert receipt.affected_nodes == 1
    assert rows(graph, "node:Sample")["1"]["small"] == 1


def test_lists_are_never_matched(graph: Graph) -> None:
    receipt = run(
        graph,
        "update Exhibit set { title: $t } where tags = $v",
        {"t": "x", "v": []},
        declare="$t: String, $v: [String]",
    )
    assert receipt.commit is None


# Conditions and values of any form


@pytest.mark.parametrize(
    ("where", "matched"),
    [
        ('badge = "k7" and pay > 10', {"k7"}),
        ('badge = "k8" and pay > 10', set()),
        ('badge = "k7" and badge = "k8"', set()),
        ('pay > 10 or badge = "k8"', {"k7", "k8"}),
        ("not (pay > 10)", set()),
        ("not (pay > 10) or pay is null", {"k8"}),
        ("pay is not null", {"k7"}),
        ('badge in ["k7", "k8", "k9"] and level != "senior"', {"k8"}),
        ('"k8" = badge', {"k8"}),
        ('@id = "k8"', {"k8"}),
        ('@id != "k8" and not (@id in [])', {"k7"}),
        ('name starts_with "O" or email contains "ines"', {"k7", "k8"}),
        ('lower(name) = "omar"', {"k8"}),
        ("coalesce(pay, 0) + 1 > 100", {"k7"}),
        ('case when pay is null then level = "junior" else pay = 1 end', {"k8"}),
        ("name > badge", set()),
        ("badge > name", {"k7", "k8"}),
        ("$flag", {"k7", "k8"}),
        ("$flag and pay < 1000", {"k7"}),
        ("not $flag", set()),
        ("$none = 1 or true", {"k7", "k8"}),
        ("$none = 1", set()),
        ('hired is null and now() > datetime("2020-01-01T00:00:00Z")', {"k7", "k8"}),
    ],
)
@pytest.mark.parametrize("statement", ["update Curator set { email: null } where", "delete Curator where"])
def test_a_condition_is_any_expression_of_the_row(graph: Graph, statement: str, where: str, matched: set[str]) -> None:
    receipt = run(graph, f"{statement} {where}", {"flag": True, "none": None}, declare="$flag: Bool, $none: I64?")
    assert receipt.affected_nodes == len(matched)
    if "delete" in statement:
        assert set(rows(graph, "node:Curator")) == {"k7", "k8"} - matched


def test_a_condition_reads_pending_rows_too(graph: Graph) -> None:
    receipt = run(
        graph,
        """insert Curator { badge: "k9", name: "Noor", pay: 5 }
           update Curator set { pay: 200 } where badge in ["k8", "k9"] and (pay is null or pay < 10)
           update Curator set { name: "rich" } where pay * 2 >= 400 and not (badge = "k7")""",
    )
    assert receipt.affected_nodes == 1 + 2 + 2
    assert curators(graph, "name") == {"k7": "Ines", "k8": "rich", "k9": "rich"}


def test_a_value_reads_the_row_as_it_was_before_the_statement(graph: Graph) -> None:
    run(
        graph,
        """update Curator set { pay: pay + 1, name: upper(name), email: name } where true
           update Curator set { pay: pay * 2, name: name + "!" } where pay is not null""",
    )
    assert curators(graph, "pay") == {"k7": 202.0, "k8": None}
    assert curators(graph, "name") == {"k7": "INES!", "k8": "OMAR"}
    assert curators(graph, "email") == {"k7": "Ines", "k8": "Omar"}


def test_values_of_every_type_are_calculated(graph: Graph) -> None:
    numbers: dict[str, Any] = {"small": 1, "large": 2, "positive": 3, "narrow": 0.5, "wide": 0.25, "scores": [1, 2]}
    dates: dict[str, Any] = {"day": "2031-05-04", "moment": "2031-05-04T12:00:00Z", "days": ["2031-05-04"]}
    graph.load(lines(node("Sample", code=1, flag=True, **numbers, **dates)), mode="append")
    run(
        graph,
        """update Sample set { flag: not flag, small: small - 2, large: large * 10, positive: positive % 2,
           narrow: narrow / 2, wide: small, day: add_days(day, 1), moment: add_seconds(moment, 60),
           scores: scores + [small], days: tail(days) } where code = 1""",
    )
    assert rows(graph, "node:Sample")["1"] == {
        "code": 1,
        "flag": False,
        "small": -1,
        "large": 20,
        "positive": 1,
        "narrow": 0.25,
        "wide": 1.0,
        "day": date(2031, 5, 5),
        "moment": datetime(2031, 5, 4, 12, 1, tzinfo=UTC),
        "scores": [1, 2, 1],
        "days": [],
    }


@pytest.mark.parametrize(
    ("body", "mentions"),
    [
        ("update Sample set { small: large } where code = 1", "outside the range of I32"),
        ("update Sample set { positive: small - 5 } where code = 1", "outside the range of U64"),
        ("update Sample set { narrow: wide * 1e39 } where code = 1", "exceeds Float32 range"),
        ("update Sample set { wide: log(-1.0 * wide) } where code = 1", "NaN"),
        ("update Sample set { wide: wide / 0.0 } where code = 1", "inf is not finite"),
        ("update Sample set { large: large + 9223372036854775807 } where code = 1", "does not fit into 64 bits"),
        ('update Memo set { text: nullif(text, "m") } where true', "non-nullable property 'text'"),
        ('insert Memo { text: nullif("m", "m") }', "non-nullable property 'text'"),
    ],
)
def test_a_calculated_value_has_to_fit_as_well(graph: Graph, body: str, mentions: str) -> None:
    sample = node("Sample", code=1, small=1, large=2**40, wide=1.5)
    graph.load(lines(sample, node("Memo", id="m1", text="m")), mode="append")
    before = everything(graph)
    with pytest.raises(BadRequestError, match=mentions):
        run(graph, body)
    assert everything(graph) == before


def test_constants_of_an_insert_are_calculated_once(graph: Graph) -> None:
    body = 'insert Sample { code: 1 + 1, flag: true or $flag, day: date("2031-05-04"), scores: [1, $n, 2 * $n] }'
    run(graph, body, {"flag": None, "n": 3}, declare="$flag: Bool?, $n: I64")
    row = rows(graph, "node:Sample")["2"]
    assert (row["flag"], row["day"], row["scores"]) == (True, date(2031, 5, 4), [1, 3, 6])


# Read your writes


def test_an_update_sees_pending_values_and_not_the_ones_they_replace(graph: Graph) -> None:
    receipt = run(
        graph,
        """update Curator set { level: "junior" } where badge = "k7"
           update Curator set { name: "was senior" } where level = "senior"
           update Curator set { name: "is junior" } where level = "junior" """,
    )
    assert receipt.affected_nodes == 1 + 0 + 2
    assert curators(graph, "name") == {"k7": "is junior", "k8": "is junior"}


def test_inserting_and_then_updating_one_node_counts_twice(graph: Graph) -> None:
    receipt = run(graph, 'insert Memo { text: "a" } update Memo set { text: "b" } where text = "a"')
    assert receipt.affected_nodes == 2
    assert [row["text"] for row in rows(graph, "node:Memo").values()] == ["b"]


def test_a_unique_value_freed_earlier_may_be_given_away(graph: Graph) -> None:
    run(
        graph,
        """update Curator set { email: "gone@museum" } where badge = "k7"
           update Curator set { email: "ines@museum" } where badge = "k8" """,
    )
    assert curators(graph, "email") == {"k7": "gone@museum", "k8": "ines@museum"}


def test_inserting_a_key_twice_keeps_the_later_one(graph: Graph) -> None:
    receipt = run(graph, 'insert Curator { badge: "n", name: "a", pay: 1 } insert Curator { badge: "n", name: "b" }')
    assert receipt.affected_nodes == 2
    assert rows(graph, "node:Curator")["n"]["name"] == "b"
    assert rows(graph, "node:Curator")["n"]["pay"] is None


# Deletes


def test_deleting_nodes_takes_incident_edges_along(graph: Graph) -> None:
    receipt = run(graph, 'delete Exhibit where wing = "east"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 2)
    assert rows(graph, "node:Exhibit") == rows(graph, "edge:Guards") == {}
    assert set(rows(graph, "node:Curator")) == {"k7", "k8"}


def test_edges_go_whichever_end_is_deleted_and_count_once(graph: Graph) -> None:
    graph.load(
        lines(
            *(node("Memo", id=i, text=i) for i in "abc"),
            edge("Cites", "a", "b", id="ab", strength=1),
            edge("Cites", "b", "a", id="ba", strength=2),
            edge("Cites", "c", "c", id="cc", strength=3),
        ),
        mode="append",
    )
    receipt = run(graph, 'delete Memo where text = "a" delete Memo where text = "b" delete Cites where strength = 1')
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 2)
    assert set(rows(graph, "edge:Cites")) == {"cc"}


@pytest.mark.parametrize(
    ("where", "left"), [('from = "k7"', {"g-2"}), ("to = $e", {"g-2"}), ("since = now()", {"g-1", "g-2"})]
)
def test_edges_are_deleted_by_endpoint_or_property(graph: Graph, where: str, left: set[str]) -> None:
    receipt = run(graph, f"delete Guards where {where}", {"e": VASE}, declare="$e: String")
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 2 - len(left))
    assert set(rows(graph, "edge:Guards")) == left


def test_overlapping_deletes_keep_rows_whose_earlier_predicate_was_unknown(graph: Graph) -> None:
    receipt = run(graph, 'delete Curator where pay > 10 delete Curator where badge = "k8" delete Curator where pay > 1')
    assert receipt.affected_nodes == 2
    assert rows(graph, "node:Curator") == {}


# One commit, or none


def test_all_statements_are_one_commit(graph: Graph) -> None:
    before = graph.snapshot().version
    receipt = run(graph, 'insert Memo { text: "a" } update Curator set { pay: 1 } where badge = "k7"', actor="mia")
    assert receipt.commit is not None
    assert receipt.commit.graph_manifest_version == graph.snapshot().version == before + 1
    assert wire.to_builtins(receipt) == {
        "branch": "main",
        "query_name": "it",
        "affected_nodes": 2,
        "affected_edges": 0,
        "actor_id": "mia",
        "commit": wire.to_builtins(receipt.commit),
    }


@pytest.mark.parametrize("body", ['update Curator set { pay: 1 } where badge = "x"', 'delete Memo where text = "x"'])
def test_nothing_matched_is_no_commit(graph: Graph, body: str) -> None:
    before = graph.snapshot().commit_id
    receipt = run(graph, body)
    assert (receipt.affected_nodes, receipt.affected_edges, receipt.commit) == (0, 0, None)
    assert receipt.query_name == "it"
    assert graph.snapshot().commit_id == before


def test_an_update_to_equal_values_is_still_a_commit_that_writes_nothing(graph: Graph) -> None:
    tables = graph.snapshot().entry.tables
    receipt = run(graph, 'update Curator set { name: "Ines" } where badge = "k7"')
    assert (receipt.affected_nodes, graph.snapshot().commit_id) == (1, receipt.commit.id)
    assert graph.snapshot().entry.tables == tables
    assert graph.snapshot().entry.commit.changes == {}


def test_an_update_of_some_equal_values_writes_and_counts_the_others(graph: Graph) -> None:
    run(graph, 'insert Memo { text: "a" } insert Memo { text: "b" }')
    receipt = run(graph, 'update Memo set { text: "a" } where text != ""')
    assert receipt.affected_nodes == len(rows(graph, "node:Memo"))
    changed = graph.snapshot().entry.commit.changes["node:Memo"].updated
    assert changed == len(graph.changes.page(receipt.commit.id).block.changes) == receipt.affected_nodes - 1


def test_making_and_removing_do_not_mix(graph: Graph) -> None:
    with pytest.raises(BadRequestError, match="inserts/updates and deletes") as refused:
        run(graph, 'insert Memo { text: "a" } delete Memo where text = "b"')
    assert "split into separate mutations" in str(refused.value)


def test_a_late_failure_takes_back_every_statement(graph: Graph) -> None:
    before = everything(graph)
    with pytest.raises(BadRequestError, match="src 'ghost' not found in Curator"):
        run(
            graph,
            'insert Memo { text: "a" } insert Guards { from: "ghost", to: $e }',
            {"e": VASE},
            declare="$e: String",
        )
    assert everything(graph) == before


def test_reads_and_unknown_names_are_bad_requests(graph: Graph) -> None:
    source = "query look() { match { $c: Curator } return { $c.name } }"
    with pytest.raises(BadRequestError, match="is a read"):
        graph.mutate(source, "look")
    with pytest.raises(BadRequestError, match="'nope' not found"):
        graph.mutate(source, "nope")


def test_now_is_one_instant_for_the_whole_mutation(graph: Graph) -> None:
    started = datetime.now(UTC)
    body = "insert Sample { code: 1, moment: now() } insert Sample { code: 2, moment: now() }"
    receipt = run(graph, body)
    moments = {row["moment"] for row in rows(graph, "node:Sample").values()}
    assert len(moments) == 1
    assert started - timedelta(milliseconds=1) <= moments.pop() <= datetime.now(UTC)
    assert receipt.commit is not None


# Conditions and repeats


def test_a_conditional_mutation_runs_only_on_the_expected_head(graph: Graph) -> None:
    head = graph.snapshot().commit_id
    graph.create_branch("side")
    run(graph, 'insert Memo { text: "a" }', branch="side", if_commit=head)
    run(graph, 'insert Memo { text: "a" }', if_commit=head)
    for body in ('insert Memo { text: "b" }', 'update Memo set { text: "b" } where text = "nothing"'):
        with pytest.raises(PreconditionFailedError) as refused:
            run(graph, body, if_commit=head)
        assert (refused.value.branch, refused.value.expected) == ("main", head)
        assert refused.value.actual == graph.snapshot().commit_id
    assert len(rows(graph, "node:Memo")) == 1


def test_a_repeat_with_the_same_key_returns_the_first_receipt(graph: Graph) -> None:
    first = run(graph, 'insert Memo { text: "a" }', idempotency_key="once")
    run(graph, 'insert Memo { text: "b" }')
    assert run(graph, 'insert Memo { text: "a" }', idempotency_key="once") == replayed(first)
    assert sorted(row["text"] for row in rows(graph, "node:Memo").values()) == ["a", "b"]


def test_a_key_of_another_kind_of_write_is_refused(graph: Graph) -> None:
    graph.load(lines(node("Memo", text="b")), mode="append", idempotency_key="once")
    with pytest.raises(ConflictError, match="was used for another request"):
        run(graph, 'insert Memo { text: "a" }', idempotency_key="once")


def test_an_update_of_too_many_entities_is_refused(graph: Graph) -> None:
    with pytest.raises(ResourceLimitError) as refused:
        run(graph.with_limits(Limits(rows=1)), 'update Curator set { pay: 1 } where name > "A"')
    assert (refused.value.limit, refused.value.actual) == (1, 2)
