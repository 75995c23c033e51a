"""The stored queries of a graph, from whichever way the configuration names their files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from omnigraph.cluster.addresses import RESOURCE_ID
from omnigraph.cluster.config import NamedQuery
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.cluster.sources import Source, UnreadableError, read_source
from omnigraph.engine.sources import CheckedSchema, declared_queries
from omnigraph.errors import BadRequestError, CompileError


class QueryFiles:
    """Collects the queries of one graph. `where` is the key of the configuration that names them."""

    def __init__(self, directory: Path, where: str) -> None:
        self._directory = directory
        self._where = where
        self.queries: dict[str, Source] = {}
        self.found: list[Diagnostic] = []

    def collect(self, declared: str | tuple[str, ...] | dict[str, NamedQuery] | None) -> None:
        if isinstance(declared, dict):
            for name, entry in declared.items():
                self._named(name, entry.file)
            return
        paths = (declared,) if isinstance(declared, str) else declared or ()
        files = dict.fromkeys(file for path in paths for file in self._files(path))
        for file in files:
            self._whole(file)

    def check(self, schema: CheckedSchema | None) -> None:
        """Whether every query fits the schema of its graph; None: that schema is broken itself."""
        for name, source in self.queries.items():
            path = f"{self._where}.{name}"
            if schema is None:
                message = "it is not checked, because the schema of its graph is not valid"
                self.found.append(warning("query_typecheck_skipped", path, message))
                continue
            try:
                schema.check_query(source.text, name, source.shown)
            except BadRequestError as problem:
                self.found.append(error("query_typecheck_error", path, str(problem)))

    def _files(self, path: str) -> Iterator[str]:
        full = self._directory / Path(path).expanduser()
        if not os.path.isdir(full):  # also for what can't be a name, unlike `Path.is_dir`
            yield path
            return
        try:
            names = sorted(entry.name for entry in full.iterdir() if entry.suffix == ".gq" and entry.is_file())
        except OSError as problem:
            message = f"{path}: {problem.strerror or problem}"
            self.found.append(error("query_dir_unreadable", self._where, message))
            return
        if not names:
            self.found.append(warning("query_dir_empty", self._where, f"there is no .gq file in {path}"))
        yield from (str(Path(path) / name) for name in names)

    def _whole(self, file: str) -> None:
        """Every query of a file."""
        if (source := self._read(file, self._where)) is None:
            return
        for name in self._declared(source, self._where) or ():
            if name in self.queries:
                message = f"{source.shown} declares it, and {self.queries[name].shown} declares it too"
                self.found.append(error("duplicate_query_name", f"{self._where}.{name}", message))
            self.queries.setdefault(name, source)

    def _named(self, name: str, file: str) -> None:
        """One query of a file."""
        where = f"{self._where}.{name}"
        if RESOURCE_ID.fullmatch(name) is None:
            message = "a name has letters, digits, _ and -, and begins with a letter or _"
            self.found.append(error("invalid_resource_id", where, message))
            return
        source = self._read(file, f"{where}.file") if file else None
        declared = self._declared(source, f"{where}.file") if source is not None else None
        if source is None or declared is None:
            return
        if name not in declared:
            message = f"{file} does not declare a query '{name}'; it declares {', '.join(declared) or 'none'}"
            self.found.append(error("query_key_mismatch", f"{where}.file", message))
            return
        self.queries[name] = source

    def _read(self, file: str, where: str) -> Source | None:
        try:
            return read_source(self._directory, file)
        except UnreadableError as problem:
            self.found.append(error("query_file_missing", where, str(problem)))
            return None

    def _declared(self, source: Source, where: str) -> list[str] | None:
        try:
            return [query.name.text for query in declared_queries(source.text, source.shown)]
        except CompileError as problem:
            self.found.append(error("query_parse_error", where, str(problem)))
            return None
