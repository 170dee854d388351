"""Fast checks of many PyTorch tensors that one kernel updates in place.

Checking an array on the slow path costs some ten microseconds, and a network has
hundreds. Here only the few relevant properties are compared; anything unusual goes to
the slow path, which reports what is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang.runtime.signature import BufferSpec, Signature

if TYPE_CHECKING:
    from torch import Tensor

# element count, and the address of each array
Set: TypeAlias = tuple[int, list[Any]]


def takes_sets(signature: Signature) -> bool:
    """Whether a kernel updates flat arrays of one common length."""
    first, *others = signature.buffers
    flat = len(first.shape) == 1 and isinstance(first.shape[0], str)
    alike = all(buffer.shape == first.shape for buffer in others)
    return flat and alike and any(b.role == "inout" for b in signature.buffers)


def sets_of(
    signature: Signature,
    lists: Sequence[Sequence[Tensor]],
    index: int,
    alignments: Sequence[int],
) -> list[Set] | None:
    """The sets of tensors to update; None if one needs the slow path.

    Args:
        signature: The kernel's signature.
        lists: A list of tensors for each buffer.
        index: Device ordinal.
        alignments: Required alignment of each list's addresses, in bytes.
    """
    torch = sys.modules.get("torch")
    if torch is None or not all(
        _fit(torch, spec, tensors, index)
        for spec, tensors in zip(signature.buffers, lists, strict=True)
    ):
        return None
    if any(
        len({tensor.shape for tensor in one}) > 1 for one in zip(*lists, strict=True)
    ):
        return None
    found = [
        (one[0].numel(), [tensor.data_ptr() for tensor in one])
        for one in zip(*lists, strict=True)
    ]
    sizes = [spec.numpy.itemsize for spec in signature.buffers]
    even = all(
        address % size == 0
        for _, addresses in found
        for address, size in zip(addresses, alignments, strict=True)
    )
    return found if even and _disjoint(found, sizes) else None


def _fit(
    torch: ModuleType, spec: BufferSpec, tensors: Sequence[Tensor], index: int
) -> bool:
    """Whether all tensors of a list are contiguous, on this GPU, of the right dtype."""
    dtype = getattr(torch, _NAMES.get(spec.dtype, ""), None)
    return all(
        type(tensor) is torch.Tensor
        and tensor.dtype is dtype
        and tensor.is_cuda
        and tensor.get_device() == index
        and tensor.is_contiguous()
        and not tensor.requires_grad
        for tensor in tensors
    )


_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def _disjoint(sets: Sequence[Set], sizes: Sequence[int]) -> bool:
    """Whether no two arrays share memory."""
    ranges = sorted(
        (address, address + count * size)
        for count, addresses in sets
        if count
        for address, size in zip(addresses, sizes, strict=True)
    )
    return all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
