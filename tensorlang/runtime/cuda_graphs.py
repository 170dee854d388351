"""CUDA graphs: the launches of a call that is made again, started as one.

A graph pays where there are many launches: starting it costs about as much as starting
two kernels. It holds the addresses and numbers of the call that it was captured from,
so it serves just that call, made again: same arrays, same scalars.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from tensorlang.errors import DeviceError
from tensorlang.runtime import cuda_driver
from tensorlang.runtime.cuda_device import Device

if TYPE_CHECKING:
    from tensorlang.runtime.host_program import Data

VARIABLE: Final = "TENSORLANG_CUDA_GRAPHS"  # 0 turns them off
FEWEST_LAUNCHES: Final = 4
_MOST_KEPT: Final = 16
_THREAD_LOCAL: Final = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING


class Graphs:
    """The graphs of a kernel, by the arguments of its calls.

    Args:
        device: Where it runs.
        host: What the host runs for it.

    Attributes:
        pay: Whether a graph is worth its making.
    """

    def __init__(self, device: Device, host: Data) -> None:
        loops = any(kind == "for" for kind, *_ in host["program"])
        many = loops or len(host["launches"]) >= FEWEST_LAUNCHES
        self.pay = many and os.environ.get(VARIABLE) != "0"
        self._device = device
        self._seen: dict[Hashable, int | None] = {}

    def run(self, key: Hashable, start: Callable[[int], None], stream: int) -> bool:
        """Start a call's graph, captured when it is made for the second time.

        Args:
            key: All that the launches are given.
            start: Starts them on a stream.
            stream: Where the graph runs.

        Returns:
            False where there is no graph for it, and nothing was started.
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
                self.pay = False  # a driver without them: launches go one by one
                return False
        cuda_driver.call("cuGraphLaunch", graph, stream)
        return True

    def _make_room(self) -> None:
        while len(self._seen) >= _MOST_KEPT:
            graph = self._seen.pop(next(iter(self._seen)))
            if graph is not None:
                cuda_driver.call("cuGraphExecDestroy", graph)

    def _captured(self, start: Callable[[int], None]) -> int:
        """The launches as an executable graph: recorded on a stream, not run."""
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
    """A stream of ours: the default one cannot be captured."""
    if device.index not in _STREAMS:
        made = ctypes.c_void_p()
        cuda_driver.call("cuStreamCreate", ctypes.byref(made), _NON_BLOCKING)
        _STREAMS[device.index] = made.value or 0
    return _STREAMS[device.index]
