"""Turns reductions of the query grammar into syntax nodes.

The parser hands an instance to lark as its inline transformer: each method is named after a grammar rule and
receives the rule's children. It must stay stateless, because one parser serves every thread. Operators get their
precedence here, from the flat expressions of the grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from omnigraph.language.query import syntax as ast
from omnigraph.language.query.syntax_errors import FOREIGN_CLAUSES
from omnigraph.language.query.tokens import Lexeme
from omnigraph.language.source import (
    MalformedTokenError,
    Name,
    SyntaxNode,
    TextSpan,
    between,
    name_of,
    text_of,
    unquote,
)

# Far above anything a person nests, and far below what the recursive passes over the tree can take.
MAX_NESTING: Final = 64

# Python refuses to convert texts of many thousand digits, and messages should not have to show them.
_MOST_DIGITS = 100
_INT64_MAX = 2**63 - 1

Built = TypeVar("Built")
Builder = Callable[["TreeBuilder", list[Any]], Built]


class MisplacedError(MalformedTokenError):
    """Tokens that the rules of the grammar take in this order, and the language does not."""

    def __init__(self, message: str, at: TextSpan, suggestion: str | None = None) -> None:
        super().__init__(message, at)
        self.suggestion = suggestion


def _variable(token: Lexeme) -> ast.Variable:
    return ast.Variable(token[1:], at=between(token, token))


def _integer(token: Lexeme) -> int:
    digits = token.lstrip("0")
    if len(digits) > _MOST_DIGITS:
        raise MalformedTokenError("integer literal does not fit a signed 64-bit integer", between(token, token))
    return int(digits or "0")


def _small_integer(token: Lexeme) -> int:
    """A number that is not an operand, so no later check looks at it."""
    value = _integer(token)
    if value > _INT64_MAX:
        raise MalformedTokenError("integer literal does not fit a signed 64-bit integer", between(token, token))
    return value


def _written_name(token: Lexeme) -> Name:
    """A name that may be written as a string, which lets it be any text."""
    if not token.startswith('"'):
        return name_of(token)
    return Name(unquote(token, token.start_pos), at=between(token, token))


def _token(node: Callable[..., Built], read: Callable[[Lexeme], object]) -> Builder[Built]:
    """The builder of a rule whose value is that of its only token."""
    return lambda _, parts: node(read(parts[0]), at=between(parts[0], parts[0]))


def _block(node: Callable[..., Built], step: int = 1) -> Builder[Built]:
    """The builder of a rule whose parts are in braces behind a keyword, with `step - 1` commas between them."""
    return lambda _, parts: node(tuple(parts[2:-1:step]), at=between(parts[0], parts[-1]))


def _pair(node: Callable[..., Built]) -> Builder[Built]:
    """The builder of `name: value`."""
    return lambda _, parts: node(name_of(parts[0]), parts[1], at=TextSpan(parts[0].start_pos, parts[1].at.end))


def _search(node: Callable[..., Built]) -> Builder[Built]:
    """The builder of `keyword(property, query)`."""
    return lambda _, parts: node(parts[2], parts[4], at=between(parts[0], parts[-1]))


def _nodes(parts: Sequence[Any]) -> tuple[Any, ...]:
    """The syntax nodes among the parts of a rule."""
    return tuple(part for part in parts if isinstance(part, SyntaxNode))


# ---- precedence -----------------------------------------------------------------------------------------


class _Operators:
    """Reads the flat parts of one expression: prefixes, operands, and what joins them."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts
        self._next = 0

    def _symbol(self) -> Lexeme | None:
        """The next part, if it is an operator."""
        part = self._parts[self._next] if self._next < len(self._parts) else None
        return part if isinstance(part, Lexeme) else None

    def read(self) -> ast.Expression:
        conjunctions: list[ast.Expression] = []
        tests = [self._test()]
        while (symbol := self._symbol()) is not None:
            self._next += 1
            if symbol.type == "OR":
                conjunctions.append(_join(ast.And, tests))
                tests = []
            tests.append(self._test())
        conjunctions.append(_join(ast.And, tests))
        return _join(ast.Or, conjunctions)

    def _prefixes(self, kind: str) -> list[Lexeme]:
        """The tokens of this kind before an operand."""
        start = self._next
        while (symbol := self._symbol()) is not None and symbol.type == kind:
            self._next += 1
        prefixes = self._parts[start : self._next]
        if len(prefixes) > MAX_NESTING:
            raise _too_long(prefixes[MAX_NESTING])
        return prefixes

    def _test(self) -> ast.Expression:
        prefixes = self._prefixes("NOT")
        test = self._comparison()
        for prefix in reversed(prefixes):
            test = ast.Not(test, at=TextSpan(prefix.start_pos, test.at.end))
        return test

    def _comparison(self) -> ast.Expression:
        compared = self._sum()
        symbol = self._symbol()
        if symbol is None or symbol.type in ("AND", "OR"):
            return compared
        self._next += 1
        if isinstance(compared, ast.Negation):
            raise MisplacedError(f"'not {{ }}' is not an operand of '{symbol}'", between(symbol, symbol))
        if symbol.type == "IS":
            compared = self._null_test(compared)
        else:
            right = self._sum()
            at = TextSpan(compared.at.start, right.at.end)
            if symbol.type == "IN":
                compared = ast.In(compared, right, at=at)
            else:
                compared = ast.Compare(compared, ast.Comparison(symbol), right, at=at)
        again = self._symbol()
        if again is not None and again.type not in ("AND", "OR"):
            message = f"comparisons do not chain: '{again}' can't follow '{symbol}'"
            raise MisplacedError(message, between(again, again), "join two comparisons by and, or use parentheses")
        return compared

    def _null_test(self, operand: ast.Expression) -> ast.IsNull:
        negation, null = self._parts[self._next : self._next + 2]
        self._next += 2
        return ast.IsNull(operand, negation is not None, at=TextSpan(operand.at.start, null.end_pos))

    def _sum(self) -> ast.Expression:
        return self._chain(self._term, "+-")

    def _term(self) -> ast.Expression:
        return self._chain(self._sign, "*/%")

    def _chain(self, operand: Callable[[], ast.Expression], operators: str) -> ast.Expression:
        left = operand()
        length = 0
        while (symbol := self._symbol()) is not None and symbol in operators:
            self._next += 1
            length += 1
            if length > MAX_NESTING:
                raise _too_long(symbol)
            right = operand()
            for side in (left, right):
                if isinstance(side, ast.Negation):
                    raise MisplacedError(f"'not {{ }}' is not an operand of '{symbol}'", between(symbol, symbol))
            at = TextSpan(left.at.start, right.at.end)
            left = ast.Arithmetic(left, ast.ArithmeticOperator(symbol), right, at=at)
        return left

    def _sign(self) -> ast.Expression:
        signs = self._prefixes("MINUS")
        operand: ast.Expression = self._parts[self._next]
        self._next += 1
        for sign in reversed(signs):
            if isinstance(operand, ast.Negation):
                raise MisplacedError("'not { }' is not an operand of '-'", between(sign, sign))
            operand = ast.Negative(operand, at=TextSpan(sign.start_pos, operand.at.end))
        return operand


def _join(node: type[ast.And] | type[ast.Or], operands: list[ast.Expression]) -> ast.Expression:
    if len(operands) == 1:
        return operands[0]
    return node(tuple(operands), at=TextSpan(operands[0].at.start, operands[-1].at.end))


def _too_long(token: Lexeme) -> MalformedTokenError:
    message = f"operators are nested deeper than {MAX_NESTING} levels, of which each '{token}' is one"
    return MalformedTokenError(message, between(token, token))


_NESTED_OPERATORS = (ast.Arithmetic, ast.Negative, ast.Not)


def check_operator_depth(tree: Struct) -> None:
    """Raises for operators nested beyond the limit; brackets and `case` are counted as they are read."""
    waiting: list[tuple[Any, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, _NESTED_OPERATORS):
            depth += 1
            if depth > MAX_NESTING:
                raise MalformedTokenError(f"operators are nested deeper than {MAX_NESTING} levels", node.at)
        for field in node.__struct_fields__:
            value = getattr(node, field)
            if isinstance(value, SyntaxNode):
                waiting.append((value, depth))
            elif isinstance(value, tuple):
                waiting.extend((item, depth) for item in value if isinstance(item, SyntaxNode))


# ---- rules ----------------------------------------------------------------------------------------------


class TreeBuilder:
    """One method per grammar rule, or per alternative that has a name."""

    def file(self, parts: list[Any]) -> ast.QueryFile:
        if parts and not isinstance(parts[0], ast.Query):
            return ast.QueryFile((), parts[0])
        return ast.QueryFile(tuple(parts))

    def query(self, parts: list[Any]) -> ast.Query:
        keyword, name, _, parameters, _, metas, _, body, close = parts
        return ast.Query(name_of(name), parameters or (), metas, body, at=between(keyword, close))

    def metas(self, parts: list[Lexeme]) -> tuple[ast.Meta, ...]:
        metas: list[ast.Meta] = []
        for keyword, text, close in zip(parts[::4], parts[2::4], parts[3::4], strict=True):
            if any(meta.name == keyword for meta in metas):
                raise MalformedTokenError(f"duplicate {keyword}", between(keyword, keyword))
            metas.append(ast.Meta(str(keyword), text_of(text), at=between(keyword, close)))
        return tuple(metas)

    def parameters(self, parameters: list[ast.Parameter]) -> tuple[ast.Parameter, ...]:
        return tuple(parameters)

    def parameter(self, parts: list[Any]) -> ast.Parameter:
        variable, _, *written, optional = parts
        is_list = written[0] == "["
        dimension = _small_integer(written[2]) if len(written) == 4 else None
        type_name = name_of(written[1] if is_list else written[0])
        at = between(variable, optional or written[-1])
        return ast.Parameter(variable[1:], type_name, is_list, dimension, optional is not None, at=at)

    # -- statements

    def name(self, parts: list[Lexeme]) -> Name:
        return _written_name(parts[0])

    def branch_create(self, parts: list[Any]) -> ast.BranchCreate:
        keyword, _, name, _, source = parts
        return ast.BranchCreate(name, source, at=TextSpan(keyword.start_pos, (source or name).at.end))

    def branch_delete(self, parts: list[Any]) -> ast.BranchDelete:
        keyword, _, name = parts
        return ast.BranchDelete(name, at=TextSpan(keyword.start_pos, name.at.end))

    def branch_merge(self, parts: list[Any]) -> ast.BranchMerge:
        keyword, _, source, _, target = parts
        return ast.BranchMerge(source, target, at=TextSpan(keyword.start_pos, (target or source).at.end))

    def branch_list(self, parts: list[Lexeme]) -> ast.BranchList:
        return ast.BranchList(at=between(parts[0], parts[1]))

    def explain(self, parts: list[Any]) -> ast.Explain:
        return ast.Explain(parts[1], at=TextSpan(parts[0].start_pos, parts[1].at.end))

    # -- reads

    def read(self, parts: list[Any]) -> ast.Read:
        chains = tuple(parts[::3])
        keeps_all = tuple(word is not None for word in parts[2::3])
        return ast.Read(chains, keeps_all, at=TextSpan(chains[0].at.start, chains[-1].at.end))

    def enclosed(self, parts: list[Any]) -> ast.Read:
        opening, read, closing = parts
        return ast.Read(read.chains, read.keeps_all, at=between(opening, closing))

    def chain(self, parts: list[Any]) -> ast.Chain:
        at = TextSpan(parts[0].at.start, parts[-1].at.end)
        if isinstance(parts[0], ast.Read):
            return ast.Chain(parts[0], tuple(parts[1:]), at=at)
        return ast.Chain(None, tuple(parts), at=at)

    def stage(self, parts: list[Any]) -> ast.Stage:
        unwinds, match, returns, order, window = parts
        limit, offset = window or (None, None)
        first = unwinds[0] if unwinds else match or returns
        ends = [part.at.end for part in (returns, order, limit, offset) if part is not None]
        at = TextSpan(first.at.start, max(ends))
        return ast.Stage(unwinds or (), match, returns, order, limit, offset, at=at)

    def unwinds(self, parts: list[ast.Unwind]) -> tuple[ast.Unwind, ...]:
        return tuple(parts)

    def unwind(self, parts: list[Any]) -> ast.Unwind:
        keyword, items, _, variable = parts
        return ast.Unwind(items, _variable(variable), at=between(keyword, variable))

    match = _block(ast.Match)
    order = _block(ast.Order, step=2)

    def returns(self, parts: list[Any]) -> ast.Return:
        keyword, distinct, _, *projections, closing = parts
        first = projections[0]
        if first.expression == ast.Alias("distinct") and first.alias is None and len(projections) > 1:
            remedy = "return distinct { $x.p }, or in an aggregate: count(distinct $x.p)"
            raise MisplacedError("distinct comes before the braces", first.at, remedy)
        return ast.Return(tuple(projections), distinct is not None, at=between(keyword, closing))

    def projection(self, parts: list[Any]) -> ast.Projection:
        expression, alias = parts
        name = None if alias is None else _written_name(alias)
        return ast.Projection(expression, name, at=TextSpan(expression.at.start, (name or expression).at.end))

    def sort_key(self, parts: list[Any]) -> ast.SortKey:
        expression, direction, nulls = parts
        last = nulls or direction
        if last is not None and isinstance(expression, ast.NearestCall):
            message = f"found '{direction or nulls}' behind a ranking"
            remedy = "nearest(...) always ranks the closest first and takes no direction"
            raise MisplacedError(message, between(direction or nulls, last), remedy)
        end = expression.at.end if last is None else last.end_pos
        at = TextSpan(expression.at.start, end)
        return ast.SortKey(expression, direction and str(direction), nulls and str(nulls), at=at)

    def limit_first(self, parts: list[Any]) -> tuple[ast.RowCount, ast.RowCount | None]:
        limit, offset = parts
        return limit, offset

    def offset_first(self, parts: list[Any]) -> tuple[ast.RowCount | None, ast.RowCount]:
        offset, limit = parts
        return limit, offset

    def limit(self, parts: list[Lexeme]) -> ast.RowCount:
        keyword, count = parts
        at = between(count, count)
        value = _variable(count) if count.type == "VAR" else ast.IntegerLiteral(_integer(count), at=at)
        return ast.RowCount(value, at=between(keyword, count))

    offset = limit

    # -- clauses

    def filter(self, parts: list[Any]) -> ast.Negation | ast.Filter:
        (condition,) = parts
        tested = condition.operand if isinstance(condition, ast.Not) else condition
        if isinstance(tested, ast.Alias) and (remedy := FOREIGN_CLAUSES.get(tested.name)) is not None:
            raise MisplacedError(f"'{tested.name}' is neither a clause nor an operator", tested.at, remedy)
        return condition if isinstance(condition, ast.Negation) else ast.Filter(condition, at=condition.at)

    optional = _block(ast.Optional)
    pin = _pair(ast.Pin)

    def binding(self, parts: list[Any]) -> ast.Binding:
        variable = parts[0]
        types = tuple(name_of(part) for part in parts if isinstance(part, Lexeme) and part.type == "TYPE_NAME")
        pins = tuple(part for part in parts if isinstance(part, ast.Pin))
        return ast.Binding(_variable(variable), types, pins, at=between(variable, parts[-1]))

    def traversal(self, parts: list[Any]) -> ast.Traversal:
        source, edge_variable, selector, hops, destination, each = parts
        end = destination.end_pos if each is None else each.at.end
        at = TextSpan(source.start_pos, end)
        ends = _variable(source), _variable(destination)
        return ast.Traversal(ends[0], selector, edge_variable, hops, ends[1], each, at=at)

    def edge_binding(self, parts: list[Lexeme]) -> ast.Variable:
        return _variable(parts[0])

    def selector(self, parts: list[Lexeme]) -> ast.Selector:
        edges = tuple(_written_name(part) for part in parts if part.type in ("IDENT", "STRING"))
        return ast.Selector(edges, parts[0].type == "ANGLE", at=between(parts[0], parts[-1]))

    def hops(self, parts: list[Any]) -> ast.Hops:
        minimum, maximum = parts
        most = None if maximum is None else _small_integer(maximum)
        return ast.Hops(_small_integer(minimum), most, at=between(minimum, maximum or minimum))

    def each(self, parts: list[Any]) -> ast.Each:
        keyword, edge, node, _, *clauses, closing = parts
        return ast.Each(_variable(edge), _variable(node), tuple(clauses), at=between(keyword, closing))

    def path(self, parts: list[Any]) -> ast.Path:
        keyword, variable, mode, source, *rest = parts
        traversal = self.traversal([source, None, *rest])
        at = TextSpan(keyword.start_pos, traversal.at.end)
        return ast.Path(_variable(variable), ast.PathMode(mode), traversal, at=at)

    # -- expressions

    def expression(self, parts: list[Any]) -> ast.Expression:
        return _Operators(parts).read()

    def variable(self, parts: list[Lexeme]) -> ast.Variable:
        return _variable(parts[0])

    def property_access(self, parts: list[Any]) -> ast.PropertyAccess:
        variable, _, name, lenient = parts
        at = between(variable, lenient or name)
        return ast.PropertyAccess(_variable(variable), name_of(name), lenient is not None, at=at)

    def target(self, parts: list[Lexeme]) -> ast.PropertyAccess:
        variable, name = parts
        return ast.PropertyAccess(_variable(variable), name_of(name), at=between(variable, name))

    def meta_access(self, parts: list[Any]) -> ast.MetaAccess:
        variable, _, field, lenient = parts
        return ast.MetaAccess(_variable(variable), ast.MetaField(field), at=between(variable, lenient or field))

    def row_meta(self, parts: list[Lexeme]) -> ast.MetaAccess:
        return ast.MetaAccess(None, ast.MetaField(parts[0]), at=between(parts[0], parts[0]))

    alias = _token(ast.Alias, str)
    string_literal = _token(ast.StringLiteral, text_of)
    integer_literal = _token(ast.IntegerLiteral, _integer)
    float_literal = _token(ast.FloatLiteral, str)
    boolean_literal = _token(ast.BooleanLiteral, lambda token: token == "true")

    def null_literal(self, parts: list[Lexeme]) -> ast.NullLiteral:
        return ast.NullLiteral(at=between(parts[0], parts[0]))

    def list_literal(self, parts: list[Any]) -> ast.ListLiteral:
        return ast.ListLiteral(_nodes(parts), at=between(parts[0], parts[-1]))

    def parentheses(self, parts: list[Any]) -> ast.Parentheses:
        opening, operand, closing = parts
        return ast.Parentheses(operand, at=between(opening, closing))

    def case(self, parts: list[Any]) -> ast.Case:
        keyword, operand, *branches, _, otherwise, end = parts
        return ast.Case(operand, tuple(branches), otherwise, at=between(keyword, end))

    def case_branch(self, parts: list[Any]) -> ast.CaseBranch:
        keyword, test, _, value = parts
        return ast.CaseBranch(test, value, at=TextSpan(keyword.start_pos, value.at.end))

    named_argument = _pair(ast.Argument)

    def call(self, parts: list[Any]) -> ast.Expression:
        function, at = parts[0], between(parts[0], parts[-1])
        arguments = _nodes(parts)
        if function == "now" and not arguments:
            return ast.Now(at=at)
        if len(arguments) == 1 and isinstance(arguments[0], ast.StringLiteral):
            if function == "date":
                return ast.DateLiteral(arguments[0].value, at=at)
            if function == "datetime":
                return ast.DateTimeLiteral(arguments[0].value, at=at)
        named = (part if isinstance(part, ast.Argument) else ast.Argument(None, part, at=part.at) for part in arguments)
        return ast.Call(name_of(function), tuple(named), at=at)

    def list_form(self, parts: list[Any]) -> ast.ListForm:
        keyword, _, variable, _, items, where, condition, _, body, closing = parts
        function = ast.ListFunction(keyword)
        if where is not None and function is not ast.ListFunction.MAP:
            message = f"{keyword} takes no where: join the conditions by and; only map has one"
            raise MisplacedError(message, between(where, where))
        at = between(keyword, closing)
        return ast.ListForm(function, _variable(variable), items, condition, body, at=at)

    def reduce(self, parts: list[Any]) -> ast.Reduce:
        keyword, _, accumulator, _, initial, _, variable, _, items, _, body, closing = parts
        names = _variable(accumulator), _variable(variable)
        return ast.Reduce(names[0], initial, names[1], items, body, at=between(keyword, closing))

    bm25 = _search(ast.Bm25Call)

    def nearest(self, parts: list[Any]) -> ast.NearestCall:
        keyword, _, target, _, query, _, exact, closing = parts
        return ast.NearestCall(target, query, exact, at=between(keyword, closing))

    def option(self, parts: list[Any]) -> bool:
        name, value = parts[0], parts[-1]
        if name != "exact":
            raise MisplacedError(f"nearest() has no option '{name}'; write exact: true", between(name, value))
        return bool(value == "true")

    def text_call(self, parts: list[Any]) -> ast.TextCall:
        keyword, field, query, max_edits = parts[0], parts[2], parts[4], parts[6] if len(parts) > 6 else None
        return ast.TextCall(ast.TextFunction(keyword), field, query, max_edits, at=between(keyword, parts[-1]))

    def rrf(self, parts: list[Any]) -> ast.RrfCall:
        keyword, _, first, _, second, _, k, closing = parts
        return ast.RrfCall(first, second, k, at=between(keyword, closing))

    negation = _block(ast.Negation)
    exists_block = _block(ast.ExistsBlock)

    def aggregate(self, parts: list[Any]) -> ast.AggregateCall:
        keyword, closing = parts[0], parts[-1]
        function, at = ast.AggregateFunction(keyword), between(keyword, closing)
        if len(parts) == 4:
            return ast.AggregateCall(function, None, at=at)
        _, _, distinct, argument, _, fraction, _ = parts
        return ast.AggregateCall(function, argument, distinct is not None, fraction, at=at)

    def count_block(self, parts: list[Any]) -> ast.AggregateBlock:
        keyword, _, *clauses, closing = parts
        aggregate = ast.AggregateCall(ast.AggregateFunction.COUNT, None, at=between(keyword, keyword))
        return ast.AggregateBlock(aggregate, tuple(clauses), at=between(keyword, closing))

    def aggregate_block(self, parts: list[Any]) -> ast.AggregateBlock:
        aggregate, opening, *clauses, closing = parts
        if aggregate.argument is None:
            message = "the matches of a pattern are counted by count { … }"
            raise MisplacedError(message, between(opening, opening))
        return ast.AggregateBlock(aggregate, tuple(clauses), at=TextSpan(aggregate.at.start, closing.end_pos))

    # -- writes

    def writes(self, statements: list[ast.Statement]) -> ast.Writes:
        return ast.Writes(tuple(statements), at=TextSpan(statements[0].at.start, statements[-1].at.end))

    def for_each_row(self, parts: list[Any]) -> ast.ForEachRow:
        feed, *statements = parts
        return ast.ForEachRow(feed, tuple(statements), at=TextSpan(feed.at.start, statements[-1].at.end))

    def feed(self, parts: list[Any]) -> ast.Feed:
        stages = [part for part in parts if isinstance(part, ast.Read | ast.Stage)]
        unwinds = next((part for part in parts if isinstance(part, tuple)), ())
        match = next((part for part in parts if isinstance(part, ast.Match)), None)
        chain = self.chain(stages) if stages else None
        nodes = [node for node in (chain, *unwinds, match) if node is not None]
        return ast.Feed(chain, unwinds, match, at=TextSpan(nodes[0].at.start, nodes[-1].at.end))

    assignment = _pair(ast.Assignment)

    def insert(self, parts: list[Any]) -> ast.Insert:
        if parts[0] == "upsert":
            keyword, type_name, _, *assignments, closing = parts
            mode = ast.InsertMode.UPSERT
        else:
            keyword, new, type_name, _, *assignments, closing = parts
            mode = ast.InsertMode.INSERT if new is None else ast.InsertMode.NEW
        return ast.Insert(name_of(type_name), tuple(assignments), mode, at=between(keyword, closing))

    def update(self, parts: list[Any]) -> ast.Update:
        keyword, type_name, _, _, *assignments, _, _, condition = parts
        at = TextSpan(keyword.start_pos, condition.at.end)
        return ast.Update(name_of(type_name), tuple(assignments), condition, at=at)

    def delete(self, parts: list[Any]) -> ast.Delete:
        keyword, type_name, _, condition = parts
        return ast.Delete(name_of(type_name), condition, at=TextSpan(keyword.start_pos, condition.at.end))

    def update_variable(self, parts: list[Any]) -> ast.UpdateVariable:
        keyword, variable, _, _, *assignments, closing = parts
        return ast.UpdateVariable(_variable(variable), tuple(assignments), at=between(keyword, closing))

    def delete_variable(self, parts: list[Lexeme]) -> ast.DeleteVariable:
        keyword, variable = parts
        return ast.DeleteVariable(_variable(variable), at=between(keyword, variable))
