"""Types of traversals and paths: which edge types a hop may take, in which direction, and what its ends are.

An edge type is walked as it is written if the ends allow it, else against its direction; each member of a selection
decides for itself. With several hops the search may pass through every type that it can reach from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.blocks import check_each
from omnigraph.language.query.check.expressions import node_members
from omnigraph.language.query.check.scope import Scope
from omnigraph.language.query.value_types import EntityType, PathType, unique_types

_ONE_HOP: Final = ast.Hops(1, 1)
_ANY_PATH: Final = ast.Hops(1, None)


class _Ends(Struct):
    """The types that the source and the destination can have; None as long as nothing says."""

    source: tuple[NodeType, ...] | None
    destination: tuple[NodeType, ...] | None

    @property
    def have_several_types(self) -> bool:
        return any(types is not None and len(types) > 1 for types in (self.source, self.destination))


class _Step(Struct, frozen=True):
    """One member of a selection with the directions in which it is walked, and the only node type between whose nodes
    it is, if that is all."""

    edge: EdgeType
    directions: tuple[ir.Direction, ...]
    within: str | None = None


_OUT: Final = (ir.Direction.OUT,)
_IN: Final = (ir.Direction.IN,)
_EITHER: Final = (ir.Direction.OUT, ir.Direction.IN)
_BOTH: Final = (ir.Direction.BOTH,)


def check_traversal(scope: Scope, traversal: ast.Traversal) -> resolved.Traversal | resolved.WalkTraversal | None:
    return _traversal(scope, traversal, None)


def check_path(scope: Scope, path: ast.Path) -> resolved.Traversal | resolved.WalkTraversal | None:
    if path.variable.is_anonymous:
        scope.report("T108", "a path needs a name: '$_' never binds", path.variable.at, help="write path $p: …")
        checked = None
    else:
        checked = _traversal(scope, path.traversal, path)
    if checked is None and not path.variable.is_anonymous and path.variable.name not in scope.variables:
        scope.broken.add(path.variable.name)
    return checked


def _traversal(
    scope: Scope, traversal: ast.Traversal, path: ast.Path | None
) -> resolved.Traversal | resolved.WalkTraversal | None:
    edges = _selected_edges(scope, traversal.selector)
    hops = traversal.hops or (_ONE_HOP if path is None else _ANY_PATH)
    is_sound = _check_hops(scope, hops) and edges is not None
    is_sound = _check_variables(scope, traversal, path) and is_sound
    if edges is None:
        _break_unbound(scope, traversal)
        return None
    ends = _known_ends(scope, traversal)
    steps = None if ends is None else _steps(scope, traversal, edges, ends, hops)
    if ends is None or steps is None or not is_sound:
        _break_unbound(scope, traversal)
        return None
    return _Traversal(scope, traversal, path, hops, steps, ends).resolve()


def _selected_edges(scope: Scope, selector: ast.Selector) -> tuple[EdgeType, ...] | None:
    """The edge types that a selector names, each once; for `*` all of them. None after T4."""
    if not selector.edges:
        return tuple(scope.catalog.edges.values())
    edges: list[EdgeType] = []
    is_unknown = False
    for name in selector.edges:
        edge = scope.catalog.edge_named(name.text)
        if edge is not None:
            edges.append(edge)
            continue
        is_unknown = True
        spelled = [edge[:1].lower() + edge[1:] for edge in scope.catalog.edges]
        scope.report("T4", f"unknown edge type '{name.text}'", name.at, near=name.text, among=spelled)
    if is_unknown:
        return None
    return tuple(edges) if len(edges) == 1 else unique_types(edges)


def _break_unbound(scope: Scope, traversal: ast.Traversal) -> None:
    """Mark the variables as broken that a faulty traversal would have bound."""
    for variable in (traversal.source, traversal.destination, traversal.edge_variable):
        if variable is not None and not variable.is_anonymous and variable.name not in scope.variables:
            scope.broken.add(variable.name)


def _check_hops(scope: Scope, hops: ast.Hops) -> bool:
    if hops.maximum is None or hops.maximum >= hops.minimum:
        return True
    message = f"hop bounds {{{hops.minimum},{hops.maximum}}} end before they begin"
    scope.report("T15", message, hops.at, help=f"write {{{hops.maximum},{hops.minimum}}}")
    return False


def _check_variables(scope: Scope, traversal: ast.Traversal, path: ast.Path | None) -> bool:
    """Whether the ends can be ends, and the names of the edge and the path can be theirs."""
    is_sound = True
    for end in (traversal.source, traversal.destination):
        type_ = None if end.is_anonymous else scope.variables.get(end.name)
        if type_ is None:
            is_sound = (end.is_anonymous or scope.may_declare(end)) and is_sound
        elif not isinstance(type_, EntityType):
            message = f"'${end.name}' is a value of type {type_} and can't be an endpoint"
            scope.report("T50", message, end.at, help="choose another name for the node")
            is_sound = False
        elif type_.is_edge:
            message = f"'${end.name}' is an edge and can't be an endpoint"
            scope.report("T23", message, end.at, help="name its ends in the traversal that binds it")
            is_sound = False
        else:
            scope.mentioned.add(end.name)
    if path is not None and not scope.is_free(path.variable, "a path"):
        return False
    return _check_edge_variable(scope, traversal) and is_sound


def _check_edge_variable(scope: Scope, traversal: ast.Traversal) -> bool:
    variable = traversal.edge_variable
    if variable is None:
        return True
    name = variable.name
    help = "choose another name"
    if traversal.hops is not None:
        message = f"'${name}' can't name a multi-hop traversal: its result is a path, not one edge"
        help = f"write path $p: trails …, or leave '${name}:' out"
    elif variable.is_anonymous:
        return True
    elif name in (traversal.source.name, traversal.destination.name):
        message = f"edge variable '${name}' and the endpoint variables must be distinct"
    elif name in scope.variables or name in scope.parameters:
        message = f"'${name}' is already in use and can't name an edge as well"
    else:
        return scope.may_declare(variable)
    scope.report("T23", message, variable.at, help=help)
    return False


# ---- ends and directions --------------------------------------------------------------------------------


def _known_ends(scope: Scope, traversal: ast.Traversal) -> _Ends | None:
    """The types of the ends before the traversal adds to it, or None if one is not a node."""
    types: list[tuple[NodeType, ...] | None] = []
    for variable in (traversal.source, traversal.destination):
        bound = None if variable.is_anonymous else scope.variables.get(variable.name)
        if isinstance(bound, EntityType) and not bound.is_edge:
            left = scope.allowed.get(variable.name)
            types.append(node_members(bound if left is None else EntityType(left)))
        elif bound is not None:
            return None
        else:
            # Only `*` asks what a later binding says: everything else makes the variable what the edge leads to.
            types.append(None if traversal.selector.edges else scope.declared.get(variable.name))
    return _Ends(*types)


def _steps(
    scope: Scope, traversal: ast.Traversal, edges: Sequence[EdgeType], ends: _Ends, hops: ast.Hops
) -> list[_Step] | None:
    """The members of the selection with their directions, or None after T5 or T22."""
    if not traversal.selector.edges and not _are_declared(scope, traversal, ends):
        return None
    if (
        traversal.source.name == traversal.destination.name
        and ends.source is None
        and not traversal.source.is_anonymous
    ):
        # A walk from a node to itself, of which nothing else is known.
        sources = [scope.catalog.nodes[name] for edge in edges for name in edge.source_types]
        ends.source = ends.destination = unique_types(sources)
    is_long = hops.maximum is None or hops.maximum > 1
    if ends.have_several_types or (traversal.selector.edges and any(edge.has_interface_end for edge in edges)):
        return _search(scope, traversal, edges, ends) if is_long else _one_hop(scope, traversal, edges, ends)
    if is_long or hops.minimum == 0 or traversal.selector.undirected:
        return _between_equals(scope, traversal, edges, ends, hops)
    return _one_hop(scope, traversal, edges, ends)


def _are_declared(scope: Scope, traversal: ast.Traversal, ends: _Ends) -> bool:
    """`*` takes what fits its ends, so both have to be known."""
    for variable, types in ((traversal.source, ends.source), (traversal.destination, ends.destination)):
        if types is not None:
            continue
        if variable.name not in scope.broken:
            message = f"'*' takes the edges that fit its ends, and nothing declares '${variable.name}'"
            help = "declare it: $x: * is any node" if variable.is_anonymous else f"write ${variable.name}: Type"
            scope.report("T5", message, variable.at, help=help)
        return False
    return True


def _leads(edge: EdgeType, ends: _Ends) -> bool:
    return _contains_any(ends.source, edge.source_types) and _contains_any(ends.destination, edge.target_types)


def _leads_back(edge: EdgeType, ends: _Ends) -> bool:
    return _contains_any(ends.source, edge.target_types) and _contains_any(ends.destination, edge.source_types)


def _contains_any(types: Sequence[NodeType] | None, names: Iterable[str]) -> bool:
    return types is None or not {type_.name for type_ in types}.isdisjoint(names)


def _one_hop(scope: Scope, traversal: ast.Traversal, edges: Sequence[EdgeType], ends: _Ends) -> list[_Step] | None:
    steps: list[_Step] = []
    for edge in edges:
        forward, back = _leads(edge, ends), _leads_back(edge, ends)
        if not (forward or back):
            if traversal.selector.edges:
                _report_wrong_end(scope, traversal, edge, ends)
                return None
        elif not traversal.selector.undirected:
            steps.append(_Step(edge, _OUT if forward else _IN))
        elif edge.is_symmetric:
            steps.append(_Step(edge, _BOTH))
        else:
            steps.append(_Step(edge, tuple(d for d, fits in zip(_EITHER, (forward, back), strict=True) if fits)))
    return steps


def _between_equals(
    scope: Scope, traversal: ast.Traversal, edges: Sequence[EdgeType], ends: _Ends, hops: ast.Hops
) -> list[_Step] | None:
    """Several hops, none, or either direction, between ends of one type each: it has to be the same type."""
    is_open = not traversal.selector.edges
    node = next((types[0].name for types in (ends.source, ends.destination) if types), None)
    steps: list[_Step] = []
    for edge in edges:
        if not edge.is_symmetric and not is_open:
            _report_asymmetric(scope, traversal, edge, hops)
            return None
        if edge.is_symmetric and _leads(edge, ends) and node in (None, edge.from_type):
            node = edge.from_type
            steps.append(_Step(edge, _BOTH if traversal.selector.undirected else _OUT))
        elif is_open and edge.has_interface_end and node in edge.source_types and node in edge.target_types:
            steps.append(_Step(edge, _EITHER if traversal.selector.undirected else _OUT, node))
        elif not is_open:
            if not _leads(edge, ends):
                _report_wrong_end(scope, traversal, edge, ends)
                return None
            _report_mixture(scope, traversal, edge, node)
            return None
    if is_open and ends.source and ends.destination and ends.source[0].name != ends.destination[0].name:
        code = "T22" if traversal.selector.undirected else "T5"
        named = f"{ends.source[0].name} and {ends.destination[0].name}"
        message = f"the ends are {named}; several hops and either direction need one node type at both"
        scope.report(code, message, traversal.selector.at, help="give an end several types, as in $x: *")
        return None
    return steps


def _report_mixture(scope: Scope, traversal: ast.Traversal, edge: EdgeType, node: str | None) -> None:
    message = f"edge '{edge.name}' is between nodes of type {edge.from_type}, and the others of type {node}"
    scope.report("T5", message, traversal.selector.at, help="give an end several types, as in $x: *")


def _report_asymmetric(scope: Scope, traversal: ast.Traversal, edge: EdgeType, hops: ast.Hops) -> None:
    ends = f"{edge.from_type} -> {edge.to_type}"
    if traversal.selector.undirected:
        message = f"edge '{edge.name}' is asymmetric ({ends}); use the directional form"
        help = f"write {edge.name[:1].lower()}{edge.name[1:]} without < >"
        scope.report("T22", message, traversal.selector.at, help=help)
        return
    bounds = f"{{{hops.minimum},{'' if hops.maximum is None else hops.maximum}}}"
    message = f"edge '{edge.name}' leads from {edge.from_type} to {edge.to_type}, so {bounds} hops lead nowhere"
    way = "write {1,1}" if traversal.hops is None else "leave the hop bounds out"
    at = traversal.selector.at if traversal.hops is None else traversal.hops.at
    scope.report("T5", message, at, help=f"{way}, or give an end several types, as in $x: *")


def _report_wrong_end(scope: Scope, traversal: ast.Traversal, edge: EdgeType, ends: _Ends) -> None:
    """T5 at the end that does not fit the edge: the source if it can't be one, else the destination."""
    both = (edge.from_type, edge.to_type)
    for variable, types in ((traversal.source, ends.source), (traversal.destination, ends.destination)):
        if types is not None and not _contains_any(types, (*edge.source_types, *edge.target_types)):
            _report_end(scope, variable, types, edge, both)
            return
    assert ends.source is not None
    assert ends.destination is not None
    wanted = edge.to_type if _contains_any(ends.source, edge.source_types) else edge.from_type
    _report_end(scope, traversal.destination, ends.destination, edge, (wanted,))


def _report_end(
    scope: Scope, variable: ast.Variable, types: Sequence[NodeType], edge: EdgeType, expected: Iterable[str]
) -> None:
    wanted = " or ".join(dict.fromkeys(expected))
    named = " | ".join(type_.name for type_ in types)
    message = f"variable '${variable.name}' has type {named}, but edge '{edge.name}' expects {wanted} there"
    leaving = [
        f"{other.name[:1].lower()}{other.name[1:]}"
        for other in scope.catalog.edges.values()
        if _contains_any(types, (*other.source_types, *other.target_types))
    ]
    help = f"edges of {named}: {', '.join(leaving[:8])}" if leaving else f"no edge touches {named}"
    scope.report("T5", message, variable.at, help=help)


def _search(scope: Scope, traversal: ast.Traversal, edges: Sequence[EdgeType], ends: _Ends) -> list[_Step] | None:
    """Several hops with an end of several types: a member fits if it begins at a type that the search can reach. Those
    that lead on as they are written come first; of the others, those that lead on against their direction."""
    is_forward = ends.source is not None or ends.destination is None
    starts = ends.source if is_forward else ends.destination
    reached = {type_.name for type_ in starts or ()}
    if starts is None:  # only an interface at an end can have led here
        reached = {name for edge in edges for name in edge.source_types}
    waiting = list(edges)
    steps: dict[str, _Step] = {}

    def take(directions: tuple[ir.Direction, ...], begins: _TypesOfEnd, leads: _TypesOfEnd) -> bool:
        """Every member that begins where the search is; whether there was one."""
        fitting = [edge for edge in waiting if not reached.isdisjoint(begins(edge))]
        for edge in fitting:
            waiting.remove(edge)
            is_either = traversal.selector.undirected
            steps[edge.name] = _Step(edge, (_BOTH if edge.is_symmetric else _EITHER) if is_either else directions)
            reached.update(leads(edge), begins(edge) if is_either else ())
        return bool(fitting)

    first, second = (_source_types, _target_types) if is_forward else (_target_types, _source_types)
    while take(_OUT, first, second) or take(_IN, second, first):
        pass
    if waiting and traversal.selector.edges:
        variable = traversal.source if is_forward else traversal.destination
        edge = waiting[0]
        message = (
            f"edge '{edge.name}' ({edge.from_type} -> {edge.to_type}) begins at no type that ${variable.name} reaches"
        )
        scope.report("T5", message, traversal.selector.at, help="leave it out of the selection")
        return None
    other = ends.destination if is_forward else None
    if other is not None and traversal.selector.edges and reached.isdisjoint(type_.name for type_ in other):
        _report_end(scope, traversal.destination, other, edges[-1], sorted(reached))
        return None
    return [steps[edge.name] for edge in edges if edge.name in steps]


_TypesOfEnd: TypeAlias = Callable[[EdgeType], tuple[str, ...]]


def _source_types(edge: EdgeType) -> tuple[str, ...]:
    return edge.source_types


def _target_types(edge: EdgeType) -> tuple[str, ...]:
    return edge.target_types


def _within_reach(steps: Sequence[ir.EdgeStep], starts: Sequence[NodeType]) -> tuple[ir.EdgeStep, ...]:
    """The steps that begin at types which a search from some types gets to."""
    reached = {type_.name for type_ in starts}
    while not reached.issuperset(ends := {step.end.name for step in steps if step.start.name in reached}):
        reached |= ends
    return tuple(step for step in steps if step.start.name in reached)


# ---- the resolved traversal -----------------------------------------------------------------------------


class _Traversal:
    """A traversal whose members and directions are known: what it binds, and what it becomes."""

    def __init__(
        self,
        scope: Scope,
        traversal: ast.Traversal,
        path: ast.Path | None,
        hops: ast.Hops,
        members: Sequence[_Step],
        ends: _Ends,
    ) -> None:
        self._scope = scope
        self._traversal = traversal
        self._path = path
        self._members = members
        self._min_hops = hops.minimum
        self._max_hops = ir.UNBOUNDED if hops.maximum is None else hops.maximum
        self._ends = ends

    def resolve(self) -> resolved.Traversal | resolved.WalkTraversal | None:
        scope, traversal = self._scope, self._traversal
        is_single = len(self._members) == 1 and traversal.each is None and self._path is None
        is_single = is_single and not self._members[0].edge.has_interface_end
        steps = self._steps()
        source, destination = self._bind_ends(steps)
        slots = scope.slot(traversal.source), scope.slot(traversal.destination)
        edges = tuple(member.edge for member in self._members)
        edge_variable = self._bind_edge(edges)
        if is_single and len(source.members) == len(destination.members) == len(steps) == 1:
            return resolved.Traversal(
                source=slots[0],
                destination=slots[1],
                edge=edges[0],
                direction=steps[0].direction,
                source_type=node_members(source)[0],
                destination_type=node_members(destination)[0],
                min_hops=self._min_hops,
                max_hops=self._max_hops,
                edge_variable=edge_variable,
                at=traversal.at,
            )
        if self._max_hops <= 1:
            steps = self._steps_between(steps, source, destination)
        walk = ir.Walk(
            source=slots[0],
            source_members=node_members(source),
            steps=steps,
            min_hops=self._min_hops,
            max_hops=self._max_hops,
            destination=slots[1],
            destination_members=node_members(destination),
            edge_members=edges,
            node_members=self._node_members(steps, source),
        )
        if traversal.each is not None:
            each = check_each(scope, traversal.each, walk)
            if each is None:
                return None
            walk = replace(walk, each=each)
        return self._walk(walk, edge_variable)

    def _steps(self) -> tuple[ir.EdgeStep, ...]:
        """A step for each pair of node types that an edge may connect, in each direction in which it is walked. Where
        both ends have one type, either direction is one step."""
        nodes = self._scope.catalog.nodes
        steps: list[ir.EdgeStep] = []
        for member in self._members:
            edge, directions = member.edge, member.directions
            types = (edge.source_types, edge.target_types) if member.within is None else ((member.within,),) * 2
            for direction, source, target in product(directions, *types):
                ends = (target, source) if direction is ir.Direction.IN else (source, target)
                if source == target and directions == _EITHER:
                    if direction is ir.Direction.IN:
                        continue
                    direction = ir.Direction.BOTH
                steps.append(ir.EdgeStep(edge, direction, nodes[ends[0]], nodes[ends[1]]))
        is_long = self._max_hops > 1
        return _within_reach(steps, self._ends.source) if is_long and self._ends.source is not None else tuple(steps)

    def _bind_ends(self, steps: Sequence[ir.EdgeStep]) -> tuple[EntityType, EntityType]:
        starts, arrivals = [step.start for step in steps], [step.end for step in steps]
        source = self._bind_end(self._traversal.source, self._ends.source, starts)
        stays = node_members(source) if self._min_hops == 0 else ()
        return source, self._bind_end(self._traversal.destination, self._ends.destination, (*stays, *arrivals))

    def _bind_end(
        self, variable: ast.Variable, types: tuple[NodeType, ...] | None, reached: Sequence[NodeType]
    ) -> EntityType:
        """The type of an end, which is a new variable or one that is bound already."""
        scope, name = self._scope, variable.name
        bound = None if variable.is_anonymous else scope.variables.get(name)
        if isinstance(bound, EntityType):
            return bound
        if types is None:
            types = unique_types(reached)
            declared = {type_.name for type_ in scope.declared.get(name, ())}
            types = tuple(type_ for type_ in types if type_.name in declared) or types
        type_of_end = EntityType(types)
        if not variable.is_anonymous:
            scope.bind(name, type_of_end)
        return type_of_end

    def _bind_edge(self, edges: tuple[EdgeType, ...]) -> str | None:
        variable = self._traversal.edge_variable
        if variable is None or variable.is_anonymous:
            return None
        self._scope.bind(variable.name, EntityType(edges))
        return self._scope.slot(variable)

    def _steps_between(
        self, steps: Sequence[ir.EdgeStep], source: EntityType, destination: EntityType
    ) -> tuple[ir.EdgeStep, ...]:
        """The steps of a single hop that begin and end at types which the ends still have."""
        starts = self._types_left(self._traversal.source, source)
        ends = self._types_left(self._traversal.destination, destination)
        return tuple(step for step in steps if step.start.name in starts and step.end.name in ends)

    def _types_left(self, variable: ast.Variable, type_: EntityType) -> set[str]:
        return {member.name for member in self._scope.members(variable.name, type_)}

    def _node_members(self, steps: Sequence[ir.EdgeStep], source: EntityType) -> tuple[NodeType, ...]:
        """All types that a walk may pass through."""
        starts = () if steps and self._min_hops > 0 else node_members(source)
        return unique_types([*starts, *(step.start for step in steps), *(step.end for step in steps)])

    def _walk(self, walk: ir.Walk, edge_variable: str | None) -> resolved.WalkTraversal:
        if self._path is None:
            return resolved.WalkTraversal(walk, edge_variable, at=self._traversal.at)
        path_type = PathType(EntityType(walk.node_members), EntityType(walk.edge_members))
        self._scope.bind(self._path.variable.name, path_type)
        slot = self._scope.slot(self._path.variable)
        return resolved.WalkTraversal(walk, edge_variable, slot, self._path.mode, path_type, self._path.at)
