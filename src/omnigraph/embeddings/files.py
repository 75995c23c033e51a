"""`omnigraph embed`: files of graph records get their vectors before they are loaded, all records or none.

The command calls `embed_file` with a specification of types and fields, alone or in a seed manifest. Records pass in
portions, so memory does not grow with the file, and values keep their JSON text. Vectors are kept beside the output
until it is complete, so the repetition of a run that died asks only for the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct
from numpy.typing import NDArray

from omnigraph.embeddings.client import EmbeddingClient, open_client
from omnigraph.embeddings.configuration import config_from_environment
from omnigraph.embeddings.provider import Usage
from omnigraph.embeddings.vector_store import VectorStore
from omnigraph.errors import BadRequestError, ConflictError, NotFoundError

STREAM: Final = "-"
"""The name of stdin where something is read, and of stdout where it is written."""
_DEFAULT_ARTIFACT: Final = "./build/seed.embedded.jsonl"


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
        return msgspec.json.decode(_content(path, "embedding spec"), type=EmbedSpec)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"embedding spec '{path}': {error}") from None
    except msgspec.DecodeError as error:
        raise BadRequestError(f"embedding spec '{path}' is not valid JSON: {error}") from None


def read_manifest(path: str) -> EmbedJob:
    """A seed manifest in YAML."""
    import yaml

    called = f"seed manifest '{path}'"
    try:
        document = yaml.safe_load(_content(path, "seed manifest"))
        manifest = msgspec.convert({} if document is None else document, _Manifest)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{called}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        raise BadRequestError(f"{called} is not valid YAML{where}: {getattr(error, 'problem', error)}") from None
    legacy = manifest.seed.data if manifest.seed is not None else None
    source = legacy if manifest.sources is None else manifest.sources.raw_seed
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


_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object. `type` and `data` are those of an entity; edges and other lines have neither."""

    line: bytes
    members: Mapping[str, Raw]
    type: str | None
    data: Mapping[str, Raw]

    @classmethod
    def of(cls, line: bytes, number: int) -> Record:
        """The record on a line that is not blank; `number` counts those."""
        try:
            line.decode()  # the decoder takes strings as they are
            compact = msgspec.json.format(line, indent=-1)
            members = _OBJECT.decode(compact)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise BadRequestError(f"line {number} is not valid JSON: {why}") from None
        named = members.get("type")
        if named is None or not bytes(named).startswith(b'"'):
            return cls(compact, members, None, {})
        data = members.get("data")
        if data is None or not bytes(data).startswith(b"{"):
            raise BadRequestError(f"line {number} is missing object field 'data'")
        return cls(compact, members, _text(named), _OBJECT.decode(data))

    def with_data(self, data: Mapping[str, Raw]) -> bytes:
        """The line with other data."""
        return msgspec.json.encode({**self.members, "data": Raw(msgspec.json.encode(data))})

    def text(self, fields: Sequence[str]) -> str:
        """The text of an entity: its type, and every field that is not empty."""
        lines = [f"type: {self.type}"]
        lines += [f"{name}: {shown}" for name in fields if name in self.data and (shown := render(self.data[name]))]
        return "\n".join(lines)


def render(value: Raw) -> str:
    """A value as text: strings trimmed, lists joined by commas, null nothing, everything else the JSON it is."""
    json = bytes(value)
    if json == b"null":
        return ""
    if json.startswith(b'"'):
        return _text(value).strip()
    if json.startswith(b"["):
        return ", ".join(shown for element in _ARRAY.decode(json) if (shown := render(element)))
    return json.decode()


def _text(value: Raw) -> str:
    return msgspec.json.decode(value, type=str)


class EmbedMode(StrEnum):
    """The treatment of the selected records."""

    FILL_MISSING = "fill_missing"
    REEMBED_SELECTED = "reembed_selected"
    REEMBED_ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Selector:
    """`Type:field=value`, or `field=value` for any type."""

    type: str | None
    field: str
    value: str

    @classmethod
    def of(cls, text: str) -> Selector:
        left, equals, value = text.partition("=")
        if not equals:
            raise BadRequestError(f"selector must be field=value or Type:field=value, not '{text}'")
        type_name, colon, field = left.partition(":")
        if not colon:
            type_name, field = "", left
        if not field.strip():
            raise BadRequestError(f"selector field cannot be empty, as in '{text}'")
        return cls(type_name.strip() or None, field.strip(), value.strip())

    def matches(self, record: Record) -> bool:
        if self.type is not None and self.type != record.type:
            return False
        held = record.data.get(self.field)
        return held is not None and render(held) == self.value


@dataclass(frozen=True, slots=True)
class Selection:
    """Types and selectors; any of either is enough, and none of them means every entity."""

    types: Sequence[str] = ()
    selectors: Sequence[Selector] = ()

    def holds(self, record: Record) -> bool:
        if record.type is None or (self.types and record.type not in self.types):
            return False
        return not self.selectors or any(selector.matches(record) for selector in self.selectors)

    def mode(self, *, clean: bool, reembed_all: bool) -> EmbedMode:
        """The mode that the flags mean: records chosen by their values are embedded again."""
        if clean:
            return EmbedMode.CLEAN
        if reembed_all:
            return EmbedMode.REEMBED_ALL
        return EmbedMode.REEMBED_SELECTED if self.selectors else EmbedMode.FILL_MISSING


RESUME_SUFFIX: Final = ".resume"
_PORTION_TEXTS: Final = 256
_PORTION_BYTES: Final = 4 << 20


@dataclass
class EmbedOutcome:
    """The counts of a run, and its cost."""

    mode: EmbedMode
    model: str = ""
    records: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0
    usage: Usage = field(default_factory=Usage)


def embed_file(
    job: EmbedJob,
    selection: Selection,
    mode: EmbedMode,
    environment: Mapping[str, str],
    read: Callable[[bytes], bytes] = lambda line: line,
) -> EmbedOutcome:
    """Write the output. `read` gets every line as it is read, for progress."""
    if job.input != STREAM and not os.path.exists(job.input):
        raise NotFoundError(f"seed input does not exist: {job.input}")
    outcome = EmbedOutcome(mode)
    client: EmbeddingClient | None = None
    resumable = None if job.output == STREAM else VectorStore(Path(job.output + RESUME_SUFFIX))
    if mode is not EmbedMode.CLEAN:
        client = open_client(config_from_environment(environment), environment, stores=[resumable] if resumable else [])
        outcome.model, outcome.usage = client.model, client.usage
    with _destination(job.output) as output, _open_input(job.input) as lines:
        for portion in _portions(_prepare(map(read, lines), job.spec, selection, outcome)):
            texts = [each.text for each in portion if each.text is not None]
            vectors = iter(client.embed_documents(texts, job.spec.dimension) if client is not None and texts else ())
            output.writelines(each.line if each.text is None else each.with_vector(next(vectors)) for each in portion)
    if resumable is not None:
        resumable.remove()
    return outcome


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A record and its line of the output. One with a `text` needs the vector of it in `target`."""

    record: Record
    line: bytes
    target: str = ""
    text: str | None = None

    def with_vector(self, vector: NDArray[np.float32]) -> bytes:
        json = Raw(msgspec.json.encode(vector.tolist()))
        return self.record.with_data({**self.record.data, self.target: json}) + b"\n"


def _prepare(lines: Iterable[bytes], spec: EmbedSpec, chosen: Selection, outcome: EmbedOutcome) -> Iterator[_Prepared]:
    for line in lines:
        if not (line := line.decode("utf-8", "surrogateescape").strip().encode("utf-8", "surrogateescape")):
            continue
        outcome.records += 1
        record = Record.of(line, outcome.records)
        prepared = _Prepared(record, record.line + b"\n")
        is_selected = chosen.holds(record)
        outcome.selected += is_selected
        fields = spec.types.get(record.type or "") if is_selected else None
        if fields is not None:
            vector = record.data.get(fields.target)
            is_missing = vector is None or bytes(vector) in (b"null", b"[]")
            if outcome.mode is EmbedMode.CLEAN and vector is not None:
                outcome.cleaned += 1
                rest = {name: value for name, value in record.data.items() if name != fields.target}
                prepared = _Prepared(record, record.with_data(rest) + b"\n")
            elif outcome.mode is not EmbedMode.CLEAN and (is_missing or outcome.mode is not EmbedMode.FILL_MISSING):
                outcome.embedded += 1
                prepared = replace(prepared, target=fields.target, text=record.text(fields.fields))
        yield prepared


def _portions(prepared: Iterable[_Prepared]) -> Iterator[list[_Prepared]]:
    portion: list[_Prepared] = []
    texts = size = 0
    for each in prepared:
        portion.append(each)
        texts += each.text is not None
        size += len(each.line)
        if texts >= _PORTION_TEXTS or size >= _PORTION_BYTES:
            yield portion
            portion, texts, size = [], 0, 0
    yield portion


def _open_input(path: str) -> AbstractContextManager[BinaryIO]:
    try:
        return nullcontext(sys.stdin.buffer) if path == STREAM else open(path, "rb")
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from None


@contextmanager
def _destination(path: str) -> Iterator[BinaryIO]:
    """Stdout, or a file that replaces the one at `path` when the block ends well."""
    if path == STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    temporary = f"{path}.tmp"
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = _lock_file(temporary)
    except OSError as error:
        raise BadRequestError(f"can't write '{temporary}': {error.strerror}") from None
    with file:
        file.truncate(0)
        yield file
        file.flush()
        os.fsync(file.fileno())
        os.replace(temporary, path)


def _lock_file(path: str) -> BinaryIO:
    """The file, locked by this process: two runs to one output would mix their lines."""
    try:
        import fcntl
    except ImportError:  # no POSIX locks here
        return open(path, "wb")
    while True:
        file = open(path, "ab")  # noqa: SIM115  (held by the caller)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ConflictError(f"another `omnigraph embed` is writing '{path}'; wait for it to end") from None
        try:
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except FileNotFoundError:
            pass
        # Its holder finished in between: our file is the output now, which we must not write.
        file.close()
