"""What is wrong with a cluster: findings that have a stable code, and the error that carries them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from omnigraph.api.cluster import ClusterDiagnostic
from omnigraph.api.enums import Severity as Severity
from omnigraph.errors import OmniGraphError

Diagnostic: TypeAlias = ClusterDiagnostic


def error(code: str, path: str, message: str) -> Diagnostic:
    return Diagnostic(code, Severity.ERROR, path, message)


def warning(code: str, path: str, message: str) -> Diagnostic:
    return Diagnostic(code, Severity.WARNING, path, message)


class ClusterError(OmniGraphError):
    """A cluster that can't be used as it is. Carries every finding."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        if not diagnostics:
            raise ValueError("a cluster error needs at least one diagnostic")
        told = "\n".join(map(str, diagnostics))
        super().__init__(told if len(diagnostics) > 1 else told.removeprefix("ERROR "))
        self.diagnostics = tuple(diagnostics)

    @classmethod
    def of(cls, code: str, path: str, message: str) -> ClusterError:
        return cls([error(code, path, message)])

    @property
    def codes(self) -> list[str]:
        return [diagnostic.code for diagnostic in self.diagnostics]
