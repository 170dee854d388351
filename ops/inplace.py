"""Operators that update arrays in place, one set of them or many in one launch.

    optim.sgd(param, grad, velocity, lr=0.1, momentum=0.9)
    optim.sgd([p1, p2], [g1, g2], [v1, v2], lr=0.1, momentum=0.9)

The arrays of a set have one shape. Elements are updated each on its own, so a kernel
sees flat arrays of any length. Nothing is written before all sets are found to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.ops.dispatch import Nowhere
from tensorlang.ops.inplace_checks import (
    FLOATS,
    Arrays,
    checked,
    kinds_of,
    of_one_shape,
    sets_apart,
    views,
)
from tensorlang.ops.operator import Front, Launch, Operator
from tensorlang.workload import Workload, attributes_of

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.runtime import Kernel

_MANY: Final = (list, tuple)


class InplaceOperator(Operator):
    """An operator whose calls write over what they are given; see `inplace`.

    Attributes:
        takes: Names of the arrays, in the order of its calls.
        optional: Those that may be left out.
    """

    takes: Arrays
    optional: tuple[str, ...]

    def workload(
        self,
        *shapes: tuple[int, ...],
        dtypes: tuple[str, ...] | str | None = None,
        threads: int = 0,
        **attributes: Any,
    ) -> Workload:
        """The workload of a call with arrays of these shapes: all are flat.

        `inputs`, the names of the arrays, are all that are needed and the first of the
        optional ones, where not said otherwise.
        """
        if shapes and "inputs" not in attributes:
            needed = [name for name in self.takes.names if name not in self.optional]
            given = {*needed, *self.optional[: max(len(shapes) - len(needed), 0)]}
            named = [name for name in self.takes.names if name in given]
            attributes["inputs"] = " ".join(named)
        flat = [(math.prod(shape),) for shape in shapes]
        return Operator.workload(
            self, *flat, dtypes=dtypes, threads=threads, **attributes
        )

    def shape(self, *shapes: tuple[int, ...], **_: Any) -> Any:
        """The shape of what is updated, which is that of all arrays."""
        of_one_shape(self.id, self.takes.names, shapes)
        return shapes[0] if shapes else self.default.shapes[0]  # type: ignore[union-attr]


def inplace(
    id: str,
    define: str,
    *,
    arrays: tuple[str, ...],
    read: tuple[str, ...],
    optional: tuple[str, ...] = (),
    attributes: Mapping[str, Any] | None = None,
    scalars: Mapping[str, float] | None = None,
    **options: Any,
) -> Callable[[Front], InplaceOperator]:
    """An operator that updates arrays in place; its front ends in `update`.

    Args:
        id: Its canonical id.
        define: `module:function`, imported at first use: from scalar expressions, one
            an array (of f32 or wider; absent ones are left out), scalars and attributes
            by name, to a tuple of what is written, in order.
        arrays: Names of the arrays, in calling order.
        read: Those that are only read.
        optional: Those that may be left out.
        attributes: Static attributes with their defaults.
        scalars: Numbers given at each call, with a usual value each.
        options: As for `Operator`.
    """
    usual = dict(scalars or {})
    needed = tuple(name for name in arrays if name not in optional)

    def make(front: Front) -> InplaceOperator:
        made = InplaceOperator.__new__(InplaceOperator)
        made.takes, made.optional = Arrays(id, arrays, read), optional

        def build(workload: Workload) -> Function:
            from tensorlang.ops import inplace_assembling  # noqa: PLC0415 - to build

            return inplace_assembling.defined(define, workload, read, usual)

        Operator.__init__(
            made,
            id,
            build,
            front,
            default=Workload(
                id,
                ((1 << 24,),) * len(needed),
                ("f32",) * len(needed),
                attributes_of({**(attributes or {}), "inputs": " ".join(needed)}),
            ),
            dtypes=FLOATS,
            sizes=lambda workload: {"n": workload.shapes[0][0]},
            scalars=lambda _: usual,
            **options,
        )
        return made

    return make


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A kernel for arrays of certain types, and the way to it.

    Attributes:
        op: The operator.
        names: Of the arrays that are given.
        attributes: Static attributes by name.
        target: Where to compute.
        kernel: The kernel.
        order: From arrays in the caller's order to the kernel's.
    """

    op: InplaceOperator
    names: tuple[str, ...]
    attributes: Mapping[str, Any]
    target: Any
    kernel: Kernel
    order: Callable[[Sequence[Any]], tuple[Any, ...]]

    def __call__(self, arrays: Sequence[tuple[Any, ...]], *scalars: float) -> None:
        """Update all sets: `arrays` has a tuple for each name."""
        there = self.kernel.target.kind != "llvm"  # where `each` looks for overlaps
        if there and self.kernel.each(*self.order(arrays), *scalars):
            return
        if len(arrays[0]) > 1:
            sets_apart(self.op.takes, self.names, arrays)
        if there or not self.kernel.each(*self.order(arrays), *scalars):
            self._carefully(arrays, scalars)

    def _carefully(
        self, arrays: Sequence[tuple[Any, ...]], scalars: Sequence[float]
    ) -> None:
        """The same for arrays that the kernel does not take as they are.

        Raises:
            ShapeError, DTypeError, ArgumentError: a set does not fit.
        """
        sets = checked(self.op.takes, self.names, arrays)
        found = [self._alike(of) for of in sets]
        for each, of in zip(found, sets, strict=True):
            flat = [array.reshape(-1) for array in of]  # a copy of no written one
            each.kernel.launch(*self.order(flat), *scalars)

    def _alike(self, arrays: Sequence[np.ndarray[Any, Any]]) -> Update:
        """The same for arrays of other types."""
        held = dict(zip(self.names, arrays, strict=True))
        given = [(held[n],) if n in held else None for n in self.op.takes.names]
        return _prepared(self.op, given, self.attributes, self.target)


def update(
    op: InplaceOperator,
    arrays: Sequence[Any],
    attributes: dict[str, Any],
    scalars: tuple[float, ...],
    target: Any,
) -> Launch:
    """The launch of a call: the end of every front.

    Args:
        op: The operator.
        arrays: An array for each of the operator's names, or a list of arrays for each;
            None where an optional one is left out.
        attributes: Static attributes by name, in the operator's own order; hashable.
        scalars: The kernel's scalars, floats.
        target: Where to compute.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    several = type(arrays[0]) in _MANY
    if several:
        given = _lists(op, arrays)
        if not given[0]:
            return _nothing, (), None
    else:
        given = [array if array is None else (array,) for array in arrays]
    lead = given[0]
    if lead and type(lead[0]) is not np.ndarray:
        from tensorlang.runtime.arrays import written  # noqa: PLC0415 - runtime
        from tensorlang.runtime.given_arrays import target_of  # noqa: PLC0415 - runtime

        if target is None:
            target = target_of(op.id, (array for of in given for array in of or ()))
        named = zip(op.takes.names, given, strict=True)
        changed = [of for name, of in named if of and name not in op.takes.read]
        written(array for of in changed for array in of)
    key = (target, *attributes.values(), *map(_kind, given))
    found = op.kernels.get(key)
    if found is None:
        seen = views(op.takes, given)
        found = _prepared(op, seen, attributes, target)
        if isinstance(target, Nowhere) or found.kernel.target.kind != "cuda":
            given = seen
        else:  # it takes them as the caller has them
            op.kernels[key] = found
    return found, ([of for of in given if of is not None], *scalars), None


def _kind(of: tuple[Any, ...] | None) -> Any:
    """The element type of arrays, by the first one."""
    return of and getattr(of[0], "dtype", None)


def _lists(op: InplaceOperator, arrays: Sequence[Any]) -> list[tuple[Any, ...] | None]:
    """Lists of arrays as tuples of one length.

    Raises:
        ArgumentError: they are not.
    """
    first = len(arrays[0])
    if any(
        of is not None and (type(of) not in _MANY or len(of) != first) for of in arrays
    ):
        listed = ", ".join(
            f"{len(of)} {name}" if type(of) in _MANY else f"{name} alone"
            for name, of in zip(op.takes.names, arrays, strict=True)
            if of is not None
        )
        raise ArgumentError(
            f"{op.id} takes lists of one length, or single arrays, not {listed}"
        )
    return [of if of is None else tuple(of) for of in arrays]


def _nothing() -> None:
    """Update no set."""


def _prepared(
    op: InplaceOperator,
    given: Sequence[tuple[Any, ...] | None],
    attributes: Mapping[str, Any],
    target: Any,
) -> Update:
    """The kernel for NumPy arrays of the first set's types, built once."""
    key = (target, *attributes.values(), *map(_kind, given))
    found: Update | None = op.kernels.get(key)
    if found is None:
        held = zip(op.takes.names, given, strict=True)
        by_name = {name: of[0].dtype for name, of in held if of is not None}
        names = tuple(by_name)
        kinds = kinds_of(op.takes, names, list(by_name.values()))
        named = attributes_of({**attributes, "inputs": " ".join(names)})
        workload = Workload(op.id, ((1 << 24,),) * len(names), kinds, named)
        read = [n for n, name in enumerate(names) if name in op.takes.read]
        written = [n for n, name in enumerate(names) if name not in op.takes.read]
        found = op.kernels[key] = Update(
            op,
            names,
            dict(attributes),
            target,
            op.build(workload, target),
            itemgetter(*read, *written) if len(names) > 1 else tuple,
        )
    return found
