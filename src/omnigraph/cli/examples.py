"""What the help of each command shows: command lines that work in the directory of `omnigraph quickstart`.

There `team.omni` is a graph with data and a branch `hiring`, and COMMIT stands for the id of a commit. A test runs each
of them, or, where that would not end or needs Spark, at least parses it.
"""

from __future__ import annotations

from typing import Final

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
