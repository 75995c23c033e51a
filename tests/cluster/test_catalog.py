"""The catalog: a text is what its name says, or it is not used."""

from __future__ import annotations

import pytest

from omnigraph.cluster.payloads import PayloadStore, payload_path
from omnigraph.cluster.state import file_digest
from omnigraph.cluster.storage_root import make_root, object_names
from omnigraph.errors import IntegrityError, NotFoundError
from tests.conftest import Place


def test_texts_are_stored_under_their_digest_once(place: Place) -> None:
    objects = make_root(place.uri)
    catalog = PayloadStore(objects)
    digest = catalog.write("query.kb.find", b"query find() {}")
    assert digest == file_digest(b"query find() {}") == catalog.write("query.kb.find", b"query find() {}")
    path = payload_path("query.kb.find", digest)
    assert path == f"__cluster/resources/query/kb/find/{digest}.gq"
    assert catalog.read("query.kb.find", digest) == b"query find() {}"
    rules = catalog.write("policy.main", b"rules: []")
    assert objects.get(f"__cluster/resources/policy/main/{rules}.yaml") == b"rules: []"
    assert sorted(object_names(objects, "__cluster/resources")) == [
        f"policy/main/{rules}.yaml",
        f"query/kb/find/{digest}.gq",
    ]


def test_another_text_is_found_out_and_written_anew(place: Place) -> None:
    objects = make_root(place.uri)
    catalog = PayloadStore(objects)
    digest = catalog.write("policy.main", b"rules: []")
    objects.put(payload_path("policy.main", digest), b"rules: [everything]", durable=True)
    with pytest.raises(IntegrityError, match="cluster apply"):
        catalog.read("policy.main", digest)
    catalog.write("policy.main", b"rules: []")
    assert catalog.read("policy.main", digest) == b"rules: []"
    with pytest.raises(NotFoundError, match="is missing"):
        catalog.read("policy.other", digest)
