"""Makes the syntax tree of the query compiler from a tree of the `.gq` grammar."""

from __future__ import annotations

from typing import Any

from tree_sitter import Node

from omnigraph.language.query import syntax as ast
from omnigraph.language.source import unquote

from .source_tree import SourceTree, children, field, has_word


class QueryTree(SourceTree):
    def file(self) -> ast.QueryFile:
        built = tuple(map(self._build, children(self.root)))
        if built and not isinstance(built[0], ast.Query):
            return ast.QueryFile((), built[0])
        return ast.QueryFile(built)

    def _build(self, node: Node) -> Any:
        return getattr(self, f"_{node.type}")(node)

    def _optionally(self, node: Node | None) -> Any:
        return None if node is None else self._build(node)

    def _part(self, node: Node, name: str) -> Any:
        """What is built of the field of this name, or None where the node has no such field."""
        return self._optionally(node.child_by_field_name(name))

    def _all(self, node: Node, *types: str) -> tuple[Any, ...]:
        return tuple(self._build(child) for child in children(node) if not types or child.type in types)

    def _only(self, node: Node, kind: str) -> Any:
        return next(iter(self._all(node, kind)), None)

    # -- queries and statements

    def _query(self, node: Node) -> ast.Query:
        parameters = self._all(field(node, "parameters"))
        body = self._build(field(node, "body"))
        metas = self._all(node, "metadata")
        return ast.Query(self.name(field(node, "name")), parameters, metas, body, at=self.span(node))

    def _parameter(self, node: Node) -> ast.Parameter:
        type_ = field(node, "type")
        parts = children(type_) or [type_]
        return ast.Parameter(
            self.read(field(node, "name"))[1:],
            self.name(parts[0]),
            type_.type == "list_type",
            int(self.read(parts[1])) if len(parts) > 1 else None,
            has_word(node, "?"),
            at=self.span(node),
        )

    def _metadata(self, node: Node) -> ast.Meta:
        return ast.Meta(self.read(field(node, "name")), unquote(self.read(field(node, "text"))), at=self.span(node))

    def _optional_name(self, node: Node, name: str) -> Any:
        child = node.child_by_field_name(name)
        return None if child is None else self.name(child)

    def _branch_create(self, node: Node) -> ast.BranchCreate:
        return ast.BranchCreate(self.name(field(node, "name")), self._optional_name(node, "source"), at=self.span(node))

    def _branch_delete(self, node: Node) -> ast.BranchDelete:
        return ast.BranchDelete(self.name(field(node, "name")), at=self.span(node))

    def _branch_merge(self, node: Node) -> ast.BranchMerge:
        source = self.name(field(node, "source"))
        return ast.BranchMerge(source, self._optional_name(node, "target"), at=self.span(node))

    def _branch_list(self, node: Node) -> ast.BranchList:
        return ast.BranchList(at=self.span(node))

    def _explain(self, node: Node) -> ast.Explain:
        return ast.Explain(self._only(node, "query"), at=self.span(node))

    # -- reads

    def _read(self, node: Node) -> ast.Read:
        chains = self._all(node, "chain")
        return ast.Read(chains, self._all(node, "union"), at=self.span(node))

    def _union(self, node: Node) -> bool:
        return has_word(node, "all")

    def _enclosed_read(self, node: Node) -> ast.Read:
        (read,) = self._all(node)
        return ast.Read(read.chains, read.keeps_all, at=self.span(node))

    def _chain(self, node: Node) -> ast.Chain:
        return self._stages(children(node))

    def _stages(self, nodes: list[Node]) -> ast.Chain:
        at = self.span(nodes[0], nodes[-1])
        first, *stages = map(self._build, nodes)
        if isinstance(first, ast.Read):
            return ast.Chain(first, tuple(stages), at=at)
        return ast.Chain(None, (first, *stages), at=at)

    def _stage(self, node: Node) -> ast.Stage:
        match, returns, order, limit, offset = (
            self._only(node, kind) for kind in ("match", "return", "order", "limit", "offset")
        )
        return ast.Stage(self._all(node, "unwind"), match, returns, order, limit, offset, at=self.span(node))

    def _unwind(self, node: Node) -> ast.Unwind:
        return ast.Unwind(self._part(node, "items"), self._part(node, "variable"), at=self.span(node))

    def _match(self, node: Node) -> ast.Match:
        return ast.Match(self._all(node), at=self.span(node))

    def _return(self, node: Node) -> ast.Return:
        return ast.Return(self._all(node), has_word(node, "distinct"), at=self.span(node))

    def _projection(self, node: Node) -> ast.Projection:
        value, alias = field(node, "value"), node.child_by_field_name("alias")
        name = None if alias is None else self.name(alias)
        return ast.Projection(self._build(value), name, at=self.span(value, alias))

    def _order(self, node: Node) -> ast.Order:
        return ast.Order(self._all(node), at=self.span(node))

    def _sort_key(self, node: Node) -> ast.SortKey:
        words = (node.child_by_field_name(name) for name in ("direction", "nulls"))
        direction, nulls = (None if word is None else self.read(word) for word in words)
        return ast.SortKey(self._part(node, "value"), direction, nulls, at=self.span(node))

    def _limit(self, node: Node) -> ast.RowCount:
        (value,) = self._all(node)
        return ast.RowCount(value, at=self.span(node))

    _offset = _limit

    # -- clauses

    def _filter(self, node: Node) -> ast.Negation | ast.Filter:
        (condition,) = self._all(node)
        return condition if isinstance(condition, ast.Negation) else ast.Filter(condition, at=self.span(node))

    def _optional(self, node: Node) -> ast.Optional:
        return ast.Optional(self._all(node), at=self.span(node))

    def _binding(self, node: Node) -> ast.Binding:
        types = field(node, "type")
        named = {"any": [], "type_name": [types]}.get(types.type, children(types))
        variable, pins = self._part(node, "variable"), self._all(node, "pin")
        return ast.Binding(variable, tuple(map(self.name, named)), pins, at=self.span(node))

    def _pin(self, node: Node) -> ast.Pin:
        return ast.Pin(self.name(field(node, "property")), self._part(node, "value"), at=self.span(node))

    def _traversal(self, node: Node) -> ast.Traversal:
        return ast.Traversal(
            self._part(node, "source"),
            self._part(node, "edges"),
            self._part(node, "variable"),
            self._only(node, "hops"),
            self._part(node, "destination"),
            self._only(node, "each"),
            at=self.span(node),
        )

    def _path(self, node: Node) -> ast.Path:
        traversal = ast.Traversal(
            self._part(node, "source"),
            self._part(node, "edges"),
            None,
            self._only(node, "hops"),
            self._part(node, "destination"),
            self._only(node, "each"),
            at=self.span(field(node, "source"), node),
        )
        mode = ast.PathMode(self.read(field(node, "mode")))
        return ast.Path(self._part(node, "variable"), mode, traversal, at=self.span(node))

    def _selector(self, node: Node) -> ast.Selector:
        edges = (self.name(child) for child in children(node) if child.type != "any")
        return ast.Selector(tuple(edges), has_word(node, "<"), at=self.span(node))

    def _hops(self, node: Node) -> ast.Hops:
        minimum, *maximum = children(node)
        most = int(self.read(maximum[0])) if maximum else None
        return ast.Hops(int(self.read(minimum)), most, at=self.span(minimum, maximum[0] if maximum else None))

    def _each(self, node: Node) -> ast.Each:
        edge, entity, *clauses = children(node)
        built = tuple(map(self._build, clauses))
        return ast.Each(self._build(edge), self._build(entity), built, at=self.span(node))

    # -- operators

    def _joined(self, node: Node, kind: type[ast.And] | type[ast.Or]) -> ast.And | ast.Or:
        left, right = field(node, "left"), field(node, "right")
        first = self._build(left)
        # An operand that was written in parentheses is a node of its own.
        operands = first.operands if left.type == node.type else (first,)
        return kind((*operands, self._build(right)), at=self.span(node))

    def _or(self, node: Node) -> ast.And | ast.Or:
        return self._joined(node, ast.Or)

    def _and(self, node: Node) -> ast.And | ast.Or:
        return self._joined(node, ast.And)

    def _not(self, node: Node) -> ast.Not:
        return ast.Not(self._part(node, "operand"), at=self.span(node))

    def _negation(self, node: Node) -> ast.Negation:
        return ast.Negation(self._all(node), at=self.span(node))

    def _sides(self, node: Node) -> tuple[Any, str, Any]:
        return self._part(node, "left"), self.read(field(node, "operator")), self._part(node, "right")

    def _comparison(self, node: Node) -> ast.Compare:
        left, operator, right = self._sides(node)
        return ast.Compare(left, ast.Comparison(operator), right, at=self.span(node))

    def _in(self, node: Node) -> ast.In:
        return ast.In(self._part(node, "item"), self._part(node, "items"), at=self.span(node))

    def _is_null(self, node: Node) -> ast.IsNull:
        return ast.IsNull(self._part(node, "operand"), has_word(node, "not"), at=self.span(node))

    def _arithmetic(self, node: Node) -> ast.Arithmetic:
        left, operator, right = self._sides(node)
        return ast.Arithmetic(left, ast.ArithmeticOperator(operator), right, at=self.span(node))

    def _negative(self, node: Node) -> ast.Negative:
        return ast.Negative(self._part(node, "operand"), at=self.span(node))

    # -- operands

    def _variable(self, node: Node) -> ast.Variable:
        return ast.Variable(self.read(node)[1:], at=self.span(node))

    def _property_access(self, node: Node) -> ast.PropertyAccess:
        variable, name = self._part(node, "variable"), self.name(field(node, "property"))
        return ast.PropertyAccess(variable, name, has_word(node, "?"), at=self.span(node))

    def _meta_access(self, node: Node) -> ast.MetaAccess:
        meta = ast.MetaField(self.read(field(node, "field")))
        return ast.MetaAccess(self._part(node, "variable"), meta, at=self.span(node))

    def _name(self, node: Node) -> ast.Alias:
        return ast.Alias(self.read(node), at=self.span(node))

    def _string(self, node: Node) -> ast.StringLiteral:
        return ast.StringLiteral(unquote(self.read(node)), at=self.span(node))

    def _integer(self, node: Node) -> ast.IntegerLiteral:
        return ast.IntegerLiteral(int(self.read(node)), at=self.span(node))

    def _float(self, node: Node) -> ast.FloatLiteral:
        return ast.FloatLiteral(self.read(node), at=self.span(node))

    def _boolean(self, node: Node) -> ast.BooleanLiteral:
        return ast.BooleanLiteral(self.read(node) == "true", at=self.span(node))

    def _null(self, node: Node) -> ast.NullLiteral:
        return ast.NullLiteral(at=self.span(node))

    def _list(self, node: Node) -> ast.ListLiteral:
        return ast.ListLiteral(self._all(node), at=self.span(node))

    def _parentheses(self, node: Node) -> ast.Parentheses:
        (operand,) = self._all(node)
        return ast.Parentheses(operand, at=self.span(node))

    def _case(self, node: Node) -> ast.Case:
        branches = self._all(node, "case_branch")
        return ast.Case(self._part(node, "operand"), branches, self._part(node, "otherwise"), at=self.span(node))

    def _case_branch(self, node: Node) -> ast.CaseBranch:
        return ast.CaseBranch(self._part(node, "test"), self._part(node, "value"), at=self.span(node))

    # -- calls

    def _call(self, node: Node) -> ast.Expression:
        function, *arguments = children(node)
        name, at = self.name(function), self.span(node)
        if name.text == "now" and not arguments:
            return ast.Now(at=at)
        built = tuple(map(self._build, arguments))
        if name.text in ("date", "datetime") and len(built) == 1 and isinstance(built[0], ast.StringLiteral):
            return {"date": ast.DateLiteral, "datetime": ast.DateTimeLiteral}[name.text](built[0].value, at=at)
        named = (part if isinstance(part, ast.Argument) else ast.Argument(None, part, at=part.at) for part in built)
        return ast.Call(name, tuple(named), at=at)

    def _named_argument(self, node: Node) -> ast.Argument:
        return ast.Argument(self.name(field(node, "name")), self._part(node, "value"), at=self.span(node))

    def _function(self, node: Node) -> Any:
        return self.read(field(node, "function"))

    def _list_form(self, node: Node) -> ast.ListForm:
        parts = (self._part(node, name) for name in ("variable", "items", "condition", "body"))
        return ast.ListForm(ast.ListFunction(self._function(node)), *parts, at=self.span(node))

    def _reduce(self, node: Node) -> ast.Reduce:
        parts = (self._part(node, name) for name in ("accumulator", "initial", "variable", "items", "body"))
        return ast.Reduce(*parts, at=self.span(node))

    def _text_call(self, node: Node) -> ast.TextCall:
        parts = (self._part(node, name) for name in ("field", "query", "max_edits"))
        return ast.TextCall(ast.TextFunction(self._function(node)), *parts, at=self.span(node))

    def _nearest(self, node: Node) -> ast.NearestCall:
        exact = node.child_by_field_name("exact")
        is_exact = None if exact is None else self.read(exact) == "true"
        return ast.NearestCall(self._part(node, "target"), self._part(node, "query"), is_exact, at=self.span(node))

    def _bm25(self, node: Node) -> ast.Bm25Call:
        return ast.Bm25Call(self._part(node, "field"), self._part(node, "query"), at=self.span(node))

    def _rrf(self, node: Node) -> ast.RrfCall:
        parts = (self._part(node, name) for name in ("first", "second", "k"))
        return ast.RrfCall(*parts, at=self.span(node))

    def _exists(self, node: Node) -> ast.ExistsBlock:
        return ast.ExistsBlock(self._clauses(node), at=self.span(node))

    def _clauses(self, node: Node) -> tuple[Any, ...]:
        """The clauses of a block, behind what comes before it."""
        return tuple(map(self._build, children(node)[1:]))

    def _aggregate(self, node: Node) -> ast.AggregateCall:
        function, distinct = ast.AggregateFunction(self._function(node)), has_word(node, "distinct")
        argument, fraction = self._part(node, "argument"), self._part(node, "fraction")
        return ast.AggregateCall(function, argument, distinct, fraction, at=self.span(node))

    def _aggregate_block(self, node: Node) -> ast.AggregateBlock:
        aggregate = self._part(node, "aggregate")
        if aggregate is None:
            at = self.span(field(node, "function"))
            aggregate = ast.AggregateCall(ast.AggregateFunction.COUNT, None, at=at)
        return ast.AggregateBlock(aggregate, self._clauses(node), at=self.span(node))

    # -- writes

    def _writes(self, node: Node) -> ast.Writes:
        return ast.Writes(self._all(node), at=self.span(node))

    def _for_each_row(self, node: Node) -> ast.ForEachRow:
        feed, *statements = self._all(node)
        return ast.ForEachRow(feed, tuple(statements), at=self.span(node))

    def _feed(self, node: Node) -> ast.Feed:
        parts = children(node)
        stages = [part for part in parts if part.type in ("stage", "enclosed_read")]
        chain = self._stages(stages) if stages else None
        # Its last token may be `then`.
        at = self.span(parts[0], parts[-1])
        return ast.Feed(chain, self._all(node, "unwind"), self._only(node, "match"), at=at)

    def _assigned(self, node: Node) -> tuple[ast.Assignment, ...]:
        return self._all(node, "assignment")

    def _assignment(self, node: Node) -> ast.Assignment:
        name, value = field(node, "property"), field(node, "value")
        return ast.Assignment(self.name(name), self._build(value), at=self.span(name, value))

    def _insert(self, node: Node) -> ast.Insert:
        plain = ast.InsertMode.NEW if has_word(node, "new") else ast.InsertMode.INSERT
        mode = ast.InsertMode.UPSERT if has_word(node, "upsert") else plain
        return ast.Insert(self.name(field(node, "type")), self._assigned(node), mode, at=self.span(node))

    def _update(self, node: Node) -> ast.Update:
        type_name, condition = self.name(field(node, "type")), self._part(node, "condition")
        return ast.Update(type_name, self._assigned(node), condition, at=self.span(node))

    def _delete(self, node: Node) -> ast.Delete:
        return ast.Delete(self.name(field(node, "type")), self._part(node, "condition"), at=self.span(node))

    def _update_variable(self, node: Node) -> ast.UpdateVariable:
        return ast.UpdateVariable(self._part(node, "variable"), self._assigned(node), at=self.span(node))

    def _delete_variable(self, node: Node) -> ast.DeleteVariable:
        return ast.DeleteVariable(self._part(node, "variable"), at=self.span(node))
