"""Operators that update arrays in place: one set of arrays, or several in one launch.

    @update("my.decay")
    def decay(x: InOut[Float], rate: Float, *, by: Scalar) -> Float:
        return x - by * rate * x

    decay(x, rate, by=0.1)
    decay([x1, x2], [rate1, rate2], by=0.1)

The definition is of one element, and returns the new elements of the updated arrays in
order. Kernels take flat arrays of any length: one serves all shapes. The checks of the
arrays are in `tensorlang.ops.calls.update_checks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from tensorlang import ir, runtime
from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.frozen import frozen
from tensorlang.once import cached_property
from tensorlang.ops.calls.dispatch import Nowhere
from tensorlang.ops.calls.update_checks import Sets, kinds_of, of_one_shape
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.decorator_options import decorator
from tensorlang.ops.spec.signature import ABSENT

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch, Shapes
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

_MANY: Final = (list, tuple)
_LONG: Final = (1 << 24,)


@frozen(eq=False)
class Updating:
    """A kernel for arrays of given types, and its calls."""

    op: Update
    names: tuple[str, ...]  # names of the arrays that are passed
    attributes: Mapping[str, Any]  # static attributes by name
    target: Any  # where to compute
    kernel: Kernel

    def __call__(self, arrays: Sequence[tuple[object, ...]], *scalars: float) -> None:
        """Update all sets: `arrays` has a tuple for each name."""
        there = self.kernel.target.kind != "llvm"  # there, `each` checks for overlaps
        if there and self.kernel.each(*arrays, *scalars):
            return
        if len(arrays[0]) > 1:
            self._sets(arrays).check_apart()
        if there or not self.kernel.each(*arrays, *scalars):
            self._carefully(arrays, scalars)

    def _sets(self, arrays: Sequence[tuple[object, ...]]) -> Sets:
        return Sets(self.op.id, self.names, self.op.read, arrays)

    def _carefully(
        self, arrays: Sequence[tuple[object, ...]], scalars: Sequence[float]
    ) -> None:
        """Check all sets, then update them, each with the kernel of its types.

        Raises:
            ShapeError, DTypeError, ArgumentError: a set does not fit.
        """
        sets = self._sets(arrays).checked()
        found = [self._alike(of) for of in sets]
        for each, of in zip(found, sets, strict=True):
            flat = [array.reshape(-1) for array in of]  # copies none that is written
            each.kernel.launch(*flat, *scalars)

    def _alike(self, arrays: Sequence[object]) -> Updating:
        """The kernel for arrays of other types."""
        held = dict(zip(self.names, arrays, strict=True))
        given = [(held[n],) if n in held else None for n in self.op.spec.arrays]
        return self.op.updating(given, self.attributes, self.target)


def updated(
    op: Update,
    arrays: Sequence[object],
    attributes: dict[str, Any],
    scalars: tuple[float, ...],
    target: object,
) -> Launch:
    """The launch of a call of an in-place operator; as `tensors.call`.

    Args:
        arrays: An array for each of the operator's names, or a list of arrays for each;
            None where an optional one is left out.
        attributes: Static attributes by name, in the operator's own order; hashable.
        scalars: The kernel's scalars, floats.
        target: Where to compute.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    if type(arrays[0]) in _MANY:
        given = _lists(op, arrays)
        if not given[0]:
            return _nothing, (), None
    else:
        given = [array if array is None else (array,) for array in arrays]
    lead = given[0]
    if lead and type(lead[0]) is not np.ndarray:
        if target is None:
            target = runtime.foreign_arrays.target_of(
                op.id, (array for of in given for array in of or ())
            )
        named = zip(op.spec.arrays, given, strict=True)
        changed = [of for name, of in named if of and name not in op.read]
        runtime.host_arrays.written(array for of in changed for array in of)
    key = (target, *attributes.values(), *map(_kind, given))
    found = op.kernels.get(key)
    if found is None:
        names = [n for n, of in zip(op.spec.arrays, given, strict=True) if of]
        placed = iter(Sets(op.id, names, op.read, [of for of in given if of]).placed())
        views = [of and next(placed) for of in given]
        found = op.updating(views, attributes, target)
        if isinstance(target, Nowhere) or found.kernel.target.kind != "cuda":
            given = views
        else:  # CUDA kernels take the caller's arrays
            op.kernels[key] = found
    return found, ([of for of in given if of is not None], *scalars), None


def _kind(of: tuple[object, ...] | None) -> Any:
    """The element type of the first array."""
    return of and getattr(of[0], "dtype", None)


def _lists(op: Update, arrays: Sequence[Any]) -> list[tuple[object, ...] | None]:
    """Lists of arrays, as tuples of one length; ArgumentError if the lengths differ."""
    first = len(arrays[0])
    if any(
        of is not None and (type(of) not in _MANY or len(of) != first) for of in arrays
    ):
        listed = ", ".join(
            f"{len(of)} {name}" if type(of) in _MANY else f"{name} alone"
            for name, of in zip(op.spec.arrays, arrays, strict=True)
            if of is not None
        )
        raise ArgumentError(
            f"{op.id} takes lists of one length, or single arrays, not {listed}"
        )
    return [of if of is None else tuple(of) for of in arrays]


def _nothing() -> None:
    """Update no set."""


class Update(Operator):
    """An operator that updates arrays in place, element by element; see `update`.

    Args:
        id: The canonical id.
        element: Maps elements and scalars to the new elements of the updated arrays.
        options: As for `Operator`.
    """

    ending: ClassVar[Callable[..., Launch]] = staticmethod(updated)
    shared: ClassVar[tuple[str, ...]] = ("target",)

    def __init__(self, id: str, element: Body, **options: Any) -> None:
        super().__init__(id, element, whole=True, **options)

    @cached_property
    def read(self) -> frozenset[str]:
        """The names of the arrays that are not written."""
        kinds = self.spec.arrays.items()
        return frozenset(name for name, kind in kinds if not kind.inplace)

    @property
    def definition(self) -> Body:
        """The definition on tensors."""
        return self._on_tensors

    def _on_tensors(self, **given: object) -> object:
        arrays = {n: held for n, held in given.items() if isinstance(held, ir.Tensor)}
        of_one_shape(self.id, tuple(arrays), [array.shape for array in arrays.values()])
        new = {n: array for n, array in arrays.items() if n not in self.read}

        def element(i: ir.Expr) -> Any:
            held = {name: ir.wide(array[i]) for name, array in arrays.items()}
            made = self.body(**{**given, **held})
            made = made if isinstance(made, tuple) else (made,)
            if len(made) != len(new):
                raise OperatorError(
                    f"its definition returned {len(made)} element(s), and updates "
                    f"{', '.join(new)}; return the new element of each"
                )
            return tuple(
                ir.stored(ir.named(f"new_{n}", value, always=len(new) > 1), array.dtype)
                for value, (n, array) in zip(made, new.items(), strict=True)
            )

        first, *_ = arrays.values()
        return ir.compute(first.shape, element, tuple(f"next_{name}" for name in new))

    # ------------------------------------------------------------------- workloads

    @property
    def usual_shapes(self) -> Shapes:
        """The shapes of the default workload: long arrays, without optional ones."""
        needed = [kind for kind in self.spec.arrays.values() if not kind.optional]
        return (_LONG,) * len(needed)

    def workload(
        self,
        *shapes: tuple[int, ...],
        dtypes: tuple[str, ...] | str | None = None,
        threads: int = 0,
        **attributes: object,
    ) -> Workload:
        """The workload of a call with arrays of these shapes, flattened."""
        flat = ((math.prod(shape),) for shape in shapes)
        return super().workload(*flat, dtypes=dtypes, threads=threads, **attributes)

    def shape(self, *shapes: tuple[int, ...], **_: object) -> Any:
        """The common shape of all arrays."""
        of_one_shape(self.id, tuple(self.spec.arrays), shapes)
        return (shapes or self.usual_shapes)[0]

    def updating(
        self,
        given: Sequence[tuple[Any, ...] | None],
        attributes: Mapping[str, Any],
        target: Any,
    ) -> Updating:
        """The kernel for the types of the first set, built once.

        Raises:
            DTypeError: the types do not match each other.
        """
        key = (target, *attributes.values(), *map(_kind, given))
        found: Updating | None = self.kernels.get(key)
        if found is None:
            by_name = dict(zip(self.spec.arrays, given, strict=True))
            names = tuple(name for name, of in by_name.items() if of)
            kinds = kinds_of(self.id, names, [of[0].dtype for of in given if of])
            absent = " ".join(name for name in by_name if name not in names)
            long, named = (_LONG,) * len(names), {**attributes, ABSENT: absent}
            workload = self.workload(*long, dtypes=kinds, **named)
            kernel = self.build(workload, target)
            found = Updating(self, names, attributes, target, kernel)
            self.kernels[key] = found
        return found


def update(id: str, **options: object) -> Callable[[Body], Update]:
    """Decorator: make an in-place operator from the definition of one element.

    Args:
        id: The canonical id, such as `my.decay`.
        options: As for `Operator`.

    Raises:
        OperatorError: the name is not an identifier, or is taken.
    """
    return decorator(Update, id, options)
