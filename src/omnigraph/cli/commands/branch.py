"""`omnigraph branch`: lines of work on the whole graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.files import read_source
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.json_input import json_object
from omnigraph.cli.options import Json, UriOption
from omnigraph.cli.output import print_json, print_lines, print_warning
from omnigraph.cli.progress import working
from omnigraph.errors import BadRequestError, MergeConflictsError

if TYPE_CHECKING:
    from omnigraph.api.merge import MergePreview, Resolutions

Name = Annotated[str, typer.Argument(help="The branch.", metavar="NAME")]


def create(
    ctx: typer.Context,
    name: Name,
    uri: UriOption = None,
    source: Annotated[
        str, typer.Option("--from", help="A branch, or any commit that is still kept.", metavar="SOURCE")
    ] = "main",
    json: Json = False,
) -> None:
    """Create a branch. It costs one small object, whatever the size of the graph."""
    invocation = Invocation.of(ctx)
    target, graph = invocation.open_to_write(uri)
    with graph:
        created = graph.create_branch(name, source=source, actor=invocation.actor_of(target))
    if json:
        from msgspec.structs import replace

        print_json(replace(created, uri=target.uri))
    else:
        print_lines([f"created branch {created.name} from {created.source}"])


def list_(ctx: typer.Context, uri: UriOption = None, json: Json = False) -> None:
    """List the branches by name."""
    _, graph = Invocation.of(ctx).open(uri)
    with graph:
        names = graph.list_branches()
    if json:
        from omnigraph.api.branches import BranchList

        print_json(BranchList(tuple(names)))
    else:
        print_lines(names)


def delete(ctx: typer.Context, name: Name, uri: UriOption = None, json: Json = False) -> None:
    """Delete a branch and the commits that only it has. This can't be undone."""
    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
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
    uri: UriOption = None,
    into: Annotated[str, typer.Option("--into", help="The branch that takes it in.", metavar="TARGET")] = "main",
    delete_branch: Annotated[bool, typer.Option("--delete-branch", help="Delete the source afterwards.")] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would change and what conflicts; do nothing.")
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
    target = invocation.target(uri)
    settled = _resolutions(ours or [], theirs or [], resolutions)
    if preview:
        with invocation.opened(target) as graph, working("comparing branches"):
            planned = graph.preview_merge(source, into, resolutions=settled)
        if json:
            print_json(planned)
        else:
            print_lines(_preview_lines(planned), _preview_style)
        return
    invocation.echo(target)
    try:
        with invocation.opened(target) as graph, working("merging"):
            actor = invocation.actor_of(target)
            merged = graph.merge(source, into, delete_branch=delete_branch, resolutions=settled, actor=actor)
    except MergeConflictsError as error:
        for conflict in error.conflicts:
            error.add_note(f"  {conflict.kind} {conflict.type_key} {conflict.entity_id or ''}".rstrip())
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
    from omnigraph.api.merge import DECIDABLE, Resolutions

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
        yield f"{len(planned.conflicts)} conflicts"
        yield from (f"  ! {conflict.kind}: {conflict.message}" for conflict in planned.conflicts)
    elif not planned.changes:
        yield "nothing would change"


def _preview_style(line: str) -> str:
    return {"  + ": "green", "  ~ ": "yellow", "  - ": "red", "  ! ": "bold red"}.get(line[:4], "")
