"""Operators on tensors: from a call to canonical shapes, one kernel for all batches.

A *plan* brings the arguments of a call into canonical shapes (all dimensions of an
elementwise call as one, all rows of a softmax as one) and says what comes out. Some
dimensions of the canonical shapes are symbolic: their names stand in `names`, their
sizes are told to the kernel at each call, so one kernel serves every batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError, TensorlangError
from tensorlang.ops import on_torch
from tensorlang.ops.dispatch import NOWHERE, Late, own
from tensorlang.ops.operator import Algorithm, Front, Launch, Operator
from tensorlang.workload import Workload, attributes_of

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.definition import Definition

FLOATS: Final = ("f32", "bf16", "f16", "f64")
Shape: TypeAlias = tuple[int, ...]
# an array or a Python number; one number for all dimensions or one each; extents
Operand: TypeAlias = Any
Ints: TypeAlias = "int | Sequence[int]"
Sizes: TypeAlias = Ints
Padding: TypeAlias = "Ints | Sequence[tuple[int, int]] | str"
MOST_ELEMENTS: Final = 1 << 48  # of an array: more than any memory holds
MOST_DIMENSIONS: Final = 64  # of an array of NumPy's
_MOST_KNOWN: Final = 4096
_SHAPE_AND_TYPE: Final = attrgetter("shape", "dtype")
# the name of each dimension of each input, None where its size is fixed
Names: TypeAlias = tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call comes to.

    Attributes:
        shapes: Canonical shape of each input.
        dtypes: Our name of each input's type.
        results: Shape of each result as the caller sees it, one for all alike; empty
            where each is what the definition gives.
        attributes: Static attributes of the workload, canonical ones included.
    """

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    results: tuple[Shape, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


# from shapes, our names of types and attributes of a call
Planner: TypeAlias = (
    "Callable[[tuple[Shape, ...], tuple[str, ...], dict[str, Any]], Plan]"
)
Namer: TypeAlias = "Callable[[Workload], Names]"
# the scalars of a workload's kernel, with a usual value each
Usual: TypeAlias = "Callable[[Workload], Mapping[str, Any]]"


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A kernel and how a call's arrays are laid before it.

    Attributes:
        launch: The kernel's fastest call.
        inputs: Canonical shapes, None where the caller's shape is canonical.
        results: Shape for the caller, canonical shape, and type of each result.
        reshaped: Whether there is an input whose canonical shape is another one.
        single: The only result, or None where they are a tuple.
        small: Whether that one is so small that NumPy's allocator is best.
        check: Refuses scalars that are out of their domain.
    """

    launch: Callable[..., Any]
    inputs: tuple[Shape | None, ...]
    results: tuple[tuple[Shape, Shape, np.dtype[Any]], ...]
    reshaped: bool
    single: tuple[Shape, Shape, np.dtype[Any]] | None
    small: bool
    check: Callable[[Sequence[Any]], None] | None = None

    @classmethod
    def of(
        cls,
        launch: Callable[..., Any],
        inputs: tuple[Shape | None, ...],
        results: tuple[tuple[Shape, Shape, np.dtype[Any]], ...],
        check: Callable[[Sequence[Any]], None] | None = None,
        *,
        several: bool = False,
    ) -> Ready:
        """A kernel, with what follows from the shapes that it takes and gives."""
        from tensorlang.runtime.buffers import SMALLEST  # noqa: PLC0415 - to prepare

        single = results[0] if len(results) == 1 and not several else None
        small = single and math.prod(single[0]) * single[2].itemsize < SMALLEST
        reshaped = any(shape is not None for shape in inputs)
        return cls(launch, inputs, results, reshaped, single, bool(small), check)


class TensorOperator(Operator):
    """An operator whose calls go by a plan; see `tensor_operator`."""

    plan: Planner
    names: Namer
    variants: Callable[[Workload], tuple[Workload, ...]]

    def workload(
        self,
        *shapes: tuple[int, ...],
        dtypes: tuple[str, ...] | str | None = None,
        threads: int = 0,
        **attributes: Any,
    ) -> Workload:
        """The workload of a call with arrays of these shapes, in canonical form."""
        asked = Operator.workload(
            self, *shapes, dtypes=dtypes, threads=threads, **attributes
        )
        if not shapes:
            return asked
        plan = planned(self, asked.shapes, asked.dtypes, asked.named)
        return Workload(
            self.id, plan.shapes, plan.dtypes, attributes_of(plan.attributes), threads
        )

    def prepared(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        attributes: dict[str, Any],
        target: Any,
    ) -> Ready:
        """Plan a call, and find its kernel: one for all symbolic sizes."""
        from tensorlang.ir.dtypes import DType, as_dtype  # noqa: PLC0415 - to prepare

        kinds = tuple(as_dtype(array.dtype).name for array in arrays)
        if self.dtypes and kinds and kinds[0] not in self.dtypes:
            raise DTypeError(
                f"{self.id} takes {', '.join(self.dtypes)}, not {kinds[0]}; "
                "cast it first"
            )
        given = tuple(array.shape for array in arrays)
        plan = planned(self, given, kinds, attributes)
        named = attributes_of(plan.attributes)
        workload = Workload(self.id, plan.shapes, plan.dtypes, named)
        made = derived(self, plan)
        canonical = tuple(shape for shape, _ in made)
        results = plan.results or canonical
        results *= len(made) if len(results) == 1 else 1
        for shown, inner in zip(results, canonical, strict=True):
            if math.prod(shown) != math.prod(inner):
                raise ShapeError(f"{self.id}: a result of shape {inner} is no {shown}")
        inputs = tuple(
            None if shape == own_shape else shape
            for shape, own_shape in zip(plan.shapes, given, strict=True)
        )
        outputs = tuple(
            (shown, inner, DType(dtype).numpy)
            for shown, (inner, dtype) in zip(results, made, strict=True)
        )
        return Ready.of(_kernel(self, workload, target), inputs, outputs)

    def shape(self, *shapes: tuple[int, ...], **attributes: Any) -> Any:
        """The result's shape for arrays of these shapes: a tuple each; no data."""
        asked = Operator.workload(self, *shapes, **attributes)
        plan = planned(self, asked.shapes, asked.dtypes, asked.named)
        made = derived(self, plan)
        results = plan.results or tuple(shape for shape, _ in made)
        results *= len(made) if len(results) == 1 else 1
        return results[0] if len(results) == 1 else results


def tensor_operator(
    id: str,
    define: str,
    *,
    plan: Planner,
    names: Namer,
    shapes: tuple[Shape, ...],
    dtypes: tuple[str, ...] | str = "f32",
    attributes: Mapping[str, Any] | None = None,
    scalars: Mapping[str, float] | Usual | None = None,
    allowed: tuple[str, ...] = FLOATS,
    variants: Callable[[Workload], tuple[Workload, ...]] | None = None,
    **options: Any,
) -> Callable[[Front], TensorOperator]:
    """An operator of the library; the decorated front ends in `call`.

    Args:
        id: Its canonical id, such as `nn.softmax`.
        define: `module:function`, imported at first use. It is called with one
            placeholder an input, whose symbolic dimensions are variables, the scalars
            as variables of their names, and the attributes; it returns a tensor or
            several.
        plan: From a call's shapes, types and attributes to its `Plan`; raises
            `ShapeError` or `ArgumentError` where they do not fit.
        names: From a workload to the names of its symbolic dimensions.
        shapes: The default workload's, of whole arrays as a caller gives them.
        dtypes: The default workload's types, or the one of all.
        attributes: The attributes with their defaults.
        scalars: Numbers given at each call, with a usual value each; where they depend
            on the workload, a function of it.
        allowed: The element types that the first input may have.
        variants: The workloads whose kernels serve other ranges of a workload's
            symbolic sizes; built with it.
        options: As for `Operator`.
    """
    usual = scalars if callable(scalars) else _always(dict(scalars or {}))
    kinds = (dtypes,) * len(shapes) if isinstance(dtypes, str) else dtypes

    def make(front: Front) -> TensorOperator:
        planned = plan(shapes, kinds, dict(attributes or {}))
        default = Workload(
            id, planned.shapes, planned.dtypes, attributes_of(planned.attributes)
        )
        made = TensorOperator.__new__(TensorOperator)
        made.plan, made.names = plan, names
        made.variants = variants or (lambda _: ())
        Operator.__init__(
            made,
            id,
            _definition(define, made, usual),
            front,
            default=default,
            dtypes=allowed,
            sizes=lambda workload: sizes_of(workload, names(workload)),
            scalars=usual,
            **options,
        )
        return made

    return make


def _always(usual: dict[str, Any]) -> Usual:
    return lambda _: usual


def tensor_algorithm(
    op: TensorOperator,
    name: str,
    define: str,
    serves: Callable[[Workload], bool],
    tolerance: float = 0.0,
    *,
    feature: str = "",
    finite: bool = False,
    scalars: Usual = lambda _: {},
) -> None:
    """Another definition of an operator: `module:function` as the first.

    Args:
        op: The operator.
        name: The algorithm's name.
        define: Where its definition is.
        serves: Which workloads it can compute.
        tolerance: The relative error it may have; 0 where it is as exact.
        feature: What a target has that it is made for.
        finite: Whether infinities and NaNs may spread; see `Algorithm`.
        scalars: Those of the operator, where it has some.
    """
    made = _definition(define, op, scalars)
    op.algorithms[name] = Algorithm(name, made, serves, tolerance, feature, finite)


def sizes_of(workload: Workload, names: Names) -> dict[str, int]:
    """The sizes of a workload's symbolic dimensions, by name."""
    return {
        name: extent
        for shape, called in zip(workload.shapes, names, strict=True)
        for extent, name in zip(shape, called, strict=True)
        if name is not None
    }


def _definition(
    place: str, op: TensorOperator, usual: Usual
) -> Callable[[Workload], Function]:
    """From a workload to IR, by the function at `module:function`."""
    module, _, name = place.partition(":")

    def define(workload: Workload) -> Function:
        from importlib import import_module  # noqa: PLC0415 - only to build

        from tensorlang.ops.assembling import defined  # noqa: PLC0415 - only to build

        body = getattr(import_module(module), name)
        return defined(body, workload, op.names(workload), usual(workload))

    return define


# ----------------------------------------------------------------------- calls


def call(  # noqa: PLR0917 - by position, for speed
    op: TensorOperator | Definition,
    arrays: Sequence[Any],
    attributes: dict[str, Any],
    scalars: tuple[Any, ...],
    target: Any,
    out: Any,
) -> Launch:
    """The launch of a call: the end of every front.

    Args:
        op: The operator.
        arrays: What the caller gave.
        attributes: Static attributes by name, in the operator's own order; hashable.
        scalars: The kernel's scalars.
        target: Where to compute.
        out: An array, or a tuple of them where there are several results.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    given, asked = arrays, target
    for array in arrays:
        if type(array) is not np.ndarray:
            held = on_torch.in_host_memory(arrays)
            if held is not None:
                like, arrays, there = array, held, None
                break
            again = on_torch.repeated(op, arrays, attributes, scalars, target, out)
            if again is not None:
                return again
            like, arrays, there = _views(op, arrays)
            break
    else:
        like = there = None
    if target is None:
        if there is None and out is not None and type(out) is not np.ndarray:
            there = _place_of(op, out)
        target = there
    key = (target, *attributes.values(), *map(_SHAPE_AND_TYPE, arrays))
    ready = op.kernels.get(key) or _prepared(op, key, arrays, attributes, target)
    if ready.check is not None:
        ready.check(scalars)
    if there is not None:
        on_torch.remember(op, given, attributes, asked, ready)
    if ready.reshaped:
        arrays = [
            array if shape is None else array.reshape(shape)
            for array, shape in zip(arrays, ready.inputs, strict=True)
        ]
    if not ready.results:
        return ready.launch, (*arrays, *scalars), None
    if out is None:
        if ready.small and ready.single and there is None:
            shape, inner, dtype = ready.single
            made = np.empty(shape, dtype)
            flat = made if shape == inner else made.reshape(inner)
            result = made if like is None else Late(made, _kind(like))
            return ready.launch, (*arrays, flat, *scalars), result
        outs, shown = _fresh(op, ready, like)
        return ready.launch, (*arrays, *outs, *scalars), shown
    if type(out) is np.ndarray and ready.single:
        shape, inner, dtype = ready.single
        if out.shape == shape and out.dtype is dtype and out.flags.carray:
            flat = out if shape == inner else out.reshape(inner)
            return ready.launch, (*arrays, flat, *scalars), out
    outs, back = _given(op, ready, out)
    launch = _CopiedBack(ready.launch, back) if back else ready.launch
    return launch, (*arrays, *outs, *scalars), out


def viewed(  # noqa: PLR0917 - as `call`
    op: Definition,
    arrays: Sequence[Any],
    attributes: dict[str, Any],
    scalars: tuple[Any, ...],
    target: Any,
    out: Any,
) -> Launch:
    """The launch of a call whose result is the first array in another shape.

    It is a view, unless there is an `out`; JAX's arrays and those on devices are
    copied.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    if out is not None:
        return call(op, arrays, attributes, scalars, target, out)
    array, like = arrays[0], None
    if type(array) is not np.ndarray:
        like, (array, *_), _ = _views(op, arrays)
        if type(array) is not np.ndarray or _kind(like) != "torch":
            return call(op, arrays, attributes, scalars, target, out)
    key = (array.shape, array.dtype, *attributes.values())
    shape = op.kernels.get(key)
    if shape is None:
        shape = _seen_as(op, key, array, attributes)
    shown = array.reshape(shape)
    return _nothing, (), shown if like is None else Late(shown, "torch")


def _seen_as(
    op: Definition, key: Hashable, array: Any, attributes: dict[str, Any]
) -> Shape:
    """The shape that an array is seen in, for which nothing is traced."""
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only to prepare

    assert op.view is not None
    try:
        as_dtype(array.dtype)
        shape = op.view(array.shape, **attributes)
    except TensorlangError:
        ready = _prepared(op, key, [array], attributes, NOWHERE)  # says whose it is
        shape = ready.results[0][0]
    check_result(op.id, shape)
    if len(op.kernels) > _MOST_KNOWN:
        op.kernels.clear()
    op.kernels[key] = shape
    return shape


def _prepared(
    op: TensorOperator | Definition,
    key: Hashable,
    arrays: Sequence[Any],
    attributes: dict[str, Any],
    target: Any,
) -> Ready:
    if len(op.kernels) > _MOST_KNOWN:  # of a program whose shapes never end
        op.kernels.clear()
    ready: Ready = op.prepared(arrays, attributes, target)
    op.kernels[key] = ready
    return ready


def _nothing() -> None:
    """Launch nothing: the result is a view."""


def _kind(like: Any) -> str:
    from tensorlang.runtime.arrays import kind_of  # noqa: PLC0415 - loads the runtime

    return kind_of(like)


def _views(op: Operator, arrays: Sequence[Any]) -> tuple[Any, list[Any], str | None]:
    """What results are like, the arrays where they lie, and the target there.

    Raises:
        ArgumentError: they are on several devices, or one is no array.
    """
    from tensorlang.runtime.given_arrays import seen, where  # noqa: PLC0415 - runtime

    own(*arrays)
    found = [seen(array, f"{op.id}: argument {at}") for at, array in enumerate(arrays)]
    there = where(found)
    like: Any = next(a for a in arrays if type(a) is not np.ndarray)
    if there is not None:
        like = next(a for a in found if type(a) is not np.ndarray)
    return like, found, there


def _place_of(op: Operator, out: Any) -> str | None:
    """The target where the caller's `out` is; None where it is in host memory."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    if all(type(each) is np.ndarray for each in outs):
        return None
    from tensorlang.runtime.given_arrays import target_of  # noqa: PLC0415 - runtime

    return target_of(op.id, outs)


def _kernel(op: TensorOperator, workload: Workload, target: Any) -> Callable[..., Any]:
    """The kernel of a workload: of all that differ in symbolic sizes only, the same.

    With the first one come the variants for other ranges of the symbolic sizes, so that
    another batch never waits for a compiler.
    """
    key: Hashable = ("kernel", static(workload, op.names(workload)), target)
    if key not in op.kernels:
        for each in (workload, *op.variants(workload)):
            again: Hashable = ("kernel", static(each, op.names(each)), target)
            op.kernels[again] = op.build(each, target).launch
    found: Callable[..., Any] = op.kernels[key]
    return found


def static(workload: Workload, names: Names) -> Hashable:
    """What a workload's kernel depends on: everything but its symbolic sizes."""
    shapes = tuple(
        tuple(
            extent if name is None else name
            for extent, name in zip(shape, called, strict=True)
        )
        for shape, called in zip(workload.shapes, names, strict=True)
    )
    return shapes, workload.dtypes, workload.attributes


def planned(
    op: TensorOperator,
    shapes: tuple[Shape, ...],
    dtypes: tuple[str, ...],
    attributes: dict[str, Any],
) -> Plan:
    """The plan of a call.

    Raises:
        ShapeError: a result would be larger than any memory.
    """
    plan = op.plan(shapes, dtypes, attributes)
    for shape in plan.results:
        check_result(op.id, shape)
    return plan


def check_result(id: str, shape: Shape) -> None:
    """Refuse results that no array can be.

    Raises:
        ShapeError: one has more elements than any memory, or too many dimensions.
    """
    if math.prod(shape) > MOST_ELEMENTS:
        raise ShapeError(
            f"{id}: a result of shape {shape} has more than 2**48 elements; ask for "
            "fewer"
        )
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeError(
            f"{id}: a result of {len(shape)} dimensions has more than the 64 that "
            "arrays may have"
        )


def derived(op: TensorOperator, plan: Plan) -> tuple[tuple[Shape, str], ...]:
    """Shape and type of each result by the definition alone, no data."""
    from tensorlang.ops.examples import shapes  # noqa: PLC0415 - only to prepare

    workload = Workload(op.id, plan.shapes, plan.dtypes, attributes_of(plan.attributes))
    names = op.names(workload)
    key: Hashable = ("function", static(workload, names))
    func = op.kernels.get(key)
    if func is None:
        func = op.kernels[key] = op.function(workload)
    known = shapes(func, sizes_of(workload, names))
    return tuple(
        (known[param.buffer.name], param.buffer.dtype.name)
        for param in func.params
        if param.role == "out"
    )


def _fresh(op: Operator, ready: Ready, like: Any) -> tuple[list[Any], Any]:
    from tensorlang.ops.results import empty  # noqa: PLC0415 - loads the runtime

    outs, shown = [], []
    for shape, inner, dtype in ready.results:
        array, result = empty(op.id, shape, dtype, like)
        outs.append(array if shape == inner else array.reshape(inner))
        shown.append(result)
    return outs, shown[0] if ready.single else tuple(shown)


def _given(
    op: Operator, ready: Ready, out: Any
) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """The memory of the caller's `out`, and what is to be copied there afterwards."""
    from tensorlang.ops.results import given  # noqa: PLC0415 - loads the runtime

    several = ready.single is None
    wanted = tuple(out) if several and isinstance(out, (tuple, list)) else (out,)
    if len(wanted) != len(ready.results):
        raise ArgumentError(
            f"{op.id} has {len(ready.results)} results, out= gives {len(wanted)}"
        )
    outs, back = [], []
    for held, (shape, inner, dtype) in zip(wanted, ready.results, strict=True):
        array = held
        plain = type(held) is np.ndarray and held.dtype is dtype
        if not (plain and held.shape == shape and held.flags.carray):
            array = given(op.id, held, shape, dtype)
        if shape == inner:
            outs.append(array)
        elif array.flags.carray:
            outs.append(array.reshape(inner))
        else:
            if type(array) is not np.ndarray:
                from tensorlang.runtime.device_arrays import (  # noqa: PLC0415 - as above
                    not_in_a_row,
                )

                raise ArgumentError(not_in_a_row(f"{op.id}: out", array))
            spare = np.empty(inner, dtype)
            outs.append(spare)
            back.append((array, spare))
    return outs, back


@dataclass(frozen=True, slots=True, eq=False)
class _CopiedBack:
    """A launch whose results are then copied into arrays that are not in a row."""

    launch: Callable[..., Any]
    back: list[tuple[Any, Any]]

    def __call__(self, *args: Any) -> None:
        self.launch(*args)
        for array, spare in self.back:
            np.copyto(array, spare.reshape(array.shape))


# ------------------------------------------------------------- common planning


def of_one_type(id: str, dtypes: tuple[str, ...]) -> str:
    """The type that all inputs have.

    Raises:
        DTypeError: they differ.
    """
    if len(set(dtypes)) > 1:
        raise DTypeError(
            f"{id}: its arrays have one element type, not {', '.join(dtypes)}; "
            "cast them to one"
        )
    return dtypes[0]


def axis_of(id: str, axis: Any, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ArgumentError: there is no such axis.
    """
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentError(f"{id}: axis is a whole number, not {axis!r}")
    if not -rank <= axis < rank:
        raise ArgumentError(
            f"{id}: axis {axis} does not exist in an array of {rank} dimensions"
        )
    return int(axis) % rank


def same(id: str, operands: tuple[str, ...], shapes: tuple[Shape, ...]) -> Shape:
    """The shape that all arrays have.

    Raises:
        ShapeError: they differ; names the first two that do.
    """
    for name, shape in zip(operands, shapes, strict=False):
        if shape != shapes[0]:
            raise ShapeError(
                f"{id}: {operands[0]} has shape {shapes[0]}, {name} has {shape}; "
                "they must be the same"
            )
    return shapes[0]


def broadcast(id: str, shapes: tuple[Shape, ...]) -> Shape:
    """The shape that all shapes broadcast to, as in NumPy.

    Raises:
        ShapeError: they do not.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(map(str, shapes))
        raise ShapeError(f"{id}: shapes {listed} do not broadcast") from None


def collapse(shapes: tuple[Shape, ...], result: Shape) -> tuple[Shape, ...]:
    """The shapes with runs of dimensions that behave alike made one.

    All get the same number of dimensions, 1 where one is broadcast:
    (8, 4, 5) with (4, 5) become (8, 20) and (1, 20).
    """
    rank = len(result)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    real = [at for at in range(rank) if result[at] != 1]
    runs = [
        list(run)
        for _, run in groupby(real, lambda at: tuple(s[at] == 1 for s in padded))
    ]
    return tuple(
        tuple(math.prod(shape[at] for at in run) for run in runs or [[]])
        for shape in padded
    )


def dimension_names(workload: Workload) -> Names:
    """Every dimension symbolic, but for the 1 of a broadcast."""
    rank = len(workload.shapes[0])
    present = [any(shape[at] != 1 for shape in workload.shapes) for at in range(rank)]
    return tuple(
        tuple(
            None if shape[at] == 1 and (present[at] or rank > 1) else f"n{at}"
            for at in range(rank)
        )
        for shape in workload.shapes
    )
