"""Which graph a command line means, and who it writes for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

Config = Callable[[str], None]


def test_nothing_addressed_lists_the_ways(cli: Cli) -> None:
    refused = cli("snapshot")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: no graph addressed")
    for way in ("--store <uri>", "--profile <name>", "OMNIGRAPH_PROFILE", "defaults.store"):
        assert way in refused.err


@pytest.mark.parametrize("command", [["query"], ["query", "-e", "q"], ["mutate", "-e", "q"]])
def test_a_bare_word_that_was_read_as_the_name_of_a_query_is_told(command: list[str], cli: Cli) -> None:
    refused = cli(*command, "gg")
    told = "no graph addressed ('gg' was read as the name of a query; a graph of that name is --store gg, or ./gg)"
    assert (refused.code, told in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["snapshot", "a", "--store", "b"], "the URI and --store are mutually exclusive"),
        (["snapshot", "a", "--server", "b"], "the URI and --server are mutually exclusive"),
        (["snapshot", "--store", "a", "--server", "b"], "--store and --server are mutually exclusive"),
        (["branch", "list", "--uri", "a", "--store", "b"], "the URI and --store are mutually exclusive"),
        (["optimize", "a", "--cluster", "b"], "the URI and --cluster are mutually exclusive"),
        (["snapshot", "a", "--graph", "x"], "already a single graph"),
        (["snapshot", "--store", "a", "--graph", "x"], "already a single graph"),
        (["snapshot", "http://h/g"], "must be addressed with --server <url>"),
        (["branch", "list", "--uri", "https://h/g"], "must be addressed with --server <url>"),
        (["query", "-e", "q", "--store", "https://h/g"], "must be addressed with --server <url>"),
        (["optimize", "https://h/g"], "needs direct storage access"),
        (["init", "https://h/g", "--schema", "s.pg"], "needs direct storage access"),
        (["snapshot", "--server", "prod"], "unknown server 'prod'; defined servers: []"),
        (["snapshot", "--profile", "p"], "unknown profile 'p'"),
        (["snapshot", "absent"], "there is no graph at"),
    ],
)
def test_refusals(arguments: list[str], message: str, cli: Cli) -> None:
    refused = cli(*arguments)
    assert (refused.code, refused.out) == (1, "")
    assert message in refused.err


@pytest.mark.parametrize("address", [["--store", "g"], ["--profile", "here"], ["--graph", "x"]])
@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["lint", "--query", "q.gq", "--schema", "s.pg"], "--schema"),
        (["lint", "--schema", "s.pg"], "--schema"),
        (["schema", "plan", "--schema", "s.pg", "--from", "s.pg"], "--from"),
    ],
)
def test_no_graph_is_addressed_beside_a_file_in_its_place(
    address: list[str], command: list[str], flag: str, cli: Cli, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(PROFILES)
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "here")
    assert cli(*command).code == 0
    refused = cli(*command, *address)
    assert (refused.code, refused.out) == (2, "")
    assert f"{address[0]} and {flag} are mutually exclusive" in refused.err


def test_a_server_or_a_cluster_is_not_addressed_beside_a_file(cli: Cli) -> None:
    served = cli(
        "schema", "plan", "--schema", "s.pg", "--from", "s.pg", "--server", "http://127.0.0.1:9", "--graph", "g"
    )
    assert (served.code, "--server and --from are mutually exclusive" in served.err) == (2, True)
    clustered = cli("lint", "--query", "q.gq", "--schema", "s.pg", "--cluster", ".", "--graph", "g")
    assert (clustered.code, "--cluster and --schema are mutually exclusive" in clustered.err) == (2, True)


PROFILES = """
servers: {prod: {url: "http://127.0.0.1:9/"}}
clusters: {box: {root: s3://bucket/box}}
profiles:
  here: {store: g.omni}
  there: {server: prod, default_graph: kb}
  boxed: {cluster: box}
  empty: {default_graph: x}
  torn: {server: prod, store: g.omni}
  mixed: {store: g.omni, default_graph: x}
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["snapshot", "--profile", "empty"], "profile 'empty' binds no scope"),
        (["snapshot", "--profile", "torn"], "profile 'torn' binds 2 scopes"),
        (["snapshot", "--profile", "mixed"], "--graph does not apply to a store scope"),
        (["snapshot", "--profile", "here", "--graph", "x"], "--graph does not apply to a store scope"),
        (["snapshot", "--profile", "boxed"], "not valid for graph data commands"),
        (
            ["optimize", "--profile", "there"],
            "needs direct storage access, but profile 'there' resolves a server scope",
        ),
        # Nobody listens there.
        (["snapshot", "--profile", "there"], "can't reach http://127.0.0.1:9/graphs/kb/snapshot"),
        (["snapshot", "--server", "prod", "--graph", "a b"], "can't reach http://127.0.0.1:9/graphs/a%20b/snapshot"),
        (["snapshot", "--server", "http://127.0.0.1:9/"], "can't reach http://127.0.0.1:9/snapshot"),
        (["graphs", "list", "--profile", "here"], "requires a server"),
        (["graphs", "list", "--profile", "boxed"], "cluster status"),
        (["graphs", "list"], "needs a server scope"),
        (["export", "--format", "parquet", "--out", "x", "--profile", "there"], "needs direct storage access"),
        (["load", "--data", "d.csv", "--type", "Person", "--mode", "append", "--profile", "there"], "can't reach"),
        (["load", "--data", "d.orc", "--type", "Person", "--mode", "append", "--profile", "there"], "needs direct"),
        (["load", "--data", "d.jsonl", "--mode", "append", "--profile", "there", "--as", "x"], "on a served write"),
        (["mutate", "x", "--profile", "there", "--as", "x"], "--as is not allowed on a served write"),
        (["query", "x", "--profile", "here"], "by-name invocation needs a server"),
        (["optimize", "--cluster", "./dir", "--graph", "x"], "config_dir_not_found"),
        (["snapshot", "--profile", "nope"], "unknown profile 'nope'; defined profiles: [boxed, empty, here"),
    ],
)
def test_profiles_that_do_not_lead_to_a_graph(arguments: list[str], message: str, cli: Cli, config: Config) -> None:
    config(PROFILES)
    Path("d.csv").write_text("name")
    Path("d.orc").touch()
    refused = cli(*arguments)
    assert (refused.code, refused.out) == (1, "")
    assert message in refused.err


def test_a_profile_leads_to_its_store(cli: Cli, g: str, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    config(PROFILES)
    assert cli("snapshot", "--profile", "here").code == 0
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "here")
    assert cli("snapshot").code == 0
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "  ")
    assert "no graph addressed" in cli("snapshot").err
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "there")
    assert cli("snapshot", g).code == 0, "an explicit address wins over the environment"


def test_the_default_store(cli: Cli, g: str, config: Config) -> None:
    config(f"defaults: {{store: {g}}}")
    assert cli("snapshot").code == 0
    assert "--graph does not apply to a store scope" in cli("snapshot", "--graph", "x").err


def test_the_default_server_comes_before_the_default_store(cli: Cli, config: Config) -> None:
    config("servers: {prod: {url: 'http://127.0.0.1:9'}}\ndefaults: {server: prod, default_graph: kb}")
    assert "http://127.0.0.1:9/graphs/kb/" in cli("snapshot").err
    assert "http://127.0.0.1:9/graphs/x/" in cli("snapshot", "--graph", "x").err
    assert "defaults.server resolves a server scope" in cli("optimize").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "could not parse operator config"),
        ("just text", "could not parse operator config"),
        ("defaults: {server: a, store: b}", "binds one entity"),
        ("defaults: {store: b, default_graph: c}", "already a single graph"),
        ("defaults: {output: xml}", "defaults.output must be one of table, kv, csv, ndjson, jsonl, json"),
        ("defaults: {table_max_column_width: wide}", "defaults.table_max_column_width must be a positive integer"),
        ("operator: [a]", "operator must be a mapping"),
        ("servers: {prod: {}}", "servers.prod.url must be given"),
    ],
)
def test_a_broken_configuration_is_named(text: str, message: str, cli: Cli, config: Config) -> None:
    config(text)
    refused = cli("snapshot")
    assert refused.code == 1
    assert message in refused.err
    assert "config.yaml" in refused.err


def test_unknown_keys_are_warnings(cli: Cli, g: str, config: Config) -> None:
    config("extra: 1\noperator: {actor: me, colour: red}\naliases: {a: {server: s, query: q, params: {any: 1}}}")
    shown = cli("snapshot", g)
    assert shown.code == 0
    assert [line.split(" in ")[0] for line in shown.err.splitlines()] == [
        "warning: unknown key 'extra'",
        "warning: unknown key 'operator.colour'",
    ]


def test_the_actor_is_the_flag_else_the_operator(cli: Cli, g: str, config: Config) -> None:
    config("operator: {actor: ops}")
    add = ["mutate", "add", "--query", "q.gq", "--store", g, "--json", "--params"]
    assert cli(*add, '{"name": "X"}').json["actor_id"] == "ops"
    assert cli(*add, '{"name": "Y"}', "--as", "me").json["commit"]["actor_id"] == "me"


def test_the_home_directory_may_be_written_with_a_tilde(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OMNIGRAPH_HOME", "~/mine")
    assert str(tmp_path / "mine" / "config.yaml") in cli("snapshot").err


# -- profile list, profile show


def test_profiles_are_listed_with_their_flaws(cli: Cli, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    config(PROFILES)
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "there")
    rows = {row["name"]: row for row in cli("profile", "list", "--json").json}
    assert list(rows) == ["boxed", "empty", "here", "mixed", "there", "torn"]
    assert rows["there"] == {
        "name": "there",
        "binding": "server: prod",
        "scope_kind": "server",
        "target": "prod",
        "valid": True,
        "error": None,
        "default_graph": "kb",
        "active": True,
    }
    assert (rows["torn"]["scope_kind"], rows["torn"]["target"], rows["torn"]["valid"]) == ("invalid", None, False)
    assert "binds 2 scopes" in rows["torn"]["error"]
    assert "* there  server: prod (graph kb)" in cli("profile", "list").lines


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("there", ("server", "prod", "http://127.0.0.1:9/", "kb")),
        ("boxed", ("cluster", "box", "s3://bucket/box", None)),
        ("here", ("store", "g.omni", "g.omni", None)),
    ],
)
def test_a_profile_is_shown(name: str, expected: tuple[str | None, ...], cli: Cli, config: Config) -> None:
    config(PROFILES)
    shown = cli("profile", "show", name, "--json").json
    assert list(shown) == ["name", "scope_kind", "target", "endpoint", "default_graph", "output_format"]
    assert (shown["scope_kind"], shown["target"], shown["endpoint"], shown["default_graph"]) == expected


def test_without_a_name_the_defaults_are_shown(cli: Cli, config: Config) -> None:
    assert cli("profile", "show", "--json").json["scope_kind"] == "none"
    config("defaults: {store: here, output: csv}")
    shown = cli("profile", "show", "--json").json
    assert (shown["name"], shown["target"], shown["output_format"]) == ("(defaults)", "here", "csv")
    assert "unknown profile 'x'" in cli("profile", "show", "x").err
