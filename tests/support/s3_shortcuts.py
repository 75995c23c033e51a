"""Short ways to the answers that nearly all traffic consists of, straight from moto's objects.

moto's own way leads through Flask and a serializer that works a quarter of a millisecond on every listed key: more than
all else that a test does. What is not the plain form of a request is left to moto (`None`). For each plain form,
`tests/storage/test_s3_server.py` compares the answer with moto's own.
"""

from __future__ import annotations

import io
import re
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeKey, S3Backend, s3_backends

from tests.support.http_server import Answer

_PLAIN_PATH = re.compile(r"/([a-z0-9-]+)/([\w./=-]+)", re.ASCII)
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_LISTED = {"list-type", "prefix", "delimiter", "start-after", "continuation-token", "max-keys"}
_SIGNED = {"HTTP_X_AMZ_DATE", "HTTP_X_AMZ_CONTENT_SHA256", "HTTP_X_AMZ_SECURITY_TOKEN"}
_CONDITIONS = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_UNMODIFIED_SINCE"}
_NO_SUCH_KEY = (
    "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>"
    "<Key>{key}</Key><RequestId>none</RequestId><HostId>none</HostId></Error>"
)
_ENTRY = (
    "<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>{etag}</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


def answer(environ: dict[str, Any]) -> Answer | None:
    """What moto would answer; None when it has to be asked. Nobody may write meanwhile."""
    if any(name.startswith("HTTP_X_AMZ_") and name not in _SIGNED for name in environ):
        return None
    method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
    backend: S3Backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    if query:
        return _list(backend, environ["PATH_INFO"].strip("/"), query) if method == "GET" else None
    plain = _PLAIN_PATH.fullmatch(environ["PATH_INFO"])
    if plain is None or plain[1] not in backend.buckets:
        return None
    conditions = {name: environ[name] for name in _CONDITIONS if name in environ}
    if method == "PUT":
        return _put(backend, plain[1], plain[2], environ, conditions)
    if method in ("GET", "HEAD") and not conditions:
        return _read(backend, plain[1], plain[2], method, environ.get("HTTP_RANGE", ""))
    return None


def refused_deletion(environ: dict[str, Any]) -> Answer | None:
    """How a strict gateway answers a deletion of something that is not there; None for anything else. Of several
    objects the others are deleted."""
    backend: S3Backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    bucket, _, name = environ["PATH_INFO"].strip("/").partition("/")
    method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
    if method == "DELETE" and name and not query and backend.get_object(bucket, name) is None:
        return "404 NOT FOUND", *_xml(_NO_SUCH_KEY.format(key=name))
    if method != "POST" or not query.startswith("delete"):
        return None
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(body)
    keys = re.findall(r"<Key>([^<]+)</Key>", body.decode())
    missing = [key for key in keys if backend.get_object(bucket, key) is None]
    if not missing:
        return None
    for key in set(keys) - set(missing):
        backend.delete_object(bucket, key)
    told = "".join(f"<Error><Key>{key}</Key><Code>NoSuchKey</Code><Message>gone</Message></Error>" for key in missing)
    told += "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys if key not in missing)
    return "200 OK", *_xml(f"<DeleteResult>{told}</DeleteResult>")


def _read(backend: S3Backend, bucket: str, name: str, method: str, wanted: str) -> Answer | None:
    key = backend.get_object(bucket, name)
    if key is None and method == "HEAD":
        return "404 NOT FOUND", [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", "0")], b""
    if key is None:
        return "404 NOT FOUND", *_xml(_NO_SUCH_KEY.format(key=name))
    headers = {**key.response_dict, **key.metadata, "Accept-Ranges": "bytes"}
    if not wanted:
        return "200 OK", list(headers.items()), key.value if method == "GET" else b""
    span = _RANGE.fullmatch(wanted)
    if span is None or method == "HEAD" or not int(span[1]) <= int(span[2]) < key.size:
        return None
    part = key.value[int(span[1]) : int(span[2]) + 1]
    headers |= {"content-length": str(len(part)), "content-range": f"bytes {span[1]}-{span[2]}/{key.size}"}
    return "206 PARTIAL CONTENT", list(headers.items()), part


def _put(
    backend: S3Backend, bucket: str, name: str, environ: dict[str, Any], conditions: dict[str, str]
) -> Answer | None:
    if conditions and (conditions != {"HTTP_IF_NONE_MATCH": "*"} or backend.get_object(bucket, name) is not None):
        return None
    if any(name.startswith(("HTTP_CONTENT_", "HTTP_CACHE_", "HTTP_EXPIRES")) for name in environ):
        return None
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    key = backend.put_object(bucket, name, body, storage="STANDARD")
    given = {"content-type": "CONTENT_TYPE", "x-amz-content-sha256": "HTTP_X_AMZ_CONTENT_SHA256"}
    key.set_metadata({field: environ[source] for field, source in given.items() if environ.get(source)})
    key.set_acl(backend.buckets[bucket].acl)
    headers = {**key.response_dict, "Content-Type": "text/html; charset=utf-8", "content-length": "0"}
    return "200 OK", list(headers.items()), b""


def _list(backend: S3Backend, bucket: str, query: str) -> Answer | None:
    asked = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
    if asked.get("list-type") != "2" or asked.keys() - _LISTED or bucket not in backend.buckets:
        return None
    prefix, delimiter, limit = asked.get("prefix"), asked.get("delimiter"), int(asked.get("max-keys", 1000))
    start, token = asked.get("start-after"), asked.get("continuation-token")
    found, more, next_token = backend.list_objects_v2(backend.buckets[bucket], prefix, delimiter, token, start, limit)
    keys = [key for key in found if isinstance(key, FakeKey)]
    folders = [folder for folder in found if isinstance(folder, str)]
    if any(key.checksum_algorithm or key.storage_class != "STANDARD" for key in keys):
        return None
    parts = [f"<IsTruncated>{str(more).lower()}</IsTruncated>"]
    parts += [
        _ENTRY.format(key=escape(key.name), modified=key.last_modified_ISO8601, etag=key.etag, size=key.size)
        for key in keys
    ]
    parts.append(f"<Name>{bucket}</Name><Prefix>{escape(prefix or '')}</Prefix>")
    if delimiter:
        parts.append(f"<Delimiter>{escape(delimiter)}</Delimiter>")
    parts.append(f"<MaxKeys>{limit}</MaxKeys>")
    parts += [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders]
    parts.append(f"<KeyCount>{len(keys) + len(folders)}</KeyCount>")
    if next_token:
        parts.append(f"<NextContinuationToken>{next_token}</NextContinuationToken>")
    if start and not token:
        parts.append(f"<StartAfter>{escape(start)}</StartAfter>")
    content = "".join(parts)
    return "200 OK", *_xml(
        f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{content}</ListBucketResult>'
    )


def _xml(element: str) -> tuple[list[tuple[str, str]], bytes]:
    body = f'<?xml version="1.0" encoding="utf-8"?>\n{element}'.encode()
    return [("Content-Type", "application/xml"), ("server", "amazon.com"), ("Content-Length", str(len(body)))], body
