"""Writes docs/user/python-api.md from the docstrings of `omnigraph.__all__`; `./dev docs` runs it.

A test renders the page again and compares. What is public, and what a name means, is decided in the code alone.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import omnigraph

PAGE = Path(__file__).parent / "user" / "python-api.md"

HEAD = """\
# Python API

Everything here is imported from `omnigraph`. The [guide](python.md) shows how the parts are used together. This page is
made from the docstrings of the code by `./dev docs`; do not edit it.
"""

GROUPS = {
    "Opening a graph": ("open", "init", "connect", "connect_async", "infer_schema"),
    "The graph": ("GraphApi", "Graph", "Branch", "Snapshot"),
    "A graph behind a server": ("RemoteGraph", "RemoteSnapshot", "AsyncRemoteGraph"),
    "Queries and results": ("queries", "Queries", "Query", "QueryResult", "QueryStream", "ReadOptions"),
}
OTHERS, ERRORS = "Requests, receipts and settings", "Errors"
AREAS = {"schema": "SchemaArea", "changes": "ChangesArea", "maintenance": "MaintenanceArea"}
RESULTS = {"Rows": "QueryRows", "Batches": "QueryBatches", "State": "SnapshotApi", "Blob": "BlobValue"}
"""The results of `GraphApi`. Each kind of graph has its own classes for them, such as `QueryResult`."""
HIDDEN = {"self", "cls", "trace", "requested_schema"}
INTERNAL = {
    *("create", "to_json_dict", "to_dict"),
    *("check", "is_utf_8", "admit", "for_serving", "digest", "first_version", "reason", "selects_type", "selects_op"),
}
COMPLETED = ("Graph", "RemoteGraph", "AsyncRemoteGraph", "Snapshot")
"""What says itself which of its names are for people."""
SHOWN = {"__len__", "__iter__", "__getitem__", "__contains__", "__arrow_c_stream__"}


def page() -> str:
    return "\n".join([HEAD, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    grouped = {name for names in GROUPS.values() for name in names}
    rest = [name for name in omnigraph.__all__ if name not in grouped and not name.startswith("__")]
    errors = [name for name in rest if name.endswith("Error")]
    groups = {**GROUPS, OTHERS: [name for name in rest if name not in errors]}
    for title, names in groups.items():
        yield f"## {title}\n"
        for name in names:
            yield from _entry(name, getattr(omnigraph, name))
            if name == "GraphApi":
                for area, kind in AREAS.items():
                    yield from _entry(f"Graph.{area}", getattr(sys.modules["omnigraph.api.graph"], kind))
    yield f"## {ERRORS}\n"
    yield "All of them derive from `OmniGraphError`; the rest of the family is in `omnigraph.errors`.\n"
    yield "| error | is a | |\n|---|---|---|"
    for name in errors:
        kind = getattr(omnigraph, name)
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        yield f"| `{name}` | {bases} | {_summary(kind)} |"


def _entry(name: str, found: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not inspect.isclass(found):
        yield f"```python\n{_signature(name, found)}\n```\n"
        yield _doc(found) + "\n"
        return
    yield _doc(found) + "\n"
    if (fields := _fields(found)) and not issubclass(found, enum.Enum):
        yield f"Fields: {fields}.\n"
    if inherited := _inherited(found):
        yield f"It has these members of `GraphApi`: {', '.join(f'`{member}`' for member in inherited)}.\n"
    for member, value in _members(found):
        if member in inherited:
            continue
        if isinstance(value, property):
            yield f"* **`{member}`**: {_inline(value.fget)}"
        else:
            yield f"* **`{_signature(member, value)}`**: {_inline(value)}"
    yield ""


def _inherited(kind: type) -> list[str]:
    """The members of a graph that `GraphApi` declares."""
    if kind is omnigraph.GraphApi or kind.__name__ not in COMPLETED[:3]:
        return []
    return [name for name, _ in _members(omnigraph.GraphApi) if hasattr(kind, name)]


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Its public members that are documented, in the order of the source: its own, then those of bases that are not
    public themselves."""
    bases = [base for base in kind.__mro__[1:] if _is_ours(base) and base.__name__ not in omnigraph.__all__]
    found: dict[str, Any] = {}
    for each in (kind, *bases):
        found = {**found, **{name: value for name, value in vars(each).items() if name not in found}}
    shown = {*SHOWN, *dir(object.__new__(kind))} if kind.__name__ in COMPLETED else found.keys()
    for name, value in found.items():
        if name not in shown:
            continue
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if (name.startswith("_") and name not in SHOWN) or name in INTERNAL:
            continue
        if isinstance(plain, property):
            if _text(plain.fget):
                yield name, plain
        elif inspect.isfunction(plain) and _text(plain):
            yield name, plain


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("omnigraph.")


def _fields(kind: type) -> str:
    if issubclass(kind, msgspec.Struct):
        names = [field.name for field in msgspec.structs.fields(kind)]
    else:
        names = [name for name in getattr(kind, "__dataclass_fields__", {}) if not name.startswith("_")]
    return ", ".join(f"`{name}`" for name in names)


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    shown: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in HIDDEN:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        shown.append(_parameter(parameter))
    result = "" if signature.return_annotation in (signature.empty, "None") else f" -> {signature.return_annotation}"
    result = re.sub(r"\b(Rows|Batches|State|Blob)\b", lambda match: RESULTS[match[0]], result)
    return f"{name}({', '.join(shown)}){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return text
    plain = parameter.default is None or type(parameter.default) in (bool, int, float, str, tuple)
    return f"{text} = {parameter.default!r}" if plain else f"{text} = …"


def _text(found: Any) -> str:
    return inspect.cleandoc(getattr(found, "__doc__", None) or "")


def _doc(found: Any) -> str:
    text = _text(found)
    return text if text and not text.startswith(f"{getattr(found, '__name__', '')}(") else ""


def _inline(found: Any) -> str:
    return " ".join(_text(found).split())


def _summary(found: Any) -> str:
    return " ".join(_text(found).split("\n\n")[0].split())


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
