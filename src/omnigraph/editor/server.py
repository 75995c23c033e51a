"""`omnigraph lsp`: the protocol of editors over stdin and stdout.

The only module that knows pygls. It keeps the open documents, maps positions and results to the types of the protocol,
and calls the functions of this package in a thread, each with the workspace at the moment of the request. Findings are
published for the text that they were made of, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from omnigraph import __version__
from omnigraph.editor.completion import Completion, Item, ItemKind, complete_queries, complete_schema
from omnigraph.editor.diagnostics import Fix, diagnose, fixes, format_document
from omnigraph.editor.documents import Document, Edit, Encoding, Kind, Location, Position, Problem
from omnigraph.editor.hover import hover
from omnigraph.editor.navigation import Outline, RenameError, definition, outline, references, renamable, rename
from omnigraph.editor.projects import Workspace, normal_path
from omnigraph.editor.schema_symbols import SchemaIndex, SymbolKind
from omnigraph.editor.yaml_files import complete_yaml
from omnigraph.language.source import TextSpan

Result = TypeVar("Result")

SECTION: Final = "omnigraph"
_SOURCE: Final = "omnigraph"
_QUIET_SECONDS: Final = 0.2
"""A text is checked when nobody has changed it for so long."""
_DEPENDENT: Final = frozenset({Kind.QUERIES, Kind.PIPELINE, Kind.POLICY})
_REQUEST_FAILED: Final = -32803
_SEVERITIES: Final = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_ITEM_KINDS: Final = {
    ItemKind.TYPE: types.CompletionItemKind.Class,
    ItemKind.INTERFACE: types.CompletionItemKind.Interface,
    ItemKind.EDGE: types.CompletionItemKind.Reference,
    ItemKind.PROPERTY: types.CompletionItemKind.Field,
    ItemKind.VARIABLE: types.CompletionItemKind.Variable,
    ItemKind.FUNCTION: types.CompletionItemKind.Function,
    ItemKind.KEYWORD: types.CompletionItemKind.Keyword,
    ItemKind.ANNOTATION: types.CompletionItemKind.Property,
    ItemKind.SCALAR: types.CompletionItemKind.TypeParameter,
    ItemKind.VALUE: types.CompletionItemKind.Value,
    ItemKind.FILE: types.CompletionItemKind.File,
}
_SYMBOL_KINDS: Final = {
    SymbolKind.NODE: types.SymbolKind.Class,
    SymbolKind.EDGE: types.SymbolKind.Event,
    SymbolKind.INTERFACE: types.SymbolKind.Interface,
    SymbolKind.PROPERTY: types.SymbolKind.Field,
    SymbolKind.PARAMETER: types.SymbolKind.Variable,
    SymbolKind.QUERY: types.SymbolKind.Function,
}


class _AtCursor(Protocol):
    """What the requests about a position have in common."""

    @property
    def text_document(self) -> types.TextDocumentIdentifier: ...

    @property
    def position(self) -> types.Position: ...


class EditorServer(LanguageServer):
    """What one editor has open, and the checks that are waiting or running."""

    def __init__(self) -> None:
        # Texts come in full: a client and pygls must not disagree about what ends a line.
        super().__init__(
            "omnigraph", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full, max_workers=4
        )
        self.clusters: tuple[Path, ...] = ()
        self.schema_setting: str | None = None
        self._documents: dict[Path, Document] = {}
        self._uris: dict[Path, str] = {}
        self._valid_schemas: dict[Path, SchemaIndex] = {}
        self._checks: dict[Path, asyncio.Task[None]] = {}

    # ---- documents --------------------------------------------------------------------------------------

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.workspace.position_encoding or Encoding.UTF16)

    def moment(self) -> Workspace:
        """The workspace as it is now."""
        folders = [folder.uri for folder in self.workspace.folders.values()]
        if not folders and self.workspace.root_uri is not None:
            folders = [self.workspace.root_uri]
        return Workspace(
            tuple(path_of(uri) for uri in folders),
            dict(self._documents),
            self.schema_setting,
            self.clusters,
            self._valid_schemas,
        )

    def document(self, uri: str) -> Document | None:
        return self._documents.get(path_of(uri))

    def uri(self, path: Path) -> str:
        """The URI of a file, as the editor spells it if it has the file open."""
        return self._uris.get(path) or from_fs_path(str(path)) or path.as_uri()

    def put(self, uri: str, text: str, version: int | None, language: str = "") -> Document:
        path = path_of(uri)
        before = self._documents.get(path)
        if not language and before is not None:
            language = before.language
        self._documents[path] = document = Document(path, text, version, language)
        self._uris[path] = uri
        return document

    def remove(self, uri: str) -> None:
        path = path_of(uri)
        self._documents.pop(path, None)
        self._uris.pop(path, None)
        if (task := self._checks.pop(path, None)) is not None:
            task.cancel()
        self._publish(uri, None, ())

    # ---- checks -----------------------------------------------------------------------------------------

    def check(self, document: Document, *, soon: bool) -> None:
        """Check a document, and those that depend on it; at once, or when its text stays as it is for a while."""
        delay = 0.0 if soon else _QUIET_SECONDS
        self._schedule(document.path, delay)
        if document.kind in (Kind.SCHEMA, Kind.CLUSTER):
            self.check_open({other.path for other in self._documents.values() if other.kind in _DEPENDENT}, delay)

    def check_open(self, paths: Iterable[Path] | None = None, delay: float = 0.0) -> None:
        """Check these open documents, or all of them."""
        for path in list(self._documents) if paths is None else paths:
            self._schedule(path, delay)

    def _schedule(self, path: Path, delay: float) -> None:
        if (task := self._checks.get(path)) is not None:
            task.cancel()  # what it would publish is about an older moment
        self._checks[path] = asyncio.ensure_future(self._check(path, delay))

    async def _check(self, path: Path, delay: float) -> None:
        await asyncio.sleep(delay)
        document = self._documents.get(path)
        if document is None:
            return
        try:
            problems = await asyncio.to_thread(diagnose, self.moment(), document)
        except Exception as error:  # a check must never end the checks of the texts to come
            logging.getLogger(__name__).exception("checking %s failed", path)
            message = f"checking {path.name} failed: {error}"
            self.window_log_message(types.LogMessageParams(types.MessageType.Error, message))
            return
        if self._documents.get(path) is document:
            self._publish(self.uri(path), document, problems)

    def _publish(self, uri: str, document: Document | None, problems: Sequence[Problem]) -> None:
        shown = [diagnostic_of(document, problem, self.encoding) for problem in problems] if document else []
        version = None if document is None else document.version
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown, version))

    # ---- requests ---------------------------------------------------------------------------------------

    async def at_cursor(
        self, params: _AtCursor, function: Callable[[Workspace, Document, int], Result]
    ) -> tuple[Workspace, Document, Result] | None:
        """What a function says about a position, with the moment that it is about, whatever is changed meanwhile. None
        for a document of something else."""
        document = self.document(params.text_document.uri)
        if document is None or document.kind is None:
            return None
        moment = self.moment()
        place = Position(params.position.line, params.position.character)
        offset = document.lines.offset(place, self.encoding)
        return moment, document, await asyncio.to_thread(function, moment, document, offset)

    def location(self, workspace: Workspace, location: Location) -> types.Location:
        document = workspace.document(location.path)
        if document is None:
            # A file that is not a text, such as data of a pipeline, has a beginning.
            start = types.Position(0, 0)
            return types.Location(self.uri(location.path), types.Range(start, start))
        return types.Location(self.uri(location.path), range_of(document, location.at, self.encoding))

    def workspace_edit(self, workspace: Workspace, edits: Mapping[Path, Sequence[Edit]]) -> types.WorkspaceEdit:
        """Edits with the versions that they were made for, if the editor understands them."""
        capabilities = self.client_capabilities.workspace
        edit_of = capabilities.workspace_edit if capabilities is not None else None
        texts: list[tuple[Document, list[types.TextEdit]]] = []
        for path, each in edits.items():
            document = workspace.document(path)
            assert document is not None, "its edits were just made from its text"
            texts.append((document, [text_edit(document, edit, self.encoding) for edit in each]))
        if edit_of is None or not edit_of.document_changes:
            return types.WorkspaceEdit(changes={self.uri(document.path): each for document, each in texts})
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(
                    types.OptionalVersionedTextDocumentIdentifier(self.uri(document.path), document.version), each
                )
                for document, each in texts
            ]
        )


# ---- types of the protocol ------------------------------------------------------------------------------


def path_of(uri: str) -> Path:
    """The path of a document. One that is not a file yet gets a path where there are no files."""
    if uri.startswith("file:"):
        path = to_fs_path(uri)
        if path is not None:
            return normal_path(Path(path))
    return Path("/untitled") / PurePosixPath(uri).name


def range_of(document: Document, at: TextSpan, encoding: Encoding) -> types.Range:
    start, end = (document.lines.position(offset, encoding) for offset in (at.start, at.end))
    return types.Range(types.Position(*start), types.Position(*end))


def text_edit(document: Document, edit: Edit, encoding: Encoding) -> types.TextEdit:
    return types.TextEdit(range_of(document, edit.at, encoding), edit.text)


def diagnostic_of(document: Document, problem: Problem, encoding: Encoding) -> types.Diagnostic:
    return types.Diagnostic(
        range_of(document, problem.at, encoding),
        problem.text,
        _SEVERITIES[problem.severity],
        code=problem.code,
        source=_SOURCE,
    )


def _completion_item(document: Document, start: int, end: int, item: Item, encoding: Encoding) -> types.CompletionItem:
    text = item.label if item.insert is None else item.insert
    first_line, *others = item.detail.split("\n")
    more = "\n".join(f"`{line}`" for line in others)
    documentation = "\n\n".join(part for part in (item.text, more) if part)
    return types.CompletionItem(
        item.label,
        kind=_ITEM_KINDS[item.kind],
        detail=first_line or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, documentation) if documentation else None,
        sort_text=f"{item.rank}{item.label}",
        filter_text=item.label,
        text_edit=text_edit(document, Edit(TextSpan(start, end), text), encoding),
    )


def _document_symbol(document: Document, each: Outline, encoding: Encoding) -> types.DocumentSymbol:
    return types.DocumentSymbol(
        each.name,
        _SYMBOL_KINDS[each.kind],
        range_of(document, each.at, encoding),
        range_of(document, each.name_at, encoding),
        detail=each.detail or None,
        children=[_document_symbol(document, child, encoding) for child in each.children],
    )


def _code_action(ls: EditorServer, workspace: Workspace, document: Document, fix: Fix) -> types.CodeAction:
    diagnostics = None if fix.problem is None else [diagnostic_of(document, fix.problem, ls.encoding)]
    return types.CodeAction(
        fix.title,
        kind=types.CodeActionKind.QuickFix if fix.problem is not None else types.CodeActionKind.Source,
        diagnostics=diagnostics,
        is_preferred=fix.is_preferred or None,
        edit=ls.workspace_edit(workspace, {document.path: fix.edits}),
    )


# ---- features -------------------------------------------------------------------------------------------

server: Final = EditorServer()


def _schema_of_settings(settings: Any) -> str | None:
    """`schema` of the settings of an editor, which may have the section around it."""
    if isinstance(settings, Mapping):
        section = settings.get(SECTION, settings)
        schema = section.get("schema") if isinstance(section, Mapping) else None
        return schema if isinstance(schema, str) and schema.strip() else None
    return None


@server.feature(types.INITIALIZE)
def _initialize(ls: EditorServer, params: types.InitializeParams) -> None:
    ls.schema_setting = _schema_of_settings(params.initialization_options)


@server.feature(types.INITIALIZED)
async def _begin_session(ls: EditorServer, params: types.InitializedParams) -> None:
    capabilities = ls.client_capabilities.workspace
    watching = capabilities.did_change_watched_files if capabilities is not None else None
    if watching is not None and watching.dynamic_registration:
        options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher("**/*.{pg,gq,yaml,yml}")])
        registration = types.Registration(SECTION, types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        await ls.client_register_capability_async(types.RegistrationParams([registration]))
    await _read_settings(ls)


async def _read_settings(ls: EditorServer) -> None:
    """Ask the editor for its settings, if it can be asked. Without one there, that of the start stays."""
    capabilities = ls.client_capabilities.workspace
    if capabilities is not None and capabilities.configuration:
        items = [types.ConfigurationItem(section=SECTION)]
        answers = await ls.workspace_configuration_async(types.ConfigurationParams(items))
        if (schema := _schema_of_settings(answers[0] if answers else None)) is not None:
            ls.schema_setting = schema
            ls.check_open()


@server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
async def _did_change_configuration(ls: EditorServer, params: types.DidChangeConfigurationParams) -> None:
    if params.settings is None:
        await _read_settings(ls)
        return
    ls.schema_setting = _schema_of_settings(params.settings)
    ls.check_open()


@server.feature(types.TEXT_DOCUMENT_DID_OPEN)
def _did_open(ls: EditorServer, params: types.DidOpenTextDocumentParams) -> None:
    opened = params.text_document
    ls.check(ls.put(opened.uri, opened.text, opened.version, opened.language_id), soon=True)


@server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
def _did_change(ls: EditorServer, params: types.DidChangeTextDocumentParams) -> None:
    changed = params.text_document
    ls.check(ls.put(changed.uri, ls.workspace.get_text_document(changed.uri).source, changed.version), soon=False)


@server.feature(types.TEXT_DOCUMENT_DID_SAVE)
def _did_save(ls: EditorServer, params: types.DidSaveTextDocumentParams) -> None:
    ls.check_open()


@server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
def _did_close(ls: EditorServer, params: types.DidCloseTextDocumentParams) -> None:
    ls.remove(params.text_document.uri)
    ls.check_open()


@server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def _did_change_watched_files(ls: EditorServer, params: types.DidChangeWatchedFilesParams) -> None:
    ls.check_open()


def _complete(workspace: Workspace, document: Document, offset: int) -> tuple[Completion, int]:
    """What may stand at the cursor, and where the cursor is."""
    if document.kind is Kind.SCHEMA:
        return complete_schema(workspace, document, offset), offset
    complete = complete_queries if document.kind is Kind.QUERIES else complete_yaml
    return complete(workspace, document, offset), offset


@server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=list("$.:@{(|<")))
async def _completion(ls: EditorServer, params: types.CompletionParams) -> types.CompletionList:
    items: list[types.CompletionItem] = []
    if (result := await ls.at_cursor(params, _complete)) is not None:
        _, document, (completion, end) = result
        items = [_completion_item(document, completion.start, end, item, ls.encoding) for item in completion.items]
    return types.CompletionList(is_incomplete=False, items=items)


@server.feature(types.TEXT_DOCUMENT_HOVER)
async def _hover(ls: EditorServer, params: types.HoverParams) -> types.Hover | None:
    result = await ls.at_cursor(params, hover)
    if result is None or result[2] is None:
        return None
    _, document, shown = result
    assert shown is not None
    content = types.MarkupContent(types.MarkupKind.Markdown, shown.text)
    return types.Hover(content, range_of(document, shown.at, ls.encoding))


@server.feature(types.TEXT_DOCUMENT_DEFINITION)
async def _definition(ls: EditorServer, params: types.DefinitionParams) -> list[types.Location]:
    result = await ls.at_cursor(params, definition)
    return [] if result is None else [ls.location(result[0], each) for each in result[2]]


@server.feature(types.TEXT_DOCUMENT_REFERENCES)
async def _references(ls: EditorServer, params: types.ReferenceParams) -> list[types.Location]:
    find = partial(references, declarations=params.context.include_declaration)
    result = await ls.at_cursor(params, find)
    return [] if result is None else [ls.location(result[0], each) for each in result[2]]


@server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
async def _prepare_rename(ls: EditorServer, params: types.PrepareRenameParams) -> types.Range | None:
    result = await ls.at_cursor(params, renamable)
    return None if result is None or result[2] is None else range_of(result[1], result[2], ls.encoding)


@server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
async def _rename(ls: EditorServer, params: types.RenameParams) -> types.WorkspaceEdit | None:
    try:
        result = await ls.at_cursor(params, partial(rename, name=params.new_name))
    except RenameError as error:
        raise JsonRpcException(str(error), _REQUEST_FAILED) from error
    return None if result is None else ls.workspace_edit(result[0], result[2])


@server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
async def _document_symbols(ls: EditorServer, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    document = ls.document(params.text_document.uri)
    if document is None:
        return []
    outlines = await asyncio.to_thread(outline, ls.moment(), document)
    return [_document_symbol(document, each, ls.encoding) for each in outlines]


@server.feature(types.TEXT_DOCUMENT_FORMATTING)
async def _formatting(ls: EditorServer, params: types.DocumentFormattingParams) -> list[types.TextEdit]:
    document = ls.document(params.text_document.uri)
    if document is None:
        return []
    edits = await asyncio.to_thread(format_document, document)
    return [text_edit(document, edit, ls.encoding) for edit in edits]


@server.feature(
    types.TEXT_DOCUMENT_CODE_ACTION,
    types.CodeActionOptions([types.CodeActionKind.QuickFix, types.CodeActionKind.Source]),
)
async def _code_actions(ls: EditorServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    document = ls.document(params.text_document.uri)
    if document is None:
        return []
    workspace = ls.moment()
    first, last = params.range.start, params.range.end
    start = document.lines.offset(Position(first.line, first.character), ls.encoding)
    end = document.lines.offset(Position(last.line, last.character), ls.encoding)

    def find() -> tuple[Fix, ...]:
        return fixes(workspace, document, diagnose(workspace, document), start, end)

    return [_code_action(ls, workspace, document, fix) for fix in await asyncio.to_thread(find)]


def serve(clusters: Iterable[Path]) -> None:
    """Serve one editor until it ends the session. `clusters` are the configuration directories of the operator."""
    logging.getLogger("pygls").setLevel(logging.ERROR)  # stderr is for what a person should read
    server.clusters = tuple(map(normal_path, clusters))
    # pygls closes the stream that it writes to. What anything else prints must not get into the protocol.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream, redirect_stdout(sys.stderr):
        server.start_io(stdout=stream)
