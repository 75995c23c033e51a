"""The demo: make a graph, commit to several tables at once, branch it, travel in time, and count what it cost.

./dev demo
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from omnigraph import Graph
from omnigraph.engine.publish import Intent, PublishedCommit, PublishPlan, WriteTxn

console = Console(highlight=False)

PERSON = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("born", pa.int32())])
BOOK = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("title", pa.string())])
WROTE = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst")])
TABLES = {"node:Person": PERSON, "node:Book": BOOK, "edge:Wrote": WROTE}


def rows(type_key: str, *values: tuple[object, ...]) -> pa.Table:
    schema = TABLES[type_key]
    return pa.Table.from_pylist([dict(zip(schema.names, v, strict=True)) for v in values], schema=schema)


def commit(graph: Graph, branch: str, message: str, **tables: pa.Table) -> PublishedCommit:
    """Stage every table in parallel, invisibly, then make all of it visible with one object."""
    by_key = {key.replace("__", ":"): table for key, table in tables.items()}

    def prepare(txn: WriteTxn) -> PublishPlan:
        staging = txn.root.staging
        return PublishPlan(txn.stage({k: lambda state, t=t: staging.append(state, t) for k, t in by_key.items()}))

    published = graph.commit(branch, prepare, Intent(kind="load", actor="demo", message=message))
    assert published is not None
    return published


@contextmanager
def step(graph: Graph | None, title: str, costs: Table) -> Iterator[None]:
    before = dict(graph.root.objects.counts) if graph else {}
    started = time.perf_counter()
    yield
    spent = {k: v - before.get(k, 0) for k, v in graph.root.objects.counts.items()} if graph else {}
    shown = "  ".join(f"{count} {kind}" for kind, count in spent.items() if count)
    costs.add_row(title, shown or "-", f"{(time.perf_counter() - started) * 1e3:.0f} ms")


def main() -> None:
    costs = Table("step", "control requests", "time", title="What it cost", title_justify="left")
    with tempfile.TemporaryDirectory() as directory:
        uri = f"{directory}/library.omni"
        with step(None, "create a graph of three tables", costs):
            graph = Graph.create(uri, TABLES)
        console.print(f"[bold]A new graph[/] {graph.id} with the tables {', '.join(graph.snapshot().types())}\n")

        with step(graph, "one commit over three tables", costs):
            first = commit(
                graph,
                "main",
                "the first authors",
                node__Person=rows("node:Person", ("le-guin", 1929), ("lem", 1921)),
                node__Book=rows("node:Book", ("dispossessed", "The Dispossessed"), ("solaris", "Solaris")),
                edge__Wrote=rows("edge:Wrote", ("w1", "le-guin", "dispossessed"), ("w2", "lem", "solaris")),
            )
        with step(graph, "create a branch", costs):
            graph.create_branch("review/strugatsky")
        with step(graph, "one commit on the branch", costs):
            commit(
                graph,
                "review/strugatsky",
                "propose the Strugatskys",
                node__Person=rows("node:Person", ("strugatsky", 1925)),
                node__Book=rows("node:Book", ("roadside-picnic", "Roadside Picnic")),
                edge__Wrote=rows("edge:Wrote", ("w3", "strugatsky", "roadside-picnic")),
            )
        with step(graph, "one more commit on main", costs):
            commit(graph, "main", "another book by Lem", node__Book=rows("node:Book", ("cyberiad", "The Cyberiad")))

        with step(graph, "read two heads and one old state", costs):
            states = Table("state", "commit", "people", "books", title="One graph, three states", title_justify="left")
            for label, snapshot in (
                ("main, now", graph.snapshot()),
                ("review/strugatsky, now", graph.snapshot("review/strugatsky")),
                ("main, as of the first commit", graph.snapshot(snapshot=first.commit_id)),
            ):
                books = ", ".join(sorted(snapshot.scan("node:Book", ["title"])["title"].to_pylist()))
                states.add_row(label, snapshot.commit_id, str(snapshot.count("node:Person")), books)
        console.print(states)

        history = Table("version", "commit", "message", "changes", title="History of main", title_justify="left")
        for entry in graph.list_commits().commits:
            changes = "  ".join(f"{key} +{c.inserted}" for key, c in entry.commit.changes.items())
            history.add_row(str(entry.version), entry.commit.id, entry.commit.message or entry.commit.kind, changes)
        console.print(history)
        console.print(costs)

        report = graph.verify()
        state = "clean" if report.clean else f"{len(report.problems)} problems"
        console.print(
            f"verified {report.branches} branches, {report.tables} table versions, {report.files} files: {state}"
        )
        graph.close()


if __name__ == "__main__":
    main()
