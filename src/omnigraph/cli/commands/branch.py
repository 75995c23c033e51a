"""The `branch` commands create, list, delete and merge branches of the whole graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from omnigraph.api.enums import Operation
from omnigraph.api.values import count_noun
from omnigraph.cli.inputs import json_object, read_source
from omnigraph.cli.params import UsageError, complete_branch, file_option, json_option
from omnigraph.cli.printing.history import branch_heads, describe_entity, head_lines
from omnigraph.cli.printing.output import print_warning, style_by
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation, StoreScope
from omnigraph.errors import BadRequestError, MergeConflictsError

if TYPE_CHECKING:
    from omnigraph.api.branches import MergeConflict, MergePreview, Resolutions

kind_option = partial(click.option, multiple=True, metavar="KIND")


@click.argument("name", help="The branch.")
@click.option(
    "--from",
    "source",
    default="main",
    help="A branch, or any commit that is still kept.",
    metavar="SOURCE",
    shell_complete=complete_branch,
)
@json_option
def create(invocation: Invocation, name: str, source: str) -> None:
    with invocation.open_to_write() as graph:
        created = graph.create_branch(name, source=source, actor=invocation.write_actor())
    invocation.print(invocation.name_graph(created), [f"created branch {created.name} from {created.source}"])


@click.option(
    "--verbose",
    is_flag=True,
    help="Also show the head of each branch, its date and author, and its distance from main.",
)
@json_option
def list_(invocation: Invocation, verbose: bool) -> None:
    from omnigraph.api.branches import BranchHeads, BranchList

    target = invocation.target
    if verbose:
        with invocation.open() as graph:
            heads = branch_heads(graph, graph.list_branches())
        report = BranchHeads(tuple(head.name for head in heads), tuple(heads))
        invocation.print(report, head_lines(heads))
        return
    if isinstance(target, StoreScope):
        # Names are in the log alone, so that no table is opened and no Lance is loaded.
        from omnigraph.storage.location import Location
        from omnigraph.storage.log.branches import LogRoot

        with closing(LogRoot.open(Location.parse(target.uri))) as root:
            names = root.branches.names()
    else:
        with invocation.open() as graph:
            names = graph.list_branches()
    invocation.print(BranchList(tuple(names)), names)


@click.argument("name", help="The branch.", shell_complete=complete_branch)
@json_option
def delete(invocation: Invocation, name: str) -> None:
    invocation.echo()
    invocation.require_consent("branch delete")
    with invocation.open() as graph:
        deleted = graph.delete_branch(name, actor=invocation.write_actor())
    invocation.print(invocation.name_graph(deleted), [f"deleted branch {deleted.name}"])


@click.argument("source", help="The branch to merge.", shell_complete=complete_branch)
@click.option(
    "--into", default="main", help="The branch to merge into.", metavar="TARGET", shell_complete=complete_branch
)
@click.option("--delete-branch", is_flag=True, help="Delete the source afterwards.")
@click.option("--preview", is_flag=True, help="Show what would change and what conflicts; do nothing.")
@click.option("--exit-code", is_flag=True, help="With --preview: exit 1 when something conflicts.")
@kind_option("--ours", help="Resolve this kind of conflict (or all) with the entity of the target.")
@kind_option("--theirs", help="Resolve this kind of conflict (or all) with the entity of the source.")
@file_option("--resolutions", help="A JSON file that resolves conflicts by kind or entity.")
@json_option
def merge(
    invocation: Invocation,
    source: str,
    into: str,
    delete_branch: bool,
    preview: bool,
    exit_code: bool,
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    resolutions: Path | None,
) -> None:
    settled = _resolutions(ours, theirs, resolutions)
    if exit_code and not preview:
        raise UsageError("--exit-code goes with --preview; a merge that conflicts always exits 1")
    if preview:
        with invocation.open() as graph, working("comparing branches"):
            planned = graph.preview_merge(source, into, resolutions=settled)
        invocation.print(planned, _preview_lines(planned), _preview_style)
        raise Exit(1 if exit_code and planned.conflicts else 0)
    try:
        with invocation.open_to_write() as graph, working("merging"):
            actor = invocation.write_actor()
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
    deleted = [f"deleted branch {source}"] if merged.branch_deleted else []
    invocation.print(merged, [f"merged {source} into {into}: {merged.outcome}", *deleted])


def _resolutions(ours: Sequence[str], theirs: Sequence[str], file: Path | None) -> Resolutions:
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
    for type_key, counts in planned.counts.items():
        yield f"{type_key}: " + ", ".join(f"{counts[op]} {op}" for op in Operation if counts[op])
    for change in planned.changes:
        yield f"  {describe_entity(change)}"
    if planned.conflicts:
        yield count_noun(len(planned.conflicts), "conflict")
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


_preview_style = style_by({"  + ": "green", "  ~ ": "yellow", "  - ": "red", "  ! ": "bold red"})
