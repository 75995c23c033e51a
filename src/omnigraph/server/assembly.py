"""The application of a worker, put together from what it serves and what surrounds it."""

from __future__ import annotations

import os
from typing import Final

from starlette.types import ASGIApp

from omnigraph import __version__
from omnigraph.server.agents import LoadEndpoint
from omnigraph.server.application import Application
from omnigraph.server.budgets import Budgets, WriteTurns
from omnigraph.server.call import Services
from omnigraph.server.observing import Observing
from omnigraph.server.origins import Hosts, with_origins
from omnigraph.server.states import States
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
        Budgets(limits, around.metrics.refused),
        WriteTurns(limits.write_threads),
        __version__,
        os.environ.get(SOURCE_VERSION) or None,
    )
    settings = around.settings
    hosts = Hosts(settings.host, settings.allowed_hosts)
    answering = Application(services, tokens, agents, settings.allow_origins, hosts, around.metrics.refused)
    around.draining.then(answering.drain)
    return around.tracing.traced(with_origins(answering, settings.allow_origins))
