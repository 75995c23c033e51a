"""Writes a schema in its canonical layout: one declaration style, four spaces, every comment kept.

`omnigraph fmt` calls it. Formatting never changes the meaning of a schema: the tree of the result equals that of the
source, and formatting twice gives the same text as formatting once.
"""

from __future__ import annotations

from omnigraph.language.layout import INDENT, Layout
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.parser import parse_schema
from omnigraph.language.source import TextSpan, quote, structure_of


def format_schema(text: str, path: str | None = None) -> str:
    """The canonical text of a schema file; a file that does not parse raises its syntax errors."""
    schema = parse_schema(text, path)
    structure = structure_of(text)
    layout = Layout(text)
    previous: ast.Declaration | None = None
    for declaration in schema.declarations:
        if previous is not None and not (_is_bare_edge(previous) and _is_bare_edge(declaration)):
            layout.blank_line()
        _write(layout, structure, declaration)
        previous = declaration
    return layout.finish()


def _is_bare_edge(declaration: ast.Declaration) -> bool:
    return isinstance(declaration, ast.Edge) and declaration.members is None


def _write(layout: Layout, structure: str, declaration: ast.Declaration) -> None:
    at = declaration.at
    *parts, last = _head(declaration)
    if declaration.members is None:
        layout.piece(at, *_wrap([*parts, last], layout.width))
        return
    brace = structure.index("{", at.start)
    layout.comments_before(brace)
    if not declaration.members and not layout.has_comment_before(at.end):
        layout.piece(at, *_wrap([*parts, f"{last} {{}}"], layout.width))
        return
    layout.piece(TextSpan(at.start, brace + 1), *_wrap([*parts, f"{last} {{"], layout.width))
    layout.indent()
    for member in declaration.members:
        layout.piece(member.at, *_wrap(_member(member), layout.width))
    layout.close(at.end, "}")


def _wrap(parts: list[str], width: int) -> list[str]:
    """The parts on one line when they fit, otherwise each on its own, continuation lines indented twice."""
    line = " ".join(parts)
    if len(line) <= width or len(parts) == 1:
        return [line]
    return [parts[0], *(INDENT * 2 + part for part in parts[1:])]


def _head(declaration: ast.Declaration) -> list[str]:
    name = declaration.name.text
    if isinstance(declaration, ast.Edge):
        ends = f"edge {name}: {declaration.source.text} -> {declaration.target.text}"
        if declaration.card is not None:
            high = declaration.card.maximum
            ends += f" @card({declaration.card.minimum}..{'' if high is None else high})"
        return [ends, *map(_annotation, declaration.annotations)]
    if isinstance(declaration, ast.Node):
        parts = [f"node {name}", *map(_annotation, declaration.annotations)]
        if declaration.implements:
            parts.append("implements " + ", ".join(interface.text for interface in declaration.implements))
        return parts
    return [f"interface {name}"]


def _member(member: ast.Member) -> list[str]:
    if isinstance(member, ast.Property):
        return [
            f"{member.name.text}: {_type(member.type)}{_default(member.default)}",
            *map(_annotation, member.annotations),
        ]
    if isinstance(member, ast.ColumnsRule):
        return [f"@{member.rule}({', '.join(column.text for column in member.columns)})"]
    if isinstance(member, ast.CheckRule):
        return [f"@check({member.column.text}, {quote(member.pattern)})"]
    return [f"@range({member.column.text}, {member.low or ''}..{member.high or ''})"]


def _type(type_: ast.Type) -> str:
    if type_.item is not None:
        spelled = f"[{_type(type_.item)}]"
    elif type_.arguments is not None:
        spelled = f"{type_.name}({', '.join(argument.text for argument in type_.arguments)})"
    else:
        spelled = type_.name
    return spelled + ("?" if type_.nullable else "")


def _default(default: ast.Default | None) -> str:
    if default is None:
        return ""
    values = ", ".join(map(_value, default.values))
    return f" = [{values}]" if default.is_list else f" = {values}"


def _annotation(annotation: ast.Annotation) -> str:
    positional = [] if annotation.value is None else [_value(annotation.value)]
    arguments = [*positional, *(f"{key}={_value(value)}" for key, value in annotation.kwargs)]
    return f"@{annotation.name}({', '.join(arguments)})" if arguments else f"@{annotation.name}"


def _value(value: ast.Value) -> str:
    return quote(value.text) if value.kind == "string" else value.text
