"""Stages of convolutions beside the sums: weights rearranged, results finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorlang import ir
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.images import Layout, numbers, staged, window_names

Indices = tuple[Any, ...]


def widened(x: ir.Tensor, name: str = "wide") -> ir.Tensor:
    """An array in the accumulation type."""
    if x.dtype.name not in ir.NARROW:
        return x
    names = [f"k{at}" for at in range(len(x.shape))]
    return staged(x.shape, names, lambda at: ir.wide(x[at]), name)


def channels(w: ir.Tensor, rank: int, *, back: bool) -> tuple[Indices, Indices]:
    """Extents of the results' channels, with groups, and of the summed channels.

    Depthwise convolutions have only groups.
    """
    leading = w.shape[: len(w.shape) - rank]
    if len(leading) == 1:
        return leading, ()
    *groups, outputs, inputs = leading
    if back:
        outputs, inputs = inputs, outputs
    return (*groups, outputs), (inputs,)


def packed_weights(w: ir.Tensor, rank: int, *, back: bool) -> ir.Tensor:
    """Weights with the results' channels last, in the accumulation type.

    `(groups, inputs, *window, outputs)`; for depthwise convolutions
    `(*window, groups)`.
    """
    cut = len(w.shape) - rank
    window = w.shape[cut:]
    (*groups, last), folded = channels(w, rank, back=back)
    inner = len(folded)

    def element(at: Indices) -> ir.Expr:
        group = at[: len(groups)]
        c = at[len(groups) :][:inner]
        tap = at[-1 - rank : -1]
        o = at[-1]
        own = (*c, o) if back else (o, *c)
        return ir.wide(w[(*group, *own, *tap)])

    names = (*("g",)[: len(groups)], *("c",)[:inner], *window_names(rank), "o")
    return staged((*groups, *folded, *window, last), names, element, "packed")


def flipped_weights(w: ir.Tensor, rank: int) -> ir.Tensor:
    """Weights with inputs and outputs exchanged and flipped windows."""
    cut = len(w.shape) - rank
    leading, window = w.shape[:cut], w.shape[cut:]
    named = {3: ("g", "o", "c"), 2: ("o", "c"), 1: ("g",)}[cut]

    def exchanged(of: Sequence[Any]) -> tuple[object, ...]:
        return (*of[:-2], of[-1], of[-2]) if len(of) > 1 else tuple(of)

    def element(indices: Indices) -> ir.Expr:
        own, tap = indices[:cut], indices[cut:]
        last = [n - 1 for n in numbers(window)]
        back = [end - k for k, end in zip(tap, last, strict=True)]
        return w[(*exchanged(own), *back)]

    shape = (*exchanged(leading), *window)
    names = (*named, *window_names(rank))
    return staged(shape, names, element, "turned")


def finished(
    sums: ir.Tensor,
    b: ir.Tensor | None,
    frame: Layout,
    activation: str | None,
    dtype: ir.DType,
    *,
    name: str = "y",
    read: Callable[[Indices], ir.Expr] | None = None,
    shape: Sequence[Any] = (),
    addend: ir.Tensor | None = None,
) -> ir.Tensor:
    """Add bias and addend, apply the activation and round once to the result dtype.

    Args:
        sums: The sums of products.
        b: The bias.
        frame: Layout of the results.
        activation: Name of the activation.
        dtype: Dtype of the result.
        name: Name of the result.
        read: Maps result indices to their sum, if not at the same indices.
        shape: Shape of the result, if not that of the sums.
        addend: Added before the activation.
    """
    shape = shape or sums.shape
    _, made, _ = frame.parts(shape)
    names = frame.names(*(("g", "o") if len(made) == 2 else ("o",)))
    if (b, activation, read, addend) == (None,) * 4:
        return narrowed(sums, dtype, names, name)

    def element(indices: Indices) -> ir.Expr:
        _, own, _ = frame.parts(indices)
        value = read(indices) if read else sums[indices]
        shifted = value if b is None else value + ir.wide(b[own])
        if addend is not None:
            shifted = shifted + ir.wide(addend[indices])
        return ir.stored(activated(shifted, activation), dtype)

    return staged(shape, names, element, name)


def narrowed(
    sums: ir.Tensor, dtype: ir.DType, names: Sequence[str], name: str = ""
) -> ir.Tensor:
    """Sums rounded to the result dtype; unchanged if they have it."""
    if sums.dtype == dtype:
        return sums
    name = name or sums.buffer.name
    return staged(
        sums.shape, names, lambda at: ir.stored(sums[at], dtype), f"{name}_{dtype}"
    )
