"""Names stay new along their paths when what kept them apart is dissolved."""

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.lower import lower as lower_for_cpus
from tensorlang.codegen.simt.lower import lower as lower_for_threads
from tensorlang.ir import parse
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Alloc, For, Let, Seq
from tensorlang.ir.visit import statements

LOWERINGS = {
    "llvm": lower_for_cpus,
    "opencl": lower_for_threads,
    "cuda:sm_90a": lower_for_threads,
}
BODIES = {
    "two loops and what follows them": """
        for u in {loop}:
            a: f32 = x[i] * 2.0
            y[i] = a
        for u in {loop}:
            a: f32 = x[i] * 3.0
            y[i] = y[i] + a * a
        a: f32 = y[i]
        y[i] = a + a * a""",
    "a loop of the same name": """
        for u in {loop}:
            a: i64 = i // 3
            y[i] = cast(f32, a * a)
        for a in range(7):
            y[i] = y[i] + cast(f32, a * a)""",
    "a name further inside": """
        for u in {loop}:
            a: f32 = x[i] * 2.0
            y[i] = a
        for k in range(5):
            a: f32 = y[i] * x[i]
            y[i] = a - a * a""",
    "a condition": """
        if n >= 0:
            a: f32 = x[i] * 2.0
            y[i] = a
        a: f32 = x[i] * 5.0
        y[i] = y[i] + a""",
    "arrays": """
        for u in {loop}:
            a = alloc(f32[2])
            a[0] = x[i] * 2.0
            y[i] = a[0]
        a = alloc(f32[2])
        a[1] = x[i] * 5.0
        y[i] = y[i] + a[1]""",
}


def repeated(stmt, taken):
    """The names below a statement that something around them has."""
    own = set()
    for inner in stmt.stmts if isinstance(stmt, Seq) else [stmt]:
        name = None
        if isinstance(inner, Let | For):
            name = inner.var.name
        elif isinstance(inner, Alloc):
            name = inner.buffer.name
        if name in taken | own:
            yield name
        if name and not isinstance(inner, For):
            own.add(name)
        for below in statements(inner):
            yield from repeated(below, taken | own | ({name} - {None}))


@pytest.mark.parametrize("loop", ["range(1)", "unrolled(1)", "unrolled(2)"])
@pytest.mark.parametrize("target", LOWERINGS)
@pytest.mark.parametrize("body", BODIES)
def test_no_name_means_two_things_where_it_is(body, target, loop):
    around = 'bound(n, "block.x")' if "cuda" in target else "parallel(n)"
    func = parse(
        f"def f(x: f32[n], y: Out[f32[n]], *, n: i64):\n    for i in {around}:"
        + BODIES[body].format(loop=loop)
    )
    lowered = LOWERINGS[target](func, targets.get(target))
    assert not list(repeated(lowered.body, {"x", "y", "n"}))
    if target == "cuda:sm_90a":
        x = np.linspace(0.5, 2, 6, dtype="f4")
        wanted, got = np.zeros(6, "f4"), np.zeros(6, "f4")
        run(func, x, wanted, n=6)
        run(lowered, x, got, n=6)
        np.testing.assert_array_equal(got, wanted)


def test_random_scopes_compute_the_same(programs):
    programs.fuzzing.search(programs.fuzzers.fuzzer("scopes", "cuda:sm_80"), 3, 60)
