"""Names and ids that end up in storage: branch names, ULIDs, commit ids, table ids.

Pure functions, called by every part that persists something. Stored names must stay readable, so nothing here may
change meaning without a new storage format version.
"""

from __future__ import annotations

import re
import secrets
import time

from omnigraph.errors import BadRequestError
from omnigraph.language.values import fnv1a64

MAIN = "main"

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CROCKFORD_VALUES = {c: i for i, c in enumerate(_CROCKFORD)}
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_SYSTEM_REF = "__schema_apply_lock__"
# The quoted name plus ".json" must fit a file name of 255 bytes.
_LONGEST_QUOTED = 240

_VERSION_BITS = 36
_RANDOM_BITS = 80 - _VERSION_BITS


def now_micros() -> int:
    return time.time_ns() // 1_000


def _ulid(milliseconds: int, low80: int) -> str:
    value = (milliseconds << 80) | low80
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def new_ulid() -> str:
    return _ulid(time.time_ns() // 1_000_000, secrets.randbits(80))


def new_commit_id(version: int) -> str:
    """A ULID whose random part begins with the version the commit is meant for.

    A commit id is minted per attempt at a log slot, so it can hold its version: looking a commit up costs one
    read per live branch and never a walk through history. 44 random bits beside the millisecond keep two writers
    who race for one slot apart.
    """
    if not 0 < version < 1 << _VERSION_BITS:
        raise ValueError(f"version {version} does not fit a commit id")
    return _ulid(time.time_ns() // 1_000_000, (version << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS))


def version_in(commit_id: str) -> int | None:
    """The version a commit id was minted for; None when the text can't be a commit id."""
    if len(commit_id) != 26 or any(c not in _CROCKFORD_VALUES for c in commit_id) or commit_id[0] > "7":
        return None
    value = 0
    for c in commit_id:
        value = (value << 5) | _CROCKFORD_VALUES[c]
    return ((value & ((1 << 80) - 1)) >> _RANDOM_BITS) or None


def new_table_id(type_name: str) -> str:
    """Fixed length, safe on case-insensitive disks, and fresh for every life of a type. The incarnation is random and
    not a counter: two branches that add a type of the same name independently must not meet in one directory."""
    return f"{fnv1a64(type_name):016x}{secrets.token_hex(6)}"


def checked_branch_name(name: str) -> str:
    """The trimmed name, or a BadRequestError that says which rule it breaks."""
    name = name.strip()
    if not name:
        raise BadRequestError("a branch name must not be empty")
    if name == _SYSTEM_REF:
        raise BadRequestError(f"branch name '{name}' is an internal system ref")
    # Run branches of existing clients are named __run__<id>; every other leading "__" is kept for the system.
    if name.startswith("__") and not name.startswith("__run__"):
        raise BadRequestError(f"branch name '{name}' is reserved: names beginning with '__' belong to the system")
    for segment in name.split("/"):
        if not segment:
            raise BadRequestError(f"branch name '{name}' has an empty path segment: no leading, trailing or double '/'")
        if not _SEGMENT.fullmatch(segment):
            raise BadRequestError(
                f"branch name '{name}' may only hold ASCII letters, digits, '.', '-', '_' and '/' between segments"
            )
        if ".." in segment or segment == ".":
            raise BadRequestError(f"branch name '{name}' must not contain '..' or a segment '.'")
    if name.endswith(".lock"):
        raise BadRequestError(f"branch name '{name}' must not end in '.lock'")
    if len(quoted_branch(name)) > _LONGEST_QUOTED:
        raise BadRequestError(f"branch name of {len(name)} characters is too long")
    return name


def quoted_branch(name: str) -> str:
    """URL-quoted, capitals included, so that two branches never share a file on a case-insensitive disk."""
    return "".join(c if c.islower() or c.isdigit() or c in ".-_" else f"%{ord(c):02X}" for c in name)


def path_ancestors(name: str) -> list[str]:
    """`a/b/c` -> `a`, `a/b`."""
    segments = name.split("/")
    return ["/".join(segments[:i]) for i in range(1, len(segments))]
