"""The difference between what is recorded and what is desired, one change per resource, and what it touches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from omnigraph.api.cluster import BlastRadius, ClusterChange, Dependency
from omnigraph.api.enums import ResourceOperation
from omnigraph.cluster.state import Resource

MetadataChange: TypeAlias = Literal["policy_bindings", "embedding_profile", "pipeline_graph"]


def difference(before: Mapping[str, Resource], after: Mapping[str, Resource]) -> tuple[ClusterChange, ...]:
    """What leads from the one to the other, sorted by resource."""
    changes = (_change(address, before.get(address), after.get(address)) for address in sorted({*before, *after}))
    return tuple(change for change in changes if change is not None)


def _change(address: str, before: Resource | None, after: Resource | None) -> ClusterChange | None:
    if before is None:
        assert after is not None
        return ClusterChange(resource=address, operation=ResourceOperation.CREATE, after_digest=after.digest)
    if after is None:
        return ClusterChange(resource=address, operation=ResourceOperation.DELETE, before_digest=before.digest)
    metadata = _metadata_change(before, after)
    if before.digest == after.digest and metadata is None:
        return None
    return ClusterChange(
        resource=address,
        operation=ResourceOperation.UPDATE,
        before_digest=before.digest,
        after_digest=after.digest,
        binding_change=metadata == "policy_bindings",
        metadata_change=metadata if before.digest == after.digest else None,
    )


def _metadata_change(before: Resource, after: Resource) -> MetadataChange | None:
    """What a digest does not cover. Of graphs it covers everything."""
    if before.applies_to != after.applies_to:
        return "policy_bindings"
    if before.embedding_profile != after.embedding_profile:
        return "embedding_profile"
    return "pipeline_graph" if before.pipeline_graph != after.pipeline_graph else None


def blast_radius(changes: Iterable[ClusterChange], dependencies: Sequence[Dependency]) -> tuple[BlastRadius, ...]:
    """For each change of something that others depend on: the others."""
    found = []
    for change in changes:
        affected = tuple(edge.source for edge in dependencies if edge.target == change.resource)
        if affected:
            found.append(BlastRadius(change.resource, affected))
    return tuple(found)
