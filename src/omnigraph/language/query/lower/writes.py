"""Turns resolved mutations into write statements, and refuses what execution refuses before it touches data.

Called by `lower`. The order of the refusals is the order of the language: first a mix of inserts or updates with
deletes, then the statements one by one.
"""

from __future__ import annotations

from omnigraph.language.catalog import NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.resolved import (
    ResolvedAssignment,
    ResolvedDelete,
    ResolvedInsertEdge,
    ResolvedInsertNode,
    ResolvedQuery,
    ResolvedStatement,
    ResolvedUpdate,
    ResolvedWrites,
)
from omnigraph.language.source import DiagnosticSink

MIXED = "D2"
REFUSED = "unsupported"


def mixes_construction_and_deletion(writes: ResolvedWrites) -> bool:
    """Whether a mutation both makes and removes things, which one commit order can't explain."""
    deletes = [isinstance(statement, ResolvedDelete) for statement in writes.statements]
    return any(deletes) and not all(deletes)


def lower_writes(query: ResolvedQuery, writes: ResolvedWrites, findings: DiagnosticSink) -> ir.WritePlan | None:
    """The plan, or None after the findings say why there is none."""
    if mixes_construction_and_deletion(writes):
        odd = next(s for s in writes.statements if isinstance(s, ResolvedDelete))
        findings.report(
            MIXED,
            f"query '{query.name}' holds both inserts/updates and deletes; split into separate mutations",
            (odd.at.start, odd.at.end),
        )
        return None
    statements = tuple(_statement(statement, findings) for statement in writes.statements)
    if findings.found:
        return None
    return ir.WritePlan(query.name, query.parameters, statements)


def _statement(statement: ResolvedStatement, findings: DiagnosticSink) -> ir.WriteStatement:
    match statement:
        case ResolvedInsertNode():
            _refuse_missing_vectors(statement, findings)
            return ir.InsertNode(statement.type, _assigned(statement.assignments))
        case ResolvedInsertEdge():
            return ir.InsertEdge(statement.type, statement.source, statement.target, _assigned(statement.assignments))
        case ResolvedUpdate():
            _refuse_key_updates(statement, findings)
            return ir.UpdateNodes(statement.type, _assigned(statement.assignments), statement.where)
        case ResolvedDelete() if isinstance(statement.type, NodeType):
            return ir.DeleteNodes(statement.type, statement.where, statement.cascades)
        case ResolvedDelete():
            return ir.DeleteEdges(statement.type, statement.where)


def _assigned(assignments: tuple[ResolvedAssignment, ...]) -> tuple[ir.Assign, ...]:
    return tuple(ir.Assign(assignment.property, assignment.value) for assignment in assignments)


def _refuse_missing_vectors(insert: ResolvedInsertNode, findings: DiagnosticSink) -> None:
    """The type checker lets an embedded vector be left out, but an insert computes it only when the schema says so."""
    given = {assignment.property.name for assignment in insert.assignments}
    for prop in insert.type.properties.values():
        if prop.embed is None or prop.embed.on_write:
            continue
        if not prop.type.nullable and prop.name not in given:
            findings.report(
                REFUSED,
                f"missing required property '{insert.type.name}.{prop.name}': vectors are not computed on insert, "
                "unless the schema says @embed(..., on_write=true)",
                (insert.at.start, insert.at.end),
            )


def _refuse_key_updates(update: ResolvedUpdate, findings: DiagnosticSink) -> None:
    for assignment in update.assignments:
        if assignment.property.name in update.type.key:
            findings.report(
                REFUSED,
                f"cannot update @key property '{update.type.name}.{assignment.property.name}'; "
                "delete the node and insert it anew",
                (assignment.at.start, assignment.at.end),
            )
