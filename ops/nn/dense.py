"""Dense layers: matrix products with everything that follows fused in.

A packed weight (`prepack`) is a typed value: its strips of columns lie as the inner
loop reads them, so a call packs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn.winograd_packing import (
    CONVOLUTION,
    PackedWindows,
    pack,
    read_only,
)
from tensorlang.ops.tensors import (
    FLOATS,
    Names,
    Plan,
    Shape,
    call,
    of_one_type,
    tensor_algorithm,
    tensor_operator,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorlang.ops.operator import Launch, Operator
    from tensorlang.ops.random.keys import Key
    from tensorlang.workload import Workload

LAYOUTS: Final = ("oi", "io")
PACKED: Final = "packed"
ACTIVATIONS: Final = (None, "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")
_MANY: Final = 64  # rows that stand for all numbers of them but one
STRIP: Final = 32  # columns: two vectors of f32, a register tile's
_HERE: Final = "tensorlang.ops.nn.dense_definitions"
TF32_TOLERANCE: Final = 2.0**-10  # two roundings to 10 bits after the point


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """A weight in the layout that an operator's inner loop reads.

    Attributes:
        operator: The id of the operator that it is for.
        array: Strips `[ceil(out / 32), in, 32]`, columns past the end 0; read-only.
        shape: The logical shape, `(out, in)`.
    """

    operator: str
    array: NDArray[Any]
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.array.dtype

    def unpack(self) -> NDArray[Any]:
        """The weight as `[out, in]`: a copy."""
        columns, depth = self.shape
        rows = self.array.transpose(0, 2, 1).reshape(-1, depth)
        return np.ascontiguousarray(rows[:columns])


def prepack(
    op: Operator, w: Any, *, layout: str = "oi", tolerance: float | None = None
) -> PackedWeight | PackedWindows:
    """A weight packed once for many calls of `op`.

    Args:
        op: `nn.dense`, or `nn.conv2d` for windows of 3 by 3.
        w: `[out, in]`, or `[in, out]` with `layout="io"`; of a convolution, `[out, in,
            3, 3]`.
        layout: Which of the first two.
        tolerance: Of a convolution, the error that is allowed, as in its calls: packed
            are weights of Winograd's algorithms.

    Raises:
        ArgumentError: the operator takes no packed weights, or no such layout; no
            algorithm that takes them is as exact.
        ShapeError: the weight is no matrix, or its windows are others.
        DTypeError: it is not of floats.
    """
    id = getattr(op, "id", None)
    if id not in (CONVOLUTION, dense.id):
        raise ArgumentError(
            f"{id or repr(op)} takes no packed weight; nn.dense and nn.conv2d do"
        )
    if tolerance is not None and not isinstance(tolerance, (int, float)):
        raise ArgumentError(
            f"nn.prepack: tolerance is None or a number, not {tolerance!r}"
        )
    if id == CONVOLUTION:
        return pack(w, tolerance)
    if tolerance is not None:
        raise ArgumentError(
            "nn.prepack: weights of nn.dense are packed as they are, "
            "without a tolerance"
        )
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only to pack
    from tensorlang.runtime import buffers  # noqa: PLC0415 - loads the runtime
    from tensorlang.runtime.arrays import view  # noqa: PLC0415 - the same

    if layout not in LAYOUTS:
        raise ArgumentError(f"nn.prepack: layout is 'oi' or 'io', not {layout!r}")
    array = view(w, "nn.prepack: w")
    if array.ndim != 2:
        raise ShapeError(f"nn.prepack: w is a matrix, not of shape {array.shape}")
    if as_dtype(array.dtype).name not in FLOATS:
        raise DTypeError(
            f"nn.prepack: w is one of {', '.join(FLOATS)}, not {array.dtype}; cast it"
        )
    rows = array if layout == "oi" else array.T
    columns, depth = rows.shape
    strips = -(-columns // STRIP)
    whole = np.zeros((strips * STRIP, depth), array.dtype)
    whole[:columns] = rows
    packed = buffers.empty((strips, depth, STRIP), array.dtype)  # on cache lines
    packed[...] = whole.reshape(strips, STRIP, depth).transpose(0, 2, 1)
    if packed.size:
        packed = read_only(packed)
    return PackedWeight(dense.id, packed, (columns, depth))


def _plan(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], given: dict[str, Any]
) -> Plan:
    names = _inputs(given, len(shapes))
    by_name = dict(zip(names, shapes, strict=True))
    kinds = [kind for name, kind in zip(names, dtypes, strict=True) if name != "key"]
    of_one_type("nn.dense", tuple(kinds))
    x, w = by_name["x"], by_name["w"]
    layout = given["layout"]
    columns, depth = _matrix(w, layout, given["columns"])
    if not x or x[-1] != depth:
        raise ShapeError(
            f"nn.dense: x of shape {x} does not end in the {depth} inputs of a weight "
            f"of shape {w} (layout {layout!r})"
        )
    result = (*x[:-1], columns)
    rows = math.prod(x[:-1])
    canonical = {"x": (rows, depth), "w": w}
    if "b" in by_name:
        if by_name["b"] != (columns,):
            raise ShapeError(
                f"nn.dense: the bias has shape {by_name['b']}, not ({columns},)"
            )
        canonical["b"] = by_name["b"]
    if "residual" in by_name:
        if by_name["residual"] != result:
            raise ShapeError(
                f"nn.dense: the residual has shape {by_name['residual']}, the result "
                f"{result}"
            )
        canonical["residual"] = (rows, columns)
    if "key" in by_name:
        canonical["key"] = by_name["key"]
    attributes = {**given, "columns": columns, "inputs": " ".join(names)}
    if not _allows_tf32(attributes.pop("tolerance", None), dtypes[0], layout):
        return Plan(tuple(canonical[n] for n in names), dtypes, (result,), attributes)
    attributes["tolerance"] = TF32_TOLERANCE
    return Plan(tuple(canonical[n] for n in names), dtypes, (result,), attributes)


def _allows_tf32(tolerance: Any, dtype: str, layout: str) -> bool:
    """Whether a call allows the rounding, and it changes anything.

    Raises:
        ArgumentError: the tolerance is no relative error.
    """
    number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if tolerance is not None and not (number and tolerance >= 0):
        raise ArgumentError(
            f"nn.dense: tolerance is None or a relative error from 0, not {tolerance!r}"
        )
    wide = dtype == "f32" and layout != PACKED
    return bool(wide and tolerance is not None and tolerance >= TF32_TOLERANCE)


def _rounds(workload: Workload) -> bool:
    """Whether a workload allows tf32."""
    given = workload.named.get("tolerance")
    return isinstance(given, float) and given >= TF32_TOLERANCE


def _inputs(given: dict[str, Any], count: int) -> tuple[str, ...]:
    """The names of the arrays: as the front says, or the first ones."""
    named = str(given.get("inputs") or "").split()
    return tuple(named) if len(named) == count else ("x", "w", "b")[:count]


def _matrix(w: Shape, layout: str, columns: int) -> tuple[int, int]:
    """Columns and depth of a weight.

    Raises:
        ShapeError: it is no matrix.
    """
    if layout == PACKED:
        if len(w) != 3 or w[2] != STRIP or (columns and w[0] != -(-columns // STRIP)):
            raise ShapeError(
                f"nn.dense: an array of shape {w} holds no packed weight of {columns} "
                "columns; nn.prepack makes one"
            )
        return columns or w[0] * w[2], w[1]
    if len(w) != 2:
        raise ShapeError(f"nn.dense: the weight is a matrix, not of shape {w}")
    return w if layout == "oi" else (w[1], w[0])


def _variants(workload: Workload) -> tuple[Workload, ...]:
    """One row, or many: the other kernel."""
    names = _inputs(workload.named, len(workload.shapes))
    rows = _MANY if workload.shapes[0][0] == 1 else 1
    shapes = (
        (rows, *shape[1:]) if name in ("x", "residual") else shape
        for name, shape in zip(names, workload.shapes, strict=True)
    )
    return (workload.with_shapes(*shapes),)


def _from_sizes(given: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """MxNxK as the shapes of x and w."""
    if len(given) == 1 and len(given[0]) == 3:
        rows, columns, depth = given[0]
        return (rows, depth), (columns, depth)
    return given


def _names(workload: Workload) -> Names:
    """Rows are symbolic, unless there is one: that is another kernel."""
    names = _inputs(workload.named, len(workload.shapes))
    rows = "m" if workload.shapes[0][0] != 1 else None
    return tuple(
        (rows, None) if name in ("x", "residual") else (None,) * len(shape)
        for name, shape in zip(names, workload.shapes, strict=True)
    )


@tensor_operator(
    "nn.dense",
    f"{_HERE}:dense",
    plan=_plan,
    names=_names,
    shapes=((1024, 1024), (1024, 1024)),
    attributes={
        "layout": "oi",
        "columns": 0,
        "activation": "none",
        "how": "none",
        "inputs": "",
    },
    scalars=lambda w: {"keep": 0.5} if "key" in _inputs(w.named, len(w.shapes)) else {},
    aliases=("dense",),
    scheduled_as="",
    shorthand=_from_sizes,
    variants=_variants,
)
def dense(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    activation: str | None = None,
    layout: str = "oi",
    residual: Any = None,
    dropout: float = 0.0,
    key: Key | None = None,
    tolerance: float | None = None,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """dropout(activation(x w^T + b)) + residual, with no array in between.

    It is one pass over the result, unless the reduction is deep: that one is cut into
    parts, each of which is added to the sums so far in a pass of its own.

    Args:
        x: Floats `[..., in]`.
        w: `[out, in]`, or `[in, out]` with `layout="io"`, or a `PackedWeight`.
        b: `[out]`, or None.
        activation: None, `relu`, `gelu`, `gelu_tanh`, `silu`, `sigmoid` or `tanh`.
        layout: The weight's; a packed one knows its own.
        residual: `[..., out]`, added last, or None.
        dropout: The share that is dropped, 0 <= dropout < 1, with the mask of
            `nn.dropout` for the result's shape.
        key: For dropout; consumed.
        tolerance: The error that is allowed, relative to a result or the mean one,
            besides that of f32: from 2**-10 tensor cores may round f32 to tf32.
        target: Where to compute.
        out: Where the result goes, `[..., out]`.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"nn.dense: activation {activation!r} is none of "
            f"{', '.join(map(str, ACTIVATIONS))}"
        )
    if layout not in LAYOUTS:
        raise ArgumentError(f"nn.dense: layout is 'oi' or 'io', not {layout!r}")
    columns = 0
    if type(w) is PackedWeight:
        if w.operator != dense.id:
            raise ArgumentError(f"nn.dense: this weight was packed for {w.operator}")
        layout, columns, w = PACKED, w.shape[0], w.array
    arrays, inputs = [x, w], "x w"
    for name, value in (("b", b), ("residual", residual)):
        if value is not None:
            arrays.append(value)
            inputs = f"{inputs} {name}"
    attributes = {
        "layout": layout,
        "columns": columns,
        "activation": activation or "none",
        "how": "none",
        "inputs": inputs,
    }
    if tolerance is not None:
        attributes["tolerance"] = tolerance
    if key is None and not dropout:
        return call(dense, arrays, attributes, (), target, out)
    return _dropped(arrays, attributes, dropout, key, target, out)


tensor_algorithm(
    dense, "tf32", f"{_HERE}:dense_tf32", _rounds, TF32_TOLERANCE, feature="mma"
)


def _dropped(  # noqa: PLR0917 - as `call`
    arrays: list[Any],
    attributes: dict[str, Any],
    rate: float,
    key: Any,
    target: Any,
    out: Any,
) -> Launch:
    """The launch with dropout at the end; the key is consumed last."""
    from tensorlang.ops.nn.dropout import scalars  # noqa: PLC0415 - only where it is used
    from tensorlang.ops.random.keys import Key  # noqa: PLC0415 - the same

    own(*arrays, key)
    if not isinstance(key, Key) or key.ndim:
        raise ArgumentError(
            "nn.dense: dropout takes one Key as key=, not "
            f"{'a batch' if isinstance(key, Key) else type(key).__name__}"
        )
    scalars(float(rate), np.dtype(np.float32))
    attributes |= {"how": key.impl, "inputs": f"{attributes['inputs']} key"}
    keep = float(np.float32(1.0 - float(rate)))
    made = call(dense, [*arrays, key.words], attributes, (keep,), target, out)
    key.consume("drawn from", 3)
    return made


def _grad_plan(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], given: dict[str, Any]
) -> Plan:
    dy, x, w = shapes
    of_one_type("nn.dense_grad", dtypes)
    columns, depth = _matrix(w, given["layout"], 0)
    if not x or x[-1] != depth or dy != (*x[:-1], columns):
        raise ShapeError(
            f"nn.dense_grad: dy of shape {dy}, x of {x} and w of {w} (layout "
            f"{given['layout']!r}) are not of one dense layer"
        )
    rows = math.prod(x[:-1])
    canonical = ((rows, columns), (rows, depth), w)
    return Plan(canonical, dtypes, (x, w, (columns,)), given)


def _grad_names(workload: Workload) -> Names:
    """Rows are symbolic, unless there is one: then no product is summed."""
    rows = "m" if workload.shapes[0][0] != 1 else None
    return ((rows, None), (rows, None), (None, None))


def _grad_variants(workload: Workload) -> tuple[Workload, ...]:
    """One row, or many: the other kernel."""
    dy, x, w = workload.shapes
    rows = _MANY if dy[0] == 1 else 1
    return (workload.with_shapes((rows, *dy[1:]), (rows, *x[1:]), w),)


@tensor_operator(
    "nn.dense_grad",
    f"{_HERE}:dense_grad",
    plan=_grad_plan,
    names=_grad_names,
    shapes=((1024, 1024), (1024, 1024), (1024, 1024)),
    attributes={"layout": "oi"},
    scheduled_as="",
    variants=_grad_variants,
)
def dense_grad(
    dy: Any, x: Any, w: Any, *, layout: str = "oi", target: Any = None, out: Any = None
) -> Launch:
    """The gradients (dx, dw, db) of `dense` without activation.

    Args:
        dy: The gradient of the result, `[..., out]`.
        x: `[..., in]`.
        w: `[out, in]`, or `[in, out]` with `layout="io"`.
        layout: Which of the two.
        target: Where to compute.
        out: Where the three results go.

    Raises:
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    if layout not in LAYOUTS:
        raise ArgumentError(f"nn.dense_grad: layout is 'oi' or 'io', not {layout!r}")
    if type(w) is PackedWeight:
        raise DTypeError("nn.dense_grad takes the weight itself: pass w.unpack()")
    return call(dense_grad, (dy, x, w), {"layout": layout}, (), target, out)
