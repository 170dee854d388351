"""What another system has to know of an operator: how it runs, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tensorlang.ops import nn, random

INSTALL: Final = "pip install 'tensorlang[interop]'"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """An operator on NumPy arrays, with its way back.

    Attributes:
        name: What it is called.
        arrays: The names of its arrays; those behind `needed` may be None.
        needed: How many arrays it needs.
        options: Its other arguments: how PyTorch types them, and their defaults.
        forward: From arrays and options to the result.
        backward: From dy, arrays and options to a gradient for each array.
    """

    name: str
    arrays: tuple[str, ...]
    needed: int
    options: Mapping[str, tuple[str, Any]]
    forward: Callable[..., Any]
    backward: Callable[..., tuple[Any, ...]]


def _dense_back(dy: Any, x: Any, w: Any, b: Any) -> tuple[Any, ...]:
    dx, dw, db = nn.dense_grad(dy, x, w)
    return dx, dw, None if b is None else db


def _conv_back(dy: Any, x: Any, w: Any, b: Any, **given: Any) -> tuple[Any, ...]:
    made = nn.conv2d_grad(dy, x, w, b, **given)
    return tuple(made) if b is not None else (*made[:2], None)


def _norm_back(
    dy: Any, x: Any, weight: Any, bias: Any, **given: Any
) -> tuple[Any, ...]:
    unit = np.ones(x.shape[-1], x.dtype) if weight is None else weight
    dx, dw, db = nn.layer_norm_grad(dy, x, unit, **given)
    return dx, None if weight is None else dw, None if bias is None else db


def _norm(x: Any, weight: Any, bias: Any, **given: Any) -> Any:
    unit = np.ones(x.shape[-1], x.dtype) if weight is None else weight
    return nn.layer_norm(x, unit, bias, **given)


def key_of(words: Any) -> random.Key:
    """A fresh key of these words; the caller saw to it that it is used once."""
    data = np.asarray(words).astype(np.uint32)
    return random.wrap_key_data(data, impl="threefry2x32")


def words_of(key: random.Key) -> list[int]:
    """The words of a key, which is consumed.

    Raises:
        ArgumentError: it is no single key of `threefry2x32`.
        KeyReuseError: it was used before.
    """
    from tensorlang.errors import ArgumentError  # noqa: PLC0415 - for the error alone

    if not isinstance(key, random.Key) or key.shape or key.impl != "threefry2x32":
        raise ArgumentError(f"dropout takes one key of threefry2x32, not {key!r:.80}")
    words = [int(word) for word in key.words]
    key.consume("drawn from")
    return words


def _same(name: str, options: Mapping[str, tuple[str, Any]] | None = None) -> Rule:
    """An operator of one array."""
    run, back = getattr(nn, name), getattr(nn, f"{name}_grad")

    def backward(dy: Any, x: Any, **given: Any) -> tuple[Any, ...]:
        return (back(dy, x, **given),)

    return Rule(name, ("x",), 1, options or {}, run, backward)


_CONV: Final = {name: ("int", n) for name, n in (("stride", 1), ("padding", 0))}
_MORE: Final = dict.fromkeys(("dilation", "groups"), ("int", 1))
RULES: Final = (
    Rule("dense", ("x", "w", "b"), 2, {}, nn.dense, _dense_back),
    Rule("conv2d", ("x", "w", "b"), 2, _CONV | _MORE, nn.conv2d, _conv_back),
    Rule(
        "layer_norm",
        ("x", "weight", "bias"),
        1,
        {"eps": ("float", 1e-5)},
        _norm,
        _norm_back,
    ),
    _same("relu"),
    _same("gelu", {"approximate": ("str", "none")}),
    _same("silu"),
    _same("softmax", {"axis": ("int", -1)}),
    _same("log_softmax", {"axis": ("int", -1)}),
    Rule(
        "dropout",
        ("x",),
        1,
        {"rate": ("float", 0.5), "key": ("int[]", ())},
        lambda x, rate, key: nn.dropout(x, rate, key=key_of(key)),
        lambda dy, _, rate, key: (nn.dropout_grad(dy, rate, key=key_of(key)),),
    ),
)
