"""`omnigraph doctor`: is everything there that is needed, and does it work?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from omnigraph import __version__
from omnigraph.cli.config import active_profile_name
from omnigraph.cli.params import GlobalFlags, Json, Uri
from omnigraph.cli.printing.output import print_json, print_lines
from omnigraph.cli.registry import Capability
from omnigraph.cli.target import ClusterScope, Invocation, Request, ServerScope, StoreScope, resolve

if TYPE_CHECKING:
    from omnigraph.cli.printing.reports import Check, DoctorReport


def doctor(ctx: typer.Context, uri: Uri = None, json: Json = False) -> None:
    """Check this machine, and the graph that is addressed, and say what to do.

    On storage it really tries that creating an object fails where one is, which commits rely on, and removes what it
    wrote. Exit code 1 if something is broken.
    """
    from omnigraph.cli.machine_checks import machine_checks
    from omnigraph.cli.printing.reports import DoctorReport, Health

    checks = [*machine_checks(os.environ)]
    if all(check.name != "config" or check.status is not Health.BROKEN for check in checks):
        checks += _addressed(Invocation.of(ctx), uri)
    report = DoctorReport(all(check.status is not Health.BROKEN for check in checks), __version__, tuple(checks))
    if json:
        print_json(report)
    else:
        print_lines(_lines(report), _style)
    raise typer.Exit(0 if report.ok else 1)


def _addressed(invocation: Invocation, uri: str | None) -> Iterator[Check]:
    flags, config = invocation.flags, invocation.config
    defaults = (config.defaults.server, config.defaults.store, active_profile_name())
    if uri is None and flags == GlobalFlags(yes=flags.yes, quiet=flags.quiet) and not any(defaults):
        return
    from omnigraph.cli.graph_checks import cluster_checks, server_checks, storage_checks

    # A local command has no class that a binding could be wrong for.
    scope = resolve(Request("doctor", Capability.LOCAL, flags, uri), config)
    match scope:
        case StoreScope():
            yield from storage_checks(scope.uri)
        case ServerScope():
            yield from server_checks(scope, config)
        case ClusterScope():
            yield from cluster_checks(scope)


def _lines(report: DoctorReport) -> Iterator[str]:
    for check in report.checks:
        yield f"{check.status:<8} {check.name:<12} {check.found}"
        if check.remedy is not None:
            yield f"{'':21} → {check.remedy}"
    counted = {status: sum(check.status == status for check in report.checks) for status in ("broken", "warning")}
    if report.ok and not counted["warning"]:
        yield f"omnigraph {report.version}: everything is in order"
    else:
        warnings = "1 warning" if counted["warning"] == 1 else f"{counted['warning']} warnings"
        yield f"omnigraph {report.version}: {counted['broken']} broken, {warnings}"


def _style(line: str) -> str:
    styles = {"ok": "green", "warning": "yellow", "broken": "bold red"}
    return styles.get(line.split(" ", 1)[0], "dim" if line.lstrip().startswith("→") else "")
