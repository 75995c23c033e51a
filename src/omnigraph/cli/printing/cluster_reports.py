"""Prints the reports of cluster commands as lines.

Piped, a plan has the form that scripts know. On a terminal it is for review: marks in front of the changes, schema
steps in words, differing settings and lines of files, and the steps to take before it can be applied; lines have
colours and are broken between words.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from omnigraph.api.enums import ChangeDisposition, ResourceOperation
from omnigraph.api.values import count_noun
from omnigraph.dates import format_datetime

if TYPE_CHECKING:
    from omnigraph.api.service import cluster as reports
    from omnigraph.cluster.commands.plan import PlanReview


_MARKS = {ResourceOperation.CREATE: "+", ResourceOperation.UPDATE: "~", ResourceOperation.DELETE: "-"}


def plan_lines(plan: PlanReview, *, for_review: bool) -> list[str]:
    report = plan.output
    planned = f"cluster plan: {len(report.changes)} change(s), {len(report.approvals_required)} approval gate(s)"
    lines = [planned if report.ok else "cluster plan failed"]
    for change in report.changes:
        lines.append(_change(change, for_review=for_review))
        lines += _steps(change, for_review=for_review)
        lines += _details(plan, change) if for_review else ()
    if report.ok and not report.changes:
        lines.append("  no changes")
    return [*lines, *(_remarks(report) if for_review else ()), *map(str, report.diagnostics)]


def _details(plan: PlanReview, change: reports.ClusterChange) -> list[str]:
    """The changes within a resource, and the other resources that they affect."""
    resource = change.resource
    changed = {other.resource for other in plan.output.changes}
    affected = {entry.resource: entry.affected for entry in plan.output.blast_radius}
    others = [name for name in affected.get(resource, ()) if name not in changed]
    return [
        *(f"      {line}" for line in plan.settings.get(resource, ())),
        *_text(resource, plan.texts),
        *([f"      also touches {', '.join(others)}"] if others else ()),
    ]


def _remarks(report: reports.ClusterPlan) -> Iterator[str]:
    """Facts to know, and steps to take, before this can be applied."""
    for change in report.changes:
        if change.migration is not None and not change.migration.supported:
            yield f"  ! {change.resource} can't be changed like this: apply fails, and holds up what depends on it"
    for gate in report.approvals_required:
        how = f"with `omnigraph cluster approve {gate.resource} --as <name>`"
        yield f"  ! {gate.resource} {'is approved' if gate.satisfied else f'needs approval: {gate.reason} {how}'}"
    if report.ok and not report.state_observations.state_found:
        yield "  ! there is no state yet: run `omnigraph cluster import` before apply"


def _text(resource: str, texts: Mapping[str, list[str]]) -> list[str]:
    """The lines that differ. Queries of one file differ in the same ones, which are shown once."""
    lines = texts.get(resource, [])
    first = next(other for other, shown in texts.items() if shown == lines) if lines else resource
    return [f"      as {first}"] if first != resource else [f"        {line}" for line in lines[2:]]


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
        lines = []
        for step in change.migration.steps:
            effect = step.effect.lines() if step.effect is not None else []
            lines += [f"      {step.line()}", *(f"          {line}" for line in effect)]
        return lines or ["      no steps: only its text changes"]
    from omnigraph.api import wire

    steps = map(wire.to_builtins, change.migration.steps)
    return [f"      {json.dumps(step, ensure_ascii=False, separators=(',', ':'))}" for step in steps]


def apply_lines(report: reports.ClusterApplied, *, for_review: bool) -> list[str]:
    state = report.state_observations
    applied = f"cluster apply: {report.applied_count} applied, {report.deferred_count} deferred/blocked"
    lines = [applied if report.ok else "cluster apply failed"]
    for change in report.changes:
        said = (change.disposition or ChangeDisposition.APPLIED).capitalize()
        why = f": {change.reason}" if change.reason is not None else ""
        lines.append(f"{_change(change, for_review=False)} [{said}{why}]")
        if for_review:
            lines[-1] = lines[-1].replace("  ", f"  {_MARKS[change.operation]} ", 1)
    if state.state_found:
        converged, written = (str(flag).lower() for flag in (report.converged, report.state_written))
        lines.append(f"  state: revision {state.state_revision}, converged: {converged}, written: {written}")
    return [*lines, *map(str, report.diagnostics)]


def status(report: reports.ClusterStatus, *, for_review: bool) -> list[str]:
    state = report.state_observations
    if not report.ok:
        lines = ["cluster status failed"]
    elif not state.state_found:
        lines = ["cluster state missing"]
    else:
        lines = [f"cluster state: revision {state.state_revision}, {state.resource_count} resource(s)"]
    if state.state_found:
        digest = state.applied_config_digest or "(not converged)"
        lines.append(f"  applied config: {digest[:16] if for_review else digest}")
    if state.locked:
        lines.append(f"  lock: held (id={state.lock_id}, operation={state.lock_operation}, pid={state.lock_pid})")
    elif report.ok or state.state_found:
        lines.append("  lock: not held")
    lines += [_pipeline(pipeline) for pipeline in report.pipelines]
    return [*lines, *_statuses(report.resource_statuses, all_of_them=for_review), *map(str, report.diagnostics)]


def _pipeline(pipeline: reports.AppliedPipeline) -> str:
    branch = "" if pipeline.branch == "main" else f" ({pipeline.branch})"
    commit = pipeline.last_commit
    if commit is None:
        last = "no run yet"
    else:
        who = f" by {commit.actor_id}" if commit.actor_id is not None else ""
        last = f"last commit {commit.id}{who}, {format_datetime(commit.created_at // 1_000)}"
    return f"  pipeline.{pipeline.name} -> graph.{pipeline.graph_id}{branch}: {last}"


def refresh_lines(report: reports.ClusterObserved, *, for_review: bool) -> list[str]:
    state = report.state_observations
    seen = f": revision {state.state_revision}, {state.resource_count} resource(s)" if report.ok else " failed"
    lines = [f"cluster {report.operation}{seen}", *_statuses(report.resource_statuses)]
    if for_review and report.ok and any("graph_missing" in s.conditions for s in report.resource_statuses.values()):
        lines.append("  the next apply makes what is missing")
    return [*lines, *map(str, report.diagnostics)]


def history(report: reports.ClusterHistory) -> list[str]:
    if not report.ok:
        return ["cluster history failed", *map(str, report.diagnostics)]
    lines = [f"cluster history: {count_noun(len(report.revisions), 'revision')}"]
    for revision in report.revisions:
        who = f" by {revision.actor}" if revision.actor is not None else ""
        what = f"{revision.operation or 'unknown'}{who}"
        lines.append(f"  {revision.state_revision}  {revision.written_at or '-'}  {what}")
        lines += [f"      {_MARKS[change.operation]} {change.resource}" for change in revision.changes]
    return [*lines, *map(str, report.diagnostics)]


def _statuses(statuses: reports.Statuses, *, all_of_them: bool = False) -> list[str]:
    """The resources that are not as they should be, or all of them."""
    return [
        f"  {address}: {said.status}" + (f" ({', '.join(said.conditions)})" if said.conditions else "")
        for address, said in sorted(statuses.items())
        if said.conditions or all_of_them
    ]


_BY_MARK: Final = {"+": "green", "~": "yellow", "-": "red", "ERROR": "bold red", "WARN": "yellow"}
_OF_A_FILE: Final = {"+": "green", "-": "red", "@": "cyan"}
_FILE: Final = 8
_DETAIL: Final = 6


def style(line: str) -> str:
    """By the depth of a line, its mark and its text. It may be folded, or be followed by an excerpt."""
    text = " ".join(line.split())
    depth, mark = len(line) - len(line.lstrip()), text.split(" ", 1)[0]
    if depth >= _FILE:
        return _OF_A_FILE.get(line[_FILE], "dim")
    if depth == _DETAIL:
        return "bold red" if mark == "unsupported" else _BY_MARK.get(mark, "cyan")
    if line.startswith("cluster "):
        return "bold red" if line.endswith(("failed", "invalid")) else "bold"
    if mark == "!":
        return "green" if text.endswith(" is approved") else "bold red"
    if depth and any(held in text for held in ("[Blocked", "[Deferred", "(blocked: ", ": blocked (", ": error (")):
        return "bold red"
    if depth and ": drifted (" in text:
        return "yellow"
    return "dim" if text.endswith("[Derived]") else _BY_MARK.get(mark, "")


def wrap(line: str, columns: int) -> str:
    """A line that is wider than the terminal, broken between words, with what follows further in. Lines of files stay
    as they are, also the excerpt that a finding ends with."""
    line, newline, excerpt = line.partition("\n")
    depth = len(line) - len(line.lstrip())
    if len(line) > columns and depth < _FILE:
        indent = " " * (depth + 4 if depth else _DETAIL)
        line = textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return f"{line}{newline}{excerpt}"
