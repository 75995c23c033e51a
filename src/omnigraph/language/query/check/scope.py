"""The context of the type checker at one point of a query: the catalog, the visible names, the sink of findings.

Every module of this package works on a `Scope`. A name whose own declaration failed stays known as broken, so that one
mistake is reported once and not at every use. Expressions hold blocks and blocks hold expressions, so the checkers of
both are given to the scope, and every module calls them through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from copy import copy
from itertools import count
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.language.catalog import Catalog, NodeType, Property, TableType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.value_types import EntityType, ValueType
from omnigraph.language.source import DiagnosticSink, Name, TextSpan, did_you_mean
from omnigraph.language.types import PropertyType

# Looking for near names costs more than the rest of the check; beyond a screenful of findings nobody reads them.
_SUGGESTIONS = 20


class Place(Struct, frozen=True):
    """Where an expression stands: for each kind of operand the code of the finding if it can't stand there, else empty.

    `access` is `$x.p` and `$x.@id`, `bound` a variable that is neither a parameter nor a value, `unbound` one that
    nothing declares, `bare` a bare name or meta-field where there is no row that could have it.
    """

    name: str
    aggregate: str = ""
    block: str = ""
    search: str = ""
    rank: str = ""
    access: str = ""
    bound: str = ""
    unbound: str = "T6"
    bare: str = "T6"
    is_where: bool = False
    is_row_filter: bool = False


FILTER: Final = Place("a filter", aggregate="T7", rank="T7")
RETURN: Final = Place("return", bare="T36")
ORDER: Final = Place("order", aggregate="T42", rank="T42", bare="T42")
RANKED: Final = Place("order")
UNWIND: Final = Place("unwind", aggregate="T100", rank="T100")
EACH: Final = Place("each", aggregate="T107", block="T107", search="T107", rank="T107")
FED_VALUE: Final = Place("the value of a statement", aggregate="T44", rank="T44")
_OWN: Final = Place("", aggregate="T44", block="T44", search="T44", rank="T44", bound="T14", unbound="T14")
WHERE: Final = replace(_OWN, name="where", is_where=True)
ROW_FILTER: Final = replace(_OWN, name="a row filter", is_row_filter=True)
UPDATED_VALUE: Final = replace(_OWN, name="an assigned value")
PIN: Final = replace(_OWN, name="a pin", access="T45", bare="T45")
INSERTED_VALUE: Final = replace(PIN, name="an inserted value")


class Gone(Struct, frozen=True):
    """Why a name can't be used any more: T104 a variable that the stage before did not return, T103 a column of it
    whose name is not a variable, T107 a variable of `each`."""

    code: str
    message: str
    help: str


class Outputs(Struct):
    """The output columns that a sort key may name, and the expressions that mean one; None for a column that failed."""

    by_name: dict[str, ir.OutputValue | None]
    by_expression: dict[ast.Expression, ir.OutputValue | None] = {}


class Scope:
    """One flat namespace per nesting level. `inner` opens a block: it sees everything, and nothing gets out."""

    def __init__(self, catalog: Catalog, findings: DiagnosticSink, checks: Checks) -> None:
        self.catalog = catalog
        self.findings = findings
        self.parameters: dict[str, PropertyType] = {}
        # Every visible variable that is not a parameter: nodes and edges (`EntityType`, nullable when optional), paths,
        # and values of earlier stages and of `unwind`.
        self.variables: dict[str, ValueType] = {}
        # Variables of list forms, which hide everything else of their name, with their names in the plan.
        self.locals: dict[str, tuple[str, ValueType]] = {}
        # The names in the plan of variables that are not called there as they are written.
        self.slots: dict[str, str] = {}
        # The types that are left of an outer variable which clauses of this block narrow; its own type stays.
        self.allowed: dict[str, tuple[TableType, ...]] = {}
        self.broken: set[str] = set()
        # The type whose properties bare names are: in conditions and assignments of mutations, and in row filters.
        self.row: TableType | None = None
        self.place = FILTER
        # The columns that a sort key may name.
        self.outputs: Outputs | None = None
        # Names that were bound and are not visible any more, in the stage before or in `each`: the finding for a use.
        self.gone: dict[str, Gone] = {}
        # The level around this one, the clauses of this one, and the types that they declare where that is not evident.
        self.outside: Scope | None = None
        self.clauses: Sequence[ast.Clause] = ()
        self.declared: Mapping[str, tuple[NodeType, ...]] = {}
        # Names that levels around this block bind later: in the block they are other variables.
        self.later: AbstractSet[str] = frozenset()
        # Variables that this level speaks of, and the number of aggregates that it holds so far.
        self.mentioned: set[str] = set()
        self.aggregates = 0
        # What negations bound so far on their own, at any depth, with the place of the negation.
        self.introduced_inside: list[tuple[str, ValueType, TextSpan]] = []
        # The blocks of the whole query by the hidden variable that stands for each one's value.
        self.blocks: dict[str, resolved.Block] = {}
        # How often bodies of `reduce` were checked anew, for the whole query.
        self.reduce_rounds = count(1)
        self._checks = checks
        self._hidden = count(1)

    # ---- parts ------------------------------------------------------------------------------------------

    def check(self, expression: ast.Expression) -> ir.Value | None:
        """The value of an expression, or None after a finding. Blobs pass: whether one may be read depends on the
        caller."""
        outputs = self.outputs
        if outputs is not None and outputs.by_expression and expression in outputs.by_expression:
            return outputs.by_expression[expression]
        return self._checks.expressions[type(expression)](self, expression)

    def check_clauses(self, clauses: Sequence[ast.Clause]) -> tuple[resolved.Clause, ...]:
        """Every clause that could be resolved; this scope afterwards holds what they bind."""
        return self._checks.clauses(self, clauses)

    def check_at(self, place: Place, expression: ast.Expression) -> ir.Value | None:
        """The value of an expression that stands at another place."""
        outside = self.place
        self.place = place
        value = self.check(expression)
        self.place = outside
        return value

    def refuses(self, code: str, what: str, at: TextSpan, help: str | None = None) -> bool:
        """Report an operand that can't stand at this place, if there is a code for it; whether there was one."""
        if code:
            way = "it takes properties, meta-fields, $actor, literals and calls" if self.place.is_row_filter else help
            self.report(code, f"{what} can't stand in {self.place.name}", at, help=way)
        return bool(code)

    # ---- names ------------------------------------------------------------------------------------------

    def slot(self, variable: ast.Variable) -> str:
        """The name of a variable in the plan. One use of `$_` has a name that no identifier can spell and no other use
        shares."""
        return self.hidden() if variable.is_anonymous else self.slots.get(variable.name, variable.name)

    def hidden(self, kind: str = "") -> str:
        """A name that no identifier can spell and nothing else in the query has."""
        return f"#{kind}{next(self._hidden)}"

    def inner(self) -> Scope:
        scope = copy(self)
        scope.outside, scope.clauses, scope.declared = self, (), {}
        scope.variables, scope.broken = dict(self.variables), set(self.broken)
        scope.slots, scope.allowed = dict(self.slots), dict(self.allowed)
        scope.introduced_inside = []
        scope.mentioned = set()
        scope.place = FILTER
        scope.outputs = None
        return scope

    def stage(self, imported: Mapping[str, ValueType], broken: Iterable[str], gone: dict[str, Gone]) -> Scope:
        """The scope of a stage that gets these variables. This one is that of the query: it holds parameters alone."""
        scope = self.inner()
        scope.outside = None
        scope.variables = dict(imported)
        scope.broken |= set(broken)
        scope.gone = gone
        return scope

    @property
    def bound(self) -> dict[str, ValueType]:
        """The visible variables by their names in the plan."""
        if not self.slots:
            return dict(self.variables)
        return {self.slots.get(name, name): type_ for name, type_ in self.variables.items()}

    def bind(self, name: str, type_: ValueType) -> None:
        """Make a variable visible, or give it another type."""
        if name in self.later and name not in self.variables:
            self.slots[name] = self.hidden(name)
        self.variables[name] = type_
        self.broken.discard(name)

    def may_declare(self, variable: ast.Variable) -> bool:
        """Whether the name may be that of a variable; a finding says why not."""
        if not variable.name.startswith("__"):
            return True
        help = f"write ${variable.name.lstrip('_') or 'x'}"
        self.report("T49", f"variable '${variable.name}' begins with '__', which is reserved", variable.at, help=help)
        return False

    def is_free(self, variable: ast.Variable, what: str) -> bool:
        """Whether a name can be that of something new; a finding says why not."""
        if not self.may_declare(variable):
            return False
        if variable.name not in self.variables and variable.name not in self.parameters:
            return True
        message = f"'${variable.name}' is already in use and can't name {what} as well"
        self.report("T50", message, variable.at, help="choose another name")
        return False

    @contextmanager
    def local(self, variables: dict[str, tuple[str, ValueType]]) -> Iterator[None]:
        """The same scope with variables of a list form, which hide others of their names meanwhile."""
        outside = self.locals
        self.locals = {**outside, **variables}
        try:
            yield
        finally:
            self.locals = outside

    def members(self, name: str, type_: EntityType) -> tuple[TableType, ...]:
        """The types that a node or an edge can have at this point."""
        return self.allowed.get(name, type_.members)

    # ---- findings ---------------------------------------------------------------------------------------

    def report(
        self,
        code: str,
        message: str,
        at: TextSpan,
        *,
        near: str | None = None,
        among: Iterable[str] = (),
        help: str | None = None,
    ) -> None:
        """One finding. `near` is the name that missed, `among` what it could have meant; `help` is any other remedy."""
        suggestion = help
        if near is not None:
            names = list(among)
            is_crowded = len(self.findings.diagnostics) >= _SUGGESTIONS
            suggestion = (None if is_crowded else did_you_mean(near, names)) or help or _list_names(names)
        self.findings.report(code, message, at, suggestion=suggestion)

    def report_unbound(self, variable: ast.Variable, code: str, *, parameters: bool = True) -> None:
        """A variable that is not visible here. Nothing is said about one whose declaration failed."""
        name = variable.name
        if name in self.broken:
            self.mentioned.add(name)
        elif variable.is_anonymous:
            self.report(code, "'$_' never binds and has no value", variable.at, help="name the variable")
        elif self.place.is_row_filter:
            message = f"a row filter knows $actor alone, not '${name}'"
            self.report(code, message, variable.at, help="write properties by their bare names")
        elif code == "T14":
            message = f"'${name}' must be a declared query parameter"
            help = f"declare it: query name(${name}: String)"
            self.report(
                code, message, variable.at, near=f"${name}", among=spelled_variables(self.parameters), help=help
            )
        elif gone := self.gone.get(name):
            self.report(gone.code, gone.message, variable.at, help=gone.help)
        else:
            names = (*self.parameters, *self.variables) if parameters else tuple(self.variables)
            message = f"variable '${name}' is not bound"
            way = None if names else f"bind it before this: ${name}: Type"
            self.report(code, message, variable.at, near=f"${name}", among=spelled_variables(names), help=way)

    def property_of(self, owner: TableType, name: Name, code: str) -> Property | None:
        """The property of a type, or None after a finding under `code`."""
        prop = owner.properties.get(name.text)
        if prop is None:
            message = f"{owner.kind} type '{owner.name}' has no property '{name.text}'"
            self.report(code, message, name.at, near=name.text, among=owner.properties)
        return prop

    def text_at(self, at: TextSpan) -> str:
        """The text of a part of the query on one line, for messages."""
        return " ".join(self.findings.source.text[at.start : at.end].split())


class Checks(Struct, frozen=True):
    """How each kind of expression is checked, and how the clauses of a block are."""

    expressions: Mapping[type, CheckExpression]
    clauses: CheckClauses


CheckExpression: TypeAlias = Callable[[Scope, Any], "ir.Value | None"]
CheckClauses: TypeAlias = Callable[[Scope, Sequence[ast.Clause]], "tuple[resolved.Clause, ...]"]


_MOST_LISTED: Final = 8


def _list_names(names: Sequence[str]) -> str | None:
    """The names that there are, when none of them is near."""
    rest = ", …" if len(names) > _MOST_LISTED else ""
    return f"choose from {', '.join(names[:_MOST_LISTED])}{rest}" if names else None


def spelled_variables(names: Iterable[str]) -> Iterable[str]:
    """Variables as they are written, for suggestions."""
    return (f"${name}" for name in names)
