"""The law of cleanup: after any history of writes, branches and cleanups, every retained snapshot reads as it was."""

from __future__ import annotations

import random
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api.maintenance import Retention
from omnigraph.engine.maintenance.cleanup import cleanup
from omnigraph.engine.write.publish import Intent, PublishPlan, WriteTxn
from omnigraph.errors import HistoricalVersionReclaimedError, NotFoundError
from omnigraph.storage.log.write_guard import GRACE
from tests.engine.library import SCHEMA, book
from tests.support.log_entries import list_commits

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["load", "load", "load", "delete", "overwrite", "fork", "drop", "optimize", "cleanup", "stage"]
        ),
        st.integers(0, 2**16),
    ),
    min_size=4,
    max_size=24,
)


class History:
    """A graph beside everything it ever was: each commit's content, by commit id."""

    def __init__(self, uri: Path) -> None:
        self.graph = Graph.init(uri, SCHEMA)
        self.was: dict[str, dict[str, str]] = {self.graph.snapshot().commit_id: {}}
        self.gone: set[str] = set()

    def do(self, step: str, seed: int) -> None:
        chance = random.Random(seed)
        graph = self.graph
        branch = chance.choice(graph.list_branches())
        now = self.was[graph.snapshot(branch).commit_id]
        if step in ("load", "overwrite"):
            rows = {f"k{chance.randrange(8)}": f"t{seed}-{i}" for i in range(chance.randint(1, 4))}
            lines = [book(isbn, title=title) for isbn, title in rows.items()]
            graph.load("\n".join(lines), mode="overwrite" if step == "overwrite" else "merge", branch=branch)
            self.was[graph.snapshot(branch).commit_id] = rows if step == "overwrite" else {**now, **rows}
        elif step == "delete" and now:
            victims = chance.sample(sorted(now), 1)

            def remove(txn: WriteTxn) -> PublishPlan:
                jobs = {"node:Book": lambda state: txn.root.staging.delete(state, victims)}
                return PublishPlan(txn.stage(jobs))

            published = graph._workspace.commit(branch, remove, Intent(kind="mutate"))
            assert published is not None
            self.was[published.commit_id] = {k: v for k, v in now.items() if k not in victims}
        elif step == "fork" and len(graph.list_branches()) < 4 and f"b{seed}" not in graph.list_branches():
            sources = [e.commit.id for e in list_commits(graph, branch).commits if e.commit.id not in self.gone]
            graph.create_branch(f"b{seed}", source=chance.choice(sources))
        elif step == "drop" and branch != "main" and not self._is_depended_on(branch):
            graph.delete_branch(branch)
        elif step == "optimize":
            report = graph.maintenance.optimize(branch)
            if report.commit is not None:
                self.was[report.commit.commit_id] = now
        elif step == "stage":
            graph._workspace.root.staging.append(
                graph.snapshot(branch).entry.tables["node:Book"], self._never_published(seed)
            )
        elif step == "cleanup":
            keep, grace = chance.randint(1, 4), chance.choice([GRACE, timedelta(0)])
            self._cleanup(keep, grace)

    def _is_depended_on(self, branch: str) -> bool:
        ref = self.graph._workspace.root.branches.head(branch).ref
        return any(
            ref.branch_id in {p.branch_id for p in other.lineage} | {other.parent_branch_id}
            for other in self.graph._workspace.root.branches.all()
        )

    def _never_published(self, seed: int) -> pa.Table:
        table = self.graph.snapshot().table("node:Book")
        row = {"id": f"x{seed}", "isbn": f"x{seed}", "title": "garbage"}
        schema = pa.schema([table.schema.field(name) for name in ("id", "isbn", "title")])
        return pa.Table.from_pylist([row], schema=schema)

    def _cleanup(self, keep: int, grace: timedelta) -> None:
        report = cleanup(self.graph._workspace, Retention(keep_versions=keep), grace=grace)
        assert all(row.error is None for row in report.datasets)
        kept = self._must_be_readable(keep)
        fresh = Graph.open(self.graph.uri)
        for commit_id, expected in self.was.items():
            try:
                rows = fresh.snapshot(snapshot=commit_id).scan("node:Book", ["isbn", "title"]).to_pylist()
            except HistoricalVersionReclaimedError:
                assert commit_id not in kept
                self.gone.add(commit_id)
            except NotFoundError:
                assert commit_id not in kept, "only commits of deleted branches are not found"
            else:
                assert {row["isbn"]: row["title"] for row in rows} == expected
        assert fresh.maintenance.verify().clean

    def _must_be_readable(self, keep: int) -> set[str]:
        """The newest of main that were still there, and every commit of a live branch's own, with its fork point."""
        graph = self.graph
        found = {e.commit.id for e in list_commits(graph, limit=keep).commits} - self.gone
        for ref in graph._workspace.root.branches.all()[1:]:
            commits = list_commits(graph, ref.branch, limit=1_000).commits
            found |= {e.commit.id for e in commits if e.version >= ref.first_own_version - 1} - self.gone
            assert commits[0].commit.id in found, "the head of a live branch is always there"
        return found


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_every_retained_snapshot_reads_as_it_was(steps: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "graph")
        for step, seed in steps:
            history.do(step, seed)
        history.do("cleanup", 7)
