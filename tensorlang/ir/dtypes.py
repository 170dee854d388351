"""Element types: `f16 bf16 f32 f64 i8..i64 u8..u64 bool`, and vectors of them.

Types are values: `DType("f32")` is 32-bit IEEE 754, `DType("f32", 16)` a vector of
sixteen lanes. `bf16` is the upper half of an `f32` (provided to NumPy by `ml_dtypes`).

The number in a name counts bits, as in LLVM and MLIR: `i8` is `int8`. NumPy's type
codes count bytes (its `"f8"` is `float64`); they are not accepted as names.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np

from tensorlang import lazy
from tensorlang.errors import DTypeError

with lazy.modules(__name__):  # only for bf16
    import ml_dtypes

# name -> (kind, bits, NumPy name); kinds: float, int, uint, bool
_TABLE: Final[dict[str, tuple[str, int, str]]] = {
    "f16": ("float", 16, "float16"),
    "bf16": ("float", 16, "bfloat16"),
    "f32": ("float", 32, "float32"),
    "f64": ("float", 64, "float64"),
    "i8": ("int", 8, "int8"),
    "i16": ("int", 16, "int16"),
    "i32": ("int", 32, "int32"),
    "i64": ("int", 64, "int64"),
    "u8": ("uint", 8, "uint8"),
    "u16": ("uint", 16, "uint16"),
    "u32": ("uint", 32, "uint32"),
    "u64": ("uint", 64, "uint64"),
    "bool": ("bool", 8, "bool"),
}
_FROM_NUMPY: Final = {numpy: name for name, (_, _, numpy) in _TABLE.items()}
_FROM_TORCH: Final = {f"torch.{numpy}": name for numpy, name in _FROM_NUMPY.items()}
NAMES: Final = tuple(_TABLE)


class DType:
    """An element type, or a vector of `lanes` of it; instances are unique.

    Attributes:
        name: One of `NAMES`.
        lanes: The number of lanes, at least 1.
        kind: One of `float`, `int`, `uint`, `bool`.
        bits: Bits of one lane as stored in memory (a `bool` is one byte).
        is_float: Whether lanes are floating-point numbers.
        is_integer: Whether lanes are signed or unsigned integers (`bool` is not).
        is_bool: Whether a lane is a truth value.
        scalar: The type of one lane.

    Raises:
        DTypeError: the name is none of `NAMES`, or lanes is not positive.
    """

    __slots__ = (
        "bits",
        "is_bool",
        "is_float",
        "is_integer",
        "kind",
        "lanes",
        "name",
        "scalar",
    )
    __match_args__ = ("name", "lanes")

    name: str
    lanes: int
    kind: str
    bits: int
    is_float: bool
    is_integer: bool
    is_bool: bool
    scalar: DType

    def __new__(cls, name: str, lanes: int = 1) -> DType:  # noqa: D102, PYI034
        found = _MADE.get((name, lanes))
        return _make(name, lanes) if found is None else found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self} does not change: {name} stays what it is")

    def __reduce__(self) -> tuple[type[DType], tuple[str, int]]:
        return DType, (self.name, self.lanes)

    def __str__(self) -> str:
        return self.name if self.lanes == 1 else f"{self.name}x{self.lanes}"

    __repr__ = __str__

    @property
    def bytes(self) -> int:
        """Bytes of one lane as stored in memory."""
        return self.bits // 8

    def vector(self, lanes: int) -> DType:
        """The type of `lanes` lanes of this element type."""
        if self.lanes == lanes:
            return self
        return _MADE.get((self.name, lanes)) or _make(self.name, lanes)

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of one lane."""
        return _numpy_dtype(self.name)

    @property
    def lowest(self) -> float:
        """The smallest value: -inf for floats."""
        return -math.inf if self.is_float else self.limits[0]

    @property
    def limits(self) -> tuple[int, int]:
        """The minimum and maximum of an integer or bool type."""
        found = _LIMITS.get(self.name)
        if found is None:
            raise DTypeError(f"{self} has no integer limits")
        return found


_MADE: Final[dict[tuple[str, int], DType]] = {}


def _make(name: str, lanes: int) -> DType:
    if name not in _TABLE:
        raise DTypeError(_refusal(name))
    if lanes < 1:
        raise DTypeError(f"a vector needs at least one lane, not {lanes}")
    kind, bits = _TABLE[name][:2]
    made = object.__new__(DType)
    values = {
        "name": name,
        "lanes": int(lanes),
        "kind": kind,
        "bits": bits,
        "is_float": kind == "float",
        "is_integer": kind in ("int", "uint"),
        "is_bool": kind == "bool",
        "scalar": made if lanes == 1 else DType(name),
    }
    for field, value in values.items():
        object.__setattr__(made, field, value)
    return _MADE.setdefault((name, lanes), made)


def _limits(kind: str, bits: int) -> tuple[int, int]:
    if kind == "int":
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 if kind == "bool" else (1 << bits) - 1)


_LIMITS: Final = {
    name: _limits(kind, bits)
    for name, (kind, bits, *_) in _TABLE.items()
    if kind != "float"
}


@cache
def _numpy_dtype(name: str) -> np.dtype:
    if name == "bf16":
        bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(_TABLE[name][2])


def as_dtype(spec: DType | str | type | np.dtype) -> DType:
    """The `DType` of a name or a type.

    Args:
        spec: One of `NAMES`; NumPy's full name, such as `"float32"` or `"bfloat16"`; a
            NumPy or `ml_dtypes` dtype or scalar type; a dtype of PyTorch, or its text,
            such as `"torch.float32"`; or Python's `float`, `int` and `bool`, which are
            f64, i64 and bool as in NumPy.

    Raises:
        DTypeError: it has no counterpart, or is spelled differently, such as NumPy's
            `"f8"`.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        return DType(_FROM_NUMPY.get(spec) or _FROM_TORCH.get(spec, spec))
    if not isinstance(spec, (type, np.dtype)):
        name = _FROM_TORCH.get(str(spec))  # without importing PyTorch
        if name is None:
            raise DTypeError(_refusal(spec))
        return DType(name)
    try:
        found = np.dtype(spec)
    except TypeError:
        raise DTypeError(_refusal(spec)) from None
    if not found.isnative:
        raise DTypeError(f"{found!r} is of another byte order than this machine's")
    if found.name not in _FROM_NUMPY:
        raise DTypeError(_refusal(spec))
    return DType(_FROM_NUMPY[found.name])


def _refusal(spec: object) -> str:
    """Explain why something names no type, suggesting the name of NumPy's reading."""
    try:
        meant = np.dtype(spec).name if isinstance(spec, str) else ""
    except (TypeError, ValueError, SyntaxError):
        meant = ""
    name = _FROM_NUMPY.get(meant)
    if name is None:
        return f"{spec!r} is not an element type; use one of {', '.join(NAMES)}"
    if str(spec)[-1].isdigit():
        return (
            f"{spec!r} is {meant} to NumPy, which counts bytes, and names here count "
            f"bits: write {name!r}"
        )
    return (
        f"{spec!r} is {meant} to NumPy and another type elsewhere, as in C or JAX: "
        f"write {name!r}, or the name with the bits that you mean"
    )


f16, bf16, f32, f64 = DType("f16"), DType("bf16"), DType("f32"), DType("f64")
i8, i16, i32, i64 = DType("i8"), DType("i16"), DType("i32"), DType("i64")
u8, u16, u32, u64 = DType("u8"), DType("u16"), DType("u32"), DType("u64")
boolean = DType("bool")
