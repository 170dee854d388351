"""CUDA graphs: the launches of a repeated call, replayed as one.

Replaying a graph costs about as much as launching two kernels, so it pays with several
launches. A graph bakes in the addresses and scalars of the call it was captured from,
and serves only repetitions of exactly that call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from tensorlang.errors import DeviceError
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda.device import Device

if TYPE_CHECKING:
    from tensorlang.runtime.host_program import Data

VARIABLE: Final = "TENSORLANG_CUDA_GRAPHS"  # 0 turns them off
FEWEST_LAUNCHES: Final = 4
_MOST_KEPT: Final = 16
_THREAD_LOCAL: Final = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING


def may_pay(host: Data) -> bool:
    """Whether a host program has so many launches that graphs may be worthwhile."""
    loops = any(kind == "for" for kind, *_ in host["program"])
    return loops or len(host["launches"]) >= FEWEST_LAUNCHES


class Graphs:
    """A kernel's graphs, by the arguments of its calls.

    Args:
        device: The kernel's device.
        host: Its host program.

    Attributes:
        pay: Whether graphs are worthwhile for this kernel.
    """

    def __init__(self, device: Device, host: Data) -> None:
        self.pay = may_pay(host) and os.environ.get(VARIABLE) != "0"
        self._device = device
        self._seen: dict[Hashable, int | None] = {}

    def run(self, key: Hashable, start: Callable[[int], None], stream: int) -> bool:
        """Replay a call's graph; it is captured when a call is repeated first.

        Args:
            key: All arguments of the launches.
            start: Starts the launches on a stream.
            stream: Stream on which the graph runs.

        Returns:
            False if there is no graph for it; then nothing was started.
        """
        if not self.pay:
            return False
        if key not in self._seen:
            self._make_room()
            self._seen[key] = None
            return False
        graph = self._seen[key]
        if graph is None:
            try:
                graph = self._seen[key] = self._captured(start)
            except DeviceError as error:
                if error.lost:
                    raise
                self.pay = False  # a driver without graphs: launch one by one
                return False
        cuda_driver.call("cuGraphLaunch", graph, stream)
        return True

    def _make_room(self) -> None:
        while len(self._seen) >= _MOST_KEPT:
            graph = self._seen.pop(next(iter(self._seen)))
            if graph is not None:
                cuda_driver.call("cuGraphExecDestroy", graph)

    def _captured(self, start: Callable[[int], None]) -> int:
        """The launches as an executable graph, captured without running them."""
        stream = _capturing(self._device)
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        cuda_driver.call("cuStreamBeginCapture_v2", stream, _THREAD_LOCAL)
        try:
            start(stream)
        finally:
            cuda_driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        cuda_driver.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0)
        cuda_driver.call("cuGraphDestroy", graph)
        return made.value or 0


_STREAMS: Final[dict[int, int]] = {}


def _capturing(device: Device) -> int:
    """A private stream per device: the default stream cannot be captured."""
    if device.index not in _STREAMS:
        made = ctypes.c_void_p()
        cuda_driver.call("cuStreamCreate", ctypes.byref(made), _NON_BLOCKING)
        _STREAMS[device.index] = made.value or 0
    return _STREAMS[device.index]
