"""Arguments for an operator's kernels, to check and to measure them with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.runtime.describing import signature_of
from tensorlang.runtime.signature import evaluate

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.operator import Operator
    from tensorlang.workload import Workload


def shapes(func: Function, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter by name, for the given symbolic sizes."""
    return {
        spec.name: tuple(evaluate(dim, sizes) for dim in spec.shape)
        for spec in signature_of(func).buffers
    }


def arguments(
    op: Operator, workload: Workload, seed: int = 0
) -> tuple[list[np.ndarray[Any, Any]], list[Any]]:
    """Arrays for every buffer and values for every free scalar, in calling order.

    Inputs are random (integers over their whole range, or where the operator takes them
    from, floats standard normal), outputs are zero. The same seed gives the same.
    """
    func = op.function(workload)
    signature = signature_of(func)
    sizes = op.sizes(workload)
    chosen = op.scalars(workload)
    ranges = op.ranges(workload)
    generator = np.random.default_rng(seed)
    arrays = [
        _array(
            generator,
            spec.numpy,
            spec.role,
            tuple(evaluate(d, sizes) for d in spec.shape),
            ranges.get(spec.name),
        )
        for spec in signature.buffers
    ]
    scalars = [chosen.get(spec.name, 0) for spec in signature.free]
    return arrays, [n.item() if isinstance(n, np.generic) else n for n in scalars]


def _array(
    generator: np.random.Generator,
    dtype: np.dtype[Any],
    role: str,
    shape: tuple[int, ...],
    bounds: tuple[int, int] | None,
) -> np.ndarray[Any, Any]:
    if role == "out":
        return np.zeros(shape, dtype)
    if bounds is not None:
        low, high = bounds
        return generator.integers(low, max(high, low + 1), shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    return generator.standard_normal(shape, np.float32).astype(dtype)
