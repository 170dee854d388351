"""Types of PTX, and how registers of 16, 32 and 64 bits hold their values.

A register is an array of unsigned integers (`bool` for a predicate). A value of a type
is an array of `Type.numpy`; bf16, tf32 and the packed types are their bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from .faults import Fault

WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "pred": np.bool_}
_BITS = {"pred": 1, "bf16": 16, "tf32": 32, "f16x2": 32, "bf16x2": 32}
NAMES = frozenset(
    [f"{k}{n}" for k in "usb" for n in (8, 16, 32, 64)] + [*_NUMPY, *_BITS]
)


@dataclass(frozen=True)
class Type:
    """A type such as `u32` or `bf16x2`; `word` is the unsigned type of its width."""

    name: str
    bits: int
    numpy: type
    word: type

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_signed(self) -> bool:
        return self.name[0] == "s"

    @property
    def is_integer(self) -> bool:
        return self.name[0] in "us" or (self.name[0] == "b" and self.name[1] != "f")

    @property
    def is_float(self) -> bool:
        return not self.is_integer and self.name != "pred"

    @property
    def wider(self) -> Type:
        return named(f"{self.name[0]}{2 * self.bits}")


@cache
def named(name: str) -> Type:
    """The type of a name."""
    if name not in NAMES:
        raise Fault(f"type {name} is not known")
    if name == "pred":
        return Type(name, 1, np.bool_, np.bool_)
    bits = _BITS.get(name) or int(name[1:])
    signed = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
    number = signed[bits] if name[0] == "s" else WORDS[bits]
    return Type(name, bits, _NUMPY.get(name, number), WORDS[bits])


def values_of(raw: np.ndarray, kind: Type) -> np.ndarray:
    """The contents of registers, read as a type that is no wider."""
    if raw.dtype == np.bool_ or kind.name == "pred":
        if raw.dtype != kind.numpy:
            raise Fault(f"a predicate is no {kind.name}")
        return raw
    if raw.dtype.itemsize < kind.bytes:
        raise Fault(f"a register of {8 * raw.dtype.itemsize} bits is no {kind.name}")
    if raw.dtype.itemsize > kind.bytes:
        raw = raw.astype(kind.word)
    return raw.view(kind.numpy)


def words_of(values: np.ndarray, kind: Type, word: np.dtype) -> np.ndarray:
    """Values as registers hold them: extended by their sign where these are wider."""
    if kind.name == "pred":
        return values
    if word.itemsize > kind.bytes:
        return values.astype(f"{'i' if kind.is_signed else 'u'}{word.itemsize}").view(
            word
        )
    if word.itemsize < kind.bytes:
        raise Fault(f"{kind.name} does not fit {8 * word.itemsize} bits")
    return values.view(word)
