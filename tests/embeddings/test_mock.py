"""The mock provider gives the vectors of its definition, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.embeddings.client import EmbeddingClient, open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind


def mock(model: str = "") -> EmbeddingClient:
    return open_client(EmbeddingConfig(ProviderKind.MOCK, model))


@pytest.mark.parametrize(
    ("text", "vector"),
    [
        ("alpha", [-0.5420488119125366, -0.47179943323135376, 0.16090507805347443, 0.6765337586402893]),
        ("beta", [0.6659632921218872, -0.562219500541687, -0.4163675308227539, 0.25892114639282227]),
        ("", [-0.4329400062561035, -0.7642614841461182, -0.326452374458313, 0.3491363227367401]),
    ],
)
def test_reference_vectors(text: str, vector: list[float]) -> None:
    assert mock().embed_query(text, 4).tolist() == vector


@given(text=st.text(max_size=20), dimension=st.integers(1, 64))
def test_vectors_are_unit_length_and_depend_on_text_and_dimension_only(text: str, dimension: int) -> None:
    vector = mock().embed_query(text, dimension)
    assert vector.dtype == np.float32
    assert vector.shape == (dimension,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    assert np.array_equal(vector, mock("another model").embed_documents([text], dimension)[0])


def test_texts_are_taken_as_they_are() -> None:
    assert not np.array_equal(mock().embed_query("Alpha", 4), mock().embed_query("alpha", 4))
    assert not np.array_equal(mock().embed_query("alpha ", 4), mock().embed_query("alpha", 4))
