"""Arguments for checking and measuring an operator's kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorlang import ir
from tensorlang.errors import ShapeError
from tensorlang.frozen import frozen
from tensorlang.ir.domains import Domain, domains
from tensorlang.ir.integers.intervals import meet
from tensorlang.ops.operator import Operator
from tensorlang.runtime.describing import signature_of
from tensorlang.runtime.signature import evaluate
from tensorlang.workload import Workload

Array: TypeAlias = "np.ndarray[Any, np.dtype]"


@frozen
class Input:
    """An array that a kernel reads."""

    name: str  # name of its parameter
    dtype: np.dtype  # its element type
    shape: tuple[int, ...]
    # minimum and maximum of its elements; None for floats
    limits: tuple[int, int] | None
    nonzero: bool = False  # whether its elements must not be 0
    indices: bool = False  # whether its elements determine which elements are accessed


# an array for each input; deterministic
Fill: TypeAlias = Callable[[Sequence[Input]], list[Array]]


def shapes(func: ir.Function, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter by name, for the given symbolic sizes."""
    return {
        spec.name: tuple(evaluate(dim, sizes) for dim in spec.shape)
        for spec in signature_of(func).buffers
    }


def arguments(
    op: Operator, workload: Workload, seed: int = 0
) -> tuple[list[Array], list[Any]]:
    """Arrays for every buffer and values for every free scalar, in calling order.

    Inputs are random: integers over their full range, floats standard normal, with the
    first half non-negative and the last quarter non-positive. Outputs are zero. The
    arrays are a function of the seed.
    """
    return Taken.of(op, workload).arguments(plain(seed))


@frozen
class Taken:
    """The arguments of the kernels of a workload."""

    op: Operator
    workload: Workload
    func: ir.Function  # operator's definition for it
    shapes: Mapping[str, tuple[int, ...]]  # shape of each buffer by name
    inputs: tuple[Input, ...]  # arrays that are read
    scalars: tuple[Any, ...]  # typical values of the free scalars, in calling order

    @classmethod
    def of(cls, op: Operator, workload: Workload) -> Taken:
        """Derive them from the operator's definition and declarations.

        Raises:
            ShapeError: an array of indices has elements, and what it indexes has none.
        """
        func, sizes = op.function(workload), op.sizes(workload)
        known, needs = shapes(func, sizes), dict(domains(func, sizes).named)
        for name, below in op.declared.bounds(workload).items():
            needs[name] = Domain((0, below - 1))
        read = (param.buffer for param in func.params if param.role != "out")
        usual = op.scalars(workload)
        scalars = (usual.get(spec.name, 0) for spec in signature_of(func).free)
        return cls(
            op,
            workload,
            func,
            known,
            tuple(_input(b.name, b.dtype, known, needs) for b in read),
            tuple(n.item() if isinstance(n, np.generic) else n for n in scalars),
        )

    def arguments(self, fill: Fill) -> tuple[list[Array], list[Any]]:
        """As the function `arguments`, with inputs from `fill`.

        The operator's `samples` is applied to them.
        """
        made = self.op.declared.projected(self.workload, fill(self.inputs))
        read = {each.name: a for each, a in zip(self.inputs, made, strict=True)}
        buffers = (param.buffer for param in self.func.params)
        arrays = [
            read[buffer.name]
            if buffer.name in read
            else np.zeros(self.shapes[buffer.name], buffer.dtype.numpy)
            for buffer in buffers
        ]
        return arrays, list(self.scalars)


def plain(seed: int) -> Fill:
    """Random elements, without special values."""

    def fill(given: Sequence[Input]) -> list[Array]:
        generator = np.random.default_rng(seed)
        return [_random(generator, each) for each in given]

    return fill


def _random(generator: np.random.Generator, given: Input) -> Array:
    if given.limits is not None:
        low, high = given.limits
        kind = np.int64 if high < 1 << 63 else np.uint64
        made = generator.integers(low, high, given.shape, kind, endpoint=True)
        made = made.astype(given.dtype)
        return np.where(made == 0, 1, made) if given.nonzero else made
    numbers = generator.standard_normal(given.shape, np.float32)
    flat, quarter = numbers.reshape(-1), numbers.size // 4
    np.abs(flat[: 2 * quarter], out=flat[: 2 * quarter])
    np.negative(np.abs(flat[3 * quarter :]), out=flat[3 * quarter :])
    return numbers.astype(given.dtype)


def _input(
    name: str,
    dtype: ir.DType,
    known: Mapping[str, tuple[int, ...]],
    needs: Mapping[str, Domain],
) -> Input:
    if dtype.is_float:
        return Input(name, dtype.numpy, known[name], None)
    need = needs.get(name, Domain())
    low, high = meet(need.interval, dtype.limits)
    assert low is not None
    assert high is not None
    if high < low and 0 not in known[name]:
        raise ShapeError(f"no element of {name} is allowed: it indexes an empty array")
    return Input(
        name,
        dtype.numpy,
        known[name],
        (low, max(low, high)),
        need.nonzero,
        name in needs,
    )
