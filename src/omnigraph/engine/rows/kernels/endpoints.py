"""The ends of an edge: whatever names a node, as the id of that node.

An end is the id of a node, or its key in the key's own type: a number, a date, a boolean, and for a composite key an
object with its members by name. Loads of records, rows and frames, mutations and Spark's executors all ask here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from omnigraph.api.load import plain_array
from omnigraph.engine.rows.kernels.coerce import Column, all_match
from omnigraph.engine.rows.kernels.ids import canonical_texts
from omnigraph.engine.rows.kernels.loose import coerce_arrow, python_values, reread
from omnigraph.engine.rows.kernels.python_values import plain_value
from omnigraph.engine.rows.kernels.scalars import UnfitError, stored_scalar
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.language.types import INTEGERS, PropertyType, Scalar
from omnigraph.language.values import canonical_text, composite_id, shape_of
from omnigraph.language.violations import Sentence

_TEXT: Final = PropertyType(Scalar.STRING)
_INSTANTS: Final = frozenset({Scalar.DATE, Scalar.DATETIME})
# A key of these types makes ids of digits. Digits are an id, also where they could spell a date.
_DIGITS: Final = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_ALL_DIGITS: Final = r"^-?(0|[1-9][0-9]*)$"


class NotANodeError(Exception):
    """A value that names no node of the type at this end. What is said about it is the caller's to place."""

    def __init__(self, sentence: Sentence, **values: object) -> None:
        super().__init__(sentence.text(**values))
        self.sentence = sentence
        self.values = values


class EndpointIds:
    """The ids of nodes of one type, at the end of an edge that is called `name` (`from` or `to`)."""

    def __init__(self, name: str, node: NodeType) -> None:
        self.name = name
        self._node = node
        self._members = {member: node.properties[member].type.scalar for member in node.key}
        scalars = list(self._members.values())
        self._scalar = scalars[0] if len(scalars) == 1 else None
        self.takes_any_text = self._scalar in (None, Scalar.STRING)
        """Whether a text is always the id itself, and never another spelling of the key."""

    def id_of(self, value: object) -> str:
        """The id that a value of JSON or of a query stands for; raises NotANodeError."""
        if isinstance(value, str):
            return value if self.takes_any_text else self._id_of_text(value)
        is_composite = isinstance(value, Mapping) and len(self._members) > 1
        if value is None or (self.takes_any_text and not is_composite):
            raise NotANodeError(Sentence.NO_NODE_ID, name=self.name, shape=shape_of(value))
        try:
            return self._id_of_key(value)
        except UnfitError as unfit:
            raise self._refusal(str(unfit)) from None

    def id_of_python(self, value: object) -> str:
        """As `id_of`, for a value of a Python program. An integer also names the node with that text as its key."""
        if isinstance(value, Mapping):
            return self.id_of(value)
        plain = plain_value(_TEXT if self._scalar is None else PropertyType(self._scalar), value)
        return str(plain) if type(plain) is int and self.takes_any_text else self.id_of(plain)

    def column(self, array: pa.Array) -> Column:
        """As `id_of_python`, for a column of Arrow; rows that name no node are null and have a reason."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        array = plain_array(array)
        if pt.is_null(array.type) or pt.is_string(array.type) or pt.is_large_string(array.type):
            return self._text_column(coerce_arrow(_TEXT, array).array)
        if pt.is_integer(array.type) and (self._scalar in INTEGERS | _INSTANTS or self.takes_any_text):
            return Column(canonical_texts(Scalar.I64, array))
        if self._scalar is not None and not self.takes_any_text:
            typed = coerce_arrow(PropertyType(self._scalar), array)
            return Column(canonical_texts(self._scalar, typed.array), typed.unfit)
        if pt.is_struct(array.type) and len(self._members) > 1:
            return self._composite_column(array)
        raise BadRequestError(f"column '{self.name}' must hold ids as strings, not {array.type}")

    def reason(self, unfit: str) -> tuple[Sentence, dict[str, object]]:
        """What is said about a row of `column` that is unfit."""
        refusal = self._refusal(unfit)
        return refusal.sentence, refusal.values

    def _refusal(self, unfit: str) -> NotANodeError:
        return NotANodeError(Sentence.NO_NODE_KEY, name=self.name, node=self._node.name, reason=unfit)

    def _id_of_key(self, value: object) -> str:
        if self._scalar is not None:
            return canonical_text(self._scalar, stored_scalar(self._scalar, value))
        if not isinstance(value, Mapping) or value.keys() != self._members.keys():
            raise UnfitError(f"expects an object with {', '.join(self._members)}, got {_members_of(value)}")
        parts = []
        for member, scalar in self._members.items():
            given = plain_value(PropertyType(scalar), value[member])
            try:
                parts.append(canonical_text(scalar, stored_scalar(scalar, given)))
            except UnfitError as unfit:
                raise UnfitError(f"{member}: {unfit}") from None
        return composite_id(parts)

    def _id_of_text(self, text: str) -> str:
        """A text is the id of the node, unless it spells the key in another way: 2020-01-01, or 007."""
        if _DIGITS.fullmatch(text) is not None:
            return text
        try:
            return self._id_of_key(reread(self._scalar or Scalar.STRING, text))
        except UnfitError:
            return text

    def _text_column(self, texts: pa.Array) -> Column:
        if self.takes_any_text or all_match(texts, _ALL_DIGITS):
            return Column(texts)
        return Column(
            pa.array([text if text is None else self._id_of_text(text) for text in texts.to_pylist()], pa.string())
        )

    def _composite_column(self, array: pa.Array) -> Column:
        ids: list[str | None] = []
        unfit: dict[int, str] = {}
        for row, value in enumerate(python_values(array)):
            try:
                ids.append(None if value is None else self._id_of_key(value))
            except UnfitError as error:
                ids.append(None)
                unfit[row] = str(error)
        return Column(pa.array(ids, pa.string()), unfit)


EdgeEnds: TypeAlias = tuple[EndpointIds, EndpointIds]


def edge_ends(catalog: Catalog, edge: EdgeType) -> EdgeEnds:
    """How the two ends of an edge name their nodes."""
    return EndpointIds("from", catalog.nodes[edge.from_type]), EndpointIds("to", catalog.nodes[edge.to_type])


def ends_of_type(catalog: Catalog, type_: TableType) -> EdgeEnds | None:
    """The same for any type; a node has no ends."""
    return edge_ends(catalog, type_) if isinstance(type_, EdgeType) else None


def _members_of(value: object) -> str:
    return f"one with {', '.join(map(str, value)) or 'nothing'}" if isinstance(value, Mapping) else shape_of(value)
