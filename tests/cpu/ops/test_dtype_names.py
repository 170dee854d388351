"""Names of element types: ours and NumPy's full ones, wherever a type is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorlang
from tensorlang import graph
from tensorlang.errors import DTypeError, ParseError
from tensorlang.ir import Buffer, as_dtype, bitcast, cast, parse, placeholder, scalar
from tensorlang.ir.dtypes import NAMES, DType
from tensorlang.ops import find, nn, random

PLACES: dict[str, Callable[[str], Any]] = {
    "as_dtype": as_dtype,
    "DType": DType,
    "placeholder": lambda name: placeholder((4,), name),
    "Buffer": lambda name: Buffer("x", name, (4,)),  # type: ignore[arg-type]
    "scalar": lambda name: scalar("a", name),
    "cast": lambda name: cast(name, scalar("a", "f32")),
    "bitcast": lambda name: bitcast(name, scalar("a", "f32")),
    "method": lambda name: scalar("a", "f32").cast(name),
    "TensorSpec": lambda name: graph.TensorSpec((4,), name),
    "random": lambda name: random.uniform(random.key(0), (4,), name),
    "integers": lambda name: random.randint(random.key(0), (4,), 0, 9, dtype=name),
    "operator": lambda name: find("math.add").shape((4,), (4,), dtypes=name),
    "tune": lambda name: tensorlang.tune(nn.relu, shapes=[(4,)], dtypes=name),
}
# what NumPy reads in another way, or nobody reads like everybody else
OTHERS = {
    "f8": "f64", "f4": "f32", "f2": "f16", "i4": "i32", "i2": "i16", "u4": "u32",
    "u1": "u8", "<f4": "f32", ">i8": "i64", "b1": "bool", "float": "f64", "int": "i64",
    "half": "f16", "double": "f64", "d": "f64", "e": "f16", "l": "i64", "uint": "u64",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["f8", "i4", "float"])
def test_what_numpy_reads_otherwise_is_refused_everywhere(
    place: str, name: str
) -> None:
    with pytest.raises(DTypeError, match=f"write '{OTHERS[name]}'"):
        PLACES[place](name)


@pytest.mark.parametrize("name", OTHERS)
def test_a_refusal_names_both_meanings_and_the_right_spelling(name: str) -> None:
    numpy = np.dtype(name).name
    with pytest.raises(DTypeError) as told:
        as_dtype(name)
    assert f"{name!r} is {numpy} to NumPy" in str(told.value)
    assert f"write {OTHERS[name]!r}" in str(told.value)


def test_our_names_and_numpys_full_ones_are_taken() -> None:
    for name in NAMES:
        dtype = as_dtype(name)
        assert dtype == as_dtype(dtype) == as_dtype(dtype.numpy.name)
        assert dtype == as_dtype(dtype.numpy) == as_dtype(dtype.numpy.type)


def test_types_of_python_are_what_numpy_takes_them_for() -> None:
    for kind, name in ((float, "f64"), (int, "i64"), (bool, "bool")):
        assert as_dtype(kind) == as_dtype(np.dtype(kind)) == DType(name)
    assert as_dtype(ml_dtypes.bfloat16) == DType("bf16")


def test_types_of_pytorch_are_taken() -> None:
    torch = pytest.importorskip("torch", reason="the extra interop is not installed")
    for name in NAMES:
        kind = getattr(torch, DType(name).numpy.name)
        assert DType(name) == as_dtype(kind) == as_dtype(str(kind))
    with pytest.raises(DTypeError, match=r"^torch.complex64 is not an element type"):
        as_dtype(torch.complex64)


@pytest.mark.parametrize(
    "given",
    [
        None, 8, 1.5, b"f4", "", " f32", "F32", "f32x4", "c8", "S4", "float64, int8",
        complex, str, object, np.floating, np.float32(1), np.zeros(2), ["f32"],
        np.dtype(">f4"), np.dtype((np.float32, 2)), np.dtype([("a", np.float32)]),
        ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
    ],
)  # fmt: skip
def test_whatever_else_is_no_type(given: Any) -> None:
    with pytest.raises(DTypeError):
        as_dtype(given)


@pytest.mark.parametrize("name", ["f8", "i4", "float"])
def test_texts_have_our_names_alone(name: str) -> None:
    with pytest.raises(ParseError, match="element type"):
        parse(f"def f(x: {name}[4]):\n    pass")
    text = f"graph p(x0: {name}[3]) -> {name}[3] {{\n  return x0\n}}"
    with pytest.raises(DTypeError, match=f"line 1: '{name}' is .* write"):
        graph.parse(text)
