"""Writes `.gq` text in its one canonical layout and keeps every comment.

`omnigraph fmt` calls `format_queries`; listings of stored queries spell single expressions. Only the layout changes:
the result parses to an equal tree, and formatting it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.language.layout import Layout
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.source import TextSpan, quote

_Item = ast.Parameter | ast.Pin | ast.Assignment | ast.Predicate | ast.Projection | ast.SortKey
Inline = ast.Expression | _Item | ast.Binding | ast.Traversal | ast.Filter | ast.TextClause
"""The parts of a query that are written on one line."""


def spell(part: Inline) -> str:
    """The canonical text of a part; that of a binding without its pins."""
    match part:
        case ast.Variable():
            return f"${part.name}"
        case ast.PropertyAccess():
            return f"${part.variable.name}.{part.property.text}"
        case ast.StringLiteral():
            return quote(part.value)
        case ast.IntegerLiteral():
            return str(part.value)
        case ast.FloatLiteral():
            return part.text
        case ast.BooleanLiteral():
            return "true" if part.value else "false"
        case ast.DateLiteral():
            return f"date({quote(part.text)})"
        case ast.DateTimeLiteral():
            return f"datetime({quote(part.text)})"
        case ast.ListLiteral():
            return f"[{', '.join(map(spell, part.items))}]"
        case ast.Now():
            return "now()"
        case ast.Alias():
            return part.name
        case ast.NearestCall():
            return _call("nearest", part.target, part.query)
        case ast.TextCall():
            return _call(part.function.value, part.field, part.query, part.max_edits)
        case ast.Bm25Call():
            return _call("bm25", part.field, part.query)
        case ast.RrfCall():
            return _call("rrf", part.first, part.second, part.k)
        case ast.AggregateCall():
            return _call(part.function.value, part.argument)
        case ast.Parameter():
            return f"${part.name}: {spell_parameter_type(part)}"
        case ast.Pin() | ast.Assignment():
            return f"{part.property.text}: {spell(part.value)}"
        case ast.Predicate():
            return f"{part.property.text} {part.operator.value} {spell(part.value)}"
        case ast.Projection():
            return spell(part.expression) + ("" if part.alias is None else f" as {part.alias.text}")
        case ast.SortKey():
            return spell(part.expression) + ("" if part.direction is None else f" {part.direction}")
        case ast.Binding():
            return f"${part.variable.name}: {part.type_name.text}"
        case ast.Traversal():
            edge = f"<{part.edge.text}>" if part.undirected else part.edge.text
            named = "" if part.edge_variable is None else f"${part.edge_variable.name}:"
            hops = ""
            if part.hops is not None:
                hops = f"{{{part.hops.minimum},{'' if part.hops.maximum is None else part.hops.maximum}}}"
            return f"${part.source.name} {named}{edge}{hops} ${part.destination.name}"
        case ast.Filter():
            return f"{spell(part.left)} {part.operator.value} {spell(part.right)}"
        case ast.TextClause():
            return spell(part.call)


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


def format_queries(text: str, path: str | None = None) -> str:
    """The canonical layout of a file. Raises `CompileError` when it does not parse."""
    printer = _Printer(text, loose=True)
    for query in parse_queries(text, path).queries:
        printer.blank_line()
        printer.query(query)
    return printer.finish()


class _Printer(Layout):
    def query(self, query: ast.Query) -> None:
        at = TextSpan(query.at.start, self._end_of_head(query))
        self._block(at, f"query {query.name.text}(", query.parameters, ")" if query.metas else ") {")
        for meta in query.metas:
            self.indent()
            self.piece(meta.at, f"{meta.name}({quote(meta.text)})")
            self.dedent()
        if query.metas:
            self.put("{")
        self.indent()
        if isinstance(query.body, ast.Read):
            self._read(query.body)
        else:
            for statement in query.body.statements:
                self._statement(statement)
        self.close(query.at.end, "}")

    def _end_of_head(self, query: ast.Query) -> int:
        """The end of the parenthesis that closes the parameters: only comments can be before it."""
        if not query.parameters:
            return query.at.start
        offset = query.parameters[-1].at.end
        for comment in self._comments:
            if offset <= comment.start:
                if (parenthesis := self._text.find(")", offset, comment.start)) >= 0:
                    return parenthesis + 1
                offset = comment.end
        return self._text.index(")", offset) + 1

    def _block(self, at: TextSpan, head: str, items: Sequence[Inline], tail: str) -> None:
        """`head items tail` on one line when it fits and holds no comment, otherwise one item per line."""
        self.comments_before(at.start)
        self.separate(at.start)
        padding = " " if tail.startswith("}") else ""
        line = f"{head}{padding}{', '.join(map(spell, items))}{padding}{tail}"
        if not self.has_comment_before(at.end) and len(line) <= self.width:
            self.put(line)
        else:
            self.put(head)
            self.indent()
            for item in items:
                self.piece(item.at, spell(item) + ("" if item is items[-1] else ","))
            self.comments_before(at.end)
            self.dedent()
            self.put(tail)
        if tail.endswith("{"):  # a comment behind it belongs to the body
            self._end = at.end
        else:
            self.finish_piece(at.end)

    def _read(self, read: ast.Read) -> None:
        self.comments_before(read.match.at.start)
        self._clauses("match {", read.match)
        self._block(read.returns.at, "return {", read.returns.projections, "}")
        if read.order is not None:
            self._block(read.order.at, "order {", read.order.keys, "}")
        if read.limit is not None:
            self.piece(read.limit.at, f"limit {read.limit.count}")

    def _clauses(self, head: str, block: ast.Match | ast.Negation) -> None:
        self.put(head)
        self.indent()
        for clause in block.clauses:
            if isinstance(clause, ast.Negation):
                self._negation(clause)
            elif isinstance(clause, ast.Binding) and clause.pins:
                self._block(clause.at, f"{spell(clause)} {{", clause.pins, "}")
            else:
                self.piece(clause.at, spell(clause))
        self.close(block.at.end, "}")

    def _negation(self, negation: ast.Negation) -> None:
        """A negation of one simple clause is on one line."""
        self.comments_before(negation.at.start)
        clause, *others = negation.clauses
        if not others and isinstance(clause, ast.Traversal | ast.Filter | ast.TextClause):
            inline = f"not {{ {spell(clause)} }}"
            if len(inline) <= self.width and not self.has_comment_before(negation.at.end):
                self.piece(negation.at, inline)
                return
        self.separate(negation.at.start)
        self._clauses("not {", negation)

    def _statement(self, statement: ast.Statement) -> None:
        name = statement.type_name.text
        match statement:
            case ast.Insert():
                self._block(statement.at, f"insert {name} {{", statement.assignments, "}")
            case ast.Update():
                tail = f"}} where {spell(statement.predicate)}"
                self._block(statement.at, f"update {name} set {{", statement.assignments, tail)
            case ast.Delete():
                self.piece(statement.at, f"delete {name} where {spell(statement.predicate)}")
