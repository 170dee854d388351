"""The compiled launcher: all launches of an operator, and what stands around them.

`templates/launcher.ll.j2` is printed for the data that `tensorlang.codegen.simt.host`
makes (see there), and compiled to a function for this machine's CPU. It is given
addresses and numbers, and starts each kernel through a function that is called as
CUDA's `cuLaunchKernel`.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tensorlang.runtime import llvm
from tensorlang.runtime.launcher_text import launcher_text, temporaries
from tensorlang.runtime.signature import Signature

if TYPE_CHECKING:
    from tensorlang.runtime.host_program import Data


def packed(name: str, signature: Signature, host: Data) -> bytes:
    """What the host runs, with its launcher: one line of JSON, then object code."""
    code = llvm.compile_quickly(launcher_text(name, signature, host))
    return json.dumps(host).encode() + b"\n" + code


def unpacked(data: bytes) -> tuple[Data, bytes]:
    """The host program and the object code that `packed` put together."""
    line, _, code = data.partition(b"\n")
    return json.loads(line), code


def has_maps(host: Data) -> bool:
    """Whether kernels are given tensor maps."""
    args = (arg for launch in host["launches"] for arg in launch["args"])
    return any(arg[0] == "tensor_map" for arg in args)


class Launcher:
    """A launcher that is loaded.

    Args:
        name: Of the function.
        host: What it was compiled from.
        code: Its object code.
    """

    def __init__(self, name: str, host: Data, code: bytes) -> None:
        symbols = (f"{name}.launch", f"{name}.temporaries")
        self._library = llvm.link([code], symbols)
        pointers = (ctypes.c_void_p,) * 7
        self._start = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers)(
            self._library[symbols[0]]
        )
        self._measure = ctypes.CFUNCTYPE(None, *pointers[:2])(self._library[symbols[1]])
        self.temporaries: Final = temporaries(host)
        self.has_maps: Final = has_maps(host)
        self._sizes: Final = ctypes.c_uint64 * max(len(self.temporaries), 1)

    def sizes(self, block: int) -> Sequence[int]:
        """The bytes of each temporary of a call.

        Args:
            block: The address of its arguments: buffers, then scalars, 8 bytes each.
        """
        sizes = self._sizes()
        self._measure(block, ctypes.addressof(sizes))
        return sizes[: len(self.temporaries)]

    def __call__(  # noqa: PLR0917 - addresses in the launcher's own order
        self,
        block: int,
        temporaries: Sequence[int],
        faults: int,
        kernels: int,
        start: int,
        stream: int,
        encode: int = 0,
    ) -> int:
        """Start all launches of a call; 0, or what went wrong with one of them.

        Args:
            block: The address of its arguments: buffers, then scalars, 8 bytes each.
            temporaries: The address of each temporary on the device.
            faults: Where checks report, on the device.
            kernels: The address of the kernels' handles.
            start: The address of `cuLaunchKernel`, or of what is called as it is.
            stream: The handle that it is given.
            encode: The address of `cuTensorMapEncodeTiled`, where there are maps.
        """
        held = self._sizes(*temporaries)
        report = ctypes.c_uint64(faults)
        code: int = self._start(
            block,
            ctypes.addressof(held),
            ctypes.addressof(report),
            kernels,
            start,
            encode,
            stream,
        )
        return code
