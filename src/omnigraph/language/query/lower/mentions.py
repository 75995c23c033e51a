"""Which variables clauses and values mention, also through the blocks inside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.language.query import ir, resolved


class Blocks:
    """The blocks of a query, each of which a hidden variable stands for in the values that read it."""

    def __init__(self, blocks: Mapping[str, resolved.Block]) -> None:
        self._blocks = blocks
        self._read: dict[str, frozenset[str]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._blocks

    def __getitem__(self, hidden: str) -> resolved.Block:
        return self._blocks[hidden]

    def within(self, value: ir.Value) -> list[str]:
        """The blocks that a value reads itself, not through another block, each once."""
        if not self._blocks:
            return []
        return [name for name in dict.fromkeys(ir.variables_of(value)) if name in self._blocks]

    def mentioned_by(self, value: ir.Value) -> set[str]:
        """The variables that a value depends on, those that its blocks read included."""
        names = set(ir.variables_of(value))
        for name in names & self._blocks.keys():
            names |= self.read_by(name)
        return names

    def read_by(self, hidden: str) -> frozenset[str]:
        """Every variable that a block mentions, its own included."""
        if hidden not in self._read:
            block = self._blocks[hidden]
            names = self.in_clauses(block.clauses)
            if block.aggregate is not None:
                names |= self.mentioned_by(block.aggregate)
            self._read[hidden] = frozenset(names)
        return self._read[hidden]

    def in_clauses(self, clauses: Iterable[resolved.Clause]) -> set[str]:
        return {name for clause in clauses for name in self.in_clause(clause)}

    def in_clause(self, clause: resolved.Clause) -> set[str]:
        """Every variable that a clause mentions, at any depth."""
        match clause:
            case resolved.Binding():
                return {clause.variable}.union(*map(self.mentioned_by, clause.pins))
            case resolved.Traversal():
                edge = () if clause.edge_variable is None else (clause.edge_variable,)
                return {clause.source, clause.destination, *edge}
            case resolved.WalkTraversal():
                return self._in_walk(clause)
            case resolved.Filter():
                return self.mentioned_by(clause.predicate)
            case resolved.Negation() | resolved.OptionalBlock():
                return self.in_clauses(clause.clauses)

    def _in_walk(self, clause: resolved.WalkTraversal) -> set[str]:
        walk = clause.walk
        names = {walk.source, walk.destination}
        if walk.each is not None:
            names.update(*map(self.mentioned_by, walk.each.conditions))
            names -= {walk.each.edge, walk.each.node}
        return names | {name for name in (clause.edge_variable, clause.path) if name is not None}
