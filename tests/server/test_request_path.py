"""How much of the source one request runs through: a newcomer who follows a query reads these modules and no others."""

from __future__ import annotations

import threading
from pathlib import Path
from types import FrameType
from typing import Any

import omnigraph
from omnigraph.policy.gate import load_gate
from tests.server.running import running
from tests.server.sample import bearer

MOST_MODULES = 64
SOURCE = str(Path(omnigraph.__file__).parent)
RULES = """
version: 1
groups: {staff: [ana]}
protected_branches: [main]
rules:
  - id: staff-read
    allow: {actors: {group: staff}, actions: [read], branch_scope: any, rows: {Person: 'region = "eu"'}}
"""
PEOPLE = """
{"type":"Person","data":{"name":"Ada","region":"eu"}}
{"type":"Person","data":{"name":"Bob","region":"us"}}
"""
NAMES = {"query": "query names() { match { $p: Person } return { $p.name as name } }"}


def test_a_warm_query_under_policy_enters_few_modules(tmp_path: Path) -> None:
    entered: set[str] = set()
    counts = threading.Event()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if counts.is_set() and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            entered.add(frame.f_code.co_filename.removeprefix(SOURCE))

    with omnigraph.init(tmp_path / "g", "node Person { name: String @key  region: String }") as graph:
        graph.load(PEOPLE, mode="merge")
        gate = load_gate(RULES, "graph", "rules", "kb").bind_schema(graph.catalog)
        threading.setprofile(profile)  # for the threads of the server, which begin after this
        try:
            with running({"kb": graph}, tokens={"ana": "t"}, gates={"kb": gate}) as server:
                for is_warm in (False, False, True):
                    if is_warm:
                        counts.set()
                    answer = server.client.post("/graphs/kb/query", json=NAMES, headers=bearer("t"))
                    assert answer.json()["rows"] == [{"name": "Ada"}]
                counts.clear()
        finally:
            threading.setprofile(None)
    assert len(entered) > 30, "the threads of the server were watched"
    assert len(entered) <= MOST_MODULES, sorted(entered)
