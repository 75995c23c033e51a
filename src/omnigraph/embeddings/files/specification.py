"""What is to be embedded and where it is: a specification of types and fields, alone or in a seed manifest.

Keys that are not known here belong to other tools and are ignored.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from omnigraph.errors import BadRequestError, NotFoundError

STREAM: Final = "-"
"""The name of stdin where something is read, and of stdout where it is written."""
_DEFAULT_ARTIFACT: Final = "./build/seed.embedded.jsonl"

Model = TypeVar("Model")


class TypeFields(Struct, frozen=True):
    """The member of a record that takes the vector, and those whose values make its text, in order."""

    target: str
    fields: tuple[str, ...]


class EmbedSpec(Struct, frozen=True):
    """The `embeddings` of a manifest, or a file of its own."""

    dimension: Annotated[int, Meta(ge=0)]
    types: dict[str, TypeFields]


class _Sources(Struct, frozen=True):
    raw_seed: str


class _LegacySeed(Struct, frozen=True):
    data: str | None = None


class _Artifacts(Struct, frozen=True):
    embedded_seed: str


class _Manifest(Struct, frozen=True):
    sources: _Sources | None = None
    seed: _LegacySeed | None = None
    artifacts: _Artifacts | None = None
    embeddings: EmbedSpec | None = None


@dataclass(frozen=True, slots=True)
class EmbedJob:
    """Where records come from and go to. Paths are as they were given, or joined to the directory of a manifest."""

    input: str
    output: str
    spec: EmbedSpec


def read_spec(path: str) -> EmbedSpec:
    """A specification in JSON."""
    try:
        given = msgspec.json.decode(_content(path, "embedding spec"))
    except msgspec.DecodeError as error:
        raise BadRequestError(f"embedding spec '{path}' is not valid JSON: {error}") from None
    return _typed(given, EmbedSpec, f"embedding spec '{path}'")


def read_manifest(path: str) -> EmbedJob:
    """A seed manifest in YAML."""
    import yaml

    called = f"seed manifest '{path}'"
    try:
        given = yaml.safe_load(_content(path, "seed manifest"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = getattr(error, "problem_mark", None)
        where = f" (line {place.line + 1}, column {place.column + 1})" if place is not None else ""
        raise BadRequestError(f"{called} is not valid YAML{where}: {getattr(error, 'problem', error)}") from None
    manifest = _typed({} if given is None else given, _Manifest, called)
    if manifest.sources is not None:
        source: str | None = manifest.sources.raw_seed
    else:
        source = manifest.seed.data if manifest.seed is not None else None
    if source is None:
        raise BadRequestError(f"{called} does not say where the records are: it needs sources.raw_seed")
    if manifest.embeddings is None:
        raise BadRequestError(f"{called} does not say what to embed: it needs embeddings")
    artifact = manifest.artifacts.embedded_seed if manifest.artifacts is not None else _DEFAULT_ARTIFACT
    directory = os.path.dirname(path)
    return EmbedJob(os.path.join(directory, source), os.path.join(directory, artifact), manifest.embeddings)


def _content(path: str, what: str) -> bytes:
    if path == STREAM:
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{what} does not exist: {path}") from None
    except OSError as error:
        raise BadRequestError(f"can't read {what} '{path}': {error.strerror}") from None


def _typed(given: Any, model: type[Model], called: str) -> Model:
    try:
        return msgspec.convert(given, model)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{called}: {error}") from None
