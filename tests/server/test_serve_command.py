"""`omnigraph serve` and `omnigraph-server`: flags, refusals, and real servers over real graphs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import pytest
import yaml

import omnigraph
from omnigraph.cli.commands.serve import address, limits_of
from omnigraph.cli.main import run
from omnigraph.cli.params import UsageError
from omnigraph.server.settings import ServerLimits
from tests.server.test_metrics import samples
from tests.support.servers import REPOSITORY, WITHOUT_TLS, ServerProcess, served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("serve command")  # one server for all of it

TOKEN = "planted-token"
SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
ADD = "query add($name: String) { insert Person { name: $name } }"
ALL = "query planted_text() { match { $p: Person } return { $p.name } }"


def test_without_a_cluster_it_says_what_it_boots_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve"]) == 1
    assert "boots from a cluster" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bind", "8080"], "--bind must be ADDR:PORT"),
        (["--bind", "localhost:70000"], "--bind must be ADDR:PORT"),
        (["--bind", "::1:80"], "--bind must be ADDR:PORT"),
        (["--workers", "0"], "--workers"),
        (["--body-bytes", "many"], "--body-bytes"),
        (["--body-bytes", "0"], "--body-bytes"),
        (["--header-seconds", "nan"], "--header-seconds"),
        (["--cluster", "c"], "mutually exclusive"),
        (["--watch"], "--watch follows a cluster"),
        (["--unauthenticated", "--bind", "0.0.0.0:0"], "--insecure-public"),
        (["--unauthenticated", "--bind", "[::]:0"], "--insecure-public"),
        (["--allowed-host", "http://a"], "--allowed-host takes a name"),
        (["--no-such-flag"], "--no-such-flag"),
        (["extra"], "--store and a URI are mutually exclusive"),
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["serve", "--store", "g", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_flags_that_address_something_else_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--store", "g", "--graph", "id"]) == 1
    assert "--cluster <dir|uri>" in capsys.readouterr().err


def test_every_limit_has_a_flag_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    for field in fields(ServerLimits):
        assert f"--{field.name.replace('_', '-')} N" in shown
    assert "Connections, of each worker:" in shown


@pytest.mark.parametrize(
    ("bind", "parts"),
    [("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:80", ("::1", 80)), ("localhost:8080", ("localhost", 8080))],
)
def test_an_address_has_two_parts(bind: str, parts: tuple[str, int]) -> None:
    assert address(bind) == parts
    with pytest.raises(UsageError):
        address(f"{bind}x")


def test_caps_come_from_flags_then_the_environment_then_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "3", "OMNIGRAPH_PER_ACTOR_BYTES_MAX": "some"}
    limits = limits_of({"body_bytes": 5, "load_rows": None}, environment)
    assert (limits.actor_requests, limits.actor_bytes, limits.body_bytes) == (3, 4 << 30, 5)
    assert limits_of({"actor_requests": 0}, environment).actor_requests == 0
    assert "OMNIGRAPH_PER_ACTOR_BYTES_MAX is not a number" in capsys.readouterr().err


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("store") / "kb"
    omnigraph.init(place, SCHEMA).close()
    return str(place)


@pytest.fixture(scope="module")
def server(store: str) -> Iterator[ServerProcess]:
    """Two workers, upkeep in one of them; whoever asks proves who it is, and nobody may write."""
    environment = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps({"ada": TOKEN}), "RUST_LOG": "debug"}
    arguments = ("--store", store, "--bind", "127.0.0.1:0", "--workers", "2", "--maintain", "--actor-requests", "7")
    arguments += ("--query-clauses", "600")
    with served("serve", *arguments, environment=environment) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=600, verify=WITHOUT_TLS) as connected:
        yield connected


def test_it_serves_the_graph_under_the_last_part_of_its_uri(client: httpx.Client) -> None:
    answer = client.post("/graphs/kb/query", json={"query": ALL})
    assert answer.json()["rows"] == []


def test_it_says_where_it_serves_which_graphs(server: ServerProcess) -> None:
    assert f"serving at {server.url} (workers: 2): graph kb" in server.errors()


def test_a_query_of_any_size_is_answered_or_refused_with_the_limit_and_its_flag(client: httpx.Client) -> None:
    match, end = "query q() { match { $v0: Person ", "} return { count($v0) as n } }"
    chain = " ".join(f"$v{i} knows $v{i + 1}" for i in range(199))

    def nested(depth: int, query: str) -> bytes:
        return json.dumps({"query": query, "params": {"v": 0}}).replace("0", "[" * depth + "]" * depth).encode()

    headers = {"content-type": "application/json"}
    answers = {
        "query_clauses: 701 ": client.post("/graphs/kb/query", json={"query": match + "$v0.age > 1 " * 699 + end}),
        "query_depth: 3001 ": client.post("/graphs/kb/query", json={"query": match + "$v0 knows $_ " * 3_000 + end}),
        "brackets are nested": client.post("/graphs/kb/query", json={"query": match + "not { " * 9_000}),
        "param 'v': an array": client.post("/graphs/kb/query", content=nested(900, ALL), headers=headers),
        "nested too deeply": client.post("/graphs/kb/query", content=nested(9_000, ALL), headers=headers),
    }
    for message, answer in answers.items():
        assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text[:500]
    assert "--query-clauses" in answers["query_clauses: 701 "].json()["error"]
    profiled = client.post("/graphs/kb/query/profile", json={"query": match + chain + end})
    assert profiled.status_code == 200, profiled.text[:500]


def test_upkeep_runs_in_one_worker_and_shows(server: ServerProcess, client: httpx.Client) -> None:
    found = samples(client.get("/metrics").text)
    assert found["omnigraph_upkeep_runs_total", "graph=kb"] == 0
    assert found[("omnigraph_workers",)] == 2
    assert server.errors().count("maintains 1 graphs") == 1


def test_logs_and_metrics_hold_no_token_text_value_or_row(server: ServerProcess, client: httpx.Client) -> None:
    client.post("/graphs/kb/query", json={"query": ALL, "params": {"x": "planted-value"}})
    client.post("/graphs/kb/mutate", json={"query": ADD, "params": {"name": "planted-value"}})
    client.get("/planted-path", headers={"x-planted": "planted-header"})
    client.request("PLANTED", "/healthz")
    metrics = client.get("/metrics").text
    wait_until(lambda: '"operation":"metrics"' in server.errors(), "the requests are logged")
    for told in (server.errors(), metrics):
        assert "planted" not in told.lower()
    requests = [json.loads(line) for line in server.errors().splitlines()]
    (denied,) = [line for line in requests if line["message"] == "decision" and not line["allowed"]]
    assert (denied["action"], denied["actor"]) == ("change", "ada")
    (mutation,) = [line for line in requests if line.get("operation") == "mutate"]
    assert (mutation["status"], mutation["graph"], mutation["actor"]) == (403, "kb", "ada")
    assert mutation["request_id"] == denied["request_id"]


def test_the_supervisor_loads_nothing_that_opens_graphs(server: ServerProcess) -> None:
    mapped = Path(f"/proc/{server.pid}/maps").read_text()
    assert "msgspec" in mapped  # it has libraries
    assert not any(library in mapped for library in ("lance", "obstore", "pyarrow"))


def test_told_to_end_it_exits_with_0(server: ServerProcess) -> None:
    assert server.terminate() == 0
    assert server.lines == [f"OMNIGRAPH_LISTEN_ADDR=127.0.0.1:{server.port}"]


def entrypoint(**environment: str) -> subprocess.CompletedProcess[str]:
    """The container's entry point, with a program in the server's place that prints how it was called."""
    return subprocess.run(
        ["sh", str(REPOSITORY / "docker" / "entrypoint.sh"), "--workers", "2"],
        env={"PATH": os.environ["PATH"], "OMNIGRAPH_SERVER": "echo", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_container_without_a_cluster_exits_with_64() -> None:
    done = entrypoint()
    assert done.returncode == 64
    assert "OMNIGRAPH_CLUSTER" in done.stderr
    assert entrypoint(OMNIGRAPH_CLUSTER="").returncode == 64


@pytest.mark.parametrize(
    ("environment", "called"),
    [
        ({}, "--cluster s3://b/c --bind 0.0.0.0:8080 --workers 2"),
        (
            {"OMNIGRAPH_CLUSTER": "", "OMNIGRAPH_STORE": "a graph"},
            "--store a graph --bind 0.0.0.0:8080 --workers 2",
        ),
        ({"OMNIGRAPH_BIND": "[::]:1"}, "--cluster s3://b/c --bind [::]:1 --workers 2"),
        (
            {"OMNIGRAPH_REQUIRE_ALL_GRAPHS": "1"},
            "--cluster s3://b/c --bind 0.0.0.0:8080 --require-all-graphs --workers 2",
        ),
        ({"OMNIGRAPH_REQUIRE_ALL_GRAPHS": "False"}, "--cluster s3://b/c --bind 0.0.0.0:8080 --workers 2"),
    ],
)
def test_a_container_maps_its_environment_to_flags(environment: dict[str, str], called: str) -> None:
    done = entrypoint(**{"OMNIGRAPH_CLUSTER": "s3://b/c", **environment})
    assert (done.returncode, done.stdout.strip()) == (0, called)


def test_the_compose_file_and_the_image_name_what_is_there() -> None:
    composed = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    assert set(composed["services"]) == {"store", "bucket", "graph", "server"}
    mounted = composed["services"]["graph"]["volumes"][0].split(":")[0]
    copied = [
        line.split()[1:-1] for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if line[:5] == "COPY "
    ]
    for name in [mounted, *(name for names in copied for name in names if not name.startswith(("--", "/")))]:
        assert (REPOSITORY / name).exists(), name
    # `snapshot` and `init` take the graph's storage, and the server these flags.
    assert run(["serve", *composed["services"]["server"]["command"]]) == 1


def test_both_entry_points_have_the_same_flags() -> None:
    script = "import sys; sys.argv = ['omnigraph-server', '--help']; from omnigraph.cli.main import serve; serve()"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Usage: omnigraph serve [OPTIONS]")
