"""Activations that files write out as sums and products, by their factors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tensorlang.graph.values import Tensor
from tensorlang.onnx.calls import Operand
from tensorlang.ops import nn

_CUBE: Final = 0.044715  # Hendrycks and Gimpel, "Gaussian error linear units", 2016
_SLOPE: Final = (2 / np.pi) ** 0.5
_CLOSE: Final = 1e-6


def activation_of(a: Operand, b: Operand) -> Tensor | None:
    """The activation that the product of two values is; None if it is none.

    SiLU is `x * sigmoid(x)`; the approximation of GELU is
    `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`.
    """
    made: Tensor | None = None
    for x, gate in ((a, b), (b, a)):
        if any(each is x for each in _args(gate, "nn.sigmoid")):
            made = nn.silu(x)
    (m, some), (n, more) = _factors(a), _factors(b)
    values = [*some, *more]
    if m * n == 0.5 and len(values) == 2:
        for x, gate in (values, values[::-1]):
            if _is_gate(x, gate):
                made = nn.gelu(x, "tanh")
    return made


def _is_gate(x: Tensor, gate: Tensor) -> bool:
    """Whether a value is one plus the hyperbolic tangent in the formula of GELU."""
    for bent, one in _both(_args(gate, "math.add")):
        for inner in _args(bent, "math.tanh"):
            slope, sums = _factors(inner)
            fits = one == 1.0 and len(sums) == 1 and np.isclose(slope, _SLOPE, _CLOSE)
            for first, second in _both(_args(sums[0], "math.add")) if fits else ():
                cube, cubed = _factors(second)
                same = first is x and len(cubed) == 3 and all(v is x for v in cubed)
                if same and np.isclose(cube, _CUBE, _CLOSE):
                    return True
    return False


def _both(pair: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [pair, pair[::-1]] if pair else []


def _factors(value: Any) -> tuple[float, list[Tensor]]:
    """A value as a product: a number, NaN for an array, and factors that are none."""
    if not isinstance(value, Tensor):
        number = np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"
        return (float(value), []) if number else (np.nan, [])
    product, raised = _args(value, "math.multiply"), _args(value, "math.power")
    if product:
        (m, some), (n, more) = map(_factors, product)
        return m * n, [*some, *more]
    if raised and isinstance(raised[1], float | int) and raised[1] in {2, 3}:
        return 1.0, [raised[0]] * int(raised[1])
    return 1.0, [value]


def _args(value: Any, id: str) -> tuple[Any, ...]:
    """The arguments of a value that an operator made; none of any other value."""
    node = value.node if isinstance(value, Tensor) else None
    return node.args if node is not None and node.id == id else ()
