"""JSON parameters: what each declared type takes, what it refuses, and what happens to the rest."""

from __future__ import annotations

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.language.query.ir import NOW_PARAMETER, QueryParameter
from omnigraph.language.query.params import BoundValue, Host, bind_parameters

from .query_archive import compiled, read, write

NOW = 1_714_557_600_123


def declared(type_text: str) -> tuple[QueryParameter, ...]:
    return compiled(write('delete Paper where doi = "x"', f"$x: {type_text}")).parameters


def bind(type_text: str, value: object, host: Host = Host.NATIVE) -> BoundValue:
    return bind_parameters(declared(type_text), {"x": value}, now_millis=NOW, host=host)["x"]


ACCEPTED = [
    ("String", "a", "a"),
    ("String", "", ""),
    ("I32", -5, -5),
    ("I32", "-42", -42),
    ("I32", 2**31 - 1, 2**31 - 1),
    ("I64", str(-(2**63)), -(2**63)),
    ("I64", "00000000000000000000000000000007", 7),
    ("U32", 2**32 - 1, 2**32 - 1),
    ("U64", 2**64 - 1, 2**64 - 1),
    ("U64", str(2**64 - 1), 2**64 - 1),
    ("F64", 3, 3.0),
    ("F32", 0.5, 0.5),
    ("Bool", True, True),
    ("Date", "2024-05-01", "2024-05-01"),
    ("Date", "no date at all", "no date at all"),
    ("DateTime", "2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
    ("Blob", "base64:AA==", "base64:AA=="),
    ("[I32]", [1, "2"], [1, 2]),
    ("[String]", [], []),
    ("[String]?", None, None),
    ("Vector(2)", [1, 2.5], [1.0, 2.5]),
    ("Vector(2)?", None, None),
    ("I32?", None, None),
]


@pytest.mark.parametrize(("type_text", "given", "expected"), ACCEPTED)
def test_accepted(type_text: str, given: object, expected: object) -> None:
    bound = bind(type_text, given)
    assert bound == expected
    assert type(bound) is type(expected)


REFUSED = [
    ("String", 3, "an integer"),
    ("String", "a\ud800", "surrogate"),
    ("[String]", ["\udfff"], "surrogate"),
    ("String", ["a"], "an array"),
    ("I32", 5.0, "a number with a fraction"),
    ("I32", True, "a boolean"),
    ("I32", "4.0", "a string"),
    ("I32", " 4", "a string"),
    ("I32", "٤", "a string"),
    ("I32", 2**31, "exceeds I32"),
    ("I32", "9" * 5000, "exceeds I32"),
    ("I64", 2**63, "exceeds I64"),
    ("U32", -1, "non-negative"),
    ("U32", "-1", "non-negative"),
    ("U32", 2**32, "exceeds U32"),
    ("U64", 2**64, "exceeds U64"),
    ("U64", str(2**64), "exceeds U64"),
    ("U64", "-1", "non-negative"),
    ("F64", "1.5", "a string"),
    ("F64", True, "a boolean"),
    ("F64", 10**400, "exceeds F64"),
    ("F64", float("nan"), "finite"),
    ("Bool", 1, "an integer"),
    ("Bool", "true", "a string"),
    ("Date", 19000, "an integer"),
    ("DateTime", 19000, "an integer"),
    ("Blob", 3, "an integer"),
    ("[I32]", 3, "expected [I32]"),
    ("[I32]", [1, None], "null"),
    ("[I32]", [1, 2.5], "a number with a fraction"),
    ("Vector(2)", [1], "1 numbers"),
    ("Vector(2)", [1, "2"], "a string"),
    ("Vector(2)", "[1,2]", "a string"),
    ("String", {"a": 1}, "an object"),
    ("String", None, "null is not accepted for non-nullable parameter"),
    ("[I32]", None, "null is not accepted for non-nullable parameter"),
]


@pytest.mark.parametrize(("type_text", "given", "message"), REFUSED)
def test_refused(type_text: str, given: object, message: str) -> None:
    with pytest.raises(BadRequestError, match=r"^param 'x': ") as caught:
        bind(type_text, given)
    assert message in str(caught.value)


@pytest.mark.parametrize("given", [[], "x", 3, True])
def test_params_are_an_object(given: object) -> None:
    with pytest.raises(BadRequestError, match="params must be a JSON object"):
        bind_parameters((), given, now_millis=NOW)


@pytest.mark.parametrize("given", [{1: "a"}, {"x": "a", None: 1}])
def test_names_of_parameters_are_texts(given: object) -> None:
    with pytest.raises(BadRequestError, match="the names of parameters must be texts, not "):
        bind_parameters(declared("String"), given, now_millis=NOW)


@pytest.mark.parametrize("given", [None, {}])
def test_a_missing_required_parameter_is_refused_before_anything_runs(given: object) -> None:
    with pytest.raises(BadRequestError, match="parameter 'x' not provided"):
        bind_parameters(declared("String"), given, now_millis=NOW)


def test_an_omitted_nullable_parameter_is_null() -> None:
    assert bind_parameters(declared("String?"), None, now_millis=NOW)["x"] is None


def test_undeclared_keys_do_no_harm() -> None:
    extra = {"a": 1, "b": "s", "c": None, "d": [1, "x", None, [2]], "e": 1.5, "f": True}
    bound = bind_parameters((), extra, now_millis=NOW)
    assert {key: bound[key] for key in extra} == extra


@pytest.mark.parametrize("value", [{"a": 1}, [{"a": 1}]])
def test_undeclared_objects_are_refused(value: object) -> None:
    with pytest.raises(BadRequestError, match=r"^param 'extra': an object"):
        bind_parameters((), {"extra": value}, now_millis=NOW)


def test_a_bottomless_array_is_refused() -> None:
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(BadRequestError, match=r"^param 'extra'"):
        bind_parameters((), {"extra": nested}, now_millis=NOW)


def test_now_is_injected_and_can_not_be_forged() -> None:
    bound = bind_parameters((), {NOW_PARAMETER: "1999-01-01"}, now_millis=NOW)
    assert bound[NOW_PARAMETER] == "2024-05-01T10:00:00.123Z"


JAVASCRIPT = [
    ("I32", 5.0, 5),
    ("U64", 2**53 - 1, 2**53 - 1),
    ("I64", str(2**60), 2**60),
    ("I64", float(-(2**53) + 1), -(2**53) + 1),
    ("F64", 2**60, float(2**60)),
]


@pytest.mark.parametrize(("type_text", "given", "expected"), JAVASCRIPT)
def test_javascript_hosts_write_integers_as_floats(type_text: str, given: object, expected: object) -> None:
    assert bind(type_text, given, Host.JAVASCRIPT) == expected


@pytest.mark.parametrize("given", [2**53, -(2**53), float(2**53), 1e300])
def test_javascript_hosts_must_spell_large_integers(given: object) -> None:
    with pytest.raises(BadRequestError, match="decimal string"):
        bind("I64", given, Host.JAVASCRIPT)


def test_a_javascript_float_with_a_fraction_is_still_no_integer() -> None:
    with pytest.raises(BadRequestError, match="fraction"):
        bind("I64", 5.5, Host.JAVASCRIPT)


@pytest.mark.parametrize("count", ["limit", "offset"])
def test_a_number_of_rows_is_not_negative(count: str) -> None:
    parameters = compiled(read("$p: Paper", "$p.doi", f"order {{ $p.doi }} {count} $n", "$n: I64")).read_plan.parameters
    assert bind_parameters(parameters, {"n": 0}, now_millis=NOW)["n"] == 0
    with pytest.raises(BadRequestError, match="param 'n': a limit or an offset is at least 0, not -1"):
        bind_parameters(parameters, {"n": -1}, now_millis=NOW)
