"""Signatures of kernels: buffers with shapes and roles, then scalars.

A signature is plain data, cached with the object code, so that calling a kernel needs
no IR. A dimension is an integer, the name of a scalar, or an operation on dimensions,
`("mul", "n", 2)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang.ir.dtypes import DType
from tensorlang.ir.operations import INTEGERS
from tensorlang.once import cached_property

Scalars: TypeAlias = "dict[str, Any]"  # by name; integers if they are dimensions
Dim: TypeAlias = "int | str | tuple[str, Dim, Dim]"

OPERATIONS: Final = {
    op: INTEGERS[op]
    for op in ("add", "sub", "mul", "floordiv", "floormod", "min", "max")
}
_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}


@dataclass(frozen=True)
class BufferSpec:
    """One buffer: name, dtype, role (`in`, `out`, `inout`) and dimensions."""

    name: str
    dtype: str
    role: str
    shape: tuple[Dim, ...]

    @property
    def written(self) -> bool:
        """Whether the kernel writes it."""
        return self.role != "in"

    @cached_property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of its elements."""
        return DType(self.dtype).numpy

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(show_dim, self.shape))}]"


@dataclass(frozen=True)
class ScalarSpec:
    """One scalar; `bound` if a buffer's dimension determines its value."""

    name: str
    dtype: str
    bound: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}"


@dataclass(frozen=True)
class Signature:
    """Name, buffers and scalars of a kernel, in calling order.

    `aliases` are pairs of positions `(out, in)` that may be the same array.
    """

    name: str
    buffers: tuple[BufferSpec, ...]
    scalars: tuple[ScalarSpec, ...]
    aliases: tuple[tuple[int, int], ...] = ()

    @cached_property
    def free(self) -> tuple[ScalarSpec, ...]:
        """The scalars that callers pass: those that no shape binds."""
        return tuple(scalar for scalar in self.scalars if not scalar.bound)

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The free scalars that are factors of dimensions, and so not negative."""
        dims = [dim for buffer in self.buffers for dim in buffer.shape]
        factors = {factor for dim in dims for factor in _factors(dim)}
        return tuple(scalar.name for scalar in self.free if scalar.name in factors)

    @cached_property
    def outs(self) -> tuple[int, ...]:
        """Positions of the buffers that a call may allocate and return."""
        return tuple(i for i, b in enumerate(self.buffers) if b.role == "out")

    @cached_property
    def slots(self) -> int:
        """8-byte slots of the argument block, without the workspace pointer."""
        return len(self.buffers) + len(self.scalars)

    def __str__(self) -> str:
        given = [str(b) for b in self.buffers] + ["*"] * bool(self.scalars)
        return f"{self.name}({', '.join(given + [str(s) for s in self.scalars])})"

    def to_json(self) -> dict[str, object]:
        """A JSON-serialisable form for `from_json`."""
        return {
            "name": self.name,
            "buffers": [[b.name, b.dtype, b.role, b.shape] for b in self.buffers],
            "scalars": [[s.name, s.dtype, s.bound] for s in self.scalars],
            "aliases": self.aliases,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Signature:
        """The signature that `to_json` wrote."""
        return Signature(
            data["name"],
            tuple(
                BufferSpec(name, dtype, role, tuple(_dim_from_json(d) for d in shape))
                for name, dtype, role, shape in data["buffers"]
            ),
            tuple(ScalarSpec(*scalar) for scalar in data["scalars"]),
            tuple((out, source) for out, source in data["aliases"]),
        )


def _factors(dim: Dim) -> Iterator[str]:
    """The scalars that a dimension is a multiple of."""
    if isinstance(dim, str):
        yield dim
    elif isinstance(dim, tuple) and dim[0] == "mul":
        yield from _factors(dim[1])
        yield from _factors(dim[2])


def evaluate(dim: Dim, scalars: Mapping[str, int]) -> int:
    """The value of a dimension for these scalars."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return scalars[dim]
    op, a, b = dim
    found: int = OPERATIONS[op](evaluate(a, scalars), evaluate(b, scalars))
    return found


def show_dim(dim: Dim) -> str:
    """A dimension in Python syntax."""
    if not isinstance(dim, tuple):
        return str(dim)
    op, a, b = dim
    if op in _SIGNS:
        return f"({show_dim(a)} {_SIGNS[op]} {show_dim(b)})"
    return f"{op}({show_dim(a)}, {show_dim(b)})"


def _dim_from_json(data: Any) -> Dim:
    if isinstance(data, list):
        op, a, b = data
        return (op, _dim_from_json(a), _dim_from_json(b))
    return data if isinstance(data, str) else int(data)
