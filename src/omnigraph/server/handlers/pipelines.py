"""The pipelines that a cluster has applied for a graph, with what they last did."""

from __future__ import annotations

from collections import defaultdict

from omnigraph.api.commits import CommitReceipt
from omnigraph.api.enums import PolicyAction
from omnigraph.api.pipeline import ServedPipeline, ServedPipelines
from omnigraph.server.answers import AnyAnswer, json_answer
from omnigraph.server.call import MAIN, Call, handles


@handles("listPipelines")
def list_pipelines(call: Call) -> AnyAnswer:
    """Whoever may read main sees them; a last run is shown to those who may read its branch."""
    call.require(PolicyAction.READ, MAIN)
    served = call.served
    by_branch: defaultdict[str, list[str]] = defaultdict(list)
    for pipeline in served.pipelines:
        by_branch[pipeline.branch].append(pipeline.name)
    last: dict[str, CommitReceipt] = {}
    for branch, names in by_branch.items():
        if branch == MAIN or call.decision(PolicyAction.READ, branch).allowed:
            last |= served.runs.last(call.whole._workspace, branch, names)
    told = (
        ServedPipeline(pipeline.name, pipeline.branch, pipeline.digest, last.get(pipeline.name))
        for pipeline in sorted(served.pipelines, key=lambda pipeline: pipeline.name)
    )
    return json_answer(ServedPipelines(tuple(told)))
