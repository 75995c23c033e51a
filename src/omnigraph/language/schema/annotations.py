"""Reads annotations (which ones may stand where, what arguments they take, what they mean) and default values.

Used by the checks for properties and for types. Unknown annotations are kept as custom ones; the names that the
language gives a meaning to are refused wherever they have none. A default is kept as a record of a load would give it,
so that one coercion serves both: what is admitted here the row kernels (`engine.rows.kernels.coerce`) can store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from omnigraph.errors import BadRequestError
from omnigraph.language import catalog
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.resolved import UNIDENTIFIED, DeclaredProperty, Report
from omnigraph.language.source import NOWHERE, Name, did_you_mean
from omnigraph.language.types import FLOATS, INTEGER_RANGES, NUMERIC, PropertyType, Scalar
from omnigraph.language.values import parse_date, parse_datetime, round_to_f32

Annotated = TypeVar("Annotated", catalog.NodeType, catalog.EdgeType)

_INLINE = {rule.value: rule for rule in catalog.InlineRule}
_INDEX_PARAMETERS: Final = {"partitions": (1, 65_536), "probes": (1, 65_536), "exact_rows": (0, 2**53)}
"""The parameters of an index of vectors, with the least and the greatest value of each."""
_WHOLE = re.compile(r"[0-9]{1,16}", re.ASCII)
_BODY_ONLY = {"range": "@range(pages, 1..5000)", "check": '@check(isbn, "^[0-9-]+$")'}
MISPLACED_CARD = (
    "@card must be the first thing after the target type of an edge, as in edge Borrowed: Reader -> Book @card(0..5)"
)


def read_type_annotations(type_: Annotated, annotations: Sequence[ast.Annotation], report: Report) -> Annotated:
    """The type with what the annotations in its head say."""
    custom: list[catalog.Annotation] = []
    for annotation in annotations:
        name = annotation.name
        if name in _INLINE or name in ("embed", "metric", "rename_value"):
            where = (
                "is only supported on node properties or in the body of a node"
                if type_.kind == "node"
                else "is not supported on edges; annotate a property or write a body rule instead"
            )
            report(f"@{name} on {type_.kind} type '{type_.name}' {where}", annotation.at)
        elif name in _BODY_ONLY or name == "card":
            report(_misplacement(name), annotation.at)
        elif name not in ("description", "instruction", "rename_from"):
            if name == "label":
                _check_label(annotation, [each.name for each in custom], type_.name, report)
            custom.append(_custom(annotation))
    return replace(
        type_,
        description=_single_text(annotations, "description", type_.name, report),
        instruction=_single_text(annotations, "instruction", type_.name, report),
        annotations=tuple(custom),
    )


def _check_label(annotation: ast.Annotation, before: Sequence[str], owner: str, report: Report) -> None:
    value = annotation.value
    if value is None or value.kind != "string" or not value.text.strip() or annotation.kwargs:
        report(f"@label on '{owner}' requires one non-empty string", annotation.at, 'write @label("NAME")')
    elif "label" in before:
        report(f"'{owner}' declares @label multiple times", annotation.at)


def read_property(
    kind: catalog.TypeKind, owner: str, syntax: ast.Property, type_: PropertyType, report: Report
) -> DeclaredProperty:
    """A property of a node or an edge with its annotations; for an interface, those of the node it joins.

    The embed source is only a name here: siblings are not known yet.
    """
    name, subject = syntax.name.text, f"{owner}.{syntax.name.text}"
    reader = _PropertyReader(kind, subject, type_, report)
    for annotation in syntax.annotations:
        reader.read(annotation)
    meaning = catalog.Property(
        name=name,
        id=UNIDENTIFIED,
        type=type_,
        column=name,
        inline=tuple(sorted(reader.inline)),
        embed=reader.embed,
        metric=reader.metric,
        index=reader.index,
        description=_single_text(syntax.annotations, "description", subject, report),
        annotations=tuple(reader.custom),
        default=None if syntax.default is None else read_default(syntax.default, type_, subject, report),
    )
    return DeclaredProperty(
        syntax.name,
        meaning,
        reader.embed_at,
        read_rename_from(syntax.annotations, subject, report),
        syntax.default.at if syntax.default is not None else NOWHERE,
        tuple(reader.renamed_values),
    )


class _PropertyReader:
    """Collects the annotations that only properties have."""

    def __init__(self, kind: str, subject: str, type_: PropertyType, report: Report) -> None:
        self.kind = kind
        self.subject = subject
        self.type = type_
        self.report = report
        self.inline: list[catalog.InlineRule] = []
        self.embed: catalog.EmbedSource | None = None
        self.embed_at = NOWHERE
        self.metric: catalog.Metric | None = None
        self.index: catalog.VectorIndex | None = None
        self.custom: list[catalog.Annotation] = []
        self.renamed_values: list[tuple[Name, str]] = []
        self._seen: set[str] = set()

    def read(self, annotation: ast.Annotation) -> None:
        name = annotation.name
        if name in _INLINE:
            self._read_inline(annotation, _INLINE[name])
        elif name == "embed":
            self._read_embed(annotation)
        elif name == "metric":
            self._read_metric(annotation)
        elif name == "rename_value":
            self._read_renamed_value(annotation)
        elif name == "instruction":
            self._refuse(annotation, "is only supported on node and edge types; use @description for a property")
        elif name in _BODY_ONLY or name == "card":
            self.report(_misplacement(name), annotation.at)
        elif name not in ("description", "rename_from"):
            self.custom.append(_custom(annotation))

    def _refuse(self, annotation: ast.Annotation, why: str) -> None:
        self.report(f"@{annotation.name} on '{self.subject}' {why}", annotation.at)

    def _is_repeated(self, annotation: ast.Annotation) -> bool:
        if annotation.name in self._seen:
            self.report(f"'{self.subject}' declares @{annotation.name} multiple times", annotation.at)
            return True
        self._seen.add(annotation.name)
        return False

    def _read_inline(self, annotation: ast.Annotation, rule: catalog.InlineRule) -> None:
        if annotation.value is not None:
            self._refuse(annotation, "takes no arguments here: interfaces have no body rules")
            return
        if self._is_repeated(annotation):
            return
        if annotation.kwargs and not self._read_index_parameters(annotation, rule):
            return
        if rule is catalog.InlineRule.KEY and self.kind == "edge":
            self._refuse(annotation, "is not supported on edge properties; write @key(@src, @dst) in the body")
            return
        if (problem := inline_problem(rule, self.type)) is not None:
            self._refuse(annotation, problem)
        else:
            self.inline.append(rule)

    def _read_index_parameters(self, annotation: ast.Annotation, rule: catalog.InlineRule) -> bool:
        """Whether the named arguments are parameters of an index of vectors, each within its bounds."""
        if rule is not catalog.InlineRule.INDEX:
            self._refuse(annotation, f"takes no named arguments, such as '{annotation.kwargs[0][0]}='")
            return False
        if not self.type.is_vector:
            self._refuse(annotation, f"has parameters for vectors only, and this property is {self.type}")
            return False
        parameters: dict[str, int] = {}
        for name, value in annotation.kwargs:
            if name not in _INDEX_PARAMETERS:
                near = did_you_mean(name, _INDEX_PARAMETERS)
                message = f"@index on '{self.subject}' has unknown parameter '{name}='"
                self.report(message, value.at, near or f"use {', '.join(_INDEX_PARAMETERS)}")
                return False
            least, most = _INDEX_PARAMETERS[name]
            number = int(value.text) if value.kind == "number" and _WHOLE.fullmatch(value.text) else -1
            if name in parameters or not least <= number <= most:
                problem = "is given twice" if name in parameters else f"must be a whole number from {least} to {most}"
                self.report(f"{name}= of @index on '{self.subject}' {problem}", value.at)
                return False
            parameters[name] = number
        self.index = catalog.VectorIndex(**parameters)
        return True

    def _is_for_a_vector(self, annotation: ast.Annotation) -> bool:
        """Report an annotation of vectors in a wrong position; return whether its position is right."""
        if self._is_repeated(annotation):
            return False
        name, problem = annotation.name, None
        if self.kind == "edge":
            problem = f"@{name} on '{self.subject}' is not supported on edge properties"
        elif self.type.is_blob:
            problem = f"@{name} is not supported on blob property '{self.subject}'"
        elif not self.type.is_vector:
            problem = f"@{name} is only supported on vector properties, and '{self.subject}' is {self.type}"
        if problem is not None:
            self.report(problem, annotation.at)
        return problem is None

    def _read_embed(self, annotation: ast.Annotation) -> None:
        if not self._is_for_a_vector(annotation):
            return
        value = annotation.value
        if value is None or value.kind not in ("string", "name") or not value.text.strip():
            what = "a source" if value is None or value.kind not in ("string", "name") else "a non-empty source"
            self._refuse(annotation, f'requires {what} property name, as in @embed("blurb")')
            return
        model: str | None = None
        on_write = False
        for key, argument in annotation.kwargs:
            if key == "model":
                model = argument.text
            elif key == "on_write":
                if argument.kind != "bool":
                    self._refuse(annotation, f"takes on_write=true or on_write=false, not {argument.text}")
                    return
                on_write = argument.text == "true"
            else:
                options = "(only 'model' is supported), besides on_write=true"
                self._refuse(annotation, f"has unknown argument '{key}=' {options}")
                return
        self.embed = catalog.EmbedSource(value.text, model, on_write)
        self.embed_at = value.at

    def _read_renamed_value(self, annotation: ast.Annotation) -> None:
        old, new = annotation.value, dict(annotation.kwargs).get("to")
        if old is None or new is None or len(annotation.kwargs) != 1 or {old.kind, new.kind} - {"string", "name"}:
            self._refuse(annotation, 'requires an old and a new value, as in @rename_value("open", to="todo")')
        elif self.type.enum_values is None:
            self._refuse(annotation, f"is only supported on enum properties, and this one is {self.type}")
        elif new.text not in self.type.enum_values:
            near = did_you_mean(new.text, self.type.enum_values)
            self.report(
                f"@rename_value on '{self.subject}' renames to '{new.text}', which is not a value", new.at, near
            )
        elif old.text in self.type.enum_values:
            self._refuse(annotation, f"renames '{old.text}', which is still a value; leave it out of the enum")
        elif any(old.text == name.text for name, _ in self.renamed_values):
            self._refuse(annotation, f"renames '{old.text}' twice")
        else:
            self.renamed_values.append((Name(old.text, at=old.at), new.text))

    def _read_metric(self, annotation: ast.Annotation) -> None:
        if not self._is_for_a_vector(annotation):
            return
        metrics = [metric.value for metric in catalog.Metric]
        value = annotation.value
        if value is None or annotation.kwargs or value.text not in metrics:
            near = did_you_mean(value.text, metrics) if value is not None else None
            message = f"@metric on '{self.subject}' takes one of " + ", ".join(f'"{metric}"' for metric in metrics)
            self.report(message, annotation.at, near)
            return
        self.metric = catalog.Metric(value.text)


def inline_problem(rule: catalog.InlineRule, type_: PropertyType) -> str | None:
    """Why a rule can't stand beside a property of this type. Stricter than the body for lists and vectors."""
    if type_.is_blob:
        return "is not supported on blob property"
    if type_.list:
        return "is not supported on list property"
    if type_.is_vector and rule is not catalog.InlineRule.INDEX:
        return "is not supported on vector property"
    if type_.nullable and rule is catalog.InlineRule.KEY:
        return "cannot be nullable: every node has its key"
    return None


def read_rename_from(annotations: Sequence[ast.Annotation], subject: str, report: Report) -> Name | None:
    """The migration hint of a declaration."""
    hint: Name | None = None
    for annotation in annotations:
        if annotation.name != "rename_from":
            continue
        value = annotation.value
        if value is None or value.kind not in ("string", "name") or not value.text.strip():
            report(f"@rename_from on '{subject}' requires one non-empty name", annotation.at)
        elif annotation.kwargs:
            report(f"@rename_from on '{subject}' takes no named arguments", annotation.at)
        elif hint is not None:
            report(f"'{subject}' declares @rename_from multiple times", annotation.at)
        else:
            hint = Name(value.text, at=value.at)
    return hint


def _single_text(annotations: Sequence[ast.Annotation], name: str, subject: str, report: Report) -> str | None:
    named = [annotation for annotation in annotations if annotation.name == name]
    for other in named[1:]:
        report(f"'{subject}' declares @{name} multiple times", other.at)
    if not named:
        return None
    first = named[0]
    if first.value is None or first.kwargs or not first.value.text.strip():
        report(f"@{name} on '{subject}' requires a non-empty value, and only that", first.at)
        return None
    return first.value.text


def _custom(annotation: ast.Annotation) -> catalog.Annotation:
    value = annotation.value.text if annotation.value is not None else None
    return catalog.Annotation(
        annotation.name, value, tuple((key, argument.text) for key, argument in annotation.kwargs)
    )


def _misplacement(name: str) -> str:
    return MISPLACED_CARD if name == "card" else f"@{name} is a body rule of a node: write {_BODY_ONLY[name]}"


# Default values

_MOST_DIGITS: Final = 40
_DATES: Final = {Scalar.DATE: parse_date, Scalar.DATETIME: parse_datetime}


class _UnfitError(Exception):
    """A value that its type does not take; the text completes the message, the second argument is a suggestion."""


def read_default(
    default: ast.Default, type_: PropertyType, subject: str, report: Report
) -> catalog.DefaultValue | None:
    """The value of a default; None after a report."""
    if type_.is_vector or type_.is_blob:
        report(f"'{subject}' can't have a default: it is a {type_.as_nullable(False)}", default.at)
        return None
    if default.is_list != type_.list:
        shape = "a list" if default.is_list else "a single value"
        report(f"the default of '{subject}' is {shape}, and the property is {type_}", default.at)
        return None
    items: list[catalog.DefaultItem] = []
    for value in default.values:
        try:
            items.append(_item(value, type_.item))
        except _UnfitError as unfit:
            message, *suggestion = unfit.args
            report(f"the default of '{subject}' {message}", value.at, *suggestion)
            return None
    return tuple(items) if type_.list else items[0]


def _item(value: ast.Value, type_: PropertyType) -> catalog.DefaultItem:
    if type_.enum_values is not None:
        if value.text not in type_.enum_values:
            near = did_you_mean(value.text, type_.enum_values)
            raise _UnfitError(f"is '{value.text}', which is not a value of {type_.as_nullable(False)}", near)
        return value.text
    if value.kind == "name" and value.text == "null":
        raise _UnfitError("can't be null; leave it out: a nullable property is null where nothing is written")
    if value.kind == "string":
        return _text(value.text, type_)
    if value.kind == "bool" and type_.scalar is Scalar.BOOL:
        return value.text == "true"
    if value.kind == "number" and type_.scalar in NUMERIC:
        return _number(value.text, type_)
    raise _wrong_type(value.text, type_, _remedy(value, type_))


def _wrong_type(shown: str, type_: PropertyType, remedy: str | None = None) -> _UnfitError:
    return _UnfitError(f"is {shown}, and the property is {type_}", remedy)


def _remedy(value: ast.Value, type_: PropertyType) -> str | None:
    if type_.scalar is Scalar.BOOL:
        return "write true or false"
    if type_.scalar in _DATES:
        return f'write "{value.text}"' if value.text[0].isdigit() else 'write a fixed value, such as "2024-01-31"'
    return f'write "{value.text}"' if type_.scalar is Scalar.STRING else None


def _text(text: str, type_: PropertyType) -> str:
    if type_.scalar is Scalar.STRING:
        return text
    if (parse := _DATES.get(type_.scalar)) is None:
        raise _wrong_type("a string", type_)
    try:
        parse(text)
    except BadRequestError as error:
        raise _UnfitError(f"does not fit: {error}") from None
    return text


def _number(text: str, type_: PropertyType) -> int | float:
    if type_.scalar in FLOATS:
        return _float(text, type_.scalar)
    if not text.removeprefix("-").isdigit():
        raise _wrong_type(text, type_)
    low, high = INTEGER_RANGES[type_.scalar]
    if len(text) > _MOST_DIGITS or not low <= int(text) <= high:
        raise _UnfitError(f"is {text}, which is outside the range of {type_.scalar}")
    return int(text)


def _float(text: str, scalar: Scalar) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _UnfitError(f"is {text}, which exceeds {scalar}")
    if scalar is Scalar.F32:
        try:
            round_to_f32(number)
        except BadRequestError:
            raise _UnfitError(f"is {text}, which exceeds {scalar}") from None
    return number
