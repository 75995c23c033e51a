"""What the server tells about itself."""

from __future__ import annotations

from omnigraph.api.enums import PolicyAction
from omnigraph.api.routes import Media
from omnigraph.api.service import GraphInfo, GraphList, HealthOutput, Readiness
from omnigraph.engine.snapshot import INTERNAL_SCHEMA_VERSION
from omnigraph.server.answers import Answer, AnyAnswer, json_answer
from omnigraph.server.call import Call, handles
from omnigraph.server.openapi import document_bytes

_EXPOSITION = f"{Media.TEXT}; version=0.0.4; charset=utf-8"


@handles("health")
def health(call: Call) -> AnyAnswer:
    services = call.services
    return json_answer(HealthOutput("ok", services.version, INTERNAL_SCHEMA_VERSION, services.source_version))


@handles("ready")
def ready(call: Call) -> AnyAnswer:
    serving = call.serving
    unserved = call.services.states.unserved_revision
    status = "degraded" if serving.quarantined or unserved is not None else "ok"
    return json_answer(Readiness(status, len(serving.graphs), len(serving.quarantined), serving.revision, unserved))


@handles("metrics")
def metrics(call: Call) -> AnyAnswer:
    return Answer(call.services.observer.exposition(), media=_EXPOSITION)


@handles("openapi")
def openapi(call: Call) -> AnyAnswer:
    return Answer(document_bytes(call.services.version, requires_token=call.serving.requires_token))


@handles("listGraphs")
def list_graphs(call: Call) -> AnyAnswer:
    serving = call.serving
    call.require_of_server(PolicyAction.GRAPH_LIST)
    graphs = sorted(serving.graphs.values(), key=lambda served: served.graph_id)
    return json_answer(GraphList(tuple(GraphInfo(served.graph_id, served.public_uri) for served in graphs)))
