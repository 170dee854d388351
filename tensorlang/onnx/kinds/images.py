"""Convolutions and pools, in ONNX."""

from __future__ import annotations

from typing import Any

from tensorlang.errors import GraphError
from tensorlang.graph.values import Node
from tensorlang.onnx.kinds.plain import activated
from tensorlang.onnx.writer import Kind, Writer, argument


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


def conv(rank: int) -> Kind:
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


def pool(kind: str, rank: int) -> Kind:
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


def over_all(kind: str) -> Kind:
    """One number for each channel."""

    def write(writer: Writer, node: Node) -> Any:
        _channels_first(node, argument(node, 1, "layout", None))
        return writer.emit(kind, writer.name(node.args[0]))

    return write


_TRANSPOSED = ("stride", "padding", "output_padding", "dilation", "groups", "layout")


def conv_transpose(rank: int) -> Kind:
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
