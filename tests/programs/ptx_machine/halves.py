"""Arithmetic of f16 and bf16, alone and in pairs (PTX ISA, 9.7.4).

Sums, differences and products of these are exact enough in f32 that rounding again to
16 bits gives what rounding once would; an fma is rounded to odd in f64 in between.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import exact
from .forms import Form, Rule, allow, same
from .types import Type, named

_NAN = np.uint16(0x7FFF)


def to_single(values: np.ndarray, t: Type) -> np.ndarray:
    """f16 or the bits of bf16 as f32, which is exact."""
    if t.name == "bf16":
        return exact.brain_values(values)
    return values.astype(np.float32)


def from_double(x: np.ndarray, t: Type) -> np.ndarray:
    """f64 (exact, or rounded to odd) as f16 or the bits of bf16, to the nearest."""
    if t.name == "bf16":
        return exact.brain_bits(exact.odd_single(x))
    return x.astype(np.float16)


def _rounded(function: Callable[..., np.ndarray], count: int) -> Rule:
    def rule(words: list[str], t: Type) -> Form:
        allow(words, "rn")
        one = named(t.name.removesuffix("x2"))

        def made(*operands: np.ndarray) -> np.ndarray:
            wide = [to_single(x, one).astype(np.float64) for x in operands]
            values = from_double(function(*np.broadcast_arrays(*wide)), one)
            nan = np.isnan(to_single(values, one))
            return np.where(nan, _NAN, values.view(np.uint16)).view(one.numpy)

        return same(t, count, _in_pairs(made, one) if one != t else made)

    return rule


def _bits(function: Callable[..., np.ndarray], count: int) -> Rule:
    """An instruction that only looks at bits."""

    def rule(words: list[str], t: Type) -> Form:
        allow(words)
        one = named(t.name.removesuffix("x2"))

        def made(*operands: np.ndarray) -> np.ndarray:
            return function(*(x.view(np.uint16) for x in operands)).view(one.numpy)

        return same(t, count, _in_pairs(made, one) if one != t else made)

    return rule


def _in_pairs(function: Callable[..., np.ndarray], one: Type):
    def made(*operands: np.ndarray) -> np.ndarray:
        halves = [x.reshape(-1, 1).view(one.numpy) for x in operands]
        lanes = function(*np.broadcast_arrays(*halves))
        return np.ascontiguousarray(lanes).view(np.uint32).reshape(-1)

    return made


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return exact.odd_sum(a * b, c)


RULES: dict[str, Rule] = {
    "add": _rounded(np.add, 2),
    "sub": _rounded(np.subtract, 2),
    "mul": _rounded(np.multiply, 2),
    "fma": _rounded(_fma, 3),
    "min": _rounded(np.fmin, 2),
    "max": _rounded(np.fmax, 2),
    "neg": _bits(lambda x: x ^ np.uint16(0x8000), 1),
    "abs": _bits(lambda x: x & np.uint16(0x7FFF), 1),
}
