"""The `branch` commands create, list, delete and merge branches of the whole graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from omnigraph.api.values import count_noun
from omnigraph.cli.inputs import json_object, read_source
from omnigraph.cli.params import UsageError, complete_branch, file_option, json_option, uri_argument_or_option
from omnigraph.cli.printing.history import branch_heads, head_lines
from omnigraph.cli.printing.output import print_json, print_lines, print_warning
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation, StoreScope, pass_invocation
from omnigraph.errors import BadRequestError, MergeConflictsError

if TYPE_CHECKING:
    from omnigraph.api.branches import BranchHead, MergeConflict, MergePreview, Resolutions


@click.argument("name", help="The branch.")
@uri_argument_or_option
@click.option(
    "--from",
    "source",
    default="main",
    help="A branch, or any commit that is still kept.",
    metavar="SOURCE",
    shell_complete=complete_branch,
)
@json_option
@pass_invocation
def create(invocation: Invocation, name: str, uri: str | None, source: str, json: bool) -> None:
    target, graph = invocation.open_to_write(uri)
    with graph:
        created = graph.create_branch(name, source=source, actor=invocation.actor_of(target))
    if json:
        from msgspec.structs import replace

        print_json(replace(created, uri=target.uri))
    else:
        print_lines([f"created branch {created.name} from {created.source}"])


@uri_argument_or_option
@click.option(
    "--verbose",
    is_flag=True,
    help="Also show the head of each branch, its date and author, and its distance from main.",
)
@json_option
@pass_invocation
def list_(invocation: Invocation, uri: str | None, verbose: bool, json: bool) -> None:
    from omnigraph.api.branches import BranchHeads, BranchList

    target = invocation.target(uri)
    heads: list[BranchHead] = []
    if isinstance(target, StoreScope) and not verbose:
        names = _names_in_log(target)
    else:
        with invocation.open_target(target) as graph:
            names = graph.list_branches()
            heads = branch_heads(graph, names) if verbose else []
    if json:
        print_json(BranchHeads(tuple(names), tuple(heads)) if verbose else BranchList(tuple(names)))
    else:
        print_lines(head_lines(heads) if verbose else names)


def _names_in_log(target: StoreScope) -> list[str]:
    """Names are in the log alone, so that no table is opened and no Lance is loaded."""
    from omnigraph.storage.location import Location
    from omnigraph.storage.log.branches import LogRoot

    with closing(LogRoot.open(Location.parse(target.uri))) as root:
        return root.branches.names()


@click.argument("name", help="The branch.", shell_complete=complete_branch)
@uri_argument_or_option
@json_option
@pass_invocation
def delete(invocation: Invocation, name: str, uri: str | None, json: bool) -> None:
    target = invocation.target(uri)
    invocation.echo(target)
    invocation.require_consent(target, "branch delete", json=json)
    with invocation.open_target(target) as graph:
        deleted = graph.delete_branch(name, actor=invocation.actor_of(target))
    if json:
        from msgspec.structs import replace

        print_json(replace(deleted, uri=target.uri))
    else:
        print_lines([f"deleted branch {deleted.name}"])


@click.argument("source", help="The branch to merge.", shell_complete=complete_branch)
@uri_argument_or_option
@click.option(
    "--into", default="main", help="The branch to merge into.", metavar="TARGET", shell_complete=complete_branch
)
@click.option("--delete-branch", is_flag=True, help="Delete the source afterwards.")
@click.option("--preview", is_flag=True, help="Show what would change and what conflicts; do nothing.")
@click.option("--exit-code", is_flag=True, help="With --preview: exit 1 when something conflicts.")
@click.option(
    "--ours",
    multiple=True,
    help="Resolve this kind of conflict (or all) with the entity of the target.",
    metavar="KIND",
)
@click.option(
    "--theirs",
    multiple=True,
    help="Resolve this kind of conflict (or all) with the entity of the source.",
    metavar="KIND",
)
@file_option("--resolutions", help="A JSON file that resolves conflicts by kind or entity.")
@json_option
@pass_invocation
def merge(
    invocation: Invocation,
    source: str,
    uri: str | None,
    into: str,
    delete_branch: bool,
    preview: bool,
    exit_code: bool,
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    resolutions: Path | None,
    json: bool,
) -> None:
    target = invocation.target(uri)
    settled = _resolutions(ours, theirs, resolutions)
    if exit_code and not preview:
        raise UsageError("--exit-code goes with --preview; a merge that conflicts always exits 1")
    if preview:
        with invocation.open_target(target) as graph, working("comparing branches"):
            planned = graph.preview_merge(source, into, resolutions=settled)
        if json:
            print_json(planned)
        else:
            print_lines(_preview_lines(planned), _preview_style)
        raise Exit(1 if exit_code and planned.conflicts else 0)
    invocation.echo(target)
    try:
        with invocation.open_target(target) as graph, working("merging"):
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
    marks = {"insert": "+", "update": "~", "delete": "-"}
    for type_key, counts in planned.counts.items():
        yield f"{type_key}: " + ", ".join(f"{counts[op]} {op}" for op in marks if counts[op])
    for change in planned.changes:
        ends = f" {change.src} -> {change.dst}" if change.src is not None else ""
        yield f"  {marks[change.op]} {change.kind} {change.type_name} {change.id}{ends}"
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


def _preview_style(line: str) -> str:
    return {"  + ": "green", "  ~ ": "yellow", "  - ": "red", "  ! ": "bold red"}.get(line[:4], "")
