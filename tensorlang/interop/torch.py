"""The operators as PyTorch custom ops, with all derivatives.

    from tensorlang.interop import torch as ours

    y = ours.gelu(ours.dense(x, w, b))       # on the CPU or a GPU; y.sum().backward()
    y = ours.dropout(y, 0.5, key=key)        # a single-use key of tensorlang.ops.random
    blur = ours.register(my_blur)            # your own operator

Exports the operators of `tensorlang.ops.nn` and `math` by name. All support
`torch.compile` and `torch.func`: `grad`, `vmap`, `jvp` and transforms built on these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensorlang.errors import ArgumentError
from tensorlang.interop.calls import INSTALL, checked
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import operators

try:
    import torch  # noqa: F401 - required by the modules below
except ImportError:
    raise ArgumentError(f"tensorlang.interop.torch needs PyTorch: {INSTALL}") from None

from tensorlang.interop.torch_custom import Custom, custom, name_of

if TYPE_CHECKING:
    from torch._ops import OpOverloadPacket


def register(op: Operator, *, several: bool | None = None) -> Custom | OpOverloadPacket:
    """Register an operator with PyTorch: `torch.ops.tensorlang.my_blur` for `my.blur`.

    Its gradient is the operator `my.blur_grad` or a rule of `graph.gradient_of`;
    without one it can still be called without differentiation.

    Args:
        op: The operator.
        several: Whether it returns a list of tensors; by default, gradients do, and
            definitions that are annotated as returning a tuple.

    Returns:
        The custom op; if it accepts numbers, a key, element types, or attributes
        without a PyTorch type, a function that calls it. That refuses numbers that
        require a gradient.

    Raises:
        OperatorError: it is no operator, updates arrays in place, or takes none.
    """
    made = custom(checked(op), several)
    plain = made.is_plain and not made.scalars and not made.types
    return made.packet if plain else made


def __getattr__(name: str) -> Custom | OpOverloadPacket:
    if name not in _LIBRARY:
        raise AttributeError(f"no operator is called {name!r}")
    return register(_LIBRARY[name])


_LIBRARY: Final = {
    name_of(op): op
    for op in operators()
    if op.id.startswith(("nn.", "math.")) and op.id != "nn.dropout_train"
}
for _op in _LIBRARY.values():
    register(_op)
