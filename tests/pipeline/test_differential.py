"""The pipeline and the in-process loader are one system: same input, same graph, same refusals with the same words."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.engine.kernels import decode_collecting
from omnigraph.errors import OmniGraphError
from omnigraph.pipeline import run
from tests.engine.museum import SCHEMA, edge, node
from tests.engine.stored import everything
from tests.pipeline.library import quarantine, records, rejected_rows


def museum_lines(seed: int, count: int) -> list[str]:
    """Records of every kind of property, about one in eight wrong in some way. Every entity names its id."""
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        badge = f"k{chance.randrange(count // 3)}"
        bad = chance.random() < 0.12
        kind = chance.choice(["Curator", "Exhibit", "Memo", "Sample", "Guards", "Cites"])
        record: dict[str, Any]
        if kind == "Curator":
            data = {"badge": badge, "name": f"n{number}", "email": f"e{chance.randrange(count)}@x", "pay": number * 1.5}
            record = {"type": kind, "data": data | ({"pay": -1} if bad else {"level": "junior", "hired": "2031-05-04"})}
        elif kind == "Exhibit":
            data = {"accession": chance.randrange(9), "wing": chance.choice("ab"), "tags": ["x", "y"], "vec": [1, 2, 3]}
            record = {"type": kind, "data": data | ({"vec": [1, 2]} if bad else {"photo": "base64:aGk="})}
        elif kind == "Memo":
            record = {"type": kind, "data": {"id": f"m{chance.randrange(count // 4)}", "text": 5 if bad else "hello"}}
        elif kind == "Sample":
            data = {"code": number, "large": 2**60, "positive": 2**64 - 1, "moment": "2031-05-04T10:00:00.125Z"}
            record = {
                "type": kind,
                "data": data | ({"small": 2**40} if bad else {"days": ["2031-05-04"], "narrow": 0.1}),
            }
        elif kind == "Guards":
            target = json.dumps([str(chance.randrange(9)), chance.choice("ab")], separators=(",", ":"))
            record = {"edge": kind, "from": badge, "to": target, "data": {"id": f"g{number}"}}
            record |= {"extra": 1} if bad else {}
        else:
            ends = [f"m{chance.randrange(count // 4)}" for _ in "ab"]
            data = {"id": f"c{chance.randrange(count)}", "strength": 1, "mood": "angry" if bad else "kind"}
            record = {"edge": kind, "from": ends[0], "to": ends[1], "data": data}
        lines.append(json.dumps(record))
    lines.insert(count // 2, "")
    lines.insert(count // 3, '{"type": "Memo", "data": ')
    return lines


STORED = [
    node("Curator", badge="k1", name="one", email="e1@x"),
    node("Curator", badge="k2", name="two", email="e2@x"),
    node("Exhibit", accession=1, wing="a", photo="base64:aGk="),
    node("Exhibit", accession=2, wing="b", title="kept"),
    *(node("Memo", id=f"m{number}", text="before") for number in range(20)),
    edge("Guards", "k1", '["1","a"]', id="g-old"),
    *(edge("Cites", f"m{number}", "m0", id=f"c{number}", strength=9) for number in range(12)),
]

CASES = [("append", 1), ("merge", 2), ("overwrite", 3)]


@pytest.mark.parametrize(("mode", "seed"), CASES, ids=[mode for mode, _ in CASES])
def test_what_the_quarantine_leaves_is_what_the_loader_takes(
    tmp_path: Path, spark: SparkSession, mode: str, seed: int
) -> None:
    lines = museum_lines(seed, 240)
    graphs = [Graph.init(tmp_path / name, SCHEMA) for name in ("spark", "local", "refusing")]
    for graph in graphs:
        graph.load("\n".join(STORED), mode="append")
    through_spark, in_process, refusing = graphs

    report = run(records_of(tmp_path / "in", lines, mode), graph=through_spark, spark=spark)
    assert report.quarantine is not None
    refused = rejected_rows(report.quarantine)

    kernels = decode_collecting("\n".join(lines).encode(), through_spark.catalog).rejected
    expected = {(r.line, r.type_key, r.property, r.reason) for r in kernels}
    found = {(r["row"], r.get("type"), r.get("property"), r["reason"]) for r in refused}
    assert expected <= found
    assert len(kernels) > 10

    bad = {row["row"] for row in refused}
    left = "\n".join("" if number in bad else line for number, line in enumerate(lines, 1))
    in_process.load(left, mode=mode)
    assert everything(through_spark) == everything(in_process)
    assert through_spark.verify().clean

    # Without the quarantine the loader stops at a row that the pipeline refuses too, and says the same of it.
    only_checks = "\n".join("" if n in {r.line for r in kernels} else line for n, line in enumerate(lines, 1))
    with pytest.raises(OmniGraphError) as raised:
        refusing.load(only_checks, mode=mode)
    assert any(row["reason"] in str(raised.value) for row in refused)


def records_of(directory: Path, lines: list[str], mode: str) -> Any:
    directory.mkdir(exist_ok=True)
    (directory / "a.ndjson").write_text("\n".join(lines) + "\n")
    return records(directory, mode, quarantine(directory, 10_000, duplicates="reject"))
