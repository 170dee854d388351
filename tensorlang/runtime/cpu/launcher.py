"""The compiled launcher: runs an operator's host program and starts its launches.

`templates/launcher.ll.j2` is rendered for a program of `tensorlang.codegen.simt.host`
and compiled for this machine's CPU. The launcher takes addresses and scalars, and
starts each kernel through a function with the signature of CUDA's `cuLaunchKernel`.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tensorlang.runtime.cpu import llvm
from tensorlang.runtime.cpu.launcher_text import launcher_text, temporaries
from tensorlang.runtime.signature import Signature

if TYPE_CHECKING:
    from tensorlang.runtime.host_program import Data


def packed(name: str, signature: Signature, host: Data, call: str = "") -> bytes:
    """A host program and its launcher: one line of JSON, then object code.

    Args:
        call: LLVM IR of a function `NAME.call` for Python, if there is one.
    """
    code = llvm.compile_quickly(launcher_text(name, signature, host) + call)
    return json.dumps(host).encode() + b"\n" + code


def unpacked(data: bytes) -> tuple[Data, bytes]:
    """The host program and object code of `packed` bytes."""
    line, _, code = data.partition(b"\n")
    return json.loads(line), code


def has_maps(host: Data) -> bool:
    """Whether kernels take tensor maps."""
    args = (arg for launch in host["launches"] for arg in launch["args"])
    return any(arg[0] == "tensor_map" for arg in args)


class Launcher:
    """A loaded launcher.

    Args:
        name: Name of the function.
        host: The host program.
        code: Its object code.
        called: Whether it has a function for Python.

    Attributes:
        call: The address of that function, or 0.
    """

    def __init__(
        self, name: str, host: Data, code: bytes, *, called: bool = False
    ) -> None:
        symbols = (f"{name}.launch", f"{name}.temporaries", f"{name}.call")
        self._library = llvm.link([code], symbols if called else symbols[:2])
        self.call: Final = self._library[symbols[2]] if called else 0
        pointers = (ctypes.c_void_p,) * 7
        self._start = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers)(
            self._library[symbols[0]]
        )
        self._measure = ctypes.CFUNCTYPE(None, *pointers[:2])(self._library[symbols[1]])
        self.temporaries: Final = temporaries(host)
        self.has_maps: Final = has_maps(host)
        self._sizes: Final = ctypes.c_uint64 * max(len(self.temporaries), 1)

    def sizes(self, block: int) -> Sequence[int]:
        """Bytes of each temporary of a call.

        Args:
            block: Address of the arguments: buffers, then scalars, 8 bytes each.
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
        """Start all launches of a call; returns 0 or an error code.

        Args:
            block: Address of the arguments: buffers, then scalars, 8 bytes each.
            temporaries: Device address of each temporary.
            faults: Device address where checks report.
            kernels: Address of the array of kernel handles.
            start: Address of `cuLaunchKernel`, or of a function with its signature.
            stream: Stream handle, passed to `start`.
            encode: Address of `cuTensorMapEncodeTiled`, if there are tensor maps.
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
