"""The tokens of this operator: one section per server in the `credentials` file, readable by its owner alone.

A token that is kept for a server goes to URLs of that server and nowhere else. The environment comes first, so that a
job needs no file.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from omnigraph.cli.operator_config import OperatorConfig, operator_directory
from omnigraph.errors import BadRequestError

_SECTION = re.compile(r"\s*\[(?P<name>[^\]]*)\]\s*(#.*)?")
_ENTRY = re.compile(r"\s*token\s*=\s*(?P<value>.*?)\s*")


def credentials_path() -> Path:
    return operator_directory() / "credentials"


def token_for(url: str, config: OperatorConfig, environment: Mapping[str, str] = os.environ) -> str | None:
    """What proves to a URL who we are: what is kept for its server, else what the environment has for all."""
    server = _server_of(url, config)
    if server is not None:
        variable = f"OMNIGRAPH_TOKEN_{server.upper().replace('-', '_')}"
        kept = _given(environment.get(variable)) or _given(stored_tokens().get(server))
        if kept is not None:
            return kept
    return _given(environment.get("OMNIGRAPH_BEARER_TOKEN"))


def _server_of(url: str, config: OperatorConfig) -> str | None:
    """The declared server whose URL is the longest beginning of this one, as a whole or up to a slash."""
    found = {name: base.rstrip("/") for name, base in config.servers.items()}
    fitting = [name for name, base in found.items() if url == base or url.startswith(f"{base}/")]
    return max(fitting, key=lambda name: len(found[name]), default=None)


def _given(value: str | None) -> str | None:
    return (value or "").strip() or None


def stored_tokens() -> dict[str, str]:
    """The tokens of the file, by server; none without a file."""
    tokens: dict[str, str] = {}
    section = None
    for line in _lines(credentials_path()):
        if (heading := _SECTION.fullmatch(line)) is not None:
            section = heading["name"].strip()
        elif section is not None and (entry := _ENTRY.fullmatch(line)) is not None:
            tokens[section] = _unquoted(entry["value"])
    return tokens


def store_token(server: str, token: str) -> Path:
    """Keep a token, in the place of an earlier one."""
    if not server.strip() or not server.isprintable() or set("[]#") & set(server):
        raise BadRequestError(f"'{server}' can't be the name of a server")
    if not token.isprintable():
        raise BadRequestError("the token must be one line of printable characters")
    path = credentials_path()
    _replace(path, [*_without(path, server), f"[{server}]\n", f"token = {token}\n"])
    return path


def forget_token(server: str) -> Path:
    """Keep none for a server any more."""
    path = credentials_path()
    if path.exists():
        _replace(path, _without(path, server))
    return path


def _without(path: Path, server: str) -> list[str]:
    """The lines of the file that are of other servers."""
    kept, section = [], None
    for line in _lines(path):
        if (heading := _SECTION.fullmatch(line)) is not None:
            section = heading["name"].strip()
        if section != server:
            kept.append(f"{line}\n")
    return kept


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise BadRequestError(f"'{path}' holds tokens and others may open it; run chmod 600 '{path}'")
            return file.read().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise BadRequestError(f"'{path}' is not UTF-8 text") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error


def _replace(path: Path, lines: list[str]) -> None:
    """All of the file at once: whoever reads it meanwhile sees the old one or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".credentials.", dir=path.parent)  # made for its owner alone
    except OSError as error:
        raise BadRequestError(f"can't write '{path}': {error.strerror}") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _unquoted(value: str) -> str:
    for quote in ('"', "'"):
        if len(value) > 1 and value.startswith(quote) and value.endswith(quote):
            return value[1:-1]
    return value.partition(" #")[0].rstrip()
