"""Kernels in two parts: what depends on constant arrays, run once, and the rest.

Where some arrays of a call never change, as the weights of a network, the stages that
read only them (packing, transforms of windows) are run once and their results kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang import lazy
from tensorlang.frozen import frozen
from tensorlang.ops.calls.dispatch import Nowhere
from tensorlang.ops.kernels import building, first_miss
from tensorlang.ops.operator import Operator
from tensorlang.runtime import buffers, cached_kernel
from tensorlang.runtime.signature import BufferSpec, evaluate

with lazy.modules(__name__):  # kernels from the cache need none of it
    from tensorlang.codegen import constant_stages

if TYPE_CHECKING:
    from tensorlang.ir import Function
    from tensorlang.scheduling.schedule import Schedule
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

Arrays: TypeAlias = tuple[np.ndarray, ...]
Step: TypeAlias = "tuple[Callable[..., object], tuple[Any, ...]]"
# the cache key of a kernel, and what to build
Request: TypeAlias = "tuple[str, Callable[[], Function | Schedule]]"


class Asking(Nowhere):
    """A target whose stand-ins for kernels tell the operator and workload."""

    each_call = True

    def built(self, op: Operator, workload: Workload) -> Asked:
        """The stand-in for the kernel of a workload."""
        return Asked(op, workload)


@frozen(eq=False)
class Asked(Nowhere):
    """The stand-in for a kernel."""

    op: Operator
    workload: Workload


ASKING: Final = Asking()


def asked(launch: Callable[..., object]) -> Asked:
    """The operator and workload of a launch prepared for `ASKING`."""
    found = getattr(launch, "__self__", None)
    assert isinstance(found, Asked)
    return found


def may_keep(op: object, target: Target) -> bool:
    """Whether an operator's kernels on a target may be built in two parts."""
    return target.kind == "llvm" and type(op) is Operator and op.may_divide


def requests(
    op: Operator, workload: Workload, target: Target, constants: Sequence[int]
) -> tuple[Request, Request]:
    """The cache keys of both parts, and functions that give them.

    The first part is the whole function, and the second one too, if no stage depends
    on the constant arrays alone.
    """
    key, make = building.request(op, workload, target, constants=constants)

    @cache
    def parts() -> tuple[Function | Schedule, Function | Schedule]:
        made = make()
        found = constant_stages.divided(made.function, constants)
        return (found.constant, found.rest) if found else (made, made)

    def named(part: str) -> str:
        return json.dumps([key, part, *constants])

    return (named("constant"), lambda: parts()[0]), (named("rest"), lambda: parts()[1])


@frozen
class Kept:
    """The launch of a call, perhaps in two parts."""

    each: Step  # computes the results
    once: Step | None = None  # fills the kept arrays before; None if there are none
    arrays: Arrays = ()  # kept arrays


def kept(
    asked: Asked,
    target: Target,
    arguments: tuple[Any, ...],
    constants: Sequence[int],
    store: dict[Hashable, Arrays],
) -> Kept:
    """The launch of a call, in two parts if a stage depends on constants alone.

    Args:
        asked: The operator and its workload.
        target: Where to compute.
        arguments: The kernel's arguments.
        constants: Positions of those that do not change.
        store: Kept arrays by kernel and constant arrays, which calls share.
    """
    rest, *first = all_requests(asked.op, asked.workload, target, constants)
    first_miss.missed(rest[0], target)
    later = cached_kernel(*rest, target)
    count = len(arguments) - len(later.signature.free)
    made = later.signature.buffers[count:]
    if not made:
        return Kept((later.launch, arguments))
    given = [arguments[at] for at in constants]
    filling = cached_kernel(*first[0], target)
    key = (filling, *(array.ctypes.data for array in given))
    arrays = store.get(key) or tuple(map(_empty, made))
    arrays = store.setdefault(key, arrays)
    once = filling.launch, (*given, *arrays)
    each = (*arguments[:count], *arrays, *arguments[count:])
    return Kept((later.launch, each), once, arrays)


def _empty(spec: BufferSpec) -> np.ndarray:
    """Memory for a kept array, whose sizes are constant."""
    return buffers.empty(tuple(evaluate(n, {}) for n in spec.shape), spec.numpy)


def all_requests(
    op: Operator, workload: Workload, target: Target, constants: Sequence[int]
) -> tuple[Request, ...]:
    """The kernels to build for a call: one, or both parts, the main one first."""
    if constants:
        return requests(op, workload, target, constants)[::-1]
    return (building.request(op, workload, target),)
