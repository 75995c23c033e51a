"""The forward pass of a BERT sentence transformer in NumPy: tokens in, the mean of its last states out.

Each text is computed alone and unpadded, so its vector does not depend on what it is embedded with. A few matrix
products per layer are all there is to it, and NumPy is here anyway; a deep-learning framework takes gigabytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.embeddings.local.tensors import read_tensors

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
