"""Rewriting chosen fragments into few, as an operation that can be committed detached.

Lance plans compactions by its own rules; we choose the fragments ourselves (folding must stay off indexed ones), so
the task is composed here. Tasks are plain JSON and can run on any process that can open the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from lance import FragmentMetadata, LanceOperation
from lance.optimize import CompactionTask

from omnigraph.storage.tables.row_versions import condensed
from omnigraph.storage.tables.rows import Table

# The planner's own defaults, spelled out: a task that did not come from the planner has to carry all of them.
_OPTIONS: dict[str, Any] = {
    "target_rows_per_fragment": 1 << 20,
    "max_rows_per_group": 1024,
    "max_bytes_per_file": None,
    "materialize_deletions": True,
    "materialize_deletions_threshold": 0.1,
    "num_threads": None,
    "batch_size": None,
    "io_buffer_size": None,
    "defer_index_remap": False,
    "index_remap_mode": "Direct",
    "compaction_mode": None,
    "enable_binary_copy": False,
    "enable_binary_copy_force": False,
    "binary_copy_read_batch_bytes": 16 << 20,
    "max_source_fragments": None,
    "max_source_rows": None,
    "max_source_bytes": None,
    "excluded_fragment_ids": [],
    "max_overlays_per_fragment": 10,
    "data_storage_version": "2.2",
    "has_eager_remappable_index": False,
}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Fragments and what takes their place: new files, written, not yet part of any version."""

    replaced: tuple[FragmentMetadata, ...]
    created: tuple[FragmentMetadata, ...]

    @property
    def operation(self) -> Any:
        """The rewrite, for any version that holds the replaced fragments and none with the ids of the created ones."""
        group = LanceOperation.RewriteGroup(list(self.replaced), list(self.created))
        return LanceOperation.Rewrite([group], [])


def rewrite_fragments(table: Table, fragment_ids: Set[int], *, spare_ids: int = 0) -> Rewritten | None:
    """These fragments written again as few large ones. None when that would change nothing: a single fragment
    without deleted rows.

    `spare_ids` leaves that many fragment ids to writers who go on from the same version: an index segment is bound
    to the ids of its fragments, so those must still be free when the rewrite is committed on a later version.
    """
    chosen = [f.metadata for f in table._fragments() if f.fragment_id in fragment_ids]
    if not chosen or (len(chosen) == 1 and chosen[0].deletion_file is None and len(chosen[0].files) == 1):
        return None
    task = CompactionTask.from_json(  # type: ignore[attr-defined]
        json.dumps(
            {
                "task": {"fragments": [f.to_json() for f in chosen]},
                "read_version": table._dataset.version,
                "options": _OPTIONS,
            }
        )
    )
    with table.writing("compacting"):
        result = json.loads(task.execute(table._dataset).json())
    # The result numbers all its fragments 0; they need ids that this version does not use yet.
    unused = max(f.fragment_id for f in table._fragments()) + 1 + spare_ids
    created = [numbered(fragment, unused + i) for i, fragment in enumerate(result["new_fragments"])]
    replaced = [FragmentMetadata.from_json(json.dumps(f)) for f in result["original_fragments"]]
    return Rewritten(tuple(replaced), tuple(created))


def numbered(created: dict[str, Any], fragment_id: int) -> FragmentMetadata:
    """A fragment that a compaction has made, ready to be committed under an id of its own."""
    return FragmentMetadata.from_json(json.dumps({**condensed(created), "id": fragment_id}))
