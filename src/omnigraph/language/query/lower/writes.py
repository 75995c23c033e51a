"""From the statements of a mutation to its plan, and what typechecks in them and can't run.

A plan is made when a mutation is about to run, never by lint: these refusals (mixed statements, key updates) belong to
execution.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import CompileError
from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query.lower.read import Stages
from omnigraph.language.query.value_types import EntityType
from omnigraph.language.source import DiagnosticSink, SourceText, TextSpan

MIXED = "D2"
UNSUPPORTED = "unsupported"


def lower_writes(query: resolved.Query, body: resolved.Writes, source: SourceText) -> ir.WritePlan:
    """The plan of a mutation. Raises `CompileError` with every reason why it can't run."""
    findings = DiagnosticSink(source)
    writes = [write for statement in body.statements for write in _writes(statement)]
    deletes = [write for write in writes if isinstance(write.plan, ir.Delete | ir.DeleteVariable)]
    if deletes and len(deletes) < len(writes):
        message = f"query '{query.name}' holds both inserts/updates and deletes; split into separate mutations"
        findings.report(MIXED, message, deletes[0].at)
        raise CompileError(findings.diagnostics)
    for write in writes:
        for message, at in _refusals(write):
            findings.report(UNSUPPORTED, message, at)
    if findings.diagnostics:
        raise CompileError(findings.diagnostics)
    stages = Stages(query)
    statements = tuple(_statement(stages, statement) for statement in body.statements)
    return ir.WritePlan(query.name, stages.parameters, statements)


def _writes(statement: resolved.Write | resolved.ForEachRow) -> tuple[resolved.Write, ...]:
    return statement.statements if isinstance(statement, resolved.ForEachRow) else (statement,)


def _statement(stages: Stages, statement: resolved.Write | resolved.ForEachRow) -> ir.WriteStatement:
    if isinstance(statement, resolved.ForEachRow):
        plans = [write.plan for write in statement.statements]
        values = [value for plan in plans for value in _values_of(plan)]
        row_writes = tuple(plan for plan in plans if not isinstance(plan, ir.Update | ir.Delete))
        return ir.ForEachRow(stages.feed(statement.feed, values), row_writes)
    plan = statement.plan
    assert not isinstance(plan, ir.UpdateVariable | ir.DeleteVariable), "only a feed binds variables"
    return plan


def _values_of(plan: ir.RowWrite | ir.Update | ir.Delete) -> Iterator[ir.Value]:
    """What a statement reads of the row that it runs for."""
    match plan:
        case ir.InsertEdge():
            yield plan.source
            yield plan.target
        case ir.UpdateVariable() | ir.DeleteVariable():
            yield ir.EntityValue(plan.variable, EntityType((plan.type,), nullable=True))
    if not isinstance(plan, ir.Delete | ir.DeleteVariable):
        yield from (assignment.value for assignment in plan.assignments)


def _refusals(write: resolved.Write) -> Iterator[tuple[str, TextSpan]]:
    """The statements that typecheck and can't run. An embedded vector may be left out of an insert, but it is computed
    only when the schema says so; the key of a node is never updated."""
    match write.plan:
        case ir.InsertNode() as plan:
            yield from ((message, write.at) for message in _missing_vectors(plan))
        case ir.Update(type=NodeType() as node) | ir.UpdateVariable(type=NodeType() as node):
            for assignment, at in zip(write.plan.assignments, write.assigned_at, strict=True):
                if assignment.property.name in node.key:
                    named = f"cannot update @key property '{node.name}.{assignment.property.name}'"
                    yield f"{named}; delete the node and insert it anew", at


def _missing_vectors(plan: ir.InsertNode) -> Iterator[str]:
    assigned = {assignment.property.name for assignment in plan.assignments}
    for prop in plan.type.properties.values():
        is_supplied = prop.embed is not None and not prop.embed.on_write
        if is_supplied and not prop.type.nullable and prop.name not in assigned:
            named = f"missing required property '{plan.type.name}.{prop.name}'"
            remedy = "unless the schema says @embed(..., on_write=true)"
            yield f"{named}: vectors are not computed on insert, {remedy}"
