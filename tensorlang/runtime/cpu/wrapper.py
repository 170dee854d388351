"""The emitted call wrapper, a Python builtin that checks a call in compiled code.

`wrapper_text` renders `templates/wrapper.ll.j2` for a signature: the checks as
straight-line code. `native_function` makes a Python builtin of its address.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tensorlang import templates
from tensorlang.ir.dtypes import DType
from tensorlang.runtime.cpu import llvm
from tensorlang.runtime.signature import BufferSpec, Dim, ScalarSpec, Signature

INLINE_BYTES: Final = 16 << 10  # smaller calls use one thread and keep the GIL
OUT_OF_MEMORY: Final = -(1 << 31)

HEADER: Final = object.__basicsize__  # bytes of a PyObject before its own fields
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # NumPy's array flags
_FASTCALL: Final = 0x80
_BF16: Final = "ptrtoint (ptr @numpy.bfloat16 to i32)"  # resolved at link time
_OPERATIONS: Final = {
    "add": "{r} = add i64 {a}, {b}",
    "sub": "{r} = sub i64 {a}, {b}",
    "mul": "{r} = mul i64 {a}, {b}",
    "min": "{r} = call i64 @llvm.smin.i64(i64 {a}, i64 {b})",
    "max": "{r} = call i64 @llvm.smax.i64(i64 {a}, i64 {b})",
    "floordiv": "{r} = ashr i64 {a}, {b}",  # by 2**b, see `_shift`
}


class _MethodDef(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def native_function(
    signature: Signature,
    address: int,
    slow: Callable[..., object],
    fault: Callable[[int], object],
    owner: object,
) -> Callable[..., Any]:
    """The builtin at `address`, which calls `slow` or `fault` when needed.

    `owner` keeps the code loaded; it lives as long as the function.
    """
    return builtin(signature.name, str(signature), address, (slow, fault, owner))


def builtin(
    name: str, about: str, address: int, context: tuple[object, ...]
) -> Callable[..., Any]:
    """The builtin at `address`, compiled code that takes `context` as its `self`."""
    definition = _MethodDef(name.encode(), address, _FASTCALL, about.encode())
    make = ctypes.pythonapi.PyCMethod_New
    make.restype = ctypes.py_object
    make.argtypes = (
        ctypes.c_void_p,
        ctypes.py_object,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    function: Callable[..., Any] = make(
        ctypes.addressof(definition), (*context, definition), None, None
    )
    return function


def has_fast_path(signature: Signature) -> bool:
    """Whether emitted code can check calls: CPython, and simple dimensions."""
    plain = all(_simple(dim) for b in signature.buffers for dim in b.shape)
    return plain and takes_scalars(signature)


def takes_scalars(signature: Signature) -> bool:
    """Whether emitted code can read the free scalars: CPython, and no f16."""
    narrow = all(s.dtype not in ("f16", "bf16") for s in signature.free)
    return sys.implementation.name == "cpython" and narrow


def takes_several(signature: Signature) -> bool:
    """Whether a kernel accepts several arrays per parameter in one launch.

    Its arrays must be flat and of one common length that it takes as a scalar, and
    updated in place; or they are inputs, and each output's length derives from theirs.
    """
    if not has_fast_path(signature) or any(
        len(b.shape) != 1 for b in signature.buffers
    ):
        return False
    first, *others = signature.buffers
    flat = isinstance(first.shape[0], str)
    own = [b for b in others if isinstance(b.shape[0], tuple)]
    alike = all(b.shape == first.shape for b in others if b not in own)
    updates = any(b.role == "inout" for b in signature.buffers)
    return (
        flat and alike and (updates or bool(own)) and all(b.role == "out" for b in own)
    )


def is_barrier_free(source: str) -> bool:
    """Whether a kernel's threads are independent: its source has no barrier."""
    lines = (line for line in source.splitlines() if "@tensorlang_barrier" in line)
    return all(line.startswith("declare") for line in lines)


def exports(signature: Signature) -> tuple[str, ...]:
    """The symbols that calls need."""
    name = signature.name
    called = (f"{name}.call",) if has_fast_path(signature) else ()
    several = (f"{name}.each",) if takes_several(signature) else ()
    return (f"{name}.run", *called, *several)


def imports(signature: Signature) -> dict[str, int]:
    """Values of this process only: `numpy.ndarray`'s address, bf16's type number."""
    known = {"numpy.ndarray": id(np.ndarray)}
    if any(buffer.dtype == "bf16" for buffer in signature.buffers):
        known["numpy.bfloat16"] = DType("bf16").numpy.num
    return known


@lru_cache(maxsize=256)
def wrapper_code(signature: Signature, threads: int, *, independent: bool) -> bytes:
    """Object code of the wrapper; shared by the candidates of a tuning run."""
    return llvm.compile_quickly(
        wrapper_text(signature, threads, independent=independent)
    )


def wrapper_text(signature: Signature, threads: int, *, independent: bool) -> str:
    """LLVM IR of the wrapper, for launches of at most `threads` threads.

    `independent`: the threads are independent, so one may do another's share.
    """
    symbols = _symbols(signature)
    steps, checks = _derived(signature, symbols)
    return templates.render(
        "wrapper.ll.j2",
        signature=str(signature),
        name=signature.name,
        threads=threads,
        independent=str(independent).lower(),
        slots=signature.slots,
        fast=has_fast_path(signature),
        several=takes_several(signature),
        header=HEADER,
        swapped=ord(">" if sys.byteorder == "little" else "<"),
        arguments=len(signature.buffers) + len(signature.free),
        buffers=[_buffer(i, b, symbols) for i, b in enumerate(signature.buffers)],
        bound=[
            {"slot": slot, "value": symbols[s.name]}
            for slot, s in enumerate(signature.scalars, len(signature.buffers))
            if s.bound
        ],
        free=free(signature),
        derived=steps,
        derived_checks=checks,
        overlaps=_overlaps(signature),
        inline_bytes=INLINE_BYTES,
    )


def _simple(dim: Dim) -> bool:
    """Whether a dimension uses only operations in `_OPERATIONS`."""
    if not isinstance(dim, tuple):
        return True
    if dim[0] == "floordiv":
        return _simple(dim[1]) and _shift(dim[2]) is not None
    return dim[0] in _OPERATIONS and _simple(dim[1]) and _simple(dim[2])


def _shift(divisor: Dim) -> int | None:
    """log2 of a divisor; None unless it is a power of two."""
    if not isinstance(divisor, int) or divisor < 1 or divisor & (divisor - 1):
        return None
    return divisor.bit_length() - 1


def _symbols(signature: Signature) -> dict[str, str]:
    """Each bound scalar, and the LLVM value of the dimension that first names it."""
    found: dict[str, str] = {}
    for i, buffer in enumerate(signature.buffers):
        for k, dim in enumerate(buffer.shape):
            if isinstance(dim, str):
                found.setdefault(dim, f"%a{i}.d{k}")
    return found


def _buffer(i: int, buffer: BufferSpec, symbols: dict[str, str]) -> dict[str, object]:
    """A buffer's template parameters."""
    dims: list[str | None] = []
    for k, dim in enumerate(buffer.shape):
        value = symbols[dim] if isinstance(dim, str) else dim
        derived = isinstance(dim, tuple) or value == f"%a{i}.d{k}"
        dims.append(None if derived else str(value))
    writeable = _WRITEABLE if buffer.written else 0
    number = _BF16 if buffer.dtype == "bf16" else buffer.numpy.num
    return {
        "label": f"{buffer} {buffer.role}",
        "type": number,
        "itemsize": DType(buffer.dtype).bytes,
        "flags": _CONTIGUOUS | _ALIGNED | writeable,
        "written": int(buffer.written),
        "dims": dims,
        "own_length": len(buffer.shape) == 1 and isinstance(buffer.shape[0], tuple),
        "checks": [f"%a{i}.d{k}.same" for k, d in enumerate(dims) if d is not None],
    }


def free(signature: Signature) -> list[dict[str, object]]:
    """Template parameters of the free scalars."""
    first = len(signature.buffers)
    slots = {s.name: slot for slot, s in enumerate(signature.scalars, first)}
    return [
        _scalar(scalar, slots[scalar.name], first + i)
        for i, scalar in enumerate(signature.free)
    ]


def _scalar(scalar: ScalarSpec, slot: int, position: int) -> dict[str, object]:
    dtype = DType(scalar.dtype)
    return {
        "label": str(scalar),
        "kind": dtype.kind,
        "bits": dtype.bits,
        "slot": slot,
        "position": position,
    }


def _derived(
    signature: Signature, symbols: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Instructions that compute composite dimensions, and the checks on them."""
    values = dict(symbols)
    first = len(signature.buffers)
    for slot, scalar in enumerate(signature.scalars, first):
        values.setdefault(scalar.name, f"%s{slot}.value")
    steps: list[str] = []
    checks: list[str] = []

    def compute(dim: Dim) -> str:
        if not isinstance(dim, tuple):
            return values[dim] if isinstance(dim, str) else str(dim)
        by = _shift(dim[2]) if dim[0] == "floordiv" else None
        a, b = compute(dim[1]), compute(dim[2] if by is None else by)
        steps.append(_OPERATIONS[dim[0]].format(r=f"%e{len(steps)}", a=a, b=b))
        return f"%e{len(steps) - 1}"

    if not has_fast_path(signature):
        return [], []
    for i, buffer in enumerate(signature.buffers):
        for k, dim in enumerate(buffer.shape):
            if isinstance(dim, tuple):
                value = compute(dim)
                check = f"%a{i}.d{k}.same"
                steps.append(f"{check} = icmp eq i64 %a{i}.d{k}, {value}")
                checks.append(check)
    for name in signature.sizes:
        check = f"%{name}.natural"
        steps.append(f"{check} = icmp sge i64 {values[name]}, 0")
        checks.append(check)
    return steps, checks


def _overlaps(signature: Signature) -> list[tuple[int, int, bool]]:
    """Pairs of buffers of which one is written; True if they may be the same."""
    count = range(len(signature.buffers))
    written = [buffer.written for buffer in signature.buffers]
    allowed = {frozenset(pair) for pair in signature.aliases}
    return [
        (i, j, frozenset((i, j)) in allowed)
        for i in count
        for j in count
        if i < j and (written[i] or written[j])
    ]
