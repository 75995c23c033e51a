"""Columns in memory beside another process that writes: every commit is seen at once, and never half of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from omnigraph import Graph
from omnigraph.storage.tables.memory.columns import COLUMNS
from tests.engine.writer import OtherProcess

SCHEMA = "node Part { code: String @key  kind: String @index  a: I64  b: I64 }"
QUERIES = """
query one($code: String) { match { $p: Part { code: $code } } return { $p.a as a, $p.b as b, $p.kind as kind } }
query kind($kind: String) { match { $p: Part { kind: $kind } } return { $p.code as code } order { code } }
query above($a: I64) { match { $p: Part  $p.a > $a } return { $p.code as code } order { $p.a desc, code } limit 5 }
query kinds() { match { $p: Part } return { $p.kind as kind, count($p) as n, sum($p.b) as b } order { kind } }
query change($code: String, $a: I64, $kind: String) { update Part set { a: $a, b: $a, kind: $kind } where code = $code }
query remove($code: String) { delete Part where code = $code }
query add($code: String, $a: I64) { insert Part { code: $code, kind: "new", a: $a, b: $a } }
"""
PARTS = 3_000


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()


def expected_answers(parts: dict[str, tuple[int, str]], code: str) -> dict[str, object]:
    kinds = sorted({kind for _, kind in parts.values()})
    one = parts.get(code)
    above = sorted((code for code, (a, _) in parts.items() if a > PARTS - 9), key=lambda code: (-parts[code][0], code))
    members = {kind: [a for a, own in parts.values() if own == kind] for kind in kinds}
    return {
        "one": [] if one is None else [{"a": one[0], "b": one[0], "kind": one[1]}],
        "kind": [{"code": code} for code in sorted(parts) if parts[code][1] == "new"],
        "above": [{"code": code} for code in above[:5]],
        "kinds": [{"kind": kind, "n": len(all_a), "b": sum(all_a)} for kind, all_a in members.items()],
    }


@pytest.mark.parametrize("room", [0, 60_000, 1 << 30], ids=["none", "evicted", "enough"])
def test_every_commit_of_another_process_is_read(
    tmp_path: Path, other: OtherProcess, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(COLUMNS, "limit", room)
    random, uri = Random(room), str(tmp_path / "g")
    parts = {f"p{i:04}": (i, f"kind {i % 3}") for i in range(PARTS)}
    lines = [
        json.dumps({"type": "Part", "data": {"code": code, "kind": kind, "a": a, "b": a}})
        for code, (a, kind) in parts.items()
    ]
    with Graph.init(uri, SCHEMA) as graph:
        graph.load("\n".join(lines), mode="append")
        for round in range(8):
            code = random.choice(sorted(parts))
            match round % 4:
                case 0 | 1:
                    number = random.randrange(PARTS * 2)
                    parts[code] = number, "new"
                    change = "change", {"code": code, "a": number, "kind": "new"}
                case 2:
                    del parts[code]
                    change = "remove", {"code": code}
                case _:
                    code = f"q{round}"
                    parts[code] = PARTS + round, "new"
                    change = "add", {"code": code, "a": PARTS + round}
            receipt = other.do(uri, "mutate", QUERIES, *change)
            assert receipt.get("commit"), receipt
            params = {"one": {"code": code}, "kind": {"kind": "new"}, "above": {"a": PARTS - 9}, "kinds": {}}
            answers = {name: graph.query(QUERIES, name, values).rows() for name, values in params.items()}
            assert answers == expected_answers(parts, code)
