"""Shapes, types, times and attributes as people write them."""

from __future__ import annotations

import pytest

from tensorlang.cli import options
from tensorlang.errors import ArgumentError
from tensorlang.ops import find


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("16777216", ((16777216,),)),
        ("64x784", ((64, 784),)),
        ("64x784, 512x784", ((64, 784), (512, 784))),
        ("0", ((0,),)),
        (None, ()),
    ],
)
def test_shapes(text, shapes):
    assert options.shapes(text) == shapes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("2m", 120), ("1h", 3600), ("90", 90), ("1.5m", 90), (".5s", 0.5)],
)
def test_times(text, seconds):
    assert options.seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "1d", "-5s", "0", "1e9", "inf", "nan", "5 m"]
)
def test_no_times(text):
    with pytest.raises(ArgumentError, match="is not a positive time"):
        options.seconds(text)


def test_types_by_any_of_their_names():
    assert options.dtypes("float32") == "f32"
    assert options.dtypes("u32, int8") == ("u32", "i8")
    assert options.dtypes(None) is None


def test_a_workload_of_options():
    workload = options.workload(find("bits"), "784", "uint8", ["stream=packed"])
    assert workload.shapes == ((2,), (784,))
    assert workload.dtypes == ("u32", "shape")
    assert workload.named["dtype"] == "u8"
    assert workload.named["stream"] == "packed"
    assert workload.named["key"] == "threefry2x32"


def test_a_workload_of_a_batch_of_keys():
    given = ["key=threefry4x32"]
    workload = options.workload(find("bits"), "64x4, 28x28", "uint8", given)
    assert workload.shapes == ((64, 4), (784,))
    assert workload == options.workload(find("bits"), "64x4,784", "uint8", given)


@pytest.mark.parametrize("name", ["dense", "dense_int8", "dense_int4"])
def test_no_sizes_are_the_usual_ones(name):
    op = find(name)
    assert options.workload(op).shapes == op.default.shapes


def test_sizes_of_a_layer_in_short():
    made = options.workload(find("dense_int4"), "8x16x32")
    assert made.shapes == ((8, 32), (16, 16), (16,))
