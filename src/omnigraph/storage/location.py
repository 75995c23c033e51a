"""Where a graph lives: one URI, understood once, handed to both obstore (objects) and pylance (tables).

Credentials come from the options that a caller gives, else from the environment the user already has (AWS_*, GOOGLE_*,
AZURE_*); both libraries get the same options, so a graph whose log is reachable has reachable tables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from obstore import exceptions as oops
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from omnigraph.errors import BadRequestError, StorageError, StorageErrorKind
from omnigraph.storage.disk.disk_cache import OPTION, SIZE_OPTION, DiskCacheSettings, disk_cache_settings
from omnigraph.storage.local_disk import flush

REMOTE_SCHEMES = ("s3", "gs", "az")

# The seam above retries by itself where a retry is known to be safe; this only rides out a dropped connection.
_RETRIES = 3
_RETRY_FOR = timedelta(seconds=20)
_REQUEST_TIMEOUT = "30s"

# What configures the HTTP client of a store, whichever store it is.
CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
_S3_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_S3_SPELLINGS: Final = {
    "aws_access_key_id": ("access_key_id",),
    "aws_secret_access_key": ("secret_access_key",),
    "aws_session_token": ("session_token", "token", "aws_token"),
    "aws_region": ("region", "default_region", "aws_default_region"),
    "aws_endpoint": ("endpoint", "endpoint_url", "aws_endpoint_url", "aws_endpoint_url_s3"),
    "aws_virtual_hosted_style_request": ("virtual_hosted_style_request",),
    "allow_http": ("aws_allow_http",),
}
_S3_NAMES: Final = {spelling: name for name, spellings in _S3_SPELLINGS.items() for spelling in spellings}


@dataclass(frozen=True, slots=True)
class Location:
    """`uri` is what the user wrote, normalised; `scheme` is file, s3, gs or az."""

    uri: str
    scheme: str
    bucket: str
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    disk_cache: DiskCacheSettings | None = None
    """Where files of a remote graph are kept on this machine."""

    @staticmethod
    def parse(
        uri: str | Path,
        environment: Mapping[str, str] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Location:
        """The location that a URI names. `storage_options` say how its store is reached; a local path needs none."""
        text = str(uri).strip()
        if not text:
            raise BadRequestError("a graph location must not be empty: give a path, file://, s3://, gs:// or az:// URI")
        environment = os.environ if environment is None else environment
        if "://" not in text:
            path = os.path.normpath(Path(text).expanduser().absolute())
            return Location(path, "file", "", path)
        parts = urlsplit(text)
        if parts.scheme == "file":
            if parts.netloc not in ("", "localhost"):
                raise BadRequestError(f"'{text}' names a host; write file:///path for a local directory")
            path = os.path.normpath(unquote(parts.path))
            return Location(path, "file", "", path)
        if parts.scheme not in REMOTE_SCHEMES:
            raise BadRequestError(
                f"'{text}' has the unknown scheme '{parts.scheme}'; use a path, file://, s3://, gs:// or az://"
            )
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise BadRequestError(
                f"'{parts.scheme}://{parts.hostname}' must not carry credentials, a query or a fragment"
            )
        if not parts.netloc:
            raise BadRequestError(f"'{text}' names no bucket")
        prefix = parts.path.strip("/")
        if any(s in ("", ".", "..") for s in prefix.split("/")) and prefix:
            raise BadRequestError(f"'{text}' has an empty, '.' or '..' path segment")
        options = normal_options(parts.scheme, storage_options or {})
        options = _s3_options(environment, options) if parts.scheme == "s3" else options
        normal = f"{parts.scheme}://{parts.netloc}" + (f"/{prefix}" if prefix else "")
        cache = disk_cache_settings(environment, options)
        options = {name: value for name, value in options.items() if name not in (OPTION, SIZE_OPTION)}
        return Location(normal, parts.scheme, parts.netloc, prefix, options, cache)

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def local_root(self) -> Path:
        if not self.is_local:
            raise ValueError(f"{self.uri} is not a local graph")
        return Path(self.prefix)

    def child(self, path: str) -> str:
        """The URI of something below the root, as pylance wants it."""
        return f"{self.uri}/{path}"

    def beside(self, uri: str) -> Location:
        """Another location, reached with the options of this one where both are of one kind of store."""
        other = Location.parse(uri)
        return replace(other, options=self.options) if other.scheme == self.scheme else other

    def open_store(self) -> ObjectStore:
        """The obstore client of the root. A local root must exist already."""
        if self.scheme == "file":
            return LocalStore(self.prefix)
        kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[self.scheme]
        try:
            return kind(  # type: ignore[no-any-return]
                self.bucket,
                prefix=self.prefix or None,
                config={name: value for name, value in self.options.items() if name not in CLIENT_OPTIONS},
                client_options={
                    "timeout": _REQUEST_TIMEOUT,
                    **{name: value for name, value in self.options.items() if name in CLIENT_OPTIONS},
                },
                retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR},
            )
        except oops.UnknownConfigurationKeyError as error:
            raise BadRequestError(
                f"unknown storage option for {self.scheme}:// locations: {str(error).splitlines()[0]}"
            ) from None

    def make_local_root(self) -> list[Path]:
        """Create a local root with its parents; returns what was created, deepest last, so that it can be undone."""
        if not self.is_local:
            return []
        root = self.local_root
        missing = [p for p in (root, *root.parents) if not os.path.exists(p)]
        try:
            root.mkdir(parents=True, exist_ok=True)
            for made in missing:
                flush(str(made.parent))
        except OSError as error:
            raise StorageError(
                StorageErrorKind.CONFIGURATION, f"can't create a graph at '{self.uri}': {error.strerror or error}"
            ) from None
        if not os.access(root, os.W_OK | os.X_OK):
            raise StorageError(StorageErrorKind.CONFIGURATION, f"'{self.uri}' is not writable")
        return missing[::-1]


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where another process finds one table version. The options of the store may hold credentials."""

    uri: str
    version: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def _truthy(value: str) -> bool:
    return value.strip().lower() in {"1", "true", "yes", "on"}


def _s3_options(environment: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Only what is set: without keys both libraries find instance, container or web identity credentials. `overrides`
    win over the environment. Keys come from one place: a key among them never meets a token of the environment."""
    if "aws_access_key_id" in overrides:
        environment = {name: value for name, value in environment.items() if name not in _S3_KEYS}
    options: dict[str, str] = {}
    for variable in _S3_KEYS:
        if value := environment.get(variable, "").strip():
            options[variable.lower()] = value
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoints = (environment.get(v, "") for v in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
    endpoint = overrides.get("aws_endpoint") or next((e.strip() for e in endpoints if e.strip()), "")
    region = overrides.get("aws_region") or region
    if endpoint:
        options["aws_endpoint"] = endpoint
        region = region or "us-east-1"
    if region:
        options["aws_region"] = region
    if _truthy(overrides.get("allow_http") or environment.get("AWS_ALLOW_HTTP", "")):
        options["allow_http"] = "true"
    elif endpoint.startswith("http://"):
        raise BadRequestError(
            f"the S3 endpoint {endpoint} is plain http; set AWS_ALLOW_HTTP=true, or the storage option allow_http, to "
            "allow that"
        )
    if path_style := environment.get("AWS_S3_FORCE_PATH_STYLE", "").strip():
        options["aws_virtual_hosted_style_request"] = "false" if _truthy(path_style) else "true"
    return {**options, **overrides}


def normal_options(scheme: str, storage_options: Mapping[str, object]) -> dict[str, str]:
    """Storage options under the names that both libraries know, in whatever of their usual spellings they come."""
    options: dict[str, str] = {}
    for name, value in storage_options.items():
        plain = str(name).strip().lower()
        plain = _S3_NAMES.get(plain, plain) if scheme == "s3" else plain
        options[plain] = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return options
