"""`docs/user/mcp.md` names the tools there are, and shows configurations that start the command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import run
from omnigraph.cli.params import WITH_VALUE
from omnigraph.mcp.tools import TOOLS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "user" / "mcp.md").read_text()


def test_the_table_of_tools_is_the_tools() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.split("## Tools")[1].split("\n\nStored")[0], re.MULTILINE)
    assert {name for name, _ in rows} == TOOLS.keys()
    assert {name for name, text in rows if "(writes)" in text} == {t.name for t in TOOLS.values() if t.writes}


def configurations() -> Iterator[dict[str, Any]]:
    for block in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        document = json.loads(block)
        yield from (document.get("mcpServers") or document["servers"]).values()


def shown_commands() -> list[list[str]]:
    configured = [entry["args"] for entry in configurations() if entry.get("command") == "omnigraph"]
    lines = [shlex.split(line.partition("omnigraph ")[2]) for line in PAGE.splitlines() if " -- omnigraph mcp" in line]
    return [*configured, *lines]


def test_configurations_start_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(shown_commands()) == 3
    assert run(["mcp", "--help"]) == 0
    offered = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) | set(WITH_VALUE)
    for command, *flags in shown_commands():
        assert command == "mcp"
        assert {flag for flag in flags if flag.startswith("--")} <= offered


def test_options_of_the_page_are_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp", "--help"]) == 0
    own, _, _ = capsys.readouterr().out.partition("Global flags")
    offered = set(re.findall(r"^  (--[a-z-]+)", own, re.MULTILINE)) - {"--help"}
    table = PAGE.split("| option | |")[1].split("\n\n")[0]
    assert offered - set(re.findall(r"--[a-z-]+", table)) == set()


def test_addresses_lead_to_the_endpoint() -> None:
    addresses = [entry["url"] for entry in configurations() if "url" in entry]
    assert len(addresses) == 2
    assert all(re.fullmatch(r"https://[a-z.]+/graphs/[a-z]+/mcp", address) for address in addresses)
