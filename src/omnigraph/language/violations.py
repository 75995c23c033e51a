"""The sentences about data that breaks a rule of its schema, in one table for all checks.

The row kernels and the constraint stage render a sentence with Python values, checks on Spark render it as a column
expression; both read the template here, so a mutation, a load, a merge and a pipeline report the same text. The
position of a record (line, statement, file and row) is not part of a sentence: every caller puts its own before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from string import Formatter

from omnigraph.dates import format_date, format_datetime
from omnigraph.errors import ConstraintRule as Rule
from omnigraph.language.types import FLOATS, Scalar
from omnigraph.language.values import shortest_float

_LONGEST_SHOWN = 80


class Sentence(Enum):
    """Every sentence, with the rule that it is about. Names in braces stand for values."""

    # Records and their members
    NOT_STRICT_JSON = (Rule.RECORD, "invalid strict JSON: {reason}")
    NOT_JSON = (Rule.RECORD, "{reason}")
    NO_OBJECT = (Rule.RECORD, "expected a JSON object with 'type' or 'edge', got {shape}")
    NO_TYPE = (Rule.RECORD, "expected 'type' or 'edge', which must be a string")
    TWO_IDS = (Rule.RECORD, "the record has two ids, one beside 'data' and one within; leave one out")
    TWO_TYPES = (Rule.RECORD, "expected exactly one of 'type' or 'edge'")
    UNKNOWN_TYPE = (Rule.RECORD, "unknown {kind} type '{name}'{suggestion}")
    UNKNOWN_MEMBER = (
        Rule.RECORD,
        "unknown top-level graph batch field '{name}'; properties of a {kind} belong into 'data'",
    )
    NO_DATA = (Rule.RECORD, "'data' must be an object, got {shape}")
    NO_NODE_ID = (Rule.RECORD, "'{name}' must be a string, the id of a node; got {shape}")
    NO_NODE_KEY = (Rule.RECORD, "'{name}' must be a string, the id of a {node}, or a value of its key: {reason}")
    NO_END_TYPE = (Rule.RECORD, "'{name}' has to give the type of '{node_id}' here, one of {types}")
    OTHER_END_TYPE = (Rule.RECORD, "'{name}' must be one of {types}, got {value}{suggestion}")
    END_TYPE_ALONE = (
        Rule.RECORD,
        "'{name}' is the type of a node, and '{end}' does not say which; give both, or neither",
    )
    NO_ROW = (Rule.RECORD, "expected the properties of a {type} by name, got {shape}")
    MALFORMED_ROW = (Rule.RECORD, "the record is malformed: {reason}")
    UNKNOWN_FIELD = (Rule.FIELD, "unknown input field '{name}'{suggestion}")
    RESERVED_FIELD = (Rule.FIELD, "'{name}' is reserved physical state")
    RESERVED_ENDPOINT = (
        Rule.FIELD,
        "'{name}' is reserved structural state; the endpoints are 'from' and 'to' beside 'data'",
    )

    # Values and keys
    WRONG_VALUE = (Rule.TYPE, "property '{property}': {reason}")
    LONE_SURROGATE = (
        Rule.TYPE,
        "property '{property}': the text holds half of a surrogate pair, which no column can store",
    )
    WRONG_ID = (Rule.TYPE, "'id' must be a string, got {shape}")
    NO_VALUE = (Rule.REQUIRED, "non-nullable property '{property}' has null value")
    NO_KEY = (Rule.REQUIRED, "non-nullable property '{property}' has null value, and it is part of the @key")
    NO_VECTOR = (
        Rule.REQUIRED,
        "non-nullable vector property '{property}' has no value; @embed does not fill it on load",
    )
    NO_TEXT = (
        Rule.REQUIRED,
        "non-nullable vector property '{property}' has no value, and '{source}' has no text to embed",
    )
    NO_BLOB = (Rule.REQUIRED, "non-nullable blob property '{property}' has no value")
    NO_IDENTITY = (Rule.REQUIRED, "an update needs {names}, to find what it changes")
    UNKNOWN_ENTITY = (
        Rule.KEY,
        "there is no {type} with the id '{entity_id}'; an update inserts nothing, which the mode merge does",
    )
    OTHER_KEY = (Rule.KEY, "id {given} does not match its canonical @key id {canonical}")
    NO_SPELLING = (Rule.KEY, "id {given} does not match @key, whose canonical id is {canonical}")
    AMBIGUOUS_ENDPOINT = (Rule.KEY, "ambiguous edge endpoint remap: {given} stands for {known} and {canonical}")

    # Constraints of single values
    BELOW_MINIMUM = (Rule.RANGE, "@range violation on {type}.{property}: value {value} < min {bound}")
    ABOVE_MAXIMUM = (Rule.RANGE, "@range violation on {type}.{property}: value {value} > max {bound}")
    NAN = (Rule.RANGE, "@range violation on {type}.{property}: value is NaN")
    NOT_FINITE = (Rule.RANGE, "@range violation on {type}.{property}: value {value} is not finite")
    NO_MATCH = (Rule.CHECK, "@check violation on {type}.{property}: value {value} does not match pattern '{pattern}'")
    NO_MEMBER = (Rule.ENUM, "invalid enum value {value} for {type}.{property} (expected: {allowed})")

    # Constraints that span rows
    SHARED_KEY = (
        Rule.KEY,
        "@unique violation on {type}.{property}: value '{value}' held by '{holder}' and '{entity_id}'",
    )
    SHARED_VALUE = (
        Rule.UNIQUE,
        "@unique violation on {type}.{property}: value '{value}' held by '{holder}' and '{entity_id}'",
    )
    DANGLING_EDGE = (Rule.ENDPOINT, "edge {type}: {end} '{node_id}' not found in {node}")
    AMBIGUOUS_END = (
        Rule.ENDPOINT,
        "edge {type}: {end} '{node_id}' is ambiguous, several types have a node with that id: {nodes}",
    )
    ORPHANED_EDGE = (
        Rule.ENDPOINT,
        "edge {type} '{entity_id}' would be orphaned: {end} '{node_id}' not found in {node}",
    )
    TOO_MANY_EDGES = (
        Rule.CARDINALITY,
        "@card violation on edge {type}: source '{source}' has {count} edges (max {bound})",
    )
    TOO_FEW_EDGES = (
        Rule.CARDINALITY,
        "@card violation on edge {type}: source '{source}' has {count} edges (min {bound})",
    )
    REPEATED_ID = (Rule.ID, "the input holds the {type_key} id '{entity_id}' more than once")
    TAKEN_ID = (Rule.ID, "{type_key} already holds the id '{entity_id}'")
    REFUSED_BLOB = (Rule.BLOB, "{reason}")

    # The export form
    NOT_EXPORTABLE = (
        Rule.FINITE,
        (
            "{type} '{entity_id}': property '{property}' holds a number that is not finite, which JSON can't carry; "
            "export it as Parquet or Arrow"
        ),
    )

    def __init__(self, rule: Rule, template: str) -> None:
        self.rule = rule
        self.template = template

    def text(self, **values: object) -> str:
        """The sentence with these values in it."""
        return self.template.format_map(values)

    def pieces(self) -> Iterator[tuple[str, str | None]]:
        """The template in order: a fixed text, and the name of the value that follows it."""
        for fixed, name, _, _ in Formatter().parse(self.template):
            yield fixed, name


ORPHAN_REMEDY = "keep the node, or load {type} in the same overwrite"
"""What follows `ORPHANED_EDGE` where an overwrite drops the node."""


AMBIGUITY_REMEDY = "say which with '{name}_type', or use a variable that is bound to the node"
"""What follows `AMBIGUOUS_END` in a load or a mutation."""


def members_name(members: Sequence[str]) -> str:
    """How a sentence shows the properties of a rule, or their values: alone, or as a tuple."""
    return members[0] if len(members) == 1 else f"({', '.join(members)})"


def the_property(members: Sequence[str]) -> str | None:
    """The property that a violation is about; None for a rule over several."""
    return members[0] if len(members) == 1 else None


def value_text(scalar: Scalar, stored: object) -> str:
    """A stored value as a sentence shows it; a Date as its epoch day and a DateTime as its epoch millisecond."""
    if isinstance(stored, bool):
        return "true" if stored else "false"
    if scalar is Scalar.DATE and isinstance(stored, int):
        return format_date(stored)
    if scalar is Scalar.DATETIME and isinstance(stored, int):
        return format_datetime(stored)
    if scalar in FLOATS and isinstance(stored, float):
        return repr(shortest_float(scalar, stored))
    return str(stored)


def quote(text: str) -> str:
    """A text as a sentence quotes it; long ones are cut."""
    return f"'{text}'" if len(text) <= _LONGEST_SHOWN else f"'{text[:_LONGEST_SHOWN]}…'"
