"""Every command: where it lives, and what a list of commands says of it. Plain text, so that a list imports nothing.

What each command works on, and which global flags it therefore accepts.

One table drives the guard, the legend of `--help` and the scope resolution. A command that is not in it does not
exist. The guard runs after parsing and before the command, so that a flag that would be ignored is never silent.

What the help of each command shows: command lines that work in the directory of `omnigraph quickstart`.

There `team.omni` is a graph with data and a branch `hiring`, and COMMIT stands for the id of a commit. A test runs each
of them, or, where that would not end or needs Spark, at least parses it.

Old spellings of commands, and `help COMMAND`, rewritten before anything is parsed.

Only the first two words are looked at, so that a file or a branch may be called like an old command.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omnigraph.cli.params import GlobalFlags
from omnigraph.errors import BadRequestError

FAMILIES = {
    "branch": "Create, list, merge and delete branches.",
    "commit": "The history of a graph.",
    "changes": "Follow a branch, commit by commit.",
    "blob": "Read blob properties.",
    "schema": "Show, plan and apply schemas.",
    "pipeline": "Bulk data on Spark.",
    "cluster": "Describe a cluster in files, plan, apply. A new one begins with import.",
    "graphs": "The graphs of a server.",
    "queries": "The stored queries of a cluster or a server.",
    "policy": "Check, test and explain the rules of a cluster.",
    "profile": "The scopes of the operator configuration.",
}

# Commands of one word, as the list of commands shows them: the first sentence of each one's help, so that the list
# imports none of them.
SUMMARIES = {
    "quickstart": "Write a directory to begin with: schema, data, queries, a pipeline, a cluster with rules",
    "init": "Create a graph at the place that --store names",
    "load": "Load data into a branch as one commit, all or nothing",
    "query": "Run a read query (alias: read)",
    "mutate": "Run a mutation: inserts, updates or deletes, all or nothing (alias: change)",
    "shell": "Query and change a graph in a conversation: history, completion, `:help`",
    "snapshot": "Show the tables of a state, with their versions and sizes",
    "diff": "Show which entities differ between two states, of any branches",
    "export": "Write every entity of a state, one JSON object per line; `load` reads it back",
    "optimize": "Compact tables and bring their indexes up to date, in one commit that changes no content",
    "repair": "Verify that every branch opens and is complete, and find tables that another tool has changed",
    "cleanup": "Remove the data of old versions",
    "lint": "Check the queries of a file against a schema, or with --schema alone that schema (alias: check)",
    "embed": "Give graph records the vectors of their texts, file to file",
    "fmt": "Format schema (.pg) and query (.gq) files in place",
    "serve": "Serve the graphs of a cluster (--cluster), or one graph (--store), over HTTP",
    "mcp": "Offer a graph to agents as tools (Model Context Protocol)",
    "doctor": "Check this machine, and the graph that is addressed, and say what to do",
    "completion": "Print the script that completes command lines in a shell",
    "alias": "Run a stored read of a server by the alias that the configuration has for it",
    "login": "Keep the token for a server, in a file that only you may open",
    "logout": "Keep no token for a server any more",
    "version": "Print the version and the storage format version",
}

# `module.function` below `omnigraph.cli.commands`.
COMMANDS: dict[str, str] = {
    "quickstart": "setup.quickstart",
    "init": "schema.init",
    "shell": "query.shell",
    "load": "load.load",
    "ingest": "load.ingest",
    "query": "query.query",
    "mutate": "query.mutate",
    "snapshot": "commit.snapshot",
    "branch create": "branch.create",
    "branch list": "branch.list_",
    "branch delete": "branch.delete",
    "branch merge": "branch.merge",
    "commit list": "commit.list_",
    "commit show": "commit.show",
    "commit changes": "commit.changes",
    "changes poll": "changes.poll",
    "changes baseline": "changes.baseline",
    "diff": "changes.diff",
    "export": "export.export",
    "blob get": "blob.get",
    "blob stat": "blob.stat",
    "schema show": "schema.show",
    "schema plan": "schema.plan",
    "schema apply": "schema.apply",
    "pipeline run": "pipeline.run",
    "pipeline validate": "pipeline.validate",
    "pipeline explain": "pipeline.explain",
    "optimize": "maintenance.optimize",
    "repair": "maintenance.repair",
    "cleanup": "maintenance.cleanup",
    "lint": "source_files.lint",
    "embed": "embed.embed",
    "fmt": "source_files.fmt",
    "graphs list": "connection.list_graphs",
    "alias": "stored_queries.alias",
    "login": "connection.login",
    "logout": "connection.logout",
    "cluster validate": "cluster.validate",
    "cluster plan": "cluster.plan",
    "cluster apply": "cluster.apply",
    "cluster approve": "cluster.approve",
    "cluster status": "cluster.status",
    "cluster refresh": "cluster.refresh",
    "cluster import": "cluster.import_",
    "cluster force-unlock": "cluster.force_unlock",
    "cluster history": "cluster.history",
    "queries list": "stored_queries.list_",
    "queries validate": "stored_queries.validate",
    "policy validate": "policy.validate",
    "policy test": "policy.try_cases",
    "policy explain": "policy.explain",
    "policy show": "policy.show",
    "profile list": "connection.list_profiles",
    "profile show": "connection.show_profile",
    "serve": "serve.serve",
    "mcp": "mcp.mcp",
    "doctor": "doctor.doctor",
    "completion": "setup.completion",
    "version": "setup.version",
}


class Capability(StrEnum):
    ANY = "any"
    SERVED = "served"
    DIRECT = "direct"
    CONTROL = "control"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Rule:
    capability: Capability
    flags: frozenset[str]


def _rule(capability: Capability, *flags: str) -> Rule:
    return Rule(capability, frozenset(flags))


_READ = _rule(Capability.ANY, "server", "graph", "store", "profile")
_WRITE = _rule(Capability.ANY, "server", "graph", "store", "as", "profile")
_UPKEEP = _rule(Capability.DIRECT, "cluster", "graph", "store", "profile")
_CONTROL = _rule(Capability.CONTROL, "cluster", "graph", "profile")
_LOCAL = _rule(Capability.LOCAL)
_CLUSTER = _rule(Capability.CONTROL)

RULES: dict[str, Rule] = {
    "query": _READ,
    "mutate": _WRITE,
    "shell": _WRITE,
    "load": _WRITE,
    "ingest": _WRITE,
    "branch create": _WRITE,
    "branch list": _WRITE,
    "branch delete": _WRITE,
    "branch merge": _WRITE,
    "snapshot": _WRITE,
    "export": _WRITE,
    "blob get": _READ,
    "blob stat": _READ,
    "commit list": _READ,
    "commit show": _READ,
    "commit changes": _READ,
    "changes poll": _READ,
    "changes baseline": _READ,
    "diff": _READ,
    "doctor": _rule(Capability.ANY, "server", "cluster", "graph", "store", "profile"),
    "schema show": _WRITE,
    "schema plan": _READ,
    "schema apply": _WRITE,
    "graphs list": _rule(Capability.SERVED, "server", "profile"),
    "init": _rule(Capability.DIRECT, "store"),
    "pipeline run": _rule(Capability.DIRECT, "cluster", "store", "as"),
    "pipeline validate": _rule(Capability.DIRECT, "cluster", "store"),
    "pipeline explain": _rule(Capability.DIRECT, "cluster", "store"),
    "optimize": _UPKEEP,
    "repair": _UPKEEP,
    "cleanup": _UPKEEP,
    "lint": _UPKEEP,
    "mcp": _rule(Capability.ANY, "server", "cluster", "graph", "store", "as", "profile"),
    "serve": _rule(Capability.DIRECT, "cluster", "store"),
    "queries list": _rule(Capability.CONTROL, "server", "cluster", "graph", "profile"),
    "queries validate": _CONTROL,
    "policy validate": _CONTROL,
    "policy test": _CONTROL,
    "policy explain": _CONTROL,
    "policy show": _CONTROL,
    "embed": _LOCAL,
    "alias": _LOCAL,
    "login": _LOCAL,
    "logout": _LOCAL,
    "cluster validate": _CLUSTER,
    "cluster plan": _CLUSTER,
    "cluster apply": _rule(Capability.CONTROL, "as"),
    "cluster approve": _rule(Capability.CONTROL, "as"),
    "cluster status": _CLUSTER,
    "cluster refresh": _CLUSTER,
    "cluster import": _CLUSTER,
    "cluster force-unlock": _CLUSTER,
    "cluster history": _CLUSTER,
    "fmt": _LOCAL,
    "completion": _LOCAL,
    "quickstart": _LOCAL,
    "profile list": _LOCAL,
    "profile show": _LOCAL,
    "version": _LOCAL,
}

HIDDEN = frozenset({"ingest"})

_CALLED = {
    Capability.ANY: "data",
    Capability.SERVED: "served",
    Capability.DIRECT: "direct (storage-native)",
    Capability.CONTROL: "cluster control",
    Capability.LOCAL: "local",
}

_SELECTS = {
    "server": "--server selects a graph behind a server",
    "cluster": "--cluster selects a cluster",
    "graph": "--graph selects a graph of a server or a cluster",
    "store": "--store selects a graph's storage",
    "as": "--as names the actor of a write",
    "profile": "--profile selects a scope of the operator configuration",
}

_MEANING = {
    Capability.ANY: "data of a graph, served or in storage",
    Capability.SERVED: "needs a server",
    Capability.DIRECT: "works on storage or on files",
    Capability.CONTROL: "a cluster and its policies",
    Capability.LOCAL: "addresses no graph",
}

# These families are named with their second word in messages.
_TWO_WORDS = frozenset({"schema", "queries", "blob", "changes", "graphs"})


def label_of(path: str) -> str:
    """How a message calls the command at `path` (`branch create` is `branch`, `blob get` stays)."""
    family = path.split(" ", 1)[0]
    return path if family in _TWO_WORDS else family


def check_flags(path: str, flags: GlobalFlags) -> None:
    """Refuse the first flag that the command at `path` would ignore."""
    rule = RULES[path]
    if path == "alias":
        _refuse_all(flags)
    for flag, _ in flags.addressing():
        if flag not in rule.flags:
            described = f"`{label_of(path)}` is a {_CALLED[rule.capability]} command"
            message = f"{described}; {_SELECTS[flag]} and does not apply. {_remedy(path, rule)}"
            raise BadRequestError(message.rstrip())


def _refuse_all(flags: GlobalFlags) -> None:
    """An alias says by itself what it is about, so every flag that would say it again is named."""
    given = dict(flags.addressing())
    named = [f"--{flag}" for flag in ("server", "graph", "store", "cluster", "profile", "as") if flag in given]
    if named:
        uses = "`alias` uses the server, graph, and stored query of its declaration"
        raise BadRequestError(f"{uses}; leave out {', '.join(named)}")


def _remedy(path: str, rule: Rule) -> str:
    if rule.capability is Capability.SERVED:
        return "Give --server <name|url>, or a --profile <name> that binds one."
    if rule.capability is Capability.LOCAL:
        return f"`{label_of(path)}` does not address a graph."
    if rule.capability is Capability.CONTROL and "cluster" in rule.flags:
        return "Give --cluster <dir|uri>" + (" or --server <name|url>." if "server" in rule.flags else ".")
    if rule.capability is Capability.DIRECT:
        if path == "serve":
            return "Give a storage URI with --store, or a cluster with --cluster <dir|uri>."
        cluster = ", or --cluster <dir> --graph <id>" if "graph" in rule.flags and path != "lint" else ""
        return f"Give a storage URI with --store <uri>{cluster}."
    if path.startswith("cluster "):
        return "Give the directory of its configuration with --config <dir>."
    return ""


def flags_line(path: str) -> str | None:
    """The end of a command's help: which global flags it takes."""
    accepted = [f"--{flag}" for flag in _SELECTS if flag in RULES[path].flags]
    return f"Global flags that apply: {', '.join(accepted)}. See `omnigraph --help`." if accepted else None


def legend() -> str:
    """The end of the top-level help."""
    lines = ["\b", "COMMANDS BY CAPABILITY"]
    for capability in Capability:
        families: dict[str, list[str]] = {}
        for path, rule in RULES.items():
            if rule.capability is capability and path not in HIDDEN:
                family, _, second = path.partition(" ")
                families.setdefault(family, []).extend([second] if second else [])
        lines.append(f"  {capability:<8} {_MEANING[capability]}")
        named = [f"{family} {'|'.join(words)}" if words else family for family, words in families.items()]
        # A large family may go on in the next line, behind a bar.
        wrapped = textwrap.wrap(
            (", ".join(named) or "(none yet)").replace("|", "| "),
            width=78,
            initial_indent=" " * 11,
            subsequent_indent=" " * 11,
            break_on_hyphens=False,
        )
        lines += [line.replace("| ", "|") for line in wrapped]
    return "\n".join(lines) + "\n"


EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "quickstart": ("omnigraph quickstart first",),
    "init": (
        "omnigraph init --schema schema.pg --store new.omni",
        "omnigraph init --schema schema.pg --store s3://bucket/team.omni",
    ),
    "load": (
        "omnigraph load --store team.omni --data data/team.jsonl --mode merge",
        "omnigraph load --store team.omni --data data/team.jsonl --mode merge --branch trial --from main",
        "omnigraph export --store team.omni | omnigraph load --store copy.omni --data - --mode append",
    ),
    "ingest": ("omnigraph ingest --store team.omni --data data/team.jsonl",),
    "query": (
        "omnigraph query staff --query queries/team.gq --param code=kb --store team.omni",
        "omnigraph query -e 'query q() { match { $p: Person } return { $p.name } }' --store team.omni --format csv",
        """omnigraph query staff --query queries/team.gq --params '{"code": "kb"}' --store team.omni --at-version 2""",
    ),
    "mutate": (
        "omnigraph mutate hire --query queries/team.gq --param name=Gus --param code=web --store team.omni",
        "omnigraph mutate -e 'query q() { delete Person where name = \"Bob\" }' --store team.omni --if-commit COMMIT",
    ),
    "shell": (
        "omnigraph shell --store team.omni --query queries/team.gq",
        "echo 'match { $p: Person } return { $p.name }' | omnigraph shell --store team.omni --format csv",
    ),
    "snapshot": ("omnigraph snapshot --store team.omni", "omnigraph snapshot --store team.omni --branch hiring --json"),
    "branch create": (
        "omnigraph branch create trial --store team.omni",
        "omnigraph branch create fix --from COMMIT --store team.omni",
    ),
    "branch list": ("omnigraph branch list --store team.omni", "omnigraph branch list --store team.omni --verbose"),
    "branch delete": ("omnigraph branch delete hiring --store team.omni",),
    "branch merge": (
        "omnigraph branch merge hiring --preview --store team.omni",
        "omnigraph branch merge hiring --into main --delete-branch --store team.omni",
        "omnigraph branch merge hiring --theirs all --store team.omni",
    ),
    "commit list": (
        "omnigraph commit list --store team.omni --limit 5",
        "omnigraph commit list --store team.omni --dag",
    ),
    "commit show": ("omnigraph commit show COMMIT --store team.omni",),
    "commit changes": ("omnigraph commit changes COMMIT --store team.omni --type Person --op insert",),
    "changes poll": (
        "omnigraph changes poll --start beginning --store team.omni",
        "omnigraph changes poll --start after:COMMIT --store team.omni --json",
    ),
    "changes baseline": ("omnigraph changes baseline --out people.ndjson --type Person --store team.omni",),
    "diff": (
        "omnigraph diff main hiring --store team.omni",
        "omnigraph diff main@1 main --store team.omni --type Person",
    ),
    "export": (
        "omnigraph export --store team.omni --type Person > people.ndjson",
        "omnigraph export --store team.omni --format parquet --out files",
    ),
    "blob get": ("omnigraph blob get node Document handbook body --out handbook.txt --store team.omni",),
    "blob stat": ("omnigraph blob stat node Document handbook body --store team.omni",),
    "schema show": ("omnigraph schema show --store team.omni",),
    "schema plan": (
        "omnigraph schema plan --store team.omni --schema schema.pg",
        "omnigraph schema plan --from schema.pg --schema schema.pg --json",
    ),
    "schema apply": ("omnigraph schema apply --store team.omni --schema schema.pg --allow-data-loss",),
    "pipeline run": ("omnigraph pipeline run ingest.yaml", "omnigraph pipeline run ingest.yaml --dry-run --json"),
    "pipeline validate": ("omnigraph pipeline validate ingest.yaml",),
    "pipeline explain": ("omnigraph pipeline explain ingest.yaml",),
    "optimize": ("omnigraph optimize --store team.omni",),
    "repair": ("omnigraph repair --store team.omni", "omnigraph repair --store team.omni --confirm"),
    "cleanup": (
        "omnigraph cleanup --store team.omni --keep 10 --dry-run",
        "omnigraph cleanup --store team.omni --keep 10 --older-than 30d --confirm",
    ),
    "lint": (
        "omnigraph lint --schema schema.pg",
        "omnigraph lint --query queries/team.gq --schema schema.pg",
        "omnigraph lint --store team.omni --query queries/team.gq --json",
    ),
    "embed": ("omnigraph embed --input data/team.jsonl --output embedded.jsonl --spec embed.json",),
    "fmt": ("omnigraph fmt schema.pg queries", "omnigraph fmt . --check --diff"),
    "cluster validate": ("omnigraph cluster validate --config .",),
    "cluster plan": ("omnigraph cluster plan --config .",),
    "cluster apply": ("omnigraph cluster apply --config . --as lea",),
    "cluster approve": ("omnigraph cluster approve graph.team --config . --as lea",),
    "cluster status": ("omnigraph cluster status --config .",),
    "cluster refresh": ("omnigraph cluster refresh --config .",),
    "cluster import": ("omnigraph cluster import --config .",),
    "cluster force-unlock": ("omnigraph cluster force-unlock LOCK --config .",),
    "cluster history": ("omnigraph cluster history --config . --limit 5",),
    "queries list": ("omnigraph queries list --cluster . --graph team",),
    "queries validate": ("omnigraph queries validate --cluster .",),
    "policy validate": (
        "omnigraph policy validate --file policy.yaml --schema schema.pg",
        "omnigraph policy validate --cluster . --graph team",
    ),
    "policy test": ("omnigraph policy test --file policy.yaml --tests policy.tests.yaml",),
    "policy explain": ("omnigraph policy explain --file policy.yaml --actor bob --action change --branch main",),
    "policy show": ("omnigraph policy show --file policy.yaml --cedar",),
    "profile list": ("omnigraph profile list",),
    "profile show": ("omnigraph profile show", "omnigraph profile show team --json"),
    "serve": (
        "omnigraph serve --cluster .",
        "omnigraph serve --store team.omni --unauthenticated --bind 127.0.0.1:8080",
    ),
    "mcp": ("omnigraph mcp --store team.omni --queries queries/team.gq --read-only",),
    "doctor": ("omnigraph doctor", "omnigraph doctor --store team.omni"),
    "completion": ("source <(omnigraph completion bash)", "omnigraph completion fish | source"),
    "version": ("omnigraph version",),
    "graphs list": ("omnigraph graphs list --server https://graphs.example.com",),
    "alias": ("omnigraph alias staff kb",),
    "login": ("omnigraph login prod --token SECRET", "echo SECRET | omnigraph login prod"),
    "logout": ("omnigraph logout prod",),
}


def examples_block(path: str) -> str:
    """The examples of a command as a part of its help; lines are not wrapped, so that they can be copied."""
    shown = EXAMPLES.get(path, ())
    heading = "Example:" if len(shown) == 1 else "Examples:"
    return "\n".join(["\b", heading, *(f"  {line}" for line in shown)]) if shown else ""


_OLD_SPELLINGS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("read",): ("query",),
    ("change",): ("mutate",),
    ("check",): ("lint",),
    ("query", "lint"): ("lint",),
    ("query", "check"): ("lint",),
}
_SYNONYMS: dict[tuple[str, ...], tuple[str, ...]] = {("schema", "get"): ("schema", "show")}


def spelled_out(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The command line as it is spelled today, and a note when how it was typed is on its way out."""
    if tuple(arguments[:1]) == ("help",):
        return [*arguments[1:], "--help"], None
    for old, new in (_OLD_SPELLINGS | _SYNONYMS).items():
        if tuple(arguments[: len(old)]) == old:
            note = f"`omnigraph {' '.join(old)}` is deprecated; use `omnigraph {' '.join(new)}`"
            return [*new, *arguments[len(old) :]], note if old in _OLD_SPELLINGS else None
    return list(arguments), None
