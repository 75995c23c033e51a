"""Background upkeep of what is served: a thread for each graph, in exactly one worker."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from omnigraph.engine.upkeep.maintainer import Maintainer
    from omnigraph.server.serving import Serving

logger: Final = logging.getLogger("omnigraph.server")


class Keepers:
    """Who looks after which graph. A graph that is closed ends its keeper by itself."""

    def __init__(self) -> None:
        self._keepers: dict[str, tuple[object, Maintainer]] = {}

    def look_after(self, serving: Serving) -> Mapping[str, Maintainer]:
        """Have every graph that is served looked after; those that were open before keep their keepers."""
        from omnigraph.engine.upkeep.maintainer import Maintainer

        before, self._keepers = self._keepers, {}
        for graph_id, served in serving.graphs.items():
            opened, keeper = before.get(graph_id, (None, None))
            if keeper is None or opened is not served.opened:
                keeper = Maintainer(served.graph._workspace).start()
            self._keepers[graph_id] = served.opened, keeper
        logger.info("this worker looks after %d graphs", len(self._keepers))
        return {graph_id: keeper for graph_id, (_, keeper) in self._keepers.items()}
