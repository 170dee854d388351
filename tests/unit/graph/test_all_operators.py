"""Every operator of math and nn takes symbols, with a batch that has a name."""

import pytest

from tensorlang import graph
from tensorlang.graph import TensorSpec, gradients
from tensorlang.graph.gradients import is_float
from tensorlang.ops import math, nn

B = "batch"


def given(*shape, dtype="float32"):
    return graph.input(TensorSpec(shape, dtype))


IMAGES = {1: (B, 3, 10), 2: (B, 3, 10, 10), 3: (B, 3, 6, 6, 6)}
_PAIR = ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "mse"]
_COMPARED = ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]
# from an operator's name to what it is applied to; one matrix where it is not here
ARGUMENTS = {
    **{name: lambda: (given(B, 4), given(B, 4)) for name in (*_PAIR, *_COMPARED)},
    **{
        name: lambda: (given(B, 4, dtype="bool"), given(B, 4, dtype="bool"))
        for name in ("logical_and", "logical_or")
    },
    **{
        name: lambda: (given(B, 4, dtype="int32"), given(B, 4, dtype="int32"))
        for name in ("floor_divide", "remainder")
    },
    "logical_not": lambda: (given(B, 4, dtype="bool"),),
    "where": lambda: (given(B, 4, dtype="bool"), given(B, 4), given(B, 4)),
    "matmul": lambda: (given(B, 3, 4), given(B, 4, 5)),
    "clip": lambda: (given(B, 4), 0.0, 1.0),
    "dense": lambda: (given(B, 4), given(3, 4), given(3)),
    "dropout_train": lambda: (given(B, 4), graph.key(), 0.5),
    "batch_norm": lambda: (given(B, 4, 3), *(given(4) for _ in range(4))),
    "batch_norm_train": lambda: (given(B, 4, 3), *(given(4) for _ in range(4))),
    "layer_norm": lambda: (given(B, 4), given(4), given(4)),
    "rms_norm": lambda: (given(B, 4), given(4)),
    "cross_entropy": lambda: (given(B, 4), given(B, dtype="int64")),
    "embedding": lambda: (given(B, dtype="int64"), given(9, 3)),
    "concatenate": lambda: ([given(B, 4), given(B, 4)],),
    "stack": lambda: ([given(B, 4), given(B, 4)], -1),
    "split": lambda: (given(B, 4), (1, 3), 1),
    "pad": lambda: (given(B, 4), ((1, 0), (0, 2))),
    "slice": lambda: (given(B, 4), (None, 3), (None, 0), (None, -2)),
    "reshape": lambda: (given(B, 4), (-1, 2)),
    "global_avg_pool": lambda: (given(*IMAGES[2]),),
    "global_max_pool": lambda: (given(*IMAGES[2]),),
}
for _rank, _shape in IMAGES.items():
    _window = (3,) * _rank
    for _kind in ("avg", "max"):
        for _name in (f"{_kind}_pool{_rank}d", f"adaptive_{_kind}_pool{_rank}d"):
            ARGUMENTS[_name] = lambda s=_shape: (given(*s), 2)
    for _name, _w in (("", (4, 3)), ("_transpose", (3, 4))):
        ARGUMENTS[f"conv{_rank}d{_name}"] = lambda s=_shape, w=(*_w, *_window): (
            given(*s),
            given(*w),
            given(4),
        )
NAMED = {"dropout": lambda: {"rate": 0.5, "key": graph.key()}}
# what has no gradient: counts, orders, comparisons, and folds nobody differentiates
WITHOUT = {"prod"}


def _usual():
    return (given(B, 4),)


def _operators():
    for module in (math, nn):
        for name in module.__all__:
            op = getattr(module, name)
            other = "_grad" in name or "winograd" in name or name == "prepack"
            if hasattr(op, "__wrapped__") and not other:
                yield op


@pytest.mark.parametrize("op", list(_operators()), ids=lambda op: op.id)
def test_it_takes_symbols_and_so_does_its_gradient(op) -> None:
    name = op.id.rpartition(".")[2]
    args = ARGUMENTS.get(name, _usual)()
    made = op(*args, **NAMED.get(name, dict)())
    results = made if isinstance(made, tuple) else (made,)
    assert all(value.spec is not None for value in results)
    if not is_float(results[0]) or name in WITHOUT:
        return
    wrt = [value for value in graph.values.values_in(args) if is_float(value)]
    # the moments that batch_norm is given have no gradient: zeros, of their shape
    found = gradients([results[0]], wrt, [graph.input(results[0].spec)])
    assert [value.spec for value in found] == [value.spec for value in wrt]
