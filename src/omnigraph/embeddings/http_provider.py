"""Providers reached over HTTP: one request for some texts, retried as configured, and its failures without secrets.

`open_client` makes them. Gemini has different requests for one text and for several, OpenAI one for both. httpx is
imported by the first request, so a graph that embeds nothing never loads it. Redirects are not followed, because the
key goes to the configured address only. A provider may quote a request back, and its message ends in logs and
responses; so every piece of it that could come from the key or a text is removed.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from omnigraph.api.service.http import retry_after_seconds
from omnigraph.embeddings.configuration import EmbeddingConfig, logger
from omnigraph.embeddings.provider import BatchRefusedError, RetrySettings, Role, TransientError, Usage
from omnigraph.errors import EmbeddingError

if TYPE_CHECKING:
    import httpx

TAKEN_OUT: Final = "[redacted]"
_LONGEST_MESSAGE: Final = 600
_PIECE_OF_TEXT: Final = 12
_PIECE_OF_KEY: Final = 6


def redact(message: str, key: str, texts: Sequence[str]) -> str:
    """A provider's message, at most a few lines of it, without any piece of the key or of a text."""
    message = message[: 2 * _LONGEST_MESSAGE]
    spellings = [(text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]) for text in texts]
    secret = [False] * len(message)
    _mark(message, secret, [key], _PIECE_OF_KEY)
    _mark(message, secret, list(dict.fromkeys(form for forms in spellings for form in forms)), _PIECE_OF_TEXT)
    stretches = groupby(zip(secret, message, strict=True), lambda char: char[0])
    parts = [TAKEN_OUT if is_secret else "".join(char for _, char in chars) for is_secret, chars in stretches]
    shown = " ".join("".join(parts).split())
    return shown if len(shown) <= _LONGEST_MESSAGE else shown[: _LONGEST_MESSAGE - 1] + "…"


def _mark(message: str, secret: list[bool], values: Sequence[str], piece: int) -> None:
    """Mark every stretch of `piece` characters or more that a value has too; a shorter value as a whole word."""
    for value in values:
        if len(value) < piece and value.strip():
            for match in re.finditer(rf"(?<!\w){re.escape(value.strip())}(?!\w)", message):
                secret[match.start() : match.end()] = [True] * (match.end() - match.start())
    together = "\0".join(value for value in values if len(value) >= piece)
    for i in range(len(message) - piece + 1):
        if message[i : i + piece] in together:
            secret[i : i + piece] = [True] * piece


# The statuses of servers without batches. A wrong key or an exhausted quota would fail a single text as well.
_REFUSES_BATCHES: Final = frozenset({400, 404, 405, 413, 415, 422})
_LARGEST_ANSWER: Final = 256 << 20


@dataclass(eq=False)
class HttpProvider(ABC):
    """Asks one endpoint under one configuration. Threads may share it. A subclass knows one wire format."""

    role_matters: ClassVar[bool]
    """Whether a document and a query of the same text have different vectors."""
    tokens_at: ClassVar[tuple[str, str]]
    """The members of a response that lead to the tokens it was charged for."""

    config: EmbeddingConfig
    settings: RetrySettings
    usage: Usage
    _http: httpx.Client | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @abstractmethod
    def request(self, texts: Sequence[str], dimension: int, role: Role) -> tuple[str, dict[str, str], object]:
        """The path below the base URL, the header with the key, and the body."""

    @abstractmethod
    def vectors(self, answer: Any, count: int) -> list[NDArray[np.float32] | None]:
        """One vector per text. TypeError, KeyError and ValueError when the response has another shape."""

    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32] | None]:
        path, headers, content = self.request(texts, dimension, role)
        body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        provider, model = self.config.provider.value, self.config.model

        def warn(attempt: int, pause: float) -> None:
            self.usage.count(retries=1)
            logger.warning("provider=%s model=%s attempt=%d failed, next in %.3fs", provider, model, attempt, pause)

        response = self.settings.answer(
            lambda timeout: self._post(path, headers, body, texts, timeout), warn, f"provider {provider}, model {model}"
        )
        try:
            answer = json.loads(response)
            self.usage.count(tokens=self._tokens(answer))
            return self.vectors(answer, len(texts))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            # The text of a decoding error may quote what was decoded; its position is enough.
            is_json = not isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
            reason = "the body has no vectors where they belong" if is_json else "the body is not JSON"
            position = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
            raise EmbeddingError(f"embedding response decode failed: {reason}{position}") from None

    def _tokens(self, answer: Any) -> int | None:
        for member in self.tokens_at:
            answer = answer.get(member) if isinstance(answer, dict) else None
        return answer if type(answer) is int and answer >= 0 else None

    def _post(
        self, path: str, headers: Mapping[str, str], content: bytes, texts: Sequence[str], timeout: float
    ) -> bytes:
        """The body of a successful response. Other responses are failures, transient or final."""
        import httpx

        self.usage.count(requests=1)
        ends = time.monotonic() + timeout
        url, headers = self.config.base_url + path, {**headers, "Content-Type": "application/json"}
        try:
            with self._client().stream("POST", url, headers=headers, content=content, timeout=timeout) as answer:
                body = self._read(answer, ends)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, ValueError, OSError) as error:
            # An address or a key that can't be sent, or no certificates: another attempt would fail as well.
            raise EmbeddingError(f"embedding request failed: {self._cause(error, texts)}") from None
        except httpx.TransportError as error:
            parts = urlsplit(self.config.base_url)  # only the host is shown: a URL may hold a password
            host = f"{parts.hostname or self.config.base_url}{'' if parts.port is None else f':{parts.port}'}"
            raise TransientError(f"embedding request failed: {self._cause(error, texts)} ({host})") from None
        if answer.is_success:
            return body
        reason = redact(_error_message(body), self.config.api_key, texts)
        message = f"embedding request failed with status {answer.status_code}: {reason}"
        if answer.status_code == 429 or answer.status_code >= 500:
            raise TransientError(message, retry_after_seconds(answer.headers.get("retry-after")) or 0.0)
        is_batch = len(texts) > 1 and answer.status_code in _REFUSES_BATCHES
        raise BatchRefusedError(message) if is_batch else EmbeddingError(message)

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
                plain = self.config.base_url.startswith("http:")
                self._http = httpx.Client(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True)
            return self._http

    def _cause(self, error: Exception, texts: Sequence[str]) -> str:
        return redact(f"{type(error).__name__}: {error}".rstrip(": "), self.config.api_key, texts)


def _error_message(body: bytes) -> str:
    """The message in the body of a failure, or the whole body where it has none."""
    text = body.decode("utf-8", "replace")
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return text
    return message if isinstance(message, str) and message.strip() else text


class OpenAIProvider(HttpProvider):
    """`POST /embeddings`, for one text or several. Roles make no difference."""

    role_matters = False
    tokens_at = ("usage", "total_tokens")

    def request(self, texts: Sequence[str], dimension: int, role: Role) -> tuple[str, dict[str, str], object]:
        body = {"model": self.config.model, "input": list(texts), "dimensions": dimension}
        return "/embeddings", {"Authorization": f"Bearer {self.config.api_key}"}, body

    def vectors(self, answer: Any, count: int) -> list[NDArray[np.float32] | None]:
        vectors: list[NDArray[np.float32] | None] = [None] * count
        for entry in answer["data"]:
            index = entry["index"]
            if type(index) is int and 0 <= index < count:
                vectors[index] = _vector(entry["embedding"])
        if count == 1 and vectors[0] is None:
            raise EmbeddingError("embedding response missing data[0]")
        return vectors


class GeminiProvider(HttpProvider):
    """`embedContent` for one text, `batchEmbedContents` for several; the role is the type of the task."""

    role_matters = True
    tokens_at = ("usageMetadata", "promptTokenCount")

    def request(self, texts: Sequence[str], dimension: int, role: Role) -> tuple[str, dict[str, str], object]:
        contents = [
            {
                "model": f"models/{self.config.model}",
                "content": {"parts": [{"text": text}]},
                "taskType": f"RETRIEVAL_{role.name}",
                "outputDimensionality": dimension,
            }
            for text in texts
        ]
        verb = "embedContent" if len(contents) == 1 else "batchEmbedContents"
        path = f"/models/{quote(self.config.model, safe='/')}:{verb}"
        body = contents[0] if len(contents) == 1 else {"requests": contents}
        return path, {"x-goog-api-key": self.config.api_key}, body

    def vectors(self, answer: Any, count: int) -> list[NDArray[np.float32] | None]:
        if count == 1:
            return [_vector(answer["embedding"]["values"])]
        entries = answer["embeddings"]
        if len(entries) != count:
            # Only their order relates vectors to texts, so with one missing none can be used.
            raise BatchRefusedError(f"embedding response has {len(entries)} vectors for {count} texts")
        return [_vector(entry["values"]) for entry in entries]


def _vector(values: Any) -> NDArray[np.float32]:
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise TypeError("a vector is a list of numbers")
    with np.errstate(over="ignore"):  # a number beyond the range becomes infinite, which the checks name
        return np.array([float(value) for value in values], np.float64).astype(np.float32)
