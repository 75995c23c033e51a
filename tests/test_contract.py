"""The contract package: pure, cheap to import, complete for the wire, and implemented by `Graph`."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest

import omnigraph.api
from omnigraph.api import wire
from omnigraph.api.branches import MergeResult
from omnigraph.api.commits import CommitReceipt
from omnigraph.api.graph import GraphApi
from omnigraph.api.maintenance import CleanupReport, MaintenanceReport, OptimizeReport, TableOptimized

MODULES = [module.name for module in pkgutil.walk_packages(omnigraph.api.__path__, "omnigraph.api.")]
HEAVY = {"pyarrow", "lance", "numpy", "obstore", "lark", "pandas", "pyspark", "httpx", "fastapi", "rich"}


def loaded_by(statement: str) -> set[str]:
    script = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def structs() -> Iterator[type[msgspec.Struct]]:
    for name in MODULES:
        module = importlib.import_module(name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == name:
                yield value


def test_importing_the_contract_loads_nothing_heavy() -> None:
    loaded = loaded_by(f"import {', '.join(MODULES)}")
    assert HEAVY.isdisjoint({name.split(".")[0] for name in loaded})
    ours = {name for name in loaded if name.startswith("omnigraph") and not name.startswith("omnigraph.api")}
    assert ours == {"omnigraph", "omnigraph.errors", "omnigraph.dates"}


def test_the_contract_costs_little_more_than_msgspec() -> None:
    """Counted in modules, which no slow machine changes: the whole contract against its only dependency."""
    alone, whole = loaded_by("import msgspec, pathlib, datetime, re"), loaded_by(f"import {', '.join(MODULES)}")
    own = {name for name in whole if name.startswith("omnigraph")}
    assert len(whole - own - alone) <= 0.2 * len(alone)


def test_help_loads_neither_the_contract_structs_nor_anything_heavy() -> None:
    loaded = loaded_by("from omnigraph.cli.main import run\nrun(['--help'])")
    names = {name.split(".")[0] for name in loaded}
    assert HEAVY.isdisjoint(names)
    assert "msgspec" not in names
    assert {name for name in loaded if name.startswith("omnigraph.api.")} == {"omnigraph.api.enums"}


def test_structs_are_immutable() -> None:
    assert [shape.__name__ for shape in structs() if not shape.__struct_config__.frozen] == []


def test_no_two_structs_share_a_name_on_the_wire() -> None:
    names = [wire.wire_name(shape) for shape in structs()]
    assert sorted(names) == sorted(set(names))


def test_the_schema_of_every_struct_can_be_made() -> None:
    components = wire.schema_components(structs())
    assert list(components) == sorted(components)
    text = json.dumps(components)
    assert "$defs" not in text
    for reference in set(find_references(components)):
        assert reference.removeprefix("#/components/schemas/") in components
    commit = components["CommitOutput"]
    assert commit["title"] == "CommitOutput"
    assert "commit" not in components["BranchMergeOutput"]["properties"]


def find_references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from find_references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from find_references(value)


COMPONENTS = [
    "BlobRangeOutput",
    "BranchCreateOutput",
    "BranchCreateRequest",
    "BranchDeleteOutput",
    "BranchListOutput",
    "BranchMergeOutput",
    "BranchMergeRequest",
    "ChangeBaselineOutput",
    "ChangeBaselineRecord",
    "ChangeBaselineRequest",
    "ChangeBlockOutput",
    "ChangeCauseOutput",
    "ChangeDiffRefusalOutput",
    "ChangeEndpointsOutput",
    "ChangeFeedGapOutput",
    "ChangeFeedOutput",
    "ChangeImageOutput",
    "ChangeOutput",
    "ChangeRequest",
    "ChangeTypeOutput",
    "CommitChangesOutput",
    "CommitListOutput",
    "CommitOutput",
    "EntityChangeOutput",
    "ErrorOutput",
    "ExportRequest",
    "ExternalBlobSourceOutput",
    "GraphBatchDeclarationOutput",
    "GraphInfo",
    "GraphListResponse",
    "HealthOutput",
    "IngestOutput",
    "IngestRequest",
    "InvokeStoredQueryRequest",
    "KeyConflictOutput",
    "MergeConflictOutput",
    "ParamDescriptor",
    "PreconditionFailureOutput",
    "PublishedDatasetVersionConflictOutput",
    "QueriesCatalogOutput",
    "QueryCatalogEntry",
    "QueryRequest",
    "ReadOutput",
    "ReadSetConflictOutput",
    "ReadTargetOutput",
    "RecoveryRequiredOutput",
    "ResourceLimitOutput",
    "SchemaApplyOutput",
    "SchemaApplyRequest",
    "SchemaOutput",
    "SnapshotDatasetOutput",
    "SnapshotOutput",
]


def test_the_components_of_the_http_contract_are_there_by_name() -> None:
    known = {wire.wire_name(shape) for shape in structs()}
    assert set(COMPONENTS) <= known


# What stays in the process


COMMIT = CommitReceipt("C2", None, 2, "C1", None, None, 7)


def test_local_fields_never_travel_also_from_within() -> None:
    optimized = OptimizeReport.of("g", "side", (TableOptimized(type_key="node:A"),), COMMIT)
    report = MaintenanceReport({}, optimized, CleanupReport("g", 1, None, (), dry_run=True))
    told = wire.to_builtins(report)
    assert set(told["optimized"]) == {"uri", "datasets"}
    assert "dry_run" not in told["cleaned"]
    assert json.loads(wire.encode(report)) == told
    assert json.loads(wire.encode([report, {"a": report}])) == [told, {"a": told}]
    received = wire.decode(wire.encode(report), MaintenanceReport)
    assert received.optimized is not None
    assert (received.optimized.commit, received.optimized.datasets) == (None, optimized.datasets)


def test_a_local_field_has_a_default_to_fall_back_on() -> None:
    for shape in structs():
        for field in msgspec.structs.fields(shape):
            if wire.LOCAL in getattr(field.type, "__metadata__", ()):
                assert not field.required, f"{shape.__name__}.{field.name}"


def test_unknown_members_are_ignored_and_wrong_ones_refused() -> None:
    from omnigraph.errors import BadRequestError

    text = b'{"source":"a","target":"b","outcome":"merged","actor_id":null,"of_tomorrow":1}'
    assert wire.decode(text, MergeResult).outcome == "merged"
    with pytest.raises(BadRequestError, match=r"not a valid BranchMergeOutput: .*outcome"):
        wire.decode(text.replace(b"merged", b"mangled"), MergeResult)


class _Holder(msgspec.Struct, frozen=True):
    secret: Annotated[int, wire.LOCAL] = 1


def test_encoding_a_list_of_structs_strips_each() -> None:
    assert wire.encode([_Holder(), _Holder(2)]) == b"[{},{}]"


# The graph


DECLARED = [name for name in vars(GraphApi) if not name.startswith("_")]


@pytest.mark.parametrize("name", DECLARED)
def test_every_method_is_declared_once(name: str) -> None:
    """Only methods that `GraphApi` leaves abstract are written again, with the same parameters."""
    import omnigraph

    promised = inspect.getattr_static(GraphApi, name)
    assert promised.__doc__
    for kind in (omnigraph.Graph, omnigraph.RemoteGraph):
        made = inspect.getattr_static(kind, name)
        assert made is promised or name in GraphApi.__abstractmethods__
        assert list(inspect.signature(made).parameters) == list(inspect.signature(promised).parameters)
    if name != "close":
        of_async = inspect.getattr_static(omnigraph.AsyncRemoteGraph, name)
        assert list(inspect.signature(of_async).parameters) == list(inspect.signature(promised).parameters)


def test_names_that_are_no_text_can_be_told() -> None:
    from omnigraph.api.service.http import ErrorOutput
    from omnigraph.errors import NotFoundError

    told = wire.to_builtins(ErrorOutput.of(NotFoundError("no file '\udcff'")))
    assert told["error"] == "no file '\udcff'"


def test_everything_the_pipeline_exports_is_where_it_says() -> None:
    from omnigraph import pipeline

    assert [name for name in pipeline.__all__ if getattr(pipeline, name, None) is None] == []


def test_importing_the_client_loads_neither_the_engine_nor_arrow() -> None:
    loaded = loaded_by("import omnigraph.client, omnigraph; omnigraph.connect")
    assert (HEAVY - {"httpx", "rich"}).isdisjoint({name.split(".")[0] for name in loaded})
    rooms = {name.split(".")[1] for name in loaded if name.startswith("omnigraph.")}
    assert rooms == {"api", "client", "dates", "errors", "process", "remote"}
