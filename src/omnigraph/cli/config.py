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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

from omnigraph.errors import BadRequestError

FORMATS = ("table", "kv", "csv", "ndjson", "jsonl", "json")
LAYOUTS = ("truncate", "wrap")


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
    def binding(self) -> tuple[str, str]:
        """The one binding. Raises when the profile can't be used."""
        if self.flaw is not None:
            raise BadRequestError(self.flaw)
        return self.bindings[0]

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
    return _read_config(_Section(path, "", _parse(path, text)))


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


@dataclass(frozen=True, slots=True)
class _Section:
    """Typed access to a mapping of the file; a value of the wrong type is an error with its dotted path."""

    path: Path
    name: str
    values: dict[str, Any]

    def full_key(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def error(self, key: str, expected: str) -> BadRequestError:
        return BadRequestError(f"operator config '{self.path}': {self.full_key(key)} must be {expected}")

    def section(self, key: str, *valid_keys: str) -> _Section:
        """The mapping of a key. With `valid_keys`, others are warned of."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(key, "a mapping")
        section = _Section(self.path, self.full_key(key), value or {})
        section.warn_of_unknown(valid_keys)
        return section

    def warn_of_unknown(self, valid_keys: Sequence[str]) -> None:
        for key in self.values if valid_keys else ():
            if key not in valid_keys:
                unknown = self.full_key(key)
                print(f"warning: unknown key '{unknown}' in operator config '{self.path}'", file=sys.stderr)

    def sections(self, key: str, *valid_keys: str) -> dict[str, _Section]:
        """The mappings of a mapping, by their names."""
        named = self.section(key)
        return {name: named.section(name, *valid_keys) for name in named.values}

    def text(self, key: str, allowed: Sequence[str] = ()) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "text")
        value = (value or "").strip() or None
        if value is not None and allowed and value not in allowed:
            raise self.error(key, "one of " + ", ".join(allowed))
        return value

    def require_text(self, key: str) -> str:
        if (value := self.text(key)) is None:
            raise self.error(key, "given")
        return value


def _read_config(root: _Section) -> OperatorConfig:
    root.warn_of_unknown(("operator", "defaults", "servers", "clusters", "profiles", "aliases"))
    scopes = ("server", "cluster", "store", "default_graph")
    alias = ("server", "query", "graph", "args", "params", "format")
    return OperatorConfig(
        path=root.path,
        actor=root.section("operator", "actor").text("actor"),
        defaults=_read_defaults(root.section("defaults", *(each.name for each in fields(Defaults)))),
        servers={name: each.require_text("url") for name, each in root.sections("servers", "url").items()},
        clusters={name: each.require_text("root") for name, each in root.sections("clusters", "root").items()},
        profiles={
            name: Profile(name, *map(each.text, scopes)) for name, each in root.sections("profiles", *scopes).items()
        },
        aliases={name: _read_alias(name, each) for name, each in root.sections("aliases", *alias).items()},
    )


def _read_defaults(section: _Section) -> Defaults:
    width = section.values.get("table_max_column_width", 80)
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise section.error("table_max_column_width", "a positive integer")
    output, layout = section.text("output", FORMATS), section.text("table_cell_layout", LAYOUTS) or "truncate"
    defaults = Defaults(output, width, layout, *map(section.text, ("server", "store", "default_graph")))
    where = f"operator config '{section.path}'"
    if defaults.server is not None and defaults.store is not None:
        raise BadRequestError(f"{where}: defaults binds one entity; keep either defaults.server or defaults.store")
    if defaults.store is not None and defaults.default_graph is not None:
        raise BadRequestError(f"{where}: defaults.store is already a single graph; remove defaults.default_graph")
    return defaults


def _read_alias(name: str, section: _Section) -> Alias:
    server, query = section.require_text("server"), section.require_text("query")
    args = section.values.get("args") or []
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise section.error("args", "a list of parameter names")
    params = section.section("params").values
    return Alias(name, server, query, section.text("graph"), tuple(args), params, section.text("format", FORMATS))


_SECTION = re.compile(r"\s*\[(?P<name>[^\]]*)\]\s*(#.*)?")
_ENTRY = re.compile(r"\s*token\s*=\s*(?P<value>.*?)\s*")


def credentials_path() -> Path:
    return operator_directory() / "credentials"


def token_for(url: str, config: OperatorConfig, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token for a URL: the stored one of its server, else the one that the environment has for all.

    The server is the declared one whose URL is the longest beginning of this one, as a whole or up to a slash.
    """
    bases = {name: base.rstrip("/") for name, base in config.servers.items()}
    matching = [name for name, base in bases.items() if url == base or url.startswith(f"{base}/")]
    server = max(matching, key=lambda name: len(bases[name]), default=None)
    if server is not None:
        variable = f"OMNIGRAPH_TOKEN_{server.upper().replace('-', '_')}"
        kept = _nonblank(environment.get(variable)) or _nonblank(stored_tokens().get(server))
        if kept is not None:
            return kept
    return _nonblank(environment.get("OMNIGRAPH_BEARER_TOKEN"))


def _nonblank(value: str | None) -> str | None:
    return (value or "").strip() or None


def stored_tokens() -> dict[str, str]:
    """The tokens of the file, by server; none without a file."""
    entries = ((server, _ENTRY.fullmatch(line)) for server, line in _lines(credentials_path()) if server is not None)
    return {server: _unquote(entry["value"]) for server, entry in entries if entry is not None}


def store_token(server: str, token: str) -> Path:
    """Keep a token, in the place of an earlier one."""
    if not server.strip() or not server.isprintable() or set("[]#") & set(server):
        raise BadRequestError(f"'{server}' can't be the name of a server")
    if not token.isprintable():
        raise BadRequestError("the token must be one line of printable characters")
    return _replace_token(server, [f"[{server}]", f"token = {token}"])


def forget_token(server: str) -> Path:
    path = credentials_path()
    return _replace_token(server, []) if path.exists() else path


def _replace_token(server: str, lines: Sequence[str]) -> Path:
    path = credentials_path()
    kept = [line for section, line in _lines(path) if section != server]
    with replace_file(path) as file:
        file.writelines(f"{line}\n".encode() for line in (*kept, *lines))
    return path


def _lines(path: Path) -> Iterator[tuple[str | None, str]]:
    """The lines of the file, each with the server whose section it is in."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise BadRequestError(f"'{path}' holds tokens and others may open it; run chmod 600 '{path}'")
            lines = file.read().splitlines()
    except FileNotFoundError:
        return
    except UnicodeDecodeError:
        raise BadRequestError(f"'{path}' is not UTF-8 text") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error
    server = None
    for line in lines:
        if (heading := _SECTION.fullmatch(line)) is not None:
            server = heading["name"].strip()
        yield server, line


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends: a concurrent reader sees the old file or
    the new one. It is its owner's alone, and is removed when the block fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise BadRequestError(f"can't write '{path}': {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
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
