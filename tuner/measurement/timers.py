"""Timing of kernels, by the host's clock or by GPU events.

On a GPU each run is timed alone, between two events in its stream, with cold caches:
before it, memory larger than the caches is overwritten, as often as the host needs to
issue the run, so that the events enclose no waiting. (Overwriting leaves dirty lines in
the cache, as the run itself does: kernels that write more than the cache holds are
timed as in a sequence of such runs.) Arrays are on the device with normally distributed
values, since power, and thereby the clock, depend on the data. Clocks are read with
each sample while the GPU is busy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tensorlang.runtime.cpu import pool
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import toolchain
from tensorlang.runtime.cuda.arrays import array_at
from tensorlang.tuner.measurement import telemetry
from tensorlang.tuner.measurement.rounds import Timing, interleaved

if TYPE_CHECKING:
    from tensorlang.runtime.arrays.device_arrays import DeviceArray
    from tensorlang.runtime.cuda.device import Memory
    from tensorlang.targets import Target

Call = Callable[[], object]
_SAMPLE: Final = 0.003  # minimum seconds per sample
_HOPELESS: Final = 3.0  # times the best: not worth a second run
_ROUNDS: Final = 7
# writing it takes longer than the host needs for a call
_FLUSHED_BYTES: Final = 512 << 20
_MOST_RUNS: Final = 30
_WARM_UP: Final = 0.05  # seconds for the GPU's clock to ramp up
_MARGIN: Final = 1.5  # factor on the host's time per call
_MOST_WRITES: Final = 16


class Timer(Protocol):
    """Times calls on a target."""

    def arguments(self, given: Sequence[object]) -> list[object]:
        """The kernel arguments for timing, from host arguments."""

    def once(self, call: Call, best: float) -> Timing:
        """A candidate's time; less precise if it is much slower than the best."""

    def against(self, calls: Mapping[str, Call], rounds: int) -> dict[str, Timing]:
        """Times of candidates, interleaved in rounds."""

    def measured(self, timings: Iterable[Timing]) -> str:
        """The device and clocks of measurements, as a readable line."""


def timer_of(target: Target) -> Timer:
    """The timer of a target."""
    return CudaTimer(target) if target.kind == "cuda" else HostTimer()


class HostTimer:
    """Timing by the host's clock, for synchronous calls by whole teams of threads."""

    def __init__(self) -> None:
        pool.always_share()

    def arguments(self, given: Sequence[object]) -> list[object]:
        """The arguments themselves."""
        return list(given)

    def once(self, call: Call, best: float) -> Timing:
        """A candidate's time; from one call if it is much slower than the best."""
        start = time.perf_counter()
        call()
        alone = time.perf_counter() - start
        if best and alone > _HOPELESS * best and alone > _SAMPLE:
            return Timing((alone,), 1)
        found = interleaved(
            {"it": call}, rounds=_ROUNDS, min_sample=_SAMPLE, warm_up=0.01
        )
        return found["it"]

    def against(self, calls: Mapping[str, Call], rounds: int) -> dict[str, Timing]:
        """Times of candidates, interleaved in rounds."""
        return interleaved(calls, rounds=rounds, min_sample=_SAMPLE, warm_up=0.02)

    def measured(self, timings: Iterable[Timing]) -> str:  # noqa: ARG002 - the protocol
        """Empty: a record's target already describes the CPU."""
        return ""


class CudaTimer:
    """Timing by GPU events, with cold caches.

    Args:
        target: The GPU.
    """

    def __init__(self, target: Target) -> None:
        self._driver, self._cuda = cuda_driver, cuda_device
        self._target = target
        self._device = cuda_device.device(target.index)
        self._size = max(_FLUSHED_BYTES, 4 * target.l2_bytes)
        self._flushed: Memory | None = None
        self._once = 0.0  # seconds per overwrite
        self._start = 0.0  # seconds of host time for the last run
        self._read = telemetry.reader(target.index)
        self._held: list[Memory] = []

    def arguments(self, given: Sequence[object]) -> list[object]:
        """The arguments with all arrays copied to the GPU."""
        self._held.clear()
        return self.keep(given)

    def keep(self, given: Sequence[object]) -> list[object]:
        """Copy further arguments to the GPU, keeping earlier ones."""
        return [
            self._there(value) if isinstance(value, np.ndarray) else value
            for value in given
        ]

    def copy(self, size: int) -> Call:
        """A call that copies a number of bytes on the GPU."""
        source, goal = (self._cuda.Memory(self._device, size) for _ in range(2))

        def run() -> None:
            with self._device.current():
                self._driver.call(
                    "cuMemcpyDtoDAsync_v2",
                    goal.address,
                    source.address,
                    size,
                    self._driver.LEGACY,
                )

        return run

    def _there(self, array: np.ndarray) -> DeviceArray:
        row = np.ascontiguousarray(array)
        memory = self._cuda.Memory(self._device, row.nbytes)
        self._held.append(memory)
        stream = self._driver.LEGACY
        with self._device.current():
            self._driver.call(
                "cuMemcpyHtoDAsync_v2",
                memory.address,
                row.ctypes.data,
                row.nbytes,
                stream,
            )
            self._driver.call("cuStreamSynchronize", stream)
        return array_at(
            self._device.index, memory.address, row.shape, row.dtype, owner=memory
        )

    def once(self, call: Call, best: float) -> Timing:
        """A candidate's time; from one run if it is much slower than the best."""
        self._warm([self._overwrite])  # it was idle while the kernel was built
        call()
        (alone,) = self._runs(call, 1)
        if best and alone > _HOPELESS * best:
            return Timing((alone,), 1)
        self._warm([call])
        return self._rounds({"it": call}, {"it": (alone, self._start)}, _ROUNDS)["it"]

    def against(self, calls: Mapping[str, Call], rounds: int) -> dict[str, Timing]:
        """Times of candidates, interleaved in rounds."""
        for call in calls.values():
            call()
        self._warm(calls.values())
        alone = {
            name: (median(self._runs(call, 3)), self._start)
            for name, call in calls.items()
        }
        return self._rounds(calls, alone, rounds)

    def _rounds(
        self,
        calls: Mapping[str, Call],
        alone: Mapping[str, tuple[float, float]],
        rounds: int,
    ) -> dict[str, Timing]:
        """Sample every call once per round, in rotating order.

        Args:
            calls: Calls by name.
            alone: Time of each call, and host time to issue it.
            rounds: Number of rounds.
        """
        counts = {
            name: min(max(int(_SAMPLE / max(seconds, 1e-7)), 1), _MOST_RUNS)
            for name, (seconds, _) in alone.items()
        }
        writes = {name: self._writes(start) for name, (_, start) in alone.items()}
        samples: dict[str, list[float]] = {name: [] for name in calls}
        states: dict[str, list[telemetry.State | None]] = {name: [] for name in calls}
        order = list(calls)
        for number in range(rounds):
            turn = number % len(order)
            for name in order[turn:] + order[:turn]:
                runs = self._runs(calls[name], counts[name], writes[name], states[name])
                samples[name].append(median(runs))
        return {
            name: Timing(tuple(samples[name]), counts[name], tuple(states[name]))
            for name in calls
        }

    def _writes(self, start: float) -> int:
        """The number of overwrites that cover the host's time to issue a run."""
        if not self._once:
            (self._once,) = self._runs(self._overwrite, 1)
        needed = math.ceil(_MARGIN * start / max(self._once, 1e-6))
        return min(max(needed, 1), _MOST_WRITES)

    def measured(self, timings: Iterable[Timing]) -> str:
        """Device, driver, compilers, and the clocks of all samples."""
        states = [state for timing in timings for state in timing.states]
        return (
            f"{self._target.device}, driver for CUDA {self._target.driver}, "
            f"{toolchain.versions()}; {telemetry.described(states)}"
        )

    def _warm(self, calls: Iterable[Call]) -> None:
        """Keep the GPU busy until its clock is up."""
        for call in calls:
            end = time.perf_counter() + _WARM_UP
            while time.perf_counter() < end:
                self._runs(call, 3)

    def _runs(
        self,
        call: Call,
        count: int,
        writes: int = 1,
        states: list[telemetry.State | None] | None = None,
    ) -> list[float]:
        """Seconds of each of several runs with cold caches; states are appended."""
        stream = self._driver.LEGACY
        marks, starts = [], []
        with self._device.current():
            for _ in range(count):
                first = self._cuda.Event(self._device, timing=True)
                last = self._cuda.Event(self._device, timing=True)
                for _ in range(writes):
                    self._overwrite()
                first.record(stream)
                begun = time.perf_counter()
                call()
                starts.append(time.perf_counter() - begun)
                last.record(stream)
                marks.append((first, last))
            self._start = min(starts)
            if states is not None:
                states.append(self._read())
            return [last.seconds_since(first) for first, last in marks]

    def _overwrite(self) -> None:
        """Flush the caches."""
        if self._flushed is None:
            self._flushed = self._cuda.Memory(self._device, self._size)
        self._driver.call(
            "cuMemsetD8Async", self._flushed.address, 0, self._size, self._driver.LEGACY
        )
