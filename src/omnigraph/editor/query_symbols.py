"""The names of a query file: variables and parameters with their stages, and what it mentions of its schema.

The type checker itself says what a variable or an expression is: a `TypeNotes` wraps its functions and notes the types
that they find. Queries that don't parse are left out; of one that does not typecheck, what could be checked is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from omnigraph.editor.schema_symbols import Occurrence, SchemaIndex, Symbol, SymbolKind
from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.query import CHECKS, check_query
from omnigraph.language.query.check.scope import CheckExpression, Checks, Scope
from omnigraph.language.query.parser import DEFAULT_LIMITS, parse_recovering
from omnigraph.language.query.value_types import EntityType, ValueType
from omnigraph.language.source import Name, SourceText, SyntaxNode, TextSpan


class TypeNotes:
    """The types of expressions and variables by their positions, noted while a query is checked."""

    def __init__(self) -> None:
        self.types: dict[tuple[int, int], ValueType] = {}
        self.checks = Checks(
            {kind: partial(self._expression, check) for kind, check in CHECKS.expressions.items()}, self._clauses
        )

    def at(self, at: TextSpan) -> ValueType | None:
        return self.types.get((at.start, at.end))

    def note(self, at: TextSpan, type_: ValueType) -> None:
        self.types[at.start, at.end] = type_

    def _variable(self, scope: Scope, variable: ast.Variable) -> None:
        name = variable.name
        if (local := scope.locals.get(name)) is not None:
            self.note(variable.at, local[1])
        elif (type_ := scope.variables.get(name)) is not None:
            is_entity = isinstance(type_, EntityType) and name in scope.allowed
            self.note(variable.at, EntityType(scope.allowed[name], type_.nullable) if is_entity else type_)

    def _expression(self, check: CheckExpression, scope: Scope, expression: Any) -> Any:
        for part in (expression, getattr(expression, "target", None)):
            if isinstance(part, ast.PropertyAccess | ast.MetaAccess) and part.variable is not None:
                self._variable(scope, part.variable)
        value = check(scope, expression)
        if value is not None:
            self.note(expression.at, value.type)
        return value

    def _clauses(self, scope: Scope, clauses: Sequence[ast.Clause]) -> Any:
        checked = CHECKS.clauses(scope, clauses)
        for clause in clauses:
            for variable in _bound_variables(clause):
                self._variable(scope, variable)
        return checked


def _bound_variables(clause: ast.Clause) -> Iterator[ast.Variable]:
    match clause:
        case ast.Binding():
            yield clause.variable
        case ast.Path():
            yield clause.variable
            yield from _bound_variables(clause.traversal)
        case ast.Traversal():
            yield clause.source
            yield clause.destination
            if clause.edge_variable is not None:
                yield clause.edge_variable


class QueryIndex:
    """The names of one query file. `diagnostics` are those of its syntax."""

    def __init__(
        self,
        path: Path,
        text: str,
        queries: tuple[ast.Query, ...],
        diagnostics: tuple[Diagnostic, ...],
        schema: SchemaIndex | None,
        catalog: Catalog | None,
    ) -> None:
        self.path = path
        self.text = text
        self.queries = queries
        self.diagnostics = diagnostics
        self.catalog = catalog
        self.notes = TypeNotes()
        occurrences: list[Occurrence] = []
        source = SourceText(text, str(path))
        for number, query in enumerate(queries):
            if catalog is not None:
                with contextlib.suppress(CompileError):  # diagnostics come from the compiled file
                    check_query(query, catalog, source, DEFAULT_LIMITS, self.notes.checks)
            occurrences += _QueryNames(query, number, schema, self.notes).occurrences
        self.occurrences = tuple(sorted(occurrences, key=lambda each: each.at.start))
        self._types = {
            occurrence.symbols[0]: type_
            for occurrence in reversed(self.occurrences)
            if occurrence.symbols and (type_ := self.notes.at(_with_sign(occurrence.at))) is not None
        }

    def query_at(self, offset: int) -> ast.Query | None:
        return next((query for query in self.queries if query.at.start <= offset <= query.at.end), None)

    def type_of(self, occurrence: Occurrence) -> ValueType | None:
        """The type of a variable here, or where else it is known."""
        return self.notes.at(_with_sign(occurrence.at)) or self._types.get(occurrence.symbols[0])


def _with_sign(at: TextSpan) -> TextSpan:
    return TextSpan(at.start - 1, at.end)


def _without_sign(variable: ast.Variable) -> TextSpan:
    return TextSpan(variable.at.start + 1, variable.at.end)


def _inside_quotes(name: Name) -> TextSpan:
    """The position of a name that may be written as a string, without the quotes."""
    inset = 0 if name.at.end - name.at.start == len(name.text) else 1
    return TextSpan(name.at.start + inset, name.at.end - inset)


class _QueryNames:
    """Walks one query and notes its names. A stage has the columns of the stage before and its own variables."""

    def __init__(self, query: ast.Query, number: int, schema: SchemaIndex | None, notes: TypeNotes) -> None:
        self.occurrences: list[Occurrence] = []
        self._schema = schema
        self._notes = notes
        self._number = number
        self._serial = count()
        self._row_type: str | None = None
        self._columns: dict[str, Symbol] = {}
        self._add(query.name.at, Symbol(SymbolKind.QUERY, query.name.text), declares=True)
        self._parameters = {each.name: self._new(SymbolKind.PARAMETER, each.name) for each in query.parameters}
        for parameter in query.parameters:
            start = parameter.at.start + 1
            at = TextSpan(start, start + len(parameter.name))
            self._add(at, self._parameters[parameter.name], declares=True)
        if isinstance(query.body, ast.Read):
            self._read(query.body)
        else:
            self._writes(query.body)

    def _new(self, kind: SymbolKind, name: str) -> Symbol:
        return Symbol(kind, name, f"{self._number}:{next(self._serial)}")

    def _add(self, at: TextSpan, *symbols: Symbol, declares: bool = False, owners: tuple[str, ...] = ()) -> None:
        self.occurrences.append(Occurrence(at, symbols, declares, owners))

    # ---- reads ------------------------------------------------------------------------------------------

    def _read(self, read: ast.Read) -> dict[str, Symbol]:
        """The columns of a read. Those of the parts of a union are the same by name."""
        columns: dict[str, Symbol] = {}
        for chain in read.chains:
            columns |= self._chain(chain, columns)
        return columns

    def _chain(self, chain: ast.Chain, shared: dict[str, Symbol]) -> dict[str, Symbol]:
        columns = {} if chain.head is None else self._read(chain.head)
        for stage in chain.stages:
            is_last = stage is chain.stages[-1]
            columns = self._stage(stage, dict(columns), shared if is_last else {})
        return columns

    def _stage(self, stage: ast.Stage, names: dict[str, Symbol], shared: dict[str, Symbol]) -> dict[str, Symbol]:
        for part in (*stage.unwinds, stage.match):
            self._visit(part, names)
        columns: dict[str, Symbol] = {}
        for projection in stage.returns.projections:
            self._visit(projection.expression, names)
            written = ast.bare(projection.expression)
            if projection.alias is not None:
                name = projection.alias
                symbol = shared.get(name.text) or self._new(SymbolKind.VARIABLE, name.text)
                columns[name.text] = symbol
                at = _inside_quotes(name)
                self._add(at, symbol, declares=True)
                if (type_ := self._notes.at(written.at)) is not None:
                    self._notes.note(_with_sign(at), type_)
            elif isinstance(written, ast.Variable) and not written.is_anonymous:
                columns[written.name] = self._symbol(written.name, names)
        self._columns = columns
        self._visit(stage.order, names)
        self._columns = {}
        for bound in (stage.limit, stage.offset):
            self._visit(bound, names)
        return columns

    # ---- writes -----------------------------------------------------------------------------------------

    def _writes(self, writes: ast.Writes) -> None:
        for statement in writes.statements:
            if not isinstance(statement, ast.ForEachRow):
                self._write(statement, {})
                continue
            feed = statement.feed
            names = {} if feed.chain is None else self._chain(feed.chain, {})
            for part in (*feed.unwinds, feed.match):
                self._visit(part, names)
            for write in statement.statements:
                self._write(write, names)

    def _write(self, write: ast.RowWrite, names: dict[str, Symbol]) -> None:
        if isinstance(write, ast.UpdateVariable | ast.DeleteVariable):
            self._visit(write.variable, names)
            owners = self._members(write.variable)
        else:
            owners = []
            if self._schema is not None:
                symbol = self._schema.node_or_edge(write.type_name.text)
                self._add(write.type_name.at, symbol)
                owners = [f"{symbol.kind}:{symbol.name}"]
        for assignment in () if isinstance(write, ast.Delete | ast.DeleteVariable) else write.assignments:
            self._property(assignment.property, owners)
        self._row_type = owners[0] if owners and isinstance(write, ast.Update | ast.Delete) else None
        for assignment in () if isinstance(write, ast.Delete | ast.DeleteVariable) else write.assignments:
            self._visit(assignment.value, names)
        if isinstance(write, ast.Update | ast.Delete):
            self._visit(write.condition, names)
        self._row_type = None

    # ---- parts ------------------------------------------------------------------------------------------

    def _symbol(self, name: str, names: dict[str, Symbol]) -> Symbol:
        if name in self._parameters:
            return self._parameters[name]
        if name not in names:
            names[name] = self._new(SymbolKind.VARIABLE, name)
        return names[name]

    def _visit(self, part: object, names: dict[str, Symbol]) -> None:
        match part:
            case ast.Variable():
                if not part.is_anonymous:
                    is_first = part.name not in names and part.name not in self._parameters
                    self._add(_without_sign(part), self._symbol(part.name, names), declares=is_first)
            case ast.PropertyAccess():
                self._visit(part.variable, names)
                self._property(part.property, self._members(part.variable))
            case ast.Alias():
                self._bare_name(part)
            case ast.Binding():
                self._binding(part, names)
            case ast.Selector():
                self._selector(part)
            case ast.ListForm():
                self._visit(part.items, names)
                inner = self._with_local(part.variable, names)
                for each in (part.variable, part.condition, part.body):
                    self._visit(each, inner)
            case ast.Reduce():
                self._visit(part.initial, names)
                self._visit(part.items, names)
                inner = self._with_local(part.variable, self._with_local(part.accumulator, names))
                for each in (part.accumulator, part.variable, part.body):
                    self._visit(each, inner)
            case ast.Call():
                self._add(part.function.at, Symbol(SymbolKind.FUNCTION, part.function.text))
                self._visit(part.arguments, names)
            case tuple():
                for each in part:
                    self._visit(each, names)
            case SyntaxNode() if not isinstance(part, Name):
                for field in part.__struct_fields__:
                    self._visit(getattr(part, field), names)

    def _with_local(self, variable: ast.Variable, names: dict[str, Symbol]) -> dict[str, Symbol]:
        """The names inside a list form, whose variable hides another one of its name."""
        inner = dict(names)
        inner[variable.name] = self._new(SymbolKind.VARIABLE, variable.name)
        return inner

    def _members(self, variable: ast.Variable) -> list[str]:
        """The keys of the types that a variable can have here."""
        type_ = self._notes.at(variable.at)
        return [member.type_key for member in type_.members] if isinstance(type_, EntityType) else []

    def _property(self, name: Name, owners: Sequence[str]) -> None:
        if self._schema is not None:
            symbols = (self._schema.property(owner, name.text) for owner in owners)
            if unique := tuple(dict.fromkeys(symbol for symbol in symbols if symbol is not None)):
                self._add(name.at, *unique, owners=tuple(owners))

    def _bare_name(self, alias: ast.Alias) -> None:
        if self._row_type is not None:
            self._property(Name(alias.name, at=alias.at), [self._row_type])
        elif alias.name in self._columns:
            self._add(alias.at, self._columns[alias.name])

    def _binding(self, binding: ast.Binding, names: dict[str, Symbol]) -> None:
        self._visit(binding.variable, names)
        owners: list[str] = []
        for name in binding.type_names:
            if self._schema is not None:
                self._add(name.at, self._schema.node_or_interface(name.text))
                owners += self._schema.members_of(name.text)
        for pin in binding.pins:
            self._property(pin.property, owners or self._members(binding.variable))
            self._visit(pin.value, names)

    def _selector(self, selector: ast.Selector) -> None:
        if self._schema is None:
            return
        for name in selector.edges:
            self._add(_inside_quotes(name), self._schema.edge(name.text))


@lru_cache(maxsize=64)
def index_queries(path: Path, text: str, schema: SchemaIndex | None, valid: SchemaIndex | None = None) -> QueryIndex:
    """The names of a query file. `valid` is an earlier text of a schema that has mistakes now: it has the types of
    variables. Never raises."""
    if schema is not None and schema.catalog is not None:
        valid = schema
    catalog = None if valid is None else valid.catalog
    try:
        file, diagnostics = parse_recovering(text, str(path))
    except CompileError as error:
        return QueryIndex(path, text, (), error.diagnostics, schema, catalog)
    queries = file.queries
    if isinstance(file.statement, ast.Explain):
        queries = (file.statement.query,)
    return QueryIndex(path, text, queries, diagnostics, schema, catalog)
