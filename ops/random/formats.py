"""Bits per element and result types of draws, without loading the IR."""

from __future__ import annotations

from typing import Final

_BITS: Final = {
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "bool": 8,
    **{f"{kind}{bits}": bits for kind in "iu" for bits in (8, 16, 32, 64)},
}
_OTHERS: Final = {"bernoulli": "bool", "permutation": "i32"}


def width_of(name: str, dtype: str) -> int:
    """The number of random bits per element of a distribution.

    A bf16 has 7 fraction bits, so 8 suffice (as in JAX); fine uniforms take the next
    width; narrow integers are truncated from 32; bernoulli always compares 32.
    """
    bits = _BITS[dtype]
    if name == "fine":
        return 32 if bits == 16 else 64
    if name in ("randint", "full"):
        return max(32, bits)
    if name == "bernoulli":
        return 32
    return 8 if dtype == "bf16" else bits


def result_of(name: str, dtype: str) -> str:
    """The element type of a distribution."""
    return _OTHERS.get(name, dtype)
