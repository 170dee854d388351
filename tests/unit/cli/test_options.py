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
    with pytest.raises(ArgumentError, match="is not a time longer than 0"):
        options.seconds(text)


def test_types_by_any_of_their_names():
    assert options.dtypes("float32") == "f32"
    assert options.dtypes("u32, int8") == ("u32", "i8")
    assert options.dtypes(None) is None


def test_a_workload_of_options():
    workload = options.workload(
        find("bits"), "64x784", "uint8", ["stream=packed", "batch=true"]
    )
    assert workload.shapes == ((64, 784),)
    assert workload.dtypes == ("u8",)
    assert workload.named["stream"] == "packed"
    assert workload.named["batch"] is True
    assert workload.named["impl"] == "threefry2x32"
