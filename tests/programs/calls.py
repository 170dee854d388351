"""What each operator of `math` and `nn` may be applied to, as small calls.

Arrays come from `given(*shape, dtype="float32")`, so they may be symbols, or arrays
of any library; the first extent of most is `b`, which may have a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_IMAGES = {1: (3, 10), 2: (3, 10, 10), 3: (3, 6, 6, 6)}
_PAIR = ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "mse"]
_COMPARED = ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]
_BITS = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]
# from an operator's name to what it is applied to; one matrix where it is not here
_ARGUMENTS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    **{name: lambda g, b: (g(b, 4), g(b, 4)) for name in (*_PAIR, *_COMPARED)},
    **{
        name: lambda g, b: (g(b, 4, dtype="bool"), g(b, 4, dtype="bool"))
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    **{
        name: lambda g, b: (g(b, 4, dtype="int32"), g(b, 4, dtype="int32"))
        for name in (*_BITS, "floor_divide", "trunc_divide", "remainder")
    },
    "invert": lambda g, b: (g(b, 4, dtype="int32"),),
    "cast": lambda g, b: (g(b, 4), "f64"),
    "logical_not": lambda g, b: (g(b, 4, dtype="bool"),),
    "where": lambda g, b: (g(b, 4, dtype="bool"), g(b, 4), g(b, 4)),
    "matmul": lambda g, b: (g(b, 3, 4), g(b, 4, 5)),
    "einsum": lambda g, b: ("bij,bkj->bik", g(b, 3, 4), g(b, 5, 4)),
    "attention": lambda g, b: (g(b, 4, 3, 5), g(b, 2, 6, 5), g(b, 2, 6, 5)),
    "rotary": lambda g, b: (g(b, 2, 3, 4), g(3, 2), g(3, 2)),
    "group_norm": lambda g, b: (g(b, 4, 3), 2, g(4), g(4)),
    "lstm": lambda g, b: (g(5, b, 12), g(12, 3), g(b, 3), g(b, 3)),
    "gru": lambda g, b: (g(5, b, 9), g(9, 3), g(b, 3)),
    "rnn": lambda g, b: (g(5, b, 3), g(3, 3), g(b, 3)),
    "lstm_cell": lambda g, b: (g(b, 12), g(b, 3)),
    "gru_cell": lambda g, b: (g(b, 9), g(b, 9), g(b, 3)),
    "clip": lambda g, b: (g(b, 4), 0.25, 0.75),
    "dense": lambda g, b: (g(b, 4), g(3, 4), g(3)),
    "dense_int8": lambda g, b: (g(b, 4, dtype="int8"), g(3, 4, dtype="int8"), g(3)),
    "dense_int4": lambda g, b: (g(b, 4), g(3, 2, dtype="uint8"), g(3, 2)),
    "dequantize": lambda g, b: (g(b, 4, dtype="int8"), g(b)),
    "batch_norm": lambda g, b: (g(b, 4, 3), *(g(4) for _ in range(4))),
    "batch_norm_train": lambda g, b: (g(b, 4, 3), *(g(4) for _ in range(4))),
    "layer_norm": lambda g, b: (g(b, 4), g(4), g(4)),
    "rms_norm": lambda g, b: (g(b, 4), g(4)),
    "cross_entropy": lambda g, b: (g(b, 4), g(b, dtype="int64")),
    "embedding": lambda g, b: (g(b, dtype="int64"), g(9, 3)),
    "resample": lambda g, b: (g(b, 4), g(2, 5, dtype="int64"), g(2, 5)),
    "scatter": lambda g, b: (g(b, dtype="int64"), g(9, 3), g(b, 3)),
    "concatenate": lambda g, b: ([g(b, 4), g(b, 4)],),
    "stack": lambda g, b: ([g(b, 4), g(b, 4)], -1),
    "split": lambda g, b: (g(b, 4), (1, 3), 1),
    "pad": lambda g, b: (g(b, 4), ((1, 0), (0, 2))),
    "slice": lambda g, b: (g(b, 4), (None, 3), (None, 0), (None, -2)),
    "reshape": lambda g, b: (g(b, 4), (-1, 2)),
    "global_avg_pool": lambda g, b: (g(b, *_IMAGES[2]),),
    "global_max_pool": lambda g, b: (g(b, *_IMAGES[2]),),
}
for _rank, _shape in _IMAGES.items():
    _window = (3,) * _rank
    for _kind in ("avg", "max"):
        for _name in (f"{_kind}_pool{_rank}d", f"adaptive_{_kind}_pool{_rank}d"):
            _ARGUMENTS[_name] = lambda g, b, s=_shape: (g(b, *s), 2)
    for _name, _w in (("", (4, 3)), ("_transpose", (3, 4))):
        _ARGUMENTS[f"conv{_rank}d{_name}"] = lambda g, b, s=_shape, w=(*_w, *_window): (
            g(b, *s),
            g(*w),
            g(4),
        )


def arguments(name: str, given: Any, b: Any) -> tuple[Any, ...]:
    """What the operator that ends in this name is applied to, by position."""
    return _ARGUMENTS.get(name, lambda g, b: (g(b, 4),))(given, b)
