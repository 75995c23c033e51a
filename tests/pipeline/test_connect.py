"""What keeps pipelines able to run over Spark Connect, where no driver JVM is in reach of Python."""

from __future__ import annotations

import ast

from tests.test_architecture import SOURCE

CLASSIC_ONLY = {"sparkContext", "_sc", "_jvm", "_jdf", "_jsparkSession", "rdd", "toDF", "accumulator"}


def test_pipelines_use_nothing_that_connect_lacks() -> None:
    strays = [
        f"{path.name}: {node.attr}"
        for path in sorted((SOURCE / "pipeline").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in CLASSIC_ONLY
    ]
    # The address of the UI is asked for, and does without an answer.
    assert strays == ["session.py: sparkContext"]
