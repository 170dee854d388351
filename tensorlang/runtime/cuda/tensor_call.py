"""Compiled calls with PyTorch tensors: checks and launches without a step in Python.

`templates/tensor_call.ll.j2` is rendered for a signature and compiled with the launcher
of a kernel. Tensors are read by DLPack's C exchange API, in some ten nanoseconds each.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang import templates
from tensorlang.ir.dtypes import DType
from tensorlang.once import cache
from tensorlang.runtime import calling
from tensorlang.runtime.arrays import dlpack
from tensorlang.runtime.cpu import launcher_text, wrapper
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import graphs
from tensorlang.runtime.cuda.module import ALIGN, workspace
from tensorlang.runtime.signature import Signature

if TYPE_CHECKING:
    from tensorlang.runtime.cuda.kernel import CudaKernel
    from tensorlang.runtime.host_program import Data

# what calls of a launch have in common, 8 bytes each, before arrays of such
_FIELDS: Final = {
    "type": "ptr",  # of the tensors
    "describe": "ptr",  # gives the tensor of an object
    "stream_of": "ptr",  # gives the current stream of a device
    "device": "i64",  # DLPack's type and id
    "context": "ptr",
    "get_current": "ptr",  # the driver's functions for contexts
    "push_current": "ptr",
    "pop_current": "ptr",
    "kernels": "ptr",  # handles of all launches; 0 before the code is loaded
    "start": "ptr",  # `cuLaunchKernel`
    "encode": "ptr",  # `cuTensorMapEncodeTiled`
    "faults": "i64",  # device address where checks report
    "reports": "ptr",  # what was reported: `Faults.reports`
    "notes": "ptr",  # the last kernels launched: `cuda_driver.STARTED`
    "number": "i64",  # the kernel's number there
    "capturing": "ptr",  # `cuStreamIsCapturing`
    "workspace": "ptr",  # the last stream's: `Workspace.place`; 0 before there is one
    "acquire": "ptr",  # methods of the device's lock, which Python objects are
    "release": "ptr",
}


def serves(signature: Signature, host: Data) -> bool:
    """Whether calls of a kernel may be compiled.

    Many launches are replayed as a graph, which is left to Python.
    """
    readable = wrapper.takes_scalars(signature) and bool(signature.buffers)
    return readable and not graphs.may_pay(host)


def overlaps(signature: Signature) -> list[tuple[int, int]]:
    """Pairs of a written buffer and another one, each once."""
    written = [buffer.written for buffer in signature.buffers]
    count = range(len(written))
    return [
        (i, j)
        for i in count
        for j in count
        if i != j and written[i] and not (written[j] and j < i)
    ]


def text(signature: Signature, host: Data) -> str:
    """LLVM IR of the call, to be compiled with the launcher's."""
    plan = [*_FIELDS.items()]
    plan += [(name, f"[{n} x i64]") for name, n in _lengths(signature).items()]
    return templates.render(
        "tensor_call.ll.j2",
        name=signature.name,
        slots=signature.slots,
        header=wrapper.HEADER,
        arguments=len(signature.buffers) + len(signature.free),
        plan=plan,
        tensors=[
            {
                "label": str(spec),
                "dtype": dlpack.type_number(spec.numpy),
                "itemsize": DType(spec.dtype).bytes,
                "alignment": alignment,
            }
            for spec, alignment in zip(
                signature.buffers, host["alignments"], strict=True
            )
        ],
        bound=_bound(signature),
        free=wrapper.free(signature),
        overlaps=overlaps(signature),
        checks=reports(host),
        most_noted=cuda_driver.MOST_NOTED,
        temporaries=len(launcher_text.temporaries(host)),
        align=ALIGN,
        legacy=max(cuda_driver.NEVER_CAPTURED),
    )


def reports(host: Data) -> bool:
    """Whether a kernel's checks may report faults."""
    return any(["faults"] in launch["args"] for launch in host["launches"])


def _bound(signature: Signature) -> list[int]:
    """The slots of scalars that shapes determine."""
    first = len(signature.buffers)
    return [n for n, scalar in enumerate(signature.scalars, first) if scalar.bound]


def _lengths(signature: Signature) -> Mapping[str, int]:
    """The lengths of a plan's arrays."""
    return {
        "counts": len(signature.buffers),  # elements of each tensor
        "sizes": len(_bound(signature)),  # scalars that shapes determine
        "alike": len(overlaps(signature)),  # which pairs may be one tensor
    }


@cache
def _plan_of(lengths: tuple[tuple[str, int], ...]) -> type[ctypes.Structure]:
    fields: list[tuple[str, Any]] = [(name, ctypes.c_uint64) for name in _FIELDS]
    fields += [(name, ctypes.c_uint64 * count) for name, count in lengths]
    return type("Plan", (ctypes.Structure,), {"_fields_": fields})


class TensorCall:
    """The compiled call of a kernel with tensors of certain element counts.

    Args:
        kernel: The kernel.
        counts: The element count of each tensor.
        block: The argument block, with the sizes that shapes determine.
        alike: Which pairs of `overlaps` may be the same tensor.
        slow: The slow path.

    Attributes:
        function: The builtin, called as `slow` is.
    """

    def __init__(
        self,
        kernel: CudaKernel,
        counts: Sequence[int],
        block: calling.Slots,
        alike: Sequence[bool],
        slow: Callable[..., object],
    ) -> None:
        signature = kernel.signature
        self._kernel, self._launcher = kernel, kernel.launcher
        self._plan: Any = _plan_of(tuple(_lengths(signature).items()))()
        self._plan.counts[:] = counts
        self._plan.sizes[:] = [block[slot] for slot in _bound(signature)]
        self._plan.alike[:] = alike
        self.function: Callable[..., Any] = wrapper.builtin(
            signature.name,
            str(signature),
            self._launcher.call,
            (slow, kernel.refused, ctypes.addressof(self._plan), self),
        )

    def loaded(self, stream: int) -> None:
        """Let it launch if PyTorch can be read: the kernel has just run on a stream."""
        kernel, plan = self._kernel, self._plan
        device = kernel.module.device
        if kernel.has_temporaries:
            plan.workspace = workspace(device, stream).place
        if plan.kernels:
            return
        read = dlpack.exchange(getattr(sys.modules.get("torch"), "Tensor", None))
        if read is None or cuda_driver.blocking():
            return
        plan.type, plan.describe, plan.stream_of = read
        plan.device = dlpack.CUDA | kernel.target.index << 32
        plan.context = device.context
        plan.get_current = cuda_driver.address_of("cuCtxGetCurrent")
        plan.push_current = cuda_driver.address_of("cuCtxPushCurrent_v2")
        plan.pop_current = cuda_driver.address_of("cuCtxPopCurrent_v2")
        plan.start, plan.encode = kernel.entry, kernel.encode
        plan.faults, plan.reports = kernel.word, kernel.reports
        plan.notes = cuda_driver.STARTED.address
        plan.number = cuda_driver.STARTED.number(kernel.name)
        plan.capturing = cuda_driver.address_of("cuStreamIsCapturing")
        plan.acquire, plan.release = map(id, device.methods_of_lock)
        plan.kernels = kernel.module.table
