"""`omnigraph branch`: lines of work on the whole graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.api.values import counted
from omnigraph.cli.inputs import json_object, read_source
from omnigraph.cli.params import Json, Uri, UriOption, UsageError, given_uri
from omnigraph.cli.printing.history import branch_heads, head_lines
from omnigraph.cli.printing.output import print_json, print_lines, print_warning
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError, MergeConflictsError

if TYPE_CHECKING:
    from omnigraph.api.branches import MergeConflict, MergePreview, Resolutions

Name = Annotated[str, typer.Argument(help="The branch.", metavar="NAME")]


def create(
    ctx: typer.Context,
    name: Name,
    place: Uri = None,
    uri: UriOption = None,
    source: Annotated[
        str, typer.Option("--from", help="A branch, or any commit that is still kept.", metavar="SOURCE")
    ] = "main",
    json: Json = False,
) -> None:
    """Create a branch. It costs one small object, whatever the size of the graph."""
    invocation = Invocation.of(ctx)
    target, graph = invocation.open_to_write(given_uri(place, uri))
    with graph:
        created = graph.create_branch(name, source=source, actor=invocation.actor_of(target))
    if json:
        from msgspec.structs import replace

        print_json(replace(created, uri=target.uri))
    else:
        print_lines([f"created branch {created.name} from {created.source}"])


def list_(
    ctx: typer.Context,
    place: Uri = None,
    uri: UriOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With the head of each, its date and author, and how far it is from main.")
    ] = False,
    json: Json = False,
) -> None:
    """List the branches by name."""
    from omnigraph.api.branches import BranchHeads, BranchList

    _, graph = Invocation.of(ctx).open(given_uri(place, uri))
    with graph:
        names = graph.list_branches()
        heads = branch_heads(graph, names) if verbose else []
    if json:
        print_json(BranchHeads(tuple(names), tuple(heads)) if verbose else BranchList(tuple(names)))
    else:
        print_lines(head_lines(heads) if verbose else names)


def delete(ctx: typer.Context, name: Name, place: Uri = None, uri: UriOption = None, json: Json = False) -> None:
    """Delete a branch and the commits that only it has. This can't be undone."""
    invocation = Invocation.of(ctx)
    target = invocation.target(given_uri(place, uri))
    invocation.echo(target)
    invocation.require_consent(target, "branch delete", json=json)
    with invocation.opened(target) as graph:
        deleted = graph.delete_branch(name, actor=invocation.actor_of(target))
    if json:
        from msgspec.structs import replace

        print_json(replace(deleted, uri=target.uri))
    else:
        print_lines([f"deleted branch {deleted.name}"])


def merge(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="The branch to merge.", metavar="SOURCE")],
    place: Uri = None,
    uri: UriOption = None,
    into: Annotated[str, typer.Option("--into", help="The branch that takes it in.", metavar="TARGET")] = "main",
    delete_branch: Annotated[bool, typer.Option("--delete-branch", help="Delete the source afterwards.")] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would change and what conflicts; do nothing.")
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="With --preview: exit 1 when something conflicts.")
    ] = False,
    ours: Annotated[
        list[str] | None,
        typer.Option("--ours", help="Settle this kind of conflict (or all) with the target's state.", metavar="KIND"),
    ] = None,
    theirs: Annotated[
        list[str] | None,
        typer.Option("--theirs", help="Settle this kind of conflict (or all) with the source's state.", metavar="KIND"),
    ] = None,
    resolutions: Annotated[
        Path | None,
        typer.Option("--resolutions", help="A JSON file that settles conflicts by kind or entity.", metavar="FILE"),
    ] = None,
    json: Json = False,
) -> None:
    """Merge a branch into another, by entity, all or nothing."""
    invocation = Invocation.of(ctx)
    target = invocation.target(given_uri(place, uri))
    settled = _resolutions(ours or [], theirs or [], resolutions)
    if exit_code and not preview:
        raise UsageError("--exit-code goes with --preview; a merge that conflicts always exits 1")
    if preview:
        with invocation.opened(target) as graph, working("comparing branches"):
            planned = graph.preview_merge(source, into, resolutions=settled)
        if json:
            print_json(planned)
        else:
            print_lines(_preview_lines(planned), _preview_style)
        raise typer.Exit(1 if exit_code and planned.conflicts else 0)
    invocation.echo(target)
    try:
        with invocation.opened(target) as graph, working("merging"):
            actor = invocation.actor_of(target)
            merged = graph.merge(source, into, delete_branch=delete_branch, resolutions=settled, actor=actor)
    except MergeConflictsError as error:
        for conflict in error.conflicts:
            error.add_note(f"  {conflict.kind} {conflict.type_key} {conflict.entity_id or ''}".rstrip())
            for line in _value_lines(conflict):
                error.add_note(line)
        error.add_note("Settle them with --ours or --theirs, or change the data on one of the branches.")
        raise
    if merged.branch_delete_error is not None:
        print_warning(f"merged, but could not delete branch '{source}': {merged.branch_delete_error}")
    if json:
        print_json(merged)
        return
    lines = [f"merged {source} into {into}: {merged.outcome}"]
    print_lines(lines + ([f"deleted branch {source}"] if merged.branch_deleted else []))


def _resolutions(ours: list[str], theirs: list[str], file: Path | None) -> Resolutions:
    from omnigraph.api.branches import DECIDABLE, Resolutions

    document: dict[str, object] = {}
    if file is not None:
        document = json_object(read_source(file), f"'{file}'", "it must hold an object with kinds and entities")
    from_file = Resolutions.from_dict(document)
    kinds: dict[str, str] = {kind.value: side.value for kind, side in from_file.kinds.items()}
    for side, named in (("ours", ours), ("theirs", theirs)):
        for kind in named:
            for each in sorted(DECIDABLE) if kind == "all" else [kind]:
                if kinds.setdefault(str(each), side) != side:
                    raise BadRequestError(f"conflicts of the kind {each} can't go to both sides")
    return Resolutions(Resolutions.of(kinds=kinds).kinds, from_file.entities)


def _preview_lines(planned: MergePreview) -> Iterator[str]:
    yield f"merging {planned.source} into {planned.target} would be: {planned.outcome}"
    marks = {"insert": "+", "update": "~", "delete": "-"}
    for type_key, counts in planned.counts.items():
        yield f"{type_key}: " + ", ".join(f"{counts[op]} {op}" for op in marks if counts[op])
    for change in planned.changes:
        ends = f" {change.src} -> {change.dst}" if change.src is not None else ""
        yield f"  {marks[change.op]} {change.kind} {change.type_name} {change.id}{ends}"
    if planned.conflicts:
        yield counted(len(planned.conflicts), "conflict")
        for conflict in planned.conflicts:
            yield f"  ! {conflict.kind}: {conflict.message}"
            yield from _value_lines(conflict)
    elif not planned.changes:
        yield "nothing would change"


def _value_lines(conflict: MergeConflict) -> Iterator[str]:
    """Per property in conflict, its value in the base, on the target and on the source."""
    from omnigraph.api import wire

    for each in conflict.properties:
        values = {"base": each.base, "ours": each.ours, "theirs": each.theirs}
        shown = ", ".join(
            f"{place} {'(absent)' if place in conflict.absent_in else wire.encode(value).decode()}"
            for place, value in values.items()
        )
        yield f"      {each.property}: {shown}"


def _preview_style(line: str) -> str:
    return {"  + ": "green", "  ~ ": "yellow", "  - ": "red", "  ! ": "bold red"}.get(line[:4], "")
