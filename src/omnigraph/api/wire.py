"""The one derivation of wire forms: JSON for HTTP bodies, `--json`, files and tokens, and its JSON schema.

A struct of the contract is its wire form: members in the order of its fields, a field with a default left out while it
has it (where the struct says so), enums by value. A field marked `LOCAL` is for the process that made the result; it is
never on the wire, and a result that came over the wire has its default there.
"""

from __future__ import annotations

import threading
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from omnigraph.errors import BadRequestError, RequestShapeError

LOCAL: Final = msgspec.Meta(extra={"local": True})
"""Marks a field that stays in the process: `commit: Annotated[CommitReceipt | None, LOCAL] = None`."""

Shape = TypeVar("Shape")
Anything: Final[Any] = Any
"""Any JSON, as a shape to decode."""

_COMPONENTS: Final = "#/components/schemas/{name}"


def to_builtins(value: Any) -> Any:
    """The wire form as dicts, lists, strings and numbers."""
    if not _may_hold_local(value):
        try:
            return msgspec.json.decode(msgspec.json.encode(value))  # several times as fast as to take it apart here
        except UnicodeEncodeError:
            pass  # the name of a file may hold bytes that are no text, and an error may name the file
    built = msgspec.to_builtins(value)
    _strip(value, built)
    return _with_lists(built)


def encode(value: Any) -> bytes:
    """The wire form as compact JSON."""
    return msgspec.json.encode(to_builtins(value) if _may_hold_local(value) else value)


def decode(data: bytes | str, shape: type[Shape]) -> Shape:
    """JSON as a contract struct. Members that this version does not know are ignored."""
    try:
        return decoder_of(shape).decode(data)
    except msgspec.ValidationError as error:
        raise RequestShapeError(f"not a valid {wire_name(shape)}: {error}") from None
    except msgspec.DecodeError as error:
        raise BadRequestError(f"not a valid {wire_name(shape)}: {error}") from None
    except (RecursionError, UnicodeDecodeError):
        raise BadRequestError(f"not a valid {wire_name(shape)}: it is nested too deeply or is not UTF-8") from None


def decode_with_nulls(data: bytes | str, shape: type[Shape]) -> Shape:
    """As `decode`; a member that may be null and is missing is null. For what another version of us wrote."""
    try:
        return decode(data, shape)
    except RequestShapeError:
        built = decode(data, Anything)
        with _LEARNING:
            _add_nulls(built, msgspec.inspect.type_info(shape))
        return convert(built, shape)


def _add_nulls(built: Any, info: msgspec.inspect.Type) -> None:
    """Put a null where a struct requires a member that may be null. Members that differ by a tag are left alone."""
    inspected = msgspec.inspect
    if isinstance(info, inspected.UnionType):
        structs = [each for each in info.types if not isinstance(each, inspected.NoneType)]
        info = structs[0] if len(structs) == 1 else info
    if isinstance(info, inspected.StructType) and isinstance(built, dict):
        for field in info.fields:
            may_be_null = isinstance(field.type, inspected.UnionType) and field.type.includes_none
            if field.required and may_be_null:
                built.setdefault(field.encode_name, None)
            if field.encode_name in built:
                _add_nulls(built[field.encode_name], field.type)
    elif isinstance(info, inspected.ListType | inspected.VarTupleType) and isinstance(built, list):
        for item in built:
            _add_nulls(item, info.item_type)


def decoder_of(shape: type[Shape]) -> msgspec.json.Decoder[Shape]:
    """A decoder that was made once, by one thread: msgspec crashes when two threads learn the same struct at a time."""
    if shape not in _DECODERS:
        with _LEARNING:
            _DECODERS.setdefault(shape, msgspec.json.Decoder(shape))
    return _DECODERS[shape]


def convert(built: Any, shape: type[Shape], *, strict: bool = True) -> Shape:
    """As `decode`, from what a JSON or YAML parser made. Texts stand for numbers and dates where it is not strict."""
    try:
        with _LEARNING:
            return msgspec.convert(built, shape, strict=strict)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"not a valid {wire_name(shape)}: {error}") from None


def schema_components(shapes: Iterable[type[Any]]) -> dict[str, Any]:
    """The JSON schemas of these structs and of all they refer to, by the names of the HTTP contract."""
    shapes = list(shapes)
    with _LEARNING:
        _, components = msgspec.json.schema_components(shapes, ref_template=_COMPONENTS)
    named = {shape.__name__: shape for shape in _reachable(shapes)}
    names = {name: wire_name(named[name]) if name in named else name for name in components}
    for name, schema in components.items():
        for field in _local_names(named[name]) if name in named else ():
            schema["properties"].pop(field, None)
    renamed = {names[name]: _rename({**schema, "title": names[name]}, names) for name, schema in components.items()}
    plain: dict[str, Any] = _with_lists(renamed)
    return dict(sorted(plain.items()))


def wire_name(shape: type[Any]) -> str:
    """The name of a struct in the HTTP contract, where that has one of its own."""
    return str(getattr(shape, "WIRE_NAME", getattr(shape, "__name__", str(shape))))


def _strip(value: Any, built: Any) -> None:
    """Take the local members out of what was built from `value`."""
    if isinstance(value, msgspec.Struct):
        if not _holds_local(type(value)):
            return
        local = _local_names(type(value))
        for field in msgspec.structs.fields(value):
            if field.encode_name in local:
                built.pop(field.encode_name, None)
            elif field.encode_name in built:
                _strip(getattr(value, field.name), built[field.encode_name])
    elif isinstance(value, list | tuple):
        for item, plain in zip(value, built, strict=True):
            _strip(item, plain)
    elif isinstance(value, Mapping):
        for item, plain in zip(value.values(), built.values(), strict=True):
            _strip(item, plain)


def _may_hold_local(value: Any) -> bool:
    return _holds_local(type(value)) if isinstance(value, msgspec.Struct) else True


def _local_names(shape: type[Any]) -> frozenset[str]:
    if not issubclass(shape, msgspec.Struct):
        return frozenset()
    fields = msgspec.structs.fields(shape)
    return frozenset(field.encode_name for field in fields if LOCAL in getattr(field.type, "__metadata__", ()))


def _holds_local(shape: type[Any]) -> bool:
    """Whether a struct, or anything that its fields can hold, has a local member."""
    if shape not in _HOLDING_LOCAL:
        _HOLDING_LOCAL[shape] = any(_local_names(reached) for reached in _reachable([shape]))
    return _HOLDING_LOCAL[shape]


def _reachable(shapes: Iterable[Any]) -> set[type[Any]]:
    """All structs and enums that these types mention."""
    classes: set[type[Any]] = set()
    waiting = list(shapes)
    while waiting:
        shape = waiting.pop()
        waiting += typing.get_args(shape)
        if isinstance(shape, type) and not isinstance(shape, types.GenericAlias) and shape not in classes:
            classes.add(shape)
            if issubclass(shape, msgspec.Struct):
                waiting += [field.type for field in msgspec.structs.fields(shape)]
    return classes


def _with_lists(built: Any) -> Any:
    """msgspec leaves tuples as they are; what a JSON parser gives has lists."""
    if isinstance(built, dict):
        return {key: _with_lists(item) for key, item in built.items()}
    return [_with_lists(item) for item in built] if isinstance(built, list | tuple) else built


def _rename(schema: Any, names: Mapping[str, str]) -> Any:
    """The schema with its references to these names."""
    if not isinstance(schema, dict):
        return [_rename(item, names) for item in schema] if isinstance(schema, list) else schema
    renamed = {key: _rename(value, names) for key, value in schema.items()}
    if "$ref" in schema:
        front, _, name = schema["$ref"].rpartition("/")
        renamed["$ref"] = f"{front}/{names[name]}"
    return renamed


_HOLDING_LOCAL: Final[dict[type[Any], bool]] = {}
_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
_LEARNING: Final = threading.Lock()
