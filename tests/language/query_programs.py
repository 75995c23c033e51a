"""Generates query files: texts that parse, in every layout a person might write, comments included."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.language.layout import GAPS

Tokens = list[str]

_WORDS = [
    "match", "return", "order", "limit", "not", "as", "asc", "now", "count", "search", "date", "contains", "query",
    "nearest", "set", "where", "from", "null",
]  # fmt: skip

type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True)
names = st.one_of(st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True), st.sampled_from(_WORDS))
variables = st.one_of(names.map("${}".format), st.just("$_"))
_edges = names.filter(lambda name: name != "not" and not name.startswith("not_"))
_aliases = names.filter(lambda name: name not in ("true", "false", "contains", "starts_with", "as"))
_strings = st.text(alphabet=st.sampled_from('ab "\\\n\r\t/*{}$é\U0001f600#'), max_size=8).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r") + '"'
)
_integers = st.one_of(st.integers(0, 2**63 - 1).map(str), st.sampled_from(["0", "007"]))
_floats = st.from_regex(r"[0-9]{1,4}\.[0-9]{1,4}", fullmatch=True)
_comparisons = st.sampled_from([">=", "<=", "!=", ">", "<", "="])


def _list(items: list[Tokens]) -> Tokens:
    return ["[", *_separated(items), "]"]


def _separated(items: list[Tokens]) -> Tokens:
    return [token for i, item in enumerate(items) for token in ([","] * (i > 0)) + item]


def _one(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[Tokens]:
    return strategy.map(lambda token: [token])


_plain_literals: st.SearchStrategy[Tokens] = st.one_of(
    _one(_strings),
    _one(_integers),
    _one(_floats),
    _one(st.sampled_from(["true", "false"])),
    st.tuples(st.sampled_from(["date", "datetime"]), _strings).map(lambda t: [t[0], "(", t[1], ")"]),
)
literals = st.recursive(_plain_literals, lambda inner: st.lists(inner, max_size=3).map(_list), max_leaves=3)
_now = st.just(["now", "(", ")"])
cells = st.one_of(literals, _one(variables), _now)
_properties = st.tuples(variables, names).map(lambda t: [t[0], ".", t[1]])


def _calls(inner: st.SearchStrategy[Tokens]) -> st.SearchStrategy[Tokens]:
    def call(*arguments: st.SearchStrategy[Tokens]) -> st.SearchStrategy[Tokens]:
        return st.tuples(*arguments).map(lambda args: ["(", *_separated(list(args)), ")"])

    nearest = call(_properties, inner).map(lambda args: ["nearest", *args])
    bm25 = call(inner, inner).map(lambda args: ["bm25", *args])
    ranking = st.one_of(nearest, bm25)
    return st.one_of(
        nearest,
        bm25,
        st.tuples(st.sampled_from(["search", "match_text", "fuzzy"]), call(inner, inner)).map(lambda t: [t[0], *t[1]]),
        call(inner, inner, inner).map(lambda args: ["fuzzy", *args]),
        call(ranking, ranking).map(lambda args: ["rrf", *args]),
        call(ranking, ranking, inner).map(lambda args: ["rrf", *args]),
        st.tuples(st.sampled_from(["count", "sum", "avg", "min", "max"]), call(inner)).map(lambda t: [t[0], *t[1]]),
    )


_operands_without_variable = st.recursive(
    st.one_of(literals, _now, _one(_aliases)),
    lambda inner: _calls(st.one_of(inner, _one(variables), _properties)),
    max_leaves=3,
)
_operands = st.one_of(_properties, _operands_without_variable)
expressions = st.one_of(_one(variables), _operands)


@st.composite
def _filters(draw: st.DrawFn) -> Tokens:
    string_operator = draw(st.booleans())
    if string_operator:
        operator = draw(st.sampled_from(["contains", "starts_with"]))
        if draw(st.booleans()):
            return [draw(variables), operator, *draw(_operands_without_variable)]
        return [*draw(_operands), operator, *draw(expressions)]
    return [*draw(expressions), draw(_comparisons), *draw(expressions)]


@st.composite
def _bindings(draw: st.DrawFn) -> Tokens:
    tokens = [draw(variables), ":", draw(type_names)]
    pins = draw(st.lists(st.tuples(names, cells), max_size=3))
    if pins:
        listed = _separated([[name, ":", *cell] for name, cell in pins])
        tokens += ["{", *listed, *([","] if draw(st.booleans()) else []), "}"]
    return tokens


@st.composite
def _traversals(draw: st.DrawFn) -> Tokens:
    edge = draw(_edges)
    tokens = [draw(variables)]
    if draw(st.booleans()):
        tokens += [draw(variables), ":"]
    tokens += ["<", edge, ">"] if draw(st.booleans()) else [edge]
    if draw(st.booleans()):
        high = [str(draw(st.integers(0, 9)))] if draw(st.booleans()) else []
        tokens += ["{", str(draw(st.integers(0, 9))), ",", *high, "}"]
    return [*tokens, draw(variables)]


_text_clauses = st.tuples(st.sampled_from(["search", "match_text", "fuzzy"]), expressions, expressions).map(
    lambda t: [t[0], "(", *t[1], ",", *t[2], ")"]
)
_simple_clauses = st.one_of(_bindings(), _traversals(), _filters(), _text_clauses)
clauses = st.recursive(
    _simple_clauses,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda items: ["not", "{", *(token for item in items for token in item), "}"]
    ),
    max_leaves=3,
)


@st.composite
def _projections(draw: st.DrawFn) -> Tokens:
    alias = ["as", draw(names)] if draw(st.booleans()) else []
    return [*draw(expressions), *alias, *([","] if draw(st.booleans()) else [])]


@st.composite
def _sort_keys(draw: st.DrawFn) -> Tokens:
    expression = draw(expressions)
    if expression[0] == "nearest" and len(expression) > 1:
        return expression
    return [*expression, *([draw(st.sampled_from(["asc", "desc"]))] if draw(st.booleans()) else [])]


@st.composite
def _reads(draw: st.DrawFn) -> Tokens:
    matched = draw(st.lists(clauses, min_size=1, max_size=4))
    returned = draw(st.lists(_projections(), min_size=1, max_size=3))
    tokens = [
        "match",
        "{",
        *(t for c in matched for t in c),
        "}",
        "return",
        "{",
        *(t for p in returned for t in p),
        "}",
    ]
    if draw(st.booleans()):
        tokens += ["order", "{", *_separated(draw(st.lists(_sort_keys(), min_size=1, max_size=3))), "}"]
    if draw(st.booleans()):
        tokens += ["limit", str(draw(st.integers(0, 1000)))]
    return tokens


@st.composite
def _writes(draw: st.DrawFn) -> Tokens:
    tokens: Tokens = []
    for kind in draw(st.lists(st.sampled_from(["insert", "update", "delete"]), min_size=1, max_size=3)):
        tokens += [kind, draw(type_names)]
        if kind != "delete":
            sets = draw(st.lists(st.tuples(names, cells, st.sampled_from([[], [","]])), min_size=1, max_size=3))
            tokens += ["set"] * (kind == "update")
            tokens += ["{", *(t for name, cell, comma in sets for t in [name, ":", *cell, *comma]), "}"]
        if kind != "insert":
            tokens += ["where", draw(names), draw(_comparisons), *draw(cells)]
    return tokens


@st.composite
def _parameters(draw: st.DrawFn) -> Tokens:
    shape = draw(st.integers(0, 2))
    scalar = draw(type_names)
    written = {0: [scalar], 1: ["[", scalar, "]"], 2: [scalar, "(", str(draw(st.integers(0, 99))), ")"]}[shape]
    return [draw(variables), ":", *written, *(["?"] if draw(st.booleans()) else [])]


@st.composite
def _queries(draw: st.DrawFn) -> Tokens:
    metas = draw(st.lists(st.sampled_from(["@description", "@instruction"]), unique=True, max_size=2))
    tokens = ["query", draw(names), "(", *_separated(draw(st.lists(_parameters(), max_size=3))), ")"]
    for meta in metas:
        tokens += [meta, "(", draw(_strings), ")"]
    return [*tokens, "{", *draw(st.one_of(_reads(), _writes())), "}"]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A file of up to two queries."""
    tokens = [token for query in draw(st.lists(_queries(), max_size=2)) for token in query]
    gaps = draw(st.lists(GAPS, min_size=1, max_size=40))
    return "".join(token + gaps[i % len(gaps)] for i, token in enumerate(["", *tokens]))
