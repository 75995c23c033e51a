"""Mutations, on a branch."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from omnigraph.api import wire
from omnigraph.mcp.members import IdempotencyKey, Params, QueryName
from omnigraph.mcp.tool import Arguments, Tool, Toolcall

WriteBranch = Annotated[str, Meta(description="The branch that is changed; one that branch_create made.")]
IfCommit = Annotated[
    str | None, Meta(description="Only if the branch is at this commit; nothing is written otherwise.")
]


class MutateArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="The text of a mutation in the .gq language.")]
    branch: WriteBranch
    name: QueryName = None
    params: Params = None
    if_commit: IfCommit = None
    idempotency_key: IdempotencyKey = None


def mutate(call: Toolcall, arguments: MutateArguments) -> dict[str, Any]:
    receipt = call.graph.mutate(
        arguments.query,
        arguments.name,
        arguments.params,
        branch=call.terms.writable(arguments.branch),
        if_commit=arguments.if_commit,
        actor=call.actor,
        idempotency_key=arguments.idempotency_key,
    )
    told: dict[str, Any] = wire.to_builtins(receipt)
    return told


MUTATE: Final = Tool(
    "mutate",
    "Change a branch",
    "Runs inserts, updates or deletes as one commit, or not at all. Examples: query add($name: String) { insert Person "
    "{ name: $name } }; query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }; "
    "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }; query drop($name: String) { delete "
    "Person where name = $name }. An insert replaces the node of the same key. commit is null when nothing matched.",
    MutateArguments,
    mutate,
    writes=True,
    destructive=True,
)
