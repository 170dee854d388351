"""The algorithms of convolutions: which workloads they serve, and the default choice.

To add an algorithm, write its definition in a file of its own and add a row here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from tensorlang import ir, lazy
from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import DType
from tensorlang.ops.algorithms import DIRECT, Faster
from tensorlang.ops.nn import convolution_layouts as layouts
from tensorlang.ops.nn import winograd
from tensorlang.ops.nn.convolution_problem import Problem, of
from tensorlang.ops.nn.convolution_sides import of_phases
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS
from tensorlang.targets import Target
from tensorlang.workload import Workload

with lazy.modules(__name__):
    from tensorlang.ops.nn import convolution_definitions as loops
    from tensorlang.ops.nn import (
        weight_gradient_dots,
        weight_gradients,
        winograd_fused,
        winograd_nonfused,
    )


_PRODUCTS: Final = 2  # vectors of them per cycle
_MOVED: Final = 2  # cycles to load an element, and to store it elsewhere
_RESOLVED: Final = 0.98  # predictions closer to each other than this count as equal
_OVERLAP: Final = 4.0  # power by which arithmetic and loads overlap
_WEIGHTS: Final = 1  # their position among the arrays
Serves: TypeAlias = "Callable[[Workload], bool]"


@frozen
class Row:
    """An algorithm."""

    name: str
    serves: Serves  # predicate of the workloads it can compute
    # returns its definition, a function of canonical arrays and `Problem`
    define: Callable[[], Callable[..., Any]]
    # its additional relative error; 0 if as exact as the direct sum
    tolerance: float = 0.0
    finite: bool = False  # whether infinities and NaNs may spread; see `Algorithm`
    ranks: tuple[int, ...] = (1, 2, 3)  # spatial ranks it supports
    # whether it is predicted to be faster than the default; see `Algorithm`
    faster: Faster = lambda *_: False

    @property
    def direct(self) -> bool:
        """Whether it is the reference definition."""
        return self.name == DIRECT


# ------------------------------------------------------------------------- predicates


def _all(_: Workload) -> bool:
    return True


def _last(workload: Workload) -> bool:
    """Whether channels come last, after at least one spatial dimension."""
    p = of(workload)
    return not p.first and len(p.image) > 0


def _flat(workload: Workload) -> bool:
    """Whether images are flattened: not depthwise, several result pixels, windows."""
    p = of(workload)
    several = not p.depthwise and math.prod(p.result) > 1
    return several and (p.first or not p.pixels)


def _alone(workload: Workload) -> bool:
    """Whether depthwise, channels first, with more than one result per line."""
    p = of(workload)
    return p.first and p.depthwise and p.result[-1] > 1


def _alone_back(workload: Workload) -> bool:
    """Whether depthwise with stride 1, channels first, and results in lines."""
    p = of(workload)
    return _alone(workload) and {*p.stride} == {1} and p.image[-1] > 1


def _dots(workload: Workload) -> bool:
    """Whether channels come first, and depthwise or windows are single pixels."""
    p = of(workload)
    return _alone(workload) or (p.first and p.pixels and not p.depthwise)


def _outer(workload: Workload) -> bool:
    """Whether there are spatial dimensions, and not depthwise with channels first."""
    p = of(workload)
    return len(p.image) > 0 and not (p.first and p.depthwise)


def _apart(workload: Workload) -> bool:
    """Whether channels come first, and a phase has several pixels and sums of terms."""
    p = of(workload)
    several = any(n > s for n, s in zip(p.image, p.stride, strict=True))
    return p.first and several and not (p.depthwise and p.pixels)


def _dotted(workload: Workload) -> bool:
    """Whether a processor may have dot products of the elements; not depthwise."""
    p = of(workload)
    return workload.dtypes[0] in ir.NARROW and len(p.image) > 0 and not p.depthwise


# ------------------------------------------------------------------- default choice


def _plain(workload: Workload) -> str:
    """The sums of products themselves."""
    if _alone(workload):
        return "depthwise"
    if _last(workload):
        return "channels_last"
    return "implicit_gemm" if _flat(workload) else DIRECT


def _better_flat(
    workload: Workload, target: Target, constants: Collection[int]
) -> bool:
    """Whether flattened images are predicted to be faster, for channels last.

    Vectors hold outputs, or else neighbouring pixels, those between lines included:
    arithmetic takes longer by the lanes that hold no result. Tiles of one vector of
    outputs load as often as they multiply. Besides, images and results are rearranged
    element by element for the one, and weights by vectors for the other, unless they
    are constant: that pays where the weights are so many more.
    """
    p, bits = of(workload), DType(workload.dtypes[0]).bits
    if p.first or not _flat(workload) or bits < 32:  # narrow floats have dot products
        return False
    lanes = target.vector_bits // bits
    vectors = math.ceil(p.outputs / lanes)
    products = math.prod(p.given_y) * math.prod(p.given_w[1:])
    arithmetic = products / (_PRODUCTS * lanes)
    covered = (p.window[-1] - 1) * p.dilation[-1] + 1
    pitch = p.result[-1] - 1 + math.ceil(covered / p.stride[-1])
    loads = math.pow(1 + math.pow(vectors, -_OVERLAP), 1 / _OVERLAP)
    last = arithmetic * loads * vectors * lanes / p.outputs
    flat = arithmetic * pitch / p.result[-1]
    moved = math.prod(p.given_x) + math.prod(p.given_y)
    few = _WEIGHTS not in constants and moved * lanes < math.prod(p.given_w)
    return few or flat + _MOVED * moved < last


def _better_last(
    workload: Workload, target: Target, constants: Collection[int]
) -> bool:
    """Whether outputs in vectors are predicted to be faster, for channels first."""
    p = of(workload)
    return _lined(workload) and _fewer_moved(p, workload, target, constants)


def _better_last_back(
    workload: Workload, target: Target, constants: Collection[int]
) -> bool:
    """The same of the phases of a transposed convolution."""
    if not _lined(workload):
        return False
    return _fewer_moved(of_phases(of(workload)), workload, target, constants)


def _lined(workload: Workload) -> bool:
    """Whether vectors cross the gaps between lines; narrow floats have dot products."""
    first = of(workload).first and _outer(workload)
    return first and DType(workload.dtypes[0]).bits >= 32


def _fewer_moved(
    p: Problem, workload: Workload, target: Target, constants: Collection[int]
) -> bool:
    """Whether copies element by element cost less than the gaps between lines.

    Constant weights were copied before.
    """
    found = layouts.predicted(p, workload.dtypes[0], target)
    own = of(workload)
    moved = math.prod(own.given_x) + math.prod(own.given_y)
    moved += math.prod(own.given_w) * (_WEIGHTS not in constants)
    return found.last + _MOVED * moved < _RESOLVED * found.first


def _better_dots(workload: Workload, target: Target, _: Collection[int]) -> bool:
    """Whether dot products of channels are predicted to be faster."""
    return _dotted(workload) and _fewer_by_dots(of(workload), workload, target)


def _better_dots_back(workload: Workload, target: Target, _: Collection[int]) -> bool:
    """The same of the phases of a transposed convolution."""
    if not _dotted(workload):
        return False
    p = of(workload)
    strided = math.prod(p.given_x) if math.prod(p.stride) > 1 else 0
    return _fewer_by_dots(of_phases(p), workload, target, interleaved=strided)


def _fewer_by_dots(
    p: Problem, workload: Workload, target: Target, *, interleaved: int = 0
) -> bool:
    dtype = workload.dtypes[0]
    found = layouts.predicted(p, "f32", target)  # narrow floats are widened
    by_dots = layouts.by_dots(p, dtype, target, interleaved=interleaved)
    return by_dots < (found.first if p.first else found.last)


def of_weights(p: Problem) -> str:
    """The algorithm of a weight gradient."""
    if p.first and (p.result[-1] > 1 if p.depthwise else p.pixels):
        return "dot_products"
    return "outer_products" if p.image and not (p.first and p.depthwise) else DIRECT


def _transposed(workload: Workload) -> str:
    """By phases, which support all strides and paddings."""
    if _alone_back(workload):
        return "depthwise"
    if _last(workload):
        return "channels_last"
    return "implicit_gemm" if _apart(workload) else DIRECT


PREFERS: Final[Mapping[str, Callable[[Workload], str]]] = {
    "": _plain,
    "_transpose": _transposed,
    "_grad": _transposed,
    "_grad_data": _transposed,
    "_grad_weight": lambda workload: of_weights(of(workload)),
    "_transpose_grad": _plain,
}


def _fused(m: int) -> Callable[..., object]:
    return winograd_fused.conv(m)


def _staged(m: int) -> Callable[..., object]:
    return winograd_nonfused.conv(m)


def _winograd(
    m: int, name: str, serves: Serves, define: Callable[[int], Any], **given: Any
) -> Row:
    """F(m, 3)."""
    allowed = TRANSFORMS[m].tolerance
    made = partial(define, m)
    return Row(name, serves, made, allowed, finite=True, ranks=(2,), **given)


_DIRECT: Final = (
    Row(DIRECT, _all, lambda: loops.conv),
    Row(
        "implicit_gemm",
        _flat,
        lambda: partial(loops.conv, rows=True),
        faster=_better_flat,
    ),
    Row(
        "channels_last",
        _outer,
        lambda: partial(loops.conv, packed=True),
        faster=_better_last,
    ),
    Row("depthwise", _alone, lambda: loops.conv),
    Row(
        "dot_products",
        _dotted,
        lambda: partial(loops.conv, pixels=True),
        faster=_better_dots,
    ),
)
_BACK: Final = (
    Row(DIRECT, _all, lambda: loops.conv_dilated),
    Row("implicit_gemm", _apart, lambda: partial(loops.conv_transposed, rows=True)),
    Row(
        "channels_last",
        _outer,
        lambda: partial(loops.conv_transposed, packed=True),
        faster=_better_last_back,
    ),
    Row("depthwise", _alone_back, lambda: loops.conv_transposed),
    Row(
        "dot_products",
        _dotted,
        lambda: partial(loops.conv_transposed, pixels=True),
        faster=_better_dots_back,
    ),
)
ALGORITHMS: Final[Mapping[str, tuple[Row, ...]]] = {
    "": (
        _DIRECT[0],
        *(  # before the others: the first that is predicted to be faster is chosen
            _winograd(m, name, winograd.serves(m), _fused, faster=winograd.fastest(m))
            for m, name in winograd.NAMES.items()
        ),
        *_DIRECT[1:],
        *(
            _winograd(m, name, winograd.serves_tiles(m), _staged)
            for m, name in winograd.NONFUSED.items()
        ),
    ),
    "_transpose": _BACK,
    "_grad": _BACK,
    "_grad_data": _BACK,
    "_grad_weight": (
        Row(DIRECT, _all, lambda: weight_gradients.direct),
        Row("outer_products", _outer, lambda: weight_gradients.outer_products),
        Row("dot_products", _dots, lambda: weight_gradient_dots.dot_products),
    ),
    "_transpose_grad": _DIRECT,
}
