"""The nginx configuration of the documentation: nginx accepts it, and its limits fit those of the server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from omnigraph.server.settings import ServerLimits
from tests.support.servers import REPOSITORY

EXAMPLE = REPOSITORY / "docs" / "user" / "examples" / "nginx.conf"


def directives(text: str) -> dict[str, list[str]]:
    """The values of each directive, in order."""
    found: dict[str, list[str]] = {}
    lines = re.sub(r"#.*", "", text).replace("{", ";").replace("}", ";").split(";")
    for line in lines:
        name, _, value = line.strip().partition(" ")
        found.setdefault(name, []).append(value.strip())
    return found


def test_braces_and_semicolons_are_in_place() -> None:
    text = re.sub(r"#.*", "", EXAMPLE.read_text())
    assert text.count("{") == text.count("}")
    assert [line for line in text.splitlines() if line.strip() and line.strip()[-1] not in ";{}"] == []


def test_its_limits_fit_those_of_the_server() -> None:
    limits, given = ServerLimits(), directives(EXAMPLE.read_text())
    number, size = given["large_client_header_buffers"][0].split()
    assert int(number) * (int(size.removesuffix("k")) << 10) == limits.header_bytes
    assert given["client_max_body_size"] == [f"{limits.load_bytes >> 20}m"]
    assert given["client_body_timeout"] == [f"{limits.body_seconds:g}s"]
    assert given["send_timeout"] == [f"{limits.send_seconds:g}s"]
    of_clients, of_server = (float(seconds.removesuffix("s")) for seconds in given["keepalive_timeout"])
    assert of_clients == limits.keep_alive_seconds > of_server, "nginx closes first, so no request meets a closed one"
    assert int(given["worker_connections"][0]) == limits.connections
    assert given["proxy_buffering"] == given["proxy_request_buffering"] == ["off"]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_accepts_it(tmp_path: Path) -> None:
    text = re.sub(r" +ssl_.*\n", "", EXAMPLE.read_text()).replace("listen 443 ssl", "listen 127.0.0.1:18443")
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\n{text}")
    done = subprocess.run(
        ["nginx", "-t", "-p", str(tmp_path), "-c", "nginx.conf"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
