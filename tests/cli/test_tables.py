"""Tables on terminals of 80 and 140 columns, with texts of any script; and the law that rows line up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api.enums import CellLayout, ReadFormat
from omnigraph.api.queries import ReadOutput, ReadTargetOutput
from omnigraph.api.values import cut_to_width, one_line, text_width
from omnigraph.cli.printing.rows import TableStyle, render_read
from tests.cli.conftest import Cli
from tests.golden import assert_golden

SCHEMA = "node Note { name: String @key  text: String?  place: String?  stars: I64? }\n"
NOTES = [
    {"name": "plain", "text": "short", "place": "Oslo", "stars": 1},
    {"name": "long", "text": "a sentence that goes on and on, past the end of any narrow terminal, and then some more",
     "place": "somewhere far away, with a long name too"},
    {"name": "日本語のノート", "text": "東京は日本の首都です。とても大きな町です。人口も多いです。", "place": "東京"},
    {"name": "cafe\u0301", "text": "combining: n\u0303 a\u030a o\u0308, and Zalgo h\u0336\u0321e\u0334l\u0337lo\u0338"},
    {"name": "emoji", "text": "👍🏽 👩\u200d👩\u200d👧\u200d👦 ❤\ufe0f 🇳🇴 🎉", "place": "🏔\ufe0f", "stars": 5},
    {"name": "한국어", "text": "안녕하세요, and the same in parts: \u1112\u1161\u11ab", "place": "서울"},
    {"name": "العربية", "text": "مرحبا بالعالم", "place": "القاهرة"},
    {"name": "controls", "text": "tab\there, bell\x07, colour\x1b[31m, line\nbreak\r", "place": "\u200b\u00ad"},
]  # fmt: skip


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("notes") / "g.omni"
    with Graph.init(place, SCHEMA) as graph:
        graph.load("".join(json.dumps({"type": "Note", "data": note}) + "\n" for note in NOTES), mode="append")
    return str(place)


@pytest.mark.parametrize("layout", ["truncate", "wrap"])
@pytest.mark.parametrize("columns", [80, 140])
def test_tables_fit_the_terminal(
    columns: int, layout: str, notes: str, cli: Cli, config: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "config.yaml").write_text(f"defaults: {{table_cell_layout: {layout}}}\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    query = "query notes() { match { $n: Note } return { $n.name as name, $n.text as text, $n.place as place, $n.stars as stars } order { $n.name } }"  # noqa: E501
    shown = cli("query", "-e", query, "--store", notes)
    assert shown.code == 0
    assert max(map(text_width, shown.lines)) <= columns
    assert len({text_width(line) for line in shown.lines[1:]}) == 1
    assert "\x1b" not in shown.out
    assert_golden(f"tables/{layout}-{columns}.txt", shown.out)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("abc", 3),
        ("東京", 4),
        ("e\u0301", 1),
        ("❤\ufe0f", 2),
        ("❤", 1),
        ("👍🏽", 2),
        ("👩\u200d👩\u200d👧", 2),
        ("🇳🇴", 2),
        ("\u1112\u1161\u11ab", 2),
        ("a\u200bb", 2),
        ("co\u00adop", 5),
        ("", 0),
    ],
)
def test_how_wide_a_text_is(text: str, width: int) -> None:
    assert text_width(text) == width


def test_what_belongs_together_is_not_cut_apart() -> None:
    assert cut_to_width("a👍🏽b", 2) == "a"
    assert cut_to_width("e\u0301\u0302x", 1) == "e\u0301\u0302"
    assert cut_to_width("👩\u200d👧", 1) == ""


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert one_line("a\nb\t\x1b[2J\x7f\x9b") == "a\\nb\\t\\x1b[2J\\x7f\\x9b"


TRICKY = st.sampled_from("\u200d\ufe0f\U0001f3fd👩❤東e\u0301\u1161🇳|…\n\t\u200b ")
CELLS = st.text(st.one_of(TRICKY, st.characters(codec="utf-8")), max_size=12)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5), st.integers(1, 30), st.sampled_from(CellLayout))
def test_every_line_of_a_table_is_as_wide_as_its_rule(
    rows: list[tuple[str, str]], widest: int, layout: CellLayout
) -> None:
    output = ReadOutput(
        query_name="q",
        target=ReadTargetOutput("main", None),
        row_count=len(rows),
        columns=("a", "b"),
        rows=[{"a": a, "b": b} for a, b in rows],
    )
    _, *lines = render_read(output, ReadFormat.TABLE, TableStyle(widest, layout)).rstrip("\n").split("\n")
    assert {text_width(line) for line in lines} == {text_width(lines[1])}
