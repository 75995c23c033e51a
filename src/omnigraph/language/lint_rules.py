"""What lint finds in queries that typecheck: what is allowed and may not be meant.

`lint` runs the rules over the queries of a file. Each rule has a code, and reads resolved queries, never their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from omnigraph.language.catalog import TableType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query.compile import CompiledQuery, TouchedType, types_read, types_written, writes_of
from omnigraph.language.source import TextSpan

Severity: TypeAlias = Literal["error", "warning", "info"]

NEVER_UPDATED: Final = "L201"
RETURNS_OBJECT: Final = "L202"
"""A bare node or edge is returned: as an object, where it was its id before."""
NOT_OPTIONAL: Final = "L203"
"""Something outside of an optional block drops the rows that have no match in it."""
UNORDERED_OFFSET: Final = "L204"
READS_OLD_ROWS: Final = "L205"
"""A feed reads a type that an earlier statement writes. It does not see what that changes."""
NULL_FOR_DEFAULT: Final = "L206"
"""An insert gives a property with a default a parameter that may be null, and null does not ask for the default."""


class Finding(Struct, frozen=True, omit_defaults=True):
    """A finding about the file as a whole."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property_name: str | None = field(default=None, name="property")
    query_names: tuple[str, ...] = ()


class LocatedFinding(NamedTuple):
    """A finding about one query, with its position. Reports have the finding alone, editors show both."""

    finding: Finding
    at: TextSpan


def never_updated(queries: Iterable[CompiledQuery]) -> Iterator[Finding]:
    """For each type that is updated at all, by name: the nullable properties that no update ever sets."""
    updates: dict[str, list[tuple[str, ir.Update | ir.UpdateVariable]]] = {}
    for query in queries:
        body = query.resolved.body
        for statement in body.statements if isinstance(body, resolved.Writes) else ():
            for write in writes_of(statement):
                if isinstance(write.plan, ir.Update | ir.UpdateVariable):
                    updates.setdefault(write.plan.type.type_key, []).append((query.name, write.plan))
    for plans in sorted(updates.values(), key=lambda plans: plans[0][1].type.name):
        type_: TableType = plans[0][1].type
        assigned = {assignment.property.name for _, plan in plans for assignment in plan.assignments}
        updaters = tuple(sorted({query for query, _ in plans}))
        for prop in sorted(type_.property_list, key=lambda prop: prop.name):
            skipped = not prop.type.nullable or prop.name in type_.key or prop.embed is not None
            if not skipped and prop.name not in assigned:
                message = f"{type_.name}.{prop.name} exists in schema but no update query sets it"
                yield Finding("warning", NEVER_UPDATED, message, type_.name, prop.name, updaters)


def query_findings(query: CompiledQuery) -> Iterator[LocatedFinding]:
    """The findings about one query."""
    body = query.resolved.body
    feeds = _feeds(body) if isinstance(body, resolved.Writes) else ()
    chains = [*body.chains] if isinstance(body, resolved.Read) else [f.chain for f in feeds if f.chain is not None]
    stages = [list(_stages(chain)) for chain in chains]
    if isinstance(body, resolved.Read):
        yield from _returned_objects(query, body)
    else:
        yield from _reads_of_old_rows(query, body)
        yield from _nulls_for_defaults(query, body)
    matches = [stage.clauses for chain in stages for stage in chain] + [feed.clauses for feed in feeds]
    for clauses in (*matches, *(block.clauses for block in query.resolved.blocks.values())):
        yield from _required_optionals(query.name, clauses)
    for chain in stages:
        yield from _unordered_offsets(query.name, chain)


def _feeds(body: resolved.Writes) -> list[resolved.Feed]:
    return [statement.feed for statement in body.statements if isinstance(statement, resolved.ForEachRow)]


def _stages(chain: resolved.Chain) -> Iterator[resolved.Stage]:
    """Every stage of a chain, those of the reads in braces that it begins with included."""
    if chain.head is not None:
        for inner in chain.head.chains:
            yield from _stages(inner)
    yield from chain.stages


# ---- objects --------------------------------------------------------------------------------------------


def _returned_objects(query: CompiledQuery, read: resolved.Read) -> Iterator[LocatedFinding]:
    names: dict[str, TextSpan] = {}
    for chain in read.chains:
        for projection in chain.stages[-1].projections if chain.stages else ():
            if isinstance(projection.value, ir.EntityValue):
                names.setdefault(f"${projection.value.variable}", projection.at)
    if names:
        listed = ", ".join(names)
        ids = ", ".join(f"{name}.@id" for name in names)
        message = f"query '{query.name}' returns {listed} as an object with all properties; for the id return {ids}"
        finding = Finding("info", RETURNS_OBJECT, message, query_names=(query.name,))
        yield LocatedFinding(finding, next(iter(names.values())))


# ---- optional blocks ------------------------------------------------------------------------------------


def _required_optionals(query: str, clauses: Sequence[resolved.Clause]) -> Iterator[LocatedFinding]:
    introduced: set[str] = set()
    for clause in clauses:
        if isinstance(clause, resolved.OptionalBlock):
            introduced |= {name for name, _ in clause.introduced}
            yield from _required_optionals(query, clause.clauses)
        elif isinstance(clause, resolved.Negation):
            yield from _required_optionals(query, clause.clauses)
    if not introduced:
        return
    for clause in clauses:
        if isinstance(clause, resolved.OptionalBlock | resolved.Negation):
            continue
        for name in sorted(introduced):
            if _needs(clause, name):
                message = (
                    f"query '{query}': a clause outside of `optional` drops the rows in which ${name} is null, so the "
                    "block is not optional; move the clause into the block, or write its clauses without `optional`"
                )
                yield LocatedFinding(Finding("warning", NOT_OPTIONAL, message, query_names=(query,)), clause.at)
                return


def _needs(
    clause: resolved.Binding | resolved.Traversal | resolved.WalkTraversal | resolved.Filter, variable: str
) -> bool:
    """Whether a required clause is never true where the variable is null."""
    match clause:
        case resolved.Binding():
            return clause.variable == variable
        case resolved.Traversal():
            return variable in (clause.source, clause.destination)
        case resolved.WalkTraversal(walk=walk):
            return variable in (walk.source, walk.destination)
        case resolved.Filter():
            return _fails_on_null(clause.predicate, variable)


_KEEP_NULLS_OUT: Final = frozenset({"coalesce", "nullif"})
"""Functions that may not be null where an argument is."""


def _fails_on_null(predicate: ir.Value, variable: str) -> bool:
    """Whether a condition is false or null for every row in which the variable is null."""
    match predicate:
        case ir.And():
            return any(_fails_on_null(operand, variable) for operand in predicate.operands)
        case ir.Or():
            return all(_fails_on_null(operand, variable) for operand in predicate.operands)
        case ir.IsNull(negated=True):
            return _is_null_with(predicate.operand, variable)
        case ir.Not(operand=ir.IsNull(negated=False) as test):
            return _is_null_with(test.operand, variable)
        case ir.TextMatch():
            return _is_null_with(predicate.field, variable)
    return _is_null_with(predicate, variable)


def _is_null_with(value: ir.Value, variable: str) -> bool:
    """Whether a value is null for every row in which the variable is."""
    match value:
        case ir.PropertyValue() | ir.UnionProperty() | ir.MetaValue() | ir.EntityValue() | ir.VariableValue():
            return value.variable == variable
        case ir.Compare() | ir.Arithmetic():
            return _is_null_with(value.left, variable) or _is_null_with(value.right, variable)
        case ir.Not() | ir.Negative():
            return _is_null_with(value.operand, variable)
        case ir.In():
            return _is_null_with(value.item, variable)
        case ir.And() | ir.Or():
            return all(_is_null_with(operand, variable) for operand in value.operands)
        case ir.Call() if value.function not in _KEEP_NULLS_OUT:
            return any(_is_null_with(argument, variable) for argument in value.arguments)
    return False


# ---- stages and feeds -----------------------------------------------------------------------------------


def _unordered_offsets(query: str, stages: Iterable[resolved.Stage]) -> Iterator[LocatedFinding]:
    is_ordered = False
    for stage in stages:
        is_ordered |= bool(stage.sort) or stage.ranking is not None
        if stage.offset != 0 and not is_ordered:
            message = (
                f"query '{query}' skips rows by `offset` without `order`, so which ones is not defined; add `order`"
            )
            yield LocatedFinding(Finding("warning", UNORDERED_OFFSET, message, query_names=(query,)), stage.offset_at)
            return


def _reads_of_old_rows(query: CompiledQuery, body: resolved.Writes) -> Iterator[LocatedFinding]:
    written: set[TouchedType] = set()
    for statement in body.statements:
        if isinstance(statement, resolved.ForEachRow):
            for touched in sorted(types_read(query.resolved, statement.feed) & written, key=lambda t: t.type_name):
                message = (
                    f"query '{query.name}' reads {touched.type_name} after a statement that writes it, and sees the "
                    "rows from before the query; split it into two queries if it has to see the new ones"
                )
                finding = Finding("warning", READS_OLD_ROWS, message, touched.type_name, query_names=(query.name,))
                yield LocatedFinding(finding, statement.at)
        for write in writes_of(statement):
            written |= types_written(write)


def _nulls_for_defaults(query: CompiledQuery, body: resolved.Writes) -> Iterator[LocatedFinding]:
    plans = ((statement, write.plan) for statement in body.statements for write in writes_of(statement))
    for statement, plan in plans:
        for assign in plan.assignments if isinstance(plan, ir.InsertNode | ir.InsertEdge) else ():
            prop, value = assign.property, assign.value
            if prop.default is not None and isinstance(value, ir.ParameterValue) and value.type.nullable:
                named = f"{plan.type.name}.{prop.name}"
                outcome = "null is stored" if prop.type.nullable else "the insert is refused"
                message = (
                    f"query '{query.name}' gives {named} the parameter ${value.name}, and where it is null {outcome}; "
                    f"the default {prop.default_text} is for an insert without the property"
                )
                finding = Finding("info", NULL_FOR_DEFAULT, message, plan.type.name, prop.name, (query.name,))
                yield LocatedFinding(finding, statement.at)
