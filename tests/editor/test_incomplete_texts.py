"""No text that is being written makes a feature fail: every kind of file, cut and damaged at many places."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest

from omnigraph.editor.completion import complete_queries, complete_schema
from omnigraph.editor.diagnostics import diagnose, fixes, format_document
from omnigraph.editor.documents import Document, Kind
from omnigraph.editor.hover import hover
from omnigraph.editor.navigation import RenameError, definition, outline, references, renamable, rename
from omnigraph.editor.projects import Workspace
from omnigraph.editor.yaml_files import complete_yaml
from tests.editor.test_navigation import PIPELINE, POLICY, QUERIES
from tests.editor.workspaces import SCHEMA, TOP

CLUSTER = (
    "version: 1\ngraphs:\n  kb: {schema: s.pg, queries: {add: {file: q.gq}}}\npolicies: {p: {file: a.policy.yaml}}\n"
)
FILES = {
    "s.pg": SCHEMA,
    "q.gq": QUERIES,
    "p.pipeline.yaml": PIPELINE,
    "a.policy.yaml": POLICY,
    "cluster.yaml": CLUSTER,
    "a.tests.yaml": "version: 1\ncases: [{id: a, actor: ana, action: read, expect: allow}]\n",
}
STRAY = ["{", "}", "(", '"', "$", "@", ":", "\n", "- ", "😀", "/*", "&a *a"]


def damaged(text: str, seed: int) -> Iterator[tuple[str, int]]:
    """The text cut, and with something in it, at places of every part; and where the cursor is."""
    chance = random.Random(seed)
    for start in range(0, len(text) + 1, max(1, len(text) // 25)):
        place = min(len(text), start + chance.randrange(12))
        yield text[:place], place
        yield text[:place] + chance.choice(STRAY) + text[place + chance.randrange(3) :], place + 1


def use_everything(workspace: Workspace, document: Document, offset: int) -> None:
    problems = diagnose(workspace, document)
    for problem in problems:
        assert 0 <= problem.at.start <= problem.at.end <= len(document.text)
    complete = {Kind.SCHEMA: complete_schema, Kind.QUERIES: complete_queries}.get(
        document.kind or Kind.CLUSTER, complete_yaml
    )
    assert complete(workspace, document, offset).start <= offset
    hover(workspace, document, offset)
    definition(workspace, document, offset)
    references(workspace, document, offset, declarations=True)
    outline(workspace, document)
    format_document(document)
    fixes(workspace, document, problems, 0, len(document.text))
    if renamable(workspace, document, offset) is not None:
        with contextlib.suppress(RenameError):
            rename(workspace, document, offset, "other")


@pytest.mark.parametrize("name", FILES)
def test_every_feature_survives_a_text_that_is_being_written(name: str) -> None:
    for seed, (text, offset) in enumerate(damaged(FILES[name], len(name))):
        documents = {TOP / other: Document(TOP / other, each, 1) for other, each in FILES.items()}
        broken = documents[TOP / name] = Document(TOP / name, text, seed)
        use_everything(Workspace((TOP,), documents), broken, min(offset, len(text)))
