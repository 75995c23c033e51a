"""Every public name of the Python API, on a graph that is opened here and on one behind a server.

The names are those that completion shows, so a new one fails here until somebody says what it does in both places. What
only storage can do raises `DirectAccessError` behind a server.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.api import wire
from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    ConflictError,
    DirectAccessError,
    OmniGraphError,
    ResourceLimitError,
)
from tests.client.conftest import WAYS
from tests.server.sample import ADD, AGE, BY_AGE, EVERYBODY, SCHEMA, person

WIDER = SCHEMA.replace("email: String?", "email: String?  nick: String?")
q = omnigraph.queries(f"{EVERYBODY}\n{BY_AGE}\n{ADD}\n{AGE}")
Call = Callable[[Any, str], Any]
"""A call of something on a branch of its own, and what it gives as it is compared."""


def lines(write: Callable[[io.BytesIO], Any]) -> Any:
    out = io.BytesIO()
    return write(out), out.getvalue()


def receipt(made: Any) -> Any:
    """What a write tells, without what differs from one commit to the next."""
    told = wire.to_builtins(made)
    for name in ("commit", "graph_commit_id", "graph_manifest_version", "uri", "branch", "name", "from", "source"):
        told.pop(name, None)
    return told


def plan(made: Any) -> list[str]:
    """A profile without its times."""
    return [made.operator, *(line for child in made.inputs for line in plan(child))]


GRAPH: dict[str, Call] = {
    "query": lambda g, b: g.query(q.by_age, age=36, branch=b).rows(),
    "stream": lambda g, b: list(g.stream(EVERYBODY, branch=b).rows()),
    "explain": lambda g, b: g.explain(EVERYBODY, branch=b),
    "profile": lambda g, b: plan(g.profile(EVERYBODY, branch=b)),
    "entity": lambda g, b: g.entity("Person", "Ada", branch=b),
    "count": lambda g, b: [g.count("Person", branch=b), g.count("edge:Knows"), g.count("node:Note", version=1)],
    "listing": lambda g, b: g.listing(version=2),
    "read_blob": lambda g, b: g.read_blob("node", "Person", "Ada", "photo").read(),
    "export": lambda g, b: list(g.export(types=["Knows"])),
    "export_to": lambda g, b: lines(g.export_to),
    "resolve_snapshot": lambda g, b: g.resolve_snapshot(version=2),
    "version_of": lambda g, b: g.version_of(snapshot=g.resolve_snapshot(version=2)),
    "snapshot": lambda g, b: [g.snapshot(version=2).commit_id, g.snapshot("main").branch],
    "at": lambda g, b: [g.at(2).version, g.at(time=dt.datetime.now(dt.UTC)).version, g.at().branch],
    "branch": lambda g, b: [g.branch(b).head() == g.branch(f" {b}-2 ", create=True, source=b).head()],
    "mutate": lambda g, b: receipt(g.mutate(q.add, branch=b, name="Zoe")),
    "load": lambda g, b: receipt(g.load([{"name": "Dan"}], type="Person", mode="append", branch=b)),
    "load_lenient": lambda g, b: receipt(g.load_lenient(person("Eve", odd=1), mode="append", branch=b)),
    "stored_queries": lambda g, b: g.stored_queries(),
    "invoke": lambda g, b: [g.invoke("everybody").rows(), receipt(g.invoke("add", {"name": "Fay"}, branch=b))],
    "create_branch": lambda g, b: receipt(g.create_branch(f"{b}-x", source=b)),
    "delete_branch": lambda g, b: receipt(g.delete_branch(b)),
    "list_branches": lambda g, b: b in g.list_branches(),
    "merge": lambda g, b: g.merge("main", b).outcome,
    "preview_merge": lambda g, b: g.preview_merge(b).outcome,
    "commits": lambda g, b: g.commits(limit=1, before=3),
    "commit_history": lambda g, b: g.commit_history(limit=1, before=3),
    "describe_commit": lambda g, b: g.describe_commit(g.resolve_snapshot(version=2)),
    "diff": lambda g, b: [g.diff(g.at(1), g.at(2)), g.diff("main", b).changes],
    "schema": lambda g, b: repr(g.schema).split(":")[-1],
    "changes": lambda g, b: repr(g.changes).split(":")[-1],
    "maintenance": lambda g, b: repr(g.maintenance).split(":")[-1],
}  # fmt: skip
BRANCH: dict[str, Call] = {
    "name": lambda w, b: w.name == b,
    "query": lambda w, b: w.query(q.by_age, age=36).rows(),
    "stream": lambda w, b: list(w.stream(q.everybody).rows()),
    "explain": lambda w, b: w.explain(q.everybody),
    "profile": lambda w, b: plan(w.profile(q.everybody)),
    "entity": lambda w, b: w.entity("Person", "Ada"),
    "count": lambda w, b: w.count("Person"),
    "export": lambda w, b: list(w.export(["Knows"])),
    "at": lambda w, b: [w.at(2).version, w.at().version],
    "head": lambda w, b: w.head() == w.at().commit_id,
    "mutate": lambda w, b: receipt(w.mutate(q.add, name="Zoe", age=3)),
    "load": lambda w, b: receipt(w.load(pl.DataFrame({"name": ["Dan"]}), type="Person", mode="append")),
    "history": lambda w, b: len(w.history(limit=2).commits),
    "diff": lambda w, b: [w.diff().changes, [change.op for change in w.diff(w.at(1)).changes]],
    "preview_merge": lambda w, b: w.preview_merge().outcome,
    "merge_into": lambda w, b: w.merge_into().outcome,
    "delete": lambda w, b: receipt(w.delete()),
}
SNAPSHOT: dict[str, Call] = {
    "branch": lambda s, b: s.branch,
    "version": lambda s, b: s.version,
    "commit_id": lambda s, b: s.commit_id,
    "query": lambda s, b: [s.query(q.by_age, age=36).rows(), s.query(EVERYBODY).target],
    "stream": lambda s, b: list(s.stream(q.everybody).rows()),
    "explain": lambda s, b: s.explain(q.everybody),
    "profile": lambda s, b: plan(s.profile(q.everybody)),
    "entity": lambda s, b: s.entity("Person", "Ada"),
    "count": lambda s, b: s.count("Person"),
    "listing": lambda s, b: s.listing(),
    "export": lambda s, b: list(s.export(["Person"])),
}
SCHEMA_AREA: dict[str, Call] = {
    "show": lambda s, b: [s.show(branch=b), s.show(version=1)],
    "plan": lambda s, b: s.plan(WIDER, branch=b),
    "apply": lambda s, b: receipt(s.apply(WIDER, branch=b)),
}
CHANGES: dict[str, Call] = {
    "of": lambda c, b: list(c.of(c.poll(start="beginning").blocks[1].cause.graph_commit_id)),
    "page": lambda c, b: c.page(c.poll(start="beginning").blocks[1].cause.graph_commit_id, max_changes=1),
    "poll": lambda c, b: [c.poll(start="beginning", max_commits=1), c.poll(wait_ms=1).blocks],
    "follow": lambda c, b: list(islice(c.follow(start="beginning", max_changes=2), 2)),
    "baseline": lambda c, b: lines(c.baseline)[1],
}
INDEXES: dict[str, Call] = {"index_status": lambda m, b: m.index_status(b).indexes}
MAINTENANCE: dict[str, Call] = {
    "optimize": lambda m, b: m.optimize(b),
    "ensure_indices": lambda m, b: m.ensure_indices(b),
    "cleanup": lambda m, b: m.cleanup(keep_versions=100, dry_run=True),
    "maintain": lambda m, b: m.maintain(branch=b),
    "verify": lambda m, b: m.verify(),
    "repair": lambda m, b: m.repair(),
}
ONLY_STORAGE: dict[str, Call] = {
    "export_files": lambda g, b: g.export_files("nowhere", types=["Nothing"]),
    "catalog": lambda g, b: g.catalog,
    "id": lambda g, b: g.id,
    "embedder": lambda g, b: g.embedder,
    "limits": lambda g, b: g.limits,
    "external_blobs": lambda g, b: g.external_blobs,
    "with_embedding": lambda g, b: g.with_embedding(None),
    "with_limits": lambda g, b: g.with_limits(omnigraph.Limits()),
    "with_external_blobs": lambda g, b: g.with_external_blobs(omnigraph.ExternalBlobPolicy()),
    "with_queries": lambda g, b: g.with_queries(q),
    "acting_for": lambda g, b: g.acting_for("ada"),
    "to_spark": lambda g, b: g.to_spark("Nothing", object()),
    "register_views": lambda g, b: g.register_views(None, "nothing"),
    "run_pipeline": lambda g, b: g.run_pipeline("nothing.yaml"),
}
MADE_BY = {"init", "open"}
OF_HANDLES = {"uri", "close", *MADE_BY}
OF_SERVERS = {"list_graphs"}


def public(kind: type) -> set[str]:
    made = object.__new__(kind)
    return {name for name in dir(made) if not name.startswith("_")}


def test_no_name_is_left_out() -> None:
    assert public(omnigraph.Graph) - OF_HANDLES == GRAPH.keys() | ONLY_STORAGE.keys()
    served = public(omnigraph.Graph) - MADE_BY - ONLY_STORAGE.keys() | {"export_files"} | OF_SERVERS
    assert public(omnigraph.RemoteGraph) == served
    assert public(omnigraph.AsyncRemoteGraph) - {"aclose"} == public(omnigraph.RemoteGraph) - {"close"}
    with_attributes = public(omnigraph.Branch) | {"name"}
    assert with_attributes == BRANCH.keys()
    assert public(omnigraph.Snapshot) | {"branch"} == SNAPSHOT.keys()
    assert public(omnigraph.RemoteSnapshot) | {"branch", "version", "commit_id"} == SNAPSHOT.keys()
    areas = {"schema": SCHEMA_AREA, "changes": CHANGES, "maintenance": MAINTENANCE | INDEXES}
    for name, table in areas.items():
        assert public(type(getattr(object.__new__(omnigraph.Graph), name))) == table.keys()


VIEWS: dict[str, tuple[dict[str, Call], Callable[[Any, str], Any]]] = {
    "graph": (GRAPH, lambda g, b: g),
    "branch": (BRANCH, lambda g, b: g.branch(b)),
    "snapshot": (SNAPSHOT, lambda g, b: g.at(version=3)),
    "schema": (SCHEMA_AREA, lambda g, b: g.schema),
    "changes": (CHANGES, lambda g, b: g.changes),
    "maintenance": (INDEXES, lambda g, b: g.maintenance),
}


@pytest.mark.parametrize(("view", "name"), [(view, name) for view, (table, _) in VIEWS.items() for name in table])
def test_it_does_the_same_everywhere(ways: dict[str, Any], new_branch: Callable[[], str], view: str, name: str) -> None:
    table, reached = VIEWS[view]
    told = {}
    for way in WAYS:
        branch = new_branch()
        told[way] = wire.to_builtins(table[name](reached(ways[way], branch), branch))
    assert told["remote"] == told["embedded"]
    assert told["async"] == told["embedded"]


@pytest.mark.parametrize("name", [*MAINTENANCE, *ONLY_STORAGE])
def test_what_only_storage_can_do_says_so(ways: dict[str, Any], branch: str, name: str) -> None:
    call = MAINTENANCE.get(name) or ONLY_STORAGE[name]
    for way in WAYS:
        graph = ways[way].maintenance if name in MAINTENANCE else ways[way]
        if way != "embedded":
            with pytest.raises(DirectAccessError, match=f"{name} needs direct storage access: open"):
                call(graph, branch)
            continue
        try:
            call(graph, branch)
        except DirectAccessError:
            pytest.fail("it is opened on its storage")
        except OmniGraphError:
            pass  # it was asked for what is not there, and looked


def test_options_of_a_read_are_for_storage(ways: dict[str, Any]) -> None:
    options = omnigraph.ReadOptions(profile=True)
    for way in ("remote", "async"):
        for reads in (ways[way], ways[way].branch("main"), ways[way].at()):
            with pytest.raises(DirectAccessError):
                reads.query(EVERYBODY, options=options)
        with pytest.raises(DirectAccessError):
            ways[way].at().count("Person", filter="age > 1")
        with pytest.raises(DirectAccessError, match="needs direct storage access"):
            ways[way].load("s3://b/k.csv", type="Person", mode="append")


def test_a_server_takes_the_traversal_work_of_a_read(ways: dict[str, Any]) -> None:
    text = "query q() { match { $a: Person  $a knows $b } return { $b.name as b } }"
    for way in WAYS:
        graph = ways[way]
        enough, little = (omnigraph.ReadOptions(traversal_work=work) for work in (1_000, 0))
        assert graph.query(text, options=enough).rows() == graph.query(text).rows() != []
        with pytest.raises(ResourceLimitError) as refused:
            graph.query(text, options=little)
        assert (refused.value.resource, refused.value.limit) == ("traversal_work", 0)


# Rows of one type, in every form


DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 10_000, tzinfo=dt.UTC)
RECORD: dict[str, Any] = {
    "name": "Ned",
    "age": 7,
    "born": DAY,
    "seen": MOMENT,
    "score": 1.5,
    "tags": ["a", "b"],
    "mood": [0.5, 1.0],
    "photo": b"\x00\xff",
}
PLAIN = {**RECORD, "born": DAY.isoformat(), "seen": MOMENT.isoformat(), "photo": "base64:AP8="}


def _files(directory: Path) -> dict[str, Callable[[], Any]]:
    table = pa.Table.from_pylist([RECORD])
    pq.write_table(table, directory / "rows.parquet")
    (directory / "rows.ndjson").write_text(json.dumps(PLAIN) + "\n")
    cells = {key: json.dumps(value) if isinstance(value, list) else str(value) for key, value in PLAIN.items()}
    pd.DataFrame([cells]).to_csv(directory / "rows.csv", index=False)
    pd.DataFrame([cells]).to_csv(directory / "rows.txt", index=False, sep=";", quotechar="'")
    pd.DataFrame([cells]).to_csv(directory / "rows.tsv", index=False, sep="\t")
    (directory / "rows.csv.gz").write_bytes(gzip.compress((directory / "rows.csv").read_bytes()))
    (directory / "rows.parquet.gz").write_bytes(gzip.compress((directory / "rows.parquet").read_bytes()))
    with pa.OSFile(str(directory / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    (directory / "arrow.gz").write_bytes(gzip.compress((directory / "rows.arrow").read_bytes()))
    odd = omnigraph.CsvDialect(delimiter=";", quote="'")
    return {
        "dictionaries": lambda: ([RECORD], {}),
        "other values": lambda: ([{**RECORD, "age": Decimal(7), "mood": pd.Series([0.5, 1.0]).to_numpy()}], {}),
        "an iterator": lambda: (iter([RECORD]), {}),
        "a table": lambda: (table, {}),
        "a batch": lambda: (table.to_batches()[0], {}),
        "a reader": lambda: (table.to_reader(), {}),
        "polars": lambda: (pl.DataFrame(table), {}),
        "pandas": lambda: (pd.DataFrame([RECORD]), {}),
        "categories": lambda: (table.set_column(0, "name", table["name"].dictionary_encode()), {}),
        "an enum of polars": lambda: (pl.DataFrame(table).with_columns(pl.col("name").cast(pl.Enum(["Ned"]))), {}),
        "runs and views": lambda: (_encoded(table), {}),
        "parquet": lambda: (directory / "rows.parquet", {}),
        "ndjson": lambda: (str(directory / "rows.ndjson"), {}),
        "csv": lambda: (directory / "rows.csv", {}),
        "gz": lambda: (directory / "rows.csv.gz", {}),
        "parquet in gz": lambda: (directory / "rows.parquet.gz", {}),
        "arrow in gz": lambda: (directory / "arrow.gz", {"format": "arrow"}),
        "tsv": lambda: (f"file://{directory}/rows.tsv", {}),
        "a dialect": lambda: (directory / "rows.txt", {"csv": odd, "format": "csv"}),
        "an open file": lambda: (open(directory / "rows.csv", "rb"), {}),
        "an open text": lambda: (io.StringIO(json.dumps(PLAIN)), {"format": "ndjson"}),
    }  # fmt: skip


FORMS = (
    *("dictionaries", "other values", "an iterator", "a table", "a batch", "a reader", "polars", "pandas"),
    *("categories", "an enum of polars", "runs and views", "parquet", "ndjson", "csv", "gz", "parquet in gz"),
    *("arrow in gz", "tsv", "a dialect", "an open file", "an open text"),
)


def _encoded(table: pa.Table) -> pa.Table:
    """The same rows in types that save memory."""
    runs = pa.RunEndEncodedArray.from_arrays([1], pa.array([7]))
    tags = pa.array(table["tags"].to_pylist(), pa.list_view(pa.string()))
    names = table["name"].cast(pa.string_view())
    return table.set_column(1, "age", runs).set_column(5, "tags", tags).set_column(0, "name", names)


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], Any]]:
    return _files(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_loaded_in_every_form(
    ways: dict[str, Any], new_branch: Callable[[], str], forms: dict[str, Callable[[], Any]], form: str
) -> None:
    seen = []
    for way in WAYS:
        data, options = forms[form]()
        branch = new_branch()
        made = ways[way].load(data, type="Person", mode="append", branch=branch, idempotency_key=branch, **options)
        assert (made.nodes_loaded, made.uri, made.branch) == ({"Person": 1}, None, branch)
        blob = ways[way].read_blob("node", "Person", "Ned", "photo", branch=branch).read()
        seen.append((ways[way].entity("Person", "Ned", branch=branch), blob))
        data, options = forms[form]()
        again = ways["embedded"].load(
            data, type="Person", mode="append", branch=branch, idempotency_key=branch, **options
        )
        assert again.replayed, "the same rows are the same request, wherever they are given"
    assert seen == [seen[0]] * 3
    assert seen[0][1] == b"\x00\xff"


def test_edges_and_ids_are_loaded(g: Any, branch: str) -> None:
    made = g.load([{"src": "Ada", "dst": "Cy", "since": DAY}], type="Knows", mode="append", branch=branch)
    assert made.edges_loaded == {"Knows": 1}
    node = UUID("12345678123456781234567812345678")
    g.load(iter([{"id": node, "text": "t"}]), type="Note", mode="append", branch=branch)
    assert g.entity("Note", str(node), branch=branch)["text"] == "t"


def test_a_row_that_is_wrong_is_named_as_it_is_here(ways: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,age\nA,1\nB,old\n")
    pq.write_table(pa.table({"name": ["A", "B"], "age": [1, 200]}), tmp_path / "people.parquet")
    for data in (file, tmp_path / "people.parquet", pa.table({"name": ["A", None]}), [{"name": "A"}, {"name": 5}]):
        told = []
        for way in WAYS:
            with pytest.raises(omnigraph.ConstraintError) as caught:
                ways[way].load(data, type="Person", mode="append")
            told.append((str(caught.value), caught.value.fields))
        assert told == [told[0]] * 3


# Values that JSON does not have


SET = """query set_values(
  $name: String, $email: String?, $score: F64?, $tags: [String]?, $born: Date?, $seen: DateTime?
) {
  update Person set { email: $email, score: $score, tags: $tags, born: $born, seen: $seen } where name = $name
}"""
BEFORE_YEAR_ONE = dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]

PARAMETERS: dict[str, Any] = {
    "nan": {"score": float("nan")},
    "infinity": {"score": float("-inf")},
    "a NaN of NumPy": {"score": np.float32("nan")},
    "bytes": {"email": b"Zed"},
    "a view": {"email": memoryview(b"Zed")},
    "a decimal in a text": {"email": Decimal("1.5")},
    "a decimal": {"score": Decimal("1.5")},
    "a duration": {"email": dt.timedelta(1)},
    "a time": {"email": dt.time(1)},
    "a set": {"tags": {"a"}},
    "an object": {"email": object()},
    "a path": {"email": Path("x")},
    "half a character": {"email": "a\ud800"},
    "depth": {"tags": DEEP},
    "digits": {"score": 10**5000},
    "nanoseconds": {"seen": np.datetime64("2020-01-01T01:02:03.000000001")},
    "a day": {"born": np.datetime64("2024-02-29"), "seen": np.datetime64("2024-02")},
    "no moment": {"seen": np.datetime64("NaT"), "born": pd.NaT, "score": pd.NA},
    "a moment too far": {"seen": np.datetime64("20000-01-01")},
    "before year one": {"seen": BEFORE_YEAR_ONE},
    "Arrow and Polars": {"email": pa.scalar("x"), "tags": pl.Series(["a"])},
    "objects of NumPy": {"tags": np.array(["a", "b"], object)},
}  # fmt: skip


@pytest.mark.parametrize("value", PARAMETERS)
def test_a_parameter_is_stored_or_refused_alike(
    ways: dict[str, Any], new_branch: Callable[[], str], value: str
) -> None:
    params = {"name": "Ada", "score": 2.5, "tags": ["t"], **PARAMETERS[value]}
    told = []
    for way in WAYS:
        branch = new_branch()
        try:
            ways[way].mutate(SET, params=params, branch=branch)
        except BadRequestError:
            told.append(None)
        else:
            told.append(ways[way].entity("Person", "Ada", branch=branch))
    assert told == [told[0]] * 3


def test_half_a_character_in_a_query_is_refused(ways: dict[str, Any]) -> None:
    for way in WAYS:
        with pytest.raises(BadRequestError):
            ways[way].query(EVERYBODY.replace("as age", "as \ud800"))


VALUES: dict[str, Any] = {
    "nan": {"score": float("nan")},
    "infinity": {"score": float("inf")},
    "nan in a date": {"born": float("nan")},
    "nan in a vector": {"mood": [0.5, float("nan")]},
    "bytes in a text": {"email": b"abc"},
    "bytes in a list": {"tags": [b"abc"]},
    "bytes in a number": {"age": bytearray(b"7")},
    "bytes of a blob": {"photo": memoryview(b"abc"), "seen": MOMENT, "age": 7, "mood": [1, 2.5]},
    "a decimal in a text": {"email": Decimal("1.5")},
    "a decimal in a list": {"tags": [Decimal("0.1")]},
    "decimals": {"age": Decimal("7.0"), "score": Decimal("0.1")},
    "an endless decimal": {"score": Decimal("Infinity")},
    "no decimal": {"score": Decimal("sNaN")},
    "nanoseconds": {"seen": np.datetime64("2020-01-01T01:02:03.000000001")},
    "a day": {"born": np.datetime64("2024-02-29"), "seen": np.datetime64("2024-02")},
    "no moment": {"seen": np.datetime64("NaT"), "born": pd.NaT, "score": pd.NA},
    "a moment too far": {"seen": np.datetime64("20000-01-01")},
    "before year one": {"seen": BEFORE_YEAR_ONE},
    "depth": {"tags": DEEP},
    "Arrow and Polars": {"email": pa.scalar("x"), "tags": pl.Series(["a"]), "mood": pa.scalar([0.5, 1.0])},
    "a set": {"tags": {"a"}},
    "a duration": {"email": dt.timedelta(1)},
    "other names": {5: "x"},
}  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_a_value_of_a_row_is_stored_or_refused_alike(
    ways: dict[str, Any], new_branch: Callable[[], str], value: str
) -> None:
    told = []
    for way in WAYS:
        branch = new_branch()
        rows = [{"name": "Ned"}, {"name": "Zed", **VALUES[value]}]
        try:
            ways[way].load(rows, type="Person", mode="append", branch=branch)
        except omnigraph.ConstraintError as error:
            told.append(error.line)
        else:
            told.append(ways[way].entity("Person", "Zed", branch=branch))
    assert told == [told[0]] * 3


def test_a_number_that_is_not_finite_is_refused_in_the_same_words(ways: dict[str, Any]) -> None:
    for way in WAYS:
        with pytest.raises(omnigraph.ConstraintError, match=r"'score'.*NaN is not finite, which no column stores") as e:
            ways[way].load(iter([{"name": "A"}, {"name": "B", "score": float("nan")}]), type="Person", mode="append")
        assert (e.value.line, e.value.property) == (2, "score")


def test_rows_with_bytes_may_come_from_an_iterator_and_refer_to_blobs(
    ways: dict[str, Any], new_branch: Callable[[], str]
) -> None:
    rows = [{"name": "A", "photo": b"\x00\xff", "age": 1}, {"name": "B", "photo": "base64:AP8="}, {"name": "C"}]
    for way in WAYS:
        branch = new_branch()
        ways[way].load(iter(rows), type="Person", mode="append", branch=branch)
        photos = [ways[way].read_blob("node", "Person", name, "photo", branch=branch).read() for name in "AB"]
        assert photos == [b"\x00\xff"] * 2
    for way in ("remote", "async"):
        late = ({"name": f"p{number}", **({"photo": b"x"} if number == 1500 else {})} for number in range(1600))
        with pytest.raises(BadRequestError, match="row 1501: it holds bytes and the rows before it do not"):
            ways[way].load(late, type="Person", mode="append")
        with pytest.raises(BadRequestError, match=r"rows 1 to 2: property 'age': .*give them as an Arrow table"):
            ways[way].load([{"photo": b"x", "age": 1}, {"age": "2"}], type="Person", mode="append")


# Graph records


def test_records_that_cannot_be_read_are_refused_alike(ways: dict[str, Any], tmp_path: Path) -> None:
    for data, words in (
        (tmp_path / "nope.jsonl", r"can't read '.*nope\.jsonl': No such file"),
        (tmp_path, "can't read '.*': Is a directory"),
        (person("A") + "\n\ud800", "the input is not valid Unicode: surrogates not allowed"),
        ([person("A"), {"name": "B"}], "dictionaries are rows of one type"),
        ([5], "can't load graph records from 'int'"),
        (None, "can't load graph records from 'NoneType'"),
    ):
        for way in WAYS:
            for load in (ways[way].load, ways[way].load_lenient):
                with pytest.raises(BadRequestError, match=words):
                    load(iter(data) if isinstance(data, list) else data, mode="append")


def test_records_come_in_every_form(ways: dict[str, Any], new_branch: Callable[[], str], tmp_path: Path) -> None:
    (tmp_path / "people.jsonl").write_text(person("Fay"))
    for way in WAYS:
        branch = new_branch()
        for data in (tmp_path / "people.jsonl", bytearray(person("Fay"), "utf-8")):
            assert ways[way].load(data, mode="merge", branch=branch).total_entities == 1
        pieces = iter([memoryview(b'{"type": "Note",'), '"data": {"text": "t"}}'])
        for data in (tmp_path / "people.jsonl", pieces):
            assert ways[way].load_lenient(data, mode="merge", branch=branch).total_entities == 1


def test_a_waiting_iterator_is_not_read_by_the_event_loop(ways: dict[str, Any], branch: str) -> None:
    readers = []

    def rows() -> Iterator[dict[str, Any]]:
        readers.append(threading.get_ident())
        yield {"name": "Fay"}

    ways["async"].load(rows(), type="Person", mode="append", branch=branch)
    assert readers != [ways["async"]._thread.ident]


def test_a_scope_of_unknown_kinds_is_refused() -> None:
    with pytest.raises(BadRequestError, match="unknown kind 'vertex'; use one of: edge, node"):
        omnigraph.ChangeScope(kinds=frozenset({"vertex"}))
    with pytest.raises(BadRequestError, match="unknown operation 'upsert'; use one of: delete, insert, update"):
        omnigraph.ChangeScope(ops=frozenset({"upsert"}))  # type: ignore[arg-type]
    assert omnigraph.ChangeScope(kinds=frozenset({"node"})) == omnigraph.ChangeScope.of(kinds=["node"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda g: g.query(Path("q.gq")), "a query is a text or a handle, not 'PosixPath'; omnigraph.queries"),
        (lambda g: g.mutate(None), "a query is a text or a handle, not 'NoneType'"),
        (lambda g: g.branch(None), "the name of a branch is a text, not 'NoneType'"),
        (lambda g: g.entity("Person", None), "an id is a text, not 'NoneType'"),
    ],
)
def test_what_is_not_a_text_is_refused(g: Any, call: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        call(g)


def test_an_integer_names_the_node_with_that_key(g: Any, branch: str) -> None:
    g.load([{"name": "9007199254740993"}], type="Person", mode="append", branch=branch)
    assert g.entity("Person", 9007199254740993, branch=branch)["name"] == "9007199254740993"


# Branches that come and go


def test_a_branch_that_somebody_else_makes_is_made(ways: dict[str, Any], branch: str) -> None:
    graph = ways["remote"]
    made = graph.branch(f"{branch}-new", create=True, source=branch)
    assert repr(made) == f"<branch '{branch}-new' of {graph.uri}>"
    assert graph.branch(f"{branch}-new", create=True).name == made.name
    made.delete()
    with pytest.raises(BranchNotFoundError):
        made.query(q.everybody)
    with pytest.raises(BadRequestError, match="actor 'ada' is not allowed"):
        graph.branch(f"{branch}-new", create=True, actor="ada")
    with pytest.raises((ConflictError, BadRequestError)):
        graph.branch(f"{branch}/below", create=True)


@pytest.fixture
def new_branch(served_graph: omnigraph.Graph, branch: str) -> Callable[[], str]:
    made = iter(range(9))

    def make() -> str:
        name = f"{branch}-{next(made)}"
        served_graph.create_branch(name)
        return name

    return make


def test_following_embedded_waits_for_what_happens(served_graph: omnigraph.Graph, branch: str) -> None:
    cursor = served_graph.changes.poll(branch=branch).cursor
    feed = served_graph.changes.follow(branch=branch, cursor=cursor)
    served_graph.mutate(ADD, params={"name": "Mia"}, branch=branch)
    first = next(feed)
    assert [change.id for change in first.blocks[0].changes] == ["Mia"]
    assert served_graph.changes.poll(branch=branch, cursor=first.cursor, wait_ms=30).blocks == ()


@pytest.mark.parametrize("way", ["embedded", "remote"])
def test_a_feed_begins_with_the_call(ways: dict[str, Any], branch: str, way: str) -> None:
    graph = ways[way]
    feeds = [graph.changes.follow(branch=branch), graph.changes.follow(branch=branch)]
    graph.mutate(ADD, params={"name": "Mia"}, branch=branch)
    for feed in feeds:
        assert [change.id for change in next(feed).blocks[0].changes] == ["Mia"]
    with pytest.raises(BranchNotFoundError):
        graph.changes.follow(branch="nope")
