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

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.operator import Front, Launch, Operator
from tensorlang.workload import Workload, attributes_of

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.runtime import Kernel

FLOATS: Final = ("f32", "bf16", "f16", "f64")
_MANY: Final = (list, tuple)
_OVERLAP_WORK: Final = 10_000  # how hard NumPy looks for a common element


class InplaceOperator(Operator):
    """An operator whose calls write over what they are given; see `inplace`.

    Attributes:
        arrays: Names of the arrays, in the order of its calls.
        optional: Those that may be left out.
        read: Those that are not written.
    """

    arrays: tuple[str, ...]
    optional: tuple[str, ...]
    read: tuple[str, ...]

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
            needed = [name for name in self.arrays if name not in self.optional]
            given = {*needed, *self.optional[: max(len(shapes) - len(needed), 0)]}
            named = [name for name in self.arrays if name in given]
            attributes["inputs"] = " ".join(named)
        flat = [(math.prod(shape),) for shape in shapes]
        return Operator.workload(
            self, *flat, dtypes=dtypes, threads=threads, **attributes
        )

    def shape(self, *shapes: tuple[int, ...], **_: Any) -> Any:
        """The shape of what is updated, which is that of all arrays."""
        _of_one_shape(self.id, self.arrays, shapes)
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
        made.arrays, made.optional, made.read = arrays, optional, read

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
        if not self.kernel.each(*self.order(arrays), *scalars):
            self.checked(arrays)(*scalars)

    def checked(self, arrays: Sequence[tuple[Any, ...]]) -> Callable[..., None]:
        """The same for arrays that the kernel does not take as they are.

        Raises:
            ShapeError, DTypeError, ArgumentError: a set does not fit.
        """
        sets = _checked(self.op, self.names, arrays)
        found = [
            _prepared(
                self.op,
                self.names,
                [array.dtype for array in of],
                self.attributes,
                self.target,
            )
            for of in sets
        ]

        def run(*scalars: float) -> None:
            for update, of in zip(found, sets, strict=True):
                flat = [array.reshape(-1) for array in of]
                update.kernel.launch(*self.order(flat), *scalars)

        return run


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
        arrays: An array for each name in `op.arrays`, or a list of arrays for each;
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
    kinds = [of and getattr(of[0], "dtype", None) for of in given]
    key = (target, *attributes.values(), *kinds)
    found = op.kernels.get(key)
    present = [of for of in given if of is not None]
    if found is None:
        own(*present)
        names = tuple(
            name for name, of in zip(op.arrays, given, strict=True) if of is not None
        )
        sets = _checked(op, names, present)
        present = list(zip(*sets, strict=True))
        dtypes = [array.dtype for array in sets[0]]
        found = _prepared(op, names, dtypes, attributes, target)
    return found, (present, *scalars), None


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
            for name, of in zip(op.arrays, arrays, strict=True)
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
    names: tuple[str, ...],
    dtypes: Sequence[np.dtype[Any]],
    attributes: Mapping[str, Any],
    target: Any,
) -> Update:
    """The kernel for arrays of these types, built once."""
    by_name = dict(zip(names, dtypes, strict=True))
    key = (target, *attributes.values(), *(by_name.get(name) for name in op.arrays))
    found: Update | None = op.kernels.get(key)
    if found is None:
        kinds = _kinds(op, names, dtypes)
        named = attributes_of({**attributes, "inputs": " ".join(names)})
        workload = Workload(op.id, ((1 << 24,),) * len(names), kinds, named)
        written = [n for n, name in enumerate(names) if name not in op.read]
        read = [n for n, name in enumerate(names) if name in op.read]
        found = op.kernels[key] = Update(
            op,
            names,
            dict(attributes),
            target,
            op.build(workload, target),
            itemgetter(*read, *written),
        )
    return found


# --------------------------------------------------------------------- checking


def _kinds(
    op: InplaceOperator, names: Sequence[str], dtypes: Sequence[np.dtype[Any]]
) -> tuple[str, ...]:
    """Our names of the types: all as the first one's, or f32 beside f16 and bf16."""
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only to prepare

    kinds = tuple(as_dtype(dtype).name for dtype in dtypes)
    first = kinds[0]
    if first not in FLOATS:
        raise DTypeError(f"{op.id} takes {', '.join(FLOATS)}, not {first}")
    allowed = (first, "f32") if first in ("f16", "bf16") else (first,)
    for name, kind in zip(names, kinds, strict=True):
        if kind not in allowed:
            raise DTypeError(
                f"{op.id}: {name} is {kind}; beside {names[0]} of {first} it is "
                f"{' or '.join(allowed)}"
            )
    return kinds


def _checked(
    op: InplaceOperator, names: Sequence[str], arrays: Sequence[tuple[Any, ...]]
) -> list[list[np.ndarray[Any, Any]]]:
    """The sets as NumPy arrays over the same memory, found to fit.

    Raises:
        ShapeError, DTypeError, ArgumentError: a set does not fit.
    """
    count = len(arrays[0])
    sets = []
    for n, given in enumerate(zip(*arrays, strict=True)):
        called = [f"{name}[{n}]" if count > 1 else name for name in names]
        of = [
            _viewed(op, name, array, written=title not in op.read)
            for name, title, array in zip(called, names, given, strict=True)
        ]
        _of_one_shape(op.id, called, [array.shape for array in of])
        _kinds(op, called, [array.dtype for array in of])
        _apart(op, called, of)
        sets.append(of)
    return sets


def _viewed(
    op: InplaceOperator, name: str, array: Any, *, written: bool
) -> np.ndarray[Any, Any]:
    """An array's memory, which can be written in place where it is to be."""
    from tensorlang.runtime.arrays import immutable, view  # noqa: PLC0415 - runtime

    reason = immutable(array) if written else ""
    if reason:
        raise ArgumentError(f"{op.id}: {name} {reason}; pass a NumPy array")
    seen = view(array, f"{op.id}: {name}")
    if not written:
        return np.ascontiguousarray(seen) if seen.ndim else seen
    if not seen.flags.writeable:
        raise ArgumentError(
            f"{op.id}: {name} is read-only, and it is updated in place; pass an array "
            "of your own"
        )
    if not seen.flags.carray:
        raise ArgumentError(
            f"{op.id}: {name} is updated in place and must lie in a row; pass an array "
            "that is contiguous, as np.ascontiguousarray makes it"
        )
    return seen


def _of_one_shape(
    id: str, names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> None:
    for name, shape in zip(names, shapes, strict=False):
        if shape != shapes[0]:
            raise ShapeError(
                f"{id}: {name} has shape {shape}, and {names[0]} has {shapes[0]}; "
                "they are updated element by element"
            )


def _apart(
    op: InplaceOperator, names: Sequence[str], arrays: Sequence[np.ndarray[Any, Any]]
) -> None:
    """Refuse a set whose arrays share memory."""
    for later, b in enumerate(arrays):
        for a, name in zip(arrays[:later], names, strict=False):
            if np.may_share_memory(a, b) and np.shares_memory(a, b, _OVERLAP_WORK):  # type: ignore[arg-type]
                raise ArgumentError(
                    f"{op.id}: {name} and {names[later]} share memory, and what is "
                    "updated in place needs memory of its own"
                )
