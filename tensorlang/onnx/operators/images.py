"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.values import Node, Tensor
from tensorlang.onnx.operators.gathering import known_shape
from tensorlang.onnx.operators.products import activated
from tensorlang.onnx.operators.windows import Windows, means, padding_of, reach_of
from tensorlang.onnx.reading import Ints, Read, Results, reads
from tensorlang.onnx.writer import Write, Writer, argument, writes
from tensorlang.ops import Operator, find, nn

T = TypeVar("T")
Spread: TypeAlias = int | Sequence[int]  # for all dimensions, or one per dimension
# ONNX's attribute names
_SEVERAL: Final = {
    "stride": "strides",
    "dilation": "dilations",
    "output_padding": "output_padding",
}


def _conv(*, transposed: bool) -> Read:
    def read(
        x: Tensor,
        w: Tensor,
        b: Tensor | None = None,
        *,
        auto_pad: str,
        dilations: Ints | None = None,
        group: int,
        kernel_shape: Ints | None = None,
        output_padding: Ints | None = None,
        output_shape: Ints | None = None,
        pads: Ints | None = None,
        strides: Ints | None = None,
    ) -> Results:
        """Convolution or transposed convolution."""
        window = tuple(w.shape[2:])
        ones = (1,) * len(window)
        strides, by = strides or ones, dilations or ones
        reach = reach_of(window, by, strides)
        if kernel_shape not in {None, window}:
            raise ShapeError(f"weights {w.spec} and kernel_shape={kernel_shape}")
        given = {"stride": strides, "dilation": by, "groups": group}
        if not transposed:
            ends = padding_of(x, auto_pad, pads, reach, strides)
            return find(f"nn.conv{len(window)}d")(x, w, b, padding=ends, **given)
        more = output_padding or (0,) * len(window)
        if not len(more) == len(window) == len(x.shape) - 2:
            raise ShapeError(f"weights {w.spec}, output_padding={more}, on {x.spec}")
        if output_shape or auto_pad.startswith("SAME"):
            sizes = known_shape(x)[2:]
            steps = list(zip(sizes, strides, strict=True))
            full = [
                step * (n - 1) + far + own
                for (n, step), far, own in zip(steps, reach, more, strict=True)
            ]
            wanted = output_shape or [n * step for n, step in steps]
            ends = _surplus(full, wanted, auto_pad)
            more = tuple(
                own + max(m - n, 0)
                for own, n, m in zip(more, full, wanted, strict=True)
            )
        else:
            ends = padding_of(x, auto_pad, pads, reach, strides)
        op = find(f"nn.conv{len(window)}d_transpose")
        low = tuple(map(min, ends))
        y = op(x, w, b, padding=low, output_padding=more, **given)
        cut = [
            slice(begin - least, None if end == least else least - end)
            for (begin, end), least in zip(ends, low, strict=True)
        ]
        made = y if cut == [slice(0, None)] * len(cut) else y[(..., *cut)]
        if 0 in made.shape[2:] and 0 not in x.shape:
            raise ShapeError(f"pads={pads} leave nothing of {y.spec}")
        return made

    return read


def _surplus(
    full: Sequence[int], sizes: Sequence[int], how: str
) -> tuple[tuple[int, int], ...]:
    """What a transposed convolution of given result sizes drops at both ends."""
    if len(full) != len(sizes) or min(sizes) < 1:
        raise ShapeError(f"output_shape={tuple(sizes)} of {tuple(full)}")
    halves = [divmod(max(n - m, 0), 2) for n, m in zip(full, sizes, strict=True)]
    if how == "SAME_UPPER":
        return tuple((half, half + odd) for half, odd in halves)
    return tuple((half + odd, half) for half, odd in halves)


def _pool(name: str) -> Read:
    def read(
        x: Tensor,
        *,
        auto_pad: str,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        dilations: Ints | None = None,
        kernel_shape: Ints,
        pads: Ints | None = None,
        storage_order: int = 0,  # only affects the indices output
        strides: Ints | None = None,
    ) -> Results:
        """Max or average pooling."""
        del storage_order
        ones = (1,) * len(kernel_shape)
        steps, by = strides or ones, dilations or ones
        ends = padding_of(x, auto_pad, pads, reach_of(kernel_shape, by, steps), steps)
        more: dict[str, object] = {"dilation": by}
        ceil = ceil_mode and not auto_pad.startswith("SAME")
        if name == "avg_pool":
            more = {"count_include_pad": count_include_pad}
            if by != ones:
                windows = Windows(kernel_shape, steps, by, ends, ceil)
                return means(x, windows, count_include_pad)
        op = find(f"nn.{name}{len(ones)}d")
        return op(x, kernel_shape, steps, padding=ends, ceil_mode=ceil, **more)

    return read


def _global(op: Operator) -> Read:
    return lambda x: op(x)  # noqa: PLW0108 - its signature is inspected


def _several(given: int | Sequence[T], rank: int) -> list[int | T]:
    return [given] * rank if isinstance(given, int) else list(given)


def _pads(
    padding: str | int | Sequence[int | tuple[int, int]], rank: int
) -> dict[str, object]:
    """ONNX pads: all lower ends, then all upper ends."""
    if isinstance(padding, str):
        return {"auto_pad": "SAME_UPPER" if padding == "same" else "VALID"}
    each = [(p, p) if isinstance(p, int) else p for p in _several(padding, rank)]
    return {"pads": [low for low, _ in each] + [high for _, high in each]}


def _channels_first(node: Node, layout: object) -> None:
    if layout is not None and str(layout).index("C") != 1:
        raise GraphError(f"{node.place}: ONNX has channels first, not {layout}")


def _numbers(given: Mapping[str, Spread], rank: int) -> dict[str, object]:
    """Attributes with one number per dimension, and flags, as far as they are set."""
    several = {name: given[name] for name in _SEVERAL if name in given}
    flags = ("ceil_mode", "count_include_pad")
    return {_SEVERAL[name]: _several(each, rank) for name, each in several.items()} | {
        name: int(bool(given[name])) for name in flags if name in given
    }


def _write_conv(rank: int, *, transposed: bool = False) -> Write:
    names = ["stride", "padding", "dilation", "groups", "layout", "activation"]
    names[2:2] = ["output_padding"] if transposed else []
    usual = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}

    def write(writer: Writer, node: Node) -> str:
        given = {
            name: argument(node, at, name, usual.get(name))
            for at, name in enumerate(names, 3)
        }
        _channels_first(node, given["layout"])
        _in_a_batch(node, rank)
        arrays = [*node.args[:2], argument(node, 2, "b", None)]
        y = writer.emit(
            "ConvTranspose" if transposed else "Conv",
            *(writer.name(each) for each in arrays if each is not None),
            group=given["groups"],
            **_pads(given["padding"], rank),
            **_numbers(given, rank),
        )
        if (addend := node.kwargs.get("addend")) is not None:
            y = writer.emit("Add", y, writer.name(addend))
        if given["activation"] == "relu6":
            dtype = node.args[0].spec.numpy
            ends = (np.asarray(end, dtype) for end in (0, 6))
            return writer.emit("Clip", y, *map(writer.constant, ends))
        return activated(writer, y, given["activation"])

    return write


def _write_pool(kind: str, rank: int) -> Write:
    """Pooling of a given rank."""
    most = kind == "MaxPool"
    names = ["stride", "padding", *(["dilation"] if most else []), "ceil_mode"]
    names += [] if most else ["count_include_pad", "divisor"]
    usual = {"padding": 0, "dilation": 1, "count_include_pad": True}

    def write(writer: Writer, node: Node) -> str:
        given = {
            name: argument(node, at, name, usual.get(name))
            for at, name in enumerate([*names, "layout"], 2)
        }
        _channels_first(node, given["layout"])
        if given.get("divisor") is not None:
            raise GraphError(f"{node.place}: ONNX pooling has no custom divisor")
        if node.kwargs.get("return_indices"):
            raise GraphError(
                f"{node.place}: ONNX counts the positions of maxima over the whole "
                "array, not an image: export without return_indices"
            )
        _in_a_batch(node, rank)
        window = _several(argument(node, 1, "kernel", None), rank)
        given["stride"] = given["stride"] or window
        return writer.emit(
            kind,
            writer.name(node.args[0]),
            kernel_shape=window,
            **_pads(given["padding"], rank),
            **_numbers(given, rank),
        )

    return write


def _in_a_batch(node: Node, rank: int) -> None:
    """Refuse a single image, as ONNX's have a batch."""
    if len(shape := node.args[0].spec.shape) != rank + 2:
        raise GraphError(
            f"{node.place}: ONNX takes batches of images, not an image of shape {shape}"
        )


def _write_global(kind: str) -> Write:
    """Global pooling: one value per channel."""

    def write(writer: Writer, node: Node) -> str:
        _channels_first(node, argument(node, 1, "layout", None))
        return writer.emit(kind, writer.name(node.args[0]))

    return write


convolved: Final = _conv(transposed=False)
for _kind, _transposed in {"Conv": False, "ConvTranspose": True}.items():
    reads(_kind)(_conv(transposed=_transposed))
for _kind, _name in {"MaxPool": "max_pool", "AveragePool": "avg_pool"}.items():
    reads(_kind)(_pool(_name))
for _op, _kind in {
    nn.global_avg_pool: "GlobalAveragePool",
    nn.global_max_pool: "GlobalMaxPool",
}.items():
    reads(_kind)(_global(_op))
    writes(_op.id)(_write_global(_kind))
for _rank in (1, 2, 3):
    writes(f"nn.conv{_rank}d")(_write_conv(_rank))
    writes(f"nn.conv{_rank}d_transpose")(_write_conv(_rank, transposed=True))
    writes(f"nn.max_pool{_rank}d")(_write_pool("MaxPool", _rank))
    writes(f"nn.avg_pool{_rank}d")(_write_pool("AveragePool", _rank))
