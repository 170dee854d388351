"""Facts of PyTorch tensors that decide which kernel serves a call, read at once.

Each property costs some 70 nanoseconds in Python, and a call would read ten of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from tensorlang import lazy
from tensorlang.once import cache

with lazy.modules(__name__):  # needed at the first tensor on a GPU
    from tensorlang import templates
    from tensorlang.runtime import cache as store
    from tensorlang.runtime.arrays import dlpack
    from tensorlang.runtime.cpu import llvm, wrapper

_SYMBOL: Final = "tensorlang_facts"
_GRADIENT: Final = sys.intern("requires_grad")
_MOST_WORDS: Final = 128  # 8 bytes each, of all tensors: two, and one per dimension

Reader = Callable[..., "bytes | None"]


@cache
def reader(torch: ModuleType) -> Reader:
    """A function of PyTorch tensors, on any device.

    It returns bytes that are equal for tensors of the same devices, types and shapes;
    None if one is anything else, or requires a gradient, or cannot be read so.
    """
    read = dlpack.exchange(torch.Tensor)
    if read is None or sys.implementation.name != "cpython":
        return _nothing
    library = _library()
    context = (read[0], read[1], id(_GRADIENT), library)
    return wrapper.builtin(_SYMBOL, _SYMBOL, library[_SYMBOL], context)


def _nothing(*_: Any) -> None:
    """The reader where tensors have no C exchange API."""


@cache
def _library() -> llvm.Library:
    """The compiled code, cached as kernels are."""
    key = store.key_of("tensor facts", llvm.versions())
    entry = store.load(key)
    if entry is None:
        text = templates.render(
            "tensor_facts.ll.j2", header=wrapper.HEADER, most=_MOST_WORDS
        )
        entry = store.Entry({}, {"object": llvm.compile_quickly(text)})
        store.save(key, entry)
    return llvm.link([entry.blobs["object"]], [_SYMBOL])
