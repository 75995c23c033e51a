"""The words of the languages that no schema declares, with what an editor says about each.

Completion and hover read these lists. A new annotation, keyword or function is one line here; tests hold the functions
to those of the query language and the annotations to the guide of the schema language.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from omnigraph.language.query.syntax import AggregateFunction, MetaField


class Target(StrEnum):
    """Where an annotation of a schema may be."""

    NODE = "node"
    EDGE = "edge"
    PROPERTY = "property"
    NODE_BODY = "node body"
    EDGE_BODY = "edge body"


class Annotation(Struct, frozen=True):
    name: str
    form: str
    """What completion inserts behind the `@`, without arguments that a person has to give."""
    targets: tuple[Target, ...]
    text: str


_TYPES: Final = (Target.NODE, Target.EDGE)
_BODIES: Final = (Target.NODE_BODY, Target.EDGE_BODY)

ANNOTATIONS: Final = (
    Annotation("key", "key", (Target.PROPERTY,), "The identity of a node."),
    Annotation("key", "key(", _BODIES, "The identity: several properties of a node, or `@key(@src, @dst, …)`."),
    Annotation("unique", "unique", (Target.PROPERTY,), "No two rows share the value; a null exempts a row."),
    Annotation("unique", "unique(", _BODIES, "No two rows share the whole tuple; a null exempts a row."),
    Annotation("index", "index", (Target.PROPERTY,), "Build an index. Results never depend on it, except vectors."),
    Annotation(
        "index",
        "index(",
        (Target.PROPERTY,),
        "Parameters of an index of vectors: `@index(partitions=1000, probes=30, exact_rows=100000)`.",
    ),
    Annotation("index", "index(", _BODIES, "Build an index. Results never depend on it."),
    Annotation("range", "range(", (Target.NODE_BODY,), "Bounds of a number, both included: `@range(pages, 1..5000)`."),
    Annotation("check", "check(", (Target.NODE_BODY,), 'The text matches an expression: `@check(isbn, "^[0-9-]+$")`.'),
    Annotation("card", "card(", (Target.EDGE,), "How many such edges one source node may have: `@card(0..5)`."),
    Annotation("description", 'description("', (*_TYPES, Target.PROPERTY), "Text for people and agents."),
    Annotation("instruction", 'instruction("', _TYPES, "How an agent should use the type."),
    Annotation("embed", 'embed("', (Target.PROPERTY,), "The vector is made from that String property of the node."),
    Annotation("metric", 'metric("', (Target.PROPERTY,), 'How `nearest` measures distance: "l2", "cosine" or "dot".'),
    Annotation("label", 'label("', _TYPES, "The name of the type in openCypher."),
    Annotation("rename_from", 'rename_from("', (*_TYPES, Target.PROPERTY), "The declaration had that name before."),
    Annotation(
        "rename_value", 'rename_value("', (Target.PROPERTY,), 'An enum value was renamed: `("open", to="todo")`.'
    ),
)

QUERY_META: Final = {
    "description": "What the query is for, shown to people and agents.",
    "instruction": "How an agent should use the query.",
}
META_FIELDS: Final = {
    MetaField.ID: "The id of a node or an edge.",
    MetaField.TYPE: "The name of the type.",
    MetaField.SRC: "The id of the node that an edge leads from.",
    MetaField.DST: "The id of the node that an edge leads to.",
}

BODY_KEYWORDS: Final = {
    "match": "Patterns and conditions that rows have to meet.",
    "return": "The columns of the result, or of the next stage.",
    "order": "How rows are sorted.",
    "limit": "The number of rows at most.",
    "offset": "The number of rows to skip.",
    "then": "The next stage: it gets the columns of this one as variables.",
    "unwind": "A row for each item of a list: `unwind [1, 2] as $x`.",
    "union": "The rows of both reads, each once; `union all` keeps repeated ones.",
    "insert": "Add a node or an edge, or replace the one with its key; `insert new` only adds.",
    "upsert": "Change what is assigned of the entity with this key, or add it.",
    "update": "Change entities: `update Type set { … } where …`.",
    "delete": "Delete entities: `delete Type where …`.",
}
CLAUSE_KEYWORDS: Final = {
    "optional": "A block that need not match: its variables are null then.",
    "not": "No match for this block, or the opposite of a condition.",
    "exists": "Whether a block matches.",
    "path": "Bind the path of a traversal: `path $p: shortest $a knows{1,6} $b`.",
}
OPERATORS: Final = {
    "and": "Both conditions.",
    "or": "One of the conditions.",
    "in": "A value is one of a list.",
    "is null": "There is no value.",
    "is not null": "There is a value.",
    "contains": "A text contains another one.",
    "starts_with": "A text begins with another one.",
}
EXPRESSION_KEYWORDS: Final = {
    "case": "A value by conditions: `case when … then … else … end`.",
    "null": "No value.",
    "true": "A truth value.",
    "false": "A truth value.",
    "distinct": "Each once, in an aggregate or behind `return`.",
}
SORT_KEYWORDS: Final = {
    "asc": "The smallest first.",
    "desc": "The largest first.",
    "nulls first": "Nulls before all other values.",
    "nulls last": "Nulls behind all other values.",
}
PATH_MODES: Final = {
    "shortest": "One shortest path for each pair of ends.",
    "all_shortest": "Every shortest path for each pair of ends.",
    "trails": "Every path that takes no edge twice.",
}

AGGREGATES: Final = {
    AggregateFunction.COUNT: ("count(x)", "How many values there are; `count(*)` counts rows."),
    AggregateFunction.SUM: ("sum(x)", "The sum of numbers."),
    AggregateFunction.AVG: ("avg(x)", "The mean of numbers."),
    AggregateFunction.MIN: ("min(x)", "The smallest value."),
    AggregateFunction.MAX: ("max(x)", "The largest value."),
    AggregateFunction.COLLECT: ("collect(x)", "A list of the values."),
    AggregateFunction.STDEV: ("stdev(x)", "The standard deviation of a sample."),
    AggregateFunction.STDEVP: ("stdevp(x)", "The standard deviation of all values."),
    AggregateFunction.PERCENTILE_CONT: ("percentile_cont(x, fraction)", "A percentile, between values if need be."),
    AggregateFunction.PERCENTILE_DISC: ("percentile_disc(x, fraction)", "A percentile that is one of the values."),
}
SEARCHES: Final = {
    "search": ("search($x.p, text) -> Bool", "Whether a text holds all words of another one."),
    "match_text": ("match_text($x.p, text) -> Bool", "Whether a text holds the words of another one, as analysed."),
    "fuzzy": ("fuzzy($x.p, text[, max_edits]) -> Bool", "As `search`, of words with some letters changed."),
    "nearest": (
        "nearest($x.p, vector or text, exact: true) -> distance",
        "The distance of a vector; as a sort key, nearest first. With `exact: true` an index of vectors misses none.",
    ),
    "bm25": ("bm25($x.p, text) -> score", "How well a text fits words; as a sort key, best first."),
    "rrf": ("rrf(ranking, ranking[, k]) -> score", "Two rankings fused by their places."),
    "now": ("now() -> DateTime", "The instant of the request."),
}

FUNCTIONS: Final = {
    "lower": "The text in lower case.",
    "upper": "The text in upper case.",
    "trim": "The text without white space at its ends.",
    "ltrim": "The text without white space at its beginning.",
    "rtrim": "The text without white space at its end.",
    "reverse": "A text or a list from its end.",
    "left": "The first characters of a text.",
    "right": "The last characters of a text.",
    "substring": "Characters of a text from a position, which counts from 0.",
    "replace": "The text with every `a` replaced by `b`.",
    "split": "The parts of a text between separators; an empty separator gives its characters.",
    "join": "The texts of a list with a separator between them.",
    "size": "The number of characters of a text, or of items of a list.",
    "contains": "Whether a text contains another one.",
    "starts_with": "Whether a text begins with another one.",
    "ends_with": "Whether a text ends with another one.",
    "matches": "Whether the whole text matches a regular expression in RE2 syntax.",
    "abs": "The number without its sign.",
    "sign": "-1, 0 or 1.",
    "ceil": "The smallest whole number that is not below.",
    "floor": "The largest whole number that is not above.",
    "round": "The nearest number with so many digits; halves are rounded up.",
    "sqrt": "The square root.",
    "exp": "e to the power of a number.",
    "log": "The natural logarithm.",
    "log10": "The logarithm to the base 10.",
    "power": "x to the power of y.",
    "pi": "The number π.",
    "e": "The number e.",
    "sin": "The sine of an angle in radians.",
    "cos": "The cosine of an angle in radians.",
    "tan": "The tangent of an angle in radians.",
    "asin": "The arc sine, in radians.",
    "acos": "The arc cosine, in radians.",
    "atan": "The arc tangent, in radians.",
    "atan2": "The angle of the point (x, y), in radians.",
    "degrees": "Radians as degrees.",
    "radians": "Degrees as radians.",
    "to_string": "The value as a text.",
    "to_int": "The value as a whole number; null for a text that is not one.",
    "to_float": "The value as a number; null for a text that is not one.",
    "to_bool": "The value as a truth value; null for a text that is not one.",
    "coalesce": "The first value that is not null.",
    "nullif": "Null if both are equal, else the first.",
    "date": "The day of a text, a Date or a DateTime.",
    "datetime": "The instant of a text, a Date or a DateTime.",
    "year": "The year, in UTC.",
    "month": "The month, from 1.",
    "day": "The day of the month, from 1.",
    "hour": "The hour, in UTC.",
    "minute": "The minute.",
    "second": "The second.",
    "weekday": "The day of the week; Monday is 1.",
    "add_days": "A day or an instant some days later.",
    "add_months": "The same day some months later; the end of a month stays in its month.",
    "add_seconds": "An instant some seconds later.",
    "days_between": "The days from `a` to `b`.",
    "seconds_between": "The seconds from `a` to `b`.",
    "head": "The first item of a list.",
    "last": "The last item of a list.",
    "tail": "The list without its first item.",
    "item": "The item at a position; a negative one counts from the end.",
    "slice": "The items from a position up to another one, which is not included.",
    "range": "The whole numbers from `a` to `b`, both included.",
    "keys": "The names of the properties that are not null.",
    "length": "The number of edges of a path.",
    "nodes": "The nodes of a path.",
    "edges": "The edges of a path.",
    "start": "The first node of a path.",
    "end": "The last node of a path.",
    "record": "Named values.",
    "field": "A value of a record by its name.",
    "path": "A path made of nodes and edges that are bound.",
    "map": "A value for each item of a list.",
    "any": "Whether a condition is true for an item.",
    "all": "Whether a condition is true for every item.",
    "none": "Whether a condition is true for no item.",
    "single": "Whether a condition is true for exactly one item.",
    "reduce": "One value from all items.",
}
