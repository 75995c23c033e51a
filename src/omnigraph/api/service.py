"""What a server tells about itself and the graphs it serves."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class HealthOutput(Struct, frozen=True, omit_defaults=True):
    status: str
    version: str
    internal_schema_version: int
    source_version: str | None = None


class Readiness(Struct, frozen=True, omit_defaults=True):
    """How many graphs are served and how many are not. Which ones they are is for those who may know.

    `revision` is the applied state of a cluster that is served. `unserved_revision` is a newer one that a server which
    follows its cluster could not take over; why is in its log.
    """

    status: str
    graphs: int
    quarantined: int
    revision: int | None = None
    unserved_revision: int | None = None

    WIRE_NAME: ClassVar[str] = "ReadinessOutput"


class GraphInfo(Struct, frozen=True):
    graph_id: str
    uri: str


class GraphList(Struct, frozen=True):
    """Sorted by id."""

    graphs: tuple[GraphInfo, ...]

    WIRE_NAME: ClassVar[str] = "GraphListResponse"
