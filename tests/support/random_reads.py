"""Random reads over the schema of `mixed_graph`, of every construct that the language has.

What is written is typed roughly: most texts compile, and who draws them skips the rest. Rows are cut only below a total
order, so that each text has one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from .random_values import PARAMETERS, SCALARS, Kind, Scope, ValueWriter

ENDS = {
    "Knows": ("Person", "Person"),
    "Likes": ("Person", "Person"),
    "Near": ("City", "City"),
    "Lives": ("Person", "City"),
    "Visits": ("Person", "City"),
    "Member": ("Person", "Club"),
    "Hosts": ("City", "Club"),
    "Plays": ("Band", "Club"),
}
NODES = ("Person", "City", "Club", "Band")
TITLED = ("Club", "Band")
"""The node types at the ends of edges whose ends are an interface."""


@dataclass(frozen=True)
class RandomRead:
    text: str
    parameters: dict[str, Any]
    is_ordered: bool
    bags: frozenset[int]
    """The columns that are lists without an order."""


@dataclass
class Stage:
    """A stage that was written: what it returns, by name, and whether its rows have one order."""

    text: str
    columns: Scope
    is_ordered: bool = False


class Writer(ValueWriter):
    """Writes patterns and stages. What a pattern binds is in its scope from then on."""

    # ---- blocks and clauses

    def block(self, kind: str, depth: int) -> str:
        """`exists { … }`, `count { … }`; a pattern that begins at a node from outside."""
        if not self.variables("node") or depth < 0:
            return "true" if kind == "exists" else "1"
        inner = self.inner()
        clauses = inner.clauses(self.pick(1, 1, 2), depth - 1, in_block=True)
        return self.within(inner, f"{kind} {{ {clauses} }}")

    def aggregate_block(self) -> tuple[str, Kind]:
        inner = self.inner()
        clauses = inner.clauses(self.pick(1, 2), 0, in_block=True)
        function = self.pick("sum", "avg", "min", "max", "collect", "count(distinct")
        type_ = self.pick("int", "text") if function in ("min", "max", "collect", "count(distinct") else "int"
        argument = inner.value(type_, 1)
        kind = {"avg": Kind("float"), "collect": Kind(f"{type_}s", is_bag=True), "sum": Kind("sum")}.get(function)
        call = f"count(distinct {argument})" if function == "count(distinct" else f"{function}({argument})"
        kind = kind or (Kind("int") if function == "count(distinct" else Kind(type_))
        return self.within(inner, f"{call} {{ {clauses} }}"), kind

    def clauses(self, count: int, depth: int, *, in_block: bool = False) -> str:
        made = [self.traversal() if in_block else self.clause(depth)]
        made += [self.clause(depth) for _ in range(count - 1)]
        return "  ".join(made)

    def clause(self, depth: int) -> str:
        kind = self.random.choices(
            ("traversal", "filter", "not", "optional", "path", "binding"), (8, 6, 2, 3, 2, 1 if depth > 0 else 0)
        )[0]
        if not self.variables("node"):
            return self.binding()
        match kind:
            case "traversal":
                return self.traversal()
            case "filter":
                return self.filter()
            case "path":
                return self.path()
            case "binding":
                return self.binding()
        if depth <= 0:
            return self.filter()
        inner = self.inner()
        clauses = inner.clauses(self.pick(1, 1, 2), depth - 1, in_block=True)
        self.within(inner, "")
        if kind == "optional":
            self.scope |= inner.scope
        return f"{kind} {{ {clauses} }}"

    def filter(self) -> str:
        text = self.value("bool", 2)
        # A clause that begins with a variable may be a traversal.
        return text if text[0] in "(cehnm" else f"({text})"

    def binding(self) -> str:
        name = self.fresh("n")
        types = self.pick(*[(t,) for t in NODES] * 2, ("Person", "City"), ("Club", "Band"), ("City", "Club"), NODES)
        written = types[0] if len(types) == 1 else "*" if types == NODES else f"({' | '.join(types)})"
        written = "Titled" if types == ("Club", "Band") and self.chance() else written
        pins = ""
        if self.chance(0.3):
            pins = self.pick(' { slug: "ann" }', " { slug: $word }")
            if types == ("Person",):
                pins = self.pick(pins, " { tags: $word }", " { age: 2 }", " { mood: $word }", " { luck: 2 }")
        self.scope[name] = Kind("node", types)
        return f"${name}: {written}{pins}"

    def ends_of(self, types: Sequence[str]) -> list[tuple[str, str]]:
        """The edges at a node of these types, each with the type at the other end."""
        return [
            (edge, other)
            for edge, (source, target) in ENDS.items()
            for own, other in ((source, target), (target, source))
            if own in types
        ]

    def selector(self, source: Kind) -> tuple[str, list[str], str, bool]:
        """The text, the edge types, the type at the other end, and whether several hops may follow each other."""
        edge, other = self.pick(*self.ends_of(source.types))
        members = [edge]
        more = [e for e, o in self.ends_of(source.types) if o == other and e != edge]
        if more and self.chance(0.3):
            members.append(self.pick(*more))
            if self.chance(0.1):
                members.append(edge)
        names = [member[0].lower() + member[1:] for member in members]
        is_symmetric = all(ENDS[member][0] == ENDS[member][1] for member in members)
        if is_symmetric and self.chance(0.3):
            return f"<{' | '.join(names)}>", members, other, True
        text = names[0] if len(names) == 1 else f"({' | '.join(names)})"
        return text, members, other, is_symmetric or len(source.types) > 1

    def destination(self, source: str, other: str) -> str:
        bound = [v for v in self.variables("node") if v != source and other in self.scope[v].types]
        how = self.pick("new", "new", "new", "any", "old")
        if how == "old" and bound:
            return str(self.pick(*bound))
        return "_" if how == "any" else self.fresh("n")

    def bind_end(self, name: str, types: tuple[str, ...]) -> None:
        if name != "_" and name not in self.scope:
            self.scope[name] = Kind("node", types)

    def each(self, edges: Sequence[str], other: str) -> str:
        edge, node = self.fresh("e"), self.fresh("n")
        inner = self.inner()
        inner.scope |= {edge: Kind("edge", tuple(dict.fromkeys(edges))), node: Kind("node", (other,))}
        tests = [
            inner.pick(*inner.leaves("int"), "1") + inner.pick(" >= 1", " is not null", " != 2"),
            f"${node}.slug != {inner.value('text', 0)}",
            f"${node}.@id < {inner.value('text', 0)}",
        ]
        return self.within(inner, f" each ${edge} ${node} {{ ({inner.pick(*tests)}) }}")

    def traversal(self) -> str:
        source = str(self.pick(*self.variables("node")))
        kind = self.scope[source]
        if self.chance(0.1):
            return self.star(source, kind)
        if self.chance(0.25) and (way := self.over_interface(source, kind)) is not None:
            return way
        text, edges, other, repeats = self.selector(kind)
        end = self.destination(source, other)
        first, second = (source, end)
        if end != "_" and self.chance(0.3):
            first, second = second, first
        if self.chance(0.3) and end != source:
            name = self.fresh("e")
            self.bind_end(end, (other,))
            self.scope[name] = Kind("edge", tuple(dict.fromkeys(edges)))
            return f"${first} ${name}:{text} ${second}"
        hops = self.pick("", "{1,2}", "{2,2}", "{1,4}", "{2,3}", "{3,3}", "{0,2}", "{2,}", "{0,}") if repeats else ""
        each = self.each(edges, other) if self.chance(0.2) else ""
        self.bind_end(end, (other,) if len(kind.types) == 1 or not hops else tuple(dict.fromkeys((*kind.types, other))))
        return f"${first} {text}{hops} ${second}{each}"

    def over_interface(self, source: str, kind: Kind) -> str | None:
        """A traversal over edges that have an interface at an end."""
        types, edge = self.pick(TITLED, TITLED, *((name,) for name in TITLED)), "rates"
        is_forward = set(kind.types) <= {"Person"}
        if not is_forward:
            if not set(kind.types) <= set(TITLED):
                return None
            edge, is_forward = self.pick(("rates", False), ("backs", True), ("backs", False))
            types = ("Person",) if edge == "rates" else types
        end = self.fresh("n")
        written = types[0] if len(types) == 1 else self.pick("Titled", "(Band | Club)")
        self.scope[end] = Kind("node", types)
        binding = self.pick(f"${end}: {written}  ", "") if types == TITLED else f"${end}: {written}  "
        first, second = (source, end) if is_forward else (end, source)
        if self.chance(0.3):
            name = self.fresh("e")
            self.scope[name] = Kind("edge", (edge.title(),))
            return f"{binding}${first} ${name}:{edge} ${second}"
        edge = "<backs>" if edge == "backs" and self.chance(0.3) else edge
        hops = self.pick("", "{1,2}", "{0,2}", "{2,2}", "{2,}") if "backs" in edge else ""
        if self.chance(0.25):
            name = self.fresh("p")
            self.scope[name] = Kind("path")
            mode = self.pick("shortest", "all_shortest", "trails")
            hops = self.pick("{1,2}", "{0,2}", "{3,3}") if "backs" in edge else "{1,1}"
            return f"{binding}path ${name}: {mode} ${first} {edge}{hops} ${second}"
        return f"{binding}${first} {edge}{hops} ${second}"

    def star(self, source: str, kind: Kind) -> str:
        _, other = self.pick(*self.ends_of(kind.types))
        end, edge = self.fresh("n"), self.fresh("e")
        self.scope[end] = Kind("node", (other,))
        hops = self.pick("", "{1,2}") if kind.types == (other,) else ""
        name = f"${edge}:" if not hops and self.chance() else ""
        if name:
            fit = [e for e, ends in ENDS.items() if set(ends) == {*kind.types, other}]
            titled = len({*kind.types, other} & set(TITLED))
            fit += ["Rates"] * ({*kind.types, other} - set(TITLED) == {"Person"} and titled > 0)
            fit += ["Backs"] * ({*kind.types, other} <= set(TITLED))
            self.scope[edge] = Kind("edge", tuple(fit))
        star = "<*>" if kind.types == (other,) and self.chance() else "*"
        return f"${end}: {other}  ${source} {name}{star}{hops} ${end}"

    def path(self) -> str:
        source = str(self.pick(*self.variables("node")))
        kind = self.scope[source]
        text, edges, other, repeats = self.selector(kind)
        end = self.destination(source, other)
        mode = self.pick("shortest", "all_shortest", "trails")
        if not repeats:
            hops = "{1,1}"
        elif mode == "trails":
            hops = self.pick("{1,2}", "{2,3}", "{0,2}", "{3,3}")
        else:
            hops = self.pick("", "{1,3}", "{0,2}", "{2,}", "{0,}")
        each = self.each(edges, other) if self.chance(0.2) else ""
        name = self.fresh("p")
        self.bind_end(end, (other,) if len(kind.types) == 1 else tuple(dict.fromkeys((*kind.types, other))))
        self.scope[name] = Kind("path")
        return f"path ${name}: {mode} ${source} {text}{hops} ${end}{each}"

    # ---- stages

    def column(self) -> tuple[str, Kind]:
        """An expression to return, and what it is."""
        variables = self.variables("node", "edge", "path")
        what = self.random.random()
        if variables and what < 0.25:
            name = str(self.pick(*variables))
            return f"${name}", self.scope[name]
        if what < 0.35 and self.variables("node"):
            return self.aggregate_block()
        if what < 0.42:
            first, second = self.value(self.pick(*SCALARS), 1), self.value(self.pick("texts", "int"), 1)
            return f"record(one: {first}, two: {second})", Kind("record")
        if what < 0.48 and variables:
            name = str(self.pick(*variables, *self.variables("path") * 2))
            if self.scope[name].name == "path":
                return f"{self.pick('nodes', 'edges', 'start', 'end')}(${name})", Kind("other")
            return f"[${name}, ${name}]", Kind("other")
        if what < 0.55 and self.variables("path"):
            return f"path(${self.pick(*self.variables('path'))})", Kind("path")
        type_ = self.pick(*SCALARS, "ints", "texts", "text", "int")
        return self.value(type_, 2), Kind(type_)

    def aggregate(self) -> tuple[str, Kind]:
        function = self.pick(
            "count(*)", "count", "sum", "avg", "min", "max", "collect", "stdev", "stdevp", "percentile_cont",
            "percentile_disc",
        )  # fmt: skip
        distinct = "distinct " if self.chance(0.3) else ""
        nodes = self.variables("node", "edge")
        match function:
            case "count(*)":
                return "count(*)", Kind("int")
            case "count":
                counted = f"${self.pick(*nodes)}" if nodes and self.chance() else self.value(self.pick(*SCALARS), 1)
                return f"count({distinct}{counted})", Kind("int")
            case "sum" | "avg":
                kind = "sum" if function == "sum" else "float"
                return f"{function}({distinct}{self.value('int', 1)})", Kind(kind)
            case "min" | "max":
                type_ = self.pick(*SCALARS)
                return f"{function}({self.value(type_, 1)})", Kind(type_)
            case "collect":
                if nodes and self.chance(0.4):
                    name = self.pick(*nodes)
                    list_kind = "nodes" if self.scope[name].name == "node" else "other"
                    return f"collect({distinct}${name})", Kind(list_kind, self.scope[name].types, is_bag=True)
                type_ = self.pick("int", "text")
                return f"collect({distinct}{self.value(type_, 1)})", Kind(f"{type_}s", is_bag=True)
        fraction = "" if function.startswith("std") else f", {self.pick('0.5', '0', '1', '0.25')}"
        return f"{function}({self.value('int', 1)}{fraction})", Kind("float")

    def unwinds(self) -> str:
        lists = self.variables("nodes")
        name = self.fresh("u")
        if lists and self.chance(0.7):
            source = self.pick(*lists)
            made = f"unwind ${source} as ${name} "
            self.scope[name] = Kind("node", self.scope[source].types)
            return made
        type_ = self.pick("int", "text")
        lists = [v for v in self.variables(f"{type_}s") if self.scope[v].is_bag]
        items = f"${self.pick(*lists)}" if lists and self.chance() else self.value(f"{type_}s", 1)
        self.scope[name] = Kind(type_)
        return f"unwind {items} as ${name} "

    def ranked(self) -> Stage:
        """The clubs that are closest to a vector; conditions apply before they are chosen."""
        name = self.fresh("n")
        self.scope = {name: Kind("node", ("Club",))}
        conditions = "  ".join(self.filter() for _ in range(self.pick(0, 1, 2)))
        rank = f"nearest(${name}.vec, $vector{self.pick('', '', ', exact: true')})"
        columns: Scope = {name: self.scope[name], self.fresh("c"): Kind("float"), self.fresh("c"): Kind("text")}
        _, score, text = columns
        written = f"${name}, {rank} as {score}, {self.value('text', 1)} as {text}"
        limit = self.pick("limit 2", "limit $rows", "limit 2 offset $skipped", "limit 50")
        made = f"match {{ ${name}: Club  {conditions} }} return {{ {written} }} order {{ {rank} }} {limit}"
        self.scope = columns
        return Stage(made, columns, is_ordered=True)

    def stage(self, *, is_first: bool, is_last: bool) -> Stage:
        if is_first and self.chance(0.05):
            return self.ranked()
        text = self.unwinds() if self.chance(0.2 if is_first else 0.3) else ""
        if is_first or self.chance(0.7):
            clauses = [self.binding()] if is_first else []
            clauses += [self.clause(2) for _ in range(self.pick(0, 1, 1, 2, 2, 3))]
            text += f"match {{ {'  '.join(clauses or [self.filter()])} }} "
        if self.chance(0.35):
            return self.grouped(text)
        return self.projected(text, is_last=is_last)

    def grouped(self, text: str) -> Stage:
        columns: Scope = {}
        written, total = [], []
        for _ in range(self.pick(0, 1, 1, 2)):
            value, kind = self.key()
            name = value[1:] if value[1:] in self.scope else self.fresh("k")
            if name in columns:
                continue
            columns[name] = kind
            written.append(value if name == value[1:] else f"{value} as {name}")
            total.append(name)
        for _ in range(self.pick(1, 1, 2)):
            value, kind = self.aggregate()
            name = self.fresh("c")
            columns[name] = kind
            written.append(f"{value} as {name}")
        text += f"return {{ {', '.join(written)} }}"
        self.scope = columns
        if not total:
            return Stage(text, columns, is_ordered=True)
        if self.chance(0.6):
            first = [name for name, kind in columns.items() if kind.name in SCALARS and name not in total]
            keys = [*first[: self.pick(0, 1)], *total]
            return Stage(text + self.order(keys) + self.window(), columns, is_ordered=True)
        return Stage(text, columns)

    def key(self) -> tuple[str, Kind]:
        """What groups and distinct rows go by: it has an order."""
        entities = self.variables("node", "edge")
        if entities and self.chance(0.4):
            name = str(self.pick(*entities))
            return f"${name}", self.scope[name]
        type_ = self.pick(*SCALARS)
        return self.value(type_, 1), Kind(type_)

    def projected(self, text: str, *, is_last: bool) -> Stage:
        columns: Scope = {}
        written = []
        is_distinct = self.chance(0.2)
        for _ in range(self.pick(1, 2, 3)):
            value, kind = self.key() if is_distinct else self.column()
            is_bare = value[1:] in self.scope
            name = value[1:] if is_bare else self.fresh("c")
            if name in columns or (not is_last and kind.name in ("record", "other", "sum")):
                continue
            columns[name] = kind
            written.append(value if is_bare else f"{value} as {name}")
        if not is_last and not any(kind.name == "node" for kind in columns.values()) and self.variables("node"):
            name = str(self.pick(*self.variables("node")))
            columns.setdefault(name, self.scope[name])
            written += [f"${name}"] if f"${name}" not in written else []
        if not written:
            columns, written = {"c0": Kind("int")}, ["1 as c0"]
        text += f"return {'distinct ' if is_distinct else ''}{{ {', '.join(written)} }}"
        before = dict(self.scope)
        if is_distinct:
            self.scope = columns
            keys = [name for name in columns if self.chance(0.9)]
            is_total = len(keys) == len(columns)
        else:
            values = [name for name, kind in before.items() if not kind.is_entity and kind.name != "path"]
            is_total = all(before[name].name in SCALARS for name in values)
            keys = [self.pick(self.value(self.pick(*SCALARS), 1)) for _ in range(self.pick(0, 1, 2))]
            keys += [f"${name}" for name in values] if is_total else []
            self.scope = columns
        if not keys or self.chance(0.4):
            return Stage(text, columns)
        window = self.window() if is_total else ""
        return Stage(text + self.order(keys) + window, columns, is_ordered=is_total)

    def order(self, keys: Sequence[str]) -> str:
        ways = ("", "", " desc", " nulls last", " desc nulls first", " asc nulls first")
        return f" order {{ {', '.join(f'{key}{self.pick(*ways)}' for key in keys)} }}"

    def window(self) -> str:
        return str(self.pick("", "", " limit 2", " limit $rows", " limit 3 offset 1", " offset $skipped", " limit 0"))


def _bags_of(bags: Mapping[str, Kind]) -> frozenset[int]:
    return frozenset(i for i, kind in enumerate(bags.values()) if kind.is_bag)


def random_read(seed: int) -> RandomRead:
    random = Random(seed)
    writer = Writer(random)
    if random.random() < 0.12:
        body, ordered, bags = _union(writer)
    else:
        stages = []
        count = random.choice((1, 1, 1, 2, 2, 3))
        for i in range(count):
            stages.append(writer.stage(is_first=i == 0, is_last=i == count - 1))
        body, ordered = " then ".join(stage.text for stage in stages), stages[-1].is_ordered
        bags = _bags_of(stages[-1].columns)
    declared = ", ".join(f"${name}: {type_}" for name, (type_, _) in PARAMETERS.items())
    values = {name: random.choice(options) for name, (_, options) in PARAMETERS.items()}
    return RandomRead(f"query q({declared}) {{ {body} }}", values, ordered, bags)


def _union(writer: Writer) -> tuple[str, bool, frozenset[int]]:
    columns = [(f"c{i}", writer.pick(*SCALARS, "texts", "ints", "node")) for i in range(writer.pick(1, 2, 3))]
    parts = []
    for _ in range(writer.pick(2, 2, 3)):
        part = Writer(writer.random, serial=writer.serial)
        match = f"match {{ {part.binding()} {part.clause(1)} }}"
        returned = [
            f"${part.pick(*part.variables('node'))} as {name}"
            if type_ == "node"
            else f"{part.value(type_, 1)} as {name}"
            for name, type_ in columns
        ]
        parts.append(f"{match} return {{ {', '.join(returned)} }}")
        writer.serial = part.serial
    whole = parts[0]
    for text in parts[1:]:
        whole += f" union {writer.pick('', 'all ')}{text}"
    if writer.chance():
        return whole, False, frozenset()
    keys = ", ".join(f"${name} as {name}" for name, _ in columns)
    return f"{{ {whole} }} then return {{ {keys} }}", False, frozenset()
