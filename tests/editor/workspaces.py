"""Workspaces of tests: open documents with a cursor, written as `|` in a text."""

from __future__ import annotations

from pathlib import Path

from omnigraph.editor.documents import Document, apply_edits
from omnigraph.editor.projects import Workspace
from omnigraph.language.source import TextSpan

TOP = Path("/workspace")
SCHEMA = """\
interface Titled {
    title: String @index
}

// 😀 a reader
node Person @description("A reader 😀") {
    name: String @key @description("The full name")
    age: I32?
    mood: enum(glad, sad)
    @range(age, 0..150)
}

node Book implements Titled {
    isbn: String @key
    vec: Vector(4)? @embed("title")
}

edge Knows: Person -> Person {
    since: Date?
}

edge Wrote: Person -> Book
"""


def workspace(**texts: str) -> Workspace:
    """An open document for each name, in which `__` is a dot and `___` a slash: `s__pg`."""
    documents = {}
    for name, text in texts.items():
        path = TOP / name.replace("___", "/").replace("__", ".")
        documents[path] = Document(path, text, 1)
    return Workspace((TOP,), documents)


def document(workspace: Workspace, name: str) -> Document:
    found = workspace.document(TOP / name)
    assert found is not None
    return found


def cut(text: str) -> tuple[str, int]:
    """A text without the `|` of its cursor, and where that was."""
    offset = text.index("|")
    return text[:offset] + text[offset + 1 :], offset


def shown(document: Document, at: TextSpan) -> str:
    return document.text[at.start : at.end]


def applied(workspace: Workspace, edits: object) -> dict[str, str]:
    """The texts after edits, by the names of the files that changed."""
    assert isinstance(edits, dict)
    return {str(path.relative_to(TOP)): apply_edits(workspace.open[path].text, each) for path, each in edits.items()}
