"""Whether all iterations of some loops have different indices, by enumeration."""

import itertools

import pytest

from tensorlang.codegen import blocks
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Expr, Var

A, B, N = Var("a", i64), Var("b", i64), Var("n", i64)


@pytest.mark.parametrize("counts", [(0, 3), (1, 1), (4, 3), (5, 7)], ids=str)
@pytest.mark.parametrize(
    "indices",
    [
        (A, B),
        (B, A // 2, A % 2),
        (A * 3 + B,),
        (A - B * 4, N),
        (A // 2, B),
        ((A + B) % 6, A * B),
        (A * N, B * (1 << 40)),
        (N,),
    ],
    ids=str,
)
def test_as_with_a_set(indices: tuple[Expr, ...], counts: tuple[int, int]) -> None:
    points = [*itertools.product(*map(range, counts))]
    texts = [str(index) for index in indices]

    def different(n: int) -> bool:
        values = ({"a": a, "b": b, "n": n} for a, b in points)
        return len({tuple(eval(t, v) for t in texts) for v in values}) == len(points)

    found = blocks._all_different(indices, dict(zip((A, B), counts, strict=True)))
    assert found == all(map(different, blocks._OTHERS))
