"""What people see of a cluster: the reports of its commands as lines.

Piped, a plan has the form that scripts know. On a terminal it is for review: marks in front of the changes, schema
steps in words, and the lines that differ in each file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from omnigraph.api import cluster as reports
from omnigraph.api import wire
from omnigraph.api.enums import ChangeDisposition, ResourceOperation
from omnigraph.calendar import format_datetime

_MARKS = {ResourceOperation.CREATE: "+", ResourceOperation.UPDATE: "~", ResourceOperation.DELETE: "-"}
_STYLES = {"+": "green", "~": "yellow", "-": "red", "!": "bold red", "ERROR": "bold red", "WARN": "yellow"}


def style(line: str) -> str:
    """By the mark in front; what is deeper down is a step or a line of a file."""
    text = line.lstrip()
    if line.startswith("        "):
        return {"+": "green", "-": "red", "@": "cyan"}.get(line[8:9], "dim")
    if line.startswith("      "):
        return "bold red" if text.startswith("unsupported") else "cyan"
    if line.startswith("cluster "):
        return "bold red" if line.endswith(("failed", "invalid")) else "bold"
    return _STYLES.get(text.split(" ", 1)[0], "")


def validated(report: reports.ClusterValidated) -> list[str]:
    if not report.ok:
        return ["cluster config invalid", *_findings(report.diagnostics)]
    edges = len(report.dependencies)
    head = f"cluster config valid: {len(report.resources)} resource(s), {edges} dependency edge(s)"
    return [head, *_findings(report.diagnostics)]


def planned(report: reports.ClusterPlan, texts: Mapping[str, list[str]], *, for_review: bool) -> list[str]:
    lines = [f"cluster plan: {len(report.changes)} change(s), {len(report.approvals_required)} approval gate(s)"]
    if not report.ok:
        lines[0] = "cluster plan failed"
    affected = {entry.resource: entry.affected for entry in report.blast_radius}
    for change in report.changes:
        lines.append(_change(change, for_review=for_review))
        lines += _steps(change, for_review=for_review)
        if for_review:
            lines += _text(change.resource, texts)
            others = [name for name in affected.get(change.resource, ()) if not _is_changed(name, report.changes)]
            lines += [f"      also touches {', '.join(others)}"] if others else []
    if report.ok and not report.changes:
        lines.append("  no changes")
    if for_review:
        lines += [
            f"  ! {gate.resource} {'is approved' if gate.satisfied else f'needs approval: {gate.reason}'}"
            for gate in report.approvals_required
        ]
    return [*lines, *_findings(report.diagnostics)]


def _text(resource: str, texts: Mapping[str, list[str]]) -> list[str]:
    """The lines that differ. Queries of one file differ in the same ones, which are shown once."""
    lines = texts.get(resource, [])
    first = next(other for other, shown in texts.items() if shown == lines) if lines else resource
    return [f"      as {first}"] if first != resource else [f"        {line}" for line in lines[2:]]


def _is_changed(resource: str, changes: Iterable[reports.ClusterChange]) -> bool:
    return any(change.resource == resource for change in changes)


def _change(change: reports.ClusterChange, *, for_review: bool) -> str:
    mark = f"{_MARKS[change.operation]} " if for_review else ""
    what = {"embedding_profile": " [profile]", "pipeline_graph": " [graph]"}.get(change.metadata_change or "", "")
    bindings = " [bindings]" if change.binding_change else ""
    held = f" (blocked: {change.reason})" if for_review and change.disposition is ChangeDisposition.BLOCKED else ""
    return f"  {mark}{change.operation.capitalize()} {change.resource}{bindings}{what}{held}"


def _steps(change: reports.ClusterChange, *, for_review: bool) -> list[str]:
    if change.migration is None:
        return []
    if for_review:
        return [f"      {step.line()}" for step in change.migration.steps] or ["      no steps: only its text changes"]
    return [
        f"      {json.dumps(wire.to_builtins(step), ensure_ascii=False, separators=(',', ':'))}"
        for step in change.migration.steps
    ]


def applied(report: reports.ClusterApplied, *, for_review: bool) -> list[str]:
    state = report.state_observations
    lines = [f"cluster apply: {report.applied_count} applied, {report.deferred_count} deferred/blocked"]
    if not report.ok:
        lines[0] = "cluster apply failed"
    for change in report.changes:
        said = (change.disposition or ChangeDisposition.APPLIED).capitalize()
        why = f": {change.reason}" if change.reason is not None else ""
        lines.append(f"{_change(change, for_review=False)} [{said}{why}]")
        if for_review:
            lines[-1] = lines[-1].replace("  ", f"  {_MARKS[change.operation]} ", 1)
    if state.state_found:
        told = f"converged: {_flag(report.converged)}, written: {_flag(report.state_written)}"
        lines.append(f"  state: revision {state.state_revision}, {told}")
    return [*lines, *_findings(report.diagnostics)]


def approved(report: reports.ClusterApproved) -> list[str]:
    if not report.ok:
        return ["cluster approve failed", *_findings(report.diagnostics)]
    head = f"cluster approve: {report.operation} {report.resource} approved by {report.approved_by}"
    return [f"{head} (approval {report.approval_id})", *_findings(report.diagnostics)]


def status(report: reports.ClusterStatus) -> list[str]:
    state = report.state_observations
    if not report.ok:
        lines = ["cluster status failed"]
    elif not state.state_found:
        lines = ["cluster state missing"]
    else:
        lines = [f"cluster state: revision {state.state_revision}, {state.resource_count} resource(s)"]
    if state.state_found:
        lines.append(f"  applied config: {state.applied_config_digest or '(not converged)'}")
    if state.locked:
        lines.append(f"  lock: held (id={state.lock_id}, operation={state.lock_operation}, pid={state.lock_pid})")
    else:
        lines.append("  lock: not held")
    lines += [_pipeline(pipeline) for pipeline in report.pipelines]
    return [*lines, *_statuses(report.resource_statuses), *_findings(report.diagnostics)]


def _pipeline(pipeline: reports.AppliedPipeline) -> str:
    branch = "" if pipeline.branch == "main" else f" ({pipeline.branch})"
    commit = pipeline.last_commit
    if commit is None:
        last = "no run yet"
    else:
        who = f" by {commit.actor_id}" if commit.actor_id is not None else ""
        last = f"last commit {commit.id}{who}, {format_datetime(commit.created_at // 1_000)}"
    return f"  pipeline.{pipeline.name} -> graph.{pipeline.graph_id}{branch}: {last}"


def observed(report: reports.ClusterObserved) -> list[str]:
    state = report.state_observations
    head = f"cluster {report.operation}: revision {state.state_revision}, {state.resource_count} resource(s)"
    if not report.ok:
        head = f"cluster {report.operation} failed"
    return [head, *_statuses(report.resource_statuses), *_findings(report.diagnostics)]


def unlocked(report: reports.ClusterUnlocked, lock: object) -> list[str]:
    if not report.ok:
        return ["cluster force-unlock failed", *_findings(report.diagnostics)]
    return [f"cluster force-unlock: removed lock ({lock})", *_findings(report.diagnostics)]


def history(report: reports.ClusterHistory) -> list[str]:
    if not report.ok:
        return ["cluster history failed", *_findings(report.diagnostics)]
    lines = [f"cluster history: {len(report.revisions)} revision(s)"]
    for revision in report.revisions:
        who = f" by {revision.actor}" if revision.actor is not None else ""
        what = f"{revision.operation or 'unknown'}{who}"
        lines.append(f"  {revision.state_revision}  {revision.written_at or '-'}  {what}")
        lines += [f"      {_MARKS[change.operation]} {change.resource}" for change in revision.changes]
    return [*lines, *_findings(report.diagnostics)]


def _statuses(statuses: reports.Statuses) -> list[str]:
    """Only what is not as it should be is worth a line."""
    return [
        f"  {address}: {said.status} ({', '.join(said.conditions)})"
        for address, said in sorted(statuses.items())
        if said.conditions
    ]


def _findings(diagnostics: reports.Diagnostics) -> list[str]:
    return [line for finding in diagnostics for line in str(finding).splitlines()]


def _flag(value: bool) -> str:
    return "true" if value else "false"
