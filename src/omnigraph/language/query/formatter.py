"""Writes `.gq` text in its one canonical layout and keeps every comment.

`omnigraph fmt` calls `format_queries`; listings of stored queries spell the types of parameters. Only the layout
changes: the result parses to an equal tree, and formatting it again changes nothing. For the second to hold, nothing
may be broken into lines because of a comment that then moves out of it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from omnigraph.language.layout import Layout
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.query.tokens import RESERVED_WORDS
from omnigraph.language.source import Name, TextSpan, comments, quote, structure_of

_Item: TypeAlias = ast.Parameter | ast.Pin | ast.Assignment | ast.Projection | ast.SortKey
_Block: TypeAlias = ast.Negation | ast.ExistsBlock | ast.AggregateBlock
_Search: TypeAlias = ast.TextCall | ast.NearestCall | ast.Bm25Call | ast.RrfCall
_Call: TypeAlias = ast.Call | ast.ListForm | ast.Reduce | ast.AggregateCall | _Search
_Part: TypeAlias = tuple[str, ast.Expression, str]
"""What is written before an expression, the expression, and what is written behind it."""
Inline = ast.Expression | _Item | ast.Clause | ast.Selector | ast.Each | ast.Unwind
"""The parts of a query that can be written on one line."""

_IDENTIFIER = re.compile(r"[a-z_][A-Za-z0-9_]*", re.ASCII)
_BRANCH_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


# ---- on one line ----------------------------------------------------------------------------------------


def spell(part: Inline) -> str:
    """The canonical text of a part on one line; that of a binding is without its pins."""
    match part:
        case ast.Variable():
            return f"${part.name}"
        case ast.PropertyAccess():
            return f"${part.variable.name}.{part.property.text}{'?' if part.lenient else ''}"
        case ast.MetaAccess():
            return part.field.value if part.variable is None else f"${part.variable.name}.{part.field.value}"
        case ast.StringLiteral():
            return quote(part.value)
        case ast.IntegerLiteral():
            return str(part.value)
        case ast.FloatLiteral():
            return part.text
        case ast.BooleanLiteral():
            return "true" if part.value else "false"
        case ast.NullLiteral():
            return "null"
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
        case ast.And() | ast.Or():
            return f" {_word(part)} ".join(map(spell, part.operands))
        case ast.Not():
            return f"not {spell(part.operand)}"
        case ast.Negative():
            return f"-{spell(part.operand)}"
        case ast.Compare() | ast.Arithmetic():
            return f"{spell(part.left)} {part.operator.value} {spell(part.right)}"
        case ast.In():
            return f"{spell(part.item)} in {spell(part.items)}"
        case ast.IsNull():
            return spell(part.operand) + _null_test(part)
        case ast.Parentheses():
            return f"({spell(part.operand)})"
        case ast.Case():
            return _case(part)
        case ast.Negation() | ast.ExistsBlock() | ast.AggregateBlock() | ast.Optional():
            return f"{_head(part)} {{ {'  '.join(map(spell, part.clauses))} }}"
        case ast.Parameter():
            return f"${part.name}: {spell_parameter_type(part)}"
        case ast.Pin() | ast.Assignment() | ast.Projection() | ast.SortKey():
            before, value, after = _item(part)
            return f"{before}{spell(value)}{after}"
        case ast.Unwind():
            return f"unwind {spell(part.items)} as ${part.variable.name}"
        case ast.Binding():
            return f"${part.variable.name}: {_alternatives([name.text for name in part.type_names])}"
        case ast.Filter():
            return spell(part.condition)
        case ast.Selector():
            edges = list(map(_name, part.edges))
            return f"<{' | '.join(edges) or '*'}>" if part.undirected else _alternatives(edges)
        case ast.Traversal():
            named = "" if part.edge_variable is None else f"${part.edge_variable.name}:"
            hops = ""
            if part.hops is not None:
                hops = f"{{{part.hops.minimum},{'' if part.hops.maximum is None else part.hops.maximum}}}"
            each = "" if part.each is None else f" {spell(part.each)}"
            return f"${part.source.name} {named}{spell(part.selector)}{hops} ${part.destination.name}{each}"
        case ast.Path():
            return f"path ${part.variable.name}: {part.mode.value} {spell(part.traversal)}"
        case ast.Each():
            return f"{_head(part)} {{ {'  '.join(map(spell, part.clauses))} }}"
        case _:
            name, arguments = _call(part)
            return f"{name}({''.join(before + spell(value) + after for before, value, after in arguments)})"


def _word(chain: ast.And | ast.Or) -> str:
    return "and" if isinstance(chain, ast.And) else "or"


def _null_test(test: ast.IsNull) -> str:
    return " is not null" if test.negated else " is null"


def _name(name: Name) -> str:
    """The name of an edge or a column: anything but an identifier is a string."""
    plain = _IDENTIFIER.fullmatch(name.text) and name.text not in RESERVED_WORDS
    return name.text if plain else quote(name.text)


def _branch_name(name: Name) -> str:
    plain = _BRANCH_NAME.fullmatch(name.text) and name.text not in RESERVED_WORDS
    return name.text if plain else quote(name.text)


def _alternatives(names: Sequence[str]) -> str:
    """One name, `(x | y)`, or the star that stands for all."""
    if not names:
        return "*"
    return names[0] if len(names) == 1 else f"({' | '.join(names)})"


def _head(block: _Block | ast.Optional | ast.Each) -> str:
    """What is written before the brace of a block."""
    match block:
        case ast.Negation():
            return "not"
        case ast.Optional():
            return "optional"
        case ast.ExistsBlock():
            return "exists"
        case ast.Each():
            return f"each ${block.edge.name} ${block.node.name}"
        case ast.AggregateBlock():
            return "count" if block.aggregate.argument is None else spell(block.aggregate)


def _case(case: ast.Case) -> str:
    operand = [] if case.operand is None else [spell(case.operand)]
    branches = [f"when {spell(branch.test)} then {spell(branch.value)}" for branch in case.branches]
    otherwise = [] if case.otherwise is None else [f"else {spell(case.otherwise)}"]
    return " ".join(["case", *operand, *branches, *otherwise, "end"])


def _item(item: ast.Pin | ast.Assignment | ast.Projection | ast.SortKey) -> _Part:
    match item:
        case ast.Pin() | ast.Assignment():
            return f"{item.property.text}: ", item.value, ""
        case ast.Projection():
            return "", item.expression, "" if item.alias is None else f" as {_name(item.alias)}"
        case ast.SortKey():
            direction = "" if item.direction is None else f" {item.direction}"
            return "", item.expression, direction + ("" if item.nulls is None else f" nulls {item.nulls}")


def _call(call: _Call) -> tuple[str, list[_Part]]:
    """The name of a function, and what is written in its parentheses."""
    match call:
        case ast.Call():
            names = ["" if argument.name is None else f"{argument.name.text}: " for argument in call.arguments]
            return call.function.text, _in_list(names, [argument.value for argument in call.arguments])
        case ast.ListForm():
            form = [(f"${call.variable.name} in ", call.items, "")]
            form += [] if call.condition is None else [(" where ", call.condition, "")]
            return call.function.value, [*form, (" : ", call.body, "")]
        case ast.Reduce():
            initial = (f"${call.accumulator.name} = ", call.initial, ", ")
            return "reduce", [initial, (f"${call.variable.name} in ", call.items, ""), (" : ", call.body, "")]
        case ast.AggregateCall():
            if call.argument is None:
                return call.function.value, [("", ast.Alias("*"), "")]
            name, arguments = call.function.value, [call.argument, call.fraction]
            return name, _in_list(["distinct " if call.distinct else "", ""], arguments)
        case ast.TextCall():
            return call.function.value, _in_list([], [call.field, call.query, call.max_edits])
        case ast.NearestCall():
            parts = _in_list([], [call.target, call.query])
            if call.exact is not None:
                before, query, _ = parts[-1]
                parts[-1] = before, query, f", exact: {str(call.exact).lower()}"
            return "nearest", parts
        case ast.Bm25Call():
            return "bm25", _in_list([], [call.field, call.query])
        case ast.RrfCall():
            return "rrf", _in_list([], [call.first, call.second, call.k])


def _in_list(names: Sequence[str], arguments: Sequence[ast.Expression | None]) -> list[_Part]:
    """Arguments with what is before each, and commas between them."""
    written = [argument for argument in arguments if argument is not None]
    heads = [*names, *[""] * len(written)]
    return [(heads[i], value, ", " if i + 1 < len(written) else "") for i, value in enumerate(written)]


def spell_parameter_type(parameter: ast.Parameter) -> str:
    """The declared type as written: `String`, `[I64]?`, `Vector(4)`."""
    name = parameter.type_name.text
    if parameter.dimension is not None:
        name = f"{name}({parameter.dimension})"
    if parameter.is_list:
        name = f"[{name}]"
    return name + ("?" if parameter.nullable else "")


# ---- on several lines -----------------------------------------------------------------------------------


def format_queries(text: str, path: str | None = None) -> str:
    """The canonical layout of a file. Raises `CompileError` when it does not parse."""
    file = parse_queries(text, path)
    printer = _Printer(text)
    for query in file.queries:
        printer.blank_line()
        printer.query(query)
    if file.statement is not None:
        printer.statement(file.statement)
    return printer.finish()


class _Expressions(Layout, ABC):
    """Writes an expression on one line where it fits, and otherwise breaks it at its outermost blocks and operators."""

    def __init__(self, text: str) -> None:
        super().__init__(text, loose=True)
        self._structure = structure_of(text)
        self._comment_starts = [comment.start for comment in comments(text)]

    @abstractmethod
    def clauses(self, clauses: Sequence[ast.Clause]) -> None: ...

    def line(self, text: str, end: int) -> None:
        """A line that stands for the text up to `end`; comments in it move above."""
        self.comments_before(end)
        self.put(text)
        self.finish_piece(end)

    def _has_comment_in(self, start: int, end: int) -> bool:
        i = bisect_left(self._comment_starts, start)
        return i < len(self._comment_starts) and self._comment_starts[i] < end

    def breaks(self, expression: ast.Expression) -> bool:
        """Whether an expression needs several lines, however short it is."""
        match expression:
            case ast.Negation() | ast.ExistsBlock() | ast.AggregateBlock():
                return not self.is_short(expression)
            case ast.And() | ast.Or():
                gaps = pairwise(expression.operands)
                if any(self._has_comment_in(left.at.end, right.at.start) for left, right in gaps):
                    return True
            case ast.Case():
                start = expression.at.start if expression.operand is None else expression.operand.at.end
                if self._has_comment_in(start, expression.at.end):
                    return True
        return any(map(self.breaks, _operands(expression)))

    def is_short(self, block: _Block | ast.Optional | ast.Each) -> bool:
        """Whether a block may be on one line: it holds one simple clause and no comment."""
        clause, *others = block.clauses
        aggregate = block.aggregate if isinstance(block, ast.AggregateBlock) else None
        start = block.at.start if aggregate is None else aggregate.at.end
        if others or self._has_comment_in(start, block.at.end):
            return False
        if aggregate is not None and self.breaks(aggregate):
            return False
        match clause:
            case ast.Filter():
                return not self.breaks(clause.condition)
            case ast.Path():
                return clause.traversal.each is None or self.is_short(clause.traversal.each)
            case ast.Traversal():
                return clause.each is None or self.is_short(clause.each)
            case _:
                return False

    def expression(self, head: str, expression: ast.Expression, tail: str = "", end: int = 0) -> None:
        """`head expression tail`, where the tail is what the source has from the expression to `end`."""
        text = f"{head}{spell(expression)}{tail}"
        end = max(end, expression.at.end)
        if len(text) <= self.width and not self.breaks(expression):
            self.line(text, end)
            return
        match expression:
            case ast.And() | ast.Or() | ast.Arithmetic():
                self._chain(head, expression, tail, end)
            case ast.Not():
                self.expression(f"{head}not ", expression.operand, tail, end)
            case ast.Negative():
                self.expression(f"{head}-", expression.operand, tail, end)
            case ast.IsNull():
                self.expression(head, expression.operand, _null_test(expression) + tail, end)
            case ast.Compare():
                self._comparison(head, expression.left, expression.operator.value, expression.right, tail, end)
            case ast.In():
                self._comparison(head, expression.item, "in", expression.items, tail, end)
            case ast.Parentheses():
                self._brackets(f"{head}(", expression, [("", expression.operand, "")], f"){tail}", end)
            case ast.ListLiteral() if expression.items:
                self._brackets(f"{head}[", expression, _in_list([], expression.items), f"]{tail}", end)
            case ast.Case():
                self._case(head, expression, tail, end)
            case ast.Negation() | ast.ExistsBlock() | ast.AggregateBlock():
                self.block(head, expression, tail, end)
            case _ if isinstance(expression, _Call) and _operands(expression):
                name, parts = _call(expression)
                self._brackets(f"{head}{name}(", expression, parts, f"){tail}", end)
            case _:
                self.line(text, end)

    def _end_of_first_line(self, expression: ast.Expression) -> int:
        """Where what is on the first line ends, of an expression that needs several."""
        while self.breaks(expression):
            match expression:
                case ast.And() | ast.Or() | ast.Arithmetic():
                    expression = _links(expression)[0][1]
                case ast.Compare() | ast.In():
                    left, right = _operands(expression)
                    expression = left if self.breaks(left) else right
                case ast.Not() | ast.Negative() | ast.IsNull():
                    expression = expression.operand
                case ast.Case() if expression.operand is not None:
                    expression = expression.operand
                case ast.AggregateBlock():
                    expression = expression.aggregate
                case _:
                    return expression.at.start
        return expression.at.end

    def block(self, head: str, block: _Block | ast.Optional | ast.Each, tail: str, end: int) -> None:
        """A block with a clause on each line."""
        if isinstance(block, ast.AggregateBlock) and self.breaks(block.aggregate):
            self.expression(head, block.aggregate, " {", self._structure.index("{", block.aggregate.at.end) + 1)
        else:
            start = block.aggregate.at.end if isinstance(block, ast.AggregateBlock) else block.at.start
            self.comments_before(start)
            self.put(f"{head}{_head(block)} {{")
        self.indent()
        self.clauses(block.clauses)
        self.close(end, f"}}{tail}")

    def _chain(self, head: str, chain: ast.And | ast.Or | ast.Arithmetic, tail: str, end: int) -> None:
        """Operands on lines of their own, each behind its operator."""
        (_, first), *others = _links(chain)
        rest = "".join(f" {operator} {spell(operand)}" for operator, operand in others) + tail
        gap = self._has_comment_in(first.at.end, others[-1][1].at.start)
        goes_behind = not gap and len(rest) < self.width and not any(self.breaks(operand) for _, operand in others)
        if self.breaks(first) and goes_behind:
            self.expression(head, first, rest, end)
            return
        self.expression(head, first)
        self.indent()
        for operator, operand in others:
            is_last = operand is others[-1][1]
            self.expression(f"{operator} ", operand, tail if is_last else "", end if is_last else 0)
        self.dedent()

    def _comparison(
        self, head: str, left: ast.Expression, operator: str, right: ast.Expression, tail: str, end: int
    ) -> None:
        """Broken in the operand that needs it, or has to bear it."""
        if self.breaks(left) and self.breaks(right):
            # Comments that would be above the first line of the right side are above this one instead.
            self.expression(head, left, f" {operator}", self._end_of_first_line(right))
            self.expression("", right, tail, end)
        elif self.breaks(left) or (not self.breaks(right) and not _operands(right)):
            self.expression(head, left, f" {operator} {spell(right)}{tail}", end)
        else:
            self.expression(f"{head}{spell(left)} {operator} ", right, tail, end)

    def _brackets(self, head: str, expression: ast.Expression, parts: Sequence[_Part], closing: str, end: int) -> None:
        """The content of parentheses or brackets, each part on its line."""
        self.comments_before(expression.at.start)
        self.put(head)
        self.indent()
        for before, value, after in parts:
            self.expression(before.lstrip(), value, after.rstrip())
        self.close(end, closing)

    def _case(self, head: str, case: ast.Case, tail: str, end: int) -> None:
        if case.operand is None:
            self.comments_before(case.at.start)
            self.put(f"{head}case")
        else:
            self.expression(f"{head}case ", case.operand)
        self.indent()
        for branch in case.branches:
            text = f"when {spell(branch.test)} then {spell(branch.value)}"
            if self.breaks(branch.test) or (len(text) > self.width and not self.breaks(branch.value)):
                self.expression("when ", branch.test)
                self.indent()
                self.expression("then ", branch.value)
                self.dedent()
            else:
                self.expression(f"when {spell(branch.test)} then ", branch.value)
        if case.otherwise is not None:
            self.expression("else ", case.otherwise)
        self.close(end, f"end{tail}")


def _links(chain: ast.And | ast.Or | ast.Arithmetic) -> list[tuple[str, ast.Expression]]:
    """The operands of a chain, each with the operator before it."""
    if isinstance(chain, ast.And | ast.Or):
        return [(_word(chain), operand) for operand in chain.operands]
    links: list[tuple[str, ast.Expression]] = []
    left: ast.Expression = chain
    while isinstance(left, ast.Arithmetic) and (left.operator in _SUMS) == (chain.operator in _SUMS):
        links.append((left.operator.value, left.right))
        left = left.left
    return [("", left), *reversed(links)]


_SUMS = (ast.ArithmeticOperator.ADD, ast.ArithmeticOperator.SUBTRACT)


def _operands(expression: ast.Expression) -> Sequence[ast.Expression]:
    """The expressions that an expression is made of; those in the clauses of a block are not among them."""
    match expression:
        case ast.And() | ast.Or():
            return expression.operands
        case ast.Not() | ast.Negative() | ast.IsNull() | ast.Parentheses():
            return (expression.operand,)
        case ast.Compare() | ast.Arithmetic():
            return expression.left, expression.right
        case ast.In():
            return expression.item, expression.items
        case ast.ListLiteral():
            return expression.items
        case ast.Case():
            return [
                *([] if expression.operand is None else [expression.operand]),
                *(operand for branch in expression.branches for operand in (branch.test, branch.value)),
                *([] if expression.otherwise is None else [expression.otherwise]),
            ]
        case ast.AggregateCall() if expression.argument is None:
            return ()
        case _ if isinstance(expression, _Call):
            return [value for _, value, _ in _call(expression)[1]]
        case _:
            return ()


class _Printer(_Expressions):
    """Writes queries and statements."""

    def statement(self, statement: ast.TextStatement) -> None:
        if isinstance(statement, ast.Explain):
            self.query(statement.query, "explain ", statement.at.start)
        else:
            end = max(statement.at.end, self._structure.find(";", statement.at.end) + 1)
            self.piece(TextSpan(statement.at.start, end), _statement(statement))

    def query(self, query: ast.Query, head: str = "", start: int | None = None) -> None:
        start = end = query.at.start if start is None else start
        if query.parameters:  # a comment in the head of other queries belongs to the body
            end = self._structure.index(")", query.parameters[-1].at.end) + 1
        self._items(
            TextSpan(start, end), f"{head}query {query.name.text}(", query.parameters, ")" if query.metas else ") {"
        )
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
                self._write(statement)
        self.close(query.at.end, "}")

    def _begin(self, start: int) -> None:
        """What comes before a part that begins at `start`: comments, and the blank line of the source."""
        self.comments_before(start)
        self.separate(start)
        self._blank = False

    def _items(self, at: TextSpan, head: str, items: Sequence[_Item], tail: str) -> None:
        """`head items tail` on one line when it fits and holds no comment, otherwise one item per line."""
        self._begin(at.start)
        padding = " " if tail.startswith("}") else ""
        line = f"{head}{padding}{', '.join(map(spell, items))}{padding}{tail}"
        values = [_item(item)[1] for item in items if not isinstance(item, ast.Parameter)]
        if not self.has_comment_before(at.end) and len(line) <= self.width and not any(map(self.breaks, values)):
            self.put(line)
        else:
            self.put(head)
            self.indent()
            for item in items:
                self._begin(item.at.start)
                comma = "" if item is items[-1] else ","
                if isinstance(item, ast.Parameter):
                    self.line(spell(item) + comma, item.at.end)
                else:
                    before, value, after = _item(item)
                    self.expression(before, value, after + comma, item.at.end)
            self.comments_before(at.end)
            self.dedent()
            self.put(tail)
        if tail.endswith("{"):  # a comment behind it belongs to the body
            self._end = at.end
        else:
            self.finish_piece(at.end)

    # -- reads

    def _read(self, read: ast.Read) -> None:
        for i, chain in enumerate(read.chains):
            if i:
                self._word("union all" if read.keeps_all[i - 1] else "union", read.chains[i - 1].at.end)
            self._chain_of_stages(chain)

    def _chain_of_stages(self, chain: ast.Chain) -> None:
        if chain.head is not None:
            self._begin(chain.head.at.start)
            self.put("{")
            self.indent()
            self._read(chain.head)
            self.close(chain.head.at.end, "}")
        before: ast.Read | ast.Stage | None = chain.head
        for stage in chain.stages:
            if before is not None:
                self._word("then", before.at.end)
            self._stage(stage)
            before = stage

    def _word(self, words: str, after: int) -> None:
        """Keywords alone on a line, which the tree has no place for."""
        first, *others = words.split()
        start = end = self._structure.index(first, after)
        for word in (first, *others):
            end = self._structure.index(word, end) + len(word)
        self.piece(TextSpan(start, end), words)

    def _stage(self, stage: ast.Stage) -> None:
        self._source(stage.unwinds, stage.match)
        distinct = "distinct " if stage.returns.distinct else ""
        self._items(stage.returns.at, f"return {distinct}{{", stage.returns.projections, "}")
        if stage.order is not None:
            self._items(stage.order.at, "order {", stage.order.keys, "}")
        self._window(stage.limit, stage.offset)

    def _window(self, limit: ast.RowCount | None, offset: ast.RowCount | None) -> None:
        counts = [("limit", limit), ("offset", offset)]
        lines = [(f"{word} {spell(count.value)}", count.at) for word, count in counts if count is not None]
        if limit is not None and offset is not None and offset.at.start < limit.at.start:
            self.piece(TextSpan(offset.at.start, limit.at.end), *(line for line, _ in lines))
            return
        for line, at in lines:
            self.piece(at, line)

    def _source(self, unwinds: Sequence[ast.Unwind], match: ast.Match | None) -> None:
        for unwind in unwinds:
            self._begin(unwind.at.start)
            self.expression("unwind ", unwind.items, f" as ${unwind.variable.name}", unwind.at.end)
        if match is not None:
            self._begin(match.at.start)
            self.put("match {")
            self.indent()
            self.clauses(match.clauses)
            self.close(match.at.end, "}")

    def clauses(self, clauses: Sequence[ast.Clause]) -> None:
        for clause in clauses:
            self._clause(clause)

    def _clause(self, clause: ast.Clause) -> None:
        if isinstance(clause, ast.Binding) and clause.pins:
            self._items(clause.at, f"{spell(clause)} {{", clause.pins, "}")
            return
        self._begin(clause.at.start)
        match clause:
            case ast.Filter():
                self.expression("", clause.condition)
            case ast.Negation() | ast.Optional():
                if self.is_short(clause) and len(spell(clause)) <= self.width:
                    self.line(spell(clause), clause.at.end)
                else:
                    self.block("", clause, "", clause.at.end)
            case ast.Traversal() | ast.Path():
                self._traversal(clause)
            case ast.Binding():
                self.line(spell(clause), clause.at.end)

    def _traversal(self, clause: ast.Traversal | ast.Path) -> None:
        text = spell(clause)
        each = clause.traversal.each if isinstance(clause, ast.Path) else clause.each
        if each is None or (self.is_short(each) and len(text) <= self.width):
            self.line(text, clause.at.end)
        else:
            self.block(text.removesuffix(spell(each)), each, "", clause.at.end)

    # -- writes

    def _write(self, statement: ast.Statement | ast.RowWrite) -> None:
        match statement:
            case ast.ForEachRow():
                self._feed(statement.feed)
                for write in statement.statements:
                    self._write(write)
            case ast.Insert():
                head = f"{statement.mode.value} {statement.type_name.text} {{"
                self._items(statement.at, head, statement.assignments, "}")
            case ast.Update():
                self._update(statement)
            case ast.UpdateVariable():
                head = f"update {spell(statement.variable)} set {{"
                self._items(statement.at, head, statement.assignments, "}")
            case ast.Delete():
                self._begin(statement.at.start)
                self.expression(f"delete {statement.type_name.text} where ", statement.condition)
            case ast.DeleteVariable():
                self.piece(statement.at, f"delete {spell(statement.variable)}")

    def _update(self, update: ast.Update) -> None:
        head = f"update {update.type_name.text} set {{"
        where = f"where {spell(update.condition)}"
        if len(where) + len("} ") <= self.width and not self.breaks(update.condition):
            self._items(update.at, head, update.assignments, f"}} {where}")
            return
        closing = self._structure.index("}", update.assignments[-1].at.end) + 1
        self._items(TextSpan(update.at.start, closing), head, update.assignments, "}")
        self.expression("where ", update.condition)

    def _feed(self, feed: ast.Feed) -> None:
        if feed.chain is not None:
            self._chain_of_stages(feed.chain)
            self._word("then", feed.chain.at.end)
        self._source(feed.unwinds, feed.match)


def _statement(statement: ast.BranchCreate | ast.BranchDelete | ast.BranchMerge | ast.BranchList) -> str:
    match statement:
        case ast.BranchCreate():
            source = "" if statement.source is None else f" from {_branch_name(statement.source)}"
            return f"branch create {_branch_name(statement.name)}{source}"
        case ast.BranchDelete():
            return f"branch delete {_branch_name(statement.name)}"
        case ast.BranchMerge():
            target = "" if statement.target is None else f" into {_branch_name(statement.target)}"
            return f"branch merge {_branch_name(statement.source)}{target}"
        case ast.BranchList():
            return "branch list"
