"""Our operators in JAX: functions with gradients, under `jit` and `grad`.

from tensorlang.interop import jax as ours

y = ours.gelu(ours.dense(x, w, b))
y = ours.dropout(y, 0.5, key=key)        # a key of tensorlang.ops.random: used once

They run on the host through callbacks, on JAX's own memory (DLPack) where it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.interop.rules import INSTALL, RULES, Rule, words_of
from tensorlang.ops import random

try:
    import jax
except ImportError:
    raise ArgumentError(f"tensorlang.interop.jax needs JAX: {INSTALL}") from None


def _array(value: Any) -> Any:
    """The memory of an array of JAX, shared where that can be."""
    try:
        return np.from_dlpack(value)
    except (TypeError, BufferError, RuntimeError, AttributeError):
        return np.asarray(value)


@lru_cache(maxsize=256)
def _function(rule: Rule, options: tuple[Any, ...], there: tuple[bool, ...]) -> Any:
    """The operator with these options, of the arrays that are there."""
    given = dict(options)

    def filled(arrays: tuple[Any, ...]) -> list[Any]:
        left = iter(arrays)
        return [_array(next(left)) if is_there else None for is_there in there]

    def run(*arrays: Any) -> Any:
        return np.asarray(rule.forward(*filled(arrays), **given))

    def run_back(dy: Any, *arrays: Any) -> tuple[Any, ...]:
        made = rule.backward(_array(dy), *filled(arrays), **given)
        return tuple(np.asarray(each) for each in made if each is not None)

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def apply(*arrays: Any) -> Any:
        return jax.pure_callback(
            run, _result(rule, there, given, arrays), *arrays, vmap_method="sequential"
        )

    def forward(*arrays: Any) -> Any:
        return apply(*arrays), arrays

    def back(arrays: Any, dy: Any) -> Any:
        like = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays)
        return jax.pure_callback(run_back, like, dy, *arrays, vmap_method="sequential")

    apply.defvjp(forward, back)
    return apply


def _result(
    rule: Rule, there: tuple[bool, ...], given: dict[str, Any], arrays: Any
) -> Any:
    """Shape and type of the result: of dense and conv2d by their own definitions."""
    from tensorlang.ops import nn  # noqa: PLC0415 - beside the names of this module

    del there
    x, shape = arrays[0], arrays[0].shape
    if rule.name in {"dense", "conv2d"}:
        op = getattr(nn, rule.name)
        shape = op.shape(x.shape, arrays[1].shape, **given)
    return jax.ShapeDtypeStruct(tuple(shape), x.dtype)


def _defined(rule: Rule) -> Callable[..., Any]:
    defaults = {name: default for name, (_, default) in rule.options.items()}

    def call(*arrays: Any, **options: Any) -> Any:
        unknown = sorted(set(options) - set(defaults))
        if unknown or not rule.needed <= len(arrays) <= len(rule.arrays):
            raise ArgumentError(
                f"{rule.name} takes {', '.join(rule.arrays)} and "
                f"{', '.join(defaults) or 'no options'}; got {len(arrays)} arrays"
                + (f" and {', '.join(unknown)}" if unknown else "")
            )
        whole = (*arrays, *[None] * (len(rule.arrays) - len(arrays)))
        there = tuple(array is not None for array in whole)
        chosen = tuple((defaults | options).items())
        return _function(rule, chosen, there)(*(a for a in whole if a is not None))

    call.__name__ = rule.name
    call.__doc__ = f"`tensorlang.ops.nn.{rule.name}`, with its gradient."
    return call


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
    return OPS["dropout"](x, rate=rate, key=tuple(words_of(key)))
