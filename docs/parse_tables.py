"""Writes the `grammar.json` beside each grammar that has changed since; `./dev docs` runs it.

Tables that fit their grammar are left alone: Lark numbers states differently in every process, and none is better.
"""

from __future__ import annotations

from importlib import import_module, resources
from pathlib import Path

import msgspec

from omnigraph.language.parse_tables import GRAMMARS, fingerprint, tables_of


def main() -> None:
    for package in GRAMMARS:
        options = import_module(f"{package}.parser").GRAMMAR_OPTIONS
        home = Path(str(resources.files(package)))
        tables = home / "grammar.json"
        wanted = fingerprint((home / "grammar.lark").read_text("utf-8"), options)
        if not tables.exists() or msgspec.json.decode(tables.read_bytes())["fingerprint"] != wanted:
            tables.write_text(tables_of(package, **options), encoding="utf-8")


if __name__ == "__main__":
    main()
