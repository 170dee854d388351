"""How many bits an element takes, and what comes out: known without any IR."""

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


def width_of(name: str, dtype: str) -> int:
    """The random bits that an element of a distribution takes.

    A bf16 has a fraction of 7, so 8 are enough (as in JAX); fine uniforms take the
    next wider; narrow integers are cut from 32; a coin compares 32 whatever its type.
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
    """The type of a distribution's elements."""
    return "bool" if name == "bernoulli" else dtype
