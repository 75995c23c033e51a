"""`cluster validate`: what a configuration comes to, and everything that is wrong with it. Looks at files only."""

from __future__ import annotations

from omnigraph.api.cluster import ClusterValidated
from omnigraph.cluster.config_file import read_config
from omnigraph.cluster.desired import ReadPipeline, default_deny, load_desired
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.storage_root import CONFIG_FILE


def validate(source: str, read_pipeline: ReadPipeline) -> ClusterValidated:
    try:
        file = read_config(source)
    except ClusterError as problem:
        return ClusterValidated(
            ok=False,
            config_dir=source,
            config_file=f"{source.rstrip('/')}/{CONFIG_FILE}",
            resource_digests={},
            resources=(),
            dependencies=(),
            diagnostics=problem.diagnostics,
        )
    desired = load_desired(file, read_pipeline)
    found = [*desired.found, *(default_deny(desired) if desired.is_valid else ())]
    return ClusterValidated(
        ok=desired.is_valid,
        config_dir=str(file.directory),
        config_file=str(file.file),
        resource_digests=desired.digests,
        resources=desired.listed(),
        dependencies=desired.edges(),
        diagnostics=tuple(found),
    )
