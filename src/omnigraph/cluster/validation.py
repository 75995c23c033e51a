"""`cluster validate`: what a configuration comes to, and everything that is wrong with it. Looks at files only."""

from __future__ import annotations

from pathlib import Path

from omnigraph.api.cluster import ClusterValidated, is_ok
from omnigraph.cluster.config_file import ConfigFile, survey_config
from omnigraph.cluster.desired import Desired, ReadPipeline, default_deny, load_desired
from omnigraph.cluster.diagnostics import ClusterError, Diagnostic, error
from omnigraph.cluster.storage_root import CONFIG_FILE, shown_directory
from omnigraph.engine.object_store import normal_uri
from omnigraph.errors import BadRequestError


def validate(source: str, read_pipeline: ReadPipeline) -> ClusterValidated:
    desired: Desired | None = None
    found: list[Diagnostic] = []
    try:
        file = survey_config(source)
        desired = load_desired(file, read_pipeline)
        found += [*(() if file.found else _storage_findings(file)), *desired.found]
        if is_ok(tuple(found)):
            found += default_deny(desired)
    except ClusterError as problem:
        found += problem.diagnostics
    directory = shown_directory(source)
    return ClusterValidated(
        ok=is_ok(tuple(found)),
        config_dir=directory,
        config_file=str(Path(directory) / CONFIG_FILE),
        resource_digests=desired.digests if desired is not None else {},
        resources=desired.listed() if desired is not None else (),
        dependencies=desired.edges() if desired is not None else (),
        diagnostics=tuple(found),
    )


def _storage_findings(file: ConfigFile) -> list[Diagnostic]:
    """Whether the storage root can be understood; nobody goes there."""
    try:
        normal_uri(file.storage_root)
    except BadRequestError as problem:
        return [error("storage_root_invalid", "storage", str(problem))]
    return []
