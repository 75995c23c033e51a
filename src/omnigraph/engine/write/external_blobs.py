"""The policy for external objects: the allow-list of a handle, and the rules of its URIs.

Pure, except that a local file is resolved through its symlinks: the file itself is admitted, so changing a link later
has no effect. Errors never show credentials, a query or a fragment.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from urllib.parse import quote, unquote

from omnigraph.errors import BadRequestError, ExternalBlobPolicyError, ExternalBlobSourceError, ResourceLimitError

LONGEST_URI = 64 << 10
REDACTED = "<redacted>"

_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/?#]*)(?P<path>[^?#]*)(?P<rest>[?#].*)?", re.DOTALL
)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Scope(StrEnum):
    """Where a base counts: in every context, or only when the graph is embedded in the caller's own process."""

    SERVER_SAFE = "server_safe"
    EMBEDDED_ONLY = "embedded_only"


@dataclass(frozen=True, slots=True)
class ExternalUri:
    """A URI that obeys the rules, taken apart. `parts` are decoded path components."""

    scheme: str
    bucket: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        path = "/".join(quote(part, safe="!$&'()*+,;=:@-._~") for part in self.parts)
        return f"{self.scheme}://{self.bucket}/{path}"

    @property
    def file(self) -> Path:
        return Path("/", *self.parts)

    def lies_below(self, base: ExternalUri) -> bool:
        """Strictly, and by whole components: /data/a is not below /data/ab, nor below itself."""
        is_same_bucket = (self.scheme, self.bucket) == (base.scheme, base.bucket)
        return is_same_bucket and self.parts != base.parts and self.parts[: len(base.parts)] == base.parts

    @staticmethod
    def parse(text: str) -> ExternalUri:
        if (size := len(text.encode("utf-8", "surrogatepass"))) > LONGEST_URI:
            raise ResourceLimitError("external Blob URI bytes", LONGEST_URI, size)
        parsed = _parse(text)
        if isinstance(parsed, str):
            raise ExternalBlobPolicyError(display_uri(text), parsed)
        return parsed


def _parse(text: str) -> ExternalUri | str:
    """The parts of a URI, or the rule that it breaks."""
    match = _URI.fullmatch(text)
    if text != text.strip() or "\\" in text or any(c < " " for c in text):
        return "it holds a backslash, a control character or surrounding whitespace"
    if match is None:
        return "it is not an absolute URI such as s3://bucket/key"
    scheme, host, path = match["scheme"].lower(), match["host"], match["path"]
    if scheme not in ("s3", "file"):
        return f"the scheme '{scheme}' is neither s3 nor file"
    if "@" in host or ":" in host:
        return "it carries user information or a port"
    if match["rest"] is not None:
        return "it carries a query or a fragment"
    if (scheme == "file") == bool(host):
        return "a file URI names no host" if scheme == "file" else "it names no bucket"
    if _BAD_ESCAPE.search(path):
        return "it holds a malformed percent escape"
    components = path.removeprefix("/").removesuffix("/").split("/") if path not in ("", "/") else []
    parts = tuple(unquote(component, errors="replace") for component in components)
    if any(part in ("", ".", "..") or "/" in part or "\\" in part or "\0" in part for part in parts):
        return "its path has an empty, '.' or '..' component or an escaped separator"
    return ExternalUri(scheme, host, parts)


def display_uri(text: str) -> str:
    """A URI as an error may show it."""
    match = _URI.fullmatch(text)
    if len(text) > 1_024 or match is None or "@" in match["host"] or match["rest"] is not None:
        return REDACTED
    return text


@dataclass(frozen=True, slots=True)
class AllowedBase:
    """A directory or key prefix whose content may be taken in."""

    uri: str
    scope: Scope = Scope.SERVER_SAFE


class ExternalBlobPolicy:
    """What a handle admits. Without bases it denies everything, which is the default of every handle."""

    def __init__(self, bases: Iterable[AllowedBase] = ()) -> None:
        self._bases = [(base, _resolved_base(base)) for base in bases]
        for (_, other), (_, uri) in combinations(self._bases, 2):
            if uri == other or uri.lies_below(other) or other.lies_below(uri):
                raise BadRequestError(f"the external blob bases '{other}' and '{uri}' overlap")

    @classmethod
    def allow(cls, *bases: AllowedBase) -> ExternalBlobPolicy:
        if not bases:
            raise BadRequestError("an allow policy for external blobs needs at least one base")
        return cls(bases)

    def for_serving(self) -> ExternalBlobPolicy:
        """The same policy for requests of others: bases that are only for embedded use are dropped."""
        return ExternalBlobPolicy(base for base, _ in self._bases if base.scope is Scope.SERVER_SAFE)

    def admit(self, text: str) -> str:
        """The normalised URI of an admitted object, symlinks resolved."""
        if not self._bases:
            raise ExternalBlobPolicyError(display_uri(text), "external blobs are denied; give bytes as base64:<data>")
        uri = ExternalUri.parse(text)
        if not any(uri.lies_below(base) for _, base in self._bases):
            raise ExternalBlobPolicyError(display_uri(text), "it lies below no allowed base")
        if uri.scheme != "file":
            return str(uri)
        try:
            target = uri.file.resolve(strict=True)
            regular = stat.S_ISREG(target.stat().st_mode)
        except (OSError, RuntimeError):
            raise ExternalBlobSourceError(display_uri(text), "it does not exist or can't be reached") from None
        resolved = ExternalUri("file", "", target.parts[1:])
        if not any(resolved.lies_below(base) for _, base in self._bases):
            raise ExternalBlobPolicyError(display_uri(text), "it leads out of the allowed base")
        if not regular:
            raise ExternalBlobPolicyError(display_uri(text), "it is not a regular file")
        return str(resolved)


def normal_base(base: AllowedBase) -> str:
    """One spelling for a base, with one `/` at its end. Raises when it can't be one."""
    return f"{str(_resolved_base(base)).rstrip('/')}/"


DENY_EXTERNAL_BLOBS = ExternalBlobPolicy()


def _resolved_base(base: AllowedBase) -> ExternalUri:
    uri = ExternalUri.parse(base.uri)
    if uri.scheme == "file":
        if base.scope is Scope.SERVER_SAFE:
            raise BadRequestError(f"the external blob base '{uri}' is local: only s3 bases are server safe")
        if not uri.file.is_dir():
            raise BadRequestError(f"the external blob base '{uri}' is not a directory")
        return ExternalUri("file", "", Path(os.path.realpath(uri.file)).parts[1:])
    return uri
