"""Writes of data: loads and mutations, as they are asked for and as they are confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from omnigraph.api.cell_text import counted
from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import Grammar, LoadMode
from omnigraph.errors import RequestShapeError


class TypeLoaded(Struct, frozen=True):
    """How many records of one declared type a load took."""

    name: str
    entities_loaded: int

    WIRE_NAME: ClassVar[str] = "GraphBatchDeclarationOutput"


class LoadReceipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A load that ran. Counts are input records per declared type, sorted by name. `uri` is set on request.

    `commit` is None where there was nothing to load.

    `values_nulled` and `values_dropped` are there in the lenient grammar only: values of a wrong type that became null,
    and members that were left out because the type does not have them or a later one of the same name replaced them.
    """

    uri: str | None = None
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes: tuple[TypeLoaded, ...]
    edges: tuple[TypeLoaded, ...]
    total_entities: int
    actor_id: str | None
    commit: CommitReceipt | None
    replayed: bool = False
    values_nulled: int | None = None
    values_dropped: int | None = None

    WIRE_NAME: ClassVar[str] = "IngestOutput"

    def __repr__(self) -> str:
        types = ", ".join(f"{each.entities_loaded:,} {each.name}" for each in (*self.nodes, *self.edges))
        made = f" (new, from '{self.base_branch}')" if self.branch_created else ""
        again = ", replayed" if self.replayed else ""
        loaded = f"loaded {types or 'nothing'} into '{self.branch}'{made} by {self.mode.value}"
        return f"<{loaded}{'' if self.commit is None else f', commit {self.commit.id}'}{again}>"

    @classmethod
    def of(
        cls,
        branch: str,
        base_branch: str | None,
        branch_created: bool,
        mode: LoadMode,
        nodes_loaded: Mapping[str, int],
        edges_loaded: Mapping[str, int],
        commit: CommitReceipt | None,
        replayed: bool = False,
        values_nulled: int | None = None,
        values_dropped: int | None = None,
        actor_id: str | None = None,
    ) -> LoadReceipt:
        """`actor_id` is for a load without a commit; otherwise the commit tells it."""
        return cls(
            branch=branch,
            base_branch=base_branch,
            branch_created=branch_created,
            mode=mode,
            nodes=_listed(nodes_loaded),
            edges=_listed(edges_loaded),
            total_entities=sum(nodes_loaded.values()) + sum(edges_loaded.values()),
            actor_id=actor_id if commit is None else commit.actor_id,
            commit=commit,
            replayed=replayed,
            values_nulled=values_nulled,
            values_dropped=values_dropped,
        )

    @property
    def nodes_loaded(self) -> dict[str, int]:
        """How many records of each node type were loaded."""
        return {each.name: each.entities_loaded for each in self.nodes}

    @property
    def edges_loaded(self) -> dict[str, int]:
        """How many records of each edge type were loaded."""
        return {each.name: each.entities_loaded for each in self.edges}


def _listed(counts: Mapping[str, int]) -> tuple[TypeLoaded, ...]:
    return tuple(TypeLoaded(name, count) for name, count in sorted(counts.items()))


class LoadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `omnigraph load` prints."""

    uri: str
    branch: str
    mode: LoadMode
    base_branch: str | None = None
    branch_created: bool
    nodes: tuple[TypeLoaded, ...]
    edges: tuple[TypeLoaded, ...]
    total_entities: int
    commit: CommitReceipt | None

    @classmethod
    def of(cls, uri: str, receipt: LoadReceipt) -> LoadOutput:
        return cls(
            uri=uri,
            branch=receipt.branch,
            mode=receipt.mode,
            base_branch=receipt.base_branch,
            branch_created=receipt.branch_created,
            nodes=receipt.nodes,
            edges=receipt.edges,
            total_entities=receipt.total_entities,
            commit=receipt.commit,
        )


class IngestRequest(Struct, frozen=True, omit_defaults=True):
    """A whole load as one JSON body; `data` holds the records as text.

    The grammar of `/load` is strict where it is not named, that of the deprecated `/ingest` lenient.
    """

    data: str
    branch: str | None = None
    base: str | None = field(default=None, name="from")
    mode: LoadMode | None = LoadMode.MERGE
    grammar: Grammar | None = None


class GraphBatchLoadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As `LoadReceipt`, without the location of the graph."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes: tuple[TypeLoaded, ...]
    edges: tuple[TypeLoaded, ...]
    total_entities: int
    actor_id: str | None
    commit: CommitReceipt | None
    replayed: bool = False


class ChangeRequest(Struct, frozen=True, omit_defaults=True):
    """A mutation: the source, the name in it, its parameters and the branch.

    `query_source` and `query_name` are what the first API called the source and the name.
    """

    query: str | None = None
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    query_source: str | None = None
    query_name: str | None = None

    @property
    def source(self) -> str:
        if self.query is not None and self.query_source is not None:
            raise RequestShapeError("give the mutation as 'query' or as 'query_source', not both")
        source = self.query if self.query is not None else self.query_source
        if source is None:
            raise RequestShapeError("not a valid ChangeRequest: Object missing required field `query`")
        return source

    @property
    def chosen_name(self) -> str | None:
        return self.name if self.name is not None else self.query_name


class MutationReceipt(Struct, frozen=True, omit_defaults=True):
    """A mutation that ran. `commit` is None when no statement matched anything.

    `replayed` says that an earlier request with the same idempotency key wrote it, and this one nothing.
    """

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitReceipt | None
    replayed: bool = False

    WIRE_NAME: ClassVar[str] = "ChangeOutput"

    def __repr__(self) -> str:
        changed = f"{counted(self.affected_nodes, 'node')}, {counted(self.affected_edges, 'edge')}"
        done = "nothing to change" if self.commit is None else f"changed {changed}, commit {self.commit.id}"
        again = ", replayed" if self.replayed else ""
        return f"<{self.query_name} on '{self.branch}': {done}{again}>"
