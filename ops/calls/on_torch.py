"""Fast paths for calls with PyTorch tensors.

They serve tensors in host memory, and repeated calls on a GPU, at a cost of some ten
microseconds on the host: no tensor is inspected again, and a fresh GPU result is
allocated by PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang import lazy
from tensorlang.frozen import frozen
from tensorlang.ops.spec.indices import Explained

with lazy.modules(__name__):  # needed at the first tensor of PyTorch
    from tensorlang.runtime import tensor_facts
    from tensorlang.runtime.arrays import device_arrays, host_arrays

if TYPE_CHECKING:
    from tensorlang.ops.calls.tensors import Ready
    from tensorlang.ops.operator import Launch, Operator

Shape = tuple[int, ...]


def _is_recording(torch: Any) -> bool:
    """Whether forward-mode autograd, a dispatch mode or tracing may be active."""
    return bool(
        torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001
        or torch._C._len_torch_dispatch_stack()  # noqa: SLF001
        or torch._C._get_tracing_state()  # noqa: SLF001
    )


def in_host_memory(arrays: Sequence[Any]) -> list[np.ndarray] | None:
    """The memory of host tensors outside autograd; None if one is not such a tensor."""
    torch = sys.modules.get("torch")
    if torch is None or _is_recording(torch):
        return None
    kinds, found = (torch.Tensor, torch.nn.Parameter), []
    try:
        for array in arrays:
            if type(array) is np.ndarray:
                found.append(array)
                continue
            if type(array) not in kinds or not array.is_cpu:
                return None
            held = array.contiguous()
            if held.requires_grad and not torch.is_grad_enabled():
                held = held.detach()
            found.append(held.numpy())
    except (
        TypeError,
        RuntimeError,
    ):  # it requires a gradient, is sparse, bfloat16, ...
        return None
    return found


@frozen(eq=False)
class Result:
    """A result of a repeatable call.

    Attributes:
        shape: Its shape.
        strides: Its strides in elements, of contiguous memory.
        dtype: Its PyTorch type.
        device: Its PyTorch device.
    """

    shape: Shape
    strides: Shape
    dtype: Any
    device: Any

    def maker(self, torch: Any) -> Callable[[], Any]:
        """What makes a fresh tensor, in half the time of `torch.empty`."""
        known = {"dtype": self.dtype, "device": self.device}
        return partial(torch.empty_strided, self.shape, self.strides, **known)

    def fits(self, out: Any) -> bool:
        """Whether a caller's tensor is as a fresh one."""
        return bool(
            out.shape == self.shape
            and out.dtype is self.dtype
            and out.device == self.device
        )


@frozen(eq=False)
class Repeated:
    """The cached launch of a repeatable call.

    Attributes:
        launch: Takes the arrays, then the results and the scalars.
        fresh: Makes a fresh result, or a tuple of results.
        single: Whether there is one, not a tuple.
        check: Refuses scalars outside their domain.
    """

    launch: Any
    fresh: Callable[[], Any]
    single: bool
    check: Callable[[Sequence[Any]], None] | None


def repeated(  # noqa: PLR0917 - as `tensors.call`
    op: Operator,
    arrays: Sequence[object],
    attributes: Mapping[str, object],
    scalars: tuple[object, ...],
    target: object,
    out: object,
) -> Launch | None:
    """The launch of a call like an earlier one; None if there is none."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    given = (*arrays, *_outs(out)) if out is not None else arrays
    facts = tensor_facts.reader(torch)(*given) or _facts(torch, given)
    key: tuple[object, ...] = (target, type(out), *attributes.values(), facts)
    try:
        found: Repeated | None = op.kernels.get(key)
    except TypeError:  # an unhashable fact: the slow path raises the error
        return None
    if found is None:
        return None
    if found.check is not None:
        found.check(scalars)
    if out is None:
        shown = found.fresh()
        outs = (shown,) if found.single else shown
        return found.launch, (*arrays, *outs, *scalars), shown
    host_arrays.increment(torch)(given[len(arrays) :])
    return found.launch, (*given, *scalars), out


def remembered(  # noqa: PLR0917 - as `repeated`
    ready: Ready,
    op: Operator,
    arrays: Sequence[Any],
    attributes: Mapping[str, Any],
    scalars: tuple[object, ...],
    target: Any,
    out: Any,
) -> Launch | None:
    """Cache the launch of a call with PyTorch tensors on an NVIDIA GPU.

    Returns:
        The launch; None if such calls are not repeatable.
    """
    torch = sys.modules.get("torch")
    given = (*arrays, *_outs(out))
    facts = torch and (tensor_facts.reader(torch)(*given) or _facts(torch, given))
    explained = ready.launch if type(ready.launch) is Explained else None
    kernel = op.built(explained.kernel if explained else ready.launch)
    serves = ready.results and not ready.keys and hasattr(kernel, "cached_launch")
    single = ready.single is not None
    if facts is None or not serves or (single and type(out) is tuple):
        return None
    like = next(each for each in given if type(each) is not np.ndarray)
    results = _results(torch, ready, like.device)
    if results is None or (out is not None and not _fit(results, _outs(out))):
        return None
    shapes = [
        tuple(array.shape) if canonical is None else canonical
        for array, canonical in zip(arrays, ready.inputs, strict=True)
    ]
    known = kernel.cached_launch([*shapes, *(inner for _, inner, _ in ready.results)])
    launch = replace(explained, kernel=known.quick) if explained else known.quick
    makers = [result.maker(torch) for result in results]
    fresh = makers[0] if single else partial(_all, makers)
    key = (target, type(out), *attributes.values(), facts)
    op.kernels[key] = Repeated(launch, fresh, single, ready.check)
    op.kernels["launch", known.quick] = kernel  # for `Operator.built`
    return repeated(op, arrays, attributes, scalars, target, out)


def _all(makers: Iterable[Callable[[], Any]]) -> tuple[Any, ...]:
    """A fresh tensor by each of the makers."""
    return tuple([make() for make in makers])


def _results(torch: Any, ready: Ready, device: Any) -> tuple[Result, ...] | None:
    """The results of a call; None if PyTorch lacks the type of one."""
    found = []
    for shape, _, dtype in ready.results:
        kind = getattr(torch, dtype.name, None)
        if kind is None:
            return None
        strides = tuple(
            step // dtype.itemsize for step in device_arrays.row_major(shape, dtype)
        )
        found.append(Result(shape, strides, kind, device))
    return tuple(found)


def _fit(results: Sequence[Result], outs: Sequence[Any]) -> bool:
    """Whether the caller's tensors are as the results."""
    pairs = zip(results, outs, strict=False)
    return len(results) == len(outs) and all(one.fits(out) for one, out in pairs)


def _outs(out: Any) -> tuple[Any, ...]:
    """The tensors that a call is given for its results."""
    return () if out is None else out if type(out) is tuple else (out,)


def _facts(torch: Any, given: Sequence[Any]) -> Hashable | None:
    """Facts of tensors and NumPy arrays; None if there is no tensor, or another one."""
    found: list[object] = []
    tensors = False
    for array in given:
        if type(array) is torch.Tensor:
            if array.requires_grad or array.is_nested:
                return None
            found += (array.shape, array.dtype, array.get_device())
            tensors = True
        elif type(array) is np.ndarray and array.ndim == 1 and array.flags.c_contiguous:
            found += (array.shape, array.dtype, None)  # such as the words of a key
        else:
            return None
    return tuple(found) if tensors else None
