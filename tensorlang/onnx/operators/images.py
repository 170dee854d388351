"""Convolutions and poolings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.values import Node
from tensorlang.onnx.operators.products import activated
from tensorlang.onnx.reading import Ints, reads
from tensorlang.onnx.writer import Write, Writer, argument, writes
from tensorlang.ops import find, nn


def _padding(
    x: Any, how: str, pads: Ints | None, reach: Sequence[int], strides: Ints
) -> tuple[tuple[int, int], ...]:
    """Padding before and behind each dimension of an image.

    Args:
        x: The images.
        how: ONNX's `auto_pad`.
        pads: ONNX's `pads`.
        reach: From the first to the last element of a window, both counted.
        strides: From one window to the next.

    Raises:
        ShapeError: it depends on a size that is open, or on the wrong number of them.
        GraphError: there is no such `auto_pad`.
    """
    rank = len(reach)
    if len(x.shape) != rank + 2 or len(strides) != rank:
        raise ShapeError(f"windows of {reach} in steps of {strides} on {x.spec}")
    if how == "NOTSET":
        ends = (0,) * 2 * rank if pads is None else pads
        if len(ends) != 2 * rank or min(ends) < 0:
            raise ShapeError(f"pads={ends} for {rank} dimensions; none is below 0")
        return tuple(zip(ends[:rank], ends[rank:], strict=True))
    if how not in {"VALID", "SAME_UPPER", "SAME_LOWER"} or (pads and any(pads)):
        raise GraphError(f"auto_pad={how!r} with pads={pads} is not supported")
    if how == "VALID":
        return ((0, 0),) * rank
    made = []
    for extent, far, step in zip(x.shape[2:], reach, strides, strict=True):
        if step == 1:
            more = far - 1
        elif isinstance(extent, int):
            more = max((-(-extent // step) - 1) * step + far - extent, 0)
        else:
            raise ShapeError(f"auto_pad={how!r} of the open size {extent}; give pads")
        less = more // 2
        made.append((less, more - less) if how == "SAME_UPPER" else (more - less, less))
    return tuple(made)


def _reach(window: Sequence[int], dilations: Ints) -> tuple[int, ...]:
    if len(window) != len(dilations) or min((1, *window, *dilations)) < 1:
        raise ShapeError(f"windows of {tuple(window)}, dilations {dilations}")
    return tuple((n - 1) * by + 1 for n, by in zip(window, dilations, strict=True))


def _window(w: Any, kernel_shape: Ints | None) -> tuple[int, ...]:
    """The extents of a convolution's windows.

    Raises:
        ShapeError: the attribute says something else, or there are none to three.
    """
    window = tuple(w.shape[2:])
    if kernel_shape not in {None, window} or not 1 <= len(window) <= 3:
        raise ShapeError(f"weights {w.spec} and kernel_shape={kernel_shape}")
    return window


@reads("Conv")
def conv(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str,
    dilations: Ints | None = None,
    group: int,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Any:
    """A convolution."""
    window = _window(w, kernel_shape)
    strides, by = (each or (1,) * len(window) for each in (strides, dilations))
    return find(f"nn.conv{len(window)}d")(
        x,
        w,
        b,
        stride=strides,
        padding=_padding(x, auto_pad, pads, _reach(window, by), strides),
        dilation=by,
        groups=group,
    )


@reads("ConvTranspose")
def conv_transpose(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str,
    dilations: Ints | None = None,
    group: int,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Any:
    """A transposed convolution."""
    window = _window(w, kernel_shape)
    strides, by = (each or (1,) * len(window) for each in (strides, dilations))
    if auto_pad not in {"NOTSET", "VALID"}:
        raise GraphError(f"auto_pad={auto_pad!r} is not supported; give pads")
    ends = _padding(x, auto_pad, pads, _reach(window, by), strides)
    if any(low != high for low, high in ends):
        raise GraphError(f"pads={pads} that differ at both ends are not supported")
    return find(f"nn.conv{len(window)}d_transpose")(
        x,
        w,
        b,
        stride=strides,
        padding=tuple(low for low, _ in ends),
        output_padding=output_padding or (0,) * len(window),
        dilation=by,
        groups=group,
    )


@reads("MaxPool")
def max_pool(
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: bool = False,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> Any:
    """The largest element of each window; how indices count has no meaning here."""
    del storage_order
    more = {"dilation": dilations or (1,) * len(kernel_shape)}
    return _pool("max_pool", x, kernel_shape, auto_pad, pads, strides, ceil_mode, more)


@reads("AveragePool")
def average_pool(
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Any:
    """The mean of each window."""
    if any(by != 1 for by in dilations or ()):
        raise GraphError(f"attribute dilations={dilations} is not supported")
    more = {"count_include_pad": count_include_pad}
    return _pool("avg_pool", x, kernel_shape, auto_pad, pads, strides, ceil_mode, more)


def _pool(  # noqa: PLR0917 - one a line
    name: str,
    x: Any,
    window: Ints,
    auto_pad: str,
    pads: Ints | None,
    strides: Ints | None,
    ceil_mode: bool,
    more: dict[str, Any],
) -> Any:
    if not 1 <= len(window) <= 3:
        raise ShapeError(f"windows of {window}; supported are 1 to 3 dimensions")
    steps = strides or (1,) * len(window)
    reach = _reach(window, more.get("dilation", (1,) * len(window)))
    return find(f"nn.{name}{len(window)}d")(
        x,
        window,
        steps,
        padding=_padding(x, auto_pad, pads, reach, steps),
        ceil_mode=ceil_mode and not auto_pad.startswith("SAME"),
        **more,
    )


def _global(op: Any) -> Callable[..., Any]:
    return lambda x: op(x)  # noqa: PLW0108 - whose signature is read


def _several(given: Any, rank: int) -> list[int]:
    return [given] * rank if isinstance(given, int) else list(given)


def _pads(padding: Any, rank: int) -> dict[str, Any]:
    """Padding as ONNX has it: all lower ends, then all upper ones."""
    if isinstance(padding, str):
        return {"auto_pad": "SAME_UPPER" if padding == "same" else "VALID"}
    each = [(p, p) if isinstance(p, int) else p for p in _several(padding, rank)]
    return {"pads": [low for low, _ in each] + [high for _, high in each]}


def _channels_first(node: Node, layout: Any) -> None:
    if layout is not None and str(layout).index("C") != 1:
        raise GraphError(f"{node.place}: ONNX has channels first, not {layout}")


def _write_conv(rank: int) -> Write:
    """A convolution of some number of dimensions."""

    def write(writer: Writer, node: Node) -> Any:
        names = ("stride", "padding", "dilation", "groups", "layout", "activation")
        defaults = (1, 0, 1, 1, None, None)
        stride, padding, dilation, groups, layout, activation = (
            argument(node, at, name, default)
            for at, (name, default) in enumerate(zip(names, defaults, strict=True), 3)
        )
        _channels_first(node, layout)
        b = argument(node, 2, "b", None)
        arrays = [*node.args[:2], *([] if b is None else [b])]
        y = writer.emit(
            "Conv",
            *map(writer.name, arrays),
            strides=_several(stride, rank),
            dilations=_several(dilation, rank),
            group=groups,
            **_pads(padding, rank),
        )
        return activated(writer, y, activation)

    return write


def _write_pool(kind: str, rank: int) -> Write:
    """A pool of some number of dimensions."""
    most = kind == "MaxPool"
    names = ["stride", "padding", *(["dilation"] if most else []), "ceil_mode"]
    names += [] if most else ["count_include_pad", "divisor"]
    defaults = {"padding": 0, "dilation": 1, "count_include_pad": True}

    def write(writer: Writer, node: Node) -> Any:
        given = {
            name: argument(node, at, name, defaults.get(name))
            for at, name in enumerate([*names, "layout"], 2)
        }
        _channels_first(node, given["layout"])
        if given.get("divisor") is not None:
            raise GraphError(f"{node.place}: ONNX pools have no divisor of their own")
        window = _several(argument(node, 1, "kernel", None), rank)
        more: dict[str, Any] = (
            {"dilations": _several(given["dilation"], rank)}
            if most
            else {"count_include_pad": int(given["count_include_pad"])}
        )
        return writer.emit(
            kind,
            writer.name(node.args[0]),
            kernel_shape=window,
            strides=_several(given["stride"] or window, rank),
            ceil_mode=int(bool(given["ceil_mode"])),
            **_pads(given["padding"], rank),
            **more,
        )

    return write


def _write_global(kind: str) -> Write:
    """One number for each channel."""

    def write(writer: Writer, node: Node) -> Any:
        _channels_first(node, argument(node, 1, "layout", None))
        return writer.emit(kind, writer.name(node.args[0]))

    return write


_TRANSPOSED = ("stride", "padding", "output_padding", "dilation", "groups", "layout")


def _write_conv_transpose(rank: int) -> Write:
    """A transposed convolution of some number of dimensions."""

    def write(writer: Writer, node: Node) -> Any:
        names, defaults = (*_TRANSPOSED, "activation"), (1, 0, 0, 1, 1, None, None)
        stride, padding, more, dilation, groups, layout, activation = (
            argument(node, at, name, default)
            for at, (name, default) in enumerate(zip(names, defaults, strict=True), 3)
        )
        _channels_first(node, layout)
        b = argument(node, 2, "b", None)
        arrays = [*node.args[:2], *([] if b is None else [b])]
        y = writer.emit(
            "ConvTranspose",
            *map(writer.name, arrays),
            strides=_several(stride, rank),
            dilations=_several(dilation, rank),
            output_padding=_several(more, rank),
            group=groups,
            **_pads(padding, rank),
        )
        return activated(writer, y, activation)

    return write


for _op, _kind in {
    nn.global_avg_pool: "GlobalAveragePool",
    nn.global_max_pool: "GlobalMaxPool",
}.items():
    reads(_kind)(_global(_op))
    writes(_op.id)(_write_global(_kind))
for _rank in (1, 2, 3):
    writes(f"nn.conv{_rank}d")(_write_conv(_rank))
    writes(f"nn.conv{_rank}d_transpose")(_write_conv_transpose(_rank))
    writes(f"nn.max_pool{_rank}d")(_write_pool("MaxPool", _rank))
    writes(f"nn.avg_pool{_rank}d")(_write_pool("AveragePool", _rank))
