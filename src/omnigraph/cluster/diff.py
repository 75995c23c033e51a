"""The difference between what is recorded and what is desired, one change per resource, and what it touches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

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


def changed_settings(before: Resource, after: Resource) -> list[str]:
    """What is said about a resource otherwise than in a file, as lines: `name: before -> after`."""
    had, has = _settings(before), _settings(after)
    names = [name for name in dict.fromkeys([*had, *has]) if had.get(name) != has.get(name)]
    return [f"{name}: {had.get(name, '(none)')} -> {has.get(name, '(none)')}" for name in names]


def _settings(resource: Resource) -> dict[str, str]:
    profile, blobs = resource.embedding_profile, resource.external_blob_policy
    told = {
        "applies_to": ", ".join(resource.applies_to or ()),
        "graph": resource.pipeline_graph,
        "embedding_provider": resource.embedding_provider,
        "external_blobs": ", ".join(f"{base.uri} ({base.scope})" for base in blobs.bases) if blobs else None,
        **(msgspec.structs.asdict(profile) if profile is not None else {}),
    }
    return {name: value for name, value in told.items() if value}


def blast_radius(changes: Iterable[ClusterChange], dependencies: Sequence[Dependency]) -> tuple[BlastRadius, ...]:
    """For each change of something that others depend on: the others."""
    found = []
    for change in changes:
        affected = tuple(edge.source for edge in dependencies if edge.target == change.resource)
        if affected:
            found.append(BlastRadius(change.resource, affected))
    return tuple(found)
