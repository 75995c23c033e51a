"""A small library to be explored, made once; every test that writes gets a copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph

SCHEMA = """
node Author @description("Who wrote something") {
    slug: String @key
    name: String
    born: Date?
}
node Book @instruction("Ask for the title, not the isbn") {
    isbn: String @key
    title: String @index
    blurb: String? @index
    vec: Vector(4)? @embed("blurb")
    cover: Blob?
}
node Remark { text: String  stars: I32? }
edge WroteBy: Book -> Author { year: I32? }
edge About: Remark -> Book
edge Follows: Author -> Author
"""
QUERIES = """
query books_of($author: String, $year: I32?) @description("Books of an author") @instruction("Give the slug") {
    match { $a: Author { slug: $author }  $b $w:wroteBy $a }
    return { $b.title as title, $w.year as year }
    order { title }
}
query add_author($slug: String, $branch: String) { insert Author { slug: $slug, name: $branch } }
query search($isbn: String) { match { $b: Book { isbn: $isbn } } return { $b.title as title } }
"""


ALPHA = [-0.5420488119125366, -0.47179943323135376, 0.16090507805347443, 0.6765337586402893]
"""What the mock of embedding providers makes of the text `alpha`."""


def record(type_: str, **data: object) -> str:
    return json.dumps({"type": type_, "data": data})


def edge(type_: str, source: str, target: str, **data: object) -> str:
    return json.dumps({"edge": type_, "from": source, "to": target, "data": data})


RECORDS = [
    record("Author", slug="lem", name="Stanisław Lem", born="1921-09-12"),
    record("Author", slug="leguin", name="Ursula K. Le Guin", born="1929-10-21"),
    record("Book", isbn="1", title="Solaris", blurb="An ocean that thinks", vec=[1, 0, 0, 0], cover="base64:AAEC"),
    record("Book", isbn="2", title="The Cyberiad", blurb="Robots build robots", vec=ALPHA),
    record("Book", isbn="3", title="The Dispossessed", blurb="Two worlds and a wall", vec=[0, 0, 1, 0]),
    record("Remark", id="r1", text="again", stars=5),
    record("Remark", id="r2", text="again", stars=5),
    edge("WroteBy", "1", "lem", year=1961),
    edge("WroteBy", "2", "lem", year=1965),
    edge("WroteBy", "3", "leguin"),
    edge("About", "r1", "1"),
    edge("About", "r2", "2"),
    edge("Follows", "lem", "leguin"),
]


@pytest.fixture(scope="session")
def made_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "library.omni"
    with omnigraph.init(str(path), SCHEMA) as graph:
        graph.load("\n".join(RECORDS), mode="merge", actor="librarian")
    return path


@pytest.fixture
def library_path(made_library: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_library, tmp_path / "library.omni"))


@pytest.fixture
def library(library_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[omnigraph.Graph]:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    with omnigraph.open(str(library_path)) as graph:
        yield graph
