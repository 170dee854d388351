"""Arithmetic of f32 and f64 (PTX ISA, 9.7.3), to the nearest even.

f32 subnormals stay (no kernel asks for `.ftz`, but of `ex2`), and a NaN that an
instruction makes of f32 is 0x7fffffff, as the ISA has it. The approximate instructions
give NumPy's value, computed in f64: within the error that the ISA allows them, not the
GPU's own bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .exact import fma_double, fma_single
from .forms import Form, Rule, allow, same
from .types import Type

NAN = np.uint32(0x7FFFFFFF).view(np.float32)


def canonical(
    function: Callable[..., np.ndarray], t: Type
) -> Callable[..., np.ndarray]:
    """With the one NaN that f32 instructions make."""
    if t.name != "f32":
        return function

    def made(*operands: np.ndarray) -> np.ndarray:
        values = function(*operands)
        bad = np.isnan(values)
        return np.where(bad, NAN, values) if bad.any() else values

    return made


def _rounded(function: Callable[..., np.ndarray], count: int) -> Rule:
    """An instruction that rounds, to the nearest even."""

    def rule(words: list[str], t: Type) -> Form:
        allow(words, "rn")
        return same(t, count, canonical(function, t))

    return rule


def _fma(words: list[str], t: Type) -> Form:
    allow(words, "rn")
    function = fma_single if t.name == "f32" else fma_double
    return same(t, 3, canonical(function, t))


def _approximate(function: Callable[..., np.ndarray], count: int) -> Rule:
    def rule(words: list[str], t: Type) -> Form:
        allow(words, "approx", "full")
        wide = [np.float64] * count

        def made(*operands: np.ndarray) -> np.ndarray:
            given = (x.astype(w) for x, w in zip(operands, wide, strict=True))
            return function(*given).astype(t.numpy)

        return same(t, count, canonical(made, t))

    return rule


def _exponential(words: list[str], t: Type) -> Form:
    """`ex2.approx{.ftz}.f32`: with `.ftz`, subnormal operands and results are 0."""
    allow(words, "approx", "ftz")

    def made(x: np.ndarray) -> np.ndarray:
        flush = _flushed if "ftz" in words else np.asarray
        return flush(np.exp2(flush(x).astype(np.float64)).astype(t.numpy))

    return same(t, 1, canonical(made, t))


def _flushed(x: np.ndarray) -> np.ndarray:
    tiny = np.finfo(x.dtype).tiny
    return np.where(np.abs(x) < tiny, np.copysign(x.dtype.type(0), x), x)


def _either(exact: Rule, approximate: Rule) -> Rule:
    def rule(words: list[str], t: Type) -> Form:
        loose = {"approx", "full"} & set(words)
        return (approximate if loose else exact)(words, t)

    return rule


def _extreme(least: bool) -> Rule:
    """The other one where one is NaN (with `.NaN`: NaN); -0 is below +0."""

    def rule(words: list[str], t: Type) -> Form:
        allow(words, "NaN")
        pick, skip = (np.minimum, np.fmin) if least else (np.maximum, np.fmax)

        def made(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            values = (pick if "NaN" in words else skip)(a, b)
            negative = np.signbit(a) | np.signbit(b)
            if not least:
                negative = np.signbit(a) & np.signbit(b)
            zero = np.copysign(t.numpy(0), np.where(negative, -1, 1))
            both = (a == 0) & (b == 0)
            return np.where(both, zero, values).astype(t.numpy)

        return same(t, 2, canonical(made, t))

    return rule


def _signs(function: Callable[..., np.ndarray], count: int) -> Rule:
    """An instruction that only changes a sign."""

    def rule(words: list[str], t: Type) -> Form:
        allow(words)
        return same(t, count, function)

    return rule


def _copysign(words: list[str], t: Type) -> Form:
    """The sign of the first on the second."""
    allow(words)
    return same(t, 2, lambda a, b: np.copysign(b, a))


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / b


RULES: dict[str, Rule] = {
    "add": _rounded(np.add, 2),
    "sub": _rounded(np.subtract, 2),
    "mul": _rounded(np.multiply, 2),
    "fma": _fma,
    "mad": _fma,
    "div": _either(_rounded(np.divide, 2), _approximate(np.divide, 2)),
    "rcp": _either(_rounded(np.reciprocal, 1), _approximate(np.reciprocal, 1)),
    "sqrt": _either(_rounded(np.sqrt, 1), _approximate(np.sqrt, 1)),
    "rsqrt": _approximate(lambda x: 1 / np.sqrt(x), 1),
    "ex2": _exponential,
    "lg2": _approximate(np.log2, 1),
    "sin": _approximate(np.sin, 1),
    "cos": _approximate(np.cos, 1),
    "tanh": _approximate(np.tanh, 1),
    "min": _extreme(least=True),
    "max": _extreme(least=False),
    "abs": _signs(np.abs, 1),
    "neg": _signs(np.negative, 1),
    "copysign": _copysign,
}
