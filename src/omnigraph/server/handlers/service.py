"""The handlers about the server itself: health, readiness, metrics, the list of graphs, and the OpenAPI document.

The document is made from the table of routes and the structs of the API.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from omnigraph.api import wire
from omnigraph.api.enums import ChangeDiffRefusalReason, ConflictKind, EntityKind, ParamKind, PolicyAction
from omnigraph.api.history import ChangeBaselineRecord
from omnigraph.api.load import MutationReceipt
from omnigraph.api.queries import ReadOutput
from omnigraph.api.service.cluster import LANGUAGES, GraphInfo, GraphList, HealthOutput, Readiness, VersionOutput
from omnigraph.api.service.http import ErrorOutput
from omnigraph.api.service.routes import (
    COMMIT_HEADER,
    IDEMPOTENCY_HEADER,
    IF_COMMIT_HEADER,
    MIN_COMMIT_HEADER,
    REQUEST_ID_HEADER,
    ROUTES,
    SNAPSHOT_HEADER,
    Body,
    Media,
    Route,
)
from omnigraph.engine.snapshot import INTERNAL_SCHEMA_VERSION
from omnigraph.server.http.call import Call, handles
from omnigraph.server.http.responses import AnyResponse, Response, json_response

_SCHEME: Final = "bearer_token"
_TEXT: Final = {"type": "string"}
_ALSO_DESCRIBED: Final[tuple[type[Any], ...]] = (ChangeBaselineRecord, ConflictKind, ParamKind, ChangeDiffRefusalReason)
"""Structs and enums that no route names by itself, and that clients know by name."""

_STATUSES: Final = {
    400: "The request is malformed, or breaks a rule of the schema",
    401: "No token, or an unknown one",
    403: "The actor may not do this",
    404: "There is no such graph, branch, commit or entity",
    408: "The body came too slowly",
    409: "The request conflicts with the state of the graph; nothing was written",
    410: "Cleanup has reclaimed what would be read",
    412: "The branch is not at the commit that is expected; nothing was written",
    413: "A limit was reached; nothing was written",
    415: "The body is in another format",
    416: "The value does not have this range",
    421: "A server without tokens was called by a name that it does not have",
    422: "The body is JSON of another shape",
    424: "An external object could not be read",
    429: "The actor has too much under way",
    500: "Something broke; the log has the cause under the request id",
    503: "The server can't take the request now",
}


@cache
def document_bytes(version: str, requires_token: bool) -> bytes:
    """The document as JSON. For a server without tokens it does not mention any."""
    routes = [route for route in ROUTES if route.in_document]
    shapes: list[Any] = [shape for route in routes for shape in (route.request, route.errors, *route.response)]
    described = {ErrorOutput, *_ALSO_DESCRIBED, *filter(_is_struct, shapes)}
    components: dict[str, Any] = wire.schema_components(described)
    paths: dict[str, Any] = {}
    for route in routes:
        operation = _operation(route, components, requires_token)
        operations = paths.setdefault(route.full_path, {})
        operations[route.method.lower()] = operation
        if route.operation_id == "getBlob":  # every GET answers HEAD; for blobs it is an operation of its own name
            operations["head"] = {**operation, "operationId": "cluster_headBlob", "summary": "What is known of a blob"}
    components["BlobEntityKind"] = {**components[wire.wire_name(EntityKind)], "title": "BlobEntityKind"}
    components["InvokeStoredQueryResponse"] = {"anyOf": [_reference(ReadOutput), _reference(MutationReceipt)]}
    components["ChangeRequest"]["anyOf"] = [{"required": ["query"]}, {"required": ["query_source"]}]
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Omnigraph API",
            "version": version,
            "description": "A versioned graph of typed tables, shared through one address.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items()))},
    }
    if requires_token:
        made["components"]["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
    return msgspec.json.encode(made)


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _operation(route: Route, components: dict[str, Any], requires_token: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": route.document_id, "summary": route.summary, "tags": [route.tag]}
    if route.successor is not None:
        made["deprecated"] = True
    if parameters := _parameters(route, components):
        made["parameters"] = parameters
    if route.body is Body.STREAMED_LOAD:
        made["requestBody"] = {"required": True, "content": {media: {"schema": _TEXT} for media in route.request_media}}
    elif route.request is not None:
        schema, optional = _reference(route.request), route.request_is_optional
        whole = {"anyOf": [schema, {"type": "null"}]} if optional else schema
        made["requestBody"] = {"required": not optional, "content": {Media.JSON: {"schema": whole}}}
    made["responses"] = _responses(route)
    if requires_token and not route.public:
        made["security"] = [{_SCHEME: []}]
    return made


def _parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters in the path, the query string and the headers. Their own shapes are added to the components."""
    text = {"type": "string", "minLength": 1}
    names = [part.strip("{}") for part in route.full_path.split("/") if part.startswith("{")]
    parameters = [_parameter(name, "path", text, required=True) for name in names]
    if route.parameters is not None:
        schemas = wire.schema_components([route.parameters])
        own = schemas.pop(wire.wire_name(route.parameters))
        components.update(schemas)
        required = own.get("required", ())
        for name, schema in own["properties"].items():
            parameters.append(_parameter(name, "query", _without_null(schema), required=name in required))
    if route.if_commit:
        parameters.append(_parameter(IF_COMMIT_HEADER, "header", text, required=True))
    if route.may_write:
        parameters.append(_parameter(IDEMPOTENCY_HEADER, "header", text, required=False))
    if route.tag in ("queries", "snapshots", "schema", "blobs") and not route.writes:
        parameters.append(_parameter(MIN_COMMIT_HEADER, "header", text, required=False))
    return parameters


def _parameter(name: str, where: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not given is absent; a query string has no null."""
    kept = {key: value for key, value in schema.items() if key not in ("default", "anyOf")}
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        return {**kept, **choices[0]}
    return {**kept, "anyOf": choices} if choices else kept


def _responses(route: Route) -> dict[str, Any]:
    whole: dict[str, Any] = _TEXT
    if route.operation_id == "invoke_query":
        whole = {"$ref": "#/components/schemas/InvokeStoredQueryResponse"}
    elif route.response:
        whole = _reference(route.response[0])
    content = {media.value: {"schema": whole if media is Media.JSON else _TEXT} for media in route.media}
    names = [REQUEST_ID_HEADER]
    if route.of_graph and (route.writes or route.tag in ("queries", "snapshots", "schema")):
        names.append(COMMIT_HEADER)
    if route.tag == "blobs":
        names += [SNAPSHOT_HEADER, "ETag", "Accept-Ranges"]
    headers = {name: {"schema": _TEXT} for name in names}
    responses: dict[str, Any] = {"200": {"description": "Done", "content": content, "headers": headers}}
    if route.tag == "blobs":
        responses["206"] = {**responses["200"], "description": "A part of the value"}
        responses["302"] = {"description": "The value lies elsewhere", "headers": {"Location": {"schema": _TEXT}}}
    if route.tag in ("blobs", "queries", "snapshots", "schema"):
        responses["304"] = {"description": "The client has it already"}
    errors = {Media.JSON: {"schema": _reference(route.errors)}}
    for status in _error_statuses(route):
        responses[str(status)] = {"description": _STATUSES[status], "content": errors}
    return responses


def _error_statuses(route: Route) -> list[int]:
    statuses = {421, 500, 503}
    if not route.public:
        statuses |= {401, 403}
    if route.of_graph:
        statuses |= {400, 404, 410, 413, 429}
    if route.body is not Body.NONE:
        statuses |= {408, 413, 415, 422}
    if route.of_graph and not route.writes:
        statuses |= {409, 412}
    if route.may_write:
        statuses |= {409, 412, 424}
    if route.tag == "blobs":
        statuses |= {412, 416}
    return sorted(statuses)


def _reference(shape: Any) -> dict[str, Any]:
    if not _is_struct(shape):
        return {"type": "object", "additionalProperties": True}
    return {"$ref": f"#/components/schemas/{wire.wire_name(shape)}"}


_EXPOSITION = f"{Media.TEXT}; version=0.0.4; charset=utf-8"


@handles("health")
def health(call: Call) -> AnyResponse:
    services = call.services
    return json_response(HealthOutput("ok", services.version, INTERNAL_SCHEMA_VERSION, services.source_version))


@handles("version")
def version(call: Call) -> AnyResponse:
    return json_response(VersionOutput(call.services.version, INTERNAL_SCHEMA_VERSION, LANGUAGES))


@handles("ready")
def ready(call: Call) -> AnyResponse:
    serving = call.held.serving
    unserved = call.services.states.unserved_revision
    status = "degraded" if serving.quarantined or unserved is not None else "ok"
    return json_response(Readiness(status, len(serving.graphs), len(serving.quarantined), serving.revision, unserved))


@handles("metrics")
def metrics(call: Call) -> AnyResponse:
    return Response(call.services.telemetry.metrics.text(), media=_EXPOSITION)


@handles("openapi")
def openapi(call: Call) -> AnyResponse:
    return Response(document_bytes(call.services.version, call.held.serving.requires_token))


@handles("listGraphs")
def list_graphs(call: Call) -> AnyResponse:
    serving = call.held.serving
    call.require_of_server(PolicyAction.GRAPH_LIST)
    graphs = sorted(serving.graphs.values(), key=lambda served: served.graph_id)
    return json_response(GraphList(tuple(GraphInfo(served.graph_id, served.public_uri) for served in graphs)))
