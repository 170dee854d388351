"""Options that the decorators of operators do not have, or of wrong types."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np
import pytest

from tensorlang import ir
from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.ops import elementwise, fold, operator
from tensorlang.ops.registry import operators
from tensorlang.ops.spec.signature import (
    Arrays,
    Batch,
    Floats,
    InOut,
    Integers,
    Ints,
    Key,
    Number,
    Packed,
    Scalar,
    Static,
    kind_of,
)


def body(x):
    return ir.compute(x.shape, lambda i: x[i])


def test_a_decorator_without_a_name_says_so():
    for decorator in (operator, elementwise):
        with pytest.raises(OperatorError, match="of 'body' takes the operator's name"):
            decorator(body)
    with pytest.raises(OperatorError, match="3 is not a name such as"):
        operator(3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": "n >= 5"}, "no option 'size'; did you mean 'sizes'"),
        ({"foo": 1}, "no option 'foo'"),
        ({"tolerance": "x"}, "tolerance= is a number, not 'x'"),
        ({"sizes": 3}, "sizes= is a text, not 3"),
        ({"indices": ["x"]}, "indices= is a dictionary, not"),
        ({"samples": 3}, "samples= is a function, not 3"),
        ({"gradient": True}, "gradient= is a dictionary, not True"),
        ({"aliases": "other"}, "aliases= is a tuple of names, not 'other'"),
        ({"parameters_of": body}, "parameters_of= is an operator, not <function"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(OperatorError, match=f"decorated.wrong: .*{said}"):
        operator("decorated.wrong", **options)(body)


def test_parameters_of_another_operator():
    """Those that are named stand where they are named, the others as there."""

    @operator("decorated.forward")
    def forward(x: Floats, scale: float, *, power: int = 2, flip: bool = False):
        factor = scale * power if flip else scale
        return ir.compute(x.shape, lambda i: x[i] * factor)

    @operator("decorated.forward_grad", parameters_of=forward)
    def gradient(dy: Floats, x: Floats, power: int, **given: object):
        assert given == {"scale": 0.5, "flip": True}
        return ir.compute(dy.shape, lambda i: dy[i] * x[i] * power)

    shown = str(inspect.signature(gradient))
    assert shown.startswith(
        "(dy: 'Any', x: 'Any', power: 'int', scale: 'float', *, flip: 'bool' = Fal"
    )
    ones = np.ones(3, np.float32)
    made = gradient(ones, ones, 4, 0.5, flip=True)
    np.testing.assert_array_equal(made, 4 * ones)
    with pytest.raises(ArgumentError, match="no attribute other; it has power, scale"):
        gradient(ones, ones, scale=1.0, other=1)


def test_keywords_stand_for_nothing_by_themselves():
    with pytest.raises(OperatorError, match="a definition names its arrays: no"):
        operator("decorated.keywords")(lambda x, **_: x)
    assert "decorated.keywords" not in {op.id for op in operators()}


def test_what_is_no_definition():
    with pytest.raises(OperatorError, match="a definition is a function, not 3"):
        operator("decorated.number")(3)
    with pytest.raises(OperatorError, match="has no option 'empti'"):
        fold("decorated.fold", Floats, empti=True)(lambda rows: rows)
    with pytest.raises(OperatorError, match="a fold is of arrays such as Floats"):
        fold("decorated.folds", "Floats")


@pytest.mark.parametrize(
    ("said", "marks"),
    [
        (Floats | None, {"optional"}),
        (None | Floats, {"optional"}),
        (Floats | Number, {"number"}),
        (Floats | Number | None, {"number", "optional"}),
        (Floats | Packed, {"packed"}),
        (InOut[Floats], {"inplace"}),
        (Batch[Floats] | None, {"batch", "optional"}),
        (Sequence[Floats], {"several"}),
    ],
)
def test_alternatives_and_marks_of_arrays(said, marks):
    kind = kind_of("x", said)
    assert isinstance(kind, Arrays)
    assert kind.dtypes == kind_of("x", Floats).dtypes
    assert {name for name in Arrays.__slots__ if getattr(kind, name) is True} == marks


def test_alternatives_of_attributes_and_keys():
    kind = kind_of("n", Ints | None)
    assert isinstance(kind, Static)
    assert kind.choices == (None,)
    assert kind.says == "a whole number or several, or None"
    assert kind_of("n", float | None).says == "a number or None"
    assert kind_of("key", Key | None).optional


@pytest.mark.parametrize(
    "said",
    [
        *(Scalar | None, Floats | Integers, Floats | int, Ints | Number, Number),
        *(Sequence[int], Sequence[Ints], dict, ir.DType | int, np.ndarray | None),
    ],
)
def test_annotations_without_a_meaning_are_refused(said):
    with pytest.raises(OperatorError, match="x: no parameter of an operator is a"):
        kind_of("x", said)
