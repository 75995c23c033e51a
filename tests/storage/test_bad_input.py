"""Bad input to the storage core: a clear error that names the place, and nothing is created."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import (
    AlreadyInitializedError,
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    FormatVersionError,
    HistoricalVersionReclaimedError,
    IntegrityError,
    NotFoundError,
    OmniGraphError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.storage.location import Location
from omnigraph.storage.models import FORMAT_VERSION
from tests.conftest import Place
from tests.support.log_entries import get_commit, list_commits
from tests.support.tables import NODE, PEOPLE, append_one, create_graph, ids, new_graph


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "must not be empty"),
        ("ftp://host/graph", "unknown scheme 'ftp'"),
        ("http://host/graph", "unknown scheme 'http'"),
        ("s3:///graph", "names no bucket"),
        ("s3://bucket/a/../b", "'..' path segment"),
        ("s3://user:secret@bucket/graph", "must not carry credentials"),
        ("file://otherhost/graph", "names a host"),
    ],
)
def test_a_location_that_makes_no_sense_is_refused(uri: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as refused:
        create_graph(uri, {PEOPLE: NODE})
    assert "secret" not in str(refused.value)


def test_local_locations_have_one_normal_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spellings = ["graph", "./graph", f"file://{tmp_path}/graph", str(tmp_path / "x" / ".." / "graph")]
    assert {Location.parse(s).uri for s in spellings} == {str(tmp_path / "graph")}


def test_an_s3_endpoint_over_plain_http_must_be_allowed() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}
    with pytest.raises(BadRequestError, match="AWS_ALLOW_HTTP=true"):
        Location.parse("s3://bucket/graph", environment)
    allowed = Location.parse("s3://bucket/graph", {**environment, "AWS_ALLOW_HTTP": "true"})
    assert allowed.options["aws_endpoint"] == "http://127.0.0.1:9000"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_the_aws_environment_reaches_both_libraries(variable: str) -> None:
    location = Location.parse(
        "s3://bucket/a/b",
        {
            variable: "https://store.example",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_SESSION_TOKEN": "token",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_S3_FORCE_PATH_STYLE": "true",
        },
    )
    assert location.options == {
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_endpoint": "https://store.example",
        "aws_region": "eu-west-1",
        "aws_virtual_hosted_style_request": "false",
    }
    location.open_store()
    assert "secret" not in repr(location)


def test_google_and_azure_locations_make_store_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert type(Location.parse("az://container/graph").open_store()).__name__ == "AzureStore"
    assert type(Location.parse("gs://bucket/graph").open_store()).__name__ == "GCSStore"


def test_a_missing_bucket_is_named(remote_place: Place) -> None:
    for attempt in (lambda: Graph.open("s3://no-such-bucket/g"), lambda: new_graph("s3://no-such-bucket/g")):
        with pytest.raises(StorageError, match="bucket 'no-such-bucket' does not exist") as refused:
            attempt()
        assert refused.value.kind is StorageErrorKind.CONFIGURATION


def test_a_path_that_can_not_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="can't create a graph") as refused:
        new_graph(str(tmp_path / "file" / "graph"))
    assert refused.value.kind is StorageErrorKind.CONFIGURATION
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_opening_what_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such directory"):
        Graph.open(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotFoundError, match="create one with init"):
        Graph.open(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_init_refuses_a_used_root(tmp_path: Path) -> None:
    new_graph(str(tmp_path / "graph"))
    with pytest.raises(AlreadyInitializedError):
        new_graph(str(tmp_path / "graph"))
    with pytest.raises(AlreadyInitializedError):
        create_graph(tmp_path / "graph", {PEOPLE: NODE}, force=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConflictError, match=r"thesis\.tex"):
        create_graph(tmp_path / "mine", {PEOPLE: NODE}, force=True)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_a_failed_init_removes_the_directories_it_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a type key"):
        create_graph(tmp_path / "deep" / "er" / "graph", {"Person": NODE})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        *("", "  ", "/a", "a/", "a//b", "..", "a/../b", "a..b", ".", "a\\b", "ünder", "a b", "a%2Fb"),
        *("__secret", "x.lock", "__schema_apply_lock__", "main", "n" * 300),
    ],
)
def test_a_bad_branch_name_creates_nothing(local_place: Place, name: str) -> None:
    graph = new_graph(local_place.uri)
    with pytest.raises(BadRequestError):
        graph.create_branch(name)
    assert graph.list_branches() == ["main"]
    assert not (Path(local_place.uri) / "__manifest" / "refs").exists()


@pytest.mark.parametrize("name", ["a", "a/b/c", "v1.2-rc_3", "__run__x", "Main", "-", " trimmed "])
def test_a_good_branch_name_works_end_to_end(place: Place, name: str) -> None:
    graph = new_graph(place.uri)
    graph.create_branch(name)
    append_one(graph, "ann", name)
    assert graph.list_branches() == sorted(["main", name.strip()])
    assert ids(Graph.open(place.uri), branch=name) == ["ann"]
    graph.delete_branch(name)
    assert graph.list_branches() == ["main"]


def test_a_branch_that_does_not_exist(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    for attempt in (
        lambda: graph.snapshot("absent"),
        lambda: append_one(graph, "ann", "absent"),
        lambda: graph.create_branch("new", source="absent"),
        lambda: graph.delete_branch("absent"),
        lambda: list_commits(graph, "absent"),
    ):
        with pytest.raises(BranchNotFoundError) as refused:
            attempt()
        assert refused.value.branch == "absent"
    assert graph.list_branches() == ["main"]


def test_main_can_not_be_deleted(local_place: Place) -> None:
    with pytest.raises(BadRequestError):
        new_graph(local_place.uri).delete_branch("main")


def test_commits_and_versions_that_do_not_exist(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    for commit_id in ("", "nonsense", "01M7GHMF454BRSN3QBKZNK7FA3", "z" * 26):
        with pytest.raises(NotFoundError):
            get_commit(graph, commit_id)
    for version in (0, -1, 2):
        with pytest.raises(NotFoundError, match="from 1 to 1"):
            graph.snapshot(version=version)
    with pytest.raises(BadRequestError, match="at most one"):
        graph.snapshot(version=1, snapshot=graph.snapshot().commit_id)


def rewrite(graph: Graph, path: str, change: dict[str, object] | bytes) -> None:
    file = Path(graph.uri) / path
    if isinstance(change, bytes):
        file.write_bytes(change)
    else:
        file.write_text(json.dumps({**json.loads(file.read_bytes()), **change}))


def newest_entry(graph: Graph) -> str:
    entry = graph.snapshot().entry
    return f"__manifest/log/{entry.branch_id}/{entry.version:020d}.json"


@pytest.mark.parametrize(
    ("found", "remedy"), [(FORMAT_VERSION + 1, "upgrade omnigraph first"), (FORMAT_VERSION - 1, "export it")]
)
@pytest.mark.parametrize("which", ["identity", "entry"])
def test_another_storage_format_is_refused_before_any_data_is_read(
    local_place: Place, found: int, remedy: str, which: str
) -> None:
    graph = new_graph(local_place.uri)
    append_one(graph, "ann")
    rewrite(graph, "__manifest/graph.json" if which == "identity" else newest_entry(graph), {"format": found})
    with pytest.raises(FormatVersionError, match=remedy) as refused:
        Graph.open(local_place.uri).snapshot()
    assert (refused.value.found, refused.value.supported) == (found, FORMAT_VERSION)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format": 6}', b'{"format": "six"}', b"\xff\xfe", b"[]"])
@pytest.mark.parametrize("which", ["identity", "entry"])
def test_a_damaged_object_is_named(local_place: Place, damage: bytes, which: str) -> None:
    graph = new_graph(local_place.uri)
    append_one(graph, "ann")
    path = "__manifest/graph.json" if which == "identity" else newest_entry(graph)
    rewrite(graph, path, damage)
    with pytest.raises(IntegrityError) as refused:
        Graph.open(local_place.uri).snapshot()
    assert refused.value.path == path


def test_a_damaged_schema_is_named(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    path = f"schemas/{graph.snapshot().entry.schema}.json"
    rewrite(graph, path, {"source": "node Tampered {}"})
    with pytest.raises(IntegrityError, match="does not match its digest"):
        _ = Graph.open(local_place.uri).snapshot().schema_document


def test_verify_names_what_is_missing(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    append_one(graph, "ann")
    state = graph.snapshot().entry.tables[PEOPLE]
    data = next((Path(graph.uri) / state.path / "data").iterdir())
    data.unlink()
    problems = Graph.open(graph.uri).maintenance.verify().problems
    assert [(p.where, data.name in p.reason) for p in problems] == [(f"{PEOPLE} on branch main", True)]


def test_a_reclaimed_version_is_a_typed_error(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    append_one(graph, "ann")
    state = graph.snapshot().entry.tables[PEOPLE]
    (Path(graph.uri) / state.path / "_versions" / f"d{state.version}.manifest").unlink()
    with pytest.raises(HistoricalVersionReclaimedError) as refused:
        ids(Graph.open(graph.uri))
    assert refused.value.dataset_version_id == state.version
    assert isinstance(refused.value, OmniGraphError)
