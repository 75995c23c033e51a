"""Providers over HTTP: what they are sent, what is made of their answers, and what of their failures."""

from __future__ import annotations

import logging
import traceback
from email.utils import formatdate

import numpy as np
import pytest

from omnigraph.embeddings.client import EmbeddingClient, open_client
from omnigraph.embeddings.configuration import EmbeddingConfig, ProviderKind
from omnigraph.errors import EmbeddingError
from tests.support.embedding_server import (
    Asked,
    EmbeddingServer,
    Reply,
    never,
    proper,
    refusing_batches,
    vector_of,
    vectors,
)

KEY = "sk-planted-0123456789abcdef"
TEXT = "a private diary entry about the lighthouse"
# A machine that is busy may answer late several times in a row, which must not end a test.
PATIENT = {"OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "100", "OMNIGRAPH_EMBED_DEADLINE_MS": "0"}
OVERLOADED = Reply(503, {"error": {"message": "overloaded"}})


def client(provider: EmbeddingServer, environment: dict[str, str], kind: str = "openai") -> EmbeddingClient:
    return open_client(EmbeddingConfig(ProviderKind(kind), "m-1", provider.url, KEY), environment)


def failure(provider: EmbeddingServer, environment: dict[str, str], text: str = TEXT, kind: str = "openai") -> str:
    with pytest.raises(EmbeddingError) as failed:
        client(provider, environment, kind).embed_query(text, 2)
    return str(failed.value)


def test_an_openai_request(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    vector = client(provider, quick).embed_query("tides", 4)
    assert vector.dtype == np.float32
    assert vector.tolist() == pytest.approx(vector_of("tides", 4))
    (asked,) = provider.asked
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["content-type"] == "application/json"
    assert asked.body == {"model": "m-1", "input": ["tides"], "dimensions": 4}


def test_gemini_requests_name_the_role(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    gemini = client(provider, quick, "gemini")
    gemini.embed_query("tides", 4)
    gemini.embed_documents(["tides"], 4)
    gemini.embed_documents(["one", "two"], 4)
    query, document, batch = provider.asked
    assert query.path == document.path == "/v1/models/m-1:embedContent"
    assert query.headers["x-goog-api-key"] == KEY
    assert "authorization" not in query.headers
    assert query.body == {
        "model": "models/m-1",
        "content": {"parts": [{"text": "tides"}]},
        "taskType": "RETRIEVAL_QUERY",
        "outputDimensionality": 4,
    }
    assert document.body == {**query.body, "taskType": "RETRIEVAL_DOCUMENT"}
    assert batch.path == "/v1/models/m-1:batchEmbedContents"
    assert [each["taskType"] for each in batch.body["requests"]] == ["RETRIEVAL_DOCUMENT"] * 2
    assert batch.texts == ["one", "two"]


def test_documents_go_in_batches_of_64_texts_and_256_kib(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    texts = [f"text {i}" for i in range(70)] + ["é" * 50_000, "b" * 100_000, "c" * 100_000, "d" * 300_000, "e"]
    found = client(provider, quick).embed_documents(texts, 4)
    assert [len(asked.texts) for asked in provider.asked] == [64, 6 + 2, 1, 1, 1]
    assert np.allclose(found, [vector_of(text, 4) for text in texts])


def test_the_entry_with_index_0_is_the_answer(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.faults.append(vectors([0.0, 1.0], [3.0, 4.0], indexes=[7, 0]))
    assert client(provider, quick).embed_query("x", 2).tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (vectors([1.0, 2.0, 3.0]), "embedding dimension mismatch: expected 2, got 3"),
        (vectors([1.0, float("nan")]), "embedding component 1 is not finite"),
        (vectors([float("-inf"), 1.0]), "embedding component 0 is not finite"),
        (vectors([1.0, 1e300]), "embedding component 1 is not finite"),
        (vectors([0.0, 0.0]), "embedding has zero norm"),
        (vectors([1.0, 2.0], indexes=[1]), "embedding response missing data[0]"),
        (vectors(), "embedding response missing data[0]"),
        (Reply(body="<html>"), "embedding response decode failed: the body is not JSON at byte 0"),
        (Reply(body='{"data": [{"index": 0, "embedding": ["x"]}]}'), "embedding response decode failed: "),
        (Reply(body='{"data": [{"index": 0, "embedding": null}]}'), "embedding response decode failed: "),
        (Reply(body="[]"), "embedding response decode failed: the body has no vectors where they belong"),
        (Reply(body=f'{{"data": [{{"index": 0, "embedding": [1{"0" * 400}, 1]}}]}}'), "decode failed"),
        (Reply(401, {"error": {"message": "no such key"}}), "embedding request failed with status 401: no such key"),
        (Reply(400, {"error": {"message": " "}}), 'status 400: {"error": {"message": " "}}'),
        (Reply(404, "not here"), "embedding request failed with status 404: not here"),
        (Reply(302, "", {"location": "http://elsewhere/"}), "embedding request failed with status 302: "),
    ],
)
def test_final_failures_are_not_retried(
    provider: EmbeddingServer, quick: dict[str, str], reply: Reply, message: str
) -> None:
    provider.always = reply
    assert message in failure(provider, quick)
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    "reply", [OVERLOADED, Reply(500, "oops"), Reply(429, "slow down"), Reply(body='{"data"', cut_off=True)]
)
def test_passing_failures_are_tried_again(provider: EmbeddingServer, quick: dict[str, str], reply: Reply) -> None:
    provider.faults.extend([reply, reply, reply])
    asking = client(provider, quick)
    assert asking.embed_query("x", 2).tolist() == pytest.approx(vector_of("x", 2))
    assert len(provider.asked) == 4
    assert (asking.usage.requests, asking.usage.retries, asking.usage.texts) == (4, 3, 1)
    assert asking.usage.tokens == 3


def test_attempts_are_limited(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.always = OVERLOADED
    assert failure(provider, quick) == "embedding request failed with status 503: overloaded"
    assert len(provider.asked) == 4
    failure(provider, {**quick, "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "2"})
    assert len(provider.asked) == 6


def test_a_body_that_breaks_off_names_its_status(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.always = Reply(body='{"data"', cut_off=True)
    assert failure(provider, quick).startswith("embedding response read failed (status 200): ")


def test_nobody_listening(quick: dict[str, str], provider: EmbeddingServer) -> None:
    gone = open_client(EmbeddingConfig(ProviderKind.OPENAI, "m", "http://127.0.0.1:1/v1", KEY), quick)
    with pytest.raises(EmbeddingError, match=r"^embedding request failed: ConnectError.* \(127\.0\.0\.1:1\)$"):
        gone.embed_query("x", 2)
    assert gone.usage.requests == 4


def test_a_timed_out_request_is_tried_again(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.faults.append(never)
    asking = client(provider, {**quick, **PATIENT, "OMNIGRAPH_EMBED_TIMEOUT_MS": "300"})
    assert asking.embed_query("x", 2).shape == (2,)
    assert asking.usage.retries >= 1


def test_an_answer_that_never_ends_is_given_up(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.faults.append(Reply(body=" ", endless=True))
    asking = client(provider, {**quick, **PATIENT, "OMNIGRAPH_EMBED_TIMEOUT_MS": "300"})
    assert asking.embed_query("x", 2).shape == (2,)
    assert asking.usage.retries >= 1


def test_the_deadline_ends_a_request_that_never_answers(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.always = never
    message = failure(provider, {**quick, "OMNIGRAPH_EMBED_DEADLINE_MS": "60"})
    assert message.startswith("embedding deadline exceeded after 60 ms (provider openai, model m-1)")


def test_a_pause_that_ends_after_the_deadline_is_not_begun(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.always = Reply(429, {"error": {"message": "slow down"}}, {"retry-after": "200"})
    message = failure(provider, quick)
    assert message.startswith("embedding deadline exceeded after 60000 ms (provider openai, model m-1)")
    assert "status 429: slow down" in message
    assert len(provider.asked) == 1


@pytest.mark.parametrize("wait", ["0", "soon", formatdate(0, usegmt=True)])
def test_a_wish_to_wait_that_has_passed_changes_nothing(
    provider: EmbeddingServer, quick: dict[str, str], wait: str
) -> None:
    provider.faults.append(Reply(429, "slow down", {"retry-after": wait}))
    assert client(provider, quick).embed_query("x", 2).shape == (2,)


@pytest.mark.parametrize("kind", ["openai", "gemini"])
def test_who_refuses_a_batch_gets_single_texts_from_then_on(
    provider: EmbeddingServer, quick: dict[str, str], kind: str
) -> None:
    provider.always = refusing_batches
    asking = client(provider, quick, kind)
    assert np.allclose(asking.embed_documents(["a", "b"], 2), [vector_of("a", 2), vector_of("b", 2)])
    asking.embed_documents(["c", "d"], 2)
    assert [asked.texts for asked in provider.asked] == [["a", "b"], ["a"], ["b"], ["c"], ["d"]]


def test_a_text_that_is_refused_does_not_end_batches(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.always = lambda asked: Reply(400, "too long") if "bad" in asked.texts else proper(asked)
    asking = client(provider, quick)
    with pytest.raises(EmbeddingError, match="status 400: too long"):
        asking.embed_documents(["a", "bad", "b"], 2)
    asking.embed_documents(["a", "b", "c"], 2)
    assert [asked.texts for asked in provider.asked] == [["a", "bad", "b"], ["a"], ["bad"], ["b", "c"]]


def test_a_wrong_key_is_no_refusal_of_batches(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.always = Reply(401, {"error": {"message": "no such key"}})
    with pytest.raises(EmbeddingError, match="status 401"):
        client(provider, quick).embed_documents(["a", "b"], 2)
    assert len(provider.asked) == 1


def test_what_half_a_batch_answers_is_not_asked_again(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.faults.append(vectors(vector_of("a", 2), vector_of("c", 2), indexes=[0, 2]))
    asking = client(provider, quick)
    assert np.allclose(asking.embed_documents(list("abcd"), 2), [vector_of(text, 2) for text in "abcd"])
    asking.embed_documents(["e", "f"], 2)
    assert [asked.texts for asked in provider.asked] == [["a", "b", "c", "d"], ["b"], ["d"], ["e", "f"]]


def test_half_a_batch_of_gemini_is_nobodys(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.faults.append(Reply(body={"embeddings": [{"values": [1, 0]}]}))
    found = client(provider, quick, "gemini").embed_documents(["a", "b"], 2)
    assert np.allclose(found, [vector_of(text, 2) for text in "ab"])
    assert [asked.texts for asked in provider.asked] == [["a", "b"], ["a"], ["b"]]


def test_good_vectors_beside_a_bad_one_are_kept(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    provider.faults.append(vectors(vector_of("a", 2), [0.0, 0.0], vector_of("c", 2)))
    with pytest.raises(EmbeddingError, match="zero norm"):
        client(provider, quick).embed_documents(["a", "b", "c"], 2)
    client(provider, quick).embed_documents(["a", "b", "c"], 2)
    assert [asked.texts for asked in provider.asked] == [["a", "b", "c"], ["b"]]


@pytest.mark.parametrize("status", [400, 429])
def test_a_provider_that_quotes_the_request_gives_nothing_away(
    provider: EmbeddingServer, quick: dict[str, str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    odd = 'short "quoted"\ntext\twith an é and 💡'

    def quoting(asked: Asked) -> Reply:
        quoted = " and of ".join(f"{text[3:30]}… {text!r} of {text}" for text in asked.texts)
        return Reply(status, {"error": {"message": f"bad key {KEY} in Bearer {KEY}: {quoted}"}})

    provider.always = quoting
    asking = client(provider, quick)
    with caplog.at_level(logging.DEBUG), pytest.raises(EmbeddingError) as failed:
        asking.embed_documents([TEXT, odd, "ab"], 2)
    told = "".join(traceback.format_exception(failed.value)) + caplog.text + repr(asking.config)
    assert "[redacted]" in str(failed.value)
    for secret in (KEY, KEY[4:20], "private diary", "lighthouse", '"quoted"', "of ab"):
        assert secret not in told


def test_a_raw_body_that_quotes_the_request_gives_nothing_away(
    provider: EmbeddingServer, quick: dict[str, str]
) -> None:
    provider.always = lambda asked: Reply(422, {"detail": [{"input": asked.body["input"], "key": KEY}]})
    text = "an umlaut ü, a\nnew line and a \u2603 snowman"
    message = failure(provider, quick, text)
    assert message.startswith("embedding request failed with status 422: ")
    for piece in ("umlaut", "snowman", "new line", KEY):
        assert piece not in message


def test_a_key_that_no_header_can_carry_is_not_told(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    broken = open_client(EmbeddingConfig(ProviderKind.OPENAI, "m", provider.url, "sk-new\nline-0123456789"), quick)
    with pytest.raises(EmbeddingError, match="embedding request failed") as failed:
        broken.embed_query("x", 2)
    assert "0123456" not in str(failed.value)
    assert broken.usage.requests == 1


def test_each_retry_and_each_outcome_is_logged(
    provider: EmbeddingServer, quick: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    provider.faults.extend([OVERLOADED, OVERLOADED])
    with caplog.at_level(logging.INFO, "omnigraph::embedding"):
        client(provider, quick).embed_query(TEXT, 2)
    ours = [record for record in caplog.records if record.name == "omnigraph::embedding"]
    assert [record.levelname for record in ours] == ["WARNING", "WARNING", "INFO"]
    assert "attempt=1" in ours[0].getMessage()
    assert "attempt=2" in ours[1].getMessage()
    assert "provider=openai model=m-1 dimension=2 texts=1" in ours[2].getMessage()


def test_a_text_is_sent_as_it_is(provider: EmbeddingServer, quick: dict[str, str]) -> None:
    for text in ("", " two  spaces ", "\u2028 \x00 💡", "a\nb"):
        client(provider, quick).embed_query(text, 2)
        assert provider.asked[-1].texts == [text]
    assert proper(provider.asked[0]).status == 200
