"""Random expressions over rows of numbers, extremes among them, on every target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tensorlang_test_programs.expressions import (
    SCALARS,
    Draw,
    Scope,
    expressions,
)
from tensorlang_test_programs.fuzzing import Fuzzer

from tensorlang import targets
from tensorlang.ir.dtypes import DType
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import (
    Buffer,
    Const,
    For,
    Function,
    Let,
    Load,
    Param,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.text.printer import show
from tensorlang.ir.visit import substitute

LENGTH = 64
KINDS = SCALARS[2:]  # halves are in between only
PLACE = Var("i")
LOOPS = {
    "llvm": ("serial", "parallel", "vectorized"),
    "opencl": ("serial", "parallel", "vectorized", "bound"),
    "cuda": ("bound",),
}
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 3e9, -3e9, 1e19, -1e19, np.inf, -np.inf, np.nan),
    *(200.0, -129.0, 65536.0, 2.0**63, 1e-42),
)


def make(*kinds: str) -> Fuzzer:
    """The fuzzer of expressions, compiled for these targets, or for all present."""
    kinds = kinds or tuple(
        k for k in ("llvm", "opencl") if not targets.availability()[k]
    )
    return Fuzzer(_cases(kinds), check, code, batch=40)


@st.composite
def _cases(draw: Draw, kinds: tuple[str, ...]) -> tuple[Function, str]:
    """A function, and the target that it is for."""
    target = draw(st.sampled_from(kinds))
    return draw(functions(draw(st.sampled_from(LOOPS[target])))), target


@st.composite
def functions(draw: Draw, loop: str, *, results: int = 4, depth: int = 3) -> Function:
    """Several results of each number of a row, over others that have names.

    Args:
        draw: Of Hypothesis.
        loop: The kind of the loop over the row.
        results: How many arrays are written.
        depth: Of an expression.
    """
    alone = loop in ("vectorized", "bound")
    inputs = [Buffer(f"x_{dtype}", dtype, (as_expr(LENGTH),)) for dtype in KINDS]
    stmts: list[Stmt] = list(_read(inputs))
    scope = Scope((PLACE,), strict=True, scalar=alone)
    scope = scope.having(*(let.var for let in stmts if isinstance(let, Let)))
    params = [Param(buffer, "in") for buffer in inputs]
    stores: list[Stmt] = []
    for number in range(results):
        out = Buffer(f"y{number}", draw(st.sampled_from(KINDS)), (as_expr(LENGTH),))
        lanes = 1 if alone else draw(st.sampled_from((1, 1, 4)))
        named = Var(f"t{number}", out.dtype.vector(lanes))
        stmts.append(Let(named, draw(expressions(named.dtype, scope, depth))))
        scope = scope.having(named)
        value = draw(expressions(out.dtype, scope, depth))
        params.append(Param(out, "out"))
        stores.append(Store(out, (PLACE,), value))
    body = _over(loop, seq(*stmts, *stores))
    return Function("random", tuple(params), (), body)


def _read(inputs: Iterable[Buffer]) -> Iterator[Let]:
    """Two numbers of each row, with names: from its beginning, and from its end."""
    for buffer in inputs:
        for name, at in (("a", PLACE), ("b", LENGTH - 1 - PLACE)):
            yield Let(Var(f"{name}_{buffer.dtype}", buffer.dtype), Load(buffer, (at,)))


def _over(loop: str, body: Stmt) -> Stmt:
    if loop != "bound":
        return For(PLACE, as_expr(LENGTH), loop, body)
    block, thread = Var("block"), Var("thread")
    inner = substitute(body, {PLACE: block * 32 + thread})
    threads = For(thread, as_expr(32), "bound", inner, "thread.x")
    return For(block, as_expr(LENGTH // 32), "bound", threads, "block.x")


def row(dtype: DType) -> Any:
    """The ends of a type, what is near them and near 0, and any others."""
    rng = np.random.default_rng([*dtype.name.encode()])
    if dtype.is_bool:
        return rng.integers(0, 2, LENGTH).astype(bool)
    if dtype.is_float:
        values = rng.normal(size=LENGTH) * 10.0 ** rng.integers(-3, 20, LENGTH)
        values[: len(FLOATS)] = FLOATS
        return values.astype(dtype.numpy)
    low, high = dtype.limits
    half = (high - low) // 2
    near = [low, low + 1, high, high - 1, half, half + 1, *range(-4, 5), -8, 8, 63, 64]
    values = rng.integers(low, high, LENGTH, dtype.numpy, endpoint=True)
    values[::3] = rng.integers(max(low, -70), 70, values[::3].size)
    values[rng.permutation(LENGTH)[: len(near)]] = [Const(n, dtype).value for n in near]
    return values


def arguments(func: Function) -> list[Any]:
    """An array for each parameter."""
    return [
        row(p.buffer.dtype)
        if p.role == "in"
        else np.zeros(LENGTH, p.buffer.dtype.numpy)
        for p in func.params
    ]


def check(case: tuple[Function, str]) -> Iterable[str]:
    """Compute the same on the target as in the interpreter.

    Raises:
        AssertionError: it does not.
    """
    from tensorlang.runtime import build

    func, target = case
    wanted, got = arguments(func), arguments(func)
    run(func, *wanted)
    build(func, target, store=False)(*got)
    for param, a, b in zip(func.params, wanted, got, strict=True):
        np.testing.assert_array_equal(b, a, err_msg=param.buffer.name)
    return [target]


def code(case: tuple[Function, str]) -> str:
    """Python text that raises at a prompt as `check` does."""
    func, target = case
    rows = ", ".join(
        f"np.array({array.tolist()}, {array.dtype.name!r})" for array in arguments(func)
    )
    return (
        "import numpy as np\n"
        "from numpy import inf, nan\n"
        "from tensorlang import build\n"
        "from tensorlang.ir.interpreter import run\n"
        "from tensorlang.ir.text.parser import parse\n"
        f'f = parse("""\n{show(func)}""")\n'
        f"given = [{rows}]\n"
        "wanted, got = ([a.copy() for a in given] for _ in range(2))\n"
        "_ = run(f, *wanted)\n"
        f"_ = build(f, {target!r}, store=False)(*got)\n"
        "np.testing.assert_equal(got, wanted)\n"
    )
