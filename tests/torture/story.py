"""`python -m tests.torture.story DIRECTORY [WORD ...]`: what all workers did, in the order of time, one line each.

With words, only lines that mention one of them: a commit id, an operation (`w0.5-37`), a branch, a kind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.torture.nemesis import records

HIDDEN = ("op", "kind", "branch", "began", "ended", "at", "traceback", "outcome")


def story(directory: Path) -> list[str]:
    told = []
    for path in (directory / "trace").glob("*.jsonl"):
        for record in records(path):
            moment = record.get("began") or record.get("ended") or record.get("at") or 0.0
            told.append((moment, path.stem, record))
    told.sort(key=lambda line: line[0])
    start = told[0][0] if told else 0.0
    return [f"{moment - start:9.3f} {process:6} {_line(record)}" for moment, process, record in told]


def _line(record: dict[str, Any]) -> str:
    what = "begins" if "began" in record and "outcome" not in record else record.get("outcome", "")
    named = (record.get("op"), what, record.get("kind"), record.get("branch"))
    rest = {key: value for key, value in record.items() if key not in HIDDEN}
    return " ".join([*(str(word) for word in named if word), json.dumps(rest)])


def main() -> None:
    directory, *words = sys.argv[1:]
    for line in story(Path(directory)):
        if not words or any(word in line for word in words):
            print(line[:1000])


if __name__ == "__main__":
    main()
