"""What a `cluster.yaml` says, as a model: well-formed, and nothing in it looked up yet.

`cluster.yaml` as values that know their line. A wrong one is noted and reading goes on, so that one look at a file
finds everything. No note shows a value: somebody may have written a key where only its name belongs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Final

import yaml
from msgspec import UNSET, Struct, UnsetType

from omnigraph.cluster.resources import ClusterError, Diagnostic, error
from omnigraph.embeddings.configuration import EmbeddingProfile

CONFIG_FILE: Final = "cluster.yaml"
CONFIG_VERSION: Final = 1


class Metadata(Struct, frozen=True):
    name: str | None = None


class StateSettings(Struct, frozen=True):
    backend: str | None = None
    lock: bool = True


class Providers(Struct, frozen=True):
    embedding: dict[str, EmbeddingProfile] = {}


class NamedQuery(Struct, frozen=True):
    """A query of the map form: the file that declares it."""

    file: str


class DeclaredBase(Struct, frozen=True):
    base: str
    scope: str


class ExternalBlobs(Struct, frozen=True):
    allow: tuple[DeclaredBase, ...]


class GraphSettings(Struct, frozen=True):
    """`queries` are a path, several, or files by the name of the query. Without `external_blobs` none are taken in."""

    schema: str
    queries: str | tuple[str, ...] | dict[str, NamedQuery] | None = None
    embedding_provider: str | None = None
    external_blobs: ExternalBlobs | UnsetType = UNSET


class PolicySettings(Struct, frozen=True):
    file: str
    tests: str | None = None
    applies_to: tuple[str, ...] = ()


class PipelineSettings(Struct, frozen=True):
    file: str
    graph: str


class ClusterConfig(Struct, frozen=True, kw_only=True):
    version: int
    metadata: Metadata = Metadata()
    storage: str | None = None
    state: StateSettings = StateSettings()
    providers: Providers = Providers()
    graphs: dict[str, GraphSettings] = {}
    policies: dict[str, PolicySettings] = {}
    pipelines: dict[str, PipelineSettings] = {}


INVALID: Final = "invalid_cluster_yaml"
_TAG: Final = "tag:yaml.org,2002:"


def compose(text: str) -> yaml.MappingNode:
    """The mapping of a text. Raises `ClusterError` when it is no YAML, or holds something else."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ClusterError.of(INVALID, CONFIG_FILE, f"{where}{problem.problem or problem.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ClusterError.of(INVALID, CONFIG_FILE, "it is no YAML") from None
    if node is None or is_empty(node):
        raise ClusterError.of(INVALID, CONFIG_FILE, "it is empty; begin with `version: 1`")
    if not isinstance(node, yaml.MappingNode):
        raise ClusterError.of(INVALID, CONFIG_FILE, "it has to hold keys and values")
    if odd := next((key for key, _ in node.value if not isinstance(key, yaml.ScalarNode)), None):
        raise ClusterError.of(INVALID, CONFIG_FILE, f"line {odd.start_mark.line + 1}: a key has to be text")
    return node


def repeated_keys(node: yaml.Node, path: str = "") -> Iterator[tuple[str, int]]:
    """Keys that a mapping holds twice, dotted, with the line of the repetition. A node that is used again through an
    alias is looked at once."""
    waiting, seen = [(node, path)], set[int]()
    while waiting:
        node, path = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, value in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else "?"
                dotted = f"{path}.{name}" if path else name
                if name in names:
                    yield dotted, key.start_mark.line + 1
                names.add(name)
                waiting.append((value, dotted))


class Values:
    """Reads values and notes what is wrong with them. What a reader returns then does not matter: a configuration with
    a note is not used."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def complain(self, node: yaml.Node, message: str) -> None:
        self.found.append(error(INVALID, CONFIG_FILE, f"line {node.start_mark.line + 1}: {message}"))

    def entries(self, node: yaml.Node | None, where: str) -> list[tuple[str, yaml.Node]]:
        """The members of a mapping whose names are free. A value that is left empty has none."""
        if node is None or is_empty(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, f"{where} has to hold keys and values")
            return []
        found = []
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag == f"{_TAG}str":
                found.append((key.value, value))
            else:
                self.complain(key, f"a key of {where} has to be text; put it in quotes")
        return found

    def members(
        self,
        node: yaml.Node | None,
        where: str,
        known: Collection[str],
        required: Collection[str] = (),
        refused: Collection[str] = (),
    ) -> dict[str, yaml.Node]:
        """The members of a mapping whose names are settled, without those that are left empty. The caller reports
        `refused` names itself."""
        found = {}
        for name, value in self.entries(node, where):
            if name in refused:
                continue
            if name not in known:
                close = get_close_matches(name, known, 1)
                meant = f"did you mean '{close[0]}'? " if close else ""
                self.complain(value, f"{where} has an unknown key '{name}'; {meant}known here: {', '.join(known)}")
            elif not is_empty(value):
                found[name] = value
        for name in required:
            if name not in found and node is not None and (is_empty(node) or isinstance(node, yaml.MappingNode)):
                self.complain(node, f"{where} lacks the key '{name}'")
        return found

    def items(self, node: yaml.Node | None, where: str) -> list[yaml.Node]:
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.complain(node, f"{where} has to be a list")
            return []
        return list(node.value)

    def text(self, node: yaml.Node, where: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_TAG}str":
            self.complain(node, f"{where} has to be text")
            return ""
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            self.complain(node, f"{where} holds half of a surrogate pair, which is no character")
            return ""
        return str(node.value)

    def optional_text(self, found: dict[str, yaml.Node], name: str, where: str) -> str | None:
        return self.text(found[name], f"{where}.{name}") if name in found else None

    def path_text(self, node: yaml.Node, where: str) -> str:
        """The path of a file. It is empty only after a complaint."""
        noted = len(self.found)
        path = self.text(node, where)
        if not path and len(self.found) == noted:
            self.complain(node, f"{where} is empty; name a file")
        return path

    def path(self, found: dict[str, yaml.Node], name: str, where: str) -> str:
        return self.path_text(found[name], f"{where}.{name}") if name in found else ""

    def number(self, node: yaml.Node, where: str) -> int:
        if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_TAG}int" or not node.value.isdecimal():
            self.complain(node, f"{where} has to be a whole number")
            return 0
        return int(node.value)

    def flag(self, node: yaml.Node, where: str) -> bool:
        if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_TAG}bool":
            self.complain(node, f"{where} has to be true or false")
            return True
        return node.value.lower() in ("true", "yes", "on")


def is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"
