"""The requests whose answers are taken in pieces, and the maintenance that no server does for its clients."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NoReturn

from omnigraph.api.enums import Dates, EntityKind
from omnigraph.api.graph import GraphViews
from omnigraph.api.history import EVERYTHING, ChangeBaselineRequest, ChangeScope
from omnigraph.api.queries import ExportRequest, ReadPoint
from omnigraph.api.service.http import ExportParameters
from omnigraph.client.messages import Request
from omnigraph.client.remote import Remote
from omnigraph.errors import DirectAccessError


def export_request(remote: Remote, /, point: ReadPoint, types: Collection[str], *, epoch: bool) -> Request:
    """All entities of a state, or those of some types. A server that does not know the parameter answers with numbers,
    which load as well."""
    body = ExportRequest(point.branch, tuple(types) or None, point.snapshot, point.version, point.at)
    return remote._reading(remote._request("export", None if epoch else ExportParameters(Dates.ISO), body), point)


def baseline_request(remote: Remote, /, branch: str, scope: ChangeScope | None) -> Request:
    chosen = scope or EVERYTHING
    kinds = tuple(EntityKind(kind) for kind in sorted(chosen.kinds))
    body = ChangeBaselineRequest(branch, kinds, tuple(sorted(chosen.types)), tuple(sorted(chosen.ops)))
    return remote._reading(remote._request("captureChangeBaseline", body=body), ReadPoint(branch))


class NeedsStorage(GraphViews):
    """What works on storage itself. A server's operator does it; a client raises `DirectAccessError`."""

    def _refuse(self, operation: str) -> NoReturn:
        raise DirectAccessError(operation)

    def export_files(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself; `export` and `query` give the same rows."""
        self._refuse("export_files")

    def ensure_indices(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("ensure_indices")

    def optimize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("optimize")

    def cleanup(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("cleanup")

    def verify(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("verify")

    def repair(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("repair")

    def maintain(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("maintain")

    def to_spark(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("to_spark")

    def register_views(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("register_views")

    def run_pipeline(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("run_pipeline")

    def with_limits(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("with_limits")

    def with_embedding(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("with_embedding")

    def with_external_blobs(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("with_external_blobs")

    def with_queries(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself: a server has stored queries of its own."""
        self._refuse("with_queries")

    def acting_for(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Needs the storage itself: behind a server, the token says who acts."""
        self._refuse("acting_for")

    @property
    def id(self) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("id")

    @property
    def catalog(self) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("catalog")

    @property
    def embedder(self) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("embedder")

    @property
    def limits(self) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("limits")

    @property
    def external_blobs(self) -> NoReturn:
        """Needs the storage itself."""
        self._refuse("external_blobs")
