"""Types of search: text calls, which are Bool values, and rankings, which are scores and lead the order of a stage.

Query texts and vectors are literals or parameters: an index is asked once, not once per row. The second half says what
the keys of `order` mean, and what a ranking demands of `limit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.assignments import is_numeric_list
from omnigraph.language.query.check.expressions import property_of, property_value, refuse_blob, type_text
from omnigraph.language.query.check.scope import ORDER, RANKED, Outputs, Scope
from omnigraph.language.query.resolved import OutputName
from omnigraph.language.query.syntax import TextFunction
from omnigraph.language.query.value_types import EntityType, NullType, PathType, is_integer, is_scalar, is_text
from omnigraph.language.types import PropertyType

_FIXED: Final = "use a literal or a parameter"


# ---- text calls -----------------------------------------------------------------------------------------


def check_text_call(scope: Scope, call: ast.TextCall) -> ir.TextMatch | None:
    if scope.refuses(scope.place.search, f"{call.function}()", call.at, "search in a filter of match"):
        return None
    code = "T20" if call.function is TextFunction.MATCH_TEXT else "T19"
    field = _text_field(scope, call.field, call.function, code)
    query = _fixed_input(scope, call.query, f"{call.function}() query", code)
    max_edits = None
    if call.max_edits is not None:
        max_edits = _fixed_input(scope, call.max_edits, f"{call.function}() max_edits", code, integer=True)
        if max_edits is None:
            return None
    if field is None or query is None:
        return None
    return ir.TextMatch(call.function, field, query, max_edits)


def _text_field(
    scope: Scope, field: ast.Expression, function: str, code: str
) -> ir.PropertyValue | ir.UnionProperty | None:
    written = ast.bare(field)
    if isinstance(written, ast.PropertyAccess):
        if _is_edge_property(scope, written, function):
            return None
        value = property_value(scope, written, "T6")
    else:
        value = scope.check(written)
    if value is None:
        return None
    if not is_text(value.type):
        help = "name a String property of a node, as in $x.title"
        scope.report(code, f"{function}() field must be String but got {type_text(value)}", field.at, help=help)
        return None
    if isinstance(value, ir.PropertyValue | ir.UnionProperty):
        return value
    help = "name a String property of a node, as in $x.title"
    scope.report(code, f"{function}() searches a property of a node", field.at, help=help)
    return None


def _is_edge_property(scope: Scope, access: ast.PropertyAccess, function: str) -> bool:
    type_ = scope.variables.get(access.variable.name)
    if not isinstance(type_, EntityType) or not type_.is_edge:
        return False
    scope.mentioned.add(access.variable.name)
    message = f"{function}() searches node properties, but '${access.variable.name}' is an edge"
    scope.report("T23", message, access.at, help="compare the property with contains or matches(…)")
    return True


def _fixed_input(
    scope: Scope, written: ast.Expression, what: str, code: str, *, integer: bool = False
) -> ir.Operand | None:
    """What a search takes beside its property: a text or a whole number that is the same for every row."""
    value = scope.check(written)
    if value is None:
        return None
    if not (is_integer(value.type) if integer else is_text(value.type)):
        wanted = "an integer scalar" if integer else "String"
        scope.report(code, f"{what} must be {wanted} but got {type_text(value)}", written.at, help=_FIXED)
        return None
    if isinstance(value, ir.ParameterValue | ir.Constant):
        return value
    scope.report(code, f"{what} must be the same for every row", written.at, help=_FIXED)
    return None


# ---- rankings -------------------------------------------------------------------------------------------


def check_ranking(scope: Scope, call: ast.NearestCall | ast.Bm25Call | ast.RrfCall) -> ir.Score | None:
    help = "return it as a column, then test the column in the next stage: then match { $score > 0.5 }"
    if scope.refuses(scope.place.rank, f"{rank_name(call)}()", call.at, help):
        return None
    rank = _fused_rank(scope, call) if isinstance(call, ast.RrfCall) else _arm(scope, call)
    return None if rank is None else ir.Score(rank)


def rank_name(call: ast.NearestCall | ast.Bm25Call | ast.RrfCall) -> str:
    match call:
        case ast.NearestCall():
            return "nearest"
        case ast.Bm25Call():
            return "bm25"
        case ast.RrfCall():
            return "rrf"


def _arm(
    scope: Scope, call: ast.NearestCall | ast.Bm25Call, *, fused: bool = False
) -> ir.NearestRank | ir.Bm25Rank | None:
    if isinstance(call, ast.Bm25Call):
        return _bm25(scope, call)
    rank = _nearest(scope, call)
    if rank is not None and fused and isinstance(rank.field, ir.UnionProperty):
        _report_several_types(scope, "rrf", call)
        return None
    return rank


def _report_several_types(scope: Scope, name: str, call: ast.NearestCall | ast.Bm25Call) -> None:
    message = f"{name}() can't rank a variable of several types"
    scope.report("T105", message, call.at, help="rank each type in a part of a union")


def _is_certain(scope: Scope, field: ir.PropertyValue | ir.UnionProperty, call: ast.NearestCall | ast.Bm25Call) -> bool:
    """Whether there is a node to rank in every row."""
    parts = field.parts if isinstance(field, ir.UnionProperty) else (field,)
    if not any(part is not None and part.optional for part in parts):
        return True
    message = f"{rank_name(call)}() can't rank a variable that is optional and may be null"
    scope.report("T105", message, call.at, help="match the variable outside of optional { }")
    return False


def _nearest(scope: Scope, call: ast.NearestCall) -> ir.NearestRank | None:
    if _is_edge_property(scope, call.target, "nearest"):
        return None
    field = property_value(scope, call.target, "T15")
    problem = None if field is None else _field_problem(field)
    if problem is not None:
        scope.report("T15", problem, call.target.at, help="name a Vector property of a node")
        field = None
    query = scope.check(call.query)
    if query is None or not isinstance(field, ir.PropertyValue | ir.UnionProperty):
        return None
    problem = _query_problem(field, query)
    if problem is not None:
        scope.report("T15", problem, call.query.at, help=_FIXED)
        return None
    if not isinstance(query, ir.ParameterValue | ir.Constant):
        scope.report("T15", "nearest() query must be the same for every row", call.query.at, help=_FIXED)
        return None
    return ir.NearestRank(field, query, call.exact is True) if _is_certain(scope, field, call) else None


def _field_problem(field: ir.Value) -> str | None:
    prop = property_of(field)
    if prop is None:
        return f"nearest() requires a Vector property but got {type_text(field)}"
    if not prop.type.is_vector:
        return f"nearest() requires a Vector property but '{prop.name}' has type {field.type}"
    parts = field.parts if isinstance(field, ir.UnionProperty) else ()
    if any(part is not None and part.prop.distance is not prop.distance for part in parts):
        return f"the metrics of property '{prop.name}' disagree between the types of the variable"
    return None


def _query_problem(field: ir.PropertyValue | ir.UnionProperty, query: ir.Value) -> str | None:
    dimension = field.type.dimension if isinstance(field.type, PropertyType) else None
    type_ = query.type
    if isinstance(query, ir.Constant) and isinstance(query.value, tuple) and is_numeric_list(query):
        count = len(query.value)
        return None if count == dimension else f"nearest() needs a vector of {dimension} numbers but got {count}"
    if isinstance(type_, PropertyType) and type_.is_vector:
        fits = type_.dimension == dimension
        return None if fits else f"nearest() needs Vector({dimension}) but got {type_}"
    if is_text(type_):
        return None
    return f"nearest() needs a vector of {dimension} numbers or a String but got {type_text(query)}"


def _bm25(scope: Scope, call: ast.Bm25Call) -> ir.Bm25Rank | None:
    field = _text_field(scope, call.field, "bm25", "T20")
    query = _fixed_input(scope, call.query, "bm25() query", "T20")
    if field is None or query is None:
        return None
    if isinstance(field, ir.UnionProperty):
        _report_several_types(scope, "bm25", call)
        return None
    return ir.Bm25Rank(field, query) if _is_certain(scope, field, call) else None


def _fused_rank(scope: Scope, call: ast.RrfCall) -> ir.FusedRank | None:
    first = _arm(scope, call.first, fused=True)
    second = _arm(scope, call.second, fused=True)
    k = None
    if call.k is not None:
        k = _fixed_input(scope, call.k, "rrf() k", "T21", integer=True)
        if k is None:
            return None
        if isinstance(k, ir.Constant) and isinstance(k.value, int) and k.value <= 0:
            scope.report("T21", "rrf() k must be greater than 0", call.k.at, help="leave it out for 60")
            return None
    return None if first is None or second is None else ir.FusedRank(first, second, k)


# ---- order ----------------------------------------------------------------------------------------------


class ReturnedColumn(Struct, frozen=True):
    """A projection as sort keys see it; `value` is None when it failed."""

    name: str
    written: ast.Expression
    value: ir.Value | None
    has_aggregate: bool


class _Keys:
    """The sort keys of one stage. Beside aggregates and `distinct` they are made of what is returned."""

    def __init__(self, scope: Scope, stage: ast.Stage, columns: Sequence[ReturnedColumn]) -> None:
        self._scope = scope
        self._stage = stage
        self._columns = columns
        self._is_grouped = any(column.has_aggregate for column in columns)
        self._only_returned = self._is_grouped or stage.returns.distinct
        values = [None if c.value is None else ir.OutputValue(i, c.value.type) for i, c in enumerate(columns)]
        by_name = {c.name: value for c, value in zip(reversed(columns), reversed(values), strict=True)}
        self._outputs = Outputs(by_name)
        self._indices: dict[ast.Expression, int] | None = None

    def _index_of(self, written: ast.Expression) -> int | None:
        """The column that is the same expression."""
        if self._indices is None:
            self._indices = {}
            for i, column in enumerate(self._columns):
                self._indices.setdefault(column.written, i)
            if self._only_returned:
                for expression, i in self._indices.items():
                    value = self._columns[i].value
                    self._outputs.by_expression[expression] = None if value is None else ir.OutputValue(i, value.type)
        return self._indices.get(written)

    def key(self, key: ast.SortKey) -> resolved.Sort | None:
        value = self._value(ast.bare(key.expression))
        if value is None:
            return None
        sorted_by = self._columns[value.index].value if isinstance(value, OutputName) else value
        if sorted_by is None or refuse_blob(self._scope, sorted_by, key.expression.at):
            return None
        if isinstance(sorted_by.type, PathType):
            self._scope.report("T108", "a path has no order", key.expression.at, help="order by length(p)")
            return None
        if not _is_sortable(sorted_by):
            self._refuse(key.expression, f"a {type_text(sorted_by)} has no order", "order by a part of it")
            return None
        nulls_first = None if key.nulls is None else key.nulls == "first"
        return resolved.Sort(value, key.direction == "desc", nulls_first, key.at)

    def _value(self, written: ast.Expression) -> ir.Value | OutputName | None:
        scope = self._scope
        if isinstance(written, ast.NearestCall | ast.Bm25Call | ast.RrfCall):
            if self._is_ranked_by_call:
                return scope.check_at(RANKED, written)
            self._refuse(written, "a ranking must be the first sort key", "write it first")
            return None
        is_plain = isinstance(written, ast.PropertyAccess | ast.Variable | ast.MetaAccess) and not self._only_returned
        index = None if is_plain or isinstance(written, ast.Alias) else self._index_of(written)
        if index is not None:
            return None if self._columns[index].value is None else OutputName(index)
        scope.outputs = self._outputs
        value = scope.check_at(ORDER, written)
        scope.outputs = None
        if isinstance(written, ast.Alias) and isinstance(value, ir.OutputValue):
            return OutputName(value.index)
        if value is not None and self._only_returned and reads_rows(value):
            beside = "an aggregate" if self._is_grouped else "distinct"
            reason = f"beside {beside} only what is returned can be sorted by"
            self._refuse(written, reason, "return it, and order by the name of its column")
            return None
        return value

    @property
    def _is_ranked_by_call(self) -> bool:
        assert self._stage.order is not None
        first = ast.bare(self._stage.order.keys[0].expression)
        return isinstance(first, ast.NearestCall | ast.Bm25Call | ast.RrfCall)

    def _refuse(self, written: ast.Expression, reason: str, help: str) -> None:
        message = f"can't order by '{self._scope.text_at(written.at)}': {reason}"
        self._scope.report("T42", message, written.at, help=help)


def check_order(
    scope: Scope, stage: ast.Stage, columns: Sequence[ReturnedColumn]
) -> tuple[tuple[resolved.Sort, ...], ir.Ranking | None]:
    """The keys that are left to sort by, and what the leading key ranks by. A rank call silences the keys after it; the
    name of a score is a value, whose ties they break."""
    written = () if stage.order is None else stage.order.keys
    if not written:
        _check_fused_scores(scope, stage, columns, None)
        return (), None
    keys = _Keys(scope, stage, columns)
    checked = [keys.key(key) for key in written]
    _check_limits(scope, stage, {c.name: c.written for c in columns})
    ranking = None if checked[0] is None else _ranking(checked[0], columns)
    if checked[0] is not None:
        _check_fused_scores(scope, stage, columns, ranking)
    sort = tuple(key for key in checked if key is not None)
    is_silenced = ranking is not None and (len(written) == 1 or not isinstance(sort[0].value, OutputName))
    return () if is_silenced else sort, ranking


def _is_sortable(value: ir.Value) -> bool:
    return is_scalar(value.type) or isinstance(value.type, EntityType | NullType)


def reads_rows(value: ir.Value) -> bool:
    """Whether a value depends on the row: it is not made of constants, columns and its own variables alone."""
    own: set[str] = set()
    for part in ir.walk(value):
        match part:
            case ir.ListForm():
                own.add(part.variable)
            case ir.Reduce():
                own |= {part.variable, part.accumulator}
            case ir.Score():
                return True
            case ir.PropertyValue() | ir.UnionProperty() | ir.MetaValue() | ir.EntityValue() | ir.VariableValue():
                if part.variable not in own:
                    return True
    return False


def _ranking(first: resolved.Sort, columns: Sequence[ReturnedColumn]) -> ir.Ranking | None:
    """A rank call, or the name of one in its natural direction: distances are best when small, scores when large. The
    other way round is a plain sort by value."""
    value = columns[first.value.index].value if isinstance(first.value, OutputName) else first.value
    if not isinstance(value, ir.Score):
        return None
    is_unnatural = first.descending is isinstance(value.rank, ir.NearestRank)
    return None if isinstance(first.value, OutputName) and is_unnatural else value.rank


def _check_fused_scores(
    scope: Scope, stage: ast.Stage, columns: Sequence[ReturnedColumn], ranking: ir.Ranking | None
) -> None:
    """A fused score exists only in the fusion that computes it."""
    for column in columns:
        for part in () if column.value is None else ir.walk(column.value):
            if isinstance(part, ir.Score) and isinstance(part.rank, ir.FusedRank) and part.rank != ranking:
                message = "a score of rrf() exists only in a stage that orders by it, best first"
                help = "order by the same rrf(…), or by its name with desc, and give a limit"
                scope.report("T21", message, column.written.at, help=help)


def _check_limits(scope: Scope, stage: ast.Stage, columns: Mapping[str, ast.Expression]) -> None:
    assert stage.order is not None
    direct = [ast.bare(key.expression) for key in stage.order.keys]
    if stage.limit is None:
        reached = [(e, columns.get(e.name, e) if isinstance(e, ast.Alias) else e) for e in direct]
        for code, call, name in (("T21", ast.RrfCall, "rrf"), ("T17", ast.NearestCall, "nearest")):
            written = next((e for e, meant in reached if isinstance(meant, call)), None)
            if written is not None:
                scope.report(code, f"ordering by {name}() requires a limit clause", written.at, help="add `limit 10`")
    nearest = next((e for e in direct if isinstance(e, ast.NearestCall)), None)
    alias = next((e for e in direct if isinstance(e, ast.Alias)), None)
    if nearest is not None and alias is not None:
        message = f"nearest() and the output column '{alias.name}' as sort keys are not supported together"
        help = "return nearest(…) as a column, and order by its name first"
        scope.report("T18", message, alias.at, help=help)
