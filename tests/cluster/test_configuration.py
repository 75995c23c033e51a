"""What can be wrong with a configuration: every code of it, where it is reported, and all of them in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.api.enums import Severity
from omnigraph.cluster.resources import Address
from tests.support.cluster_files import PIPELINE, POLICY, QUERIES, SCHEMA, ClusterFiles, codes

ERROR, WARNING = Severity.ERROR, Severity.WARNING
KB = {"kb": {"schema": "kb.pg"}}
FILES = {"kb.pg": SCHEMA, "q/people.gq": QUERIES, "p.yaml": POLICY, "load.yaml": PIPELINE}


def graph(**settings: Any) -> dict[str, Any]:
    return {"graphs": {"kb": {"schema": "kb.pg", **settings}}}


def policy(**settings: Any) -> dict[str, Any]:
    return {"graphs": KB, "policies": {"p": {"file": "p.yaml", "applies_to": ["kb"], **settings}}}


def provider(**settings: Any) -> dict[str, Any]:
    return {"providers": {"embedding": {"e": settings}}}


def pipeline(**settings: Any) -> dict[str, Any]:
    return {"graphs": KB, "pipelines": {"load": {"file": "load.yaml", "graph": "kb", **settings}}}


def bases(*written: tuple[str, str]) -> dict[str, Any]:
    return graph(external_blobs={"allow": [{"base": base, "scope": scope} for base, scope in written]})


S3 = "s3://bucket/photos"
SERVER_RULES = POLICY.replace("[read, change], branch_scope: any", "[graph_list]")
CASES = "version: 1\ncases:\n  - {id: one, actor: ana, action: read, branch: main, expect: deny}\n"

CASES_OF_CONFIG: list[tuple[str, Severity, str, dict[str, Any] | str, dict[str, str | bytes]]] = [
    ("cluster_config_read_error", ERROR, "cluster.yaml", "\udcff", {}),
    ("duplicate_yaml_key", ERROR, "graphs.kb.schema", "version: 1\ngraphs:\n  kb: {schema: a, schema: b}", {}),
    ("future_phase_field", ERROR, "env_file", {"env_file": ".env"}, {}),
    ("removed_streaming_declaration", ERROR, "graphs.kb.streaming", graph(streaming=True), {}),
    ("invalid_cluster_yaml", ERROR, "cluster.yaml", {"novelty": 1}, {}),
    ("unsupported_cluster_config_version", ERROR, "version", {"version": 2}, {}),
    ("empty_metadata_name", ERROR, "metadata.name", {"metadata": {"name": " "}}, {}),
    ("unsupported_state_backend", ERROR, "state.backend", {"state": {"backend": "etcd"}}, {}),
    ("unsupported_cluster_config_version", ERROR, "version", {"version": 2, "novelty": 1}, {}),
    ("invalid_storage_root", ERROR, "storage", {"storage": "s3://"}, {}),
    ("invalid_storage_root", ERROR, "storage", {"storage": "s3:///prefix/"}, {}),
    ("invalid_storage_root", ERROR, "storage", {"storage": " "}, {}),
    ("storage_root_invalid", ERROR, "storage", {"storage": "ftp://host/x"}, {}),
    ("invalid_resource_id", ERROR, "graphs.1kb", {"graphs": {"1kb": {"schema": "kb.pg"}}}, {}),
    ("invalid_resource_id", ERROR, "graphs.kb.queries.a b", graph(queries={"a b": {"file": "q/people.gq"}}), {}),
    ("invalid_resource_id", ERROR, "policies.a.b", {"policies": {"a.b": {"file": "p.yaml", "applies_to": []}}}, {}),
    ("invalid_resource_id", ERROR, "providers.embedding.é", {"providers": {"embedding": {"é": {"kind": "mock"}}}}, {}),
    ("invalid_resource_id", ERROR, "pipelines.-x", {"pipelines": {"-x": {"file": "load.yaml", "graph": "kb"}}}, {}),
    ("unservable_graph_id", ERROR, "graphs.my_kb", {"graphs": {"my_kb": {"schema": "kb.pg"}}}, {}),
    ("unservable_graph_id", ERROR, "graphs.healthz", {"graphs": {"healthz": {"schema": "kb.pg"}}}, {}),
    ("invalid_embedding_provider", ERROR, "providers.embedding.e", provider(kind="cohere", api_key="${K}"), {}),
    ("embedding_api_key_inline", ERROR, "providers.embedding.e.api_key", provider(api_key="sk-hunter2"), {}),
    ("embedding_api_key_required", ERROR, "providers.embedding.e.api_key", provider(kind="openai"), {}),
    ("dangling_embedding_provider_reference", ERROR, "graphs.kb.embedding_provider", graph(embedding_provider="x"), {}),
    ("wrong_kind_reference", ERROR, "graphs.kb.embedding_provider", graph(embedding_provider="graph.kb"), {}),
    ("wrong_kind_reference", ERROR, "policies.p.applies_to[0]", policy(applies_to=["schema.kb"]), {}),
    ("schema_file_missing", ERROR, "graphs.kb.schema", graph(schema="absent.pg"), {}),
    ("schema_file_missing", ERROR, "graphs.kb.schema", graph(), {"kb.pg": b"\xff\xfe"}),
    ("schema_parse_error", ERROR, "graphs.kb.schema", graph(), {"kb.pg": "node Person {"}),
    ("schema_catalog_error", ERROR, "graphs.kb.schema", graph(), {"kb.pg": "edge Knows: Person -> Person"}),
    ("query_dir_empty", WARNING, "graphs.kb.queries", graph(queries="empty"), {"empty/readme.md": ""}),
    ("query_file_missing", ERROR, "graphs.kb.queries", graph(queries="absent.gq"), {}),
    ("query_file_missing", ERROR, "graphs.kb.queries.f.file", graph(queries={"f": {"file": "absent.gq"}}), {}),
    ("query_parse_error", ERROR, "graphs.kb.queries", graph(queries="q"), {"q/bad.gq": "query {"}),
    ("query_parse_error", ERROR, "graphs.kb.queries.f.file", graph(queries={"f": {"file": "x.gq"}}), {"x.gq": "?"}),
    ("duplicate_query_name", ERROR, "graphs.kb.queries.add", graph(queries="q"), {"q/two.gq": QUERIES}),
    ("query_key_mismatch", ERROR, "graphs.kb.queries.x.file", graph(queries={"x": {"file": "q/people.gq"}}), {}),
    ("query_typecheck_error", ERROR, "graphs.kb.queries.add", graph(queries="q"), {"kb.pg": "node Person {x: I32}"}),
    ("query_typecheck_skipped", WARNING, "graphs.kb.queries.add", graph(queries="q"), {"kb.pg": "?"}),
    ("policy_missing_applies_to", ERROR, "policies.p.applies_to", policy(applies_to=[]), {}),
    ("dangling_graph_reference", ERROR, "policies.p.applies_to[1]", policy(applies_to=["kb", "lab"]), {}),
    ("policy_mixed_binding_kinds", ERROR, "policies.p.applies_to", policy(applies_to=["kb", "cluster"]), {}),
    (
        "duplicate_policy_binding",
        ERROR,
        "policies.b.applies_to",
        {"graphs": KB, "policies": {name: {"file": "p.yaml", "applies_to": ["graph.kb"]} for name in ("a", "b")}},
        {},
    ),
    ("policy_file_missing", ERROR, "policies.p.file", policy(file="absent.yaml"), {}),
    ("policy_file_missing", ERROR, "policies.p.tests", policy(tests="absent.yaml"), {}),
    ("policy_invalid", ERROR, "policies.p.file", policy(), {"p.yaml": "version: 7"}),
    ("policy_invalid", ERROR, "policies.p.file", policy(), {"p.yaml": SERVER_RULES}),
    ("policy_invalid", ERROR, "policies.p.file", policy(applies_to=["cluster"]), {}),
    (
        "policy_invalid",
        ERROR,
        "policies.p.file",
        policy(),
        {"p.yaml": POLICY.replace("branch_scope: any", "rows: {Person: 'salary = 1'}")},
    ),
    ("policy_tests_invalid", ERROR, "policies.p.tests", policy(tests="t.yaml"), {"t.yaml": "cases: 1"}),
    ("policy_tests_failed", ERROR, "policies.p.tests", policy(tests="t.yaml"), {"t.yaml": CASES}),
    ("invalid_external_blob_base", ERROR, "graphs.kb.external_blobs.allow[0].base",
     bases(("http://x", "server_safe")), {}),
    ("invalid_external_blob_base", ERROR, "graphs.kb.external_blobs.allow[1].base",
     bases((S3, "server_safe"), ("file:///", "server_safe")), {}),
    ("invalid_external_blob_policy", ERROR, "graphs.kb.external_blobs.allow",
     bases((S3, "server_safe"), (f"{S3}/a", "server_safe")), {}),
    ("external_blob_ingress_default_deny", WARNING, "graphs.kb.external_blobs", graph(), {}),
    ("invalid_pipeline_file", ERROR, "pipelines.load.file", pipeline(file="absent.yaml"), {}),
    ("invalid_pipeline_file", ERROR, "pipelines.load.file", pipeline(), {"load.yaml": "version: 1"}),
    ("pipeline_schema_mismatch", ERROR, "pipelines.load.file", pipeline(), {"kb.pg": "node Book {title: String @key}"}),
    ("unknown_pipeline_graph", ERROR, "pipelines.load.graph", pipeline(graph="lab"), {}),
]  # fmt: skip


def configured(directory: Path, config: dict[str, Any] | str, files: dict[str, str | bytes]) -> ClusterFiles:
    made = ClusterFiles(directory)
    for name, text in {**FILES, **files}.items():
        made.file(name, text)
    if isinstance(config, str):
        made.file("cluster.yaml", config.encode("utf-8", "surrogateescape"))
    else:
        made.config(**{"version": 1, **config})
    return made


@pytest.mark.parametrize(("code", "severity", "path", "config", "files"), CASES_OF_CONFIG)
def test_what_is_wrong_is_said_where_it_is(
    tmp_path: Path,
    code: str,
    severity: Severity,
    path: str,
    config: dict[str, Any] | str,
    files: dict[str, str | bytes],
) -> None:
    report = configured(tmp_path, config, files).validate()
    found = [finding for finding in report.diagnostics if finding.code == code]
    assert (code, severity, path) in {(f.code, f.severity, f.path) for f in found}, report.diagnostics
    assert report.ok is all(finding.severity is WARNING for finding in report.diagnostics)
    assert "hunter2" not in str(report)


def test_a_directory_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ClusterFiles(tmp_path / "made")
    made.directory.rmdir()
    assert codes(made.validate()) == ["config_dir_not_found"]
    monkeypatch.chdir(tmp_path)
    report = ClusterFiles(Path("here")).validate()
    assert report.config_file == str(tmp_path / "here/cluster.yaml")
    assert report.diagnostics[0].message.startswith(f"there is none in {tmp_path}/here; write one")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: cluster.yaml is empty; begin with `version: 1`"),
        ("# nothing\n", "line 1: cluster.yaml is empty; begin with `version: 1`"),
        ("- a\n", "cluster.yaml must hold keys and values"),
        ("version: 1\ngraph: {}\n", "line 2: cluster.yaml has an unknown key 'graph'; did you mean 'graphs'?"),
    ],
)
def test_a_first_attempt_is_told_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    (finding,) = configured(tmp_path, text, {}).validate().diagnostics
    assert finding.message.startswith(said)


def test_a_directory_of_queries_that_can_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs as root may read everything, so the file system has to say no by itself."""
    made = configured(tmp_path, graph(queries="q"), {})

    def refuse(self: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert "query_dir_unreadable" in codes(made.validate())


def test_all_problems_are_found_in_one_pass(tmp_path: Path) -> None:
    config = {
        "metadata": {"name": "x"},
        "providers": {"embedding": {"e": {"kind": "odd"}}},
        "graphs": {"kb": {"schema": "absent.pg", "queries": "q"}, "_": {"schema": "kb.pg"}},
        "policies": {"p": {"file": "absent.yaml", "applies_to": ["nobody"]}},
        "pipelines": {"load": {"file": "load.yaml", "graph": "nowhere"}},
    }
    found = codes(configured(tmp_path, config, {}).validate())
    assert found == [
        "invalid_embedding_provider",
        "schema_file_missing",
        "query_typecheck_skipped",
        "query_typecheck_skipped",
        "unservable_graph_id",
        "dangling_graph_reference",
        "policy_file_missing",
        "unknown_pipeline_graph",
    ]


def test_shape_errors_name_their_lines_and_come_together(tmp_path: Path) -> None:
    text = "version: one\nmetadata: []\nstate: {lock: maybe}\ngraphs:\n  kb: {queries: 7}\n  1: {}\npolicies: {p: }\n"
    report = configured(tmp_path, text, {}).validate()
    assert codes(report) == [*["invalid_cluster_yaml"] * 7, "policy_missing_applies_to"]
    lines = sorted(finding.message.split(":")[0] for finding in report.diagnostics[:-1])
    assert lines == [f"line {number}" for number in (1, 2, 3, 5, 5, 6, 7)]


FORMS: list[Any] = ["q", "q/people.gq", ["q/people.gq"], ["q", "q/people.gq"]]


@pytest.mark.parametrize("queries", FORMS)
def test_forms_of_queries_come_to_the_same(tmp_path: Path, queries: Any) -> None:
    report = configured(tmp_path, graph(queries=queries), {}).validate()
    assert report.ok
    assert set(report.resource_digests) == {"graph.kb", "schema.kb", "query.kb.find", "query.kb.add"}


def test_a_map_takes_one_query_of_a_file(tmp_path: Path) -> None:
    report = configured(tmp_path, graph(queries={"find": {"file": "q/people.gq"}}), {}).validate()
    assert set(report.resource_digests) == {"graph.kb", "schema.kb", "query.kb.find"}


def test_resources_and_what_they_depend_on(tmp_path: Path) -> None:
    config = {
        **provider(kind="mock"),
        **policy(),
        **pipeline(),
        "graphs": {"kb": {"schema": "kb.pg", "queries": "q", "embedding_provider": "e"}},
    }
    report = configured(tmp_path, config, {}).validate()
    assert report.ok
    assert [(r.address, r.kind, r.path) for r in report.resources] == [
        ("graph.kb", "graph", None),
        ("pipeline.load", "pipeline", "load.yaml"),
        ("policy.p", "policy", "p.yaml"),
        ("provider.embedding.e", "embedding_provider", None),
        ("query.kb.add", "query", "q/people.gq"),
        ("query.kb.find", "query", "q/people.gq"),
        ("schema.kb", "schema", "kb.pg"),
    ]
    assert [(edge.source, edge.target) for edge in report.dependencies] == [
        ("graph.kb", "provider.embedding.e"),
        ("pipeline.load", "graph.kb"),
        ("pipeline.load", "schema.kb"),
        ("policy.p", "graph.kb"),
        ("query.kb.add", "graph.kb"),
        ("query.kb.add", "schema.kb"),
        ("query.kb.find", "graph.kb"),
        ("query.kb.find", "schema.kb"),
        ("schema.kb", "graph.kb"),
    ]
    assert all(Address.parse(resource.address) for resource in report.resources)


def test_bases_have_one_spelling(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    local = f"file://{tmp_path}/photos"
    report = configured(tmp_path, bases((f"{S3}/", "server_safe"), (local, "embedded_only")), {}).validate()
    again = configured(tmp_path, bases((S3, "server_safe"), (f"{local}/", "embedded_only")), {}).validate()
    assert report.ok
    assert report.resource_digests == again.resource_digests


@pytest.mark.parametrize("name", ['"a\\0b"', "x" * 300])
def test_a_name_that_no_file_can_have_is_a_missing_file(tmp_path: Path, name: str) -> None:
    graph = f"kb: {{schema: {name}, queries: [{name}]}}"
    text = f"version: 1\ngraphs:\n  {graph}\npolicies:\n  p: {{file: {name}, applies_to: [kb]}}\n"
    codes = {finding.code for finding in configured(tmp_path, text, {}).validate().diagnostics}
    assert {"schema_file_missing", "query_file_missing", "policy_file_missing"} <= codes


def test_missing_files_are_reported_together_with_flaws_of_the_configuration(tmp_path: Path) -> None:
    text = """
version: 1
env_file: .env
novelty: 1
graphs:
  kb: {schema: absent.pg, queries: {f: {file: absent.gq}}, streaming: true}
  lab: {schema: ""}
  bare: {}
policies:
  p: {file: absent.yaml, applies_to: [kb], tests: gone.yaml}
  q: {file: [p.yaml], applies_to: [kb]}
pipelines:
  load: {file: gone.yaml, graph: kb}
"""
    report = configured(tmp_path, text, {}).validate()
    assert not report.ok
    assert sorted((finding.code, finding.path) for finding in report.diagnostics) == sorted(
        [
            ("future_phase_field", "env_file"),
            ("removed_streaming_declaration", "graphs.kb.streaming"),
            *[("invalid_cluster_yaml", "cluster.yaml")] * 4,
            ("schema_file_missing", "graphs.kb.schema"),
            ("query_file_missing", "graphs.kb.queries.f.file"),
            ("policy_file_missing", "policies.p.file"),
            ("duplicate_policy_binding", "policies.q.applies_to"),
            ("invalid_pipeline_file", "pipelines.load.file"),
        ]
    )
    shown = "\n".join(map(str, report.diagnostics))
    assert "graphs.lab.schema is empty; name a file" in shown
    assert "graphs.bare lacks the key 'schema'" in shown
    assert "policies.q.file must be a text, not a list" in shown
