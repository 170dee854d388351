"""LLVM syntax of element types, vectors and literals.

f16 and bf16 are integers that hold their bits (see `legalize`).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Const

_NAMES: Final = {
    "f16": "i16",
    "bf16": "i16",
    "f32": "float",
    "f64": "double",
    "bool": "i1",
}
_MANGLED: Final = {"bool": "i1"}


@cache
def llvm_type(dtype: DType) -> str:
    """The type of a value: `float`, `i32`, `<16 x float>`, `i1` for a bool."""
    element = _NAMES.get(dtype.name, f"i{dtype.bits}")
    return element if dtype.lanes == 1 else f"<{dtype.lanes} x {element}>"


def memory_type(dtype: DType) -> str:
    """The type in memory, where a bool is a byte."""
    if not dtype.is_bool:
        return llvm_type(dtype)
    return "i8" if dtype.lanes == 1 else f"<{dtype.lanes} x i8>"


def mangled(dtype: DType) -> str:
    """The type as mangled into the name of an LLVM intrinsic: `v16f32`, `i64`."""
    if dtype.name in ("f32", "f64"):
        element = dtype.name
    else:
        element = _MANGLED.get(dtype.name, f"i{dtype.bits}")
    return element if dtype.lanes == 1 else f"v{dtype.lanes}{element}"


def literal(const: Const) -> str:
    """A constant in LLVM syntax, exactly."""
    if const.dtype.is_bool:
        return "true" if const.value else "false"
    if const.dtype.is_integer:
        return str(const.value)
    return _float_literal(float(const.value), const.dtype)


def _float_literal(value: float, dtype: DType) -> str:
    if dtype.name == "f16":
        return str(struct.unpack("<H", struct.pack("<e", value))[0])
    if dtype.name == "bf16":
        return str(struct.unpack("<I", struct.pack("<f", value))[0] >> 16)
    if value * 1024 == int(value * 1024) if abs(value) < 1 << 20 else False:
        return repr(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def vector_literal(element: str, texts: list[str]) -> str:
    """A constant vector of these lanes."""
    if len(set(texts)) == 1:
        return f"splat ({element} {texts[0]})"
    return "<" + ", ".join(f"{element} {text}" for text in texts) + ">"
