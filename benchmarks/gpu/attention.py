"""Attention and its gradient, against PyTorch's fastest implementation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.gpu.works import Call, Sides, Stage, Work, checks, sizes

# heads and their size: as many products each, with 4 of a batch
_HEADS = ((32, 64), (16, 128))
_BATCH, _LENGTH = 4, 4096
_PEERS = {"FlashAttention": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"}
_ERROR = 2e-2


def _shape(stage: Stage, heads: int, size: int) -> tuple[int, int, int, int]:
    if stage.scale > 1:
        return (1, 1, 128, size)
    return (_BATCH, heads, _LENGTH, size)


def _attention(heads: int, size: int, *, causal: bool) -> Callable[[Stage], Sides]:
    def make(stage: Stage) -> Sides:
        from tensorlang.ops import nn

        shape = _shape(stage, heads, size)
        q, k, v = (stage.normal(*shape, dtype="bfloat16") for _ in range(3))
        out = stage.torch.empty_like(q)
        sides: dict[str, tuple[Call, Any]] = {
            "tensorlang": (
                lambda: nn.attention(q, k, v, causal, out=out, target=stage.target),
                out,
            )
        }
        for name, backend in _backends(stage).items():
            sides[name] = (lambda b=backend: _theirs(stage, b, q, k, v, causal), None)
        right = lambda: _right(stage, q, k, v, causal)  # noqa: E731 - used once
        calls = {name: [call] for name, (call, _) in sides.items()}
        return Sides(calls, checks(stage, right, _ERROR, **sides))

    return make


def _gradient(heads: int, size: int, *, causal: bool) -> Callable[[Stage], Sides]:
    def make(stage: Stage) -> Sides:
        from tensorlang.ops import nn

        torch, shape = stage.torch, _shape(stage, heads, size)
        dy, q, k, v = (stage.normal(*shape, dtype="bfloat16") for _ in range(4))
        outs = tuple(torch.empty_like(q) for _ in range(3))
        sides: dict[str, tuple[Call, Any]] = {
            "tensorlang": (
                lambda: nn.attention_grad(
                    dy, q, k, v, causal, out=outs, target=stage.target
                )[0],
                None,
            )
        }
        for name, backend in _backends(stage).items():
            given = [each.clone().requires_grad_() for each in (q, k, v)]
            y = _theirs(stage, backend, *given, causal)
            sides[name] = (_backward(stage, y, given, dy), None)
        calls = {name: [call] for name, (call, _) in sides.items()}

        def right() -> Any:
            given = [each[:1, :1].float().requires_grad_() for each in (q, k, v)]
            y = _theirs(stage, None, *given, causal)
            return torch.autograd.grad(y, given, dy[:1, :1].float())[0]

        first = {
            name: (lambda call=call: call()[:1, :1], None)
            for name, (call, _) in sides.items()
        }
        return Sides(calls, checks(stage, right, _ERROR, **first))

    return make


def _backward(stage: Stage, y: Any, given: Sequence[Any], dy: Any) -> Call:
    return lambda: stage.torch.autograd.grad(y, given, dy, retain_graph=True)[0]


def _backends(stage: Stage) -> dict[str, Any]:
    """PyTorch's implementations by name; on the CPU one that is its default."""
    if stage.device == "cpu":
        return {"PyTorch": None}
    from torch.nn.attention import SDPBackend

    return {name: getattr(SDPBackend, each) for name, each in _PEERS.items()}


def _theirs(  # noqa: PLR0917 - an operator's arguments
    stage: Stage, backend: Any, q: Any, k: Any, v: Any, causal: bool
) -> Any:
    apply = stage.torch.nn.functional.scaled_dot_product_attention
    if backend is None:
        return apply(q, k, v, is_causal=causal)
    from torch.nn.attention import sdpa_kernel

    with sdpa_kernel(backend):
        return apply(q, k, v, is_causal=causal)


def _right(stage: Stage, q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The result in 32 bits, by heads: all scores at once take gibibytes."""
    each = zip(*(x.flatten(0, 1) for x in (q, k, v)), strict=True)
    found = [
        _theirs(stage, None, *(x[None, None].float() for x in given), causal)
        for given in each
    ]
    return stage.torch.cat(found, 1).reshape(q.shape)


def _operations(heads: int, size: int, *, products: int, causal: bool) -> Any:
    """Those of the products, and half of them where half of the keys are seen."""

    def counted(stage: Stage) -> int:
        batch, planes, length, _ = _shape(stage, heads, size)
        whole = 2 * products * batch * planes * length * length * size
        return whole // 2 if causal else whole

    return counted


def _tuned(heads: int, size: int, *, causal: bool) -> Any:
    def tuned(stage: Stage) -> list[tuple[str, ...]]:
        shapes = sizes(*[_shape(stage, heads, size)] * 3)
        how = ("--attr", "causal=true") if causal else ()
        return [("nn.attention", "--shape", shapes, "--dtype", "bf16", *how)]

    return tuned


_WANTED = dict.fromkeys(_PEERS, 0.95)
WORKS = (
    *(
        Work(
            f"attention bf16 heads of {size}{', causal' if causal else ''}",
            _attention(heads, size, causal=causal),
            operations=_operations(heads, size, products=2, causal=causal),
            limit="products",
            tuned=_tuned(heads, size, causal=causal),
            wanted=_WANTED,
        )
        for heads, size in _HEADS
        for causal in (False, True)
    ),
    *(
        Work(
            f"gradient of attention bf16 heads of {size}",
            _gradient(heads, size, causal=False),
            operations=_operations(heads, size, products=5, causal=False),
            limit="products",
            wanted=_WANTED,
        )
        for heads, size in _HEADS
    ),
)
