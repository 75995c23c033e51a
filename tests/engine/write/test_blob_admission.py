"""External blobs on their way in: denied by default, admitted by URI rules, copied or kept as references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api.governance import Limits
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.errors import BadRequestError, ExternalBlobPolicyError, ExternalBlobSourceError, ResourceLimitError
from tests.conftest import BUCKET, Place
from tests.engine.museum import lines, node
from tests.engine.stored import rows
from tests.support.s3 import S3Server

SCHEMA = """
node Photo { name: String @key  caption: String?  image: Blob? }
node Scan { image: Blob  note: String?  back: Blob? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        yield graph


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "a b.bin").write_bytes(b"first")
    (shelf / "deep").mkdir()
    (shelf / "deep" / "c.bin").write_bytes(b"second")
    (tmp_path / "secret.bin").write_bytes(b"secret")
    return shelf


@pytest.fixture
def open_graph(graph: Graph, shelf: Path) -> Graph:
    return graph.with_external_blobs(ExternalBlobPolicy.allow(AllowedBase(f"file://{shelf}", Scope.EMBEDDED_ONLY)))


def photo(name: str, uri: str) -> bytes:
    return lines(node("Photo", name=name, image=uri))


def image(graph: Graph, name: str) -> object:
    return rows(graph, "node:Photo")[name]["image"]


def test_everything_external_is_denied_by_default(graph: Graph, shelf: Path) -> None:
    with pytest.raises(ExternalBlobPolicyError) as refused:
        graph.load(photo("a", f"file://{shelf}/deep/c.bin"), mode="append")
    assert refused.value.uri == f"file://{shelf}/deep/c.bin"
    graph.load(photo("a", "base64:aGk="), mode="append")
    with pytest.raises(ExternalBlobPolicyError):
        graph.mutate(
            'query it($u: String) { update Photo set { image: $u } where name = "a" }', "it", {"u": "s3://x/y"}
        )
    assert image(graph, "a") == b"hi"


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_append_and_merge_take_a_copy(open_graph: Graph, shelf: Path, mode: str) -> None:
    open_graph.load(photo("a", f"file://{shelf}/a%20b.bin"), mode=mode)
    (shelf / "a b.bin").unlink()
    assert image(open_graph, "a") == b"first"


def test_statements_take_a_copy(open_graph: Graph, shelf: Path) -> None:
    source = """query add($u: Blob) { insert Photo { name: "a", image: $u } }
                query set($u: Blob) { update Photo set { image: $u } where name = "a" }"""
    open_graph.mutate(source, "add", {"u": f"file://{shelf}/deep/c.bin"})
    assert image(open_graph, "a") == b"second"
    open_graph.mutate(source, "set", {"u": f"file://{shelf}/a%20b.bin"})
    assert image(open_graph, "a") == b"first"


def test_overwrite_keeps_the_reference(open_graph: Graph, shelf: Path) -> None:
    open_graph.load(photo("a", f"file://{shelf}/deep/c.bin"), mode="overwrite")
    assert image(open_graph, "a") == f"file://{shelf}/deep/c.bin"


def test_a_partial_update_keeps_a_reference_even_where_ingress_is_denied(
    graph: Graph, open_graph: Graph, shelf: Path
) -> None:
    open_graph.load(photo("a", f"file://{shelf}/deep/c.bin"), mode="overwrite")
    graph.mutate('query it() { update Photo set { caption: "x" } where name = "a" }')
    assert image(graph, "a") == f"file://{shelf}/deep/c.bin"
    graph.mutate('query it($u: Blob?) { update Photo set { image: $u } where name = "a" }', "it", {"u": None})
    assert image(graph, "a") is None


def test_a_partial_update_keeps_each_blob_that_it_does_not_assign(graph: Graph) -> None:
    graph.load(
        lines(
            node("Scan", id="a", image="base64:YQ==", back="base64:Yg==", note="x"),
            node("Scan", id="c", image="base64:"),
        ),
        mode="append",
    )
    source = """
    query it($b: Blob) {
        update Scan set { back: $b } where note = "x"
        update Scan set { note: "y" } where note = "x"
    }
    query add($b: Blob) {
        insert Scan { image: $b, note: "z" }
        update Scan set { back: $b } where note = "z"
    }
    """
    graph.mutate(source, "it", {"b": "base64:bmV3"})
    assert rows(graph, "node:Scan") == {
        "a": {"image": b"a", "back": b"new", "note": "y"},
        "c": {"image": b"", "back": None, "note": None},
    }
    graph.mutate(source, "add", {"b": "base64:eg=="})
    added = next(row for row in rows(graph, "node:Scan").values() if row["note"] == "z")
    assert added == {"image": b"z", "back": b"z", "note": "z"}


def test_a_link_is_stored_as_what_it_leads_to(open_graph: Graph, shelf: Path) -> None:
    link = shelf / "link.bin"
    link.symlink_to(shelf / "deep" / "c.bin")
    open_graph.load(photo("a", f"file://{link}"), mode="overwrite")
    assert image(open_graph, "a") == f"file://{shelf}/deep/c.bin"


@pytest.mark.parametrize(
    ("uri", "mentions"),
    [
        ("file://{base}", "below no allowed base"),
        ("file://{base}/../secret.bin", "'..' component"),
        ("file://{base}/%2e%2e/secret.bin", "'..' component"),
        ("file://{base}/deep%2Fc.bin", "escaped separator"),
        ("file://{base}//deep/c.bin", "empty"),
        ("file://{base}/bad%zz", "malformed percent escape"),
        ("file://{base}/a?x=1", "query or a fragment"),
        ("file://{base}/a#x", "query or a fragment"),
        ("file://host{base}/a", "names no host"),
        ("file://{base}x/a", "below no allowed base"),
        ("file://{base}/out.bin", "leads out of the allowed base"),
        ("file://{base}/deep", "not a regular file"),
        (" file://{base}/a", "whitespace"),
        ("file://{base}\\a", "backslash"),
        ("{base}/a", "not an absolute URI"),
        ("https://host/a", "neither s3 nor file"),
        ("s3://key:secret@bucket/a", "user information"),
        ("s3://bucket:9000/a", "user information or a port"),
        ("s3:///a", "names no bucket"),
    ],
)
def test_a_uri_outside_the_rules_is_refused(open_graph: Graph, shelf: Path, uri: str, mentions: str) -> None:
    (shelf / "out.bin").symlink_to(shelf.parent / "secret.bin")
    with pytest.raises(ExternalBlobPolicyError, match=mentions) as refused:
        open_graph.load(photo("a", uri.replace("{base}", str(shelf))), mode="append")
    assert "secret@" not in str(refused.value)
    assert "x=1" not in str(refused.value)
    assert open_graph.snapshot().version == 1


def test_a_missing_object_is_a_source_error_and_nothing_is_copied(open_graph: Graph, shelf: Path) -> None:
    given = lines(
        node("Photo", name="a", image=f"file://{shelf}/deep/c.bin"), node("Photo", name="b", image=f"file://{shelf}/no")
    )
    with pytest.raises(ExternalBlobSourceError) as refused:
        open_graph.load(given, mode="merge")
    assert refused.value.uri == f"file://{shelf}/no"
    assert open_graph.snapshot().version == 1


def test_a_superseded_uri_is_not_even_checked(open_graph: Graph) -> None:
    given = lines(node("Scan", id="s", image="https://elsewhere/x"), node("Scan", id="s", image="base64:aGk="))
    open_graph.load(given, mode="merge")
    assert rows(open_graph, "node:Scan")["s"]["image"] == b"hi"


def test_a_constraint_is_reported_before_admission(open_graph: Graph) -> None:
    given = lines(*[node("Photo", name="a", image="https://elsewhere/x")] * 2)
    with pytest.raises(BadRequestError, match="@unique violation"):
        open_graph.load(given, mode="merge")


def test_copied_payloads_are_bounded_before_any_is_read(open_graph: Graph, shelf: Path) -> None:
    tight = open_graph.with_limits(Limits(rows=10, bytes=900))
    (shelf / "large.bin").write_bytes(bytes(901))
    with pytest.raises(ResourceLimitError) as refused:
        tight.load(photo("a", f"file://{shelf}/large.bin"), mode="append")
    assert refused.value.resource == "materialized external blob payload bytes"
    tight.load(photo("a", f"file://{shelf}/large.bin"), mode="overwrite")


def test_a_uri_has_a_longest_length(open_graph: Graph, shelf: Path) -> None:
    with pytest.raises(ResourceLimitError) as refused:
        open_graph.load(photo("a", f"file://{shelf}/{'x' * (64 << 10)}"), mode="append")
    assert refused.value.resource == "external Blob URI bytes"


# Policies


@pytest.mark.parametrize(
    ("bases", "mentions"),
    [
        ([], "at least one base"),
        ([AllowedBase("s3://b/x"), AllowedBase("s3://b/x/y")], "overlap"),
        ([AllowedBase("s3://b/x"), AllowedBase("s3://b/x/")], "overlap"),
        ([AllowedBase("file:///tmp", Scope.SERVER_SAFE)], "only s3 bases are server safe"),
        ([AllowedBase("file:///nowhere/at/all", Scope.EMBEDDED_ONLY)], "not a directory"),
        ([AllowedBase("https://b/x")], "neither s3 nor file"),
    ],
)
def test_a_policy_of_unfit_bases_is_refused(bases: list[AllowedBase], mentions: str) -> None:
    with pytest.raises(BadRequestError, match=mentions):
        ExternalBlobPolicy.allow(*bases)


def test_bases_are_compared_by_whole_components() -> None:
    policy = ExternalBlobPolicy.allow(AllowedBase("s3://b/x"), AllowedBase("s3://b/xy"))
    assert policy.admit("s3://b/xy/z") == "s3://b/xy/z"
    with pytest.raises(ExternalBlobPolicyError):
        policy.admit("s3://b/xyz/z")


def test_serving_drops_bases_that_are_for_embedded_use(shelf: Path) -> None:
    policy = ExternalBlobPolicy.allow(AllowedBase("s3://b/x"), AllowedBase(f"file://{shelf}", Scope.EMBEDDED_ONLY))
    assert policy.for_serving().admit("s3://b/x/y") == "s3://b/x/y"
    with pytest.raises(ExternalBlobPolicyError):
        policy.for_serving().admit(f"file://{shelf}/deep/c.bin")


def test_objects_of_a_bucket_are_probed_once_copied_and_referenced(
    s3_server: S3Server, s3_place: Place, tmp_path: Path
) -> None:
    s3_server.client().put_object(Bucket=BUCKET, Key="media/one two.bin", Body=b"from s3")
    allowed = ExternalBlobPolicy.allow(AllowedBase(f"s3://{BUCKET}/media"))
    with Graph.init(tmp_path / "graph", SCHEMA).with_external_blobs(allowed) as graph:
        uri = f"s3://{BUCKET}/media/one%20two.bin"
        with s3_server.logged() as log:
            graph.load(photo("a", uri) + b"\n" + photo("b", uri), mode="append")
        assert [r.method for r in log.requests] == ["HEAD", "GET"]
        assert image(graph, "a") == image(graph, "b") == b"from s3"
        with s3_server.logged() as log:
            graph.load(photo("c", uri), mode="overwrite")
        assert [r.method for r in log.requests] == ["HEAD"]
        assert image(graph, "c") == uri
        with pytest.raises(ExternalBlobSourceError, match="does not exist"):
            graph.load(photo("d", f"s3://{BUCKET}/media/none"), mode="append")
