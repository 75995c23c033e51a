"""Stored queries with the features of the query language in a cluster: they are taken, and checked again when the
schema of their graph changes. What a selection of types means depends on the whole schema, so a type that nobody
mentions can break one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omnigraph import Graph, Snapshot
from omnigraph.cluster.commands.status import list_queries, validate_queries
from omnigraph.cluster.state_ledger import read_applied
from tests.support.cluster_files import ClusterFiles, Declared, codes
from tests.support.feature_queries import READS, SCHEMA, STORED, STORED_TEXT, WRITES

SELECTIONS = """
query every() { match { $x: * } return { $x.@id as id } }
query named() { match { $x: Named  $x.name contains "a" } return { $x.name as name } order { name } }
query aged() { match { $x: Named } return { $x.age? as age } }
query around() { match { $b: Book  $x: *  $b * $x } return { $x.@type as kind, $x.room? as room } }
query plain() { match { $r: Reader } return { $r.name as name } }
"""
BREAKING = {
    "a member that lacks a property": ("node Film { slug: String @key }", {"all_slugs": "T6"}),
    "a member of an interface whose property has another type": (
        "node Robot implements Named { name: String @key  age: String? }",
        {"aged": "T112"},
    ),
    "a neighbour whose property has another type": (
        "node Hall { id: String @key  room: I64? }\nedge StoodIn: Book -> Hall",
        {"around": "T112"},
    ),
}
ALL_SLUGS = 'query all_slugs() { match { $x: *  $x.@type != "x" } return { $x.title as title } }'
ONE_TYPE = "node Book { isbn: String @key  title: String }"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with every feature, with selections, and with a graph of one type, where `*` is that type."""
    directory = tmp_path_factory.mktemp("template") / "cluster"
    files = ClusterFiles(directory)
    files.write(
        {
            "kb": Declared(SCHEMA, {"features.gq": STORED_TEXT.replace("query named(", "query named_things(")}),
            "lab": Declared(SCHEMA, {"selections.gq": SELECTIONS}),
            "one": Declared(ONE_TYPE, {"all.gq": ALL_SLUGS}),
        }
    )
    assert files.import_().ok
    assert files.apply("ana").converged
    return directory


@pytest.fixture
def files(template: Path, tmp_path: Path) -> ClusterFiles:
    shutil.copytree(template, tmp_path / "cluster")
    return ClusterFiles(tmp_path / "cluster")


@contextmanager
def head(uri: str) -> Iterator[Snapshot]:
    with Graph.open(uri) as graph:
        yield graph.snapshot()


def test_every_feature_may_be_stored(files: ClusterFiles) -> None:
    applied = read_applied(files.source)
    listed = {query.name: query.mutation for query in list_queries(applied, ["kb"]).queries}
    renamed = {"named": "named_things"}
    assert listed == {
        **{renamed.get(read.name, read.name): False for read in STORED},
        **{write.name: True for write in WRITES},
    }
    report = validate_queries(applied, applied.select_graphs(None), head)
    assert (report.ok, report.breakages) == (True, ())


@pytest.mark.parametrize("case", BREAKING)
def test_a_new_type_that_breaks_a_stored_query_is_reported(files: ClusterFiles, case: str) -> None:
    """Before anything is applied; and of a graph whose schema has changed already, query by query."""
    more, broken = BREAKING[case]
    graph_id, before = ("one", ONE_TYPE) if "all_slugs" in broken else ("lab", SCHEMA)
    files.file(f"{graph_id}.pg", f"{before}\n{more}\n")
    for report in (files.validate(), files.plan(), files.apply("ana")):
        assert not report.ok
        assert codes(report) == ["query_typecheck_error"]
        (finding,) = report.diagnostics
        ((name, code),) = broken.items()
        assert finding.path == f"graphs.{graph_id}.queries.{name}"
        assert f"{code}: " in finding.message
    with Graph.open(files.graph_uri(graph_id)) as graph:
        assert graph.schema.show() == before, "nothing is applied"
        graph.schema.apply(f"{before}\n{more}\n")
    found = validate_queries(read_applied(files.source), [graph_id], head)
    assert (found.ok, [note.query for note in found.breakages]) == (False, list(broken))
    assert f"{code}: " in found.breakages[0].message


def test_a_new_type_that_fits_breaks_nothing(files: ClusterFiles) -> None:
    files.file("lab.pg", f"{SCHEMA}\nnode Robot implements Named {{ name: String @key  age: I64? }}\n")
    assert files.apply("ana").converged


@pytest.mark.parametrize("text", ["branch list", READS[-1].text])
def test_a_file_of_queries_holds_no_statement(files: ClusterFiles, text: str) -> None:
    files.file("lab/selections.gq", text)
    report = files.validate()
    assert codes(report) == ["query_parse_error"]
    assert "Q004: a statement is not a query" in report.diagnostics[0].message
