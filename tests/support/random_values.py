"""Random expressions over the schema of `mixed_graph`, typed roughly, of every function and operator.

`random_reads` puts them into patterns and stages. Calculations stay within 64 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Self

from tests.engine.query_graphs import BIG, EXACT, MOTTOS, WORDS

PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "Person": {
        "slug": "text", "age": "int", "score": "float", "nick": "text", "tags": "texts", "luck": "ints",
        "active": "bool", "born": "date", "seen": "datetime", "big": "big", "ratio": "float", "count": "big",
        "mood": "text",
    },
    "City": {"slug": "text", "people": "big", "name": "text"},
    "Club": {"slug": "text", "name": "text", "rank": "int", "motto": "text"},
    "Band": {"slug": "text", "name": "text", "rank": "int", "tags": "texts", "age": "float"},
    "Knows": {"since": "int", "note": "text"},
    "Likes": {"since": "int"},
    "Near": {"km": "float"},
    "Lives": {},
    "Visits": {"since": "int", "km": "float"},
    "Member": {"since": "int"},
    "Hosts": {"km": "float"},
    "Plays": {},
    "Rates": {"since": "int"},
    "Backs": {"since": "int"},
}  # fmt: skip
PARAMETERS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "word": ("String", WORDS),
    "words": ("[String]", [[], ["ann", "ab"], ["", "a", "calm"]]),
    "whole": ("I64", BIG),
    "small": ("I64", (0, 1, 2, 5)),
    "fraction": ("F64", (*EXACT, 2.7, 1e300, 0.1)),
    "none": ("I32?", (None,)),
    "day": ("Date", ("1969-12-31", "2024-05-01")),
    "moment": ("DateTime", ("1970-01-01", "2024-05-01T10:00:00.123Z")),
    "flag": ("Bool", (True, False)),
    "rows": ("I64", (0, 1, 2, 3, 50)),
    "skipped": ("I64", (0, 1, 2)),
    "vector": ("Vector(2)", ([0.0, 0.0], [1.0, 2.0])),
}
PARAMETERS_OF = {
    "text": "$word", "texts": "$words", "big": "$whole", "int": "$small", "float": "$fraction", "date": "$day",
    "datetime": "$moment", "bool": "$flag",
}  # fmt: skip
EMPTY_OR_A = ('""', '"a"')
SCALARS = ("int", "big", "float", "text", "bool", "date", "datetime")


@dataclass(frozen=True)
class Kind:
    """What a variable is bound to: `node`, `edge`, `path`, or the type of a value, or `nodes`, a list of them."""

    name: str
    types: tuple[str, ...] = ()
    is_bag: bool = False
    """A list whose items have no order."""

    @property
    def is_entity(self) -> bool:
        return self.name in ("node", "edge")


Scope = dict[str, Kind]


@dataclass
class ValueWriter(ABC):
    """Writes values over the variables in its scope."""

    random: Random
    scope: Scope = field(default_factory=dict)
    serial: int = 0

    # ---- choices

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def chance(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def variables(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.scope.items() if kind.name in kinds]

    def inner(self) -> Self:
        """A writer of what is within braces: its variables are not seen outside."""
        return replace(self, scope=dict(self.scope))

    def within(self, inner: ValueWriter, made: str) -> str:
        self.serial = inner.serial
        return made

    # ---- values

    def value(self, type_: str, depth: int = 2) -> str:
        leaves = self.leaves(type_)
        if depth <= 0 or self.chance(0.35):
            return str(self.pick(*leaves))
        return str(self.pick(*getattr(self, f"_{type_}")(depth - 1))())

    def leaves(self, type_: str) -> list[str]:
        """Properties, values and parameters; a constant only where there are few of them."""
        wanted = {"int": ("int",), "big": ("int", "big")}.get(type_, (type_,))
        leaves = [f"${name}" for name, kind in self.scope.items() if kind.name in wanted and not kind.is_bag]
        for name, kind in self.scope.items():
            if kind.is_entity:
                leaves += self.properties(name, kind, wanted)
        if len(leaves) < 2 or self.chance(0.2):
            leaves += [PARAMETERS_OF.get(type_, "[1, 2]"), *self.constants(type_)]
        return leaves

    def properties(self, name: str, kind: Kind, wanted: Sequence[str]) -> list[str]:
        of_each = [{p for p, type_ in PROPERTIES[t].items() if type_ in wanted} for t in kind.types]
        lacking = set.union(*of_each) - set.intersection(*of_each) if of_each else set()
        common = [f"${name}.{p}" for p in sorted(set.intersection(*of_each))] if of_each else []
        system = [f"${name}.{'@id' if self.chance() else '@type'}"] if "text" in wanted else []
        system += [f"${name}.@src", f"${name}.@dst"] if system and kind.name == "edge" and self.chance() else []
        return [*common, *(f"${name}.{p}?" for p in sorted(lacking)), *system]

    @staticmethod
    def constants(type_: str) -> list[str]:
        return {
            "int": ["2", "-1", "0"],
            "big": ["9007199254740993", "7"],
            "float": ["0.25", "2.5", "-0.5"],
            "text": ['"ann"', '"Ab"', '""', '"it\'s"'],
            "bool": ["true", "false"],
            "date": ['date("2019-04-15")', 'date("1970-01-31")'],
            "datetime": ['datetime("2024-05-01T10:00:00.123Z")', "now()"],
            "ints": ["[2, 5, 2]", "[]"],
            "texts": ['["ann", "b"]', "[]"],
        }[type_]

    def case(self, type_: str, depth: int) -> str:
        branches = "".join(
            f" when {self.value('bool', depth)} then {self.value(type_, depth)}" for _ in range(self.pick(1, 1, 2))
        )
        otherwise = f" else {self.value(type_, depth)}" if self.chance() else ""
        return f"case{branches}{otherwise} end"

    def simple_case(self, type_: str, depth: int) -> str:
        kind = self.pick("int", "text", "bool")
        branch = f"when {self.value(kind, 0)} then {self.value(type_, depth)}"
        return f"case {self.value(kind, depth)} {branch} else {self.value(type_, depth)} end"

    def _any(self, type_: str, depth: int) -> list[Callable[[], str]]:
        """What makes a value of any type."""
        return [
            lambda: self.case(type_, depth),
            lambda: self.simple_case(type_, depth),
            lambda: f"coalesce({self.value(type_, depth)}, {self.value(type_, depth)})",
            lambda: f"nullif({self.value(type_, depth)}, {self.value(type_, depth)})",
            lambda: f'field(record(a: {self.value(type_, depth)}, b: 1), "a")',
            lambda: f"head([{self.value(type_, depth)}, {self.value(type_, depth)}])",
        ]

    def _int(self, depth: int) -> list[Callable[[], str]]:
        v = self.value
        paths = self.variables("path")
        lists = [name for name, kind in self.scope.items() if kind.name == "nodes" or kind.is_bag]
        return [
            *self._any("int", depth),
            lambda: f"({v('int', depth)} {self.pick('+', '-')} {v('int', depth)})",
            lambda: f"({v('int', depth)} {self.pick('* 2', '/ 2', '% 3', '/ -3', '% -2')})",
            lambda: f"(-{v('int', 0)})",
            lambda: f"{self.pick('abs', 'sign', 'to_int')}({v('int', depth)})",
            lambda: f"size({v(self.pick('text', 'texts', 'ints'), depth)})",
            lambda: f"{self.pick('year', 'month', 'day', 'weekday')}({v(self.pick('date', 'datetime'), depth)})",
            lambda: f"{self.pick('hour', 'minute', 'second')}({v('datetime', depth)})",
            lambda: f"{self.pick('days', 'seconds')}_between({v('date', depth)}, {v('datetime', depth)})",
            lambda: f"item({v('ints', depth)}, {self.pick(0, 1, -1, 7)})",
            lambda: f"{self.pick('head', 'last')}({v('ints', depth)})",
            lambda: f"to_int({v('text', depth)})",
            lambda: self.reduce(depth),
            lambda: self.block("count", depth),
            *([lambda: f"length(${self.pick(*paths)})"] * 2 if paths else []),
            *([lambda: f"size(${self.pick(*lists)})"] * 2 if lists else []),
        ]

    def reduce(self, depth: int) -> str:
        total, item = self.fresh("t"), self.fresh("x")
        return f"reduce(${total} = {self.value('int', 0)}, ${item} in {self.value('ints', depth)} : ${total} + ${item})"

    def _big(self, depth: int) -> list[Callable[[], str]]:
        return [*self._any("big", depth), lambda: self.value("int", depth)]

    def _float(self, depth: int) -> list[Callable[[], str]]:
        v = self.value
        return [
            *self._any("float", depth),
            lambda: f"({v('int', depth)} {self.pick('+', '-', '*')} 0.5)",
            lambda: f"({v('float', depth)} {self.pick('* 2', '/ 4', '+ 1', '- 0.25')})",
            lambda: f"to_float({v(self.pick('int', 'text'), depth)})",
            lambda: f"{self.pick('floor', 'ceil', 'round', 'abs', 'sign')}({v('int', depth)} * 0.25)",
            lambda: f"round({v('int', depth)} / 8.0, {self.pick(0, 1, 2, -1)})",
            lambda: f"sqrt(abs({v('int', depth)}))",
            lambda: f"power({v('int', 0)} % 3, 2)",
        ]

    def _text(self, depth: int) -> list[Callable[[], str]]:
        v = self.value
        return [
            *self._any("text", depth),
            lambda: f"{self.pick('lower', 'upper', 'trim', 'ltrim', 'rtrim', 'reverse')}({v('text', depth)})",
            lambda: f"{self.pick('left', 'right', 'substring')}({v('text', depth)}, {self.pick(0, 1, 2)})",
            lambda: f"substring({v('text', depth)}, 1, 1)",
            lambda: f"replace({v('text', depth)}, {v('text', 0)}, {v('text', 0)})",
            lambda: f"({v('text', depth)} + {v('text', depth)})",
            lambda: f"to_string({v(self.pick('int', 'bool', 'date', 'datetime'), depth)})",
            lambda: f"{self.pick('head', 'last')}({v('texts', depth)})",
            lambda: f'join({v("texts", depth)}, "-")',
        ]

    def _bool(self, depth: int) -> list[Callable[[], str]]:
        v = self.value
        entities = self.variables("node", "edge")
        more: list[Callable[[], str]] = []
        clubs = [name for name in self.variables("node") if self.scope[name].types == ("Club",)]
        if clubs:
            more = [lambda: f'{self.pick("search", "match_text")}(${self.pick(*clubs)}.motto, "{self.pick(*MOTTOS)}")']
            more += [
                lambda: f'fuzzy(${self.pick(*clubs)}.motto, "zorv {self.pick("quiz", "vint")}", {self.pick(1, 2)})'
            ]
        if entities:
            more += [lambda: f"(${self.pick(*entities)} {self.pick('=', '!=')} ${self.pick(*entities)})"]
            more += [lambda: f"(${self.pick(*entities, *self.variables('path'))} is {self.pick('', 'not ')}null)"]
        return [
            *[lambda: f"({self.comparison(depth)})"] * 6,
            *[lambda: f"({v('bool', depth)} {self.pick('and', 'or')} {v('bool', depth)})"] * 3,
            *[lambda: f"(not {v('bool', depth)})"] * 2,
            lambda: f"({v(self.pick(*SCALARS, 'texts', 'ints'), depth)} is {self.pick('', 'not ')}null)",
            lambda: f"({v('text', depth)} in {v('texts', depth)})",
            lambda: f"({v('int', depth)} in [{v('int', 0)}, {self.pick('null', '3', '-3')}])",
            lambda: f"({v('int', depth)} in {v('ints', depth)})",
            lambda: f"({v('texts', depth)} contains {v('text', 0)})",
            lambda: f"({v('text', depth)} {self.pick('contains', 'starts_with')} {v('text', depth)})",
            lambda: f"ends_with({v('text', depth)}, {v('text', 0)})",
            lambda: f'matches({v("text", depth)}, "{self.pick("a.*", "[a-z]+", ".", "")}")',
            lambda: self.quantifier(depth),
            lambda: self.block("exists", depth),
            lambda: self.block("exists", depth),
            lambda: f"({v('ints', depth)} = {v('ints', depth)})",
            *self._any("bool", depth),
            *more * 2,
        ]

    def comparison(self, depth: int) -> str:
        sign = self.pick("=", "!=", "<", "<=", ">", ">=")
        type_ = self.pick(*SCALARS, "int", "text")
        right = {"int": self.pick("int", "float", "big"), "big": self.pick("big", "float"), "float": "int"}.get(type_)
        other = "$none" if self.chance(0.03) and type_ in ("int", "big", "float") else None
        return f"{self.value(type_, depth)} {sign} {other or self.value(right or type_, depth)}"

    def quantifier(self, depth: int) -> str:
        type_ = self.pick("int", "text")
        items, item = self.value(f"{type_}s", depth), self.fresh("x")
        inner = self.inner()
        inner.scope[item] = Kind(type_)
        test = self.within(inner, inner.comparison(0) if self.chance() else f"${item} = {inner.value(type_, 0)}")
        return f"{self.pick('any', 'all', 'none', 'single')}(${item} in {items} : {test})"

    def _date(self, depth: int) -> list[Callable[[], str]]:
        v = self.value
        return [
            *self._any("date", depth),
            lambda: f"date({v('datetime', depth)})",
            lambda: f"add_{self.pick('days', 'months')}({v('date', depth)}, {self.pick('3', '-14', '$small')})",
        ]

    def _datetime(self, depth: int) -> list[Callable[[], str]]:
        v = self.value
        return [
            *self._any("datetime", depth),
            lambda: f"datetime({v('date', depth)})",
            lambda: f"add_{self.pick('days', 'months', 'seconds')}({v('datetime', depth)}, {self.pick(1, -40)})",
        ]

    def _lists(self, type_: str, depth: int) -> list[Callable[[], str]]:
        v = self.value
        return [
            *self._any(type_, depth),
            lambda: f"{self.pick('tail', 'reverse')}({v(type_, depth)})",
            lambda: f"slice({v(type_, depth)}, {self.pick(0, 1, -2)}, {self.pick(1, 2, -1, 9)})",
            lambda: f"({v(type_, depth)} + {v(type_, depth)})",
            lambda: f"[{v(type_[:-1], depth)}, {v(type_[:-1], depth)}]",
            lambda: self.mapped(type_, depth),
        ]

    def mapped(self, type_: str, depth: int) -> str:
        source, item = self.pick("ints", "texts"), self.fresh("x")
        inner = self.inner()
        inner.scope[item] = Kind(source[:-1])
        condition = f" where {inner.value('bool', 0)}" if self.chance() else ""
        body = self.within(inner, inner.value(type_[:-1], depth - 1))
        return f"map(${item} in {self.value(source, depth - 1)}{condition} : {body})"

    def _ints(self, depth: int) -> list[Callable[[], str]]:
        made = [lambda: f"range({self.pick(0, 2)}, {self.pick('3', '$small')})", lambda: "range(5, 0, -2)"]
        return [*self._lists("ints", depth), *made]

    def _texts(self, depth: int) -> list[Callable[[], str]]:
        entities, paths = self.variables("node", "edge"), self.variables("path")
        made = [lambda: f"split({self.value('text', depth)}, {self.pick(*EMPTY_OR_A)})"]
        if entities:
            made.append(lambda: f"keys(${self.pick(*entities)})")
        if paths:
            item = self.fresh("x")
            made += [lambda: f"map(${item} in nodes(${self.pick(*paths)}) : ${item}.slug)"] * 3
            made += [lambda: f"map(${item} in edges(${self.pick(*paths)}) : ${item}.@type)"] * 3
        return [*self._lists("texts", depth), *made]

    @abstractmethod
    def block(self, kind: str, depth: int) -> str:
        """`exists { … }` or `count { … }`."""
