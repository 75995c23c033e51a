"""Generates schemas: source texts that parse, in every layout a person might write, comments included."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.language.layout import GAPS

_SCALARS = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob"]

type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,6}", fullmatch=True)
idents = st.one_of(
    st.from_regex(r"[a-z_][A-Za-z0-9_]{0,6}", fullmatch=True),
    st.sampled_from(["node", "edge", "interface", "implements", "enum", "true", "false", "key", "card"]),
)
_string_texts = st.text(alphabet=st.sampled_from('ab "\\\n\r\t/*{}()@é\U0001f600#'), max_size=12)
_layout_strings = _string_texts.map(
    lambda s: '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r") + '"'
)


def _joined(parts: list[str]) -> st.SearchStrategy[str]:
    """The tokens with a random gap after each."""
    return st.tuples(*(GAPS for _ in parts)).map(
        lambda gaps: "".join(part + gap for part, gap in zip(parts, gaps, strict=True))
    )


@st.composite
def _token_lists(draw: st.DrawFn, items: st.SearchStrategy[list[str]], limit: int) -> list[str]:
    return [token for item in draw(st.lists(items, max_size=limit)) for token in item]


@st.composite
def _types(draw: st.DrawFn) -> list[str]:
    shape = draw(st.integers(0, 3))
    if shape == 0:
        tokens = ["[", draw(st.sampled_from(_SCALARS)), "]"]
    elif shape == 1:
        values = draw(st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True), min_size=1, max_size=3))
        tokens = ["enum", "(", *_comma_separated(values), ")"]
    elif shape == 2:
        tokens = ["Vector", "(", str(draw(st.integers(0, 5000))), ")"]
    else:
        tokens = [draw(st.sampled_from(_SCALARS))]
    return [*tokens, "?"] if draw(st.booleans()) else tokens


def _comma_separated(values: list[str]) -> list[str]:
    return [token for value in values for token in (value, ",")][:-1]


_literals = st.one_of(
    _layout_strings, st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,3})?", fullmatch=True), st.sampled_from(["true", "false"])
)


@st.composite
def _annotations(draw: st.DrawFn) -> list[str]:
    name = draw(idents.filter(lambda n: n not in ("key", "card")))
    head = ["@" + name]
    if draw(st.booleans()):
        return head
    value = draw(st.sampled_from([True, True, False]))
    arguments = [draw(st.one_of(_literals, idents))] if value else []
    # `true` before anything else is a value, not a name.
    keys = idents if value else idents.filter(lambda n: n not in ("true", "false"))
    for key in draw(st.lists(keys, min_size=0 if value else 1, max_size=2)):
        arguments += [*([","] if arguments else []), key, "=", draw(_literals)]
    return [*head, "(", *arguments, ")"]


_default_items = st.one_of(
    _layout_strings,
    st.from_regex(r"-?[0-9]{1,4}(\.[0-9]{1,3})?(e[+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_.+-]{1,6}", fullmatch=True),
    st.sampled_from(["true", "false", "null"]),
)


@st.composite
def _defaults(draw: st.DrawFn) -> list[str]:
    match draw(st.integers(0, 3)):
        case 0:
            return ["=", draw(_default_items)]
        case 1:
            return ["=", "[", *_comma_separated(draw(st.lists(_default_items, max_size=3))), "]"]
    return []


_renamed_values = st.builds(
    lambda old, new: ["@rename_value", "(", old, ",", "to", "=", new, ")"],
    st.one_of(_layout_strings, idents),
    _layout_strings,
)


@st.composite
def _properties(draw: st.DrawFn) -> list[str]:
    annotations = draw(_token_lists(st.one_of(_annotations(), _renamed_values), 2))
    inline = draw(st.sampled_from([[], ["@key"], ["@unique", "@index"]]))
    return [draw(idents), ":", *draw(_types()), *draw(_defaults()), *annotations, *inline]


_numbers = st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{1,2})?", fullmatch=True)


@st.composite
def _rules(draw: st.DrawFn) -> list[str]:
    column = draw(idents)
    match draw(st.integers(0, 2)):
        case 0:
            name = draw(st.sampled_from(["@key", "@unique", "@index"]))
            columns = draw(st.lists(st.one_of(idents, st.sampled_from(["src", "@src", "@dst"])), max_size=2))
            return [name + "(", *_comma_separated([column, *columns]), ")"]
        case 1:
            low, high = draw(_numbers), draw(_numbers)
            bounds = draw(st.sampled_from([[low, "..", high], [low, ".."], ["..", high]]))
            return ["@range(", column, ",", *bounds, ")"]
        case _:
            return ["@check(", column, ",", draw(_layout_strings), ")"]


@st.composite
def _declarations(draw: st.DrawFn) -> list[str]:
    name = draw(type_names)
    members = _token_lists(st.one_of(_properties(), _rules()), 4)
    match draw(st.integers(0, 3)):
        case 0:
            return ["interface", name, "{", *draw(_token_lists(_properties(), 3)), "}"]
        case 1:
            implements = draw(st.lists(type_names, max_size=2))
            clause = ["implements", *_comma_separated(implements)] if implements else []
            return ["node", name, *draw(_token_lists(_annotations(), 2)), *clause, "{", *draw(members), "}"]
        case shape:
            card = draw(st.sampled_from([[], ["@card(", "1", "..", ")"], ["@card(", "0", "..", "5", ")"]]))
            body = ["{", *draw(members), "}"] if shape == 2 else []
            ends = [draw(type_names), "->", draw(type_names)]
            return ["edge", name, ":", *ends, *card, *draw(_token_lists(_annotations(), 2)), *body]


schema_texts: st.SearchStrategy[str] = st.lists(_declarations(), max_size=4).flatmap(
    lambda declarations: _joined(["", *(token for declaration in declarations for token in declaration)])
)
