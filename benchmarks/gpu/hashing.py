"""Random words of JAX's stream, against JAX and the peak integer rate."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from benchmarks.gpu import limits
from benchmarks.gpu.works import MIB, Call, Sides, Stage, Work, sizes


def _count(stage: Stage) -> int:
    return 64 * MIB // stage.scale


def _operations(stage: Stage) -> int:
    """Integer operations per word in our definition."""
    from tensorlang.ops import find

    op = find("random.bits")
    work = op.workload((_count(stage),), dtypes="u32")
    counts: tuple[int, ...] = op.cost(*work.shapes).at(op.sizes(work))
    return counts[1]


def _bits(stage: Stage) -> Sides:
    import numpy as np

    from tensorlang.ops import random

    torch, count = stage.torch, _count(stage)
    out = torch.zeros(count, dtype=torch.int32, device=stage.device).view(torch.uint32)
    key = random.key(7)

    def ours() -> Any:
        return random.bits(
            key.clone(), (count,), "uint32", out=out, target=stage.target
        )

    def right() -> Any:
        return np.asarray(random.bits(key.clone(), (count,), "uint32", target="llvm"))

    def check() -> float:
        ours()
        stage.wait()
        return 2.0 * float((out.cpu().numpy() != right()).any())

    mixing, done = _mixing(stage)
    calls: dict[str, list[Call]] = {"tensorlang": [ours], "integer units": mixing}
    shares = {"integer units": _operations(stage) / done}
    checks = {"tensorlang": check}
    if find_spec("jax") is not None:
        calls["JAX"], drawn = _jax(stage, count)
        checks["JAX"] = lambda: 2.0 * float((np.asarray(drawn()) != right()).any())
    return Sides(calls, checks, shares)


def _mixing(stage: Stage) -> tuple[list[Call], int]:
    """A kernel of integer operations alone, and their number."""
    from tensorlang import build, targets

    torch, target = stage.torch, targets.get(stage.target)
    count = max(8 * 64 // stage.scale, 1) * target.threads * limits.THREADS
    kernel = build(limits.chains_of_integers(count), target)
    x, y = (
        torch.ones(count, dtype=torch.int32, device=stage.device).view(torch.uint32)
        for _ in range(2)
    )
    return [lambda: kernel.launch(x, y)], limits.INTEGERS * limits.STEPS * count


def _jax(stage: Stage, count: int) -> tuple[list[Call], Any]:
    import jax

    key = jax.random.key(7, impl="threefry2x32")
    drawn = jax.jit(lambda key: jax.random.bits(key, (count,), "uint32"))

    def theirs() -> None:
        stage.last = drawn(key)

    return [theirs], lambda: drawn(key)


WORKS = (
    Work(
        "random.bits u32",
        _bits,
        moved=lambda stage: 4 * _count(stage),
        operations=_operations,
        limit="integers",
        tuned=lambda stage: [("random.bits", "--shape", sizes((_count(stage),)))],
        weight=2.0,
        queued=True,
        wanted={"JAX": 2.0, "integer units": 0.9},
    ),
)
