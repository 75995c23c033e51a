"""Checks of the server that a command line addresses: that it answers, and that it lets this operator in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from omnigraph.api.cell_text import counted
from omnigraph.cli.doctor.storage import clock_check
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.cli.reports import Check
from omnigraph.cli.scope import ServerScope
from omnigraph.cli.served import open_served
from omnigraph.errors import OmniGraphError, PolicyError, UnauthorizedError

_WAIT_SECONDS: Final = 10


def server_checks(scope: ServerScope, config: OperatorConfig) -> Iterator[Check]:
    """Whether a server answers, which version it is, what time it has, and what the token of this machine opens."""
    base = scope.url.partition("/graphs/")[0].rstrip("/")
    before = datetime.now(UTC)
    try:
        with urlopen(f"{base}/healthz", timeout=_WAIT_SECONDS) as answer:
            health = json.loads(answer.read())
            date = answer.headers.get("Date")
    except HTTPError as error:
        yield Check.broken("server", f"{base} answers with {error.code}", "check the URL: is it an OmniGraph server?")
        return
    except (URLError, OSError, ValueError) as error:
        told = f"{base} does not answer: {getattr(error, 'reason', error)}"
        yield Check.broken("server", told, "check the URL, the network, and that the server is running")
        return
    yield Check.fine("server", f"{base} answers: {json.dumps(health)}")
    if date is not None:
        yield clock_check(parsedate_to_datetime(date), before)
    yield _access_check(scope, config)


def _access_check(scope: ServerScope, config: OperatorConfig) -> Check:
    names_graph = scope.graph is not None or scope.names_graph
    try:
        with open_served(scope, config, _WAIT_SECONDS) as graph:
            if names_graph:
                return Check.fine("access", f"the graph opens; main is at version {graph.version_of()}")
            ids = [each.graph_id for each in graph.list_graphs()]
            return Check.fine("access", f"{counted(len(ids), 'graph')}: {', '.join(ids)}")
    except UnauthorizedError as error:
        remedy = (
            "omnigraph login NAME keeps a token for a server of the configuration; OMNIGRAPH_BEARER_TOKEN is for all"
        )
        return Check.broken("access", str(error), remedy)
    except PolicyError as error:
        if not names_graph:
            return Check.fine("access", "the server knows who asks, and lists no graphs for them")
        return Check.doubtful("access", str(error), "ask whoever keeps the rules of the graph")
    except OmniGraphError as error:
        return Check.broken("access", str(error), "check the name of the graph; `omnigraph graphs list` shows them")
