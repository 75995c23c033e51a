"""The operator's configuration (`config.yaml`) and tokens (`credentials`), in the operator directory.

Resolution, the actor of a write and the output formats read them. An absent file is an empty configuration, an unknown
key is a warning, and a profile is checked only when it is used. A token is never sent to a URL of another server.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.errors import BadRequestError

FORMATS = ("table", "kv", "csv", "ndjson", "jsonl", "json")
LAYOUTS = ("truncate", "wrap")

_ANYTHING: dict[str, Any] = {"*": None}
_KNOWN: dict[str, Any] = {
    "operator": {"actor": None},
    "defaults": {
        "output": None,
        "table_max_column_width": None,
        "table_cell_layout": None,
        "server": None,
        "store": None,
        "default_graph": None,
    },
    "servers": {"*": {"url": None}},
    "clusters": {"*": {"root": None}},
    "profiles": {"*": {"server": None, "cluster": None, "store": None, "default_graph": None}},
    "aliases": {"*": {"server": None, "query": None, "graph": None, "args": None, "params": _ANYTHING, "format": None}},
}


@dataclass(frozen=True, slots=True)
class Defaults:
    output: str | None = None
    table_max_column_width: int = 80
    table_cell_layout: str = "truncate"
    server: str | None = None
    store: str | None = None
    default_graph: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A named scope: exactly one of the three bindings, or it can't be used."""

    name: str
    server: str | None = None
    cluster: str | None = None
    store: str | None = None
    default_graph: str | None = None

    @property
    def bindings(self) -> list[tuple[str, str]]:
        kinds = (("server", self.server), ("cluster", self.cluster), ("store", self.store))
        return [(kind, target) for kind, target in kinds if target is not None]

    @property
    def flaw(self) -> str | None:
        """Why the profile can't be used."""
        if not self.bindings:
            return f"profile '{self.name}' binds no scope; give it one of server, cluster or store"
        if len(self.bindings) > 1:
            named = ", ".join(kind for kind, _ in self.bindings)
            return f"profile '{self.name}' binds {len(self.bindings)} scopes ({named}); keep one of them"
        return None


@dataclass(frozen=True, slots=True)
class Alias:
    """A stored read of a server under a name of the operator's own."""

    name: str
    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    path: Path
    actor: str | None = None
    defaults: Defaults = field(default_factory=Defaults)
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)

    def profile(self, name: str) -> Profile:
        if name not in self.profiles:
            raise BadRequestError(f"unknown profile '{name}'; defined profiles: {list_names(self.profiles)}")
        return self.profiles[name]


def operator_directory() -> Path:
    home = os.environ.get("OMNIGRAPH_HOME", "").strip()
    return Path(home).expanduser() if home else Path.home() / ".omnigraph"


def active_profile_name() -> str | None:
    """The profile of the environment."""
    return os.environ.get("OMNIGRAPH_PROFILE", "").strip() or None


def list_names(names: Mapping[str, object]) -> str:
    return "[" + ", ".join(sorted(names)) + "]"


def load_config() -> OperatorConfig:
    """The operator's configuration. Warnings about unknown keys go to stderr."""
    path = operator_directory() / "config.yaml"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return OperatorConfig(path)
    except OSError as error:
        raise BadRequestError(f"could not read operator config '{path}': {error.strerror}") from error
    document = _Document(path, _parse(path, text))
    for dotted in _unknown_keys(document.root, _KNOWN):
        print(f"warning: unknown key '{dotted}' in operator config '{path}'", file=sys.stderr)
    return _config(document)


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    import msgspec

    try:
        parsed = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadRequestError(f"could not parse operator config '{path}': {error}") from None
    except RecursionError:
        raise BadRequestError(f"could not parse operator config '{path}': it is nested too deeply") from None
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise BadRequestError(f"could not parse operator config '{path}': it must hold keys and values")
    return parsed


def _unknown_keys(given: object, known: dict[str, Any], above: str = "") -> Iterator[str]:
    if not isinstance(given, dict):
        return
    for key, value in given.items():
        dotted = f"{above}{key}"
        if key not in known and "*" not in known:
            yield dotted
        elif (below := known.get(key, known.get("*"))) is not None:
            yield from _unknown_keys(value, below, f"{dotted}.")


@dataclass(frozen=True, slots=True)
class _Document:
    """Typed access to the parsed file; a value of the wrong type is an error with its dotted path."""

    path: Path
    root: dict[str, Any]

    def error(self, dotted: str, expected: str) -> BadRequestError:
        return BadRequestError(f"operator config '{self.path}': {dotted} must be {expected}")

    def section(self, within: dict[str, Any], key: str, dotted: str) -> dict[str, Any]:
        value = within.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(dotted, "a mapping")
        return value

    def text(self, within: dict[str, Any], key: str, above: str) -> str | None:
        value = within.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(f"{above}.{key}", "text")
        return value.strip() or None if value is not None else None

    def choice(self, within: dict[str, Any], key: str, above: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(within, key, above)
        if value is not None and value not in allowed:
            raise self.error(f"{above}.{key}", "one of " + ", ".join(allowed))
        return value


def _config(document: _Document) -> OperatorConfig:
    root = document.root
    operator = document.section(root, "operator", "operator")
    return OperatorConfig(
        path=document.path,
        actor=document.text(operator, "actor", "operator"),
        defaults=_defaults(document),
        servers=_read_names(document, "servers", "url"),
        clusters=_read_names(document, "clusters", "root"),
        profiles={name: _profile(document, name) for name in document.section(root, "profiles", "profiles")},
        aliases={name: _alias(document, name) for name in document.section(root, "aliases", "aliases")},
    )


def _defaults(document: _Document) -> Defaults:
    given = document.section(document.root, "defaults", "defaults")
    width = given.get("table_max_column_width", 80)
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise document.error("defaults.table_max_column_width", "a positive integer")
    defaults = Defaults(
        output=document.choice(given, "output", "defaults", FORMATS),
        table_max_column_width=width,
        table_cell_layout=document.choice(given, "table_cell_layout", "defaults", LAYOUTS) or "truncate",
        server=document.text(given, "server", "defaults"),
        store=document.text(given, "store", "defaults"),
        default_graph=document.text(given, "default_graph", "defaults"),
    )
    where = f"operator config '{document.path}'"
    if defaults.server is not None and defaults.store is not None:
        raise BadRequestError(f"{where}: defaults binds one entity; keep either defaults.server or defaults.store")
    if defaults.store is not None and defaults.default_graph is not None:
        raise BadRequestError(f"{where}: defaults.store is already a single graph; remove defaults.default_graph")
    return defaults


def _read_names(document: _Document, section: str, key: str) -> dict[str, str]:
    found = {}
    for name in document.section(document.root, section, section):
        entry = document.section(document.root[section], name, f"{section}.{name}")
        value = document.text(entry, key, f"{section}.{name}")
        if value is None:
            raise document.error(f"{section}.{name}.{key}", "given")
        found[name] = value
    return found


def _profile(document: _Document, name: str) -> Profile:
    above = f"profiles.{name}"
    given = document.section(document.root["profiles"], name, above)
    keys = ("server", "cluster", "store", "default_graph")
    return Profile(name, **{key: document.text(given, key, above) for key in keys})


def _alias(document: _Document, name: str) -> Alias:
    above = f"aliases.{name}"
    given = document.section(document.root["aliases"], name, above)
    server, query = (document.text(given, key, above) for key in ("server", "query"))
    if server is None or query is None:
        raise document.error(f"{above}.{'server' if server is None else 'query'}", "given")
    args = given.get("args") or []
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise document.error(f"{above}.args", "a list of parameter names")
    return Alias(
        name,
        server,
        query,
        document.text(given, "graph", above),
        tuple(args),
        document.section(given, "params", f"{above}.params"),
        document.choice(given, "format", above, FORMATS),
    )


_SECTION = re.compile(r"\s*\[(?P<name>[^\]]*)\]\s*(#.*)?")
_ENTRY = re.compile(r"\s*token\s*=\s*(?P<value>.*?)\s*")


def credentials_path() -> Path:
    return operator_directory() / "credentials"


def token_for(url: str, config: OperatorConfig, environment: Mapping[str, str] = os.environ) -> str | None:
    """What proves to a URL who we are: what is kept for its server, else what the environment has for all."""
    server = _server_of(url, config)
    if server is not None:
        variable = f"OMNIGRAPH_TOKEN_{server.upper().replace('-', '_')}"
        kept = _nonblank(environment.get(variable)) or _nonblank(stored_tokens().get(server))
        if kept is not None:
            return kept
    return _nonblank(environment.get("OMNIGRAPH_BEARER_TOKEN"))


def _server_of(url: str, config: OperatorConfig) -> str | None:
    """The declared server whose URL is the longest beginning of this one, as a whole or up to a slash."""
    found = {name: base.rstrip("/") for name, base in config.servers.items()}
    fitting = [name for name, base in found.items() if url == base or url.startswith(f"{base}/")]
    return max(fitting, key=lambda name: len(found[name]), default=None)


def _nonblank(value: str | None) -> str | None:
    return (value or "").strip() or None


def stored_tokens() -> dict[str, str]:
    """The tokens of the file, by server; none without a file."""
    tokens: dict[str, str] = {}
    section = None
    for line in _lines(credentials_path()):
        if (heading := _SECTION.fullmatch(line)) is not None:
            section = heading["name"].strip()
        elif section is not None and (entry := _ENTRY.fullmatch(line)) is not None:
            tokens[section] = _unquote(entry["value"])
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
    """Replace the file at once: a concurrent reader sees the old file or the new one."""
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


def _unquote(value: str) -> str:
    for quote in ('"', "'"):
        if len(value) > 1 and value.startswith(quote) and value.endswith(quote):
            return value[1:-1]
    return value.partition(" #")[0].rstrip()
