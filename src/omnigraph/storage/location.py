"""Where a graph lives: one URI, understood once, handed to both obstore (objects) and pylance (tables).

Credentials come from the environment the user already has (AWS_*, GOOGLE_*, AZURE_*); both libraries get the same
options, so a graph whose log is reachable has reachable tables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from omnigraph.errors import BadRequestError, StorageError, StorageErrorKind
from omnigraph.storage.local_disk import flush

REMOTE_SCHEMES = ("s3", "gs", "az")

# The seam above retries by itself where a retry is known to be safe; this only rides out a dropped connection.
_RETRIES = 3
_RETRY_FOR = timedelta(seconds=20)
_REQUEST_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True)
class Location:
    """`uri` is what the user wrote, normalised; `scheme` is file, s3, gs or az."""

    uri: str
    scheme: str
    bucket: str
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def parse(uri: str | Path, environment: Mapping[str, str] | None = None) -> Location:
        text = str(uri).strip()
        if not text:
            raise BadRequestError("a graph location must not be empty: give a path, file://, s3://, gs:// or az:// URI")
        environment = os.environ if environment is None else environment
        if "://" not in text:
            path = str(Path(text).expanduser().absolute())
            return Location(os.path.normpath(path), "file", "", os.path.normpath(path))
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
        options = _s3_options(environment) if parts.scheme == "s3" else {}
        normal = f"{parts.scheme}://{parts.netloc}" + (f"/{prefix}" if prefix else "")
        return Location(normal, parts.scheme, parts.netloc, prefix, options)

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

    def open_store(self) -> ObjectStore:
        """The obstore client of the root. A local root must exist already."""
        retry = {"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR}
        client = {"timeout": _REQUEST_TIMEOUT, "allow_http": self.options.get("allow_http", "false")}
        if self.scheme == "file":
            return LocalStore(self.prefix)
        if self.scheme == "s3":
            config = {k: v for k, v in self.options.items() if k.startswith("aws_")}
            return S3Store(
                self.bucket,
                prefix=self.prefix or None,
                config=config,  # type: ignore[arg-type]
                client_options=client,  # type: ignore[arg-type]
                retry_config=retry,  # type: ignore[arg-type]
            )
        if self.scheme == "gs":
            return GCSStore(self.bucket, prefix=self.prefix or None, retry_config=retry)  # type: ignore[arg-type]
        return AzureStore(self.bucket, prefix=self.prefix or None, retry_config=retry)  # type: ignore[arg-type]

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


def _truthy(value: str) -> bool:
    return value.strip().lower() in {"1", "true", "yes", "on"}


def _s3_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Only what is set: without keys both libraries find instance, container or web identity credentials."""
    options: dict[str, str] = {}
    for variable, option in (
        ("AWS_ACCESS_KEY_ID", "aws_access_key_id"),
        ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
        ("AWS_SESSION_TOKEN", "aws_session_token"),
    ):
        if value := environment.get(variable, "").strip():
            options[option] = value
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoints = (environment.get(v, "") for v in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
    endpoint = next((e.strip() for e in endpoints if e.strip()), "")
    if endpoint:
        options["aws_endpoint"] = endpoint
        region = region or "us-east-1"
    if region:
        options["aws_region"] = region
    if _truthy(environment.get("AWS_ALLOW_HTTP", "")):
        options["allow_http"] = "true"
    elif endpoint.startswith("http://"):
        raise BadRequestError(f"the S3 endpoint {endpoint} is plain http; set AWS_ALLOW_HTTP=true to allow that")
    if path_style := environment.get("AWS_S3_FORCE_PATH_STYLE", "").strip():
        options["aws_virtual_hosted_style_request"] = "false" if _truthy(path_style) else "true"
    return options
