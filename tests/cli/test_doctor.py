"""`omnigraph doctor`: what it looks at, what it says of what is broken, and that it leaves nothing behind."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.commands.doctor import check_java, check_packages, check_python
from omnigraph.cli.printing.reports import Check, Health
from tests.cli.conftest import Cli, Outcome
from tests.conftest import Place
from tests.support.s3 import S3Server

MACHINE = ["python", "packages", "java", "cache", "config"]


def checks(shown: Outcome) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in shown.json["checks"]}


def files(place: Path) -> set[Path]:
    return set(place.rglob("*"))


def test_a_machine_that_is_in_order(cli: Cli) -> None:
    shown = cli("doctor", "--json")
    assert shown.code == 0
    assert list(shown.json) == ["ok", "version", "checks"]
    assert list(checks(shown)) == MACHINE
    told = cli("doctor")
    assert told.code == 0
    assert [line.split()[1] for line in told.lines if not line.startswith((" ", "omnigraph"))] == MACHINE


def test_a_graph_on_disk(cli: Cli, g: str) -> None:
    before = files(Path("."))
    shown = cli("doctor", g, "--json")
    assert shown.code == 0
    assert list(checks(shown)) == [*MACHINE, "store", "graph"]
    assert "create-if-absent works" in checks(shown)["store"]["found"]
    assert "main is at version 2" in checks(shown)["graph"]["found"]
    assert files(Path(".")) == before


def test_a_place_without_a_graph_is_probed_and_not_made(cli: Cli) -> None:
    before = files(Path("."))
    shown = cli("doctor", "--store", "not/yet", "--json")
    assert shown.code == 0
    assert checks(shown)["graph"]["remedy"] == "omnigraph init --schema FILE --store not/yet makes one"
    assert files(Path(".")) == before


def test_a_cluster_and_its_graphs(cli: Cli) -> None:
    assert cli("quickstart", "c").code == 0
    assert cli("cluster", "import", "--config", "c").code == 0
    assert cli("cluster", "apply", "--config", "c", "--as", "lea").code == 0
    for where in (["--cluster", "c"], ["--cluster", "c", "--graph", "team"]):
        shown = cli("doctor", *where, "--json")
        assert (shown.code, list(checks(shown))) == (0, [*MACHINE, "cluster", "store", "graph"])
    for where in (["--cluster", "c", "--graph", "none"], ["--cluster", "nowhere"]):
        shown = cli("doctor", *where, "--json")
        assert (shown.code, checks(shown)["cluster"]["status"]) == (1, "broken")


def test_a_damaged_graph(cli: Cli, g: str) -> None:
    (Path(g) / "__manifest" / "graph.json").write_text("{")
    shown = cli("doctor", g, "--json")
    assert (shown.code, shown.json["ok"]) == (1, False)
    assert checks(shown)["graph"]["status"] == "broken"


def test_s3_and_a_gateway_that_ignores_conditions(
    cli: Cli, s3_place: Place, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks(cli("doctor", s3_place.uri, "--json"))["store"]["status"] == "ok"
    assert s3_server.client().list_objects_v2(Bucket=s3_place.uri.split("/")[2])["KeyCount"] == 0
    do = s3_server._do

    def careless(environ: dict[str, Any]) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return do(environ)

    monkeypatch.setattr(s3_server, "_do", careless)
    shown = cli("doctor", s3_place.uri, "--json")
    assert shown.code == 1
    assert "does not honour create-if-absent" in checks(shown)["store"]["found"]


def test_the_cache_of_remote_graphs(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert checks(cli("doctor", "--json"))["cache"]["found"].startswith("off: ")
    monkeypatch.setenv("OMNIGRAPH_DISK_CACHE", str(tmp_path / "caches"))
    assert checks(cli("doctor", "--json"))["cache"]["found"] == f"0 MiB of 4,096 MiB in {tmp_path}/caches/store-1"
    (tmp_path / "caches" / "store-1" / "graph").mkdir(parents=True)
    (tmp_path / "caches" / "store-1" / "graph" / "file").write_bytes(b"x" * 1_234)
    assert cli("cache", "clear", "--json").json == {"directory": f"{tmp_path}/caches/store-1", "bytes": 1_234}
    assert cli("cache", "clear").lines == [f"deleted 0 bytes in {tmp_path}/caches/store-1"]
    monkeypatch.setenv("OMNIGRAPH_DISK_CACHE_MIB", "lots")
    shown = cli("doctor", "--json")
    assert (shown.code, checks(shown)["cache"]["status"]) == (1, "broken")


def test_the_configuration_of_the_operator(cli: Cli, config: Callable[[str], None]) -> None:
    config("profiles: {p: {}}\n")
    shown = cli("doctor", "--json")
    assert (shown.code, checks(shown)["config"]["status"]) == (0, "warning")
    config("profiles: [")
    shown = cli("doctor", "--json")
    assert (shown.code, checks(shown)["config"]["status"]) == (1, "broken")


@pytest.fixture
def answering() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"status": "ok", "version": "0.10.0"}).encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_server(cli: Cli, answering: str, config: Callable[[str], None]) -> None:
    config(f"servers: {{prod: {{url: {answering}}}}}\ndefaults: {{server: prod, default_graph: kb}}\n")
    shown = cli("doctor", "--json")
    assert (shown.code, checks(shown)["access"]["status"]) == (1, "broken"), "it has no graph kb"
    assert '"version": "0.10.0"' in checks(shown)["server"]["found"]
    nobody = cli("doctor", "--server", "http://127.0.0.1:1", "--json")
    assert (nobody.code, checks(nobody)["server"]["status"]) == (1, "broken")
    other = cli("doctor", "--server", f"{answering}/elsewhere", "--json")
    assert "answers with 404" in checks(other)["server"]["found"]


@pytest.mark.parametrize(
    ("check", "status", "remedy"),
    [
        (check_python((3, 10, 1)), Health.BROKEN, "Python 3.11"),
        (check_packages(lambda name: None if name == "lark" else "14.1"), Health.BROKEN, "pip install"),
        (check_packages(lambda name: "13.0"), Health.BROKEN, "pylance>=14,<15"),
        (check_java({"PATH": ""}, needed=True), Health.WARNING, "openjdk-17"),
        (check_java({"PATH": "", "JAVA_HOME": "/nowhere"}, needed=True), Health.WARNING, "JAVA_HOME"),
        (check_java({"PATH": ""}, needed=False), Health.OK, ""),
    ],
)
def test_what_is_said_of_each(check: Check, status: Health, remedy: str) -> None:
    assert check.status is status
    assert remedy in (check.remedy or "")
