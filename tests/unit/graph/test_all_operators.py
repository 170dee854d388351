"""Every operator of math and nn takes symbols, with a batch that has a name."""

from importlib import import_module

import pytest

from tensorlang import graph
from tensorlang.graph import TensorSpec, gradients
from tensorlang.graph.differentiation.gradients import is_float
from tensorlang.ops import operators

B = "batch"


def given(*shape, dtype="float32"):
    return graph.input(TensorSpec(shape, dtype))


# what takes a key
DRAWING = {
    "dropout": lambda: ((given(B, 4), 0.5), {"key": graph.key()}),
    "dropout_train": lambda: ((given(B, 4), graph.key(), 0.5), {}),
}
# what has no gradient: counts, orders, comparisons, exact sums of integers, and folds
# nobody differentiates
WITHOUT = {"prod", "dense_int8", "scatter"}


def _operators():
    for op in operators():
        other = "_grad" in op.id or "winograd" in op.id
        if op.id.startswith(("math.", "nn.")) and not other:
            yield op


@pytest.mark.parametrize("op", list(_operators()), ids=lambda op: op.id)
def test_it_takes_symbols_and_so_does_its_gradient(op, programs) -> None:
    name = op.id.rpartition(".")[2]
    calls = import_module(f"{programs.__name__}.calls")
    usual = lambda: (calls.arguments(name, given, B), {})  # noqa: E731
    args, named = DRAWING.get(name, usual)()
    made = op(*args, **named)
    results = made if isinstance(made, tuple) else (made,)
    assert all(value.spec is not None for value in results)
    if not is_float(results[0]) or name in WITHOUT:
        return
    wrt = [value for value in graph.values.values_in(args) if is_float(value)]
    # the moments that batch_norm is given have no gradient: zeros, of their shape
    found = gradients([results[0]], wrt, [graph.input(results[0].spec)])
    assert [value.spec for value in found] == [value.spec for value in wrt]
