"""What each command works on, and which global flags it therefore accepts.

One table drives the guard, the legend of `--help` and the scope resolution. A command that is not in it does not
exist. The guard runs after parsing and before the command, so that a flag that would be ignored is never silent.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.cli.flags import GlobalFlags
from omnigraph.errors import BadRequestError


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
