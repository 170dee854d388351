"""CPU arrays of any library, viewed as NumPy arrays over the same memory (zero-copy).

A library is recognised by the top-level package of an object's type, so none is
imported that the caller does not use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.ir.dtypes import bf16

if TYPE_CHECKING:
    import jax
    import torch

Array: TypeAlias = np.ndarray
Foreign: TypeAlias = Any  # an array of any library: accessed by duck typing

_BFLOAT16: Final = np.dtype(bf16.numpy)
_CPU_DEVICES: Final = (1, 3, 11)  # DLPack: host, CUDA pinned or managed memory


def kind_of(value: object) -> str:
    """The array's library: `numpy`, `torch`, `jax`, or the package's name."""
    return _kind_of(type(value).__mro__)


@lru_cache(maxsize=512)
def _kind_of(bases: tuple[type, ...]) -> str:
    """The first known library among the packages of a class and its bases."""
    roots = [base.__module__.partition(".")[0] for base in bases]
    known = (root for root in roots if root in _VIEWS)
    root = next(known, roots[0])
    return "jax" if root == "jaxlib" else root


def written(values: Iterable[object]) -> None:
    """Bump the version counters of PyTorch tensors that a kernel overwrites."""
    tensors = tuple([value for value in values if kind_of(value) == "torch"])
    if tensors:
        increment(sys.modules["torch"])(tensors)


@cache
def increment(torch: ModuleType) -> Callable[[Sequence[torch.Tensor]], None]:
    """What bumps the version counters of tensors, its fast private function if any."""
    public = torch.autograd.graph.increment_version
    made: Callable[..., None] = getattr(torch._C, "_increment_version", public)  # noqa: SLF001 - fast
    return made


def view(value: object, name: str) -> Array:
    """The array's memory as a NumPy array; `name` is used in error messages.

    Raises:
        ArgumentError: not an array, or not in host memory.
    """
    if type(value) is np.ndarray:
        return value
    kind = kind_of(value)
    read = _VIEWS.get(kind)
    if read is None:
        read = _from_dlpack if hasattr(value, "__dlpack__") else _from_buffer
    try:
        return read(value, name)
    except TensorlangError:
        raise
    except Exception as error:
        said = str(error) or type(error).__name__
        raise ArgumentError(
            f"{name}: this {_type_name(value)} cannot be read in place ({said})"
        ) from error


def as_kind(array: Foreign, kind: str) -> Foreign:
    """Hand a freshly computed array over to another library without a copy.

    (JAX copies if the memory is not aligned as it requires.)
    """
    if type(array) is not np.ndarray:
        return array.place.hand_over(array)  # on a device
    return _WRAPS.get(kind, _itself)(array)


def as_stored(array: Foreign, transposed: bool) -> tuple[Foreign, bool]:
    """The array as it lies in memory, and whether its last dimensions are exchanged.

    That is so for a NumPy array or PyTorch tensor whose transpose is contiguous. All
    else is returned as it is.

    Args:
        array: Of any library.
        transposed: Whether the caller has exchanged them already.
    """
    if type(array) is np.ndarray:
        view = array.swapaxes(-1, -2) if array.ndim > 1 else array
        lies = view.flags.c_contiguous
    elif kind_of(array) == "torch" and array.ndim > 1 and not array.is_contiguous():
        view = array.mT
        lies = view.is_contiguous()
    else:
        return array, transposed
    return (view, not transposed) if lies else (array, transposed)


def immutable(value: object) -> str:
    """Why such an array can never be written, as a clause; empty if it can."""
    if kind_of(value) in ("jax", "jaxlib"):
        return "is a JAX array, which cannot be written in place"
    if isinstance(value, np.generic):
        return "is a NumPy scalar, which cannot be written in place"
    return ""


def _type_name(value: object) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def _from_device(value: object, name: str) -> Array:
    if not hasattr(value, "place"):
        what = f"a {_type_name(value)}, which stands for numbers and has none"
        raise ArgumentError(f"{name} is {getattr(value, 'not_an_array', what)}")
    where = value.place.name
    raise ArgumentError(
        f"{name} is on {where}, which this target cannot reach; compute with "
        f"target={where!r}, or pass a copy in host memory"
    )


def _itself(array: Array) -> Foreign:
    return array


def _from_numpy(value: object, name: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name} is a masked array, and the mask would be lost; pass its .data"
        )
    return np.asarray(value)


def _from_torch(tensor: torch.Tensor, name: str) -> Array:
    torch = sys.modules["torch"]
    if tensor.device.type == "meta":
        raise ArgumentError(
            f"{name} is on the meta device; pass a tensor with elements"
        )
    if tensor.device.type != "cpu":
        raise ArgumentError(f"{name} is on {tensor.device}; pass its .cpu()")
    tensor = untracked(tensor, name)
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bf16.numpy)  # type: ignore[no-any-return]
    return tensor.numpy()  # type: ignore[no-any-return]


def is_traced(torch: ModuleType) -> bool:
    """Whether PyTorch is tracing: `jit.trace` or `make_fx`."""
    state = torch._C  # noqa: SLF001 - none of this has a public name
    if state._get_tracing_state() is not None:  # noqa: SLF001
        return True
    proxies = state._TorchDispatchModeKey.PROXY  # noqa: SLF001
    modes = state._len_torch_dispatch_stack()  # noqa: SLF001
    return bool(modes and state._get_dispatch_mode(proxies))  # noqa: SLF001


def untracked(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """A PyTorch tensor detached from autograd.

    Raises:
        ArgumentError: a derivative or trace is recorded, which would miss this call.
    """
    torch = sys.modules["torch"]
    if is_traced(torch):
        raise ArgumentError(
            f"{name} is being traced by PyTorch, for which the result would be a "
            "constant; call the operator of tensorlang.interop.torch"
        )
    forward = torch.autograd.forward_ad
    dual = forward._current_level >= 0 and torch._C._is_fwd_grad_enabled()  # noqa: SLF001
    if (tensor.requires_grad and torch.is_grad_enabled()) or (
        dual and forward.unpack_dual(tensor).tangent is not None
    ):
        raise ArgumentError(
            f"{name} requires a gradient, which would be lost; pass its .detach(), or "
            "call the operator of tensorlang.interop.torch"
        )
    return tensor.detach()


def _to_torch(array: Array) -> torch.Tensor:
    torch = sys.modules["torch"]
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _from_jax(value: object, name: str) -> Array:
    if not hasattr(value, "devices") or kind_of(value) != "jax":
        return _from_buffer(value, name)
    if "Tracer" in type(value).__name__:
        raise ArgumentError(
            f"{name} is being traced by JAX: call the operator of "
            "tensorlang.interop.jax, or this one outside of JAX's transforms"
        )
    platforms = {device.platform for device in value.devices()}
    if platforms != {"cpu"}:
        where = ", ".join(sorted(platforms))
        raise ArgumentError(f"{name} is on {where}; move it with jax.device_put")
    return np.asarray(value)


def _to_jax(array: Array) -> jax.Array:
    jax = sys.modules["jax"]
    if array.dtype in (_BFLOAT16, np.bool_):
        return jax.numpy.asarray(array)
    return jax.dlpack.from_dlpack(array)


def _from_dlpack(value: Foreign, name: str) -> Array:
    device = value.__dlpack_device__()[0]
    if int(device) not in _CPU_DEVICES:
        raise ArgumentError(f"{name} is on a device that this target cannot reach")
    return np.from_dlpack(value)


def _from_buffer(value: Foreign, name: str) -> Array:
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        if hasattr(value, "__cuda_array_interface__") or hasattr(value, "base_data"):
            raise ArgumentError(
                f"{name} is a {_type_name(value)} on a device; this target "
                "computes on the host; pass a copy in host memory"
            ) from None
        raise ArgumentError(
            f"{name} is a {_type_name(value)}, not an array; pass a NumPy array, or "
            "one that supports DLPack"
        ) from None


_VIEWS: Final[dict[str, Callable[[object, str], Array]]] = {
    "numpy": _from_numpy,
    "torch": _from_torch,
    "jax": _from_jax,
    "tensorlang": _from_device,
}
_WRAPS: Final[dict[str, Callable[[Array], Foreign]]] = {
    "torch": _to_torch,
    "jax": _to_jax,
}
