"""Random words of JAX's stream, beside JAX and beside what the integer units can do."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from benchmarks.gpu.works import MIB, Call, Sides, Stage, Work, sizes
from tensorlang.ir.dtypes import u32
from tensorlang.ir.frontend import compute, named
from tensorlang.ir.intrinsics import rotl
from tensorlang.ir.nodes import Const
from tensorlang.ops.operator import operator

_ROUNDS = 128
_OPERATIONS = 3 * _ROUNDS  # of an element of `mixed`


def _count(stage: Stage) -> int:
    return 64 * MIB // stage.scale


@operator("benchmarks.mixed")
def mixed(x: Any) -> Any:
    """Threefry's mix of operations on registers, and nothing else."""

    def chain(i: Any) -> Any:
        value = x[i]
        for step in range(_ROUNDS):
            turned = rotl(value + Const(0x9E3779B9 + step, u32), Const(13, u32))
            value = named(f"step_{step}", turned ^ Const(step * 77 + 1, u32))
        return value

    return compute(x.shape, chain, name="y")


def _bits(stage: Stage) -> Sides:
    import numpy as np

    from tensorlang.ops import find, random

    torch, count = stage.torch, _count(stage)
    out = torch.empty(count, dtype=torch.uint32, device=stage.device)
    key = random.key(7)
    few = max(count // 16, 1)
    x = torch.arange(few, dtype=torch.int32, device=stage.device).view(torch.uint32)
    other = torch.empty_like(x)
    op = find("random.bits")
    work = op.workload((count,), dtypes="u32")
    operations = op.cost(*work.shapes).at(op.sizes(work))[1]

    def ours() -> Any:
        return random.bits(
            key.clone(), (count,), "uint32", out=out, target=stage.target
        )

    def check() -> float:
        ours()
        stage.wait()
        right = random.bits(key.clone(), (count,), "uint32", target="llvm")
        return 2.0 * float((out.cpu().numpy() != np.asarray(right)).any())

    calls: dict[str, list[Call]] = {
        "tensorlang": [ours],
        "integer units": [lambda: mixed(x, out=other, target=stage.target)],
        **_jax(stage, count),
    }
    return Sides(calls, check, {"integer units": operations / (_OPERATIONS * few)})


def _jax(stage: Stage, count: int) -> dict[str, list[Call]]:
    if find_spec("jax") is None:
        return {}
    import jax

    key = jax.random.key(7, impl="threefry2x32")
    drawn = jax.jit(lambda key: jax.random.bits(key, (count,), "uint32"))

    def theirs() -> None:
        stage.last = drawn(key)

    return {"JAX": [theirs]}


WORKS = (
    Work(
        "random.bits u32",
        _bits,
        moved=lambda stage: 4 * _count(stage),
        tuned=lambda stage: [("random.bits", "--shape", sizes((_count(stage),)))],
        wanted={"JAX": 2.0, "integer units": 0.8},
    ),
)
