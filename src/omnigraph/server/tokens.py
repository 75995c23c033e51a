"""Authentication: bearer tokens, their sources, and the actor of a presented token.

Only SHA-256 digests are kept. A presented token is hashed and compared with every one of them, in constant time, so
that the time it takes reveals neither a match nor its position. No message, log line or representation holds a token,
or any part of a text that tokens were read from.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from omnigraph.errors import BadRequestError, UnauthorizedError

TOKEN: Final = "OMNIGRAPH_SERVER_BEARER_TOKEN"
TOKENS_FILE: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
TOKENS_JSON: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
TOKENS_AWS_SECRET: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"
SOURCES: Final = (TOKENS_FILE, TOKENS_JSON, TOKEN, TOKENS_AWS_SECRET)
DEFAULT_ACTOR: Final = "default"

_SCHEME: Final = b"bearer "
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SHAPE: Final = "it has to be a JSON object with a token for each actor"


class TokenEntry(NamedTuple):
    """An actor and its token. Messages name the source, in case the two were exchanged."""

    actor: str
    token: str
    where: str = "a bearer token"


class Tokens:
    """The digests of the configured tokens, each with its actor."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[TokenEntry] = ()) -> None:
        digests: dict[bytes, str] = {}
        actors: dict[str, str] = {}
        tokens: dict[bytes, str] = {}
        for actor, token, where in entries:
            actor, token = actor.strip(), token.strip()
            if not actor or not token:
                raise BadRequestError(f"{where} has a blank {'token' if actor else 'actor'}")
            try:
                digest = hashlib.sha256(token.encode()).digest()
            except UnicodeEncodeError:
                raise BadRequestError(f"{where} has a token that can't be sent: it is not a text") from None
            if actor in actors:
                raise BadRequestError(f"{where} has the same actor as {actors[actor]}; an actor has one token")
            if digest in tokens:
                raise BadRequestError(f"{where} has the same token as {tokens[digest]}; a token has one actor")
            actors[actor] = tokens[digest] = where
            digests[digest] = actor
        self._entries: Final = tuple(digests.items())

    def actor_of(self, presented: str) -> str | None:
        """The actor of a token, None for an unknown token."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        owner = None
        for stored_digest, actor in self._entries:
            if hmac.compare_digest(stored_digest, digest):
                owner = actor
        return owner

    def authenticate(self, authorization: bytes | str | None) -> str:
        """The actor that an `Authorization` header proves. Raises `UnauthorizedError`."""
        actor = self.actor_of(bearer_token(authorization))
        if actor is None:
            raise UnauthorizedError("invalid bearer token")
        return actor

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Tokens of {len(self)} actor{'' if len(self) == 1 else 's'}>"


def bearer_token(authorization: bytes | str | None) -> str:
    """The token of an `Authorization` header: `Bearer ` in any case, then the token, which is not trimmed.

    The header is what came over the wire, as bytes or as the Latin-1 text that HTTP libraries make of them.
    """
    try:
        header = authorization.encode("latin-1") if isinstance(authorization, str) else authorization
    except UnicodeEncodeError:
        raise UnauthorizedError("invalid bearer token") from None
    if header is None or header[: len(_SCHEME)].lower() != _SCHEME or len(header) == len(_SCHEME):
        raise UnauthorizedError("missing bearer token")
    return header[len(_SCHEME) :].decode("utf-8", "surrogateescape")


def load_tokens(environment: Mapping[str, str]) -> Tokens:
    """The tokens that the environment names. Raises `BadRequestError` for sources that can't be read or conflict."""
    if secret := environment.get(TOKENS_AWS_SECRET, "").strip():
        return Tokens(_parse_tokens(_aws_secret(secret), f"the AWS secret '{secret}' of {TOKENS_AWS_SECRET}"))
    token = environment.get(TOKEN)
    entries = [] if token is None else [TokenEntry(DEFAULT_ACTOR, token, TOKEN)]
    if file := environment.get(TOKENS_FILE, "").strip():
        entries += _parse_tokens(_file(file), f"the file '{file}' of {TOKENS_FILE}")
    elif (text := environment.get(TOKENS_JSON)) is not None:
        entries += _parse_tokens(text, TOKENS_JSON)
    return Tokens(entries)


def _file(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            mode = stat.S_IMODE(status.st_mode)
            # A secret that somebody else owns and mounts for this process, as container platforms do, is read through
            # its group; a file of our own needs no group.
            if mode & (_OTHERS if status.st_uid == os.geteuid() else _OTHERS & ~stat.S_IRGRP):
                raise BadRequestError(
                    f"the file '{path}' of {TOKENS_FILE} is open to other users (its mode is {mode:04o}): "
                    f"run `chmod 600 {shlex.quote(path)}`, or mount the secret with mode 0400"
                )
            return file.read()
    except OSError as error:
        raise BadRequestError(f"can't read the file '{path}' of {TOKENS_FILE}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadRequestError(f"can't read the file '{path}' of {TOKENS_FILE}: it is not a UTF-8 text") from None


def _aws_secret(secret: str) -> str:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise BadRequestError(
            f"{TOKENS_AWS_SECRET} is set, and this installation has no AWS support: install boto3, or use {TOKENS_FILE}"
        ) from None
    try:
        response: Mapping[str, Any] = boto3.client("secretsmanager").get_secret_value(SecretId=secret)
    except (ClientError, BotoCoreError) as error:
        reason = type(error).__name__
        if isinstance(error, ClientError):
            reason = error.response.get("Error", {}).get("Code", reason)
        raise BadRequestError(f"can't read the AWS secret '{secret}' of {TOKENS_AWS_SECRET}: {reason}") from None
    text = response.get("SecretString")
    if not isinstance(text, str):
        raise BadRequestError(f"the AWS secret '{secret}' of {TOKENS_AWS_SECRET} has no SecretString; {_SHAPE}")
    return text


def _parse_tokens(text: str, source: str) -> Iterator[TokenEntry]:
    """The entries of a JSON object. The parser's own errors hold the text, so they go no further."""
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, _Pairs):
        raise BadRequestError(f"{source} can't be used: {_SHAPE}")
    for number, (actor, token) in enumerate(pairs, 1):
        if not isinstance(token, str):
            raise BadRequestError(f"entry {number} of {source} can't be used: {_SHAPE}")
        yield TokenEntry(actor, token, f"entry {number} of {source}")


class _Pairs(list[Any]):
    """The members of a JSON object in their order, repeated names included."""
