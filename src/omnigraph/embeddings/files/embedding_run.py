"""A run of `omnigraph embed`: records in, the same records with vectors out, all of them or none.

Records pass in portions, so memory does not grow with the file. Vectors that were paid for are kept beside the output
until it is complete: a run that died is repeated at the price of what it had not asked for yet. Standard streams have
no place to keep anything beside.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from omnigraph.embeddings.client import EmbeddingClient, open_client
from omnigraph.embeddings.configuration import config_from_environment
from omnigraph.embeddings.files.records import Record, as_json, is_missing
from omnigraph.embeddings.files.selection import EmbedMode, Selection
from omnigraph.embeddings.files.specification import STREAM, EmbedJob, EmbedSpec
from omnigraph.embeddings.usage import Usage
from omnigraph.embeddings.vector_store import VectorStore
from omnigraph.errors import BadRequestError, ConflictError, NotFoundError

RESUME_SUFFIX: Final = ".resume"
_PORTION_TEXTS: Final = 256
_PORTION_BYTES: Final = 4 << 20


@dataclass
class EmbedOutcome:
    """What became of the records, and what it cost."""

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
    """Write the output. `read` is handed every line as it is read, for whoever watches."""
    if job.input != STREAM and not os.path.exists(job.input):
        raise NotFoundError(f"seed input does not exist: {job.input}")
    outcome = EmbedOutcome(mode)
    client: EmbeddingClient | None = None
    resumable = None if job.output == STREAM else VectorStore(Path(job.output + RESUME_SUFFIX))
    if mode is not EmbedMode.CLEAN:
        client = open_client(config_from_environment(environment), environment, stores=[resumable] if resumable else [])
        outcome.model, outcome.usage = client.model, client.usage
    with _destination(job.output) as output, _opened(job.input) as lines:
        for portion in _portions(_Run(job.spec, selection, outcome).prepared(map(read, lines))):
            _embed(portion, job.spec, client)
            output.writelines(each.line for each in portion)
    if resumable is not None:
        resumable.remove()
    return outcome


@dataclass(slots=True)
class _Prepared:
    """A line to be written; with a text, once its vector is in it."""

    line: bytes
    record: Record | None = None
    target: str = ""
    text: str | None = None


@dataclass(frozen=True)
class _Run:
    spec: EmbedSpec
    selection: Selection
    outcome: EmbedOutcome

    def prepared(self, lines: Iterable[bytes]) -> Iterator[_Prepared]:
        """Every record, with what is to be embedded of it."""
        for line in lines:
            if not (line := line.decode("utf-8", "surrogateescape").strip().encode("utf-8", "surrogateescape")):
                continue
            self.outcome.records += 1
            yield self._prepared(Record.of(line, self.outcome.records))

    def _prepared(self, record: Record) -> _Prepared:
        unchanged = _Prepared(record.line + b"\n")
        if not self.selection.holds(record):
            return unchanged
        self.outcome.selected += 1
        fields = self.spec.types.get(record.type or "")
        if fields is None:
            return unchanged
        held = record.data.get(fields.target)
        if self.outcome.mode is EmbedMode.CLEAN:
            if held is None:
                return unchanged
            self.outcome.cleaned += 1
            rest = {name: value for name, value in record.data.items() if name != fields.target}
            return _Prepared(record.with_data(rest) + b"\n")
        if self.outcome.mode is EmbedMode.FILL_MISSING and not is_missing(held):
            return unchanged
        self.outcome.embedded += 1
        return _Prepared(b"", record, fields.target, record.text(fields.fields))


def _portions(prepared: Iterable[_Prepared]) -> Iterator[list[_Prepared]]:
    portion: list[_Prepared] = []
    texts = size = 0
    for each in prepared:
        portion.append(each)
        texts += each.text is not None
        size += len(each.line) if each.record is None else len(each.record.line)
        if texts >= _PORTION_TEXTS or size >= _PORTION_BYTES:
            yield portion
            portion, texts, size = [], 0, 0
    yield portion


def _embed(portion: list[_Prepared], spec: EmbedSpec, client: EmbeddingClient | None) -> None:
    wanted = [(each, each.record, each.text) for each in portion if each.record is not None and each.text is not None]
    if client is None or not wanted:
        return
    vectors = client.embed_documents([text for _, _, text in wanted], spec.dimension)
    for (each, record, _), vector in zip(wanted, vectors, strict=True):
        each.line = record.with_data({**record.data, each.target: as_json(vector.tolist())}) + b"\n"


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STREAM:
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below; only opening it may fail in this way)
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from None
    with file:
        yield file


@contextmanager
def _destination(path: str) -> Iterator[BinaryIO]:
    if path != STREAM:
        with _replacing(path) as file:
            yield file
        return
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well. What was there before stays until then."""
    temporary = f"{path}.tmp"
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = _claimed(temporary)
    except OSError as error:
        raise BadRequestError(f"can't write '{temporary}': {error.strerror}") from None
    with file:
        file.truncate(0)
        yield file
        file.flush()
        os.fsync(file.fileno())
        os.replace(temporary, path)


def _claimed(path: str) -> BinaryIO:
    """The file, held by this process alone: two runs to one output would mix their lines."""
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
        # Its holder finished in between: what we hold is the output now, and not ours to write.
        file.close()
