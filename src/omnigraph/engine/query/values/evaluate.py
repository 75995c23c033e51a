"""The value of a plan expression for the rows at hand.

Filters, ordering, aggregates, projection and writes call it. Every kind of value has its case here; what it does is in
the module of its topic. A value without variables needs no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.bindings import Bindings, output_variable
from omnigraph.engine.query.context import Plain, ValueContext, scalar_constant
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.value_columns import column_type, convert
from omnigraph.engine.query.values.arithmetic import negative, number_kernel
from omnigraph.engine.query.values.elementwise import (
    Argument,
    Evaluated,
    HeldValues,
    Kernel,
    Part,
    apply,
    as_located,
    shorten,
)
from omnigraph.engine.query.values.functions import FUNCTIONS
from omnigraph.engine.query.values.list_forms import list_form, reduce
from omnigraph.engine.query.values.list_functions import concatenate_lists, lists_of, path_kernel
from omnigraph.engine.query.values.logic import (
    Side,
    case,
    coalesce,
    comparison,
    conjunction,
    disjunction,
    membership,
    negation,
    null_test,
    nullif,
)
from omnigraph.engine.query.values.stored import (
    entity,
    meta_value,
    node_key_kernel,
    property_names,
    property_value,
    score,
    text_match,
    union_property,
    variable_value,
)
from omnigraph.engine.query.values.text_functions import concatenate_texts
from omnigraph.errors import EvaluationError
from omnigraph.language.query import ir
from omnigraph.language.query.value_types import EntityType, is_list, is_text, item_of
from omnigraph.language.types import PropertyType, Scalar

_CHOICES: Final = {"coalesce": coalesce, "nullif": nullif}


def evaluate(value: ir.Value, rows: Bindings, context: ValueContext) -> Evaluated:
    """The value for every row."""
    try:
        return _evaluate(value, rows, context)
    except EvaluationError as error:
        if error.expression:
            raise
        raise EvaluationError(error.rule, shorten(ir.value_text(value)), message=error.message) from None


def _evaluate(value: ir.Value, rows: Bindings, context: ValueContext) -> Evaluated:
    match value:
        case ir.Constant() | ir.ParameterValue() | ir.Now():
            return scalar_constant(value, context.parameters)
        case ir.PropertyValue():
            return property_value(value, rows, context)
        case ir.UnionProperty():
            return union_property(value, rows, context)
        case ir.MetaValue():
            return meta_value(value, rows, context)
        case ir.EntityValue():
            return entity(value.variable, rows)
        case ir.VariableValue():
            return variable_value(value.variable, value.type, rows, context)
        case ir.OutputValue():
            return variable_value(output_variable(value.index), value.type, rows, context)
        case ir.TextMatch():
            return text_match(value, rows, context)
        case ir.Score():
            return score(value, rows, context)
        case ir.AggregateValue():
            raise AssertionError("an aggregate is calculated by its operator")
        case ir.Case():
            return case(value, rows, context, evaluate)
        case ir.ListForm():
            return list_form(value, rows, context, evaluate)
        case ir.Reduce():
            return reduce(value, rows, context, evaluate)
        case ir.Call() if value.function in _CHOICES:
            return _CHOICES[value.function](value, rows, context, evaluate)
    return _combine(value, evaluate_each(ir.operands_of(value), rows, context), rows.length, context)


def evaluate_each(values: Sequence[ir.Value], rows: Bindings, context: ValueContext) -> list[Evaluated]:
    """Several values. What was made for the first ones counts against the budget while the others are made."""
    with HeldValues(context.budget) as held:
        return [held.keep(value, evaluate(value, rows, context)) for value in values]


def _combine(value: ir.Value, operands: list[Evaluated], length: int, context: ValueContext) -> Evaluated:
    """A value from those of all its operands."""
    type_ = column_type(value.type)

    def apply_kernel(kernel: Kernel, *, strict: bool = True) -> Evaluated:
        return apply(kernel, value, type_, operands, length, context, strict=strict)

    match value:
        case ir.Compare():
            left, right = Side(operands[0], value.left.type), Side(operands[1], value.right.type)
            return comparison(left, value.operator, right, length, value, context)
        case ir.In():
            item, items = Side(operands[0], value.item.type), Side(operands[1], value.items.type)
            return membership(item, items, length, value, context)
        case ir.And():
            return conjunction(operands, length)
        case ir.Or():
            return disjunction(operands, length)
        case ir.Not():
            return negation(operands[0])
        case ir.IsNull():
            return null_test(operands[0], negated=value.negated)
        case ir.Arithmetic():
            return apply_kernel(_arithmetic(value))
        case ir.Negative():
            return apply_kernel(negative)
        case ir.NodeKey():
            return apply_kernel(node_key_kernel(value))
        case ir.Call(function="keys", arguments=(argument,)):
            assert isinstance(argument.type, EntityType)
            return property_names(as_located(operands[0], length), argument.type, value, context)
        case ir.Call():
            return apply_kernel(FUNCTIONS[value.function])
        case ir.ListOf():
            return apply_kernel(_list_kernel(value), strict=False)
        case ir.Record():
            return apply_kernel(_record_kernel(value), strict=False)
        case ir.Field():
            return _field(operands[0], value.name)
        case ir.MakePath():
            return apply_kernel(path_kernel(value.parts, value.type))
    raise AssertionError(f"{type(value).__name__} is evaluated by itself")


def _arithmetic(value: ir.Arithmetic) -> Kernel:
    """Addition also joins texts and lists."""
    if is_list(value.type):

        def kernel(part: Part, left: Argument, right: Argument) -> pa.Array:
            sides = (left, value.left.type), (right, value.right.type)
            return concatenate_lists(part, *(convert(part.array(each), own, value.type) for each, own in sides))

        return kernel
    if is_text(value.type):
        return concatenate_texts
    assert isinstance(value.type, PropertyType)
    return number_kernel(value.operator, floats=value.type.scalar is Scalar.F64)


def _list_kernel(value: ir.ListOf) -> Kernel:
    item = item_of(value.type)

    def kernel(part: Part, *items: Argument) -> pa.Array:
        if not items:
            return pa.array([[]] * part.size, column_type(value.type))
        return lists_of(
            part, [convert(part.array(each), own.type, item) for each, own in zip(items, value.items, strict=True)]
        )

    return kernel


def _record_kernel(value: ir.Record) -> Kernel:
    def kernel(part: Part, *values: Argument) -> pa.Array:
        pairs = zip(values, value.values, value.type.fields, strict=True)
        columns = [convert(part.array(each), own.type, type_) for each, own, (_, type_) in pairs]
        return pa.StructArray.from_arrays(columns, names=[name for name, _ in value.type.fields])

    return kernel


def _field(record: Evaluated, name: str) -> Evaluated:
    if isinstance(record, pa.Scalar):
        return record[name] if record.is_valid else pa.scalar(None, record.type.field(name).type)
    return Located(pc.struct_field(record.values, name), record.positions)


# ---- values without variables ---------------------------------------------------------------------------


_CONSTANTS: Final = (ir.Constant, ir.ParameterValue, ir.Now)
_OF_ROWS: Final = (ir.PropertyValue, ir.MetaValue, ir.EntityValue, ir.VariableValue, ir.OutputValue, ir.AggregateValue)


def is_constant(value: ir.Value) -> bool:
    """Whether a value is the same for all rows of a query; quick about what most conditions are made of."""
    if isinstance(value, _CONSTANTS):
        return True
    if isinstance(value, _OF_ROWS):
        return False
    if isinstance(value, ir.Compare):
        return is_constant(value.left) and is_constant(value.right)
    varying = ir.OutputValue | ir.AggregateValue
    return next(ir.variables_of(value), None) is None and not any(isinstance(p, varying) for p in ir.walk(value))


def constant_scalar(value: ir.Value, context: ValueContext) -> pa.Scalar:
    """A value without variables in the Arrow type of its own kind."""
    evaluated = evaluate(value, Bindings({}, 1), context)
    return evaluated if isinstance(evaluated, pa.Scalar) else evaluated.gather()[0]


def constant_value(value: ir.Value, context: ValueContext) -> Plain | list[Plain]:
    """A value without variables: days of dates, milliseconds of instants, lists of such values."""
    if isinstance(value, _CONSTANTS):
        return context.constant(value)
    plain: Plain | list[Plain] = _plain(constant_scalar(value, context))
    return plain


def _plain(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    if pa.types.is_list(scalar.type) or pa.types.is_fixed_size_list(scalar.type):
        return [_plain(item) for item in scalar.values]
    return scalar.as_py()
