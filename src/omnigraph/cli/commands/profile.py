"""`omnigraph profile`: the scopes that the operator configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.operator_config import active_profile_name, load_config
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json, print_lines
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.cli.operator_config import OperatorConfig, Profile
    from omnigraph.cli.reports import ListedProfile, ShownProfile


def list_(json: Json = False) -> None:
    """List the profiles; the active one is that of OMNIGRAPH_PROFILE."""
    config, active = load_config(), active_profile_name()
    rows = [_row(profile, active) for _, profile in sorted(config.profiles.items())]
    if json:
        print_json(rows)
        return
    lines, width = [], max((len(row.name) for row in rows), default=0)
    for row in rows:
        graph = f" (graph {row.default_graph})" if row.default_graph else ""
        described = row.binding + graph if row.valid else f"invalid: {row.error}"
        lines.append(f"{'*' if row.active else ' '} {row.name:<{width}}  {described}")
    print_lines(lines or [f"no profiles in {config.path}"])


def show(
    name: Annotated[str | None, typer.Argument(help="The profile; the active one if omitted.", metavar="NAME")] = None,
    json: Json = False,
) -> None:
    """Show what a profile addresses."""
    config = load_config()
    name = name or active_profile_name()
    profile = config.profile(name) if name is not None else None
    if profile is not None and profile.flaw is not None:
        raise BadRequestError(profile.flaw)
    from msgspec import structs

    shown = _shown(profile, config)
    if json:
        print_json(shown)
    else:
        print_lines([f"{key}: {value}" for key, value in structs.asdict(shown).items() if value is not None])


def _row(profile: Profile, active: str | None) -> ListedProfile:
    from omnigraph.cli.reports import ListedProfile

    valid = profile.flaw is None
    kind, target = profile.bindings[0] if valid else ("invalid", None)
    return ListedProfile(
        name=profile.name,
        binding=", ".join(f"{kind}: {target}" for kind, target in profile.bindings),
        scope_kind=kind,
        target=target,
        valid=valid,
        error=profile.flaw,
        default_graph=profile.default_graph,
        active=profile.name == active,
    )


def _shown(profile: Profile | None, config: OperatorConfig) -> ShownProfile:
    from omnigraph.cli.reports import ShownProfile

    defaults = config.defaults
    if profile is not None:
        name, (kind, target), graph = profile.name, profile.bindings[0], profile.default_graph
    else:
        name, graph = "(defaults)", defaults.default_graph
        bound = [("server", defaults.server), ("store", defaults.store)]
        kind, target = next(((k, t) for k, t in bound if t is not None), ("none", ""))
    return ShownProfile(
        name=name,
        scope_kind=kind,
        target=target or None,
        endpoint=_endpoint(kind, target, config),
        default_graph=graph,
        output_format=defaults.output,
    )


def _endpoint(kind: str, target: str, config: OperatorConfig) -> str | None:
    """Where the scope really points: the URL of a server, the root of a cluster, the storage itself."""
    if kind == "server":
        return config.servers.get(target, target if "://" in target else None)
    if kind == "cluster":
        return config.clusters.get(target, target)
    return target if kind == "store" else None
