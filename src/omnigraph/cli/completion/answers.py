"""What may stand at the cursor of a command line: commands, options, and values by what they name.

Names of profiles and servers come from the operator's configuration, those of queries from the file on the line or from
a server, those of branches and types from the graph that the line addresses: only these open one, and load Lance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omnigraph.cli.command_tree import CommandGroup
from omnigraph.cli.completion.line import Line, line_of, offered_options
from omnigraph.cli.completion.scripts import FILES
from omnigraph.cli.config import OperatorConfig, load_config
from omnigraph.cli.registry import HIDDEN, RULES, Capability
from omnigraph.cli.target import Request, ServerScope, resolve

_PATIENCE_SECONDS = 2.0
"""How long a server may take: a person waits for a Tab."""
Candidates = Iterable[tuple[str, str]]

# What an option or argument names, by how it is called; a command may differ from the rest.
_VALUES = {
    "--branch": "branch",
    "--target-branch": "branch",
    "--into": "branch",
    "--from": "branch",
    "--type": "type",
    "--profile": "profile",
    "--server": "server",
    "--graph": "graph",
    "--cluster": "cluster",
    "--ours": "conflict",
    "--theirs": "conflict",
}
_OF_COMMANDS = {
    ("schema plan", "--from"): "file",
    ("branch delete", "name"): "branch",
    ("branch merge", "source"): "branch",
    ("diff", "before"): "branch",
    ("diff", "after"): "branch",
    ("query", "name"): "query",
    ("mutate", "name"): "query",
    ("alias", "name"): "alias",
    ("profile show", "name"): "profile",
    ("login", "name"): "server",
    ("logout", "name"): "server",
    ("blob get", "type_"): "type",
    ("blob stat", "type_"): "type",
}
_FILES = frozenset({"URI", "FILE", "DIR", "PATH...", "YAML", "JSONL", "JSON"})


def answer(root: CommandGroup, words: Sequence[str], position: int) -> Iterator[str]:
    """The lines that a script of a shell expects."""
    line = line_of(root, words, position)
    for value, what in _candidates(root, line):
        if value == FILES:
            yield FILES
            return
        if value.startswith(line.word):
            yield f"{value}\t{what}" if what else value


def _candidates(root: CommandGroup, line: Line) -> Candidates:
    if line.option is not None:
        return _values(line, line.option)
    if line.word.startswith("-"):
        rule = RULES.get(line.path)
        return offered_options(line, root, rule.flags | {"yes", "quiet", "debug"} if rule else frozenset())
    if isinstance(line.command, CommandGroup):
        return ((name, text) for name, text in line.command.summaries().items() if name not in HIDDEN)
    argument = line.argument
    return () if argument is None else _values(line, argument)


def _values(line: Line, parameter: Any) -> Candidates:
    choices = parameter.type_descriptor.choices
    if choices is not None:
        return ((str(choice.value), "") for choice in choices)
    name = next((name for name in parameter.opts if name.startswith("--")), parameter.name)
    kind = _OF_COMMANDS.get((line.path, name)) or _VALUES.get(name)
    if kind in _SOURCES:
        return ((value, "") for value in _SOURCES[kind](line))
    takes_files = parameter.type_descriptor.is_path or parameter.metavar in _FILES or name == "--data"
    return [(FILES, "")] if kind == "file" or takes_files or name == "--store" else ()


# ---- where names come from


def _branches(line: Line) -> list[str]:
    with _graph(line) as graph:
        return list(graph.list_branches())


def _types(line: Line) -> list[str]:
    from omnigraph.language.schema.compile import compile_schema

    with _graph(line) as graph:
        catalog = compile_schema(graph.schema.show(_last(line, "--branch") or "main"))
    return [*catalog.nodes, *catalog.edges]


def _graph(line: Line) -> Any:
    from omnigraph.cli.target import Invocation, open_graph

    invocation = Invocation(line.path, line.flags)
    target = invocation.target(_last(line, "--uri") or line.argument_named("uri") or line.argument_named("place"))
    return _served(target, invocation.config) if isinstance(target, ServerScope) else open_graph(target)


def _served(scope: ServerScope, config: OperatorConfig) -> Any:
    from omnigraph.cli.target import open_served

    return open_served(scope, config, _PATIENCE_SECONDS)


def _queries(line: Line) -> list[str]:
    """Those of the file on the line that the command can run."""
    from omnigraph.cli.inputs import read_source
    from omnigraph.language.query.parser import parse_queries

    file = _last(line, "--query")
    if file is None:
        return _stored_queries(line)
    queries = parse_queries(read_source(Path(file).expanduser())).queries
    return [query.name.text for query in queries if query.is_mutation is (line.path == "mutate")]


def _stored_queries(line: Line) -> list[str]:
    """Those of a server; storage has none, and is not opened to say so."""
    config = load_config()
    scope = resolve(Request(line.path, Capability.ANY, line.flags), config)
    if not isinstance(scope, ServerScope):
        return []
    with _served(scope, config) as graph:
        return [query.name for query in graph.stored_queries().queries if query.mutation is (line.path == "mutate")]


def _graphs(line: Line) -> list[str]:
    """The graphs of the server or the cluster that is named."""
    from omnigraph.cluster.ledger.ledger import read_applied

    config = load_config()
    cluster = line.flags.cluster
    if cluster is None:
        scope = resolve(Request(line.path, Capability.ANY, line.flags), config)
        if not isinstance(scope, ServerScope):
            return []
        with _served(scope, config) as server:
            return [graph.graph_id for graph in server.list_graphs()]
    return read_applied(config.clusters.get(cluster, cluster)).select_graphs(None)


def _clusters(line: Line) -> list[str]:
    """Names, or directories where none fits."""
    names = sorted(load_config().clusters)
    return names if any(name.startswith(line.word) for name in names) else [FILES]


def _conflicts(line: Line) -> list[str]:
    from omnigraph.api.branches import DECIDABLE

    return [*sorted(str(kind) for kind in DECIDABLE), "all"]


def _last(line: Line, option: str) -> str | None:
    given = line.values.get(option)
    return given[-1] if given else None


_SOURCES: dict[str | None, Callable[[Line], list[str]]] = {
    "branch": _branches,
    "type": _types,
    "query": _queries,
    "graph": _graphs,
    "cluster": _clusters,
    "conflict": _conflicts,
    "profile": lambda _: sorted(load_config().profiles),
    "server": lambda _: sorted(load_config().servers),
    "alias": lambda _: sorted(load_config().aliases),
}
