"""The server over stdin and stdout, with a real client. What it says is tested beside this; here is how."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import BaseLanguageClient

from omnigraph.editor.documents import Encoding, Lines, Position
from tests.editor.test_diagnostics import EXAMPLES
from tests.editor.workspaces import SCHEMA

pytestmark = pytest.mark.xdist_group("editor")  # one server

Result = TypeVar("Result")
COMMAND = (sys.executable, "-m", "omnigraph.cli.main", "lsp")
READ = "// 😀\nquery q($n: String) { match { $p: Person { name: $n } } return { $p.name } }\n"
MINUTES = 120


class Editor:
    """An editor with one server. Texts are written with the versions that it counts."""

    def __init__(self, home: Path, folder: Path, **capabilities: Any) -> None:
        self.folder = folder
        self.client = BaseLanguageClient("tests", "1")
        self.published: dict[str, list[types.PublishDiagnosticsParams]] = defaultdict(list)
        self.texts: dict[Path, str] = {}
        self._versions: dict[Path, int] = {}
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(self._publish())
        environment = {**os.environ, "OMNIGRAPH_HOME": str(home)}
        self.run(self.client.start_io(*COMMAND, env=environment))
        self.started = self.run(
            self.client.initialize_async(
                types.InitializeParams(types.ClientCapabilities(**capabilities), root_uri=folder.as_uri())
            )
        )
        self.client.initialized(types.InitializedParams())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(asyncio.wait_for(work, MINUTES))

    def _publish(self) -> Any:
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.published[params.uri].append(params)
            self._news.set()

        return publish

    def open(self, name: str, text: str) -> Path:
        path = self.folder / name
        self.texts[path], self._versions[path] = text, 1
        item = types.TextDocumentItem(path.as_uri(), "omnigraph", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return path

    def change(self, path: Path, text: str) -> int:
        self.texts[path], self._versions[path] = text, self._versions[path] + 1
        identifier = types.VersionedTextDocumentIdentifier(self._versions[path], path.as_uri())
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [whole]))
        return self._versions[path]

    def close(self, path: Path) -> None:
        identifier = types.TextDocumentIdentifier(path.as_uri())
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(identifier))

    def diagnostics(self, path: Path, codes: list[str]) -> list[types.Diagnostic]:
        """The findings about a document, once they have these codes and are about its last text."""

        async def wait() -> list[types.Diagnostic]:
            while True:
                self._news.clear()
                last = self.published[path.as_uri()][-1:]
                for each in last:
                    if each.version == self._versions[path] and [d.code for d in each.diagnostics] == codes:
                        return list(each.diagnostics)
                await self._news.wait()

        return self.run(wait())

    def at(self, path: Path, needle: str, inside: int = 0) -> dict[str, Any]:
        text = self.texts[path]
        place = Lines(text).position(text.index(needle) + inside, self.encoding)
        return {"text_document": types.TextDocumentIdentifier(path.as_uri()), "position": types.Position(*place)}

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.started.capabilities.position_encoding or "utf-16")

    def text_in(self, path: Path, place: types.Range) -> str:
        lines = Lines(self.texts[path])
        start, end = (Position(each.line, each.character) for each in (place.start, place.end))
        return self.texts[path][lines.offset(start, self.encoding) : lines.offset(end, self.encoding)]

    def end(self) -> int | None:
        async def stop() -> int | None:
            await self.client.shutdown_async(None)
            process = self.client._server
            assert process is not None
            self.client.exit(None)
            return await process.wait()

        code = self.run(stop())
        self.run(self.client.stop())
        self._loop.close()
        return code


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    folder = tmp_path_factory.mktemp("editor")
    started = Editor(folder / "home", folder)
    yield started
    assert started.end() == 0


@pytest.fixture
def files(editor: Editor, request: pytest.FixtureRequest) -> Iterator[tuple[Path, Path]]:
    """A schema and a query file in a folder of their own."""
    folder = request.node.name.partition("[")[0]
    schema, queries = editor.open(f"{folder}/s.pg", SCHEMA), editor.open(f"{folder}/q.gq", READ)
    yield schema, queries
    for path in (schema, queries):
        editor.close(path)


def test_the_examples_are_sound(editor: Editor) -> None:
    for path in (
        EXAMPLES / "followers/schema.pg",
        EXAMPLES / "followers/queries.gq",
        EXAMPLES / "cluster/cluster.yaml",
    ):
        editor.diagnostics(editor.open(str(path), path.read_text()), [])
        editor.close(path)


def test_a_broken_file_of_every_kind_leaves_the_server_alive(editor: Editor) -> None:
    broken = {
        "broken/s.pg": ("// 😀\nnode A { x: Strng }", ["parse error"], "Strng"),
        "broken/q.gq": ("// 😀\nquery q( {", ["no-schema", "Q001"], "{"),
        "broken/a.pipeline.yaml": ("version: 1 # 😀\nsources: {}\nnodes: {A: {from: b, select: {}}}", ["P011"], "b"),
        "broken/a.policy.yaml": ("version: 1\ngroups: {é: []}", ["policy_invalid"], "é"),
        "broken/cluster.yaml": ("version: 1\ngraphs: [", ["invalid_cluster_yaml"], "["),
    }
    for name, (text, codes, shown) in broken.items():
        path = editor.open(name, text)
        *_, last = editor.diagnostics(path, codes)
        assert last.severity is types.DiagnosticSeverity.Error
        assert editor.text_in(path, last.range) == shown
        editor.close(path)


def test_a_change_of_the_schema_checks_the_queries_again(editor: Editor, files: tuple[Path, Path]) -> None:
    schema, queries = files
    editor.diagnostics(queries, [])
    editor.change(schema, SCHEMA.replace("node Person", "node Reader").replace("Person", "Reader"))
    (problem,) = editor.diagnostics(queries, ["T1"])
    assert editor.text_in(queries, problem.range) == "Person"
    editor.change(schema, SCHEMA)
    editor.diagnostics(queries, [])


def test_of_edits_in_a_burst_the_last_one_counts(editor: Editor, files: tuple[Path, Path]) -> None:
    _, queries = files
    editor.diagnostics(queries, [])
    for i in range(30):
        editor.change(queries, READ.replace("Person", "Perso" + "n" * (i % 3)))
    last = editor.change(queries, READ.replace("$p.name", "$p.nam"))
    (problem,) = editor.diagnostics(queries, ["T6"])
    assert editor.text_in(queries, problem.range) == "nam"
    # Every publication is about the version that it names, and none comes after a newer one.
    versions = [each.version for each in editor.published[queries.as_uri()]]
    assert versions == sorted(versions, key=lambda version: version or 0)
    assert versions[-1] == last


def test_a_request_is_about_the_text_before_it(editor: Editor, files: tuple[Path, Path]) -> None:
    _, queries = files
    editor.change(queries, "// 😀\nquery q() { match { $p: Person $p. } }")
    found = editor.run(
        editor.client.text_document_completion_async(types.CompletionParams(**editor.at(queries, "$p. ", 3)))
    )
    assert isinstance(found, types.CompletionList)
    assert [item.label for item in sorted(found.items, key=lambda item: item.sort_text or "")][:3] == [
        "age",
        "mood",
        "name",
    ]
    edit = found.items[0].text_edit
    assert isinstance(edit, types.TextEdit)
    assert edit.range.start == edit.range.end


def test_hover_definition_and_outline(editor: Editor, files: tuple[Path, Path]) -> None:
    schema, queries = files
    shown = editor.run(editor.client.text_document_hover_async(types.HoverParams(**editor.at(queries, "$p.name", 1))))
    assert shown is not None
    assert isinstance(shown.contents, types.MarkupContent)
    assert "$p: node Person" in shown.contents.value
    where = types.DefinitionParams(**editor.at(queries, "$p.name", 4))
    (place,) = editor.run(editor.client.text_document_definition_async(where)) or []
    assert isinstance(place, types.Location)
    assert place.uri == schema.as_uri()
    assert editor.text_in(schema, place.range) == "name"
    outline = types.DocumentSymbolParams(types.TextDocumentIdentifier(schema.as_uri()))
    symbols = editor.run(editor.client.text_document_document_symbol_async(outline)) or []
    assert [each.name for each in symbols] == ["Titled", "Person", "Book", "Knows", "Wrote"]


def applied(editor: Editor, edit: types.WorkspaceEdit) -> dict[Path, str]:
    """The texts after an edit, as an editor makes it."""
    texts = {}
    for path, text in editor.texts.items():
        lines = Lines(text)
        for change in sorted(
            (edit.changes or {}).get(path.as_uri(), []), key=lambda e: (e.range.start.line, e.range.start.character)
        )[::-1]:
            start, end = (
                lines.offset(Position(each.line, each.character), editor.encoding)
                for each in (change.range.start, change.range.end)
            )
            text = text[:start] + change.new_text + text[end:]
        if text != editor.texts[path]:
            texts[path] = text
    return texts


def test_a_rename_that_is_applied_compiles(editor: Editor, files: tuple[Path, Path]) -> None:
    schema, queries = files
    asked = types.RenameParams(new_name="Reader", **editor.at(queries, "Person", 2))
    edit = editor.run(editor.client.text_document_rename_async(asked))
    assert edit is not None
    texts = applied(editor, edit)
    assert set(texts) == {schema, queries}
    for path, text in texts.items():
        editor.change(path, text)
    assert "$p: Reader" in editor.texts[queries]
    editor.diagnostics(schema, [])
    editor.diagnostics(queries, [])


def test_a_rename_that_is_refused_says_why(editor: Editor, files: tuple[Path, Path]) -> None:
    asked = types.RenameParams(new_name="no name", **editor.at(files[1], "Person", 2))
    with pytest.raises(JsonRpcException, match="can't be the name of a node"):
        editor.run(editor.client.text_document_rename_async(asked))


def test_fixes_and_formatting(editor: Editor, files: tuple[Path, Path]) -> None:
    _, queries = files
    editor.change(queries, READ.replace("Person", "Persn"))
    (problem,) = editor.diagnostics(queries, ["T1"])
    document = types.TextDocumentIdentifier(queries.as_uri())
    asked = types.CodeActionParams(document, problem.range, types.CodeActionContext([problem]))
    actions = editor.run(editor.client.text_document_code_action_async(asked)) or []
    assert [action.title for action in actions] == ["Replace by 'Person'", "Format the file"]
    layout = types.DocumentFormattingParams(document, types.FormattingOptions(4, True))
    assert len(editor.run(editor.client.text_document_formatting_async(layout)) or []) == 1
    editor.change(queries, "query {")
    assert not editor.run(editor.client.text_document_formatting_async(layout))


def test_the_encoding_of_positions_is_that_of_the_client(tmp_path: Path) -> None:
    general = types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf8])
    other = Editor(tmp_path / "home", tmp_path, general=general)
    assert other.encoding is Encoding.UTF8
    path = other.open("s.pg", 'node A @description("😀é") { x: Strng }')
    (problem,) = other.diagnostics(path, ["parse error"])
    assert other.text_in(path, problem.range) == "Strng"
    assert other.end() == 0


def test_without_its_extra_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ModuleNotFoundError('No module named pygls', name='pygls')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: the language server needs pygls; pip install 'omnigraph[editor]'\n"


def test_only_the_server_knows_pygls() -> None:
    script = """if True:
        import sys
        import omnigraph.cli.commands.source_files, omnigraph.cli.main
        print("omnigraph.editor" in sys.modules)
        import omnigraph.editor.completion, omnigraph.editor.hover, omnigraph.editor.navigation
        print("pygls" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
