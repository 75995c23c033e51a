"""What stored rows must satisfy before a changed schema can hold for them: every rule that is new to them.

`schema apply` runs the checks and refuses the change at the first row that fails; `schema plan` runs the same ones and
lists what fails. Rows are checked as the change will leave them: with renamed enum values, and with filled nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.engine.rows.end_ids import IdForm, plain_id
from omnigraph.engine.rows.kernels.records import missing_value
from omnigraph.engine.rows.kernels.typed_rows import forbidden_values
from omnigraph.engine.rows.type_state import TypeState
from omnigraph.engine.schema.repeated_keys import rows_alike
from omnigraph.engine.schema.table_changes import TableChange, changes_values, fills_nulls
from omnigraph.engine.write.change import TypeChange
from omnigraph.engine.write.constraints import broken_bound, member_column, repeated_tuples
from omnigraph.errors import ConstraintError, ConstraintRule
from omnigraph.language.catalog import (
    TAG_SIGN,
    Cardinality,
    CheckRule,
    EdgeEnd,
    EdgeType,
    NodeType,
    Property,
    RangeRule,
    TableType,
)
from omnigraph.language.violations import Sentence
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import identifier, string_literal

MOST_OFFENCES: Final = 5
"""So many rows that break a rule are named."""

_UNBOUNDED = Cardinality()
_UPDATE_FIRST = "change these rows with an update first"


@dataclass(frozen=True)
class Offence:
    """A stored row that a changed schema forbids."""

    rule: ConstraintRule
    type_key: str
    property: str | None
    entity_id: str | None
    reason: str

    def __str__(self) -> str:
        entity = f"{self.type_key} '{self.entity_id}'" if self.entity_id is not None else self.type_key
        return f"{entity}: {self.reason}"


@dataclass
class Check:
    """One rule that is new to the stored rows, what a plan calls it, and the first rows that break it."""

    rule: ConstraintRule
    subject: str
    """The property, the members of a rule, or the type: what a step of the plan names."""
    sentence: str
    remedy: str
    offences: list[Offence] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return len(self.offences) < MOST_OFFENCES


def run_checks(change: TableChange) -> list[Check]:
    """Every check that a change of one table needs, done."""
    state = TypeState(change.reader, change.new, change.state, carries=True)
    checks = [*_check_values(change, state), *_check_tuples(change, state)]
    if isinstance(change.new, EdgeType) and isinstance(change.old, EdgeType):
        checks += _check_cardinality(state, change.old, change.new)
        checks += _check_ends(change.table, change.old, change.new)
    return checks


def refuse_offences(checks: list[Check]) -> None:
    """Raise for the first check that some rows fail; the message names the first rows."""
    for check in checks:
        if check.offences:
            first = check.offences[0]
            shown = "; ".join(map(str, check.offences))
            more = " (and possibly more)" if not check.is_open else ""
            message = f"the schema can't be applied, because stored rows break it: {shown}{more}; {check.remedy}"
            raise ConstraintError(first.rule, first.type_key, first.property, first.entity_id, None, message=message)


# Values of single rows


@dataclass
class _ValueRules:
    """The rules about the values of one type that have to be checked."""

    required: dict[str, Check] = field(default_factory=dict)
    enums: dict[str, Check] = field(default_factory=dict)
    ranges: dict[RangeRule, Check] = field(default_factory=dict)
    patterns: dict[CheckRule, Check] = field(default_factory=dict)

    @property
    def checks(self) -> list[Check]:
        return [*self.required.values(), *self.enums.values(), *self.ranges.values(), *self.patterns.values()]

    @property
    def properties(self) -> set[str]:
        return {check.subject for check in self.checks}


def _value_rules(old: TableType, new: TableType) -> _ValueRules:
    rules, before = _ValueRules(), {prop.id: prop for prop in old.property_list}
    changed: set[str] = set()
    for prop in new.property_list:
        stored = before.get(prop.id)
        if stored is None:
            continue
        if stored.type.nullable and not prop.type.nullable and not fills_nulls(stored, prop):
            sentence = f"every {new.name} has a value of '{prop.name}'"
            remedy = "give the property a default, or fill it with an update first"
            rules.required[prop.name] = Check(ConstraintRule.REQUIRED, prop.name, sentence, remedy)
        if _may_lose_values(stored, prop):
            sentence = f"every value of {new.name}.{prop.name} is one of {', '.join(prop.type.enum_values or ())}"
            rules.enums[prop.name] = Check(ConstraintRule.ENUM, prop.name, sentence, _UPDATE_FIRST)
        if changes_values(stored, prop):
            changed.add(prop.name)
    if not isinstance(old, NodeType) or not isinstance(new, NodeType):
        return rules
    names = {prop.id: prop.name for prop in old.property_list}
    stored_names = {prop.name: names[prop.id] for prop in new.property_list if prop.id in names}

    def is_new(rule: RangeRule | CheckRule, accepted: Sequence[RangeRule | CheckRule]) -> bool:
        name = stored_names.get(rule.property)
        return name is not None and (rule.property in changed or replace(rule, property=name) not in accepted)

    for bounds in (rule for rule in new.ranges if is_new(rule, old.ranges)):
        sentence = f"every value of {new.name}.{bounds.property} is within its @range"
        rules.ranges[bounds] = Check(ConstraintRule.RANGE, bounds.property, sentence, _UPDATE_FIRST)
    for pattern in (rule for rule in new.checks if is_new(rule, old.checks)):
        sentence = f"every value of {new.name}.{pattern.property} matches its @check"
        rules.patterns[pattern] = Check(ConstraintRule.CHECK, pattern.property, sentence, _UPDATE_FIRST)
    return rules


def _may_lose_values(before: Property, after: Property) -> bool:
    """Whether a stored value may be none of the enum's."""
    if after.type.enum_values is None:
        return False
    if before.type.enum_values is None:
        return True
    gone = set(before.type.enum_values) - set(after.type.enum_values) - set(dict(after.renamed_values))
    return bool(gone)


def _check_values(change: TableChange, state: TypeState) -> list[Check]:
    """One scan for all rules about values of single rows; it ends when all of them have failed often enough."""
    rules = _value_rules(change.old, change.new)
    if not rules.checks:
        return []
    checked: TableType = change.new
    if isinstance(checked, NodeType):
        checked = replace(checked, ranges=tuple(rules.ranges), checks=tuple(rules.patterns))
    for rows in state.parts([checked.properties[name].column for name in sorted(rules.properties)]):
        for name, check in rules.required.items():
            _note_nulls(change.new, checked.properties[name], rows, check)
        by_rule: dict[tuple[ConstraintRule, str], list[Check]] = {}
        for check in rules.checks:
            by_rule.setdefault((check.rule, check.subject), []).append(check)
        for bad in forbidden_values(checked, rows):
            for check in by_rule.get((bad.rule, bad.property), ())[:1]:
                if check.is_open:
                    entity_id = rows.column("id")[bad.row].as_py()
                    check.offences.append(Offence(bad.rule, checked.type_key, bad.property, entity_id, bad.reason))
        if not any(check.is_open for check in rules.checks):
            break
    return rules.checks


def _note_nulls(type_: TableType, prop: Property, rows: pa.Table, check: Check) -> None:
    values = rows.column(prop.column)
    if not values.null_count or not check.is_open:
        return
    sentence = missing_value(type_, prop)
    for entity_id in islice(rows.column("id").filter(pc.is_null(values)), MOST_OFFENCES - len(check.offences)):
        reason = sentence.text(property=prop.name)
        check.offences.append(Offence(sentence.rule, type_.type_key, prop.name, entity_id.as_py(), reason))


# Rules over several rows


def _check_tuples(change: TableChange, state: TypeState) -> Iterator[Check]:
    """`@unique` rules that are new or whose values change, and the key that edges get."""
    old, new = change.old, change.new
    ids = {prop.id: prop.name for prop in old.property_list}
    before = {frozenset(_member_id(old, name) for name in members) for members in old.uniques}
    changed = {
        prop.name
        for prop in new.property_list
        for before in old.property_list
        if before.id == prop.id and changes_values(before, prop)
    }
    for members in new.uniques:
        identity = frozenset(_member_id(new, name) for name in members)
        stored = all(name not in new.properties or new.properties[name].id in ids for name in members)
        if identity not in before or changed.intersection(members):
            sentence = f"no two {new.name} share {_tuple_text(members)}"
            check = Check(ConstraintRule.UNIQUE, _tuple_text(members), sentence, _UPDATE_FIRST)
            if stored or len(members) > 1 or not new.properties[members[0]].type.nullable:
                check.offences += _find_shared(state, members, Sentence.SHARED_VALUE)
            yield check
    if change.gets_key:
        remedy = "delete some of them first, or keep one of each with --dedupe first or --dedupe last"
        check = Check(ConstraintRule.KEY, _tuple_text(new.key), f"no two {new.name} have the same key", remedy)
        if change.dedupe is None:
            check.offences += _find_shared(state, new.key, Sentence.SHARED_KEY)
        yield check


def _member_id(type_: TableType, name: str) -> object:
    prop = type_.properties.get(name)
    return name.removeprefix("@") if prop is None else prop.id


def _tuple_text(members: tuple[str, ...]) -> str:
    return ", ".join(members)


def _find_shared(state: TypeState, members: tuple[str, ...], sentence: Sentence) -> Iterator[Offence]:
    columns = [member_column(state.type, name) for name in members]
    alike = TypeChange(state.type, rows_alike(state, columns), replaces=True)
    for violation in islice(repeated_tuples(alike, members, sentence), MOST_OFFENCES):
        yield Offence(sentence.rule, state.type_key, violation.property, violation.entity_id, violation.reason)


def _check_cardinality(state: TypeState, old: EdgeType, new: EdgeType) -> Iterator[Check]:
    """Sources that have edges. One that has none is not looked at: nothing was written there that broke a rule."""
    if new.cardinality == old.cardinality or new.cardinality == _UNBOUNDED:
        return
    sentence = f"every source has {new.cardinality} edges of {new.name}, if it has any"
    check = Check(ConstraintRule.CARDINALITY, new.name, sentence, "add or delete edges first")
    tallies = [_tally(rows.column("src")) for rows in state.parts(["src"])]
    counts = pa.concat_tables(tallies).group_by("source").aggregate([("count", "sum")]).sort_by("source")
    for source, count in zip(counts.column("source"), counts.column("count_sum"), strict=True):
        broken = broken_bound(new.cardinality, count.as_py())
        if broken is not None and check.is_open:
            named = plain_id(new.ends[0], source.as_py())
            reason = broken[0].text(type=new.name, source=named, count=count.as_py(), bound=broken[1])
            check.offences.append(Offence(broken[0].rule, new.type_key, "src", None, reason))
        if not check.is_open:
            break
    yield check


def _check_ends(table: Table, old: EdgeType, new: EdgeType) -> Iterator[Check]:
    """Ends of the node types that an interface loses; and where an end is widened, ids that would be taken for tagged
    ones."""
    for before, after in zip(old.ends, new.ends, strict=True):
        for subject, sentence, condition in _lost_ends(before, after):
            remedy = "delete these edges first"
            check = Check(ConstraintRule.ENDPOINT, subject, sentence, remedy)
            for row in table.read(["id", before.column], filter=condition, limit=MOST_OFFENCES).to_pylist():
                named = {"end": before.column, "node_id": plain_id(before, row[before.column])}
                reason = Sentence.DANGLING_EDGE.text(type=new.name, node=_end_name(new, after), **named)
                check.offences.append(Offence(check.rule, new.type_key, before.column, row["id"], reason))
            yield check


def _lost_ends(before: EdgeEnd, after: EdgeEnd) -> Iterator[tuple[str, str, str]]:
    """What the column of an end may hold that no type of the changed end would read: the subject of a check, its
    sentence, and a filter."""
    if after.interface is None:
        return
    sign = f"starts_with({identifier(before.column)}, {string_literal(TAG_SIGN)})"
    if before.interface is None:
        yield before.column, f"no {before.column} begins with the control character U+001F, which marks types", sign
        return
    kept = {member.id for member in after.interface.members}
    for member in before.interface.members:
        if member.id not in kept:
            form = IdForm.of(before, member.name)
            tagged = f"starts_with({identifier(before.column)}, {string_literal(form.signed)})"
            condition = tagged if form.tag else f"({tagged} OR NOT {sign})"
            yield f"node:{member.name}", f"no {before.column} is a node of the type {member.name}", condition


def _end_name(edge: EdgeType, end: EdgeEnd) -> str:
    return edge.from_type if end.column == "src" else edge.to_type


def _tally(sources: pa.ChunkedArray) -> pa.Table:
    counts = pc.value_counts(sources)
    return pa.table({"source": counts.field("values"), "count": counts.field("counts")})
