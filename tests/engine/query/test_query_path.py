"""The path of a warm query: how many modules of ours a reader has to open to follow it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

import omnigraph

SOURCE = str(Path(omnigraph.__file__).parent)
MOST_MODULES = 57
SCHEMA = "node Person { name: String @key\n age: I64? }\nedge Knows: Person -> Person\n"
FRIENDS = """query friends($name: String) {
    match { $p: Person { name: $name } $p knows $friend }
    return { $friend.name, $friend.age }
}"""


def test_a_warm_query_enters_few_modules(tmp_path: Path) -> None:
    people = [{"type": "Person", "data": {"name": name, "age": age}} for age, name in enumerate(("ada", "bob"))]
    records = [*people, {"edge": "Knows", "from": "ada", "to": "bob"}]
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            entered.add(frame.f_code.co_filename.removeprefix(SOURCE + "/"))

    with omnigraph.init(str(tmp_path / "graph"), SCHEMA) as graph:
        graph.load("\n".join(map(json.dumps, records)), mode="merge")
        expected = list(graph.query(FRIENDS, "friends", {"name": "ada"}))
        sys.setprofile(note)
        try:
            rows = list(graph.query(FRIENDS, "friends", {"name": "ada"}))
        finally:
            sys.setprofile(None)
    assert rows == expected == [{"friend.name": "bob", "friend.age": 1}]
    assert len(entered) <= MOST_MODULES, sorted(entered)
