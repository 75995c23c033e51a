"""Reads annotations: which ones may stand where, what arguments they take, and what they mean.

Used by the checks for properties and for types. Unknown annotations are kept as custom ones; the names that the
language gives a meaning to are refused wherever they have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omnigraph.language.catalog import Annotation, EmbedSource, InlineRule, Metric
from omnigraph.language.schema.syntax import NOWHERE, AnnotationSyntax, At, Name
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import PropertyType

# (message, where, suggestion): the caller knows the code and the source.
Report = Callable[[str, At, str | None], None]

_INLINE = {rule.value: rule for rule in InlineRule}
_BODY_ONLY = {"range": "@range(pages, 1..5000)", "check": '@check(isbn, "^[0-9-]+$")'}
MISPLACED_CARD = (
    "@card must be the first thing after the target type of an edge, as in edge Borrowed: Reader -> Book @card(0..5)"
)


@dataclass(frozen=True, slots=True)
class TypeNotes:
    """What the annotations of a node or edge type say."""

    description: str | None
    instruction: str | None
    rename_from: Name | None
    custom: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class PropertyNotes:
    """What the annotations of a property say. The embed source is only a name here: siblings are not known yet."""

    inline: tuple[InlineRule, ...]
    embed: EmbedSource | None
    embed_at: At
    metric: Metric | None
    description: str | None
    rename_from: Name | None
    custom: tuple[Annotation, ...]


def read_type_annotations(
    kind: str, type_name: str, annotations: Sequence[AnnotationSyntax], report: Report
) -> TypeNotes:
    """The annotations in the head of a node or an edge."""
    description = _single_text(annotations, "description", type_name, report)
    instruction = _single_text(annotations, "instruction", type_name, report)
    rename_from = read_rename_from(annotations, type_name, report)
    custom = []
    for annotation in annotations:
        name = annotation.name
        if name in _INLINE or name in ("embed", "metric"):
            where = (
                "is only supported on node properties or in the body of a node"
                if kind == "node"
                else "is not supported on edges; annotate a property or write a body rule instead"
            )
            report(f"@{name} on {kind} type '{type_name}' {where}", annotation.at, None)
        elif name in _BODY_ONLY:
            report(_body_only(name), annotation.at, None)
        elif name == "card":
            report(MISPLACED_CARD, annotation.at, None)
        elif name not in ("description", "instruction", "rename_from"):
            custom.append(_custom(annotation))
    return TypeNotes(description, instruction, rename_from, tuple(custom))


def read_property_annotations(
    kind: str, owner: str, name: str, type_: PropertyType, annotations: Sequence[AnnotationSyntax], report: Report
) -> PropertyNotes:
    """The annotations of one property of a node or an edge; for an interface, those of the node it joins."""
    subject = f"{owner}.{name}"
    reader = _PropertyReader(kind, subject, type_, report)
    description = _single_text(annotations, "description", subject, report)
    rename_from = read_rename_from(annotations, subject, report)
    for annotation in annotations:
        reader.read(annotation)
    return PropertyNotes(
        tuple(reader.inline),
        reader.embed,
        reader.embed_at,
        reader.metric,
        description,
        rename_from,
        tuple(reader.custom),
    )


class _PropertyReader:
    """Collects the annotations that only properties have."""

    def __init__(self, kind: str, subject: str, type_: PropertyType, report: Report) -> None:
        self.kind = kind
        self.subject = subject
        self.type = type_
        self.report = report
        self.inline: list[InlineRule] = []
        self.embed: EmbedSource | None = None
        self.embed_at: At = NOWHERE
        self.metric: Metric | None = None
        self.custom: list[Annotation] = []
        self._seen: set[str] = set()

    def read(self, annotation: AnnotationSyntax) -> None:
        name = annotation.name
        if name in _INLINE:
            self._read_inline(annotation, _INLINE[name])
        elif name == "embed":
            self._read_embed(annotation)
        elif name == "metric":
            self._read_metric(annotation)
        elif name == "instruction":
            self._refuse(annotation, "is only supported on node and edge types; use @description for a property")
        elif name in _BODY_ONLY:
            self.report(_body_only(name), annotation.at, None)
        elif name == "card":
            self.report(MISPLACED_CARD, annotation.at, None)
        elif name not in ("description", "rename_from"):
            self.custom.append(_custom(annotation))

    def _refuse(self, annotation: AnnotationSyntax, why: str) -> None:
        self.report(f"@{annotation.name} on '{self.subject}' {why}", annotation.at, None)

    def _is_repeated(self, annotation: AnnotationSyntax) -> bool:
        if annotation.name in self._seen:
            self.report(f"'{self.subject}' declares @{annotation.name} multiple times", annotation.at, None)
            return True
        self._seen.add(annotation.name)
        return False

    def _read_inline(self, annotation: AnnotationSyntax, rule: InlineRule) -> None:
        if annotation.value is not None:
            self._refuse(annotation, "takes no arguments here: interfaces have no body rules")
            return
        if self._is_repeated(annotation):
            return
        if rule is InlineRule.KEY and self.kind == "edge":
            self._refuse(annotation, "is not supported on edge properties")
            return
        problem = inline_problem(rule, self.type)
        if problem is not None:
            self._refuse(annotation, problem)
            return
        self.inline.append(rule)

    def _is_for_a_vector(self, annotation: AnnotationSyntax) -> bool:
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
            self.report(problem, annotation.at, None)
        return problem is None

    def _read_embed(self, annotation: AnnotationSyntax) -> None:
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
                known = "(only 'model' is supported), besides on_write=true"
                self._refuse(annotation, f"has unknown argument '{key}=' {known}")
                return
        self.embed = EmbedSource(value.text, model, on_write)
        self.embed_at = value.at

    def _read_metric(self, annotation: AnnotationSyntax) -> None:
        if not self._is_for_a_vector(annotation):
            return
        known = [metric.value for metric in Metric]
        value = annotation.value
        if value is None or annotation.kwargs or value.text not in known:
            near = did_you_mean(value.text, known) if value is not None else None
            message = f"@metric on '{self.subject}' takes one of " + ", ".join(f'"{metric}"' for metric in known)
            self.report(message, annotation.at, near)
            return
        self.metric = Metric(value.text)


def inline_problem(rule: InlineRule, type_: PropertyType) -> str | None:
    """Why a rule can't stand beside a property of this type. Stricter than the body for lists and vectors."""
    if type_.is_blob:
        return "is not supported on blob property"
    if type_.list:
        return "is not supported on list property"
    if type_.is_vector and rule is not InlineRule.INDEX:
        return "is not supported on vector property"
    if type_.nullable and rule is InlineRule.KEY:
        return "cannot be nullable: every node has its key"
    return None


def read_rename_from(annotations: Sequence[AnnotationSyntax], subject: str, report: Report) -> Name | None:
    """The migration hint of a declaration."""
    found: Name | None = None
    for annotation in annotations:
        if annotation.name != "rename_from":
            continue
        value = annotation.value
        if value is None or value.kind not in ("string", "name") or not value.text.strip():
            report(f"@rename_from on '{subject}' requires one non-empty name", annotation.at, None)
        elif annotation.kwargs:
            report(f"@rename_from on '{subject}' takes no named arguments", annotation.at, None)
        elif found is not None:
            report(f"'{subject}' declares @rename_from multiple times", annotation.at, None)
        else:
            found = Name(value.text, value.at)
    return found


def _single_text(annotations: Sequence[AnnotationSyntax], name: str, subject: str, report: Report) -> str | None:
    text: str | None = None
    seen = False
    for annotation in annotations:
        if annotation.name != name:
            continue
        if seen:
            report(f"'{subject}' declares @{name} multiple times", annotation.at, None)
            continue
        seen = True
        value = annotation.value
        if value is None or annotation.kwargs or not value.text.strip():
            report(f"@{name} on '{subject}' requires a non-empty value, and only that", annotation.at, None)
        else:
            text = value.text
    return text


def _custom(annotation: AnnotationSyntax) -> Annotation:
    value = annotation.value.text if annotation.value is not None else None
    return Annotation(annotation.name, value, tuple((key, argument.text) for key, argument in annotation.kwargs))


def _body_only(name: str) -> str:
    return f"@{name} is a body rule of a node: write {_BODY_ONLY[name]}"
