"""The requests whose answers are taken in pieces, and the maintenance that no server does for its clients."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NoReturn

from omnigraph.api.changes import EVERYTHING, ChangeBaselineRequest, ChangePoll, ChangeScope
from omnigraph.api.enums import EntityKind
from omnigraph.api.export import ExportRequest
from omnigraph.api.query import ReadPoint
from omnigraph.client.messages import Request
from omnigraph.client.remote import Remote
from omnigraph.errors import DirectAccessError

WAIT_MS: Final = 30_000


def export_request(remote: Remote, /, point: ReadPoint, types: Collection[str]) -> Request:
    """All entities of a state, or those of some types."""
    body = ExportRequest(point.branch, tuple(types) or None, point.snapshot, point.version, point.at)
    return remote.reading(remote.request("export", body=body), point)


def baseline_request(remote: Remote, /, branch: str, scope: ChangeScope | None) -> Request:
    chosen = scope or EVERYTHING
    kinds = tuple(EntityKind(kind) for kind in sorted(chosen.kinds))
    body = ChangeBaselineRequest(branch, kinds, tuple(sorted(chosen.types)), tuple(sorted(chosen.ops)))
    return remote.reading(remote.request("captureChangeBaseline", body=body), ReadPoint(branch))


def following(poll: ChangePoll) -> dict[str, Any]:
    """How a poll is gone on from: within a commit at once, else where it ended, waiting for more if that was all."""
    if poll.next_page_token is not None:
        return {"page_token": poll.next_page_token}
    return {"cursor": poll.cursor, "wait_ms": WAIT_MS if poll.caught_up else None}


class NeedsStorage:
    """Operations on storage itself. A server's operator runs them; a client is told so."""

    def export_files(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DirectAccessError("export_files")

    def ensure_indices(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DirectAccessError("ensure_indices")

    def optimize(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DirectAccessError("optimize")

    def cleanup(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DirectAccessError("cleanup")

    def verify(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DirectAccessError("verify")

    def repair(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DirectAccessError("repair")

    def maintain(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DirectAccessError("maintain")
