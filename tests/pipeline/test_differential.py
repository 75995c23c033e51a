"""The pipeline and the in-process loader are one system: same input, same graph, same refusals with the same words."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.engine.rows.kernels.decoder import decode_collecting
from omnigraph.errors import OmniGraphError
from omnigraph.pipeline import run
from tests.engine.museum import SCHEMA, edge, node
from tests.engine.stored import everything
from tests.pipeline.cases import RULES, Case, generated
from tests.pipeline.library import quarantine, records, rejected_rows


def museum_lines(seed: int, first: int) -> list[str]:
    """Records of every kind of property, about one in eight with a bad value; none gets in the way of another.

    Every entity names its id, numbered from `first`, so that a small one means entities that are stored already.
    """
    chance = random.Random(seed)
    lines = []
    good: dict[str, list[str]] = {"Curator": [], "Exhibit": [], "Memo": []}
    for number in range(first, first + 150):
        bad = chance.random() < 0.12
        kind = chance.choice(["Curator", "Exhibit", "Memo", "Sample", "Guards", "Cites"])
        record: dict[str, Any] = {"type": kind}
        if kind == "Curator":
            name, data = (
                f"k{number}",
                {"badge": f"k{number}", "name": f"n{number}", "email": f"e{number}@x", "pay": 1.5},
            )
            record["data"] = data | ({"pay": -1} if bad else {"level": "junior", "hired": "2031-05-04"})
        elif kind == "Exhibit":
            name, data = f'["{number}","a"]', {"accession": number, "wing": "a", "tags": ["x", "y"], "vec": [1, 2, 3]}
            record["data"] = data | ({"vec": [1, 2]} if bad else {"photo": "base64:aGk="})
        elif kind == "Memo":
            name = f"m{number}"
            record["data"] = {"id": name, "text": 5 if bad else "hello"}
        elif kind == "Sample":
            data = {"code": number, "large": 2**60, "positive": 2**64 - 1, "moment": "2031-05-04T10:00:00.125Z"}
            record["data"] = data | ({"small": 2**40} if bad else {"days": ["2031-05-04"], "narrow": 0.1})
        elif kind == "Guards" and good["Curator"] and good["Exhibit"]:
            ends = {"from": good["Curator"].pop(), "to": chance.choice(good["Exhibit"])}
            record = {"edge": kind, **ends, "data": {"id": f"g{number}"}, **({"extra": 1} if bad else {})}
        elif kind == "Cites" and good["Memo"]:
            ends = {"from": chance.choice(good["Memo"]), "to": chance.choice(good["Memo"])}
            data = {"id": f"c{number}", "strength": 1, "mood": "angry" if bad else "kind"}
            record = {"edge": kind, **ends, "data": data}
        else:
            continue
        if kind in good and not bad:
            good[kind].append(name)
        lines.append(json.dumps(record))
    lines.insert(len(lines) // 2, "")
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

MODES = ["append", "merge", "overwrite"]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_takes_and_refuses_what_the_loader_takes_and_refuses(
    tmp_path: Path, spark: SparkSession, mode: str
) -> None:
    cases = generated(20, MODES.index(mode))
    lines = museum_lines(MODES.index(mode), 0 if mode == "merge" else 1_000)
    begins = []
    for case in cases:
        begins.append(len(lines))
        lines += case.lines
    stored = [*STORED, *(line for case in cases for line in case.stored if mode != "overwrite")]
    through_spark, in_process = (Graph.init(tmp_path / name, SCHEMA + RULES) for name in ("spark", "local"))
    for graph in (through_spark, in_process):
        graph.load("\n".join(stored), mode="append")

    report = run(records_of(tmp_path / "in", lines, mode), graph=through_spark, spark=spark)
    assert report.quarantine is not None
    refused = rejected_rows(report.quarantine)

    kernels = decode_collecting("\n".join(lines).encode(), through_spark.catalog).rejected
    expected = {(r.line, r.type_key, r.property, r.reason, r.rule) for r in kernels}
    found = {
        (r["row"], r.get("type"), p.get("property"), p["reason"], p["rule"]) for r in refused for p in r["problems"]
    }
    assert expected <= found
    assert len(kernels) > 10

    reasons = {row["row"]: [problem["reason"] for problem in row["problems"]] for row in refused}
    assert len(reasons) == len(refused)
    left = "\n".join("" if number in reasons else line for number, line in enumerate(lines, 1))
    in_process.load(left, mode=mode)
    assert everything(through_spark) == everything(in_process)
    assert through_spark.maintenance.verify().clean

    oracle = Loader(Graph.init(tmp_path / "oracle", SCHEMA + RULES), cases, mode)
    for case, begin in zip(cases, begins, strict=True):
        oracle.judge(
            case, {row - begin - 1: said for row, said in reasons.items() if begin < row <= begin + len(case.lines)}
        )
    assert [rule for rule in RULES_OF[mode] if not any(rule in said for said in oracle.words)] == []


RULES_OF = {
    "append": ["already holds the id", "more than once", "@unique", "not found in", "(max 2)", "@range", "truncated"],
    "merge": ["more than once", "@unique", "not found in", "(max 2)", "(min 1)", "@range", "truncated"],
    "overwrite": ["more than once", "@unique", "not found in", "(max 2)", "@range", "truncated"],
}
"""Words of each kind of refusal that the cases of a mode must have shown, or they show too little."""


class Loader:
    """The in-process loader as the judge of what a run did with a case."""

    def __init__(self, graph: Graph, cases: list[Case], mode: str) -> None:
        self._graph = graph
        self._mode = mode
        self._attempts = 0
        self.words: set[str] = set()
        if mode != "overwrite":
            graph.load("\n".join(line for case in cases for line in case.stored), mode="append")

    def judge(self, case: Case, refused: dict[int, list[str]]) -> None:
        """What the run left is fine; whichever refused row is put back spoils it, for the reason that the run gave.

        A run judges ids first. So a row can be refused for repeating one that was refused as well, and needs that one
        beside it to be as wrong as the run said; and of a row with a bad id nothing else is told.
        """
        shown = "\n".join(f"{n}: {line}" for n, line in enumerate(case.lines))
        kept = [n for n in range(len(case.lines)) if n not in refused]
        assert self._refusal(case, kept) is None, f"{shown}\nleft of it: {kept}"
        for number, reasons in refused.items():
            self.words.update(reasons)
            told = []
            for beside in [number, *(n for n in refused if n < number)]:
                told.append(self._refusal(case, sorted({*kept, number, beside})))
                if any(comparable(reason) in comparable(told[-1] or "") for reason in reasons):
                    break
            else:
                # A merge in process takes the last of repeated ids where there is no key; this run was told not to.
                repeats = self._mode == "merge" and any("more than once" in reason for reason in reasons)
                assert repeats or (told[0] and self._has_bad_id(case, number, reasons)), (
                    f"{shown}\nline {number} was refused: {reasons}\nthe loader says {told}"
                )

    def _has_bad_id(self, case: Case, number: int, reasons: list[str]) -> bool:
        """Whether the reasons are about the id of a line, and true."""
        name = identity(case.lines[number])
        if any(f"already holds the id '{name}'" in reason for reason in reasons):
            return name in map(identity, case.stored)
        others = [line for n, line in enumerate(case.lines) if n != number and line.startswith('{"edge"')]
        return any(f"id '{name}' more than once" in reason for reason in reasons) and name in map(identity, others)

    def _refusal(self, case: Case, numbers: list[int]) -> str | None:
        """What the loader says to some lines of a case, on a branch that only a success leaves behind."""
        self._attempts += 1
        try:
            self._graph.load(
                "\n".join(case.lines[n] for n in numbers),
                mode=self._mode,
                branch=f"attempt{self._attempts}",
                base="main",
            )
        except OmniGraphError as error:
            return str(error)
        return None


def identity(line: str) -> str:
    record = json.loads(line)
    if record.get("edge") == "Liked":
        return json.dumps([record["from"], record["to"]], separators=(",", ":"))
    data = record["data"]
    return str(data.get("id") or data["key"])


def comparable(reason: str) -> str:
    """A source with three edges too many is the same refusal as one with one too many."""
    return re.sub(r"has \d+ edges", "has edges", reason)


def records_of(directory: Path, lines: list[str], mode: str) -> Any:
    directory.mkdir(exist_ok=True)
    (directory / "a.ndjson").write_text("\n".join(lines) + "\n")
    return records(directory, mode, quarantine(directory, 10_000, duplicates="reject"))
