"""Which schema belongs to a file."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from omnigraph.editor.projects import Workspace
from tests.editor.workspaces import TOP, document, workspace

READ = "query q() { match { $p: Person } return { $p.name } }"
CLUSTER = """\
version: 1
graphs:
  kb: {schema: kb.pg, queries: queries}
  notes: {schema: notes.pg, queries: [one.gq]}
policies:
  p: {file: p.policy.yaml, applies_to: [kb, graph.notes]}
pipelines:
  load: {file: load.pipeline.yaml, graph: graph.notes}
"""


def schemas(moment: Workspace, name: str) -> list[str]:
    return [path.name for path in moment.choose_schema(document(moment, name)).schemas]


def test_a_cluster_comes_first() -> None:
    moment = workspace(
        cluster__yaml=CLUSTER,
        other__pg="",
        queries___a__gq=f"// schema: other.pg\n{READ}",
        one__gq=READ,
        p__policy__yaml="",
        load__pipeline__yaml="",
    )
    moment = replace(moment, schema_setting="other.pg")
    assert schemas(moment, "queries/a.gq") == ["kb.pg"]
    assert schemas(moment, "one.gq") == ["notes.pg"]
    assert schemas(moment, "p.policy.yaml") == ["kb.pg", "notes.pg"]
    assert schemas(moment, "load.pipeline.yaml") == ["notes.pg"]


def test_a_cluster_of_the_operator_comes_next() -> None:
    moment = workspace(conf___cluster__yaml=CLUSTER.replace("one.gq", "../a/one.gq"), a___one__gq=READ, a___x__pg="")
    assert schemas(moment, "a/one.gq") == ["x.pg"]
    assert schemas(replace(moment, clusters=(TOP / "conf",)), "a/one.gq") == ["notes.pg"]


def test_a_comment_comes_before_the_setting_and_the_setting_before_the_folder() -> None:
    moment = workspace(a__pg="", q__gq=f"// about readers\n// schema: b/c.pg\n{READ}", r__gq=READ)
    assert schemas(moment, "q.gq") == ["c.pg"]
    assert schemas(moment, "r.gq") == ["a.pg"]
    moment = replace(moment, schema_setting="d/e.pg")
    assert schemas(moment, "q.gq") == ["c.pg"]
    assert moment.choose_schema(document(moment, "r.gq")).schema == TOP / "d" / "e.pg"


def test_a_comment_behind_the_first_query_names_nothing() -> None:
    moment = workspace(a__pg="", q__gq=f"{READ}\n// schema: b.pg")
    assert schemas(moment, "q.gq") == ["a.pg"]


def test_the_nearest_folder_with_a_schema_counts(tmp_path: Path) -> None:
    (tmp_path / "top.pg").write_text("")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "near.pg").write_text("")
    (tmp_path / "a" / "b" / "q.gq").write_text(READ)
    moment = Workspace((tmp_path,))
    read = moment.document(tmp_path / "a" / "b" / "q.gq")
    assert read is not None
    assert moment.choose_schema(read).schema == tmp_path / "a" / "near.pg"
    assert moment.choose_schema(read.__class__(tmp_path / "q.gq", READ)).schema == tmp_path / "top.pg"


def test_folders_above_the_workspace_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "stray.pg").write_text("")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "q.gq").write_text(READ)
    moment = Workspace((tmp_path / "work",))
    read = moment.document(tmp_path / "work" / "q.gq")
    assert read is not None
    assert moment.choose_schema(read).schemas == ()


def test_of_two_graphs_that_share_a_file_a_comment_chooses() -> None:
    shared = CLUSTER.replace("[one.gq]", "[queries/a.gq]")
    moment = workspace(cluster__yaml=shared, queries___a__gq=READ)
    assert schemas(moment, "queries/a.gq") == ["kb.pg", "notes.pg"]
    moment = workspace(cluster__yaml=shared, queries___a__gq=f"// schema: ../notes.pg\n{READ}")
    assert schemas(moment, "queries/a.gq") == ["notes.pg"]
