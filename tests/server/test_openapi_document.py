"""The OpenAPI document: valid, complete, and true of what the server answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from omnigraph import Graph
from omnigraph.api.service.routes import ROUTES, Route
from omnigraph.server.app import HANDLER_MODULES
from omnigraph.server.http.call import HANDLERS
from tests.server.running import RunningServer, running
from tests.server.sample import ADD, EVERYBODY, people, person

# Method, path below a graph, operation id and tag, as the contract lists them.
CONTRACT = """
get /snapshot getSnapshot snapshots
get /blob getBlob blobs
head /blob headBlob blobs
post /query query queries
post /read read queries
post /export export queries
post /mutate mutate mutations
post /change change mutations
post /mutate/if-graph-commit mutate_if_graph_commit mutations
get /queries list_queries queries
post /queries/{name} invoke_query queries
post /queries/{name}/if-graph-commit invoke_query_if_graph_commit queries
get /schema getSchema schema
post /schema/apply applySchema mutations
post /load load mutations
post /load/ndjson loadNdjson mutations
post /ingest ingest mutations
get /branches listBranches branches
post /branches createBranch branches
delete /branches/{branch} deleteBranch branches
post /branches/merge mergeBranches branches
get /commits listCommits commits
get /commits/{commit_id} getCommit commits
get /commits/{commit_id}/changes getCommitChanges changes
get /changes pollChanges changes
post /changes/baseline captureChangeBaseline changes
"""
OURS = {
    *("cluster_getEntity", "cluster_diff", "cluster_explain", "cluster_planSchema", "cluster_getCommitSummary"),
    *("cluster_countEntities", "cluster_getIndexStatus", "cluster_loadRows"),
    *("cluster_getHistory", "cluster_previewMerge", "cluster_listPipelines", "cluster_profile", "ready", "metrics"),
    "version",
}
"""Operations that the contract does not know."""

COMPONENTS = """
BlobEntityKind BlobRangeOutput BranchCreateOutput BranchCreateRequest BranchDeleteOutput BranchListOutput
BranchMergeOutcome BranchMergeOutput BranchMergeRequest ChangeBaselineOutput ChangeBaselineRecord
ChangeBaselineRequest ChangeBlockOutput ChangeCauseOutput ChangeDiffRefusalOutput ChangeDiffRefusalReason
ChangeEndpointsOutput ChangeErrorOutput ChangeFeedGapOutput ChangeFeedOutput ChangeImageOutput ChangeOpOutput
ChangeOutput ChangeRequest ChangeTypeOutput CommitChangesOutput CommitListOutput CommitOutput EntityChangeOutput
EntityKindOutput ErrorCode ErrorOutput ExportRequest ExternalBlobSourceOutput GraphBatchDeclarationOutput
GraphBatchLoadOutput GraphInfo GraphListResponse HealthOutput IngestOutput IngestRequest InvokeStoredQueryRequest
InvokeStoredQueryResponse KeyConflictOutput LegacyReadOutput LoadMode MergeConflictKindOutput MergeConflictOutput
ParamDescriptor ParamKind PreconditionFailureOutput PublishedDatasetVersionConflictOutput QueriesCatalogOutput
QueryCatalogEntry QueryRequest ReadOutput ReadRequest ReadSetConflictOutput ReadTargetOutput RecoveryRequiredOutput
ResourceLimitOutput SchemaApplyOutput SchemaApplyRequest SchemaOutput SnapshotDatasetOutput SnapshotOutput
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("document") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with running({"kb": graph}, queries=f"{EVERYBODY}\n{ADD}") as server:
        yield server


@pytest.fixture(scope="module")
def opened(server: RunningServer) -> dict[str, Any]:
    document: dict[str, Any] = server.client.get("/openapi.json").json()
    return document


@pytest.fixture(scope="module")
def guarded(graph: Graph) -> dict[str, Any]:
    with running({"kb": graph}, tokens={"ana": "secret-token"}) as server:
        answer = server.client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert "secret-token" not in answer.text
    document: dict[str, Any] = answer.json()
    return document


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_document_is_valid(opened: dict[str, Any], guarded: dict[str, Any]) -> None:
    for document in (opened, guarded):
        OpenAPIV31SpecValidator(document).validate()


def test_what_the_document_says_of_itself(opened: dict[str, Any]) -> None:
    assert opened["openapi"] == "3.1.0"
    assert opened["info"]["title"] == "Omnigraph API"
    assert opened["info"]["version"] == "0.0.0-test"
    assert opened["info"]["license"]["name"] == "MIT"
    assert "/openapi.json" not in opened["paths"]


def test_the_operations_are_those_of_the_contract(opened: dict[str, Any]) -> None:
    found = operations(opened)
    expected = {"health": ("get", "/healthz", "management"), "listGraphs": ("get", "/graphs", "management")}
    for line in CONTRACT.split("\n"):
        if line:
            method, path, operation_id, tag = line.split()
            expected[f"cluster_{operation_id}"] = (method, f"/graphs/{{graph_id}}{path}", tag)
    assert found.keys() == expected.keys() | OURS
    for operation_id, (method, path, tag) in expected.items():
        assert found[operation_id][:2] == (method, path)
        if operation_id != "health":
            assert found[operation_id][2]["tags"] == [tag]


def test_the_graph_is_the_first_parameter_of_its_operations(opened: dict[str, Any]) -> None:
    for operation_id, (_, path, operation) in operations(opened).items():
        if operation_id.startswith("cluster_"):
            assert (operation["parameters"][0]["name"], operation["parameters"][0]["in"]) == ("graph_id", "path"), path
            named = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
            assert named == [part.strip("{}") for part in path.split("/") if part.startswith("{")]


def test_the_components_have_the_names_of_the_contract(opened: dict[str, Any]) -> None:
    missing = set(COMPONENTS.split()) - opened["components"]["schemas"].keys()
    assert not missing


def test_an_open_server_mentions_no_tokens(opened: dict[str, Any]) -> None:
    assert "securitySchemes" not in opened["components"]
    assert "security" not in opened
    assert not [name for name, (_, _, operation) in operations(opened).items() if "security" in operation]


def test_a_guarded_server_asks_for_a_token_everywhere_but_for_its_health(guarded: dict[str, Any]) -> None:
    assert guarded["components"]["securitySchemes"] == {"bearer_token": {"type": "http", "scheme": "bearer"}}
    free = {name for name, (_, _, operation) in operations(guarded).items() if "security" not in operation}
    assert free == {"health", "version", "ready"}


def test_deprecated_operations_say_so(opened: dict[str, Any]) -> None:
    found = {name for name, (_, _, operation) in operations(opened).items() if operation.get("deprecated")}
    assert found == {"cluster_read", "cluster_change", "cluster_ingest"}


def test_every_write_takes_a_key(opened: dict[str, Any]) -> None:
    found = {
        name.removeprefix("cluster_")
        for name, (_, _, operation) in operations(opened).items()
        if "Idempotency-Key" in [parameter["name"] for parameter in operation.get("parameters", ())]
    }
    assert found == {route.operation_id for route in ROUTES if route.writes} | {"invoke_query"}
    assert found >= {"mutate", "load", "loadNdjson", "mergeBranches", "createBranch", "deleteBranch", "applySchema"}


def test_media_types_and_error_forms(opened: dict[str, Any]) -> None:
    found = {name: operation for name, (_, _, operation) in operations(opened).items()}
    for name in ("cluster_export", "cluster_captureChangeBaseline"):
        assert set(found[name]["responses"]["200"]["content"]) == {"application/x-ndjson"}
    assert set(found["cluster_loadNdjson"]["requestBody"]["content"]) == {"application/x-ndjson"}
    assert set(found["cluster_getBlob"]["responses"]["200"]["content"]) == {"application/octet-stream"}
    for name in ("cluster_invoke_query", "cluster_invoke_query_if_graph_commit"):
        assert found[name]["requestBody"]["required"] is False
        assert {"type": "null"} in found[name]["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    feed = {"cluster_getCommitChanges", "cluster_pollChanges", "cluster_captureChangeBaseline"}
    for name, operation in found.items():
        form = "ChangeErrorOutput" if name in feed else "ErrorOutput"
        told = operation["responses"]["500"]["content"]["application/json"]["schema"]
        assert told == {"$ref": f"#/components/schemas/{form}"}, name


def test_every_route_has_a_handler_and_every_handler_a_route() -> None:
    assert HANDLER_MODULES
    assert HANDLERS.keys() == {route.operation_id for route in ROUTES}


# Answers


def schema_of(document: dict[str, Any], operation_id: str, status: str) -> dict[str, Any]:
    _, _, operation = operations(document)[operation_id]
    schema = operation["responses"][status]["content"]["application/json"]["schema"]
    return {**schema, "components": document["components"]}


def calls(graph: Graph) -> list[tuple[str, str, str, Any]]:
    head, first = graph.resolve_snapshot("main"), graph.commits().commits[-1].id
    added = {"query": ADD, "params": {"name": "Documented"}, "branch": "doc"}
    return [
        ("health", "GET", "/healthz", None),
        ("ready", "GET", "/readyz", None),
        ("listGraphs", "GET", "/graphs", None),
        ("cluster_getSnapshot", "GET", "snapshot", None),
        ("cluster_getSchema", "GET", "schema", None),
        ("cluster_listBranches", "GET", "branches", None),
        ("cluster_listCommits", "GET", "commits?limit=1", None),
        ("cluster_getCommit", "GET", f"commits/{head}", None),
        ("cluster_getCommitChanges", "GET", f"commits/{head}/changes?limit=1", None),
        ("cluster_getCommitChanges", "GET", f"commits/{first}/changes", None),
        ("cluster_pollChanges", "GET", "changes?start=beginning&limit=1", None),
        ("cluster_diff", "GET", f"diff?from={first}&to=main", None),
        ("cluster_diff", "GET", f"diff?from={first}&to=main&limit=1", None),
        ("cluster_getEntity", "GET", "entity?entity=node&type=Person&id=Ada", None),
        ("cluster_list_queries", "GET", "queries", None),
        ("cluster_query", "POST", "query", {"query": EVERYBODY}),
        ("cluster_query", "POST", "query", {"query": "nonsense"}),
        ("cluster_query", "POST", "query", {"query": EVERYBODY, "branch": "none"}),
        ("cluster_query", "POST", "query", {}),
        ("cluster_read", "POST", "read", {"query_source": EVERYBODY}),
        ("cluster_invoke_query", "POST", "queries/everybody", {}),
        ("cluster_createBranch", "POST", "branches", {"name": "doc"}),
        ("cluster_createBranch", "POST", "branches", {"name": "doc"}),
        ("cluster_mutate", "POST", "mutate", added),
        ("cluster_mutate", "POST", "mutate", {"query": ADD, "params": {"name": "x", "age": 200}}),
        ("cluster_change", "POST", "change", {**added, "params": {"name": "Other"}}),
        ("cluster_invoke_query", "POST", "queries/add", {"params": {"name": "Stored"}, "branch": "doc"}),
        ("cluster_load", "POST", "load", {"data": person("Loaded"), "branch": "doc"}),
        ("cluster_load", "POST", "load", {"data": person("Ada"), "mode": "append"}),
        ("cluster_ingest", "POST", "ingest", {"data": person("Loaded"), "branch": "doc"}),
        ("cluster_mergeBranches", "POST", "branches/merge", {"source": "main", "target": "doc"}),
        ("cluster_mergeBranches", "POST", "branches/merge", {"source": "doc", "target": "main", "delete_branch": True}),
        ("cluster_deleteBranch", "DELETE", "branches/doc", None),
        ("cluster_getBlob", "GET", "blob?entity=node&type=Person&id=nobody&property=photo", None),
    ]


def test_answers_are_as_the_document_says(server: RunningServer, graph: Graph, opened: dict[str, Any]) -> None:
    """Successes and errors alike: the status is listed, and the body has the form."""
    for operation_id, method, path, body in calls(graph):
        url = path if path.startswith("/") else f"/graphs/kb/{path}"
        answer = server.client.request(method, url, json=body)
        schema = schema_of(opened, operation_id, str(answer.status_code))
        jsonschema.Draft202012Validator(schema).validate(answer.json())


@pytest.mark.parametrize("route", [r for r in ROUTES if r.in_document], ids=lambda r: r.operation_id)
def test_an_unknown_token_is_a_listed_answer(graph: Graph, guarded: dict[str, Any], route: Route) -> None:
    _, _, operation = operations(guarded)[route.document_id]
    assert ("401" in operation["responses"]) == (not route.public)
