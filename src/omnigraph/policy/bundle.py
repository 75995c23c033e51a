"""The policy bundle: from the text of a file to rules that can be compiled.

`read_bundle` checks what holds for every use, in a settled order, and reports the first failure. `align` is the second
pass, for the use that a bundle is put to. Every refusal is a `CompileError` that shows the line.

A bundle as its file has it: shape, keys and words are right, and every part knows its place.

What the parts mean together is not looked at here.

A YAML file of rules or of tests, read strictly: whatever is not expected is refused, and by its place.

A bundle that means something else than it says could let somebody in, so nothing is guessed: no key is overlooked, none
may come twice, and what YAML takes for a number, a flag or nothing is no text. Reading ends at the first mistake.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NoReturn, TypeVar

import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError

from omnigraph.api.enums import PolicyAction
from omnigraph.errors import CompileError
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.query.syntax import TextSpan
from omnigraph.language.source import LONE_SURROGATE, SourceText, did_you_mean
from omnigraph.policy.rules import (
    INVALID,
    SERVER_ACTIONS,
    BranchScope,
    Bundle,
    MaskedProperties,
    Rule,
    VisibleRows,
    filter_problem,
)

_TAG = "tag:yaml.org,2002:"
_KINDS = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}
_SCALARS = {"null": "empty", "bool": "a flag", "int": "a number", "float": "a number", "timestamp": "a date"}

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Text:
    """A text and where it stands."""

    value: str
    at: TextSpan

    @property
    def is_blank(self) -> bool:
        return not self.value.strip()


class Document:
    """One file. `code` is the code of everything that is found wrong with it."""

    def __init__(self, text: str, path: str | None, code: str) -> None:
        self.source = SourceText(text, path)
        self.code = code

    def refuse(self, message: str, at: TextSpan, suggestion: str | None = None) -> NoReturn:
        raise CompileError([self.source.diagnostic(self.code, message, at.start, at.end, suggestion=suggestion)])

    def root(self) -> Value:
        try:
            node = yaml.compose(self.source.text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            start = 0 if mark is None else mark.index
            self.refuse(f"this is not YAML: {error.problem or error.context}", TextSpan(start, start))
        except ReaderError as error:
            at = TextSpan(error.position, error.position + 1)
            self.refuse(f"this is not YAML: it holds the character U+{error.character:04X}", at)
        except RecursionError:
            self.refuse("this is not YAML: it is nested too deeply", TextSpan(0, 0))
        if node is None:
            self.refuse("the file is empty", TextSpan(0, 0))
        return Value(self, node, "the file")


def _place(node: yaml.Node) -> TextSpan:
    return TextSpan(node.start_mark.index, node.end_mark.index)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the file. `name` is how messages call it."""

    document: Document
    node: yaml.Node
    name: str

    @property
    def at(self) -> TextSpan:
        return _place(self.node)

    def refuse(self, message: str, suggestion: str | None = None) -> NoReturn:
        self.document.refuse(message, self.at, suggestion)

    def entries(self) -> list[tuple[Text, Value]]:
        """The members of a mapping whose names are free, in file order."""
        if not isinstance(self.node, yaml.MappingNode):
            self._expected("a mapping (name: value)")
        seen: set[str] = set()
        entries = []
        for key, value in self.node.value:
            name = Value(self.document, key, f"a key of {self.name}").text()
            if name.value in seen:
                self.document.refuse(f"{self.name} holds the key '{name.value}' twice", name.at)
            seen.add(name.value)
            entries.append((name, Value(self.document, value, self._inner(name.value))))
        return entries

    def members(self, known: Collection[str], required: Collection[str] = ()) -> dict[str, Value]:
        """The members of a mapping whose names are settled."""
        found: dict[str, Value] = {}
        for name, value in self.entries():
            if name.value not in known:
                hint = did_you_mean(name.value, known) or f"known here: {', '.join(known)}"
                self.document.refuse(f"{self.name} has an unknown key '{name.value}'", name.at, hint)
            found[name.value] = value
        for wanted in required:
            if wanted not in found:
                self.refuse(f"{self.name} lacks the key '{wanted}'")
        return found

    def items(self) -> list[Value]:
        if not isinstance(self.node, yaml.SequenceNode):
            self._expected("a list")
        return [Value(self.document, item, f"{self.name}[{i}]") for i, item in enumerate(self.node.value)]

    def text(self) -> Text:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"{_TAG}str":
            self._expected("a text")
        if LONE_SURROGATE.search(self.node.value):
            self.refuse(f"{self.name} holds half of a surrogate pair, which is no character")
        return Text(self.node.value, self.at)

    def whole_number(self) -> int:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"{_TAG}int":
            self._expected("a whole number")
        try:
            return int(SafeConstructor().construct_yaml_int(self.node))
        except ValueError:
            self._expected("a whole number")

    def choice(self, kind: type[Choice]) -> Choice:
        """One of the words of an enumeration."""
        given = self.text().value
        words = [member.value for member in kind]
        if given not in words:
            self.refuse(f"{self.name} is '{given}' and must be one of {', '.join(words)}", did_you_mean(given, words))
        return kind(given)

    def _inner(self, name: str) -> str:
        return name if self.name == "the file" else f"{self.name}.{name}"

    def _expected(self, wanted: str) -> NoReturn:
        if not isinstance(self.node, yaml.ScalarNode):
            self.refuse(f"{self.name} must be {wanted}, not {_KINDS[type(self.node)]}")
        kind = _SCALARS.get(self.node.tag.removeprefix(_TAG))
        written = f"'{LONE_SURROGATE.sub(chr(0xFFFD), self.node.value)}'"
        if self.node.tag == f"{_TAG}null":
            self.refuse(f"{self.name} must be {wanted} and is empty")
        quotes = "put it in quotes" if wanted == "a text" and kind is not None else None
        self.refuse(f"{self.name} must be {wanted}, not {written}" + (f", which is {kind}" if kind else ""), quotes)


@dataclass(frozen=True, slots=True)
class RuleSyntax:
    """`rows` and `hide` are None where the rule has no such key."""

    id: Text
    group: Text
    actions: tuple[tuple[PolicyAction, TextSpan], ...]
    branch_scope: tuple[BranchScope, TextSpan] | None
    target_branch_scope: tuple[BranchScope, TextSpan] | None
    rows: tuple[tuple[Text, Text], ...] | None
    hide: tuple[tuple[Text, tuple[Text, ...]], ...] | None
    actions_at: TextSpan
    at: TextSpan


@dataclass(frozen=True, slots=True)
class BundleSyntax:
    document: Document
    version: int
    version_at: TextSpan
    groups: tuple[tuple[Text, tuple[Text, ...]], ...]
    protected_branches: tuple[Text, ...]
    rules: tuple[RuleSyntax, ...]


def parse_bundle(text: str, path: str | None = None) -> BundleSyntax:
    """The parts of a file. Raises `CompileError` at the first one that is none."""
    document = Document(text, path, INVALID)
    found = document.root().members(("version", "groups", "protected_branches", "rules"), required=("version",))
    version = found["version"]
    groups = found["groups"].entries() if "groups" in found else []
    branches = found["protected_branches"].items() if "protected_branches" in found else []
    rules = found["rules"].items() if "rules" in found else []
    return BundleSyntax(
        document,
        version.whole_number(),
        version.at,
        tuple((name, tuple(member.text() for member in members.items())) for name, members in groups),
        tuple(branch.text() for branch in branches),
        tuple(_parse_rule(rule) for rule in rules),
    )


def _parse_rule(value: Value) -> RuleSyntax:
    found = value.members(("id", "allow"), required=("id", "allow"))
    known = ("actors", "actions", "branch_scope", "target_branch_scope", "rows", "hide")
    allow = found["allow"].members(known, required=("actors", "actions"))
    actors = allow["actors"].members(("group",), required=("group",))
    rows = hide = None
    if "rows" in allow:
        rows = tuple((name, predicate.text()) for name, predicate in allow["rows"].entries())
    if "hide" in allow:
        hide = tuple((name, tuple(p.text() for p in names.items())) for name, names in allow["hide"].entries())
    return RuleSyntax(
        found["id"].text(),
        actors["group"].text(),
        tuple((action.choice(PolicyAction), action.at) for action in allow["actions"].items()),
        _scope(allow.get("branch_scope")),
        _scope(allow.get("target_branch_scope")),
        rows,
        hide,
        allow["actions"].at,
        value.at,
    )


def _scope(value: Value | None) -> tuple[BranchScope, TextSpan] | None:
    return None if value is None else (value.choice(BranchScope), value.at)


ScopeKind = Literal["graph", "server"]

VERSION: Final = 1
BRANCH_ACTIONS: Final = frozenset({PolicyAction.READ, PolicyAction.EXPORT, PolicyAction.CHANGE})
TARGET_BRANCH_ACTIONS: Final = frozenset(
    {
        PolicyAction.SCHEMA_APPLY,
        PolicyAction.BRANCH_CREATE,
        PolicyAction.BRANCH_DELETE,
        PolicyAction.BRANCH_MERGE,
    }
)
RESTRICTABLE_ACTIONS: Final = BRANCH_ACTIONS
"""What can be allowed in part. Everything else works on whole branches or on no rows at all."""


def read_bundle(text: str, path: str | None = None) -> Bundle:
    """The bundle of a YAML text; `path` only shows in messages. Raises `CompileError`."""
    written = parse_bundle(text, path)
    document = written.document
    if written.version != VERSION:
        document.refuse(f"policy version must be {VERSION}, not {written.version}", written.version_at)
    _check_groups(written)
    _check_protected_branches(written)
    declared = {name.value for name, _ in written.groups}
    seen: set[str] = set()
    for rule in written.rules:
        _check_rule(document, rule, declared, seen)
        seen.add(rule.id.value)
    groups = {name.value: tuple(dict.fromkeys(m.value for m in members)) for name, members in written.groups}
    return Bundle(
        MappingProxyType(groups),
        frozenset(branch.value for branch in written.protected_branches),
        tuple(_rule(rule) for rule in written.rules),
        document.source,
    )


def align(bundle: Bundle, kind: ScopeKind) -> None:
    """Refuse rules that the scope a bundle is loaded for can't have."""
    for rule in bundle.rules:
        for action, at in zip(rule.actions, rule.actions_at, strict=True):
            if kind == "graph" and action in SERVER_ACTIONS:
                bundle.refuse(
                    f"rule '{rule.id}' uses the server-scoped action '{action}' in a Graph policy file; "
                    "move it to a bundle that is bound to the cluster",
                    at,
                )
            if kind == "server" and action not in SERVER_ACTIONS:
                bundle.refuse(
                    f"rule '{rule.id}' uses the per-graph action '{action}' in a Server policy file; "
                    "move it to a bundle that is bound to a graph",
                    at,
                )


def _check_groups(written: BundleSyntax) -> None:
    refuse = written.document.refuse
    for name, members in written.groups:
        if name.is_blank:
            refuse("policy group names must not be blank", name.at)
        if not members:
            refuse(f"policy group '{name.value}' must not be empty", name.at)
        for member in members:
            if member.is_blank:
                refuse(f"policy group '{name.value}' contains a blank actor id", member.at)


def _check_protected_branches(written: BundleSyntax) -> None:
    for branch in written.protected_branches:
        if branch.is_blank:
            written.document.refuse("protected branch names must not be blank", branch.at)
        if branch.value != branch.value.strip():
            # Branches are known without the white space around their names, so this one would be left open.
            message = f"protected branch '{branch.value}' has white space around its name, and would protect nothing"
            written.document.refuse(message, branch.at)


def _check_rule(document: Document, rule: RuleSyntax, declared: set[str], seen: set[str]) -> None:
    refuse = document.refuse
    if rule.id.is_blank:
        refuse("policy rule ids must not be blank", rule.id.at)
    if rule.id.value in seen:
        refuse(f"duplicate policy rule id '{rule.id.value}'", rule.id.at)
    named = f"policy rule '{rule.id.value}'"
    if rule.group.is_blank:
        refuse(f"{named} must reference a non-blank group", rule.group.at)
    if rule.group.value not in declared:
        refuse(f"{named} references unknown group '{rule.group.value}'", rule.group.at)
    if not rule.actions:
        refuse(f"{named} must include at least one action", rule.actions_at)
    _check_scopes(document, rule, named)
    _check_restrictions(document, rule, named)


def _check_scopes(document: Document, rule: RuleSyntax, named: str) -> None:
    if rule.branch_scope is not None and rule.target_branch_scope is not None:
        at = max(rule.branch_scope[1], rule.target_branch_scope[1], key=lambda place: place.start)
        document.refuse(f"{named} may use branch_scope or target_branch_scope, not both", at)
    for key, scope, supported in (
        ("branch_scope", rule.branch_scope, BRANCH_ACTIONS),
        ("target_branch_scope", rule.target_branch_scope, TARGET_BRANCH_ACTIONS),
    ):
        for action, at in rule.actions:
            if scope is not None and action not in supported:
                document.refuse(f"{named} uses {key} with unsupported action '{action}'", at)
    of_server = [(action, at) for action, at in rule.actions if action in SERVER_ACTIONS]
    if of_server and len(of_server) < len(rule.actions):
        action, at = of_server[0]
        document.refuse(
            f"{named} mixes the server-scoped action '{action}' with per-graph actions; split into separate rules", at
        )
    if of_server and (rule.branch_scope or rule.target_branch_scope):
        document.refuse(f"{named}: server-scoped actions have no branch context", of_server[0][1])


def _check_restrictions(document: Document, rule: RuleSyntax, named: str) -> None:
    for key, restriction in (("rows", rule.rows), ("hide", rule.hide)):
        if restriction is None:
            continue
        for action, at in rule.actions:
            if action not in RESTRICTABLE_ACTIONS:
                document.refuse(
                    f"{named} uses {key} with unsupported action '{action}': only read, export and change "
                    "can be allowed in part",
                    at,
                )
        if not restriction:
            document.refuse(f"{named} has an empty {key}: name a type, or leave it out", rule.at)
        for type_name, _ in restriction:
            if type_name.is_blank:
                document.refuse(f"{named}: type names in {key} must not be blank", type_name.at)
    for type_name, predicate in rule.rows or ():
        try:
            parse_row_filter(predicate.value)
        except CompileError as error:
            first = error.diagnostics[0]
            message = filter_problem(f"{named}, rows of {type_name.value}", first)
            document.refuse(message, predicate.at, first.suggestion)
    for type_name, properties in rule.hide or ():
        _check_masks(document, f"{named}, hide of {type_name.value}", type_name, properties)


def _check_masks(document: Document, named: str, type_name: Text, properties: tuple[Text, ...]) -> None:
    if not properties:
        document.refuse(f"{named} must list at least one property", type_name.at)
    seen: set[str] = set()
    for prop in properties:
        if prop.is_blank:
            document.refuse(f"{named} lists a blank property", prop.at)
        if prop.value in seen:
            document.refuse(f"{named} lists '{prop.value}' twice", prop.at)
        seen.add(prop.value)


def _rule(rule: RuleSyntax) -> Rule:
    return Rule(
        rule.id.value,
        rule.group.value,
        tuple(action for action, _ in rule.actions),
        rule.branch_scope and rule.branch_scope[0],
        rule.target_branch_scope and rule.target_branch_scope[0],
        tuple(VisibleRows(name.value, predicate.value, predicate.at) for name, predicate in rule.rows or ()),
        tuple(
            MaskedProperties(name.value, tuple(p.value for p in properties), _around(name.at, properties))
            for name, properties in rule.hide or ()
        ),
        tuple(at for _, at in rule.actions),
    )


def _around(start: TextSpan, properties: tuple[Text, ...]) -> TextSpan:
    return TextSpan(start.start, properties[-1].at.end)
