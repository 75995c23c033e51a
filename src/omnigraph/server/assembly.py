"""The application of a worker, put together from what it serves and what surrounds it."""

from __future__ import annotations

import os
import threading
from typing import Final

from starlette.types import ASGIApp

from omnigraph import __version__
from omnigraph.server.agents import LoadEndpoint
from omnigraph.server.application import Application
from omnigraph.server.call import Services
from omnigraph.server.observing import Observing
from omnigraph.server.origins import with_origins
from omnigraph.server.states import States
from omnigraph.server.stream_slots import StreamSlots
from omnigraph.server.surroundings import Surroundings
from omnigraph.server.tokens import Tokens

SOURCE_VERSION: Final = "OMNIGRAPH_SOURCE_VERSION"


def application(states: States, tokens: Tokens, around: Surroundings, *, agents: LoadEndpoint | None = None) -> ASGIApp:
    limits = around.settings.limits
    services = Services(
        states,
        limits,
        around.admission,
        Observing(around.metrics, around.tracing),
        StreamSlots(limits.streams_per_graph),
        threading.Semaphore(limits.write_threads),
        __version__,
        os.environ.get(SOURCE_VERSION) or None,
    )
    answering = Application(services, tokens, agents, around.settings.allow_origins)
    around.draining.then(answering.drain)
    return around.tracing.traced(with_origins(answering, around.settings.allow_origins))
