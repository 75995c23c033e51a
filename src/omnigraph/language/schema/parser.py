"""From `.pg` text to the syntax tree, reporting every syntax error of a file.

Called by the schema compiler and the formatter. A file is cut at its declaration heads and each piece is
parsed alone, so that one broken declaration hides nothing else. It never looks at what names mean.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, cast

from lark import Lark, UnexpectedInput
from lark.utils import TextSlice

from omnigraph.api.governance import SCHEMA_BYTES
from omnigraph.language import source
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.syntax_errors import explain, explain_missing_head
from omnigraph.language.schema.tree import TreeBuilder

GRAMMAR_OPTIONS: Final[dict[str, Any]] = {"start": "declaration", "maybe_placeholders": False}

# Two words in a row stand nowhere but at the head of a declaration: a property called `node` precedes a colon.
_HEAD = re.compile(r"(?<![@\w])(?:node|edge|interface)\s+([A-Za-z_]\w*)", re.ASCII)


def parse_schema(text: str, path: str | None = None) -> ast.Schema:
    """The tree of a well-formed file; otherwise one error that carries every finding."""
    sink = source.DiagnosticSink(source.SourceText(text, path))
    schema, _ = parse_recovering(sink)
    sink.raise_if_any()
    return schema


def parse_recovering(sink: source.DiagnosticSink) -> tuple[ast.Schema, frozenset[str]]:
    """The readable declarations, and the names of the unreadable ones, which nobody may call unknown."""
    sink.source.check_size("schema_bytes", SCHEMA_BYTES, "shorten texts and comments, or declare fewer types")
    if (lone_surrogate := source.LONE_SURROGATE.search(sink.source.text)) is not None:
        sink.report(
            source.SYNTAX, "the text is not valid Unicode: a lone surrogate", source.TextSpan(*lone_surrogate.span())
        )
        return ast.Schema(), frozenset()
    structure = source.structure_of(sink.source.text)
    heads = list(_HEAD.finditer(structure))
    starts = [head.start() for head in heads] + [len(structure)]
    stray = re.search(r"\S+", structure[: starts[0]])
    if stray is not None:
        message, suggestion = explain_missing_head(stray.group())
        sink.report(source.SYNTAX, message, source.TextSpan(*stray.span()), suggestion=suggestion)
    declarations: list[ast.Declaration] = []
    broken: set[str] = set()
    for head, end in zip(heads, starts[1:], strict=True):
        try:
            declaration: object = _parser().parse(TextSlice(sink.source.text, head.start(), end))
        except UnexpectedInput as error:
            message, at, suggestion = explain(error, structure, head.start(), end)
            sink.report(source.SYNTAX, message, at, suggestion=suggestion)
            broken.add(head.group(1))
        except source.MalformedTokenError as malformed:
            sink.report(source.SYNTAX, malformed.message, malformed.at)
            broken.add(head.group(1))
        else:
            declarations.append(cast(ast.Declaration, declaration))
    return ast.Schema(tuple(declarations)), frozenset(broken)


@cache
def _parser() -> Lark:
    return source.grammar_parser(__package__, TreeBuilder(), **GRAMMAR_OPTIONS)
