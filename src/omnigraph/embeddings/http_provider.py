"""Providers reached over HTTP: one request for some texts, retried as configured, and its failures without secrets.

`open_client` makes it with one of the two wire formats (Gemini has different requests for one text and for several,
OpenAI one for both). httpx is imported by the first request, so a graph that embeds nothing never loads it. Redirects
are not followed, because the key goes to the configured address only. A provider may quote a request back, and its
message ends in logs and responses; so every piece of it that could come from the key or a text is removed.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from omnigraph.api.service.http import retry_after_seconds
from omnigraph.embeddings.configuration import EmbeddingConfig, logger
from omnigraph.embeddings.provider import BatchRefusedError, RetrySettings, Role, TransientError, Usage
from omnigraph.errors import EmbeddingError

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class Request:
    """A POST below the base URL. Headers carry the key, and the body the texts, so neither shows."""

    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class WireFormat(Protocol):
    role_matters: bool
    """Whether a document and a query of the same text have different vectors."""

    def request(self, config: EmbeddingConfig, texts: Sequence[str], dimension: int, role: Role) -> Request: ...

    def vectors(self, answer: Any, count: int) -> list[NDArray[np.float32] | None]:
        """One vector per text. TypeError, KeyError and ValueError when the answer is of another shape."""
        ...

    def tokens(self, answer: Any) -> int | None:
        """The tokens that the answer reports."""
        ...


class OpenAIFormat:
    """`POST /embeddings`, for one text or several. Roles make no difference."""

    role_matters = False

    def request(self, config: EmbeddingConfig, texts: Sequence[str], dimension: int, role: Role) -> Request:
        body = {"model": config.model, "input": list(texts), "dimensions": dimension}
        return Request("/embeddings", {"Authorization": f"Bearer {config.api_key}", **_JSON}, _encode(body))

    def vectors(self, answer: Any, count: int) -> list[NDArray[np.float32] | None]:
        found: list[NDArray[np.float32] | None] = [None] * count
        for entry in answer["data"]:
            place = entry["index"]
            if type(place) is int and 0 <= place < count:
                found[place] = _vector(entry["embedding"])
        if count == 1 and found[0] is None:
            raise EmbeddingError("embedding response missing data[0]")
        return found

    def tokens(self, answer: Any) -> int | None:
        return _number_at(answer, "usage", "total_tokens")


class GeminiFormat:
    """`embedContent` for one text, `batchEmbedContents` for several; the role is the type of the task."""

    role_matters = True

    def request(self, config: EmbeddingConfig, texts: Sequence[str], dimension: int, role: Role) -> Request:
        contents = [
            {
                "model": f"models/{config.model}",
                "content": {"parts": [{"text": text}]},
                "taskType": f"RETRIEVAL_{role.name}",
                "outputDimensionality": dimension,
            }
            for text in texts
        ]
        verb, body = (
            ("embedContent", contents[0]) if len(contents) == 1 else ("batchEmbedContents", {"requests": contents})
        )
        path = f"/models/{quote(config.model, safe='/')}:{verb}"
        return Request(path, {"x-goog-api-key": config.api_key, **_JSON}, _encode(body))

    def vectors(self, answer: Any, count: int) -> list[NDArray[np.float32] | None]:
        if count == 1:
            return [_vector(answer["embedding"]["values"])]
        entries = answer["embeddings"]
        if len(entries) != count:
            # Only their order relates vectors to texts, so with one missing none can be used.
            raise BatchRefusedError(f"embedding response has {len(entries)} vectors for {count} texts")
        return [_vector(entry["values"]) for entry in entries]

    def tokens(self, answer: Any) -> int | None:
        return _number_at(answer, "usageMetadata", "promptTokenCount")


_JSON: Mapping[str, str] = {"Content-Type": "application/json"}


def _encode(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _vector(values: Any) -> NDArray[np.float32]:
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise TypeError("a vector is a list of numbers")
    with np.errstate(over="ignore"):  # a number beyond the range becomes infinite, which the checks name
        return np.array([float(value) for value in values], np.float64).astype(np.float32)


def _number_at(answer: Any, member: str, name: str) -> int | None:
    usage = answer.get(member) if isinstance(answer, dict) else None
    number = usage.get(name) if isinstance(usage, dict) else None
    return number if type(number) is int and number >= 0 else None


TAKEN_OUT: Final = "[redacted]"
_LONGEST_MESSAGE: Final = 600
_PIECE_OF_TEXT: Final = 12
_PIECE_OF_KEY: Final = 6


def redact(message: str, key: str, texts: Sequence[str]) -> str:
    """A provider's message, at most a few lines of it, with no piece of the key or of a text."""
    message = message[: 2 * _LONGEST_MESSAGE]
    hidden = [False] * len(message)
    _hide(message, hidden, [key], _PIECE_OF_KEY)
    _hide(message, hidden, _spellings(texts), _PIECE_OF_TEXT)
    parts = []
    for place, char in enumerate(message):
        if not hidden[place]:
            parts.append(char)
        elif place == 0 or not hidden[place - 1]:
            parts.append(TAKEN_OUT)
    shown = " ".join("".join(parts).split())
    return shown if len(shown) <= _LONGEST_MESSAGE else shown[: _LONGEST_MESSAGE - 1] + "…"


def _spellings(texts: Iterable[str]) -> list[str]:
    spelled: dict[str, None] = {}
    for text in texts:
        for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
            spelled[form] = None
    return list(spelled)


def _hide(message: str, hidden: list[bool], secrets: Sequence[str], piece: int) -> None:
    """Mark every stretch of `piece` characters or more that a secret has too; a shorter one as a whole word."""
    for secret in secrets:
        if len(secret) < piece and secret.strip():
            for found in re.finditer(rf"(?<!\w){re.escape(secret.strip())}(?!\w)", message):
                hidden[found.start() : found.end()] = [True] * (found.end() - found.start())
    together = "\0".join(secret for secret in secrets if len(secret) >= piece)
    for i in range(len(message) - piece + 1):
        if message[i : i + piece] in together:
            hidden[i : i + piece] = [True] * piece


# The answers of servers without batches. Refusals for keys or quotas would hit a single text as well.
_REFUSES_BATCHES: Final = frozenset({400, 404, 405, 413, 415, 422})
_LARGEST_ANSWER: Final = 256 << 20


class HttpProvider:
    """Asks one endpoint under one configuration. Threads may share it."""

    def __init__(self, config: EmbeddingConfig, format: WireFormat, settings: RetrySettings, usage: Usage) -> None:
        self._config = config
        self._format = format
        self._settings = settings
        self._usage = usage
        self._http: httpx.Client | None = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32] | None]:
        request = self._format.request(self._config, texts, dimension, role)
        body = self._settings.answer(
            lambda timeout: self._post(request, texts, timeout),
            self._warn_of_retry,
            f"provider {self._config.provider}, model {self._config.model}",
        )
        try:
            answer = json.loads(body)
            self._usage.count(tokens=self._format.tokens(answer))
            return self._format.vectors(answer, len(texts))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            # The text of a decoding error may quote what was decoded; its position is enough.
            place = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
            raise EmbeddingError(f"embedding response decode failed: {_unreadable(error)}{place}") from None

    def _post(self, request: Request, texts: Sequence[str], timeout: float) -> bytes:
        """The body of a successful answer. Other answers are failures, transient or final."""
        import httpx

        self._usage.count(requests=1)
        ends = time.monotonic() + timeout
        try:
            with self._client().stream(
                "POST",
                self._config.base_url + request.path,
                headers=dict(request.headers),
                content=request.body,
                timeout=timeout,
            ) as answer:
                body = self._read(answer, ends)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, ValueError, OSError) as error:
            # An address or a key that can't be sent, or no certificates: no other attempt would do better.
            raise EmbeddingError(f"embedding request failed: {self._cause(error, texts)}") from None
        except httpx.TransportError as error:
            cause = self._cause(error, texts)
            raise TransientError(f"embedding request failed: {cause} ({_host(self._config.base_url)})") from None
        if answer.is_success:
            return body
        said = redact(_failure_of(body), self._config.api_key, texts)
        message = f"embedding request failed with status {answer.status_code}: {said}"
        if answer.status_code == 429 or answer.status_code >= 500:
            raise TransientError(message, retry_after_seconds(answer.headers.get("retry-after")) or 0.0)
        if len(texts) > 1 and answer.status_code in _REFUSES_BATCHES:
            raise BatchRefusedError(message)
        raise EmbeddingError(message)

    def _read(self, answer: httpx.Response, ends: float) -> bytes:
        """The body, unless it comes so slowly that the request as a whole takes longer than it may."""
        import httpx

        parts, size = [], 0
        try:
            for part in answer.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > _LARGEST_ANSWER:
                    raise EmbeddingError(f"embedding response is larger than {_LARGEST_ANSWER} bytes")
                if time.monotonic() > ends:
                    raise TransientError("embedding request failed: the answer did not end in time")
        except (httpx.TransportError, httpx.DecodingError) as error:
            cause = self._cause(error, ())
            raise TransientError(f"embedding response read failed (status {answer.status_code}): {cause}") from None
        return b"".join(parts)

    def _client(self) -> httpx.Client:
        import httpx

        with self._lock:
            if self._http is None:
                # Certificates take long to load, so an address that needs none gets a context that trusts nobody.
                plain = self._config.base_url.startswith("http:")
                self._http = httpx.Client(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True)
            return self._http

    def _cause(self, error: Exception, texts: Sequence[str]) -> str:
        described = f"{type(error).__name__}: {error}".rstrip(": ")
        return redact(described, self._config.api_key, texts)

    def _warn_of_retry(self, attempt: int, pause: float) -> None:
        self._usage.count(retries=1)
        called = (self._config.provider.value, self._config.model)
        logger.warning("provider=%s model=%s attempt=%d failed, next in %.3fs", *called, attempt, pause)


def _host(url: str) -> str:
    """Whom a URL names, without a password that it may hold."""
    parts = urlsplit(url)
    return f"{parts.hostname or url}" + (f":{parts.port}" if parts.port is not None else "")


def _failure_of(body: bytes) -> str:
    """The message of a failure, or the whole body where it has none."""
    text = body.decode("utf-8", "replace")
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return text
    return message if isinstance(message, str) and message.strip() else text


def _unreadable(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "the body is not JSON"
    return "the body has no vectors where they belong"
