"""`omnigraph load`, and its old form `ingest`: graph records from a file as one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.invocation import Invocation, open_graph
from omnigraph.cli.options import Branch, Json, Uri
from omnigraph.cli.output import print_json, print_lines, print_warning
from omnigraph.cli.progress import reading
from omnigraph.errors import BadRequestError, NotFoundError

if TYPE_CHECKING:
    from omnigraph.engine.receipts import LoadReceipt


class Mode(StrEnum):
    """The load modes of the engine, which help and usage errors must not load."""

    OVERWRITE = "overwrite"
    APPEND = "append"
    MERGE = "merge"


Data = Annotated[Path, typer.Option("--data", help="The records, one JSON object per line.", metavar="FILE")]
_PIECE_BYTES = 1 << 20


def load(
    ctx: typer.Context,
    data: Data,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode", help="append refuses existing ids, merge replaces those entities, overwrite replaces whole types."
        ),
    ],
    uri: Uri = None,
    branch: Branch = "main",
    base: Annotated[
        str | None, typer.Option("--from", help="Create a missing branch from this one.", metavar="BASE")
    ] = None,
    json: Json = False,
) -> None:
    """Load graph records into a branch, all or nothing."""
    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
    invocation.echo(target)
    if mode is Mode.OVERWRITE:
        invocation.require_consent(target, "load --mode overwrite", json=json)
    with open_graph(target) as graph, _pieces(data) as pieces:
        receipt = graph.load(pieces, mode=mode.value, branch=branch, base=base, actor=invocation.actor)
    if json:
        print_json(_wire(target.uri, receipt))
        return
    loaded = f"loaded {target.uri} on branch {receipt.branch} with {mode}: {receipt.total_entities} entities"
    lines = [
        f"{loaded} across {len(receipt.nodes_loaded)} node types and {len(receipt.edges_loaded)} edge types",
    ]
    if receipt.branch_created:
        lines.append(f"branch {receipt.branch} created from {receipt.base_branch}")
    print_lines(lines)


def ingest(
    ctx: typer.Context,
    data: Data,
    uri: Uri = None,
    mode: Annotated[Mode, typer.Option("--mode", help="What to do with existing ids.")] = Mode.MERGE,
    branch: Branch = "main",
    base: Annotated[
        str, typer.Option("--from", help="Create a missing branch from this one.", metavar="BASE")
    ] = "main",
    json: Json = False,
) -> None:
    """Load records in the forgiving grammar of old exports (deprecated: use load)."""
    print_warning("`omnigraph ingest` is deprecated; use `omnigraph load --mode <mode>`")
    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
    invocation.echo(target)
    with open_graph(target) as graph, _pieces(data) as pieces:
        receipt = graph.load_lenient(pieces, mode=mode.value, branch=branch, base=base, actor=invocation.actor)
    if json:
        print_json({"uri": target.uri, **receipt.to_dict()})
        return
    existed = "branch created" if receipt.branch_created else "branch exists"
    what = f"ingested {receipt.total_entities} entities from {target.uri} into branch {receipt.branch}"
    lines = [f"{what} from {base} with {mode} ({existed})"]
    lines += [f"  node {name}: {count}" for name, count in sorted(receipt.nodes_loaded.items())]
    lines += [f"  edge {name}: {count}" for name, count in sorted(receipt.edges_loaded.items())]
    if receipt.commit.actor_id is not None:
        lines.append(f"actor_id: {receipt.commit.actor_id}")
    print_lines(lines)


def _wire(uri: str, receipt: LoadReceipt) -> dict[str, Any]:
    told = receipt.to_dict()
    wire: dict[str, Any] = {"uri": uri, "branch": told["branch"], "mode": told["mode"]}
    if told["base_branch"] is not None:
        wire["base_branch"] = told["base_branch"]
    rest = ("branch_created", "nodes", "edges", "total_entities", "commit")
    return wire | {key: told[key] for key in rest}


@contextmanager
def _pieces(path: Path) -> Iterator[Iterator[bytes]]:
    """The bytes of a file, with a progress bar when a person watches."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error
    with file, reading(path.name, path.stat().st_size) as advance:
        yield (advance(piece) for piece in iter(lambda: file.read(_PIECE_BYTES), b""))
