"""The files that a configuration names: read once, known by their digest, and looked at again before they are used."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.digests import file_digest


@dataclass(frozen=True)
class Source:
    """A file as it was when it was read. `shown` is its path as the configuration has it."""

    path: Path
    shown: str
    data: bytes = field(repr=False)

    @cached_property
    def digest(self) -> str:
        return file_digest(self.data)

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8")

    def refuse_changed(self, address: str) -> None:
        """What was checked and planned is what is applied: a file that was edited since is not the one that was
        reviewed, and going on without a word would leave its author in the belief that it was applied."""
        try:
            unchanged = self.path.read_bytes() == self.data
        except OSError:
            unchanged = False
        if not unchanged:
            raise ClusterError.of(
                "resource_content_changed", address, f"{self.shown} was changed while it was applied; run it again"
            )


class UnreadableError(Exception):
    """A file that can't be read, and why."""


def read_source(directory: Path, shown: str) -> Source:
    """Raises `UnreadableError`, also when it holds no UTF-8 text."""
    path = directory / Path(shown).expanduser()
    try:
        source = Source(path, shown, path.read_bytes())
        _ = source.text
    except OSError as problem:
        raise UnreadableError(f"{shown}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{shown}: it is no UTF-8 text") from None
    except ValueError as problem:
        raise UnreadableError(f"{shown!r} is not the name of a file: {problem}") from None
    return source
