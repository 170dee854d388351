"""Our operators in PyTorch: `register` makes one a custom op, with all its derivatives.

    from tensorlang.interop import torch as ours

    y = ours.gelu(ours.dense(x, w, b))       # of the CPU or a GPU; y.sum().backward()
    y = ours.dropout(y, 0.5, key=key)        # a key of tensorlang.ops.random: used once
    blur = ours.register(my_blur)            # an operator of one's own

The operators of `tensorlang.ops.nn` and `math` are here by their names. All work under
`torch.compile` and under `torch.func`: `grad`, `vmap`, `jvp` and what is made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensorlang.errors import ArgumentError
from tensorlang.interop.calls import INSTALL
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import operators

try:
    import torch  # noqa: F401 - the modules below need it
except ImportError:
    raise ArgumentError(f"tensorlang.interop.torch needs PyTorch: {INSTALL}") from None

from tensorlang.interop.torch_custom import Custom, custom, name_of

if TYPE_CHECKING:
    from torch._ops import OpOverloadPacket


def register(op: Operator, *, several: bool | None = None) -> Custom | OpOverloadPacket:
    """Make an operator one of PyTorch's: `torch.ops.tensorlang.my_blur` for `my.blur`.

    Its gradient is the operator `my.blur_grad`, or what `graph.gradient_of` gave it;
    without one it can be called where none is needed.

    Args:
        op: The operator.
        several: Whether it returns a list of tensors; by default only gradients do.

    Returns:
        The custom op; where it takes numbers for tensors, a key, or attributes that
        PyTorch has no type for, a function that calls it.

    Raises:
        OperatorError: the operator updates arrays in place, or takes none.
    """
    made = custom(op, several)
    return made.packet if made.is_plain else made


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
