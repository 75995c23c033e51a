"""Which external blobs a graph takes in, checked and brought to one spelling."""

from __future__ import annotations

from msgspec import UnsetType

from omnigraph.cluster.config import ExternalBlobs
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.cluster.state import BlobBase, BlobPolicy
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope, normal_base
from omnigraph.errors import OmniGraphError


def blob_policy(where: str, declared: ExternalBlobs | UnsetType) -> tuple[BlobPolicy | None, list[Diagnostic]]:
    """The policy of a graph, None when it takes none in, and what is wrong with it."""
    if isinstance(declared, UnsetType):
        return None, []
    found: list[Diagnostic] = []
    bases: list[AllowedBase] = []
    for index, written in enumerate(declared.allow):
        base = AllowedBase(written.base, Scope(written.scope))
        try:
            bases.append(AllowedBase(normal_base(base), base.scope))
        except OmniGraphError as problem:
            found.append(error("invalid_external_blob_base", f"{where}.allow[{index}].base", str(problem)))
    try:
        ExternalBlobPolicy(bases)
    except OmniGraphError as problem:
        found.append(error("invalid_external_blob_policy", f"{where}.allow", str(problem)))
    return BlobPolicy("allow", tuple(BlobBase(base.uri, base.scope) for base in bases)), found
