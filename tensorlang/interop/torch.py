"""Our operators in PyTorch: custom ops with gradients, which `torch.compile` keeps.

from tensorlang.interop import torch as ours

y = ours.gelu(ours.dense(x, w, b))       # of the CPU or a GPU; y.sum().backward()
y = ours.dropout(y, 0.5, key=key)        # a key of tensorlang.ops.random: used once

Each is also `torch.ops.tensorlang.dense` and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from tensorlang.errors import ArgumentError
from tensorlang.interop.rules import INSTALL, RULES, Rule, words_of
from tensorlang.ops import random

try:
    import torch
except ImportError:
    raise ArgumentError(f"tensorlang.interop.torch needs PyTorch: {INSTALL}") from None


def _array(tensor: Any) -> Any:
    if tensor is None:
        return None
    held = tensor.detach().contiguous()
    if held.is_cuda:
        return held
    if held.dtype == torch.bfloat16:  # NumPy's is another, of the same bits
        return held.view(torch.int16).numpy().view(bfloat16)
    return held.numpy()


def _tensor(array: Any) -> Any:
    if isinstance(array, torch.Tensor):  # of a GPU
        return array
    held = np.ascontiguousarray(array)
    if held.dtype == bfloat16:
        return torch.from_numpy(held.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(held)


def _schema(rule: Rule) -> str:
    kinds = [f"Tensor {name}" for name in rule.arrays[: rule.needed]]
    kinds += [f"Tensor? {name}=None" for name in rule.arrays[rule.needed :]]
    for name, (kind, default) in rule.options.items():
        shown = f'"{default}"' if kind == "str" else default
        kinds.append(f"{kind} {name}" + ("" if kind == "int[]" else f"={shown}"))
    return f"({', '.join(kinds)}) -> Tensor"


def _defined(rule: Rule) -> Callable[..., Any]:
    """The custom op of a rule, with its gradient."""
    count, names = len(rule.arrays), tuple(rule.options)

    def parts(given: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
        defaults = (None,) * count + tuple(d for _, d in rule.options.values())
        whole = (*given, *defaults[len(given) :])
        return list(whole[:count]), dict(zip(names, whole[count:], strict=True))

    def forward(*given: Any) -> Any:
        arrays, options = parts(given)
        return _tensor(rule.forward(*map(_array, arrays), **options))

    def empty(*given: Any) -> Any:
        arrays, options = parts(given)
        return arrays[0].new_empty(_shape(rule, arrays, options))

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del output
        arrays, ctx.options = parts(inputs)
        ctx.given = len(inputs)
        ctx.save_for_backward(*arrays)

    def back(ctx: Any, dy: Any) -> tuple[Any, ...]:
        made = _gradients(rule, dy, ctx.saved_tensors, ctx.options)
        return (*made, *[None] * (ctx.given - count))[: ctx.given]

    op = torch.library.custom_op(
        f"tensorlang::{rule.name}", forward, mutates_args=(), schema=_schema(rule)
    )
    op.register_fake(empty)
    op.register_autograd(back, setup_context=keep)
    return op  # type: ignore[no-any-return]


def _gradients(rule: Rule, dy: Any, arrays: Any, options: dict[str, Any]) -> list[Any]:
    made = rule.backward(_array(dy), *map(_array, arrays), **options)
    return [None if each is None else _tensor(each) for each in made]


def _shape(rule: Rule, arrays: list[Any], options: dict[str, Any]) -> tuple[Any, ...]:
    """The result's shape, of sizes that may be symbols of the compiler."""
    x = arrays[0].shape
    if rule.name == "dense":
        return (*x[:-1], arrays[1].shape[0])
    if rule.name == "conv2d":
        stride, around = options["stride"], 2 * options["padding"]
        reach = [options["dilation"] * (k - 1) + 1 for k in arrays[1].shape[2:]]
        spread = [
            (n + around - r) // stride + 1 for n, r in zip(x[2:], reach, strict=True)
        ]
        return (x[0], arrays[1].shape[0], *spread)
    return tuple(x)


OPS = {rule.name: _defined(rule) for rule in RULES}
dense, conv2d, layer_norm = OPS["dense"], OPS["conv2d"], OPS["layer_norm"]
relu, gelu, silu = OPS["relu"], OPS["gelu"], OPS["silu"]
softmax, log_softmax = OPS["softmax"], OPS["log_softmax"]


def dropout(x: Any, rate: float = 0.5, *, key: random.Key) -> Any:
    """`x / (1 - rate)` where the key's mask keeps it, else 0; backward replays it.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError: the rate is out of its domain.
    """
    return OPS["dropout"](x, rate, words_of(key))
