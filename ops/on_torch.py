"""Calls with PyTorch's tensors that need not be looked at closely.

They lie in host memory, or are on a GPU as in a call before. Such a call costs the host
some ten microseconds: no tensor is described anew, and on a GPU a fresh result is
PyTorch's own from the start.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch, Operator
    from tensorlang.ops.tensors import Ready

Shape = tuple[int, ...]


def _is_recording(torch: Any) -> bool:
    """Whether derivatives may be computed forward, or what is called written down."""
    return bool(
        torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001
        or torch._C._len_torch_dispatch_stack()  # noqa: SLF001
        or torch._C._get_tracing_state()  # noqa: SLF001
    )


def in_host_memory(arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None:
    """The memory of tensors of which nothing is recorded; None where one is no such."""
    torch = sys.modules.get("torch")
    if torch is None or _is_recording(torch):
        return None
    kinds, found = (torch.Tensor, torch.nn.Parameter), []
    try:
        for array in arrays:
            if type(array) not in kinds or not array.is_cpu:
                return None
            held = array.contiguous()
            if held.requires_grad and not torch.is_grad_enabled():
                held = held.detach()
            found.append(held.numpy())
    except (
        TypeError,
        RuntimeError,
    ):  # it requires a gradient, is sparse, bfloat16, ...
        return None
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """A call that may come again.

    Attributes:
        launch: Takes the arrays, then the result and the scalars.
        shape: The result's.
        dtype: PyTorch's type of its elements.
        numpy: NumPy's.
    """

    launch: Any
    shape: Shape
    dtype: Any
    numpy: np.dtype[Any]

    def result(self, like: Any, out: Any) -> Any:
        """The result's tensor: `out`, or a fresh one; None where `out` may not fit."""
        if out is None:
            empty = sys.modules["torch"].empty
            return empty(self.shape, dtype=self.dtype, device=like.device)
        fits = (
            type(out) is type(like)
            and out.shape == self.shape
            and out.dtype is self.dtype
            and not out.requires_grad
        )
        if fits:
            sys.modules["torch"].autograd.graph.increment_version(out)
        return out if fits else None


def repeated(  # noqa: PLR0917 - as `tensors.call`
    op: Operator,
    arrays: Sequence[Any],
    attributes: Mapping[str, Any],
    scalars: tuple[Any, ...],
    target: Any,
    out: Any,
) -> Launch | None:
    """The launch of a call like one before; None where there was none."""
    found = again(op, arrays, target, *attributes.values())
    result = None if found is None else found.result(arrays[0], out)
    if found is None or result is None:
        return None
    return found.launch, (*arrays, result, *scalars), result


def again(op: Operator, arrays: Sequence[Any], *facts: Hashable) -> Repeated | None:
    """What is known of a call with tensors like these, or None.

    Args:
        op: The operator.
        arrays: What the caller gave.
        facts: All else that its kernel depends on.
    """
    key = _key(arrays, facts)
    try:
        found: Repeated | None = None if key is None else op.kernels.get(key)
    except TypeError:  # a list among the facts: the long way says what is wrong
        return None
    return found


def remember(
    op: Operator,
    arrays: Sequence[Any],
    attributes: Mapping[str, Any],
    target: Any,
    ready: Ready,
) -> None:
    """Keep what a call came to, where it may come again on a GPU of PyTorch's."""
    if ready.single is not None:
        shape, inner, dtype = ready.single
        shapes = [
            tuple(array.shape) if canonical is None else canonical
            for array, canonical in zip(arrays, ready.inputs, strict=True)
        ]
        facts = (target, *attributes.values())
        keep(op, arrays, facts, op.built(ready.launch), [*shapes, inner], shape, dtype)


def keep(  # noqa: PLR0917 - each is of another kind
    op: Operator,
    arrays: Sequence[Any],
    facts: Sequence[Hashable],
    kernel: Any,
    shapes: Sequence[Shape],
    shape: Shape,
    dtype: np.dtype[Any],
) -> None:
    """Keep what a call came to: see `again`.

    Args:
        op: The operator.
        arrays: What the caller gave.
        facts: All else that its kernel depends on.
        kernel: The kernel; nothing is kept of one that is not for a GPU of NVIDIA's.
        shapes: Of all its buffers, as it takes them.
        shape: The result's, as the caller sees it.
        dtype: Its element type.
    """
    key = _key(arrays, facts)
    if key is None or not hasattr(kernel, "known"):
        return
    kind = getattr(sys.modules["torch"], dtype.name, None)
    known = kernel.known(shapes)
    if kind is not None and known is not None:
        op.kernels[key] = Repeated(known, shape, kind, dtype)


def _key(arrays: Sequence[Any], facts: Sequence[Hashable]) -> Hashable | None:
    """What a call depends on; None where an array is no tensor that may be taken."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    found: list[Hashable] = list(facts)
    for array in arrays:
        if type(array) is not tensor or array.requires_grad or array.is_nested:
            return None
        found.append((array.shape, array.dtype, array.get_device()))
    return tuple(found)
