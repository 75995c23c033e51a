"""Where the storage root of a cluster is: given as a URI, or by the `storage:` of a configuration directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.engine.object_store import ObjectStore
from omnigraph.errors import BadRequestError, NotFoundError, StorageError

CONFIG_FILE: Final = "cluster.yaml"


def open_storage_root(source: str) -> ObjectStore | None:
    """The store of a cluster, None when it is a local directory that does not exist."""
    root = storage_root(source)
    try:
        return ObjectStore.open(root)
    except NotFoundError:
        return None
    except (BadRequestError, StorageError) as error:
        raise ClusterError.of("storage_root_invalid", "storage", str(error)) from None


def storage_root(source: str) -> str:
    """A value with `://` is the root itself; any other is a directory whose `cluster.yaml` may name it."""
    if "://" in source:
        return source
    directory = Path(source).expanduser().absolute()
    if not directory.is_dir():
        raise ClusterError.of("config_dir_not_found", str(directory), "it is no directory")
    named = _storage_of(directory / CONFIG_FILE)
    if named is None:
        return str(directory)
    root = named.strip()
    if root not in ("/", "file:///"):
        root = root.rstrip("/")
    if not root or root.endswith(":"):
        raise ClusterError.of(
            "invalid_storage_root", "storage", "it has to name a place: a path, or s3://bucket/prefix"
        )
    return root if "://" in root else str(directory / Path(root).expanduser())


def _storage_of(file: Path) -> str | None:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8 text"
        raise ClusterError.of("cluster_config_read_error", CONFIG_FILE, f"{file}: {reason}") from None
    try:
        config: Any = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ClusterError.of("invalid_cluster_yaml", CONFIG_FILE, f"{where}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ClusterError.of("invalid_cluster_yaml", CONFIG_FILE, "it is no YAML") from None
    if not isinstance(config, dict):
        raise ClusterError.of("invalid_cluster_yaml", CONFIG_FILE, "it has to hold keys and values")
    named = config.get("storage")
    if named is not None and not isinstance(named, str):
        raise ClusterError.of("invalid_storage_root", "storage", "it has to be text")
    return named
