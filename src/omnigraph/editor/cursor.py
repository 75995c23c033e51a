"""What may stand at the cursor of a `.gq` or `.pg` text, and which variables are visible there.

The text around the cursor is being written and rarely parses, so nothing here parses it: the tokens before the cursor
say which construct it is in, and the tokens of the query what its variables are. The scan may know less than the type
checker. It is for completion alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from omnigraph.language.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.language.query.tokens import LESS, VARIABLE, WORD, Lexeme, scan
from omnigraph.language.source import structure_of


class Place(StrEnum):
    """What may stand at the cursor."""

    NOTHING = "nothing"
    DECLARATION = "declaration"
    META = "meta"
    BODY = "body"
    SCALAR = "scalar"
    NODE_TYPE = "node type"
    ANY_TYPE = "any type"
    EDGE = "edge"
    MEMBER = "member"
    VARIABLE = "variable"
    PATH_MODE = "path mode"
    PROPERTY = "property"
    CLAUSE = "clause"
    EXPRESSION = "expression"
    SORT_KEY = "sort key"
    INTERFACE = "interface"
    HEAD = "head"
    TYPE_ANNOTATION = "type annotation"
    PROPERTY_ANNOTATION = "property annotation"
    BODY_RULE = "body rule"
    COLUMN = "column"
    METRIC = "metric"


class Context(Struct, frozen=True):
    """The place of the cursor. `start` is where the word begins that is being written. `subject` is a variable, a type
    name or a keyword that the place is about; `types` are type names."""

    place: Place
    start: int
    subject: str = ""
    types: tuple[str, ...] = ()
    compared: tuple[str, str] | None = None
    """The variable and the property that the cursor compares with."""


def is_in_text_or_comment(text: str, offset: int) -> bool:
    """Whether the cursor is in a string or a comment, where nothing is completed."""
    return structure_of(text[:offset] + "x")[-1] != "x"


# ---- queries --------------------------------------------------------------------------------------------

_WORDS: Final = frozenset({WORD, "TYPE_NAME", VARIABLE, "FIELD", "META"})
_BLOCKS: Final = frozenset({"match", "optional", "not", "exists", "count", ")"})
_WRITES: Final = frozenset({"insert", "upsert", "update", "delete", "new"})
_OPENING: Final = {"{": "}", "(": ")", "[": "]"}


class _Frame(Struct, frozen=True):
    """An open bracket: what it holds, and where it is among the tokens."""

    holds: str
    index: int
    types: tuple[str, ...] = ()
    subject: str = ""


def query_context(text: str, offset: int) -> Context:
    tokens, _ = scan(text[:offset])
    start = offset
    prefix = ""
    if tokens and tokens[-1].end_pos == offset and (tokens[-1].type in _WORDS or tokens[-1][0] in "$@"):
        prefix = tokens.pop()
        start = offset - len(prefix)
    if is_in_text_or_comment(text, offset):
        return Context(Place.NOTHING, offset)
    head = _query_head(tokens)
    if head is None:
        return Context(Place.DECLARATION, start)
    tokens = tokens[head:]
    frames = _frames(tokens)
    context = _query_place(tokens, frames, start, prefix)
    return context if frames or context.place is not Place.BODY else Context(Place.DECLARATION, start)


def _query_head(tokens: Sequence[Lexeme]) -> int | None:
    """The last token `query` that begins a declaration."""
    for i in range(len(tokens) - 1, -1, -1):
        if tokens[i] == "query" and (i + 1 == len(tokens) or tokens[i + 1].type == WORD):
            return i
    return None


def _at(tokens: Sequence[Lexeme], index: int) -> str:
    return tokens[index] if -len(tokens) <= index < len(tokens) else ""


def _kind(tokens: Sequence[Lexeme], index: int) -> str:
    return tokens[index].type if -len(tokens) <= index < len(tokens) else ""


def _frames(tokens: Sequence[Lexeme]) -> list[_Frame]:
    """The brackets that are open behind the tokens of a query."""
    frames: list[_Frame] = []
    for i, token in enumerate(tokens):
        if token in _OPENING:
            frames.append(_frame(tokens, i, frames))
        elif token in _OPENING.values() and frames:
            frames.pop()
    return frames


def _frame(tokens: Sequence[Lexeme], i: int, frames: list[_Frame]) -> _Frame:
    token, before = tokens[i], tokens[:i]
    last = _at(before, -1)
    if token == "(" and i == 2:
        return _Frame("parameters", i)
    if token == "(":
        if last == ":" and _kind(before, -2) == VARIABLE and _kind(before, -3) != VARIABLE:
            return _Frame("types", i)
        if _kind(before, -1) == VARIABLE:
            return _Frame("edges", i, subject=last[1:])
        if last == ":" and _kind(before, -3) == VARIABLE:
            return _Frame("edges", i, subject=_at(before, -3)[1:])
        return _Frame("expression", i)
    if token == "[":
        return _Frame("expression", i)
    if not frames:
        return _Frame("body", i)
    if last in ("return", "distinct") and frames[-1].holds == "body":
        return _Frame("projections", i)
    if last == "order" and frames[-1].holds == "body":
        return _Frame("order", i)
    if last == "set":
        target = _at(before, -2)
        subject = target[1:] if target.startswith("$") else ""
        return _Frame("assignments", i, () if subject else (target,), subject)
    if _kind(before, -1) == "TYPE_NAME" and _at(before, -2) in _WRITES:
        return _Frame("assignments", i, (last,))
    if types := _types_before(before):
        return _Frame("pins", i, types)
    if last in _BLOCKS or frames[-1].holds == "body" or _kind(before, -1) == VARIABLE:
        return _Frame("clauses", i)
    return _Frame("hops", i)


def _types_before(tokens: Sequence[Lexeme]) -> tuple[str, ...]:
    """The types that a binding names directly before its pins: `$x: A`, `$x: (A | B)`."""
    if _kind(tokens, -1) == "TYPE_NAME" and _at(tokens, -2) == ":":
        return (str(tokens[-1]),)
    if _at(tokens, -1) != ")":
        return ()
    names: list[str] = []
    for token in reversed(tokens[:-1]):
        if token == "(":
            return tuple(reversed(names))
        if token.type == "TYPE_NAME":
            names.append(str(token))
        elif token != "|":
            return ()
    return ()


def _query_place(tokens: list[Lexeme], frames: list[_Frame], start: int, prefix: str) -> Context:
    last, kind = _at(tokens, -1), _kind(tokens, -1)
    frame = frames[-1] if frames else _Frame("", 0)
    if last == "." and _kind(tokens, -2) == VARIABLE:
        return Context(Place.MEMBER, start, _at(tokens, -2)[1:])
    if prefix.startswith("$") and frame.holds != "parameters":
        return Context(Place.VARIABLE, start)
    if frame.holds == "parameters":
        return Context(Place.SCALAR if last in (":", "[") else Place.NOTHING, start)
    if not frames and last == "}":
        return Context(Place.DECLARATION, start)
    if not frames and (last == ")" or prefix.startswith("@")):
        return Context(Place.META, start)
    if last == "query" or (not frames and kind == WORD):
        return Context(Place.NOTHING, start)
    if frame.holds == "types":
        return Context(Place.NODE_TYPE, start)
    if frame.holds == "edges":
        return Context(Place.EDGE, start, frame.subject)
    if frame.holds == "hops":
        return Context(Place.NOTHING, start)
    if frame.holds == "body":
        return _body_place(tokens, start)
    if frame.holds == "clauses" and (context := _clause_place(tokens, start)) is not None:
        return context
    if frame.holds in ("pins", "assignments") and last in ("{", ","):
        return Context(Place.PROPERTY, start, frame.subject, frame.types)
    compared = _comparison(tokens)
    if frame.holds == "clauses":
        return Context(Place.CLAUSE, start, compared=compared)
    place = Place.SORT_KEY if frame.holds == "order" else Place.EXPRESSION
    is_next = frame.holds == "assignments" and last != ":"
    return Context(place, start, frame.subject, frame.types if is_next else (), compared)


def _body_place(tokens: Sequence[Lexeme], start: int) -> Context:
    last = _at(tokens, -1)
    if last in _WRITES:
        return Context(Place.ANY_TYPE, start)
    if last in ("limit", "offset"):
        return Context(Place.VARIABLE, start)
    for i in range(len(tokens) - 1, -1, -1):
        token = tokens[i]
        if token == "where":
            return Context(
                Place.EXPRESSION, start, types=tuple(_target_before(tokens, i)), compared=_comparison(tokens)
            )
        if token == "unwind" and "as" not in tokens[i:]:
            return Context(Place.EXPRESSION, start)
        if token in ("}", "{"):
            break
    return Context(Place.BODY, start)


def _target_before(tokens: Sequence[Lexeme], where: int) -> Iterator[str]:
    """The type of the statement that a `where` belongs to."""
    for i in range(where - 1, 0, -1):
        if tokens[i].type == "TYPE_NAME" and tokens[i - 1] in ("update", "delete"):
            yield str(tokens[i])
            return


def _clause_place(tokens: Sequence[Lexeme], start: int) -> Context | None:
    """The place within a pattern; None where an expression or a clause may be."""
    last = _at(tokens, -1)
    if last == ":" and _kind(tokens, -2) == VARIABLE:
        if _at(tokens, -3) == "path":
            return Context(Place.PATH_MODE, start)
        if _kind(tokens, -3) == VARIABLE:
            return Context(Place.EDGE, start, _at(tokens, -3)[1:])
        return Context(Place.NODE_TYPE, start)
    if _kind(tokens, -1) == LESS and _kind(tokens, -2) == VARIABLE:
        return Context(Place.EDGE, start, _at(tokens, -2)[1:])
    if last == "|":
        for i in range(len(tokens) - 1, 0, -1):
            if tokens[i].type == LESS:
                return Context(Place.EDGE, start, _at(tokens, i - 1)[1:])
    is_new_clause = not (_kind(tokens, -2) in ("COMPARISON", "EQUAL", LESS, "GREATER") or _at(tokens, -2) in _JOINING)
    if _kind(tokens, -1) == VARIABLE and is_new_clause:
        return Context(Place.EDGE, start, last[1:])
    return None


_JOINING: Final = frozenset({"+", "-", "*", "/", "%", "and", "or", "in", "contains", "starts_with"})


def _comparison(tokens: Sequence[Lexeme]) -> tuple[str, str] | None:
    """The property before a comparison: `$x.p =`."""
    is_access = _kind(tokens, -4) == VARIABLE and _at(tokens, -3) == "." and _kind(tokens, -2) == WORD
    if is_access and _at(tokens, -1) in ("=", "!="):
        return _at(tokens, -4)[1:], _at(tokens, -2)
    return None


# ---- variables ------------------------------------------------------------------------------------------


class VariableType(Struct, frozen=True):
    """What a variable is: a node or an edge of these types, else a value."""

    shown: str
    members: tuple[TableType, ...] = ()

    @classmethod
    def of(cls, members: Sequence[TableType]) -> VariableType:
        kind = "edge" if members and isinstance(members[0], EdgeType) else "node"
        return cls(f"{kind} {' | '.join(member.name for member in members)}", tuple(members))


Variables = dict[str, VariableType]
_VALUE: Final = VariableType("value")


def visible_variables(text: str, offset: int, catalog: Catalog | None) -> Variables:
    """The parameters and variables that can be named at the cursor."""
    tokens, _ = scan(text)
    head = _query_head([token for token in tokens if token.start_pos < offset])
    if head is None:
        return {}
    stop = next((i for i in range(head + 1, len(tokens)) if _begins_query(tokens, i)), len(tokens))
    tokens = tokens[head:stop]
    parameters = _parameters(tokens)
    visible = dict(parameters)
    stage: list[Lexeme] = []
    depth = 0
    for token in tokens[_body_start(tokens) :]:
        depth += (token in _OPENING) - (token in _OPENING.values())
        if depth == 0 and token in ("then", "union") and token.start_pos < offset:
            bound = _bind(stage, visible, catalog)
            visible = {**parameters, **(_columns(stage, bound, catalog) if token == "then" else {})}
            stage = []
        elif depth == 0 and token == "then":
            break
        elif token.end_pos != offset:  # the word at the cursor is not a variable yet
            stage.append(token)
    return _bind(stage, visible, catalog)


def _begins_query(tokens: Sequence[Lexeme], i: int) -> bool:
    return tokens[i] == "query" and _kind(tokens, i + 1) == WORD and _at(tokens, i + 2) in ("(", "{")


def _body_start(tokens: Sequence[Lexeme]) -> int:
    return next((i + 1 for i, token in enumerate(tokens) if token == "{"), len(tokens))


def _parameters(tokens: Sequence[Lexeme]) -> Variables:
    parameters: Variables = {}
    for i in range(2, _body_start(tokens)):
        if tokens[i].type == VARIABLE and _at(tokens, i + 1) == ":":
            name = _at(tokens, i + 2) if _at(tokens, i + 2) != "[" else f"[{_at(tokens, i + 3)}]"
            parameters[tokens[i][1:]] = VariableType(name)
    return parameters


def _bind(tokens: Sequence[Lexeme], visible: Variables, catalog: Catalog | None) -> Variables:
    """The variables of a stage, with what is visible before it."""
    bound = dict(visible)
    if catalog is not None:
        for i, token in enumerate(tokens):
            if token.type == VARIABLE and (members := _declared_types(tokens, i, catalog)):
                bound[token[1:]] = VariableType.of(members)
        for _ in range(2):  # an end may get its type from a traversal that is written later
            for i, token in enumerate(tokens):
                if token.type == VARIABLE:
                    _follow(tokens, i, bound, catalog)
    for i, token in enumerate(tokens):
        if token.type == VARIABLE and token != "$_":
            shown = VariableType("path") if _at(tokens, i - 1) == "path" and i else _VALUE
            bound.setdefault(token[1:], shown)
    return bound


def _declared_types(tokens: Sequence[Lexeme], i: int, catalog: Catalog) -> list[NodeType]:
    if _at(tokens, i + 1) != ":":
        return []
    if _at(tokens, i + 2) == "*":
        return list(catalog.nodes.values())
    names, j = [], i + 2
    if _at(tokens, j) == "(":
        j += 1
        while _kind(tokens, j) == "TYPE_NAME" or _at(tokens, j) == "|":
            names.append(_at(tokens, j))
            j += 1
    elif _kind(tokens, j) == "TYPE_NAME":
        names.append(_at(tokens, j))
    return [node for node in catalog.nodes.values() if node.name in names or set(names) & set(node.implements)]


def _follow(tokens: Sequence[Lexeme], i: int, bound: Variables, catalog: Catalog) -> None:
    """The types of the other end and of the edge of a traversal that begins with a variable."""
    j = i + 1
    edge_variable = ""
    if _kind(tokens, j) == VARIABLE and _at(tokens, j + 1) == ":" and _kind(tokens, j + 2) != "TYPE_NAME":
        edge_variable, j = _at(tokens, j)[1:], j + 2
    names = []
    while _kind(tokens, j) in (WORD, "STRING", LESS, "GREATER") or _at(tokens, j) in ("(", ")", "|", "*"):
        names.append(_at(tokens, j).strip('"'))
        j += 1
    if _at(tokens, j) == "{":
        j = next((k + 1 for k in range(j, min(j + 6, len(tokens))) if tokens[k] == "}"), j)
    edges = [edge for name in names if (edge := catalog.edge_named(name)) is not None]
    if "*" in names and not edges:
        edges = list(catalog.edges.values())
    if not edges or (_kind(tokens, j) != VARIABLE and not edge_variable):
        return
    if edge_variable:
        bound[edge_variable] = VariableType.of(edges)
    source, target = tokens[i][1:], _at(tokens, j)[1:] if _kind(tokens, j) == VARIABLE else ""
    for near, far in ((source, target), (target, source)):
        if near in bound and bound[near].members and far and far not in bound:
            ends = _far_ends(edges, {member.name for member in bound[near].members}, is_source=near == source)
            bound[far] = VariableType.of([catalog.nodes[name] for name in ends if name in catalog.nodes])
    if source not in bound and target not in bound:
        for position, name in enumerate((source, target)):
            if name:
                types = dict.fromkeys(each for edge in edges for each in edge.ends[position].types)
                bound[name] = VariableType.of([catalog.nodes[each] for each in types])


def _far_ends(edges: Sequence[EdgeType], near: set[str], *, is_source: bool) -> list[str]:
    """The types at the other end of edges, which are walked as they are written if the near end allows it."""
    ends: dict[str, None] = {}
    for edge in edges:
        first, second = edge.source_types, edge.target_types
        if not is_source:
            first, second = second, first
        if not near.isdisjoint(first):
            ends |= dict.fromkeys(second)
        elif not near.isdisjoint(second):
            ends |= dict.fromkeys(first)
    return list(ends)


def _columns(tokens: Sequence[Lexeme], bound: Variables, catalog: Catalog | None) -> Variables:
    """What the next stage gets: named columns, and variables that are returned as they are."""
    begin = max((i for i, token in enumerate(tokens) if token == "return"), default=len(tokens))
    columns: Variables = {}
    for i in range(begin, len(tokens)):
        token, before = tokens[i], _at(tokens, i - 1)
        if before == "as" and token.type == WORD:
            is_same = _kind(tokens, i - 2) == VARIABLE and _at(tokens, i - 3) in ("{", ",", "distinct")
            columns[str(token)] = bound.get(_at(tokens, i - 2)[1:], _VALUE) if is_same else _VALUE
        elif token.type == VARIABLE and before in ("{", ",") and _at(tokens, i + 1) in (",", "}"):
            columns[token[1:]] = bound.get(token[1:], _VALUE)
    return columns


# ---- schemas --------------------------------------------------------------------------------------------

_SCHEMA_HEAD: Final = re.compile(r"(?<![@\w])(node|edge|interface)\s+(\w*)", re.ASCII)
_SCHEMA_TOKEN: Final = re.compile(r"@?\w+|->|\.\.|\S", re.ASCII)
_RULES: Final = frozenset({"@key", "@unique", "@index", "@range", "@check"})


def schema_context(text: str, offset: int) -> Context:
    """`subject` is the type that the cursor is in."""
    word = re.search(r"@?\w*\Z", text[:offset], re.ASCII)
    start = offset if word is None else word.start()
    if is_in_text_or_comment(text, start):
        return _quoted_context(text, start)
    structure = structure_of(text[:start])
    heads = list(_SCHEMA_HEAD.finditer(structure))
    if not heads:
        return Context(Place.DECLARATION, start)
    kind, subject = heads[-1].groups()
    tokens = _SCHEMA_TOKEN.findall(structure[heads[-1].end() :])
    if "{" in tokens:
        is_new_line = "\n" in structure[len(structure.rstrip()) :]
        return _schema_body(tokens[tokens.index("{") + 1 :], start, kind, subject, is_new_line)
    if kind == "interface" or not subject:
        return Context(Place.NOTHING, start)
    if kind == "edge":
        return _edge_head(tokens, start, subject)
    if "implements" in tokens:
        is_open = tokens[-1] in ("implements", ",")
        return Context(Place.INTERFACE if is_open else Place.NOTHING, start, subject)
    return Context(Place.HEAD, start, kind)


def _edge_head(tokens: list[str], start: int, subject: str) -> Context:
    if tokens[-1:] in ([":"], ["->"]):
        return Context(Place.NODE_TYPE, start)
    if "->" in tokens and tokens[-1] != "(":
        return Context(Place.TYPE_ANNOTATION, start, "edge")
    return Context(Place.NOTHING, start, subject)


def _schema_body(tokens: list[str], start: int, kind: str, subject: str, is_new_line: bool) -> Context:
    if "}" in tokens:
        return Context(Place.DECLARATION, start)
    last = tokens[-1] if tokens else "{"
    opened = max((i for i, token in enumerate(tokens) if token == "("), default=-1)
    if opened > 0 and ")" not in tokens[opened:]:
        rule = tokens[opened - 1]
        is_column = rule in _RULES and (last == "(" or (last in (",", "@") and rule not in ("@range", "@check")))
        return Context(Place.COLUMN if is_column else Place.NOTHING, start, subject, (kind,))
    if last == ":":
        return Context(Place.SCALAR, start, "property")
    if last == "[":
        return Context(Place.SCALAR, start)
    is_member = is_new_line or last == "{"
    return Context(Place.BODY_RULE if is_member else Place.PROPERTY_ANNOTATION, start, kind)


def property_names(text: str, offset: int) -> list[str]:
    """The properties of the declaration at the cursor, whether it parses or not."""
    structure = structure_of(text)
    heads = list(_SCHEMA_HEAD.finditer(structure))
    begin = max((head.end() for head in heads if head.end() <= offset), default=len(structure))
    end = min((head.start() for head in heads if head.start() >= offset), default=len(structure))
    opened = structure.find("{", begin, end)
    return re.findall(r"(?<![@\w])([a-z_]\w*)\s*:", structure[opened:end], re.ASCII) if opened >= 0 else []


_QUOTED: Final = re.compile(r'@(embed|metric)\s*\(\s*"\w*$')


def _quoted_context(text: str, start: int) -> Context:
    """The text of an annotation that names something."""
    opened = _QUOTED.search(text[:start])
    if opened is None:
        return Context(Place.NOTHING, start)
    if opened[1] == "metric":
        return Context(Place.METRIC, start)
    heads = list(_SCHEMA_HEAD.finditer(structure_of(text[: opened.start()])))
    return Context(Place.COLUMN, start, heads[-1][2] if heads else "", ("embed",))
