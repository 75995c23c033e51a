"""The requests of a restricted read: one node that is named by its key takes no more requests than without rules."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of
from tests.conftest import Place
from tests.support.costs import settled
from tests.support.s3 import S3Server

SCHEMA = "node Doc { slug: String @key  region: String @index  owner: String @index  text: String? }"
ONE = "query q($s: String) { match { $d: Doc { slug: $s } } return { $d.slug as s, $d.text as t } }"


@pytest.mark.parametrize("rows", [300, 6_000])
def test_a_point_read_costs_what_it_costs_without_rules(s3_server: S3Server, s3_place: Place, rows: int) -> None:
    with Graph.init(s3_place.uri, SCHEMA) as graph:
        lines = (
            {"slug": f"d{i}", "region": "eu" if i % 2 else "us", "owner": f"o{i % 50}", "text": "words " * 20}
            for i in range(rows)
        )
        graph.load("\n".join(json.dumps({"type": "Doc", "data": data}) for data in lines), mode="append")
        graph.maintenance.ensure_indices()
        doc = graph.catalog.nodes["Doc"]
        rule = check_row_filter('region = "eu" or owner = $actor', doc, graph.catalog)
        visibility = visibility_of([TypeVisibility(doc, for_actor(rule, "o4"), frozenset({"owner"}))])
    costs = {}
    for name in ("open", "narrowed"):
        # A handle that has read nothing yet, and then one that knows the table.
        with Graph.open(s3_place.uri) as fresh:
            read = fresh if name == "open" else fresh._restricted_to(visibility)
            cold = settled(fresh, s3_server, lambda read=read: read.query(ONE, "q", {"s": "d101"}).rows())
            warm = settled(fresh, s3_server, lambda read=read: read.query(ONE, "q", {"s": "d203"}).rows())
            assert read.query(ONE, "q", {"s": "d205"}).rows() == [{"s": "d205", "t": "words " * 20}]
            assert len(read.query(ONE, "q", {"s": "d206"})) == (name == "open")
        costs[name] = len(cold), len(warm)
    assert costs["narrowed"] <= costs["open"], costs
