"""Merges what interfaces ask for into the node types that implement them.

Called by the checks for each node. A property the node declares itself must have the interface's type and keeps
its own annotations; any other is injected with the interface's annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from omnigraph.language.schema.annotations import Report
from omnigraph.language.schema.declared import DeclaredInterface, DeclaredProperty
from omnigraph.language.schema.syntax import Name
from omnigraph.language.source import did_you_mean

# Reads the annotations of an interface property as those of a property of the node that it joins.
InjectedReader = Callable[[str, str], DeclaredProperty]


def merge_interfaces(
    node: Name,
    own: Mapping[str, DeclaredProperty],
    unreadable: frozenset[str],
    implemented: list[DeclaredInterface],
    inject: InjectedReader,
    report: Report,
    report_conflict: Report,
) -> dict[str, DeclaredProperty]:
    """The effective properties of a node: own ones in source order, injected ones after them."""
    contributors: dict[str, list[DeclaredInterface]] = {}
    for interface in implemented:
        for name in interface.properties:
            contributors.setdefault(name, []).append(interface)
    effective = dict(own)
    for name, interfaces in contributors.items():
        names = tuple(interface.name.text for interface in interfaces)
        if name in unreadable:
            continue
        if name in own:
            _check_own_type(node, own[name], interfaces, report)
            effective[name] = own[name].linked(names, injected=False)
        elif _agree(node, name, interfaces, report_conflict):
            effective[name] = inject(names[0], name).linked(names, injected=True)
    return effective


def _check_own_type(node: Name, own: DeclaredProperty, interfaces: list[DeclaredInterface], report: Report) -> None:
    for interface in interfaces:
        wanted = interface.properties[own.name.text].type
        if own.type != wanted:
            report(
                f"'{node.text}.{own.name.text}' has type {own.type}, "
                f"but interface '{interface.name.text}' declares it as {wanted}",
                own.name.at,
                None,
            )


def _agree(node: Name, name: str, interfaces: list[DeclaredInterface], report: Report) -> bool:
    first = interfaces[0].properties[name]
    for other in interfaces[1:]:
        if not first.agrees_with(other.properties[name]):
            report(
                f"'{node.text}' gets '{name}' from interfaces '{interfaces[0].name.text}' and "
                f"'{other.name.text}' with incompatible property semantics; declare it in '{node.text}' or "
                "make the interfaces agree",
                node.at,
                None,
            )
            return False
    return True


def resolve_implements(
    node: Name,
    written: tuple[Name, ...],
    known: Mapping[str, DeclaredInterface],
    broken: frozenset[str],
    report: Report,
) -> list[DeclaredInterface]:
    """The interfaces a node names, each once; the unreadable ones are somebody else's error."""
    resolved: dict[str, DeclaredInterface] = {}
    for name in written:
        interface = known.get(name.text)
        if interface is not None:
            resolved[name.text] = interface
        elif name.text not in broken:
            message = f"node '{node.text}' implements unknown interface '{name.text}'"
            report(message, name.at, did_you_mean(name.text, known))
    return list(resolved.values())
