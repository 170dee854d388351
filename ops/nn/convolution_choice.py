"""The algorithms of convolutions: which workloads they serve, and the default choice.

To add an algorithm, write its definition in a file of its own and add a row here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import lazy
from tensorlang.ops.algorithms import DIRECT
from tensorlang.ops.nn import winograd
from tensorlang.ops.nn.convolution_problem import of
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS

if TYPE_CHECKING:
    from tensorlang.ops.nn import convolution_definitions as plain
    from tensorlang.ops.nn import depthwise_gradients as single
    from tensorlang.ops.nn import flat_convolution as flat
    from tensorlang.ops.nn import last_convolution as last
    from tensorlang.ops.nn import outer_products as products
    from tensorlang.ops.nn import phased_convolution as phased
    from tensorlang.ops.nn import winograd_definitions, winograd_nonfused
    from tensorlang.workload import Workload
else:
    plain = lazy.module("tensorlang.ops.nn.convolution_definitions")
    single = lazy.module("tensorlang.ops.nn.depthwise_gradients")
    flat = lazy.module("tensorlang.ops.nn.flat_convolution")
    last = lazy.module("tensorlang.ops.nn.last_convolution")
    products = lazy.module("tensorlang.ops.nn.outer_products")
    phased = lazy.module("tensorlang.ops.nn.phased_convolution")
    winograd_definitions = lazy.module("tensorlang.ops.nn.winograd_definitions")
    winograd_nonfused = lazy.module("tensorlang.ops.nn.winograd_nonfused")

Serves: TypeAlias = "Callable[[Workload], bool]"


@dataclass(frozen=True, slots=True)
class Row:
    """An algorithm.

    Attributes:
        name: Its name.
        serves: Predicate of the workloads it can compute.
        define: Returns its definition, a function of canonical arrays and `Problem`.
        tolerance: Its additional relative error; 0 if as exact as the direct sum.
        finite: Whether infinities and NaNs may spread; see `Algorithm`.
        ranks: Spatial ranks it supports.
    """

    name: str
    serves: Serves
    define: Callable[[], Callable[..., Any]]
    tolerance: float = 0.0
    finite: bool = False
    ranks: tuple[int, ...] = (1, 2, 3)


# ------------------------------------------------------------------------- predicates


def _all(_: Workload) -> bool:
    return True


def _last(workload: Workload) -> bool:
    """Whether channels come last, after at least one spatial dimension."""
    p = of(workload)
    return not p.first and len(p.image) > 0


def _mixed(workload: Workload) -> bool:
    """Whether channels come first, not depthwise, with more than one result pixel."""
    p = of(workload)
    return p.first and not p.depthwise and math.prod(p.result) > 1


def _alone(workload: Workload) -> bool:
    """Whether depthwise, channels first, with more than one result per line."""
    p = of(workload)
    return p.first and p.depthwise and p.result[-1] > 1


def _returning(workload: Workload) -> bool:
    """Whether channels come first, the stride is 1 and padding is below the reach."""
    p = of(workload)
    sides = zip(p.padding[::2], p.padding[1::2], p.windows.reach, strict=True)
    fits = all(max(low, high) < far for low, high, far in sides)
    return p.first and fits and {*p.stride} == {1} and math.prod(p.image) > 1


def _unstrided(workload: Workload) -> bool:
    """Whether the data gradient is a convolution over flattened images."""
    return _returning(workload) and not of(workload).depthwise


def _unstrided_alone(workload: Workload) -> bool:
    """Whether the data gradient is a depthwise convolution."""
    return _returning(workload) and _alone(workload) and of(workload).image[-1] > 1


def _of_pixels(workload: Workload) -> bool:
    """Whether a 1x1 convolution without padding, channels first, not depthwise."""
    p = of(workload)
    return p.first and p.pixels and not p.depthwise


def _outer(workload: Workload) -> bool:
    """Whether there are spatial dimensions, and not depthwise with channels first."""
    p = of(workload)
    return len(p.image) > 0 and not (p.first and p.depthwise)


def _apart(workload: Workload) -> bool:
    """Whether channels come first and a phase of the image has several pixels."""
    p = of(workload)
    return p.first and any(n > s for n, s in zip(p.image, p.stride, strict=True))


# ------------------------------------------------------------------- default choice


def _forward(workload: Workload) -> str:
    if _alone(workload):
        return "depthwise"
    if name := winograd.preferred(workload):
        return name
    if _last(workload):
        return "last"
    return "flat" if _mixed(workload) else DIRECT


def _weight_gradient(workload: Workload) -> str:
    if _alone(workload):
        return "depthwise"
    if _of_pixels(workload):
        return "flat"
    return "outer" if _outer(workload) else DIRECT


def _transposed(workload: Workload) -> str:
    """By phases, which support all strides and paddings."""
    if _last(workload):
        return "last"
    return "phased" if _apart(workload) else DIRECT


def _data_gradient(workload: Workload) -> str:
    if _unstrided_alone(workload):
        return "depthwise"
    return "flat" if _unstrided(workload) else _transposed(workload)


def _transposed_gradient(workload: Workload) -> str:
    if _last(workload):
        return "last"
    return "flat" if _mixed(workload) else DIRECT


PREFERS: Final[Mapping[str, Callable[[Workload], str]]] = {
    "": _forward,
    "_transpose": _transposed,
    "_grad": _data_gradient,
    "_grad_data": _data_gradient,
    "_grad_weight": _weight_gradient,
    "_transpose_grad": _transposed_gradient,
}


def _fused(m: int) -> Callable[..., Any]:
    return winograd_definitions.conv(m)


def _staged(m: int) -> Callable[..., Any]:
    return winograd_nonfused.conv(m)


def _winograd(m: int, name: str, serves: Serves, define: Callable[[int], Any]) -> Row:
    """F(m, 3)."""
    allowed = TRANSFORMS[m].tolerance
    return Row(name, serves, partial(define, m), allowed, finite=True, ranks=(2,))


ALGORITHMS: Final[Mapping[str, tuple[Row, ...]]] = {
    "": (
        Row(DIRECT, _all, lambda: plain.conv),
        Row("flat", _mixed, lambda: flat.conv),
        Row("last", _last, lambda: last.conv),
        Row("depthwise", _alone, lambda: plain.conv),
        *(
            _winograd(m, name, winograd.serves(m), _fused)
            for m, name in winograd.NAMES.items()
        ),
        *(
            _winograd(m, name, winograd.serves_tiles(m), _staged)
            for m, name in winograd.NONFUSED.items()
        ),
    ),
    "_transpose": (
        Row(DIRECT, _all, lambda: plain.conv_transposed),
        Row("phased", _apart, lambda: phased.conv_transposed),
        Row("last", _last, lambda: last.conv_transposed),
    ),
    "_grad": (
        Row(DIRECT, _all, lambda: plain.conv_grad),
        Row("flat", _unstrided, lambda: flat.conv_grad),
        Row("depthwise", _unstrided_alone, lambda: single.conv_grad),
        Row("phased", _apart, lambda: phased.conv_grad),
        Row("last", _last, lambda: last.conv_grad),
    ),
    "_grad_data": (
        Row(DIRECT, _all, lambda: plain.conv_grad_data),
        Row("flat", _unstrided, lambda: flat.conv_grad_data),
        Row("depthwise", _unstrided_alone, lambda: single.conv_grad_data),
        Row("phased", _apart, lambda: phased.conv_grad_data),
        Row("last", _last, lambda: last.conv_grad_data),
    ),
    "_grad_weight": (
        Row(DIRECT, _all, lambda: plain.conv_grad_weight),
        Row("flat", _of_pixels, lambda: flat.conv_grad_weight),
        Row("outer", _outer, lambda: products.conv_grad_weight),
        Row("depthwise", _alone, lambda: single.conv_grad_weight),
    ),
    "_transpose_grad": (
        Row(DIRECT, _all, lambda: plain.conv_transposed_grad),
        Row("flat", _mixed, lambda: flat.conv_transposed_grad),
        Row("last", _last, lambda: last.conv_transposed_grad),
    ),
}
