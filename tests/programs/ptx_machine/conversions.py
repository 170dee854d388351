"""`cvt` between integers and floats (PTX ISA, 9.7.9), in the roundings that are used.

`cvt.<rounding>.<to>.<from>`: integers are cut or extended, floats to integers are
clamped, and a NaN is 0 or, where f64 or 64 bits take part, the highest bit alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .exact import brain_bits, brain_values, odd_single
from .faults import Fault
from .floats import NAN
from .forms import Form, allow
from .types import Type

_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
Function = Callable[[np.ndarray], np.ndarray]


def form(words: list[str], kinds: list[Type]) -> Form:
    """What a `cvt` with these modifiers does."""
    to, source = kinds
    allow(words, "rn", "rna", "sat", *_WHOLE)
    if "sat" in words:
        raise Fault("cvt.sat is not known")
    if to.is_integer and source.is_integer:
        function: Function = lambda x: x.astype(to.numpy)  # noqa: E731
    elif to.is_integer:
        function = _to_integer(words, to, source)
    elif source.is_integer:
        function = _from_integer(words, to)
    else:
        function = _between_floats(words, to, source)
    return Form((source,), to, function)


def _only(words: list[str]) -> str:
    if len(words) != 1:
        raise Fault(f"cvt needs one rounding, not {words}")
    return words[0]


def _to_integer(words: list[str], to: Type, source: Type) -> Function:
    whole = _WHOLE[_only(words)]
    low, high = (int(v) for v in (np.iinfo(to.numpy).min, np.iinfo(to.numpy).max))
    nan = 1 << to.bits - 1 if source.bits == 64 or to.bits == 64 else 0
    odd = np.array([nan], to.word).view(to.numpy)

    def convert(x: np.ndarray) -> np.ndarray:
        wide = _wide(x, source)
        near = whole(wide)
        inside = (near >= float(low)) & (near < float(high + 1))
        made = np.where(inside, near, 0).astype(to.numpy)
        made = np.where(near < float(low), to.numpy(low), made)
        made = np.where(near >= float(high + 1), to.numpy(high), made)
        return np.where(np.isnan(wide), odd, made)

    return convert


def _wide(x: np.ndarray, source: Type) -> np.ndarray:
    return (brain_values(x) if source.name == "bf16" else x).astype(np.float64)


def _from_integer(words: list[str], to: Type) -> Function:
    if _only(words) != "rn" or to.name not in ("f32", "f64"):
        raise Fault(f"cvt.{words} of an integer to {to.name} is not known")
    return lambda x: x.astype(to.numpy)


def _between_floats(words: list[str], to: Type, source: Type) -> Function:
    if to.name == "tf32":
        return _to_tensor_float(words, source)
    if to == source and words and words[0] in _WHOLE:
        return _WHOLE[_only(words)]
    if (to.bits < source.bits) != (words == ["rn"]) or len(words) > 1:
        raise Fault(f"cvt.{'.'.join(words)} from {source.name} to {to.name}")
    if to.name == "bf16":
        return lambda x: brain_bits(odd_single(_wide(x, source)))
    if to.name == "f16":
        return lambda x: _half(_wide(x, source))
    return lambda x: _without_payload(_wide(x, source).astype(to.numpy))


def _half(x: np.ndarray) -> np.ndarray:
    made = x.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), made).view(np.float16)


def _without_payload(x: np.ndarray) -> np.ndarray:
    if x.dtype == np.float64:
        return x
    return np.where(np.isnan(x), NAN, x)


def _to_tensor_float(words: list[str], source: Type) -> Function:
    """10 bits after the point, ties away from zero: half of the last, then cut."""
    if words != ["rna"] or source.name != "f32":
        raise Fault("cvt to tf32 is cvt.rna.tf32.f32")

    def convert(x: np.ndarray) -> np.ndarray:
        bits = x.view(np.uint32)
        near = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return np.where(np.isnan(x), np.uint32(0x7FFFFFFF), near)

    return convert
