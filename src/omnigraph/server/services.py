"""What the application gets beside the graphs: everything that the process around it keeps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from omnigraph.server.admission import Admission
from omnigraph.server.metrics import Metrics
from omnigraph.server.settings import Settings
from omnigraph.server.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Services:
    """`draining` is set when the server is told to end: long polls and event streams then end by themselves."""

    settings: Settings
    admission: Admission
    metrics: Metrics
    tracing: Tracing
    draining: asyncio.Event = field(default_factory=asyncio.Event)
