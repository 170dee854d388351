"""Derivatives in PyTorch: any order, reverse and forward mode, and under `torch.func`.

A derivative is a program of calls (`tensorlang.interop.derivatives`), executed as
custom ops, so that it can itself be recorded, traced and transformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from tensorlang.graph.values import Argument, Value
from tensorlang.interop import derivatives
from tensorlang.interop.calls import Call
from tensorlang.interop.torch_sizes import Sizes, with_symbols
from tensorlang.ops.calls.on_torch import in_host_memory
from tensorlang.ops.operator import Operator

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    from tensorlang.interop.torch_custom import Custom

Tensors: TypeAlias = "torch.Tensor | Sequence[torch.Tensor]"
Gradients: TypeAlias = "tuple[torch.Tensor | None, ...]"
Kernel: TypeAlias = "Callable[..., Tensors]"  # the dispatch keys, then the arguments
_C: Final = torch._C  # dispatch, modes and levels have no public API
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_OWN: Final = 3  # arguments of a recorded call before its arrays


def recording(custom: Custom, custom_of: Callable[[Operator], Custom]) -> Kernel:
    """The op's autograd kernel.

    `torch.func` rejects a `torch.autograd.Function` inside a dispatcher kernel, which
    is called for each level in turn; this is a single-level function.

    Args:
        custom: The op.
        custom_of: Maps an operator to its op, for calls in derivatives.
    """
    overload = custom.packet.default

    def below(keyset: torch._C.DispatchKeySet, given: Sequence[Argument]) -> Tensors:
        with _C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & _C._after_autograd_keyset, *given)

    class Recorded(_SingleLevelFunction):  # type: ignore[misc]
        @staticmethod
        def forward(
            ctx: FunctionCtx,
            keyset: torch._C.DispatchKeySet,
            given: Sequence[Argument],
            call: Call,
            *arrays: torch.Tensor,
        ) -> tuple[torch.Tensor, ...]:
            with _recorded_around():
                made = tuple(custom.listed(below(keyset, given)))
            ctx.call = call
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*arrays)
            ctx.save_for_forward(*arrays)
            return made

        @staticmethod
        def backward(ctx: FunctionCtx, *dys: torch.Tensor | None) -> Gradients:
            arrays, needs = ctx.saved_tensors, ctx.needs_input_grad[_OWN:]
            there = tuple([dy is not None for dy in dys])
            wanted = tuple([at for at, need in enumerate(needs) if need])
            found = with_symbols(derivatives.backward, ctx.call, arrays, there, wanted)
            given = [*arrays, *[dy for dy in dys if dy is not None]]
            gradients: list[torch.Tensor | None] = [None] * (_OWN + len(arrays))
            for at, dx in zip(wanted, _run(*found, given, custom_of), strict=True):
                gradients[_OWN + at] = dx
            return tuple(gradients)

        @staticmethod
        def jvp(ctx: FunctionCtx, *tangents: torch.Tensor | None) -> Gradients:
            with _recorded_around():
                arrays = [forward_ad.unpack_dual(a).primal for a in ctx.saved_tensors]
                moved = {at: t for at, t in enumerate(tangents[_OWN:]) if t is not None}
                found = with_symbols(
                    derivatives.forward, ctx.call, arrays, tuple(moved)
                )
                return tuple(_run(*found, [*arrays, *moved.values()], custom_of))

    def record(keyset: torch._C.DispatchKeySet, *given: Argument) -> Tensors:
        backward = torch.is_grad_enabled() and _C._any_requires_grad(*given)
        if not backward and forward_ad._current_level < 0:
            return below(keyset, given)
        call, arrays = custom.apart(given)
        allowed = enable_single_level_autograd_function
        with allowed() if _is_transformed() else nullcontext():
            return custom.returned(Recorded.apply(keyset, given, call, *arrays))

    return record


def _is_transformed() -> bool:
    """Whether a transform of `torch.func` is active."""
    return bool(_C._are_functorch_transforms_active())


@contextmanager
def _enabled() -> Iterator[None]:
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


def _recorded_around() -> AbstractContextManager[None]:
    """Let enclosing transforms of `torch.func` record the computation."""
    return _enabled() if _is_transformed() else nullcontext()


def _run(
    program: derivatives.Program,
    sizes: Sizes,
    given: Sequence[torch.Tensor],
    custom_of: Callable[[Operator], Custom],
) -> list[torch.Tensor | None]:
    """Run a derivative with custom ops, so that it can be differentiated again."""
    like = given[0]

    def directly(op: Operator, values: list[Argument]) -> Sequence[torch.Tensor]:
        return custom_of(op).called(values)

    def call(op: Operator, values: list[Argument]) -> Sequence[torch.Tensor]:
        custom = custom_of(op)
        if sizes.names:
            values = [sizes.value(value) for value in values]
        return custom.listed(custom.packet(*custom.encoded(values)))

    def array(value: Value) -> torch.Tensor:
        data = getattr(value, "data", None)
        if data is None:
            return sizes.zeros(value.spec, like)
        return torch.from_numpy(np.array(data)).to(like.device)

    if torch.is_grad_enabled() or _is_transformed():
        return program.run(given, call, array)
    held = in_host_memory(given)
    if held is None:
        return program.run(given, directly if _is_unwatched(given) else call, array)
    made = program.run(held, directly, lambda value: array(value).numpy())
    return [None if each is None else torch.from_numpy(each) for each in made]


def _is_unwatched(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether operators on these tensors are neither traced nor batched."""
    if forward_ad._current_level >= 0 or _C._len_torch_dispatch_stack():
        return False
    batched = _C._functorch.is_legacy_batchedtensor
    return all(type(t) in _PLAIN and not batched(t) for t in tensors)
