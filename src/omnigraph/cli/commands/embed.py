"""`omnigraph embed`: adds the vectors of their texts to files of graph records, before they are loaded."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from omnigraph.api.values import count_noun
from omnigraph.cli.inputs import STDIN
from omnigraph.cli.params import UsageError, at_most_one, json_option, repeatable_option
from omnigraph.cli.printing.output import print_json, print_note
from omnigraph.cli.printing.progress import reading
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean

if TYPE_CHECKING:
    from omnigraph.embeddings.files import EmbedJob, EmbedOutcome, EmbedSpec, Selection

STREAM: Final = str(STDIN)


@click.option("--seed", help="A seed manifest: input, output and spec in one.", metavar="YAML")
@click.option("--input", help="Graph records, one object per line; - is stdin.", metavar="JSONL")
@click.option("--output", help="Where they go; - is stdout.", metavar="JSONL")
@click.option("--spec", help="Which fields of which types are embedded, at which dimension.", metavar="JSON")
@click.option("--clean", is_flag=True, help="Remove vectors instead.")
@click.option("--reembed-all", is_flag=True, help="Embed every selected record, whether it has a vector or not.")
@repeatable_option("--type", "types", help="Only records of this type", metavar="TYPE")
@repeatable_option("--select", help="Embed the records again whose field has this value", metavar="[TYPE:]FIELD=VALUE")
@json_option
def embed(
    invocation: Invocation,
    seed: str | None,
    input: str | None,
    output: str | None,
    spec: str | None,
    clean: bool,
    reembed_all: bool,
    types: tuple[str, ...],
    select: tuple[str, ...],
) -> None:
    at_most_one(("--clean", clean), ("--reembed-all", reembed_all))
    _check_files(seed, input, output, spec)
    if invocation.json and output == STREAM:
        raise UsageError("--json and --output - would both be written to stdout")

    from omnigraph.embeddings.files import EmbedJob, Selection, Selector, embed_file, read_manifest, read_spec

    selection = Selection(types, tuple(map(Selector.of, select)))
    mode = selection.mode(clean=clean, reembed_all=reembed_all)
    if seed is not None:
        job = read_manifest(seed)
    elif input is not None and output is not None and spec is not None:
        job = EmbedJob(input, output, read_spec(spec))
    else:
        flag = next(name for name, path in (("input", input), ("output", output), ("spec", spec)) if path is None)
        raise BadRequestError(f"--{flag} is required when --seed is not provided")
    _check_types(selection, job.spec)
    size = os.path.getsize(job.input) if os.path.exists(job.input) else None
    with reading(os.path.basename(job.input), size) as advance:
        outcome = embed_file(job, selection, mode, os.environ, advance)
    _print(invocation, job, outcome)


def _print(invocation: Invocation, job: EmbedJob, outcome: EmbedOutcome) -> None:
    usage = outcome.usage
    if invocation.json:
        from omnigraph.cli.printing.reports import EmbedReport

        print_json(
            EmbedReport(
                input=job.input,
                output=job.output,
                records=outcome.records,
                selected_records=outcome.selected,
                embedded_records=outcome.embedded,
                cleaned_records=outcome.cleaned,
                mode=outcome.mode.value,
                dimension=job.spec.dimension,
                model=outcome.model,
                texts=usage.texts,
                reused_texts=usage.reused,
                requests=usage.requests,
                retries=usage.retries,
                tokens=usage.tokens,
            )
        )
        return
    done = f"embedded {count_noun(outcome.embedded, 'record')} (selected {outcome.selected}, cleaned {outcome.cleaned})"
    summary = f"{done} from {job.input} -> {job.output} [{outcome.mode} {job.spec.dimension}d]"
    print(summary, file=sys.stderr if job.output == STREAM else sys.stdout)
    if usage.requests:
        tokens = "" if usage.tokens is None else f", {usage.tokens:,} tokens"
        asked = f"{usage.texts - usage.reused:,} of {usage.texts:,} texts"
        sent = f"{count_noun(usage.requests, 'request')}, {count_noun(usage.retries, 'retry', 'retries')}"
        print_note(f"asked for {asked}: {sent}{tokens}")


def _check_files(seed: str | None, input: str | None, output: str | None, spec: str | None) -> None:
    """A manifest says all that the other three would, and of these the first and the last need the others."""
    paths = {"--input": input, "--output": output, "--spec": spec}
    if seed is not None:
        for flag, value in paths.items():
            at_most_one(("--seed", seed), (flag, value))
    missing = [flag for flag, value in paths.items() if value is None]
    for flag in ("--input", "--spec"):
        if paths[flag] is not None and missing:
            raise UsageError(f"{flag} requires {' and '.join(missing)}")
    if input == spec == STREAM:
        raise UsageError("stdin (-) can be given for one file only")


def _check_types(selection: Selection, spec: EmbedSpec) -> None:
    """Records of another type have nothing to embed, so that to select them does nothing."""
    for name in (*selection.types, *(selector.type for selector in selection.selectors if selector.type is not None)):
        if name not in spec.types:
            hint = did_you_mean(name, spec.types)
            raise BadRequestError(f"the embedding spec has no type '{name}'" + (f"; {hint}" if hint else ""))
