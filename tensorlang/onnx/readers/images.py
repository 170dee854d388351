"""Convolutions and pools of ONNX as ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang.onnx.calls import Call, Reader
from tensorlang.ops import find, nn


def _padded(call: Call, rank: int, value: float | None) -> tuple[Any, Any]:
    """The images and the padding that is left to the operator."""
    x, auto = call.inputs[0], call.given.get("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "VALID"}:
        return x, "same" if auto == "SAME_UPPER" else "valid"
    if auto != "NOTSET":
        raise call.refuse(f"auto_pad {auto} is not among ours")
    pads = call.given.get("pads", [0] * 2 * rank)
    low, high = tuple(pads[:rank]), tuple(pads[rank:])
    if low == high:
        return x, low
    around = [(0, 0), (0, 0), *zip(low, high, strict=True)]
    if value is None:
        raise call.refuse("an average over uneven padding is not among ours")
    return nn.pad(x, around, value), (0,) * rank


def conv(call: Call) -> Any:
    """A convolution."""
    x, w = call.inputs[:2]
    rank = w.ndim - 2
    x, padding = _padded(call, rank, 0.0)
    return find(f"nn.conv{rank}d")(
        x,
        w,
        call.input(2),
        stride=tuple(call.given.get("strides", (1,) * rank)),
        padding=padding,
        dilation=tuple(call.given.get("dilations", (1,) * rank)),
        groups=call.given.get("group", 1),
    )


def pool(name: str) -> Reader:
    """A reader of a pool."""
    most = name == "max_pool"

    def read(call: Call) -> Any:
        window = tuple(call.given["kernel_shape"])
        rank = len(window)
        x, padding = _padded(call, rank, -np.inf if most else None)
        more = (
            {"dilation": tuple(call.given.get("dilations", (1,) * rank))}
            if most
            else {"count_include_pad": bool(call.given.get("count_include_pad", 0))}
        )
        return find(f"nn.{name}{rank}d")(
            x,
            window,
            tuple(call.given.get("strides", (1,) * rank)),
            padding=padding,
            ceil_mode=bool(call.given.get("ceil_mode", 0)),
            **more,
        )

    return read


def conv_transpose(call: Call) -> Any:
    """A transposed convolution."""
    x, w = call.inputs[:2]
    rank = w.ndim - 2
    pads = call.given.get("pads", [0] * 2 * rank)
    known = call.given.get("auto_pad", "NOTSET") == "NOTSET"
    if pads[:rank] != pads[rank:] or "output_shape" in call.given or not known:
        raise call.refuse("we have transposed convolutions of even padding alone")
    return find(f"nn.conv{rank}d_transpose")(
        x,
        w,
        call.input(2),
        stride=tuple(call.given.get("strides", (1,) * rank)),
        padding=tuple(pads[:rank]),
        output_padding=tuple(call.given.get("output_padding", (0,) * rank)),
        dilation=tuple(call.given.get("dilations", (1,) * rank)),
        groups=call.given.get("group", 1),
    )
