"""`GraphApi`: what a user can do with a graph, wherever it is: its calls, its branches, its past and its areas.

The embedded handle and the remote one implement it. `GraphViews` is what all handles say the same way; a handle for
asyncio has it too, with calls that are awaited.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from omnigraph.api.areas import ChangesArea, MaintenanceArea, SchemaArea
from omnigraph.api.branch import Branch
from omnigraph.api.calls import GraphCalls, LoadInput, QueryBatches, QueryRows, SnapshotApi

__all__ = ["GraphApi", "GraphViews", "LoadInput", "QueryBatches", "QueryRows", "SnapshotApi"]


_BY_AREA: Final = {
    *("schema_text", "plan_schema", "apply_schema"),
    *("commit_changes", "iter_commit_changes", "poll_changes", "capture_baseline"),
    *("optimize", "ensure_indices", "cleanup", "maintain", "verify", "repair"),
}
"""Calls that people find under `schema`, `changes` and `maintenance`. Their long names are not shown beside those."""


class GraphViews:
    """The parts of a graph that are reached through it: what they do, the calls of the graph do."""

    def __dir__(self) -> list[str]:
        """What completion shows."""
        return [name for name in super().__dir__() if name not in _BY_AREA]

    @property
    def schema(self) -> SchemaArea:
        """The types of the graph, and how they change."""
        return SchemaArea(self)  # type: ignore[arg-type]

    @property
    def changes(self) -> ChangesArea:
        """What commits changed, one commit or as a feed."""
        return ChangesArea(self)  # type: ignore[arg-type]

    @property
    def maintenance(self) -> MaintenanceArea:
        """Compaction, indexes, retention, and checks of what is stored."""
        return MaintenanceArea(self)  # type: ignore[arg-type]


class GraphApi(GraphCalls, Protocol):
    """A versioned graph of typed tables, embedded or behind a server. Every read names a branch, or a commit, a version
    or a moment."""

    @property
    def schema(self) -> SchemaArea: ...
    @property
    def changes(self) -> ChangesArea: ...
    @property
    def maintenance(self) -> MaintenanceArea: ...

    def branch(
        self, name: str, *, create: bool = False, source: str | None = None, actor: str | None = None
    ) -> Branch: ...


# Names of the last release

_OLD_NAMES: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "query_at": ("query(…, version=…)", lambda g: lambda version, *asked: g.query(*asked, version=version)),
    "entity_at": ("entity(…, version=…)", lambda g: lambda key, id, version: g.entity(key, id, version=version)),
    "diff_commits": ("diff", lambda g: g.diff),
    "schema_source": ("schema.show()", lambda g: g.schema.show()),
    "load_file": ("load", lambda g: lambda path, **options: g.load(Path(path), **options)),
    "list_commits": ("commits or commit_history", lambda g: g._list_commits),
    "get_commit": ("describe_commit", lambda g: g._get_commit),
    "merge_base": ("preview_merge", lambda g: g._merge_base),
    "preview_schema": ("schema.plan", lambda g: g._preview_schema),
    "state_of": ("snapshot", lambda g: g._workspace.state_of),
    "workspace": ("omnigraph.open", lambda g: g._workspace),
    "through": ("omnigraph.open(…, policy=…)", lambda g: g._through),
    "with_gate": ("omnigraph.open(…, policy=…)", lambda g: g._with_gate),
}
"""What each is now, for one more release."""


def old_name(graph: Any, name: str) -> Any:
    """A member under its name of the last release, with a warning that says the new one."""
    if name not in _OLD_NAMES:
        raise AttributeError(f"'{type(graph).__name__}' object has no attribute '{name}'")
    now, found = _OLD_NAMES[name]
    warnings.warn(f"Graph.{name} goes with the next release; use {now}", DeprecationWarning, stacklevel=3)
    return found(graph)
