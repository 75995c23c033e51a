"""Writes `.gq` text in its one canonical layout and keeps every comment.

`omnigraph fmt` calls `format_queries`; listings of stored queries spell single expressions. Only the layout changes:
the result parses to an equal tree, and formatting it again changes nothing. A comment stays beside the code it was
written beside; one inside a line moves above it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from omnigraph.language.query import syntax as ast
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.query.tokens import Scan
from omnigraph.language.source import TextSpan, quote


def spell(expression: ast.Expression) -> str:
    """The canonical text of an expression."""
    match expression:
        case ast.Variable():
            return f"${expression.name}"
        case ast.PropertyAccess():
            return f"${expression.variable.name}.{expression.property.text}"
        case ast.StringLiteral():
            return quote(expression.value)
        case ast.IntegerLiteral():
            return str(expression.value)
        case ast.FloatLiteral():
            return expression.text
        case ast.BooleanLiteral():
            return "true" if expression.value else "false"
        case ast.DateLiteral():
            return f"date({quote(expression.text)})"
        case ast.DateTimeLiteral():
            return f"datetime({quote(expression.text)})"
        case ast.ListLiteral():
            return f"[{', '.join(spell(item) for item in expression.items)}]"
        case ast.Now():
            return "now()"
        case ast.Alias():
            return expression.name
        case ast.NearestCall():
            return _call("nearest", expression.target, expression.query)
        case ast.TextCall():
            return _call(expression.function.value, expression.field, expression.query, expression.max_edits)
        case ast.Bm25Call():
            return _call("bm25", expression.field, expression.query)
        case ast.RrfCall():
            return _call("rrf", expression.first, expression.second, expression.k)
        case ast.AggregateCall():
            return _call(expression.function.value, expression.argument)


def _call(function: str, *arguments: ast.Expression | None) -> str:
    return f"{function}({', '.join(spell(argument) for argument in arguments if argument is not None)})"


def spell_parameter_type(parameter: ast.Parameter) -> str:
    """The declared type as written: `String`, `[I64]?`, `Vector(4)`."""
    name = parameter.type_name.text
    if parameter.dimension is not None:
        name = f"{name}({parameter.dimension})"
    if parameter.is_list:
        name = f"[{name}]"
    return name + ("?" if parameter.nullable else "")


WIDTH = 100
INDENT = 4

_BESIDE = re.compile(r"[ \t,]*", re.ASCII)

Item = TypeVar("Item", ast.Parameter, ast.Pin, ast.Projection, ast.SortKey, ast.Assignment)


def format_queries(text: str, path: str | None = None) -> str:
    """The canonical layout of a file. Raises `CompileError` when it does not parse."""
    parsed = parse_queries(text, path)
    return _Printer(text).file(parsed)


class _Printer:
    """Writes lines while it walks tree and comments side by side, both in source order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._comments = deque(Scan(text).comments)
        self._lines: list[str] = []
        self._seen = 0
        self._opening = True

    def file(self, file: ast.QueryFile) -> str:
        for i, query in enumerate(file.queries):
            if i > 0:
                self._lines.append("")
                self._opening = True
            self._query(query)
        self._comments_before(len(self._text) + 1, 0)
        return "\n".join(self._lines) + "\n" if self._lines else ""

    # ---- lines and comments -----------------------------------------------------------------------------

    def _put(self, depth: int, text: str) -> None:
        self._lines.append(" " * (INDENT * depth) + text)
        self._opening = False

    def _open(self, depth: int, text: str) -> None:
        self._put(depth, text)
        self._opening = True

    def _close(self, depth: int, place: TextSpan, text: str) -> None:
        self._comments_before(place.end, depth + 1)
        self._put(depth, text)
        self._end(place.end)

    def _gap(self, start: int) -> None:
        """Keep one blank line where there was at least one, but none right after an opening brace."""
        if not self._opening and self._text.count("\n", self._seen, start) >= 2:
            self._lines.append("")

    def _comments_before(self, offset: int, depth: int) -> None:
        while self._comments and self._comments[0].start_pos < offset:
            comment = self._comments.popleft()
            self._gap(comment.start_pos)
            self._put(depth, comment.rstrip())
            self._seen = comment.end_pos

    def _end(self, end: int) -> None:
        """Something of the source has been written up to `end`; a comment beside it stays beside it."""
        self._seen = max(self._seen, end)
        if self._comments and _BESIDE.fullmatch(self._text, end, max(end, self._comments[0].start_pos)):
            comment = self._comments.popleft()
            self._lines[-1] += f"  {comment.rstrip()}"
            self._seen = comment.end_pos

    def _parenthesis_behind(self, offset: int) -> int:
        """Where the parenthesis ends that closes the parameters: only comments can stand before it."""
        for comment in self._comments:
            if offset <= comment.start_pos:
                if (found := self._text.find(")", offset, comment.start_pos)) >= 0:
                    return found + 1
                offset = comment.end_pos
        return self._text.index(")", offset) + 1

    def _has_comment_before(self, offset: int) -> bool:
        return bool(self._comments) and self._comments[0].start_pos < offset

    def _item(self, depth: int, place: TextSpan, text: str) -> None:
        self._comments_before(place.end, depth)
        self._gap(place.start)
        self._put(depth, text)
        self._end(place.end)

    def _block(
        self,
        depth: int,
        place: TextSpan,
        head: str,
        items: Sequence[Item],
        tail: str,
        spelled: Callable[[Item], str],
    ) -> None:
        """`head items tail` on one line when it fits and holds no comment, otherwise one item per line."""
        self._comments_before(place.start, depth)
        self._gap(place.start)
        padding = " " if tail.startswith("}") else ""
        line = f"{head}{padding}{', '.join(spelled(item) for item in items)}{padding}{tail}"
        if not self._has_comment_before(place.end) and INDENT * depth + len(line) <= WIDTH:
            self._put(depth, line)
        else:
            self._open(depth, head)
            for i, item in enumerate(items):
                self._item(depth + 1, item.at, spelled(item) + ("," if i < len(items) - 1 else ""))
            self._comments_before(place.end, depth + 1)
            self._put(depth, tail)
        if tail.endswith("{"):  # what follows belongs to the body
            self._seen = place.end
        else:
            self._end(place.end)

    # ---- queries ----------------------------------------------------------------------------------------

    def _query(self, query: ast.Query) -> None:
        tail = ")" if query.metas else ") {"
        parameters = query.parameters
        end = self._parenthesis_behind(parameters[-1].at.end) if parameters else query.at.start
        place = TextSpan(query.at.start, end)
        self._block(0, place, f"query {query.name.text}(", parameters, tail, _spell_parameter)
        for meta in query.metas:
            self._opening = True
            self._item(1, meta.at, f"{meta.name}({quote(meta.text)})")
        if query.metas:
            self._put(0, "{")
        self._opening = True
        if isinstance(query.body, ast.Read):
            self._read(query.body)
        else:
            for statement in query.body.statements:
                self._statement(statement)
        self._close(0, query.at, "}")

    def _read(self, read: ast.Read) -> None:
        self._comments_before(read.match.at.start, 1)
        self._open(1, "match {")
        self._clauses(2, read.match.clauses)
        self._close(1, read.match.at, "}")
        returns = read.returns
        self._block(1, returns.at, "return {", returns.projections, "}", _spell_projection)
        if read.order is not None:
            self._block(1, read.order.at, "order {", read.order.keys, "}", _spell_sort_key)
        if read.limit is not None:
            self._item(1, read.limit.at, f"limit {read.limit.count}")

    def _clauses(self, depth: int, clauses: Sequence[ast.Clause]) -> None:
        for clause in clauses:
            self._clause(depth, clause)

    def _clause(self, depth: int, clause: ast.Clause) -> None:
        match clause:
            case ast.Negation():
                self._negation(depth, clause)
            case ast.Binding(pins=()):
                self._item(depth, clause.at, _spell_binding(clause))
            case ast.Binding():
                self._block(depth, clause.at, f"{_spell_binding(clause)} {{", clause.pins, "}", _spell_pin)
            case ast.Traversal():
                self._item(depth, clause.at, _spell_traversal(clause))
            case ast.Filter():
                text = f"{spell(clause.left)} {clause.operator.value} {spell(clause.right)}"
                self._item(depth, clause.at, text)
            case ast.TextClause():
                self._item(depth, clause.at, spell(clause.call))

    def _negation(self, depth: int, negation: ast.Negation) -> None:
        self._comments_before(negation.at.start, depth)
        inline = None if self._has_comment_before(negation.at.end) else _spell_inline(negation)
        if inline is not None and INDENT * depth + len(inline) <= WIDTH:
            self._item(depth, negation.at, inline)
            return
        self._gap(negation.at.start)
        self._open(depth, "not {")
        self._clauses(depth + 1, negation.clauses)
        self._close(depth, negation.at, "}")

    def _statement(self, statement: ast.Statement) -> None:
        name = statement.type_name.text
        match statement:
            case ast.Insert():
                self._block(1, statement.at, f"insert {name} {{", statement.assignments, "}", _spell_assignment)
            case ast.Update():
                tail = f"}} where {_spell_predicate(statement.predicate)}"
                head = f"update {name} set {{"
                self._block(1, statement.at, head, statement.assignments, tail, _spell_assignment)
            case ast.Delete():
                text = f"delete {name} where {_spell_predicate(statement.predicate)}"
                self._item(1, statement.at, text)


def _spell_parameter(parameter: ast.Parameter) -> str:
    return f"${parameter.name}: {spell_parameter_type(parameter)}"


def _spell_pin(pin: ast.Pin) -> str:
    return f"{pin.property.text}: {spell(pin.value)}"


def _spell_assignment(assignment: ast.Assignment) -> str:
    return f"{assignment.property.text}: {spell(assignment.value)}"


def _spell_predicate(predicate: ast.Predicate) -> str:
    return f"{predicate.property.text} {predicate.operator.value} {spell(predicate.value)}"


def _spell_projection(projection: ast.Projection) -> str:
    alias = "" if projection.alias is None else f" as {projection.alias.text}"
    return spell(projection.expression) + alias


def _spell_sort_key(key: ast.SortKey) -> str:
    return spell(key.expression) + ("" if key.direction is None else f" {key.direction}")


def _spell_binding(binding: ast.Binding) -> str:
    return f"${binding.variable.name}: {binding.type_name.text}"


def _spell_traversal(traversal: ast.Traversal) -> str:
    edge = f"<{traversal.edge.text}>" if traversal.undirected else traversal.edge.text
    named = "" if traversal.edge_variable is None else f"${traversal.edge_variable.name}:"
    hops = ""
    if traversal.hops is not None:
        maximum = "" if traversal.hops.maximum is None else traversal.hops.maximum
        hops = f"{{{traversal.hops.minimum},{maximum}}}"
    return f"${traversal.source.name} {named}{edge}{hops} ${traversal.destination.name}"


def _spell_inline(negation: ast.Negation) -> str | None:
    """A negation of one simple clause on one line; None for anything larger."""
    if len(negation.clauses) != 1:
        return None
    match negation.clauses[0]:
        case ast.Traversal() as traversal:
            return f"not {{ {_spell_traversal(traversal)} }}"
        case ast.Filter() as test:
            return f"not {{ {spell(test.left)} {test.operator.value} {spell(test.right)} }}"
        case ast.TextClause() as text:
            return f"not {{ {spell(text.call)} }}"
        case _:
            return None
