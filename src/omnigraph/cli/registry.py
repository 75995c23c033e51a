"""The registry: one row per command, with its function, help text, capability, global flags and examples.

`main` builds the command tree from it; the guard, the legend of `--help` and the reference in the documentation read
it. It holds plain text, so that listing the commands imports none of them. A command that is not here does not exist.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from omnigraph.cli.params import GlobalFlags
from omnigraph.errors import BadRequestError


class Capability(StrEnum):
    """What a command works on."""

    ANY = "any"
    SERVED = "served"
    DIRECT = "direct"
    CONTROL = "control"
    LOCAL = "local"


_DESCRIBED: Final = {
    Capability.ANY: ("data", "data of a graph, served or in storage"),
    Capability.SERVED: ("served", "needs a server"),
    Capability.DIRECT: ("direct (storage-native)", "works on storage or on files"),
    Capability.CONTROL: ("cluster control", "a cluster and its policies"),
    Capability.LOCAL: ("local", "addresses no graph"),
}
"""The name of the commands of a capability in messages, and its meaning in the legend."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `function` is `module.function` below `omnigraph.cli.commands`; `flags` are the global flags that it
    accepts. The examples work in the directory that `omnigraph quickstart` writes; COMMIT is the id of a commit."""

    path: str
    function: str
    summary: str
    capability: Capability
    flags: tuple[str, ...]
    examples: tuple[str, ...]
    details: str = ""
    hidden: bool = False

    @property
    def label(self) -> str:
        """How messages call it (`branch create` is `branch`, `blob get` stays)."""
        family = self.path.split(" ", 1)[0]
        return self.path if family in _TWO_WORDS else family

    @property
    def help(self) -> str:
        return f"{self.summary}.\n\n{self.details}" if self.details else f"{self.summary}."

    @property
    def epilog(self) -> str:
        """The end of the help: examples, in lines that can be copied, and the global flags that apply."""
        heading = "Example:" if len(self.examples) == 1 else "Examples:"
        text = "\n".join(["\b", heading, *(f"  {line}" for line in self.examples)])
        accepted = ", ".join(f"--{flag}" for flag in _SELECTS if flag in self.flags)
        return f"{text}\n\nGlobal flags that apply: {accepted}. See `omnigraph --help`." if accepted else text


# These families are named with their second word in messages.
_TWO_WORDS = frozenset({"schema", "queries", "blob", "changes", "graphs"})

FAMILIES: Final = {
    "branch": "Create, list, merge and delete branches.",
    "commit": "Show the history of a graph.",
    "changes": "Follow a branch, commit by commit.",
    "blob": "Read blob properties.",
    "schema": "Show, plan, apply and propose schemas.",
    "index": "Show what the declared indexes cover.",
    "pipeline": "Load bulk data on Spark.",
    "cluster": "Describe a cluster in files, plan, apply. A new cluster begins with import.",
    "graphs": "List the graphs of a server.",
    "queries": "List and check the stored queries of a cluster or a server.",
    "policy": "Check, test and explain the rules of a cluster.",
    "profile": "Show the profiles of the operator configuration.",
    "cache": "Delete what this machine keeps of remote graphs.",
}

Access: TypeAlias = tuple[Capability, tuple[str, ...]]


def _row(
    path: str, function: str, summary: str, access: Access, *examples: str, details: str = "", hidden: bool = False
) -> Command:
    return Command(path, function, summary, *access, examples, details, hidden)


_READ: Access = (Capability.ANY, ("server", "graph", "store", "profile"))
_WRITE: Access = (Capability.ANY, ("server", "graph", "store", "as", "profile"))
_MAINTENANCE: Access = (Capability.DIRECT, ("cluster", "graph", "store", "profile"))
_CLUSTER: Access = (Capability.CONTROL, ("cluster", "graph", "profile"))
_STORED_QUERIES: Access = (Capability.CONTROL, ("server", "cluster", "graph", "profile"))
_SERVER: Access = (Capability.SERVED, ("server", "profile"))
_AGENTS: Access = (Capability.ANY, ("server", "cluster", "graph", "store", "as", "profile"))
_DOCTOR: Access = (Capability.ANY, ("server", "cluster", "graph", "store", "profile"))
_STORE: Access = (Capability.DIRECT, ("store",))
_STORE_OR_CLUSTER: Access = (Capability.DIRECT, ("cluster", "store"))
_PIPELINE_RUN: Access = (Capability.DIRECT, ("cluster", "store", "as"))
_APPLY: Access = (Capability.CONTROL, ("as",))
_CONFIG: Access = (Capability.CONTROL, ())
_LOCAL: Access = (Capability.LOCAL, ())

# fmt: off
_ROWS: Final = (
    _row("quickstart", "setup.quickstart",
         "Write a directory to start with: schema, data, queries, a pipeline, a cluster with rules", _LOCAL,
         "omnigraph quickstart first",
         details="It never overwrites a file. It prints the next commands; the README.md that it writes explains"
                 " them."),
    _row("init", "schema.init", "Create a graph at the location that --store names", _STORE,
         "omnigraph init --schema schema.pg --store new.omni",
         "omnigraph init --schema schema.pg --store s3://bucket/team.omni",
         details="It creates parent directories, and refuses a location that already holds a graph."),
    _row("shell", "query.shell",
         "Query and change a graph interactively, with history, completion and `:help`", _WRITE,
         "omnigraph shell --store team.omni --query queries/team.gq",
         "echo 'match { $p: Person } return { $p.name }' | omnigraph shell --store team.omni --format csv",
         details="Mutations are commits on the current branch. Statements may also be piped in; the exit code is"
                 " then 1 if one failed."),
    _row("load", "load.load", "Load data into a branch as one commit, all or nothing", _WRITE,
         "omnigraph load --store team.omni --data data/team.jsonl --mode merge",
         "omnigraph load --store team.omni --data data/team.jsonl --mode merge --branch trial --from main",
         "omnigraph export --store team.omni | omnigraph load --store copy.omni --data - --mode append",
         details="A file of rows may also be the argument: `omnigraph load people.csv --type Person --mode merge"
                 " --store team.omni`."),
    _row("ingest", "load.ingest", "Load records in the lenient grammar of old exports (deprecated: use load)", _WRITE,
         "omnigraph ingest --store team.omni --data data/team.jsonl",
         hidden=True),
    _row("query", "query.query", "Run a read query (alias: read)", _READ,
         "omnigraph query staff --query queries/team.gq --param code=kb --store team.omni",
         "omnigraph query -e 'query q() { match { $p: Person } return { $p.name } }' --store team.omni --format csv",
         'omnigraph query staff --query queries/team.gq --params \'{"code": "kb"}\' --store team.omni --at-version 2',
         details="All rows come from one snapshot: the head of a branch, or its past."),
    _row("mutate", "query.mutate",
         "Run a mutation: inserts, updates or deletes, all or nothing (alias: change)", _WRITE,
         "omnigraph mutate hire --query queries/team.gq --param name=Gus --param code=web --store team.omni",
         'omnigraph mutate -e \'query q() { delete Person where name = "Bob" }\' --store team.omni --if-commit COMMIT'),
    _row("snapshot", "commit.snapshot", "List the tables of a snapshot with their versions and sizes", _WRITE,
         "omnigraph snapshot --store team.omni", "omnigraph snapshot --store team.omni --branch hiring --json"),
    _row("branch create", "branch.create", "Create a branch", _WRITE,
         "omnigraph branch create trial --store team.omni",
         "omnigraph branch create fix --from COMMIT --store team.omni",
         details="A new branch costs one small object, whatever the size of the graph."),
    _row("branch list", "branch.list_", "List the branches by name", _WRITE,
         "omnigraph branch list --store team.omni", "omnigraph branch list --store team.omni --verbose"),
    _row("branch delete", "branch.delete", "Delete a branch and the commits that only it has", _WRITE,
         "omnigraph branch delete hiring --store team.omni",
         details="This can't be undone."),
    _row("branch merge", "branch.merge", "Merge a branch into another, by entity, all or nothing", _WRITE,
         "omnigraph branch merge hiring --preview --store team.omni",
         "omnigraph branch merge hiring --into main --delete-branch --store team.omni",
         "omnigraph branch merge hiring --theirs all --store team.omni"),
    _row("commit list", "commit.list_", "List the commits of a branch, newest first", _READ,
         "omnigraph commit list --store team.omni --limit 5", "omnigraph commit list --store team.omni --dag"),
    _row("commit show", "commit.show",
         "Show one commit: its author, time, branch and the number of entities it changed", _READ,
         "omnigraph commit show COMMIT --store team.omni"),
    _row("commit changes", "commit.changes",
         "Show the entities that a commit changed, with their values before and after", _READ,
         "omnigraph commit changes COMMIT --store team.omni --type Person --op insert"),
    _row("changes poll", "commit.poll",
         "Show the changes of a branch since a cursor, oldest commit first, and the next cursor", _READ,
         "omnigraph changes poll --start beginning --store team.omni",
         "omnigraph changes poll --start after:COMMIT --store team.omni --json"),
    _row("changes baseline", "commit.baseline",
         "Write the snapshot of a branch to a file and print the cursor that continues from it", _READ,
         "omnigraph changes baseline --out people.ndjson --type Person --store team.omni"),
    _row("diff", "commit.diff", "Show the entities that differ between two snapshots, of any branches", _READ,
         "omnigraph diff main hiring --store team.omni", "omnigraph diff main@1 main --store team.omni --type Person"),
    _row("export", "export.export",
         "Write every entity of a snapshot, one JSON object per line; `load` reads it back", _WRITE,
         "omnigraph export --store team.omni --type Person > people.ndjson",
         "omnigraph export --store team.omni --format parquet --out files"),
    _row("blob get", "blob.get", "Write the bytes of a blob to stdout or a file", _READ,
         "omnigraph blob get node Document handbook body --out handbook.txt --store team.omni"),
    _row("blob stat", "blob.stat", "Show the size of a blob, or the address of an external one", _READ,
         "omnigraph blob stat node Document handbook body --store team.omni",
         details="It does not read the bytes."),
    _row("schema show", "schema.show", "Print the accepted schema as it was written", _WRITE,
         "omnigraph schema show --store team.omni"),
    _row("schema plan", "schema.plan", "Show the steps from the accepted schema to another one", _READ,
         "omnigraph schema plan --store team.omni --schema schema.pg",
         "omnigraph schema plan --from schema.pg --schema schema.pg --json",
         details="It changes nothing. A plan that can't be applied is still shown, with exit code 0."),
    _row("schema apply", "schema.apply", "Change the schema, and the data with it, in one commit", _WRITE,
         "omnigraph schema apply --store team.omni --schema schema.pg --allow-data-loss"),
    _row("schema infer", "schema.infer", "Propose a schema for files of data", _LOCAL,
         "omnigraph schema infer data/team.jsonl --output proposed.pg",
         "omnigraph schema infer --type Colleague=data/people.csv --sample 1000",
         details="It reads csv, tsv, parquet, arrow, ndjson and jsonl files, which may be compressed. A file is a type;"
                 " graph records name theirs. Comments in the text say what was decided and why."),
    _row("pipeline run", "pipeline.run", "Run a pipeline as one commit", _PIPELINE_RUN,
         "omnigraph pipeline run ingest.yaml", "omnigraph pipeline run ingest.yaml --dry-run --json"),
    _row("pipeline validate", "pipeline.validate",
         "Check a pipeline file, and against the schema of its graph if the graph exists", _STORE_OR_CLUSTER,
         "omnigraph pipeline validate ingest.yaml",
         details="It does not start Spark."),
    _row("pipeline explain", "pipeline.explain", "Show the steps of a run without running it", _STORE_OR_CLUSTER,
         "omnigraph pipeline explain ingest.yaml",
         details="It reads schemas, not rows."),
    _row("optimize", "maintenance.optimize",
         "Compact tables and update their indexes, in one commit that changes no content", _MAINTENANCE,
         "omnigraph optimize --store team.omni"),
    _row("index status", "maintenance.index_status",
         "List the declared indexes: what they cover, their size and recall, and what they wait for", _READ,
         "omnigraph index status --store team.omni", "omnigraph index status --store team.omni --json",
         details="It reads no rows. `omnigraph optimize` builds what is pending and covers stale rows."),
    _row("repair", "maintenance.repair",
         "Verify that every branch opens and is complete, and find tables that another tool changed", _MAINTENANCE,
         "omnigraph repair --store team.omni", "omnigraph repair --store team.omni --confirm"),
    _row("cleanup", "maintenance.cleanup", "Delete the data of old versions", _MAINTENANCE,
         "omnigraph cleanup --store team.omni --keep 10 --dry-run",
         "omnigraph cleanup --store team.omni --keep 10 --older-than 30d --confirm",
         details="Data that a branch still uses is always kept."),
    _row("lint", "source_files.lint",
         "Check the queries of a file against a schema, or a schema alone (alias: check)", _MAINTENANCE,
         "omnigraph lint --schema schema.pg", "omnigraph lint --query queries/team.gq --schema schema.pg",
         "omnigraph lint --store team.omni --query queries/team.gq --json",
         details="It reports every error with its code and position, and what each query reads, writes and returns."),
    _row("codegen", "codegen.codegen", "Write typed Python or TypeScript for a schema and its queries", _READ,
         "omnigraph codegen --schema schema.pg --query queries --output team.py",
         "omnigraph codegen --schema schema.pg --query queries --output team.py --style pydantic",
         "omnigraph codegen --store team.omni --query queries/team.gq --output team.ts",
         details="One class for each type and one function for each query, with the types of its parameters and of its"
                 " rows. Without --schema, the accepted schema of the addressed graph is used."),
    _row("embed", "embed.embed", "Add the vectors of their texts to graph records, from file to file", _LOCAL,
         "omnigraph embed --input data/team.jsonl --output embedded.jsonl --spec embed.json",
         details="The environment names the provider. A failed run can be repeated: vectors that were paid for "
                 "are kept."),
    _row("fmt", "source_files.fmt", "Format schema (.pg) and query (.gq) files in place", _LOCAL,
         "omnigraph fmt schema.pg queries", "omnigraph fmt . --check --diff",
         details="Only the layout changes; every comment is kept."),
    _row("lsp", "source_files.lsp",
         "Serve an editor: diagnostics, completion, navigation and renames (Language Server Protocol)", _LOCAL,
         "omnigraph lsp",
         details="It speaks over stdin and stdout and is started by the editor. It opens no graph."),
    _row("graphs list", "setup.list_graphs", "List the graphs of a server, if you may know them", _SERVER,
         "omnigraph graphs list --server https://graphs.example.com"),
    _row("alias", "query.alias", "Run a stored query of a server by an alias from the configuration", _LOCAL,
         "omnigraph alias staff kb"),
    _row("login", "setup.login", "Store the token of a server in a file that only you can read", _LOCAL,
         "omnigraph login prod --token SECRET", "echo SECRET | omnigraph login prod"),
    _row("logout", "setup.logout", "Delete the stored token of a server", _LOCAL,
         "omnigraph logout prod"),
    _row("cluster validate", "cluster.validate", "Check a configuration and every file it names", _CONFIG,
         "omnigraph cluster validate --config .",
         details="It looks at nothing else."),
    _row("cluster plan", "cluster.plan", "Show the changes that an apply would make", _CONFIG,
         "omnigraph cluster plan --config .",
         details="It changes nothing."),
    _row("cluster apply", "cluster.apply", "Apply the configuration to the cluster", _APPLY,
         "omnigraph cluster apply --config . --as lea"),
    _row("cluster approve", "cluster.approve", "Approve a deletion, for the plan as it is now", _APPLY,
         "omnigraph cluster approve graph.team --config . --as lea"),
    _row("cluster status", "cluster.status",
         "Show the applied resources and the last commit of each pipeline", _CONFIG,
         "omnigraph cluster status --config ."),
    _row("cluster refresh", "cluster.refresh",
         "Record the resources as they are now, whatever was recorded before", _CONFIG,
         "omnigraph cluster refresh --config ."),
    _row("cluster import", "cluster.refresh", "Create the ledger of a cluster from the graphs that exist", _CONFIG,
         "omnigraph cluster import --config ."),
    _row("cluster force-unlock", "cluster.force_unlock", "Remove the lock of a command that has died", _CONFIG,
         "omnigraph cluster force-unlock LOCK --config ."),
    _row("cluster history", "cluster.history",
         "List the revisions of a cluster, newest first, with the changes of each", _CONFIG,
         "omnigraph cluster history --config . --limit 5"),
    _row("queries list", "query.list_",
         "List the stored queries of a server or a cluster, with their parameters", _STORED_QUERIES,
         "omnigraph queries list --cluster . --graph team",
         details="Without --graph, those of all graphs of a cluster."),
    _row("queries validate", "query.validate",
         "Check stored queries against the current schemas of their graphs", _CLUSTER,
         "omnigraph queries validate --cluster ."),
    _row("policy validate", "policy.validate",
         "Check a bundle, and its row filters and column masks against a schema", _CLUSTER,
         "omnigraph policy validate --file policy.yaml --schema schema.pg",
         "omnigraph policy validate --cluster . --graph team"),
    _row("policy test", "policy.try_cases", "Run the test cases of a file against a bundle", _CLUSTER,
         "omnigraph policy test --file policy.yaml --tests policy.tests.yaml"),
    _row("policy explain", "policy.explain", "Explain whether an actor may do something", _CLUSTER,
         "omnigraph policy explain --file policy.yaml --actor bob --action change --branch main",
         details="With --type and a row, given by --id or --row, it also explains whether the actor sees that "
                 "row. The exit code is 0 for allow and for deny."),
    _row("policy show", "policy.show", "Print a bundle, or the Cedar policies made from it", _CLUSTER,
         "omnigraph policy show --file policy.yaml --cedar"),
    _row("profile list", "setup.list_profiles", "List the profiles; OMNIGRAPH_PROFILE selects the active one", _LOCAL,
         "omnigraph profile list"),
    _row("profile show", "setup.show_profile", "Show what a profile addresses", _LOCAL,
         "omnigraph profile show", "omnigraph profile show team --json"),
    _row("serve", "serve.serve",
         "Serve the graphs of a cluster (--cluster), or one graph (--store), over HTTP", _STORE_OR_CLUSTER,
         "omnigraph serve --cluster .", "omnigraph serve --store team.omni --unauthenticated --bind 127.0.0.1:8080"),
    _row("mcp", "mcp.mcp", "Offer a graph to agents as tools (Model Context Protocol)", _AGENTS,
         "omnigraph mcp --store team.omni --queries queries/team.gq --read-only"),
    _row("doctor", "doctor.doctor",
         "Check this machine and the addressed graph, and suggest how to fix problems", _DOCTOR,
         "omnigraph doctor", "omnigraph doctor --store team.omni",
         details="On storage it verifies that creating an object fails if one exists, which commits rely on, and"
                 " removes the object it wrote. Exit code 1 if something is broken."),
    _row("cache clear", "setup.clear_cache", "Delete the files of remote graphs that are kept on this machine", _LOCAL,
         "omnigraph cache clear",
         details="Processes that use them go on, and read from the store again. `omnigraph doctor` shows how many bytes"
                 " there are."),
    _row("completion", "setup.completion", "Print a script that completes command lines in a shell", _LOCAL,
         "source <(omnigraph completion bash)",
         "omnigraph completion fish | source",
         details="For bash, put `source <(omnigraph completion bash)` into ~/.bashrc; for zsh, the same with zsh"
                 " into ~/.zshrc after compinit; for fish, `omnigraph completion fish | source` into "
                 "~/.config/fish/config.fish."),
    _row("version", "setup.version", "Print the version and the storage format version", _LOCAL,
         "omnigraph version", "omnigraph version --json",
         details="With --json also the versions of the query languages."),
)
# fmt: on
COMMANDS: Final = {row.path: row for row in _ROWS}

_SELECTS = {
    "server": "--server selects a graph behind a server",
    "cluster": "--cluster selects a cluster",
    "graph": "--graph selects a graph of a server or a cluster",
    "store": "--store selects a graph's storage",
    "as": "--as names the actor of a write",
    "profile": "--profile selects a profile of the operator configuration",
}


def check_flags(command: Command, flags: GlobalFlags) -> None:
    """Refuse the first flag that the command would ignore. An alias declares its own server and graph, so that all of
    them are named."""
    present = dict(flags.addresses())
    if command.path == "alias" and present:
        names = [f"--{flag}" for flag in ("server", "graph", "store", "cluster", "profile", "as") if flag in present]
        uses = "`alias` uses the server, graph, and stored query of its declaration"
        raise BadRequestError(f"{uses}; leave out {', '.join(names)}")
    for flag in present:
        if flag not in command.flags:
            kind = f"`{command.label}` is a {_DESCRIBED[command.capability][0]} command"
            message = f"{kind}; {_SELECTS[flag]} and does not apply. {_remedy(command)}"
            raise BadRequestError(message.rstrip())


def _remedy(command: Command) -> str:
    flags = command.flags
    match command.capability:
        case Capability.SERVED:
            return "Give --server <name|url>, or a --profile <name> that binds one."
        case Capability.LOCAL:
            return f"`{command.label}` does not address a graph."
        case Capability.CONTROL if "cluster" in flags:
            return "Give --cluster <dir|uri>" + (" or --server <name|url>." if "server" in flags else ".")
        case Capability.CONTROL:
            return "Give the directory of its configuration with --config <dir>."
        case Capability.DIRECT if command.path == "serve":
            return "Give a storage URI with --store, or a cluster with --cluster <dir|uri>."
        case Capability.DIRECT:
            cluster = ", or --cluster <dir> --graph <id>" if "graph" in flags and command.path != "lint" else ""
            return f"Give a storage URI with --store <uri>{cluster}."
    return ""


def legend() -> str:
    """The end of the top-level help."""
    lines = ["\b", "COMMANDS BY CAPABILITY"]
    for capability in Capability:
        families: dict[str, list[str]] = {}
        for command in COMMANDS.values():
            if command.capability is capability and not command.hidden:
                family, _, second = command.path.partition(" ")
                families.setdefault(family, []).extend([second] if second else [])
        lines.append(f"  {capability:<8} {_DESCRIBED[capability][1]}")
        names = [f"{family} {'|'.join(words)}" if words else family for family, words in families.items()]
        # A large family may continue on the next line, after a bar.
        text, indent = ", ".join(names).replace("|", "| "), " " * 11
        wrapped = textwrap.wrap(text, 78, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        lines += [line.replace("| ", "|") for line in wrapped]
    return "\n".join(lines) + "\n"


_OLD_NAMES = {"read": "query", "change": "mutate", "check": "lint", "query lint": "lint", "query check": "lint"}
_SYNONYMS = {"schema get": "schema show"}


def current_name(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Replace an old name of a command, and `help COMMAND`; with a note when the name is deprecated.

    Only the first two words are looked at, so that a file or a branch may be called like an old command.
    """
    words = list(arguments)
    if words[:1] == ["help"]:
        return [*words[1:], "--help"], None
    for old, new in (_OLD_NAMES | _SYNONYMS).items():
        if words[: (length := len(old.split()))] == old.split():
            note = f"`omnigraph {old}` is deprecated; use `omnigraph {new}`" if old in _OLD_NAMES else None
            return [*new.split(), *words[length:]], note
    return words, None
