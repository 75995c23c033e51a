"""Reports that only the command line makes: of formatted files, profiles and embedded records."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from omnigraph.api.enums import CodeLanguage


class FormattedFile(Struct, frozen=True, omit_defaults=True):
    path: str
    changed: bool
    error: str | None = None


class FormatReport(Struct, frozen=True):
    """What `fmt --json` prints."""

    files: tuple[FormattedFile, ...]
    changed: int


class GeneratedCode(Struct, frozen=True):
    """What `codegen --json` prints. `changed` says that the file was written, or, with --check, is out of date."""

    path: str
    language: CodeLanguage
    types: int
    queries: int
    changed: bool


class ListedProfile(Struct, frozen=True, kw_only=True):
    """A profile as `profile list` prints it."""

    name: str
    binding: str
    scope_kind: str
    target: str | None
    valid: bool
    error: str | None
    default_graph: str | None
    active: bool


class ShownProfile(Struct, frozen=True, kw_only=True):
    """A profile as `profile show` prints it."""

    name: str
    scope_kind: str
    target: str | None
    endpoint: str | None
    default_graph: str | None
    output_format: str | None


class EmbedReport(Struct, frozen=True, kw_only=True):
    """What `embed --json` prints. The last five say what it cost; `tokens` is null when no provider reported them."""

    input: str
    output: str
    records: int
    selected_records: int
    embedded_records: int
    cleaned_records: int
    mode: str
    dimension: int
    model: str
    texts: int
    reused_texts: int
    requests: int
    retries: int
    tokens: int | None


class NextCommands(Struct, frozen=True):
    title: str
    commands: tuple[str, ...]


class Quickstart(Struct, frozen=True):
    """What `quickstart --json` prints."""

    directory: str
    files: tuple[str, ...]
    next: tuple[NextCommands, ...]


class Health(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


class Check(Struct, frozen=True, omit_defaults=True):
    """One thing that `doctor` looked at."""

    name: str
    status: Health
    found: str
    remedy: str | None = None


class DoctorReport(Struct, frozen=True):
    """What `doctor --json` prints."""

    ok: bool
    version: str
    checks: tuple[Check, ...]


class CacheCleared(Struct, frozen=True):
    """What `cache clear --json` prints. Without a directory, the cache is off."""

    directory: str | None
    bytes: int


class LoggedIn(Struct, frozen=True):
    """What `login --json` prints. `declared` says whether the configuration knows the server."""

    server: str
    credentials_path: str
    declared: bool


class LoggedOut(Struct, frozen=True):
    """What `logout --json` prints."""

    server: str
    credentials_path: str
