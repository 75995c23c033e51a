"""Digests: the bytes they are made of never change."""

from __future__ import annotations

import hashlib

from omnigraph.cluster.state import (
    AppliedRevision,
    BlobBase,
    BlobPolicy,
    Resource,
    State,
    composite_digest,
    embedding_provider_digest,
    file_digest,
    graph_digest,
)
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.write.external_blobs import Scope

BLOBS = BlobPolicy("allow", (BlobBase("s3://b/p/", Scope.SERVER_SAFE), BlobBase("file:///d/", Scope.EMBEDDED_ONLY)))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_file_is_its_bytes() -> None:
    assert file_digest(b"node A { x: I32 }\n") == sha(b"node A { x: I32 }\n")


def test_a_profile_leaves_out_what_it_does_not_say() -> None:
    full = EmbeddingProfile(kind="openai", base_url="https://ü", model="m", api_key="${KEY}")
    text = '{"kind":"openai","base_url":"https://ü","model":"m","api_key":"${KEY}"}'
    assert embedding_provider_digest(full) == sha(b"embedding-provider\0" + text.encode())
    assert embedding_provider_digest(EmbeddingProfile(model="m")) == sha(b'embedding-provider\0{"model":"m"}')


def test_a_graph_is_all_its_parts() -> None:
    assert graph_digest("kb", None, {}) == sha(b"graph\0kb\0schema\0\0")
    assert graph_digest("kb", "S", {"b": "2", "a": "1"}, ("provider.embedding.p", "P"), BLOBS) == sha(
        b"graph\0kb\0schema\0S\0query\0a\0001\0query\0b\0002\0embedding_provider\0provider.embedding.p\0P\0"
        b'external_blob_policy\0{"mode":"allow","bases":[{"uri":"s3://b/p/","scope":"server_safe"},'
        b'{"uri":"file:///d/","scope":"embedded_only"}]}\0'
    )


def test_a_state_says_what_the_digest_of_its_graph_is() -> None:
    profile = EmbeddingProfile(kind="mock")
    resources = {
        "graph.kb": Resource(digest="0" * 64, embedding_provider="provider.embedding.p", external_blob_policy=BLOBS),
        "schema.kb": Resource(digest="1" * 64),
        "query.kb.a": Resource(digest="2" * 64),
        "query.other.b": Resource(digest="3" * 64),
        "provider.embedding.p": Resource(digest=embedding_provider_digest(profile), embedding_profile=profile),
    }
    state = State(state_revision=1, operation_id="x", applied_revision=AppliedRevision(None, resources))
    assert composite_digest(state.resources, "kb") == graph_digest(
        "kb", "1" * 64, {"a": "2" * 64}, ("provider.embedding.p", embedding_provider_digest(profile)), BLOBS
    )
