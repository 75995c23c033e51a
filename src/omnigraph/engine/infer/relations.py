"""Keys of the node types and ends of the edge types of a proposal: which column names a node, and which nodes it names.

A key is a column of texts or integers that is unique and never empty. Among several, the one counts that edges name
their ends by, then the one whose name is that of a key. Rows are edges when every value of both of their end columns is
a key of a type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.engine.infer.column_types import Decision
from omnigraph.engine.infer.inputs import Tables
from omnigraph.engine.infer.tables import IDENTITY, KEY_NAMES, MOST_HASHES, TableFacts, ValueSet, key_rank
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import INTEGERS, Scalar

_LONGEST_KEY: Final = 64
_ANY_TEXT: Final = len(KEY_NAMES) + 1
_ONLY_FOR_EDGES: Final = _ANY_TEXT + 1


@dataclass(frozen=True, slots=True)
class Option:
    """A column that could be the key; `IDENTITY` for the ids beside records. `rank` is how little its name says so."""

    column: str
    values: ValueSet
    rank: int


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a node type, and why; no column where nothing fits, or where records have ids of their own."""

    column: str | None
    values: ValueSet | None
    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """The type at an end of an edge, others that have all of its ids too, and an id that no type has. Where records say
    of which types their ends are, these are `members`, and the end is an interface."""

    type_name: str | None
    others: tuple[str, ...] = ()
    stray: str | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Relations:
    """Node types by name, each with its key; edge types with their end columns and their ends; and rows that look like
    edges and are not, with the reason."""

    keys: dict[str, Key]
    ends: dict[str, tuple[End, End]]
    not_edges: dict[str, str]


Decisions = Mapping[tuple[bool, str], Mapping[str, Decision]]


def relate(tables: Tables, decisions: Decisions) -> Relations:
    """The keys and ends of all types. Rows that look like edges are nodes after all when an end names nobody."""
    rows = {name: table for (is_edge, name), table in tables.by_name.items() if not is_edge}
    options = {name: _options(table, decisions[False, name]) for name, table in rows.items()}
    maybe = {name: table for name, table in rows.items() if table.end_columns and not table.is_record and table.rows}
    not_edges: dict[str, str] = {}
    while True:
        edges = {name: table for (is_edge, name), table in tables.by_name.items() if is_edge}
        edges |= {name: table for name, table in maybe.items() if name not in not_edges}
        named = [values for table in edges.values() for _, values in _end_sets(table)]
        named += [values for table in edges.values() for values in table.typed_ends.values()]
        keys = {name: _key(rows[name], each, named) for name, each in options.items() if name not in edges}
        ends = {name: _ends(table, keys, rows, tables.ends.get(name)) for name, table in edges.items()}
        strays = {name: reason for name in maybe if name in ends and (reason := _stray(maybe[name], ends[name]))}
        if not strays:
            return Relations(keys, ends, not_edges)
        # A type that is not an edge may have the keys of another one, so those that no type names go first.
        never = {name: strays[name] for name in strays if not _may_be_named(name, maybe[name], options)}
        not_edges |= never or strays


def _stray(table: TableFacts, ends: tuple[End, End]) -> str | None:
    """Why rows are not edges."""
    for (column, _), end in zip(_end_sets(table), ends, strict=True):
        if end.type_name is None:
            return f"'{column}' holds values, such as '{end.stray}', that no other type has as keys"
    return None


def _may_be_named(name: str, table: TableFacts, options: Mapping[str, Sequence[Option]]) -> bool:
    """Whether each end is among the values of a column of another type."""
    others = [option.values for other, each in options.items() if other != name for option in each]
    return all(any(other.holds(values) for other in others) for _, values in _end_sets(table))


def _options(table: TableFacts, decisions: Mapping[str, Decision]) -> list[Option]:
    options = []
    for column, values in table.candidates.items():
        type_ = decisions[column].type
        if not table.rows or type_ is None or type_.list or type_.scalar not in {Scalar.STRING, *INTEGERS}:
            continue
        if table.same_as_id is not None and column not in table.same_as_id:
            continue
        if table.end_columns is not None and column in table.end_columns:
            continue
        is_short_text = type_.scalar is Scalar.STRING and table.columns[column].longest_text <= _LONGEST_KEY
        rank = key_rank(column)
        if rank is None:
            rank = _ANY_TEXT if is_short_text else _ONLY_FOR_EDGES
        options.append(Option(column, values, rank))
    if table.ids.rows:
        options.append(Option(IDENTITY, table.ids, _ONLY_FOR_EDGES))
    return options


def _end_sets(table: TableFacts) -> list[tuple[str, ValueSet]]:
    columns = ("from", "to") if table.is_record else table.end_columns or ()
    return [(column, table.ends.get(column, ValueSet())) for column in columns]


def _key(table: TableFacts, options: Sequence[Option], ends: Sequence[ValueSet]) -> Key:
    named = {option.column: sum(option.values.holds(end) for end in ends) for option in options}
    ordered = sorted(options, key=lambda option: (-named[option.column], option.rank))
    best = next((each for each in ordered if named[each.column] or each.rank < _ONLY_FOR_EDGES), None)
    if table.ids.rows and (best is None or best.column == IDENTITY):
        return Key(None, table.ids, "no key: the records have ids of their own")
    if best is None:
        why = "there are no rows" if not table.rows else "no column is unique, never empty and like a key"
        return Key(None, None, f"no key: {why}; every load makes new nodes")
    checked = "" if best.values.rows == table.rows else f" (of the first {MOST_HASHES:,} rows)"
    reason = f"key: unique and never empty{checked}"
    if named[best.column]:
        reason += ", and edges name nodes by it"
    elif best.rank == _ANY_TEXT:
        reason += ", but not named like one: is it unique in what is still to come?"
    return Key(best.column, best.values, reason)


def _ends(
    table: TableFacts, keys: Mapping[str, Key], rows: Mapping[str, TableFacts], wanted: tuple[str, str] | None
) -> tuple[End, End]:
    if wanted is not None:
        for name in wanted:
            if name not in keys:
                hint = did_you_mean(name, list(keys))
                raise BadRequestError(
                    f"the edge type {table.name} names the type {name}, which is not read"
                    + (f"; {hint}" if hint else "")
                )
        if table.rows and table.end_columns is None:
            raise BadRequestError(f"rows of the edge type {table.name} need the columns from and to, or src and dst")
        return End(wanted[0]), End(wanted[1])
    first, second = (
        _typed_end(table, side, values, keys, rows)
        if any(side == each for each, _ in table.typed_ends)
        else _end(values, keys, rows)
        for side, values in _end_sets(table)
    )
    return first, second


def _typed_end(
    table: TableFacts, side: str, untyped: ValueSet, keys: Mapping[str, Key], rows: Mapping[str, TableFacts]
) -> End:
    """An end whose types records give. Ids without a type are of any one of them."""
    members = []
    for (own, name), values in table.typed_ends.items():
        if own == side:
            key = keys.get(name)
            if key is None or key.values is None or not key.values.holds(values):
                return End(None, stray=values.example)
            members.append(name)
    if untyped.rows:
        other = _end(untyped, keys, rows)
        if other.type_name is None:
            return other
        members.append(other.type_name)
    names = tuple(sorted(set(members)))
    return End(names[0], members=names)


def _end(values: ValueSet, keys: Mapping[str, Key], rows: Mapping[str, TableFacts]) -> End:
    fitting = [name for name, key in keys.items() if key.values is not None and key.values.holds(values)]
    if not fitting:
        return End(None, stray=values.example)
    best, *others = sorted(fitting, key=lambda name: rows[name].rows)
    return End(best, tuple(others))
