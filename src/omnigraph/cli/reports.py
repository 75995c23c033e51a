"""Reports that only the command line makes: of formatted files and of profiles."""

from __future__ import annotations

from msgspec import Struct


class FormattedFile(Struct, frozen=True, omit_defaults=True):
    path: str
    changed: bool
    error: str | None = None


class FormatReport(Struct, frozen=True):
    """What `fmt --json` prints."""

    files: tuple[FormattedFile, ...]
    changed: int


class ListedProfile(Struct, frozen=True, kw_only=True):
    """A profile as `profile list` tells it."""

    name: str
    binding: str
    scope_kind: str
    target: str | None
    valid: bool
    error: str | None
    default_graph: str | None
    active: bool


class ShownProfile(Struct, frozen=True, kw_only=True):
    """A profile as `profile show` tells it."""

    name: str
    scope_kind: str
    target: str | None
    endpoint: str | None
    default_graph: str | None
    output_format: str | None
