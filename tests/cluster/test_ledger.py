"""The ledger: numbered states that are made once, on a disk and in a bucket."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omnigraph.cluster.resources import ClusterError
from omnigraph.cluster.state import (
    AppliedRevision,
    BlobBase,
    BlobPolicy,
    GraphObservation,
    GraphTombstone,
    RecoveryRecord,
    Resource,
    ResourceStatus,
    State,
    StatusKind,
)
from omnigraph.cluster.state_ledger import Ledger, LedgerRevision
from omnigraph.cluster.storage_root import enclosing_cluster, make_root
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.write.external_blobs import Scope
from tests.conftest import BUCKET, Place
from tests.support.processes import Process, start_together
from tests.support.s3 import Fault, S3Server

D = "0123456789abcdef" * 4
STATE = State(
    state_revision=0,
    operation_id="",
    applied_revision=AppliedRevision(
        "c" * 64,
        {
            "graph.kb": Resource(
                digest=D,
                embedding_provider="provider.embedding.default",
                external_blob_policy=BlobPolicy("allow", (BlobBase("s3://b/p/", Scope.SERVER_SAFE),)),
            ),
            "schema.kb": Resource(digest=D),
            "query.kb.find": Resource(digest=D),
            "policy.main": Resource(digest=D, applies_to=("graph.kb",)),
            "provider.embedding.default": Resource(digest=D, embedding_profile=EmbeddingProfile(kind="mock")),
        },
    ),
    resource_statuses={"schema.kb": ResourceStatus(StatusKind.DRIFTED, ("schema_mismatch",), "other")},
    recovery_records={
        "01": RecoveryRecord(
            kind="graph_create",
            graph_id="kb",
            outcome="rolled_forward",
            recovered_at="2026-01-01T00:00:00Z",
            actor=None,
        )
    },
    observations={
        "graph.kb": GraphObservation(
            address="graph.kb", graph_uri="s3://b/graphs/kb.omni", observed_at="2026-01-01T00:00:00Z", exists=False
        ),
        "graph.old": GraphTombstone(deleted_at="2026-01-01T00:00:00Z", approval_id=None, actor="ana"),
    },
)


@pytest.fixture
def ledger(place: Place) -> Ledger:
    return Ledger(make_root(place.uri))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "__cluster" / "state").mkdir(parents=True)
    return tmp_path


def local(root: Path) -> Ledger:
    return Ledger(make_root(str(root)))


def test_states_are_numbered_and_all_stay_readable(ledger: Ledger) -> None:
    assert ledger.newest() is None
    made = [first := ledger.create(STATE, None)]
    for _ in range(10):
        made.append(ledger.create(made[-1].state, made[-1]))
    newest = ledger.newest()
    assert newest == made[-1]
    assert newest is not None
    assert newest.revision == 11
    assert newest.path == "__cluster/state/11.json"
    assert ledger.revisions() == list(range(1, 12))
    assert ledger.revision(1) == first
    assert ledger.revision(12) is None
    assert len({recorded.state_cas for recorded in made}) == 11


def test_a_state_reads_as_it_was_written(root: Path) -> None:
    made = local(root).create(STATE, None)
    text = (root / made.path).read_text()
    assert text.endswith("}\n")
    assert made.state_cas == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    members = json.loads(text)
    assert list(members) == [
        "version", "state_revision", "operation_id", "written", "applied_revision", "resource_statuses",
        "approval_records", "recovery_records", "observations", "retired_roots",
    ]  # fmt: skip
    assert members["applied_revision"]["resources"]["graph.kb"] == {
        "digest": D,
        "embedding_provider": "provider.embedding.default",
        "external_blob_policy": {"mode": "allow", "bases": [{"uri": "s3://b/p/", "scope": "server_safe"}]},
    }
    assert members["resource_statuses"]["schema.kb"]["conditions"] == ["schema_mismatch"]
    assert members["observations"]["graph.old"]["kind"] == "tombstone"
    found = local(root).newest()
    assert found is not None
    assert msgspec.structs.replace(found.state, state_revision=0, operation_id="") == STATE


def refusal(make: Callable[[], object]) -> ClusterError:
    with pytest.raises(ClusterError) as refused:
        make()
    return refused.value


def test_who_comes_late_changes_nothing(ledger: Ledger) -> None:
    first = ledger.create(STATE, None)
    second = ledger.create(STATE, first)
    late = refusal(lambda: ledger.create(STATE, first))
    assert late.codes == ["state_cas_mismatch"]
    assert first.state_cas in str(late)
    assert second.state_cas in str(late)
    assert refusal(lambda: ledger.create(STATE, None)).codes == ["state_cas_mismatch"]
    assert ledger.newest() == second


def test_of_several_processes_exactly_one_makes_a_revision(place: Place) -> None:
    ledger = Ledger(make_root(place.uri))
    ledger.create(STATE, None)
    racers = [Process("tests.cluster.racer", place.uri, environment=place.environment) for _ in range(4)]
    start_together(racers)
    outcomes = sorted(outcome for racer in racers for outcome in racer.acknowledged())
    assert outcomes == [*[["lost", "state_cas_mismatch"]] * 3, ["won", "2"]]
    assert ledger.revisions() == [1, 2]


def once(method: str, path_end: str, fault: Fault) -> Callable[[str, str], Fault | None]:
    left = [fault]
    return lambda m, path: left.pop() if left and m == method and path.endswith(path_end) else None


def test_a_lost_answer_is_not_taken_for_another_writer(s3_server: S3Server, s3_place: Place) -> None:
    ledger = Ledger(make_root(s3_place.uri))
    first = ledger.create(STATE, None)
    with s3_server.logged() as log, s3_server.broken(once("PUT", "/state/2.json", Fault())):
        second = ledger.create(STATE, first)
    puts = [request.status for request in log.requests if request.method == "PUT"]
    assert puts == [200, 412]
    assert ledger.newest() == second


def test_a_name_that_is_taken_and_then_is_not(s3_server: S3Server, s3_place: Place) -> None:
    """S3 answers so while another writer tries, who may fail."""
    ledger = Ledger(make_root(s3_place.uri))
    first = ledger.create(STATE, None)
    with s3_server.logged() as log, s3_server.broken(once("PUT", "/state/2.json", Fault(412))):
        second = ledger.create(STATE, first)
    assert [(r.method, r.status) for r in log.requests] == [("PUT", 412), ("GET", 404), ("PUT", 200)]
    assert ledger.newest() == second


def test_a_store_that_fails_says_so(s3_server: S3Server, s3_place: Place) -> None:
    ledger = Ledger(make_root(s3_place.uri))
    first = ledger.create(STATE, None)

    def denied(method: str, path: str) -> Fault | None:
        return Fault(403) if "__cluster" in path or "list-type" in path or method == "GET" else None

    with s3_server.broken(denied):
        assert refusal(lambda: ledger.create(STATE, first)).codes == ["state_write_error"]
        assert refusal(ledger.newest).codes == ["state_read_error"]
        assert refusal(lambda: ledger.revision(1)).codes == ["state_read_error"]
    assert ledger.newest() == first


class Careless(S3Server):
    """A gateway that ignores the condition of a write."""

    def _do(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return super()._do(environ)


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = Careless()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.create_bucket(BUCKET)
    yield f"s3://{BUCKET}/box"
    server.close()


def test_a_store_without_create_if_absent_is_refused(careless: str) -> None:
    refused = refusal(lambda: Ledger(make_root(careless)).create(STATE, None))
    assert refused.codes == ["state_write_error"]
    assert "create-if-absent" in str(refused)


def edited(root: Path, change: Callable[[dict[str, Any]], None]) -> ClusterError:
    made = local(root).create(STATE, None)
    members = json.loads(made.text)
    change(members)
    (root / made.path).write_text(json.dumps(members))
    return refusal(local(root).newest)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: m.update(version=2), "unsupported_state_version"),
        (lambda m: m.update(version=2, novelty=1), "unsupported_state_version"),
        (lambda m: m.update(novelty=1), "invalid_state_json"),
        (lambda m: m["applied_revision"].update(novelty=1), "invalid_state_json"),
        (lambda m: m["applied_revision"]["resources"]["graph.kb"].update(novelty=1), "invalid_state_json"),
        (lambda m: m["observations"]["graph.kb"].update(manifest_version=1), "invalid_state_json"),
        (lambda m: m["resource_statuses"]["schema.kb"].update(status="odd"), "invalid_state_json"),
        (lambda m: m["applied_revision"]["resources"].update({"odd.kb": {"digest": D}}), "invalid_state_json"),
        (lambda m: m["applied_revision"]["resources"].update({"graph.../x": {"digest": D}}), "invalid_state_json"),
        (lambda m: m["applied_revision"]["resources"]["graph.kb"].update(digest="../../x"), "invalid_state_json"),
        (lambda m: m["applied_revision"]["resources"]["graph.kb"].update(digest=f"{D}\n"), "invalid_state_json"),
        (lambda m: m.update(state_revision=7), "invalid_state_json"),
        (lambda m: m.pop("version"), "invalid_state_json"),
    ],
)
def test_what_is_no_state_is_refused(root: Path, change: Callable[[dict[str, Any]], None], code: str) -> None:
    refused = edited(root, change)
    assert refused.codes == [code]
    assert refused.diagnostics[0].path == "__cluster/state/1.json"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b'{"version": 1, "x": "\xff"}'])
def test_a_damaged_state_is_refused(root: Path, text: bytes) -> None:
    (root / "__cluster/state/1.json").write_bytes(text)
    assert refusal(local(root).newest).codes == ["invalid_state_json"]


def test_a_ledger_of_another_implementation_is_not_taken_over(root: Path) -> None:
    (root / "__cluster/state.json").write_text('{"version": 1, "state_revision": 3}')
    refused = refusal(local(root).newest)
    assert refused.codes == ["unsupported_state_version"]
    assert refused.diagnostics[0].path == "__cluster/state.json"


def test_only_numbered_states_count(root: Path) -> None:
    made: LedgerRevision = local(root).create(STATE, None)
    for name in ("02.json", "two.json", "2.txt", "-3.json", "2.json.bak", "4/5.json"):
        file = root / "__cluster/state" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    assert local(root).revisions() == [1]
    assert local(root).newest() == made


def test_a_cluster_is_known_by_its_folder(place: Place) -> None:
    inside = f"{place.uri}/graphs/kb.omni"
    assert enclosing_cluster(inside) is None
    objects = make_root(place.uri)
    assert enclosing_cluster(inside) is None
    Ledger(objects).create(STATE, None)
    assert enclosing_cluster(inside) == objects.location.uri
    assert enclosing_cluster(f"{place.uri}/other/kb.omni") is None
    assert enclosing_cluster(place.uri) is None
