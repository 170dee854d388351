"""What random programs are given: small whole numbers, special values, or fractions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Function, Param
from tensorlang.ir.semantics import evaluate

FILL: Final = 77  # what an output holds before the run
KINDS: Final = ("small", "small", "special", "fractions")
_SPECIAL: Final = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.0)


def arrays(
    func: Function, sizes: dict[str, int], values: str = "small", seed: int = 0
) -> list[Any]:
    """An array for each parameter.

    Args:
        func: The function.
        sizes: Its scalars.
        values: What is in them. `small`: whole numbers from -4 to 4, whose sums are
            exact. `special`: among these zeros of both signs, infinities, NaN, and of
            integers the extremes. `fractions`: floats of all digits.
        seed: Where the random numbers start.
    """
    rng = np.random.default_rng(seed)
    given = {var: np.int64(sizes[var.name]) for var in func.scalars}
    made = []
    for param in func.params:
        shape = [int(evaluate(extent, given)) for extent in param.buffer.shape]
        made.append(_filled(rng, param, shape, values))
    return made


def _filled(rng: Any, param: Param, shape: list[int], values: str) -> Any:
    dtype = param.buffer.dtype
    if param.role == "out":
        return np.full(shape, FILL).astype(dtype.numpy)
    if dtype.is_float and (
        values == "fractions" or param.buffer.name.startswith("real")
    ):
        return rng.normal(size=shape).astype(dtype.numpy)
    plain = rng.integers(-4, 5, shape).astype(dtype.numpy)
    if values != "special" or dtype.is_bool:
        return plain
    odd = rng.choice(_odd(dtype), size=shape).astype(dtype.numpy)
    return np.where(rng.random(shape) < 0.3, odd, plain)


def _odd(dtype: DType) -> Any:
    if dtype.is_float:
        return np.array(_SPECIAL)
    low, high = dtype.limits
    return np.array([low, high, 0, 1, high - 1], dtype.numpy)
