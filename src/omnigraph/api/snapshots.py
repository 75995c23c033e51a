"""The listing of a state of the graph: its tables, their versions and sizes."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from omnigraph.api.cell_text import counted
from omnigraph.api.enums import EntityKind


class SnapshotDataset(Struct, frozen=True):
    """The table of one type.

    `published_dataset_version` is the version of the graph in which the table last changed on this line of history.
    `dataset_version_id` is what Lance calls its version: a number too large for JSON, hence a text.
    """

    entity_kind: EntityKind
    type_name: str
    dataset_path: str
    published_dataset_version: int
    dataset_version_id: str
    native_dataset_branch: str | None
    entity_count: int

    WIRE_NAME: ClassVar[str] = "SnapshotDatasetOutput"


class EntityCount(Struct, frozen=True):
    """How many entities of a type a state has, as its reader sees it."""

    entity_kind: EntityKind
    type_name: str
    entity_count: int

    WIRE_NAME: ClassVar[str] = "EntityCountOutput"


class SnapshotListing(Struct, frozen=True):
    """Ordered by type key, edges before nodes."""

    graph_branch: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: tuple[SnapshotDataset, ...]

    WIRE_NAME: ClassVar[str] = "SnapshotOutput"

    def __repr__(self) -> str:
        tables = [f"  {each.entity_kind} {each.type_name}: {each.entity_count:,}" for each in self.datasets]
        head = f"<branch '{self.graph_branch}', version {self.graph_manifest_version}: {counted(len(tables), 'table')}>"
        return "\n".join([head, *tables])
