"""Rewriting chosen fragments into one, as an operation that can be committed detached.

Lance plans compactions by its own rules; we choose the fragments ourselves (folding must stay off indexed ones), so
the task is composed here. Tasks are plain JSON and can run on any process that can open the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Set
from typing import Any

from lance import FragmentMetadata, LanceOperation
from lance.optimize import CompactionTask

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


def compact_fragments(dataset: Any, fragment_ids: Set[int]) -> Any | None:
    """The rewrite operation for these fragments of a dataset version; None when fewer than two are left."""
    chosen = [f.metadata for f in dataset.get_fragments() if f.fragment_id in fragment_ids]
    if len(chosen) < 2:
        return None
    task = CompactionTask.from_json(  # type: ignore[attr-defined]
        json.dumps(
            {
                "task": {"fragments": [f.to_json() for f in chosen]},
                "read_version": dataset.version,
                "options": _OPTIONS,
            }
        )
    )
    result = json.loads(task.execute(dataset).json())
    # The result numbers its fragments from 0; they need ids that this version does not use yet.
    unused = max(f.fragment_id for f in dataset.get_fragments()) + 1
    created = [
        FragmentMetadata.from_json(json.dumps({**f, "id": unused + i})) for i, f in enumerate(result["new_fragments"])
    ]
    replaced = [FragmentMetadata.from_json(json.dumps(f)) for f in result["original_fragments"]]
    return LanceOperation.Rewrite([LanceOperation.RewriteGroup(replaced, created)], [])
