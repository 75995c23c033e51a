"""Bearer tokens: where they come from, whose they are, and that they never show."""

from __future__ import annotations

import gc
import hashlib
import hmac
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import create_backend_app
from werkzeug.serving import make_server

from omnigraph.api.service.http import ErrorOutput
from omnigraph.errors import BadRequestError, UnauthorizedError
from omnigraph.server.tokens import TokenEntry, Tokens, bearer_token, load_tokens
from tests.support.s3 import ACCESS

ONE = "OMNIGRAPH_SERVER_BEARER_TOKEN"
FILE, JSON, AWS = (f"{ONE}S_{kind}" for kind in ("FILE", "JSON", "AWS_SECRET"))
SECRET = "hunter2-planted"


def refused(environment: dict[str, str]) -> str:
    """The message of a refusal; nothing that would be printed of it, causes included, may hold the planted secret."""
    with pytest.raises(BadRequestError) as error:
        load_tokens(environment)
    printed = "".join(traceback.format_exception(error.value))
    assert SECRET not in printed
    assert SECRET not in repr(error.value)
    assert error.value.__cause__ is None
    return str(error.value)


# -- sources


def test_no_source_is_no_token() -> None:
    assert len(load_tokens({})) == 0
    assert len(load_tokens({AWS: " ", FILE: " "})) == 0


def test_the_single_token_is_of_the_default_actor() -> None:
    assert load_tokens({ONE: f"  {SECRET}\n"}).actor_of(SECRET) == "default"


def test_a_text_and_the_single_token_add_up() -> None:
    tokens = load_tokens({ONE: "a", JSON: '{" ana ": " b ", "bob": "c"}'})
    assert [tokens.actor_of(token) for token in ("a", "b", "c", " b ", "")] == ["default", "ana", "bob", None, None]


def test_a_file_wins_over_the_text(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"ana": "ä-tökén"}))
    file.chmod(0o600)
    tokens = load_tokens({FILE: f" {file} ", JSON: '{"bob": "b"}', ONE: "one"})
    assert [tokens.actor_of(token) for token in ("ä-tökén", "b", "one")] == ["ana", None, "default"]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({ONE: " "}, "blank token"),
        ({JSON: f'{{"ana": "{SECRET}", "bob": " "}}'}, "entry 2 of .*_JSON has a blank token"),
        ({JSON: f'{{" ": "{SECRET}"}}'}, "blank actor"),
        ({JSON: f'{{"ana": "x", "ana ": "{SECRET}"}}'}, "entry 2 .* has the same actor as entry 1 of"),
        ({JSON: f'{{"ana": "x", "ana": "{SECRET}"}}'}, "has the same actor"),
        ({JSON: f'{{"ana": "{SECRET}", "bob": " {SECRET}"}}'}, "has the same token"),
        ({JSON: f'{{"{SECRET}": "ana", "{SECRET}-2": "ana"}}'}, "has the same token"),
        ({JSON: f'{{"{SECRET}": "ana", "{SECRET} ": "bob"}}'}, "has the same actor"),
        ({ONE: SECRET, JSON: f'{{"ana": "{SECRET}"}}'}, f"entry 1 of {JSON} has the same token as {ONE}"),
        ({ONE: SECRET, JSON: '{"default": "x"}'}, "has the same actor"),
        ({JSON: f'{{"ana": ["{SECRET}"]}}'}, "entry 1 of .* JSON object"),
        ({JSON: f'{{"": 7, "{SECRET}": 8}}'}, "JSON object"),
        ({JSON: f'["{SECRET}"]'}, "JSON object"),
        ({JSON: f'{{"ana": "{SECRET}"'}, "JSON object"),
        ({JSON: SECRET}, "JSON object"),
        ({JSON: ""}, "JSON object"),
        ({JSON: "[" * 100_000}, "JSON object"),
        ({JSON: f'{{"ana": "{SECRET}\\ud800"}}'}, "can't be sent"),
        ({FILE: "/does/not/exist"}, "'/does/not/exist' of .*_FILE"),
    ],
)
def test_what_contradicts_itself_is_refused_without_its_secrets(environment: dict[str, str], reason: str) -> None:
    message = refused(environment)
    assert re.search(reason, message), message


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o601])
def test_a_file_that_is_open_to_other_users_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "my tokens.json"
    file.write_text(json.dumps({"ana": SECRET}))
    file.chmod(mode)
    assert f"chmod 600 '{file}'" in refused({FILE: str(file)})
    file.chmod(0o400)
    assert load_tokens({FILE: str(file)}).actor_of(SECRET) == "ana"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_mounted_secret_of_another_owner_may_be_read_through_its_group(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"ana": SECRET}))
    os.chown(file, 12345, 0)
    file.chmod(0o440)
    assert load_tokens({FILE: str(file)}).actor_of(SECRET) == "ana"
    for mode in (0o444, 0o460):
        file.chmod(mode)
        assert "mount the secret with mode 0400" in refused({FILE: str(file)})


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(SECRET.encode() + b"\xff")
    (tmp_path / "t").chmod(0o600)
    assert "UTF-8" in refused({FILE: str(tmp_path / "t")})
    (tmp_path / "u").write_text(f'{{"ana": "{SECRET}"}} trailing')
    (tmp_path / "u").chmod(0o600)
    assert f"'{tmp_path / 'u'}'" in refused({FILE: str(tmp_path / "u")})


@pytest.fixture
def secrets_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = make_server("127.0.0.1", 0, create_backend_app("secretsmanager"), threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    for name, value in ACCESS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", ACCESS["AWS_REGION"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_secret_of_aws_is_the_only_source(secrets_server: None) -> None:
    client = boto3.client("secretsmanager")
    arn = client.create_secret(Name="tokens", SecretString=f'{{"ana": "{SECRET}"}}')["ARN"]
    client.create_secret(Name="binary", SecretBinary=SECRET.encode())
    client.create_secret(Name="odd", SecretString=SECRET)
    for secret in ("tokens", f" {arn} "):
        tokens = load_tokens({AWS: secret, ONE: "one", JSON: "nonsense"})
        assert (tokens.actor_of(SECRET), tokens.actor_of("one"), len(tokens)) == ("ana", None, 1)
    assert "ResourceNotFoundException" in refused({AWS: "absent", ONE: SECRET})
    assert "no SecretString" in refused({AWS: "binary"})
    assert "JSON object" in refused({AWS: "odd"})


def test_without_boto3_a_secret_of_aws_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert "install boto3" in refused({AWS: "tokens", ONE: SECRET})


# -- matching


def test_only_digests_are_kept() -> None:
    tokens = Tokens([TokenEntry("ana", SECRET)])
    assert SECRET not in repr(tokens)
    assert repr(tokens) == "<Tokens of 1 actor>"
    held = [tokens, *gc.get_referents(tokens)]
    for _ in range(4):
        held += [inner for outer in held for inner in gc.get_referents(outer) if isinstance(outer, tuple)]
    assert hashlib.sha256(SECRET.encode()).digest() in held
    assert SECRET not in [item for item in held if isinstance(item, str)]


def test_every_digest_is_compared_wherever_the_match_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compare, compared = hmac.compare_digest, []

    def counting(left: bytes, right: bytes) -> bool:
        compared.append(left)
        return compare(left, right)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    tokens = Tokens([TokenEntry(f"actor-{n}", f"token-{n}") for n in range(20)])
    for presented, actor in (("token-0", "actor-0"), ("token-19", "actor-19"), ("none", None)):
        compared.clear()
        assert tokens.actor_of(presented) == actor
        assert len(set(compared)) == len(compared) == 20


@pytest.mark.parametrize(
    "header",
    [
        *(None, b"", b"Bearer", b"Bearer ", b"bearer ", b"Basic dA==", b" Bearer t", b"Bearer\tt", b"t"),
        *("Bearer", "Bearer\u00a0t"),
    ],
)
def test_a_header_of_another_form_is_a_missing_token(header: bytes | str | None) -> None:
    with pytest.raises(UnauthorizedError) as error:
        Tokens([TokenEntry("ana", "t")]).authenticate(header)
    assert str(error.value) == "missing bearer token"
    assert ErrorOutput.of(error.value).code == "unauthorized"


@pytest.mark.parametrize(
    "header",
    [b"Bearer  t", b"Bearer t ", b"Bearer T", b"Bearer t,t", b"Bearer \xff\xfe", b"Bearer \xed\xa0\x80", "Bearer €"],
)
def test_a_token_is_not_trimmed_and_has_to_match(header: bytes | str) -> None:
    with pytest.raises(UnauthorizedError) as error:
        Tokens([TokenEntry("ana", "t")]).authenticate(header)
    assert str(error.value) == "invalid bearer token"


def test_the_header_is_bytes_or_their_latin_1_text_and_its_scheme_has_any_case() -> None:
    tokens = Tokens([TokenEntry("ana", "tökén"), TokenEntry("bob", "t")])
    sent = b"Bearer " + "tökén".encode()
    assert tokens.authenticate(sent) == tokens.authenticate(sent.decode("latin-1")) == "ana"
    assert tokens.authenticate("Bearer t") == "bob"
    assert tokens.authenticate(b"bearer t") == tokens.authenticate("BEARER t") == "bob"
    assert bearer_token(b"Bearer t t") == "t t"
