"""Layer and RMS normalisation over the last dimensions, and their gradients.

Ba, Kiros and Hinton, "Layer normalization", 2016; Zhang and Sennrich, "Root mean square
layer normalization", 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import DTypeError, ShapeError
from tensorlang.ops.binding import number
from tensorlang.ops.tensors import Plan, Shape, TensorOperator, call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

_MANY: Final = 64  # rows that stand for all numbers of them but one
_HERE: Final = "tensorlang.ops.nn.norm_definitions"
_NARROW: Final = ("bf16", "f16")
_ROWS: Final = ("dy", "x")
# the parameters that an operator gives gradients for
_PARAMETERS: Final = {"nn.layer_norm_grad": 2, "nn.rms_norm_grad": 1}


def _names_of(
    asked: dict[str, Any], count: int, all_names: tuple[str, ...]
) -> list[str]:
    """The names of the arrays: as the front says, or the first ones."""
    named = str(asked.get("inputs") or "").split()
    return named if len(named) == count else list(all_names[:count])


def _plan(
    id: str,
    takes: tuple[str, ...],
    shapes: tuple[Shape, ...],
    dtypes: tuple[str, ...],
    asked: dict[str, Any],
) -> Plan:
    names = _names_of(asked, len(shapes), takes)
    given = dict(zip(names, shapes, strict=True))
    x = given["x"]
    if given.get("dy", x) != x:
        raise ShapeError(f"{id}: dy has shape {given['dy']}, x has {x}")
    own = [shape for name, shape in given.items() if name not in _ROWS]
    normal = own[0] if own else x[-1:]
    for name, shape in given.items():
        if name not in _ROWS and (shape != normal or x[len(x) - len(shape) :] != shape):
            raise ShapeError(
                f"{id}: {name} has shape {shape}; it must be that of the last "
                f"dimensions of x, {x}"
            )
    if not normal:
        raise ShapeError(f"{id}: x of shape {x} has no dimension to normalise over")
    _check_types(id, dict(zip(names, dtypes, strict=True)))
    n = math.prod(normal)
    row = (math.prod(x[: len(x) - len(normal)]), n)
    canonical = tuple(row if name in _ROWS else (n,) for name in names)
    results: tuple[Shape, ...] = (x,)
    if "dy" in given and own:
        results = (x, *(normal,) * _PARAMETERS[id])
    return Plan(canonical, dtypes, results, {"inputs": " ".join(names)})


def _check_types(id: str, kinds: dict[str, str]) -> None:
    """Whether all have the type of x; beside f16 and bf16 parameters may be f32.

    Raises:
        DTypeError: they have not.
    """
    rows = {kind for name, kind in kinds.items() if name in _ROWS}
    others = {kind for name, kind in kinds.items() if name not in _ROWS}
    wide = others == {"f32"} and rows <= set(_NARROW)
    if len(rows) == 1 and (wide or others <= rows):
        return
    shown = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    raise DTypeError(
        f"{id}: all arrays have one type, or weight and bias are f32 beside f16 or "
        f"bf16; got {shown}"
    )


def _names(workload: Workload) -> Names:
    """Rows are symbolic; but a gradient of one row sums nothing over them."""
    rows = None if _alone(workload) else "m"
    return tuple((rows, None)[2 - len(shape) :] for shape in workload.shapes)


def _alone(workload: Workload) -> bool:
    gradient = str(workload.named["inputs"]).startswith("dy")
    return gradient and workload.shapes[0][0] == 1


def _variants(workload: Workload) -> tuple[Workload, ...]:
    """Of gradients, the kernel for one row beside that for many."""
    if not str(workload.named["inputs"]).startswith("dy"):
        return ()
    rows = _MANY if _alone(workload) else 1
    shapes = ((rows, s[1]) if len(s) > 1 else s for s in workload.shapes)
    return (workload.with_shapes(*shapes),)


def _operator(
    name: str, takes: tuple[str, ...], eps: float
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    row, n = (512, 4096), (4096,)
    return tensor_operator(
        f"nn.{name}",
        f"{_HERE}:{name}",
        plan=partial(_plan, f"nn.{name}", takes),
        names=_names,
        shapes=tuple(row if each in _ROWS else n for each in takes),
        attributes={"inputs": " ".join(takes)},
        scalars={"eps": eps},
        aliases=(name,),
        scheduled_as="rows",
        variants=_variants,
    )


def _launch(
    op: TensorOperator, arrays: dict[str, Any], eps: Any, target: Any, out: Any
) -> Launch:
    """The launch of a call with those of the arrays that are there."""
    given = {name: array for name, array in arrays.items() if array is not None}
    how = {"inputs": " ".join(given)}
    return call(
        op, tuple(given.values()), how, (number(op.id, "eps", eps),), target, out
    )


@_operator("layer_norm", ("x", "weight", "bias"), 1e-5)
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last dimensions.

    Args:
        x: Floats of one dimension or more.
        weight: Of the shape of the last dimensions, over which mean and variance are
            taken; without weight and bias that is the last one.
        bias: Of the same shape.
        eps: Added to the variance.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    arrays = {"x": x, "weight": weight, "bias": bias}
    return _launch(layer_norm, arrays, eps, target, out)


@_operator("layer_norm_grad", ("dy", "x", "weight"), 1e-5)
def layer_norm_grad(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradients of `nn.layer_norm` for x, weight and bias.

    Args:
        dy: The gradient of the result.
        x: As for `nn.layer_norm`.
        weight: As for `nn.layer_norm`; without it there is the gradient for x only.
        eps: As for `nn.layer_norm`.
        target: Where to compute.
        out: Where the results go: three arrays, or one.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    arrays = {"dy": dy, "x": x, "weight": weight}
    return _launch(layer_norm_grad, arrays, eps, target, out)


@_operator("rms_norm", ("x", "weight"), 1e-6)
def rms_norm(
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """X / sqrt(mean of squares + eps) * weight, over the last dimensions.

    Args:
        x: Floats of one dimension or more.
        weight: Of the shape of the last dimensions, over which the mean is taken;
            without it that is the last one.
        eps: Added to the mean of squares.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    return _launch(rms_norm, {"x": x, "weight": weight}, eps, target, out)


@_operator("rms_norm_grad", ("dy", "x", "weight"), 1e-6)
def rms_norm_grad(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradients of `nn.rms_norm` for x and weight.

    Args:
        dy: The gradient of the result.
        x: As for `nn.rms_norm`.
        weight: As for `nn.rms_norm`; without it there is the gradient for x only.
        eps: As for `nn.rms_norm`.
        target: Where to compute.
        out: Where the results go: two arrays, or one.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    arrays = {"dy": dy, "x": x, "weight": weight}
    return _launch(rms_norm_grad, arrays, eps, target, out)
