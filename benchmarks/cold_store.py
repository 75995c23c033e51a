"""The requests of a process that opens a graph on S3 and asks once, counted at the server.

    python -m benchmarks.cold_store STORE QUERY PARAMS

copies a local store to a server of its own (moto, of the tests), and prints how many requests opening and asking need,
and in how many rounds: responses come when nobody does anything but wait for them, so requests that were made together
are one round. A process for each question, because a process has caches.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.s3 import S3Server

from benchmarks.graph_omnigraph import OmniGraph

BUCKET = "cold"


def count(store: Path, name: str, params: dict[str, Any]) -> dict[str, int]:
    import omnigraph

    server = S3Server()
    try:
        os.environ.update(server.environment)
        server.create_bucket(BUCKET)
        upload(server, store)
        with server.logged() as log, server.in_rounds(), omnigraph.open(f"s3://{BUCKET}/{store.name}") as graph:
            rows = graph.query(OmniGraph.text(name), name, params).to_dicts()
            # Whatever is still under way in the background delays nobody.
            counted = {"requests": len(log), "rounds": log.serial_rounds()}
        assert rows
        return counted
    finally:
        server.close()


def upload(server: S3Server, store: Path) -> None:
    client = server.client()
    for path in store.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=BUCKET, Key=f"{store.name}/{path.relative_to(store)}", Body=path.read_bytes())


if __name__ == "__main__":
    print(json.dumps(count(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))))
