"""The Python API as a whole: opening with options, the past, branches, and the areas; settings go along everywhere."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import omnigraph
from omnigraph.errors import BadRequestError, BranchNotFoundError, ConflictError, ResourceLimitError
from omnigraph.storage.location import Location
from tests.support.s3 import S3Server

SOURCE = Path(omnigraph.__file__).parent
SCHEMA = "node Book { isbn: String @key  title: String?  mood: Vector(2)? }"
QUERIES = """
query all() { match { $b: Book } return { $b.isbn as isbn, $b.title as title } order { $b.isbn } }
query like($text: String) { match { $b: Book } return { $b.isbn as isbn } order { nearest($b.mood, $text) } limit 1 }
query rename($isbn: String, $title: String) { update Book set { title: $title } where isbn = $isbn }
"""
q = omnigraph.queries(QUERIES)


class Moods:
    """An embedding client that knows two words."""

    model = "moods"

    def embed_query(self, text: str, dimension: int) -> NDArray[np.float32]:
        return np.array([1, 0] if text == "calm" else [0, 1], np.float32)


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.init(tmp_path / "graph", SCHEMA, embedder=Moods(), limits=omnigraph.Limits(rows=3))
    books = [{"isbn": "1", "title": "a", "mood": [1.0, 0.0]}, {"isbn": "2", "title": "b", "mood": [0.0, 1.0]}]
    graph.load(books, type="Book", mode="append")
    graph.mutate(q.rename, isbn="2", title="c", actor="ada")
    return graph


def test_the_past_is_read_like_the_present_with_the_same_settings(graph: omnigraph.Graph) -> None:
    past = graph.at(version=2)
    assert isinstance(past, omnigraph.Snapshot)
    assert past.query(q.all)[1] == {"isbn": "2", "title": "b"}
    assert graph.query(q.all)[1] == {"isbn": "2", "title": "c"}
    assert past.query(q.like, text="calm")[0] == {"isbn": "1"}, "with the embedder of the graph"
    assert [b.num_rows for b in past.stream(q.all)] == [2]
    assert past.explain(q.all) == graph.explain(q.all)
    assert past.entity("Book", "2") == past.entity("node:Book", "2")
    assert past.count("Book") == 2
    assert list(past.export()) == list(graph.export(version=2))
    assert graph.at(snapshot=past.commit_id).version == 2
    assert graph.at(time=dt.datetime.now(dt.UTC)).version == graph.at().version == 3
    assert repr(past).endswith("branch 'main', version 2>")
    with pytest.raises(BadRequestError, match="no type 'Bok'; did you mean 'Book'"):
        past.count("Bok")
    with pytest.raises(BadRequestError, match="at most one"):
        graph.at(2, snapshot=past.commit_id)


def test_a_branch_is_worked_on_by_itself(graph: omnigraph.Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        graph.branch("titles")
    work = graph.branch("titles", create=True)
    assert graph.branch(" titles ", create=True).name == work.name == "titles"
    receipt = work.mutate(q.rename, isbn="1", title="X", actor="ada")
    assert receipt.commit is not None
    assert work.at().commit_id == receipt.commit.id
    work.load([{"isbn": "3", "title": "n"}], type="Book", mode="merge")
    assert work.query(q.all).to_dicts()[0] == {"isbn": "1", "title": "X"}
    assert work.query(q.like, text="wild")[0] == {"isbn": "2"}
    assert (work.entity("Book", "3") or {})["title"] == "n"
    assert work.at(version=3).query(q.all)[0]["title"] == "a"
    assert len(list(work.export())) == 3
    assert [b.num_rows for b in work.stream(q.all)] == [3]
    assert work.explain(q.all)
    assert [commit.commit.id for commit in work.history(limit=2).commits][1] == receipt.commit.id
    assert sorted((change.id, change.op) for change in work.diff().changes) == [("1", "update"), ("3", "insert")]
    with pytest.raises(ResourceLimitError):
        work.load([{"isbn": str(n)} for n in range(4)], type="Book", mode="merge")
    assert work.preview_merge().conflicts == ()
    merged = work.merge_into("main", actor="ada", message="titles", delete=True)
    assert merged.branch_deleted
    assert graph.query(q.all)[0]["title"] == "X"
    with pytest.raises(BranchNotFoundError):
        work.query(q.all)
    gone = graph.branch("gone", create=True, source="main")
    gone.delete()
    assert graph.list_branches() == ["main"]
    with pytest.raises(BadRequestError):
        graph.branch("a//b", create=True)


def test_the_areas_are_methods_of_the_graph_under_short_names(graph: omnigraph.Graph) -> None:
    assert graph.schema.show() == SCHEMA
    wider = SCHEMA.replace("title: String?", "title: String?  pages: I32?")
    assert graph.schema.plan(wider).steps
    graph.schema.apply(wider, actor="ada")
    assert graph.schema.show() == wider
    feed = graph.changes.poll(start="beginning", max_commits=3)
    assert feed.blocks
    head = graph.at(version=3)
    assert [change.id for change in graph.changes.of(head.commit_id)] == ["2"]
    lines = io.BytesIO()
    assert graph.changes.baseline(lines).snapshot_commit_id == graph.resolve_snapshot()
    assert graph.maintenance.verify().problems == ()
    assert graph.maintenance.optimize() is not None
    assert graph.maintenance.ensure_indices() == []
    assert graph.maintenance.cleanup(keep_versions=1, dry_run=True) is not None
    assert graph.maintenance.maintain() is not None
    assert graph.maintenance.repair() is not None


def test_a_schema_is_a_text_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.pg").write_text(f"\ufeff{SCHEMA}")
    schemas = (Path("schema.pg"), "schema.pg", "schema.pg\n", str(tmp_path / "schema.pg"), SCHEMA)
    for number, schema in enumerate(schemas):
        for init in (omnigraph.init, omnigraph.Graph.init):
            with init(tmp_path / f"{init.__qualname__}{number}", schema) as graph:
                assert graph.schema.show() == SCHEMA
    (tmp_path / "bad.pg").write_text("node {")
    with pytest.raises(omnigraph.CompileError, match=r"^bad\.pg:1:1: "):
        omnigraph.init(tmp_path / "none", "bad.pg")
    for odd, words in (("a\0.pg", "embedded null byte"), (None, "a schema is a text or the path of a file")):
        with pytest.raises(BadRequestError, match=words):
            omnigraph.init(tmp_path / "none", odd)  # type: ignore[arg-type]
    for missing in ("none.pg", Path("none.pg"), Path("none")):
        with pytest.raises(BadRequestError, match=r"can't read the schema 'none(\.pg)?': No such file"):
            omnigraph.init(tmp_path / "none", missing)
    assert not (tmp_path / "none").exists()


def test_entities_are_counted_where_they_are_asked_for(graph: omnigraph.Graph) -> None:
    work = graph.branch("work", create=True)
    work.load([{"isbn": "3"}], type="Book", mode="append")
    assert (graph.count("Book"), work.count("Book"), graph.count("node:Book", branch="work")) == (2, 3, 3)
    assert (graph.count("Book", version=1), graph.at(1).count("Book")) == (0, 0)
    assert work.head() == work.at().commit_id == graph.resolve_snapshot("work")
    assert work.profile(q.all).rows == 3
    with pytest.raises(BadRequestError, match="no type 'Bok'; did you mean 'Book'"):
        graph.count("Bok")


def test_queries_are_offered_by_name(graph: omnigraph.Graph, tmp_path: Path) -> None:
    (tmp_path / "q.gq").write_text(QUERIES)
    for queries in (tmp_path / "q.gq", str(tmp_path / "q.gq"), q):
        with omnigraph.open(graph.uri, queries=queries, embedder=Moods()) as offering:
            assert [query.name for query in offering.stored_queries().queries] == ["all", "like", "rename"]
            assert offering.invoke("like", {"text": "calm"})[0] == {"isbn": "1"}  # type: ignore[index]
    (tmp_path / "odd.gq").write_text("query odd() { match { $n: Nix } return { $n.id as id } }")
    with pytest.raises(omnigraph.CompileError, match=r"odd\.gq:1:\d+: .*'Nix'"):
        omnigraph.open(graph.uri, queries=tmp_path / "odd.gq").stored_queries()
    assert graph.stored_queries().queries == ()
    with pytest.raises(omnigraph.NotFoundError, match="stored query not found"):
        graph.invoke("all")
    offering = graph.with_queries(q)
    done = offering.invoke("rename", {"isbn": "1", "title": "n"}, idempotency_key="k", actor="ada")
    again = offering.invoke("rename", {"isbn": "1", "title": "n"}, idempotency_key="k", actor="ada")
    assert isinstance(done, omnigraph.MutationReceipt)
    assert isinstance(again, omnigraph.MutationReceipt)
    assert (done.replayed, again.replayed, again.commit) == (False, True, done.commit)
    with pytest.raises(BadRequestError, match="it runs on a branch"):
        offering.invoke("rename", {"isbn": "1", "title": "n"}, version=1)
    with pytest.raises(BadRequestError, match="only stored mutations have a precondition"):
        offering.invoke("all", if_commit=done.commit.id)  # type: ignore[union-attr]


def test_results_are_shown_in_a_line_or_a_few(graph: omnigraph.Graph, tmp_path: Path) -> None:
    """What a person sees of them, and no member that is long or says nothing."""
    graph.load([{"isbn": "3"}], type="Book", mode="append", actor="ada")
    work = graph.branch("work", create=True)
    changed = work.mutate(q.rename, isbn="1", title="n", actor="ada")
    shown = [
        graph, work, graph.at(), graph.schema, graph.changes, graph.maintenance, changed, changed.commit,
        work.mutate(q.rename, isbn="9", title="n"), work.diff(), work.preview_merge(), graph.commits(),
        graph.commit_history(limit=2), graph.create_branch("gone"), graph.delete_branch("gone"), graph.listing(),
        graph.schema.plan(SCHEMA + "node A { b: String }"), graph.schema.apply(SCHEMA), work.merge_into(),
        graph.maintenance.optimize(), graph.maintenance.cleanup(keep_versions=9, dry_run=True),
        graph.maintenance.verify(), graph.maintenance.repair(), graph.maintenance.maintain(),
        graph.changes.poll(start="beginning"), graph.stored_queries(), graph.profile(q.all),
        graph.load([{"isbn": "4"}], type="Book", mode="append"),
    ]  # fmt: skip
    for each in shown:
        text = repr(each)
        assert text.startswith("<"), text
        assert len(text.splitlines()) <= 11, text
        assert all(len(line) <= 160 for line in text.replace(graph.uri, "URI").splitlines()), text
    commit = changed.commit
    assert commit is not None
    assert repr(changed) == f"<rename on 'work': changed 1 node, 0 edges, commit {commit.id}>"
    assert repr(commit) == f"<commit {commit.id}, version 5 of work by ada, {commit.created:%Y-%m-%d %H:%M:%S}Z>"
    assert repr(shown[-1]).startswith(
        "<loaded 1 Book into 'main' by append: 1 inserted, 0 updated, 0 unchanged, commit "
    )
    assert repr(graph.maintenance.verify()).endswith(": clean>")
    assert repr(graph.changes.page(commit.id)) == f"<1 change of commit {commit.id}, the last page>"
    [exported, *_] = graph.export_files(tmp_path / "out", format="csv", types=["Book"])
    assert repr(exported) == f"<4 rows of node:Book in {tmp_path}/out/node.Book.csv>"


def test_the_package_runs_as_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "omnigraph", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"omnigraph {omnigraph.__version__}\n"
    wrong = subprocess.run([sys.executable, "-m", "omnigraph", "nonsense"], capture_output=True, text=True)
    assert (wrong.returncode, "Usage: omnigraph " in wrong.stderr) == (2, True)


def test_a_store_is_reached_by_options_alone(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the environment names the store or its keys: both libraries get the options."""
    bucket = "reached-by-options"
    s3_server.create_bucket(bucket)
    for name in (*s3_server.environment, "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    options = {
        "aws_access_key_id": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "region": "us-east-1",
        "endpoint_url": s3_server.endpoint,
        "allow_http": True,
    }
    uri = f"s3://{bucket}/by-options"
    with omnigraph.init(uri, SCHEMA, storage_options=options) as made:
        made.load([{"isbn": "1"}], type="Book", mode="append")
    with omnigraph.open(uri, storage_options=options) as graph:
        assert graph.query(q.all).to_dicts() == [{"isbn": "1", "title": None}]
        graph.mutate(q.rename, isbn="1", title="t")
        # Data beside the graph are reached with its options.
        s3_server.client().put_object(Bucket=bucket, Key="in/books.csv", Body=b"isbn,title\n2,two\n3,three\n")
        graph.load(f"s3://{bucket}/in/books.csv", type="Book", mode="append")
        assert graph.at().count("Book") == 3
        with pytest.raises(omnigraph.NotFoundError, match="does not exist"):
            graph.load(f"s3://{bucket}/in/none.parquet", type="Book", mode="append")
    with pytest.raises(BadRequestError, match=r"unknown storage option for s3:// locations: .*'aws_sekret'"):
        omnigraph.open(uri, storage_options={**options, "aws_sekret": "x"})
    with pytest.raises(BadRequestError, match="plain http"):
        omnigraph.open(uri, storage_options={**options, "allow_http": False})


def test_given_options_win_over_the_environment() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "e", "AWS_REGION": "r1"}
    assert dict(Location.parse("s3://b/g", environment, {"region": "r2"}).options) == {
        "aws_access_key_id": "e",
        "aws_secret_access_key": "e",
        "aws_session_token": "e",
        "aws_region": "r2",
    }
    own = {"access_key_id": "o", "secret_access_key": "o"}
    assert dict(Location.parse("s3://b/g", environment, own).options) == {
        "aws_access_key_id": "o",
        "aws_secret_access_key": "o",
        "aws_region": "r1",
    }
    assert dict(Location.parse("gs://b/g", {}, {"google_service_account": "k.json"}).options) == {
        "google_service_account": "k.json"
    }
    assert not Location.parse("/tmp/g", {}, own).options


# The package


def test_type_checkers_see_the_names_that_the_package_has() -> None:
    (block,) = (node for node in ast.parse(inspect.getsource(omnigraph)).body if isinstance(node, ast.If))
    declared = {name.name for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert declared == set(omnigraph.__all__) - {"__version__"}


def test_everything_public_can_be_reached_and_says_what_it_is() -> None:
    assert sorted(omnigraph.__all__) == omnigraph.__all__
    for name in omnigraph.__all__:
        found = getattr(omnigraph, name)
        assert name in dir(omnigraph)
        if name != "__version__":
            assert found.__doc__, f"{name} has no docstring"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = omnigraph.nothing  # type: ignore[attr-defined]
    assert {name for name in dir(omnigraph) if not name.startswith("__")} <= set(omnigraph.__all__)


def test_query_handles_load_neither_arrow_nor_lance() -> None:
    script = (
        "import sys, omnigraph; omnigraph.queries('query a($x: String) { delete Book where isbn = $x }').a.bind(x='1');"
    )
    script += "print(*sorted({m.split('.')[0] for m in sys.modules} & {'pyarrow', 'lance', 'numpy', 'obstore'}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


READS_OF_THE_LOG = """
import sys, omnigraph
heavy = {"lance", "pyarrow", "numpy", "pandas", "lark"}
g = omnigraph.open(sys.argv[1])
g.create_branch("side")
assert sorted(g.list_branches()) == ["main", "side"]
g.branch("side").delete()
commit = g.commits().commits[0].graph_commit_id
assert commit == g.branch("main").head() == g.describe_commit(commit).graph_commit_id
assert g.commit_history().commits[0].graph_commit_id == g.snapshot().commit_id == commit
assert g.snapshot().count("Book") == g.count("Book") == g.listing().datasets[0].entity_count == 0
assert "Book" in g.catalog.nodes and "node Book" in g.schema.show()
print(sorted(heavy & sys.modules.keys()), len([name for name in sys.modules if name.split(".")[0] == "omnigraph"]))
"""


def test_a_program_that_asks_only_the_log_loads_neither_arrow_nor_lance(tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "g", "node Book { isbn: String @key }").close()
    program = [sys.executable, "-c", READS_OF_THE_LOG, str(tmp_path / "g")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    loaded, modules = done.stdout.rsplit(" ", 1)
    assert loaded == "[]"
    assert int(modules) <= 75


POINT_QUERY = """
import sys, omnigraph
g = omnigraph.open(sys.argv[1])
query = "query q($k: String) { match { $b: Book { isbn: $k } } return { $b.isbn as isbn } }"
assert g.query(query, k="1").to_arrow().num_rows == 0
names = [name for name in sys.modules if name.split(".")[0] == "omnigraph"]
print(len(names), *names)
"""
UNUSED_BY_A_POINT_QUERY = (
    *("engine.write.load", "engine.write.mutation", "engine.write.change", "engine.history.diff", "engine.export"),
    *("engine.query.search.text", "engine.query.search.vectors", "engine.query.operators.walks"),
    *("storage.tables.staging", "embeddings.client"),
)


def test_a_point_query_imports_neither_writes_nor_searches(tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "g", "node Book { isbn: String @key }").close()
    program = [sys.executable, "-c", POINT_QUERY, str(tmp_path / "g")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    count, *names = done.stdout.split()
    assert {f"omnigraph.{name}" for name in UNUSED_BY_A_POINT_QUERY}.isdisjoint(names)
    assert int(count) <= 185


def test_the_command_line_opens_graphs_as_python_does() -> None:
    """Every command gets the embedder, limits and options that `omnigraph.open` gives; none opens a graph by itself."""
    strays = []
    for path in sorted((SOURCE / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("open", "init", "create"):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if owner in ("Graph", "Workspace", "EngineGraph") or owner.startswith("open_root"):
                    strays.append(f"{path.name}:{node.lineno}")
            if isinstance(node, ast.ImportFrom) and node.module in {
                "omnigraph.engine.graph",
                "omnigraph.engine.workspace",
            }:
                strays.append(f"{path.name}:{node.lineno}")
    assert strays == []


def test_a_branch_that_somebody_else_makes_is_made(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    other = omnigraph.open(graph.uri)
    create = omnigraph.Graph.create_branch

    def raced(self: omnigraph.Graph, name: str, **options: Any) -> Any:
        create(other, name, **options)
        return create(self, name, **options)

    monkeypatch.setattr(omnigraph.Graph, "create_branch", raced)
    assert graph.branch("raced", create=True).name == "raced"
    with pytest.raises(ConflictError):
        graph.create_branch("raced")
