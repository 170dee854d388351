"""Workloads as people ask for them: what fits an operator, and what does not."""

from __future__ import annotations

import re

import pytest

from tensorlang.errors import ArgumentError, DTypeError, OperatorError, ShapeError
from tensorlang.ir import compute
from tensorlang.ops import find, operator, operators
from tensorlang.ops.kernels.requests import requested

# declared ones: other tests ask for gradients of gradients, some of which there are not
LIBRARY = [op for op in operators() if op.in_library]


@operator("test_requests.scaled")
def scaled(x, y, *, scale=1.0, how=None):
    """A multiple of x, and y."""
    if how == "raise":
        raise ZeroDivisionError("a mistake")
    return compute(x.shape, lambda i: x[i] * scale + y[i])


def test_what_is_not_said_is_the_default():
    bits = find("random.bits")
    assert requested(bits) == bits.default
    found = requested(bits, [(64,)], "uint8", {"stream": "packed"}, threads=2)
    assert found == bits.workload((64,), dtypes="u8", stream="packed", threads=2)


def test_every_operator_of_the_library_has_a_default():
    for op in LIBRARY:
        assert requested(op).operator == op.id


def test_an_element_type_without_a_default_is_needed():
    with pytest.raises(ArgumentError, match=r"math\.cast: dtype is needed"):
        find("math.cast").workload((3,))


@pytest.mark.parametrize("name", ["nn.cross_entropy", "nn.cross_entropy_grad"])
def test_labels_of_the_shape_of_logits_are_shares_of_their_type(name):
    op = find(name)
    dy = () if "grad" not in name else ((4,),)
    for asked, kind in ((None, "f32"), ("f32", "f32"), ("bf16", "bf16")):
        indices = op.workload(*dy, (4, 5), (4,), dtypes=asked, reduction="none")
        shares = op.workload(*dy, (4, 5), (4, 5), dtypes=asked, reduction="none")
        assert indices.dtypes[len(dy) :] == (kind, "i64")
        assert shares.dtypes[len(dy) :] == (kind, kind)
        op.traced(shares)


def test_a_whole_number_will_do_for_a_float():
    assert requested(scaled, [(4,), (4,)], None, {"scale": 2}).named["scale"] == 2.0


def test_operators_that_plan_judge_for_themselves():
    softmax, norm = find("nn.softmax"), find("nn.layer_norm")
    rows = requested(softmax, [(4, 8)], None, {"axis": 0})  # `axis` is of its calls
    assert rows == softmax.workload((4, 8), axis=0)
    assert requested(norm, [(4, 8)]).shapes != requested(norm, [(4, 8), (8,)]).shapes


@pytest.mark.parametrize(
    ("op", "given", "error", "says"),
    [
        ("random.bits", {"shapes": "64"}, ShapeError, "give a shape for each array"),
        ("random.bits", {"shapes": [(1.5,)]}, ShapeError, "give a shape for each"),
        ("random.bits", {"shapes": [(1 << 50,)]}, ShapeError, "no memory holds"),
        ("random.bits", {"dtypes": 3}, DTypeError, "3"),
        ("random.bits", {"dtypes": []}, DTypeError, "takes 1 types here, got 0"),
        (
            "random.bits",
            {"attributes": {"foo": 1}},
            ArgumentError,
            "no attribute 'foo'",
        ),
        (
            "nn.softmax",
            {"attributes": {"foo": 0}},
            ArgumentError,
            "no attribute 'foo'",
        ),
        (
            "nn.softmax",
            {"shapes": [(4, 8)], "attributes": {"foo": 0}},
            ArgumentError,
            "no attribute 'foo'; it has",
        ),
        (
            "nn.relu",
            {"shapes": [(4,), (4,)]},
            ShapeError,
            "takes 1 shape, such as (16777216,); got (4,), (4,)",
        ),
        ("test_requests.scaled", {}, ArgumentError, "not 0; give shapes="),
        ("test_requests.scaled", {"shapes": [(4,)]}, ArgumentError, "takes 2 arrays"),
        (
            "test_requests.scaled",
            {"shapes": [(4,), (4,)], "attributes": {"how": object}},
            ArgumentError,
            "attribute how is a number or text",
        ),
        (
            "test_requests.scaled",
            {"shapes": [(4,), (4,)], "attributes": {"how": "raise"}},
            OperatorError,
            "of (4,), (4,), how='raise' cannot be defined: ZeroDivisionError: a mis",
        ),
    ],
)
def test_what_does_not_fit_is_refused(op, given, error, says):
    with pytest.raises(error, match=re.escape(says)):
        requested(find(op), **given)


@pytest.mark.parametrize(
    "shapes", [("a", "b"), ((8.5, 3), (5, 3)), (8, 3), ((8, -3), (5, -3))]
)
def test_what_is_no_shape_has_no_result(shapes):
    with pytest.raises(ShapeError, match="shape"):
        find("nn.dense").shape(*shapes)


def test_what_is_no_name_finds_no_operator():
    with pytest.raises(
        OperatorError, match="an operator, or the name of one, is needed"
    ):
        find(3)
