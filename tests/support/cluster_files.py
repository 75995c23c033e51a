"""A configuration directory of a cluster, and its commands as the command line runs them.

files = ClusterFiles(tmp_path, storage=place.uri)
files.write({"kb": Declared(SCHEMA, {"people.gq": QUERIES})})
files.import_(); files.apply()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from omnigraph.api.service import cluster as reports
from omnigraph.cli.commands.cluster import read_pipeline_text
from omnigraph.cluster.commands.apply import apply
from omnigraph.cluster.commands.plan import approve, plan, validate
from omnigraph.cluster.commands.refresh import import_, refresh
from omnigraph.cluster.commands.status import force_unlock, history, status
from omnigraph.cluster.state import State
from omnigraph.cluster.state_ledger import Ledger
from omnigraph.cluster.storage_root import graph_uri, make_root
from omnigraph.storage.objects import Objects

SCHEMA = "node Person {\n    name: String @key\n    age: I32?\n}\nedge Knows: Person -> Person\n"
LARGER_SCHEMA = SCHEMA.replace("    age: I32?\n", "    age: I32?\n    email: String?\n")
QUERIES = """query find($name: String) {
    match { $p: Person { name: $name } }
    return { $p.name }
}
query add($name: String) { insert Person { name: $name } }
"""
POLICY = """version: 1
groups: {team: [ana]}
rules:
  - {id: all, allow: {actors: {group: team}, actions: [read, change], branch_scope: any}}
"""
PIPELINE = """version: 1
sources:
  people: {format: csv, path: people.csv}
nodes:
  Person: {from: people, select: {name: name}}
"""


@dataclass(frozen=True)
class Declared:
    """A graph of a configuration; query files by name."""

    schema: str = SCHEMA
    queries: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


class ClusterFiles:
    """Where a cluster is described."""

    def __init__(self, directory: Path, storage: str | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.storage = storage

    @property
    def source(self) -> str:
        return str(self.directory)

    @property
    def root(self) -> str:
        return self.storage or self.source

    def file(self, name: str, text: str | bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def write(self, graphs: Mapping[str, Declared], **top: Any) -> None:
        """The configuration and the files of its graphs."""
        declared = {}
        for graph_id, graph in graphs.items():
            self.file(f"{graph_id}.pg", graph.schema)
            for name, text in graph.queries.items():
                self.file(f"{graph_id}/{name}", text)
            queries = {"queries": [f"{graph_id}/{name}" for name in graph.queries]} if graph.queries else {}
            declared[graph_id] = {"schema": f"{graph_id}.pg", **queries, **graph.settings}
        self.config(version=1, storage=self.storage, graphs=declared, **top)

    def config(self, **top: Any) -> None:
        self.file("cluster.yaml", yaml.safe_dump(top, sort_keys=False))

    # Commands

    def validate(self) -> reports.ClusterValidated:
        return validate(self.source, read_pipeline_text)

    def plan(self) -> reports.ClusterPlan:
        return plan(self.source, read_pipeline_text).output

    def apply(self, actor: str | None = None) -> reports.ClusterApplied:
        return apply(self.source, read_pipeline_text, actor=actor)

    def approve(self, resource: str, approver: str = "ana") -> reports.ClusterApproved:
        return approve(self.source, resource, read_pipeline_text, approver=approver)

    def refresh(self) -> reports.ClusterObserved:
        return refresh(self.source, read_pipeline_text)

    def import_(self) -> reports.ClusterObserved:
        return import_(self.source, read_pipeline_text)

    def status(self, revision: int | None = None) -> reports.ClusterStatus:
        return status(self.source, revision)

    def history(self, limit: int | None = None) -> reports.ClusterHistory:
        return history(self.source, limit)

    def force_unlock(self, lock_id: str) -> reports.ClusterUnlocked:
        return force_unlock(self.source, lock_id)[0]

    # What stands

    @property
    def objects(self) -> Objects:
        return make_root(self.root)

    @property
    def state(self) -> State:
        found = Ledger(self.objects).newest()
        assert found is not None
        return found.state

    def graph_uri(self, graph_id: str) -> str:
        return graph_uri(self.objects.location.uri, graph_id, self.state.generation(graph_id))


def codes(report: Any) -> list[str]:
    return [finding.code for finding in report.diagnostics]


def outcomes(report: reports.ClusterPlan | reports.ClusterApplied) -> dict[str, str]:
    """`resource: operation disposition reason` of each change."""
    return {c.resource: " ".join(filter(None, (c.operation, c.disposition, c.reason))) for c in report.changes}
