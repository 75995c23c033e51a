"""Where the storage root of a cluster is: given as a URI, or by the `storage:` of a configuration directory."""

from __future__ import annotations

from pathlib import Path

import yaml

from omnigraph.cluster.config import CONFIG_FILE as CONFIG_FILE
from omnigraph.cluster.config_text import compose, is_empty
from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.engine.object_store import ObjectStore
from omnigraph.errors import BadRequestError, NotFoundError, StorageError


def open_storage_root(source: str) -> ObjectStore | None:
    """The store of a cluster, None when it is a local directory that does not exist."""
    return open_root(storage_root(source))


def open_root(root: str) -> ObjectStore | None:
    """The same, of the root itself."""
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
    directory = config_directory(source)
    return root_below(directory, _storage_of(directory / CONFIG_FILE))


def shown_directory(source: str) -> str:
    """A configuration directory as reports name it, whether it exists or not."""
    return str(Path(source).expanduser().absolute())


def config_directory(source: str) -> Path:
    directory = Path(shown_directory(source))
    if not directory.is_dir():
        raise ClusterError.of("config_dir_not_found", str(directory), "it is no directory")
    return directory


def root_below(directory: Path, named: str | None) -> str:
    """The root that the `storage:` of a configuration names; without one it is the directory itself."""
    if named is None:
        return str(directory)
    root = named.strip()
    if root not in ("/", "file:///"):
        root = root.rstrip("/")
    scheme, is_uri, place = root.partition("://")
    if not root or root.endswith(":") or (is_uri and scheme != "file" and not place.partition("/")[0]):
        raise ClusterError.of(
            "invalid_storage_root", "storage", "it has to name a place: a path, or s3://bucket/prefix"
        )
    return root if "://" in root else str(directory / Path(root).expanduser())


def read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        reason = f"there is none in {file.parent}; write one, or name the directory that has it"
    except OSError as error:
        reason = f"{file}: {error.strerror or error}"
    except UnicodeDecodeError:
        reason = f"{file}: it is no UTF-8 text"
    raise ClusterError.of("cluster_config_read_error", CONFIG_FILE, reason)


def _storage_of(file: Path) -> str | None:
    """Nothing else of the configuration counts here: a server needs no more of it, however old or new it is."""
    for key, value in compose(read_text(file)).value:
        if isinstance(key, yaml.ScalarNode) and key.value == "storage" and not is_empty(value):
            if not isinstance(value, yaml.ScalarNode) or not value.tag.endswith(":str"):
                raise ClusterError.of("invalid_storage_root", "storage", "it has to be text")
            return str(value.value)
    return None
