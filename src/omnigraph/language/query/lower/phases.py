"""The order in which the clauses of a block run that has `optional` blocks.

Required clauses come first, together; then the optional blocks in written order. Whatever mentions a variable of an
optional block, directly or by another variable, runs after that block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from omnigraph.language.query import ir, resolved

Mentions = Callable[[resolved.Clause], Collection[str]]
"""The variables that a clause mentions at any depth."""


def phases(
    clauses: Sequence[resolved.Clause], bound: Collection[str], ranked: str | None, mentions: Mentions
) -> list[list[resolved.Clause]]:
    """The clauses beside the optional blocks: those that run before the first of them, then those after each."""
    mentioned = {id(clause): frozenset(mentions(clause)) for clause in clauses}
    blocks = [clause for clause in clauses if isinstance(clause, resolved.OptionalBlock)]
    required = [clause for clause in clauses if not isinstance(clause, resolved.OptionalBlock)]
    phase_of = dict.fromkeys(bound, 0)
    for i, block in enumerate(blocks, 1):
        phase_of |= {name: i for name, _ in block.introduced if name not in phase_of}
    fixed = frozenset(phase_of)
    # A component that only an optional variable leads to waits for it, unless something needs it before.
    first_mention: dict[str, int] = {} if ranked is None else {ranked: 0}
    for i, block in reversed(list(enumerate(blocks, 1))):
        first_mention |= dict.fromkeys(mentioned[id(block)], i)
    if ranked is not None:
        first_mention[ranked] = 0
    for component in _components(required, fixed):
        phase_of |= dict.fromkeys(component.variables, component.phase(phase_of, first_mention))
    return _settle(required, len(blocks), phase_of, fixed, mentioned)


class _Component:
    """Required variables that required traversals connect without passing through a variable bound elsewhere."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.neighbours: set[str] = set()

    def phase(self, phase_of: dict[str, int], first_mention: dict[str, int]) -> int:
        earliest = min((phase_of[name] for name in self.neighbours), default=0)
        is_needed_before = any(first_mention.get(name, earliest + 1) <= earliest for name in self.variables)
        return 0 if is_needed_before else earliest


def _components(clauses: Iterable[resolved.Clause], fixed: frozenset[str]) -> list[_Component]:
    components: dict[str, _Component] = {}

    def component_of(variable: str) -> _Component:
        component = components.setdefault(variable, _Component())
        component.variables.add(variable)
        return component

    for clause in clauses:
        match clause:
            case resolved.Binding(variable=variable) if variable not in fixed:
                component_of(variable)
            case resolved.Traversal() | resolved.WalkTraversal():
                ends = clause.walk if isinstance(clause, resolved.WalkTraversal) else clause
                inside = [name for name in (ends.source, ends.destination) if name not in fixed]
                joined = [component_of(name) for name in inside]
                for component in joined[1:]:
                    if component is not joined[0]:
                        _merge(components, joined[0], component)
                if joined:
                    joined[0].neighbours |= {ends.source, ends.destination} & fixed
    return list({id(component): component for component in components.values()}.values())


def _merge(components: dict[str, _Component], left: _Component, right: _Component) -> None:
    left.variables |= right.variables
    left.neighbours |= right.neighbours
    components.update(dict.fromkeys(right.variables, left))


def _settle(
    clauses: Sequence[resolved.Clause],
    last: int,
    phase_of: dict[str, int],
    fixed: frozenset[str],
    mentioned: dict[int, frozenset[str]],
) -> list[list[resolved.Clause]]:
    """Each clause in the first phase in which all that it mentions can be bound. A variable is bound in the first phase
    of a clause that binds it; raising that may put off other clauses, so this goes on until nothing changes."""
    while True:
        result: list[list[resolved.Clause]] = [[] for _ in range(last + 1)]
        earliest: dict[str, int] = {}
        for clause in clauses:
            phase = max((phase_of.get(name, 0) for name in mentioned[id(clause)]), default=0)
            result[phase].append(clause)
            for name in _bound_by(clause):
                if name not in fixed:
                    earliest[name] = min(phase, earliest.get(name, phase))
        if all(phase_of.get(name, 0) >= phase for name, phase in earliest.items()):
            return result
        for name, phase in earliest.items():
            phase_of[name] = max(phase, phase_of.get(name, 0))


def _bound_by(clause: resolved.Clause) -> tuple[str, ...]:
    match clause:
        case resolved.Binding():
            return (clause.variable,)
        case resolved.Traversal(edge_variable=edge):
            return (clause.source, clause.destination, *(() if edge is None else (edge,)))
        case resolved.WalkTraversal(walk=ir.Walk() as walk):
            return tuple(name for name in (walk.source, walk.destination, clause.edge_variable, clause.path) if name)
    return ()
