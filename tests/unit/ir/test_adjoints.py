"""Gradients of definitions in narrow types: copied as they are, and rounded once."""

from __future__ import annotations

import pytest

from tensorlang import ir
from tensorlang.ir.nodes import Cast, Store
from tensorlang.ir.visit import nodes_of
from tensorlang.ops import find

N = 16


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "i8"])
@pytest.mark.parametrize(
    ("name", "shapes", "named"),
    [
        ("concatenate", ((3, 12), (3, 4), (3, 8)), {"axis": 1}),
        ("pad", ((3, 8), (3, 5)), {"padding": ((0, 0), (1, 2))}),
        ("reshape", ((24,), (3, 8)), {"shape": (24,)}),
        ("slice", ((3, 4), (3, 12)), {"begin": (None, 2), "end": (None, 6)}),
        ("transpose", ((8, 3), (3, 8)), {}),
    ],
)
def test_the_gradient_of_a_copy_is_a_copy(name, shapes, named, dtype):
    op = find(f"nn.{name}_grad")
    func = op.function(op.workload(*shapes, dtypes=dtype, **named))
    assert not [*nodes_of(func, Cast)]


def test_several_contributions_are_added_before_they_are_rounded():
    x, *seeds = (ir.placeholder((N,), "bf16", name) for name in ("x", "da", "db"))
    twice = ir.compute((N,), lambda i: (x[i].cast("f32") * 2.0).cast("bf16"), "a")
    same = ir.compute((N,), lambda i: x[i], "b")
    (dx,) = ir.adjoint([twice, same], seeds, [x], ["dx"])
    (store,) = nodes_of(dx.stage.nest, Store)
    total = "cast(f32, db[vi0]) + cast(f32, da[vi0]) * 2.0"
    assert str(store.value) == f"cast(bf16, {total})"
