"""The two wire formats of embedding providers: requests for texts, and the vectors in their responses.

The HTTP provider sends them. Formats know no HTTP beyond paths and headers. Gemini has different requests for one text
and for several, OpenAI one for both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.configuration import EmbeddingConfig
from omnigraph.embeddings.provider import BatchRefusedError, Role
from omnigraph.errors import EmbeddingError


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
