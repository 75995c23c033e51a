"""Generates query files: texts that parse, in every layout a person might write, comments included."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from omnigraph.language.query.syntax_errors import FOREIGN_CLAUSES
from omnigraph.language.query.tokens import RESERVED_WORDS
from tests.language.layout import GAPS

Tokens = list[str]

_WORDS = [
    "match", "return", "order", "limit", "offset", "as", "asc", "now", "count", "search", "date", "contains", "query",
    "nearest", "set", "where", "from", "null", "in", "not", "case", "end", "then", "union", "all", "each", "optional",
    "path", "unwind", "distinct", "exists", "sum", "new", "branch", "true", "nulls", "first", "when",
]  # fmt: skip
# As the beginning of an expression these go on the one before it, or begin something else.
_NO_ALIASES = frozenset({"true", "false", "contains", "starts_with", "as", "when", "distinct", "path", "each"})
_CALL_WORDS = frozenset(
    [
        "map",
        "any",
        "all",
        "none",
        "single",
        "reduce",
        "nearest",
        "bm25",
        "rrf",
        "fuzzy",
        "search",
        "match_text",
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "collect",
        "stdev",
        "stdevp",
        "percentile_cont",
        "percentile_disc",
    ]
)
_DEPTH = 2

type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,5}", fullmatch=True)
names = st.one_of(st.from_regex(r"[a-z_][A-Za-z0-9_]{0,5}", fullmatch=True), st.sampled_from(_WORDS))
variables = st.one_of(names.map("${}".format), st.just("$_"))
_aliases = names.filter(lambda name: name not in _NO_ALIASES | RESERVED_WORDS and name not in FOREIGN_CLAUSES)
_functions = st.one_of(
    st.sampled_from(["lower", "path", "date", "now", "coalesce", "exists"]),
    _aliases.filter(lambda name: name not in _CALL_WORDS),
)
_strings = st.text(alphabet=st.sampled_from('ab "\\\n\r\t/*{}$é\U0001f600#'), max_size=8).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r") + '"'
)
_edges = st.one_of(names.filter(lambda name: name not in RESERVED_WORDS), names.map('"{}"'.format), _strings)
_column_names = st.one_of(names.filter(lambda name: name not in RESERVED_WORDS), names.map('"{}"'.format), _strings)
_integers = st.one_of(st.integers(0, 2**63).map(str), st.sampled_from(["0", "007"]))
_floats = st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,4}([eE][+-]?[0-9]{1,3})?|[eE]-?[0-9])", fullmatch=True)
_comparisons = st.sampled_from([">=", "<=", "!=", ">", "<", "=", "contains", "starts_with", "in"])
_fields = st.sampled_from(["@id", "@src", "@dst", "@type"])
_aggregates = st.sampled_from(["count", "sum", "avg", "min", "max", "collect", "stdev", "percentile_disc"])


def _separated(items: list[Tokens]) -> Tokens:
    return [token for i, item in enumerate(items) for token in ([","] * (i > 0)) + item]


def _flat(items: list[Tokens]) -> Tokens:
    return [token for item in items for token in item]


def _one(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[Tokens]:
    return strategy.map(lambda token: [token])


# ---- expressions ----------------------------------------------------------------------------------------

_atoms: st.SearchStrategy[Tokens] = st.one_of(
    _one(_strings),
    _one(_integers),
    _one(_floats),
    _one(st.sampled_from(["true", "false", "null", "$x"])),
    _one(variables),
    _one(_aliases),
    _one(_fields),
    st.tuples(st.sampled_from(["date", "datetime"]), _strings).map(lambda t: [t[0], "(", t[1], ")"]),
    st.just(["now", "(", ")"]),
    st.just(["count", "(", "*", ")"]),
    st.tuples(variables, st.one_of(names, _fields), st.sampled_from([[], ["?"]])).map(
        lambda t: [t[0], ".", t[1], *t[2]]
    ),
)


@st.composite
def _calls(draw: st.DrawFn, inner: st.SearchStrategy[Tokens]) -> Tokens:
    def call(name: str, *arguments: Tokens) -> Tokens:
        return [name, "(", *_separated(list(arguments)), ")"]

    def ranking() -> Tokens:
        if draw(st.booleans()):
            return call("bm25", draw(inner), draw(inner))
        exact = draw(st.sampled_from([[], [["exact", ":", "true"]], [["exact", ":", "false"]]]))
        return call("nearest", [draw(variables), ".", draw(names)], draw(inner), *exact)

    match draw(st.integers(0, 6)):
        case 0:
            return ranking()
        case 1:
            return call("rrf", ranking(), ranking(), *([draw(inner)] if draw(st.booleans()) else []))
        case 2:
            third = [draw(inner)] if draw(st.booleans()) else []
            return call(
                "fuzzy" if third else draw(st.sampled_from(["search", "match_text"])), draw(inner), draw(inner), *third
            )
        case 3:
            return _aggregate(draw, inner)
        case 4:
            form = draw(st.sampled_from(["map", "any", "all", "none", "single"]))
            where = ["where", *draw(inner)] if form == "map" and draw(st.booleans()) else []
            return [form, "(", draw(variables), "in", *draw(inner), *where, ":", *draw(inner), ")"]
        case 5:
            accumulator = [draw(variables), "=", *draw(inner), ","]
            return ["reduce", "(", *accumulator, draw(variables), "in", *draw(inner), ":", *draw(inner), ")"]
        case _:
            pairs = draw(st.lists(st.tuples(st.one_of(st.none(), names), inner), max_size=3))
            arguments = [value if name is None else [name, ":", *value] for name, value in pairs]
            return call(draw(_functions), *arguments)


def _aggregate(draw: st.DrawFn, inner: st.SearchStrategy[Tokens]) -> Tokens:
    distinct = ["distinct"] if draw(st.booleans()) else []
    fraction = [",", *draw(inner)] if draw(st.booleans()) else []
    return [draw(_aggregates), "(", *distinct, *draw(inner), *fraction, ")"]


@st.composite
def _cases(draw: st.DrawFn, inner: st.SearchStrategy[Tokens]) -> Tokens:
    branches = draw(st.lists(st.tuples(inner, inner), min_size=1, max_size=2))
    return [
        "case",
        *(draw(inner) if draw(st.booleans()) else []),
        *(token for test, value in branches for token in ["when", *test, "then", *value]),
        *(["else", *draw(inner)] if draw(st.booleans()) else []),
        "end",
    ]


@st.composite
def _value_blocks(draw: st.DrawFn, depth: int) -> Tokens:
    kind = draw(st.sampled_from([["exists"], ["count"], None]))
    head = _aggregate(draw, expressions(0)) if kind is None else kind
    return [*head, "{", *draw(blocks(depth)), "}"]


@cache
def _operands(depth: int) -> st.SearchStrategy[Tokens]:
    if depth == 0:
        return _atoms
    inner = expressions(depth - 1)
    return st.one_of(
        *[_atoms] * 6,
        inner.map(lambda tokens: ["(", *tokens, ")"]),
        st.lists(inner, max_size=3).map(lambda items: ["[", *_separated(items), "]"]),
        _calls(inner),
        _cases(inner),
        _value_blocks(depth - 1),
    )


@st.composite
def _sums(draw: st.DrawFn, depth: int) -> Tokens:
    tokens: Tokens = []
    for i in range(draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 3]))):
        sign = ["-"] * draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))
        tokens += [*([draw(st.sampled_from("+-*/%"))] if i else []), *sign, *draw(_operands(depth))]
    return tokens


@st.composite
def _tests(draw: st.DrawFn, depth: int) -> Tokens:
    prefix = ["not"] * draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))
    if depth and draw(st.integers(0, 9)) == 0:
        return [*prefix, "not", "{", *draw(blocks(depth - 1)), "}"]
    tokens = [*prefix, *draw(_sums(depth))]
    match draw(st.integers(0, 6)):
        case 0:
            return [*tokens, "is", *(["not"] if draw(st.booleans()) else []), "null"]
        case 1 | 2:
            return [*tokens, draw(_comparisons), *draw(_sums(depth))]
        case _:
            return tokens


@cache
def expressions(depth: int) -> st.SearchStrategy[Tokens]:
    if depth == 0:
        return st.one_of(_atoms, _sums(0), _tests(0))
    chains = st.lists(st.tuples(st.sampled_from(["and", "or"]), _tests(depth)), min_size=1, max_size=3)
    joined = chains.map(lambda links: _flat([[word, *test] for word, test in links])[1:])
    return st.one_of(_atoms, _sums(depth), _tests(depth), joined)


# ---- clauses --------------------------------------------------------------------------------------------


def _as_clause(tokens: Tokens) -> Tokens:
    """An expression that a clause may begin with: it must not read as a traversal."""
    if not tokens[0].startswith("$") or tokens[1:2] == ["."]:
        return tokens
    if tokens[1:2] in (["contains"], ["starts_with"]):
        return ["(", *tokens, ")"] if tokens[2].startswith("$") else tokens
    safe = {"=", "!=", "<", "<=", ">", ">=", "+", "-", "/", "%", "and", "or", "in", "is"}
    return tokens if len(tokens) > 1 and tokens[1] in safe else ["(", *tokens, ")"]


def _in_a_row(clauses: list[Tokens]) -> Tokens:
    """Clauses behind each other, of which none goes on the one before it."""
    tokens: Tokens = []
    for clause in clauses:
        continues = bool(tokens) and clause[0] in ("-", "(")
        tokens += ["true", "and", *clause] if continues else clause
    return tokens


@cache
def blocks(depth: int) -> st.SearchStrategy[Tokens]:
    return st.lists(_clauses(depth), min_size=1, max_size=2).map(_in_a_row)


@cache
def _clauses(depth: int) -> st.SearchStrategy[Tokens]:
    filters = expressions(depth).map(_as_clause)
    simple = st.one_of(_bindings(depth), _traversals(depth), _paths(depth), filters)
    if depth == 0:
        return simple
    nested = st.tuples(st.sampled_from(["not", "optional"]), blocks(depth - 1))
    return st.one_of(simple, simple, nested.map(lambda t: [t[0], "{", *t[1], "}"]))


@st.composite
def _bindings(draw: st.DrawFn, depth: int) -> Tokens:
    types = draw(st.lists(type_names, max_size=3))
    tokens = [draw(variables), ":", *_alternatives(types)]
    pins = draw(st.lists(st.tuples(names, expressions(depth)), max_size=3))
    if pins:
        listed = _separated([[name, ":", *value] for name, value in pins])
        tokens += ["{", *listed, *([","] if draw(st.booleans()) else []), "}"]
    return tokens


def _alternatives(names: list[str]) -> Tokens:
    if len(names) < 2:
        return names or ["*"]
    return ["(", *(token for i, name in enumerate(names) for token in ["|"] * (i > 0) + [name]), ")"]


@st.composite
def _walks(draw: st.DrawFn, depth: int) -> Tokens:
    """A traversal behind the variables at its beginning."""
    selected = _alternatives(draw(st.lists(_edges, max_size=3)))
    if draw(st.booleans()):
        selected = ["<", *[token for token in selected if token not in ("(", ")")], ">"]
    hops: Tokens = []
    if draw(st.booleans()):
        high = [str(draw(st.integers(0, 9)))] if draw(st.booleans()) else []
        hops = ["{", str(draw(st.integers(0, 9))), ",", *high, "}"]
    each: Tokens = []
    if depth and draw(st.integers(0, 3)) == 0:
        each = ["each", draw(variables), draw(variables), "{", *draw(blocks(depth - 1)), "}"]
    return [*selected, *hops, draw(variables), *each]


@st.composite
def _traversals(draw: st.DrawFn, depth: int) -> Tokens:
    named = [draw(variables), ":"] if draw(st.booleans()) else []
    return [draw(variables), *named, *draw(_walks(depth))]


@st.composite
def _paths(draw: st.DrawFn, depth: int) -> Tokens:
    mode = draw(st.sampled_from(["shortest", "all_shortest", "trails"]))
    return ["path", draw(variables), ":", mode, draw(variables), *draw(_walks(depth))]


# ---- reads ----------------------------------------------------------------------------------------------


@st.composite
def _projections(draw: st.DrawFn) -> Tokens:
    tokens: Tokens = []
    for projection in draw(st.lists(expressions(_DEPTH), min_size=1, max_size=3)):
        if tokens and tokens[-1] != "," and projection[0] in ("-", "("):
            tokens.append(",")
        alias = ["as", draw(_column_names)] if draw(st.booleans()) else []
        tokens += [*projection, *alias, *([","] if draw(st.booleans()) else [])]
    return tokens


@st.composite
def _sort_keys(draw: st.DrawFn) -> Tokens:
    expression = draw(expressions(_DEPTH))
    if expression[0] == "nearest" and len(expression) > 1:
        return expression
    direction = draw(st.sampled_from([[], ["asc"], ["desc"]]))
    return [*expression, *direction, *draw(st.sampled_from([[], ["nulls", "first"], ["nulls", "last"]]))]


@st.composite
def _sources(draw: st.DrawFn) -> Tokens:
    unwinds = draw(st.lists(st.tuples(expressions(1), variables), max_size=2))
    tokens = _flat([["unwind", *items, "as", variable] for items, variable in unwinds])
    return [*tokens, "match", "{", *draw(blocks(_DEPTH)), "}"] if draw(st.booleans()) else tokens


@st.composite
def _stages(draw: st.DrawFn) -> Tokens:
    tokens = [*draw(_sources()), "return", *(["distinct"] if draw(st.booleans()) else [])]
    tokens += ["{", *draw(_projections()), "}"]
    if draw(st.booleans()):
        tokens += ["order", "{", *_separated(draw(st.lists(_sort_keys(), min_size=1, max_size=2))), "}"]
    words = draw(st.sampled_from([[], ["limit"], ["offset"], ["limit", "offset"], ["offset", "limit"]]))
    counts = st.one_of(st.integers(0, 1000).map(str), variables)
    return [*tokens, *(token for word in words for token in [word, draw(counts)])]


@st.composite
def _chains(draw: st.DrawFn, depth: int) -> Tokens:
    in_braces = depth > 0 and draw(st.integers(0, 4)) == 0
    tokens = ["{", *draw(_reads(depth - 1)), "}"] if in_braces else draw(_stages())
    for stage in draw(st.lists(_stages(), max_size=1)):
        tokens += ["then", *stage]
    return tokens


@st.composite
def _reads(draw: st.DrawFn, depth: int = 1) -> Tokens:
    tokens = draw(_chains(depth))
    for chain in draw(st.lists(_chains(depth), max_size=1 if draw(st.integers(0, 3)) == 0 else 0)):
        tokens += ["union", *(["all"] if draw(st.booleans()) else []), *chain]
    return tokens


# ---- writes ---------------------------------------------------------------------------------------------


@st.composite
def _assignments(draw: st.DrawFn) -> Tokens:
    sets = draw(st.lists(st.tuples(names, expressions(1), st.sampled_from([[], [","]])), min_size=1, max_size=3))
    return ["{", *(t for name, value, comma in sets for t in [name, ":", *value, *comma]), "}"]


@st.composite
def _row_writes(draw: st.DrawFn, after_feed: bool) -> Tokens:
    of_variables = ["update $", "delete $"] if after_feed else []
    match draw(st.sampled_from(["insert", "insert new", "upsert", "update", "delete", *of_variables])):
        case "update":
            head = ["update", draw(type_names), "set", *draw(_assignments())]
            return [*head, "where", *draw(expressions(_DEPTH))]
        case "delete":
            return ["delete", draw(type_names), "where", *draw(expressions(_DEPTH))]
        case "update $":
            return ["update", draw(variables), "set", *draw(_assignments())]
        case "delete $":
            return ["delete", draw(variables)]
        case insert:
            return [*insert.split(), draw(type_names), *draw(_assignments())]


@st.composite
def _writes(draw: st.DrawFn) -> Tokens:
    tokens = _flat(draw(st.lists(_row_writes(False), max_size=2)))
    for _ in range(draw(st.integers(0 if tokens else 1, 1))):
        # In a condition, a brace would go on with `count` or an aggregate.
        chain = draw(_chains(0 if tokens else 1)) if draw(st.booleans()) else []
        source = draw(_sources())
        feed = [*chain, "then", *source] if chain else source or ["match", "{", *draw(blocks(1)), "}"]
        tokens += [*feed, *_flat(draw(st.lists(_row_writes(True), min_size=1, max_size=2)))]
    return tokens


# ---- files ----------------------------------------------------------------------------------------------


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
def _statements(draw: st.DrawFn) -> Tokens:
    branch = st.one_of(_column_names, type_names)
    kind = draw(st.sampled_from(["create", "delete", "merge", "list", "explain"]))
    if kind == "explain":
        tokens = ["explain", *draw(_queries())]
    else:
        tokens = ["branch", kind, *([draw(branch)] if kind != "list" else [])]
    link = {"create": "from", "merge": "into"}.get(kind)
    if link is not None and draw(st.booleans()):
        tokens += [link, draw(branch)]
    return [*tokens, *([";"] if draw(st.booleans()) else [])]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A file of up to two queries, or a statement."""
    queries = st.lists(_queries(), max_size=2).map(_flat)
    tokens = draw(_statements() if draw(st.integers(0, 9)) == 0 else queries)
    gaps = draw(st.lists(GAPS, min_size=1, max_size=40))
    # A slash before a comment would begin another one.
    return "".join(token + " " * (token == "/") + gaps[i % len(gaps)] for i, token in enumerate(["", *tokens]))
