"""What is known of calls without tracing them: the shapes and types of their results.

A program infers the results of all its calls, which takes most of the time until its
first run. They follow from the workloads, so they are noted on disk.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang import ir, lazy, targets
from tensorlang.frozen import frozen
from tensorlang.ops.calls.dispatch import NOWHERE, Nowhere

with lazy.modules(__name__):  # the import of an operator needs none of these
    from tensorlang.ops.kernels import building
    from tensorlang.runtime import cache

if TYPE_CHECKING:
    import numpy as np

    from tensorlang.ops.operator import Operator
    from tensorlang.workload import Workload

Shape: TypeAlias = tuple[int, ...]


@frozen
class Known:
    """What a trace says of a call.

    Attributes:
        inputs: The shape in which the kernel takes each array; None if it is its own.
        outputs: For each result its shape, that for the kernel, and its type.
        several: Whether there is a tuple of results, possibly of one.
    """

    inputs: tuple[Shape | None, ...]
    outputs: tuple[tuple[Shape, Shape, np.dtype], ...]
    several: bool


def recalled(op: Operator, workload: Workload, target: Any) -> Known | None:
    """What was noted of a call; None if it is to be traced.

    Calls whose kernels are yet to be built, or listed to be built, are traced.
    """
    said = cache.notes().get(_key(workload)) if op.in_library else None
    if said is None:
        return None
    if isinstance(target, Nowhere):
        usable = target is NOWHERE or target.each_call
    else:
        usable = building.is_built(op, workload, targets.get(target))
    return _read(said) if usable else None


def _read(said: str) -> Known:
    data: dict[str, Any] = json.loads(said)
    return Known(
        tuple(None if shape is None else tuple(shape) for shape in data["inputs"]),
        tuple(
            (tuple(shown), tuple(inner), ir.DType(name).numpy)
            for shown, inner, name in data["outputs"]
        ),
        data["several"],
    )


def note(op: Operator, workload: Workload, target: object, known: Known) -> None:
    """Note what the trace of a call in a program says."""
    if not isinstance(target, Nowhere) or not op.in_library:
        return
    outputs = [[*shapes, ir.as_dtype(kind).name] for *shapes, kind in known.outputs]
    said = {"inputs": known.inputs, "outputs": outputs, "several": known.several}
    cache.note(_key(workload), json.dumps(said))


def is_noted(workload: Workload) -> bool:
    """Whether a program has such a call, or had one in another process."""
    return _key(workload) in cache.notes()


def _key(workload: Workload) -> str:
    return cache.digest_of(repr(workload))
