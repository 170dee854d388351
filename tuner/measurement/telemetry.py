"""GPU clocks, power and temperature during measurements; read-only.

Read through NVML (`nvidia-ml-py`), or `nvidia-smi` if that is not installed. Samples
taken while the GPU throttled its clock, for power or temperature, are marked, as they
reflect its cooling rather than the kernel.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from statistics import median
from typing import Final

from tensorlang import lazy
from tensorlang.errors import DeviceError
from tensorlang.frozen import frozen
from tensorlang.runtime.cuda import driver as cuda_driver

with lazy.modules(__name__):  # optional
    import pynvml as nvml

# NVML's clock throttle reasons; the last ones slow a busy GPU
_REASONS: Final = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, by hardware",
    0x80: "power brake",
}
_COLUMNS: Final = (
    "clocks.sm",
    "clocks.mem",
    "power.draw",
    "temperature.gpu",
    "clocks_throttle_reasons.active",
)
_SMI_SECONDS: Final = 20
_BUS_ID: Final = 32  # characters


@frozen
class State:
    """A GPU at one moment."""

    sm_mhz: int  # clock of its multiprocessors
    memory_mhz: int  # clock of its memory
    watts: float  # power draw
    celsius: int  # temperature
    slowed: tuple[str, ...] = ()  # throttle reasons; empty if not throttled


Reader = Callable[[], State | None]


@cache
def reader(index: int) -> Reader:
    """A reader of the state of a CUDA device; returns None if unavailable.

    CUDA numbers the visible GPUs, NVML all of them; they are matched by PCI bus id.
    """
    try:
        bus = _bus_id(index)
    except (DeviceError, AttributeError):
        return _silent
    for made in (_by_nvml, _by_smi):
        read = made(bus)
        if read is not None and read() is not None:
            return read
    return _silent


def described(states: Sequence[State | None]) -> str:
    """States in readable form: medians and throttle reasons."""
    known = [state for state in states if state is not None]
    if not known:
        return "clocks unknown"
    said = (
        f"SM {median(s.sm_mhz for s in known):.0f} MHz, "
        f"memory {median(s.memory_mhz for s in known):.0f} MHz, "
        f"{median(s.watts for s in known):.0f} W, {max(s.celsius for s in known)} C"
    )
    slow = sorted({reason for state in known for reason in state.slowed})
    count = sum(bool(state.slowed) for state in known)
    if slow:
        return f"{said}, slowed by {' and '.join(slow)} in {count} of {len(known)}"
    return said


def _silent() -> State | None:
    return None


def _bus_id(index: int) -> str:
    """The PCI bus id of a CUDA device, such as `0000:1b:00.0`."""
    text = ctypes.create_string_buffer(_BUS_ID)
    handle = ctypes.c_int()
    cuda_driver.call("cuDeviceGet", ctypes.byref(handle), index)
    cuda_driver.call("cuDeviceGetPCIBusId", text, len(text), handle.value)
    return text.value.decode()


def _by_nvml(bus: str) -> Reader | None:
    if find_spec("pynvml") is None:
        return None
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
    except Exception:  # noqa: BLE001 - NVML's own errors, or no library
        return None
    why = getattr(
        nvml,
        "nvmlDeviceGetCurrentClocksEventReasons",
        getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None),
    )

    def read() -> State | None:
        try:
            return State(
                nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
                nvml.nvmlDeviceGetPowerUsage(handle) * 1e-3,
                nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                _reasons(why(handle) if why else 0),
            )
        except Exception:  # noqa: BLE001 - a MIG slice, say, reports less
            return None

    return read


def _by_smi(bus: str) -> Reader | None:
    command = ["nvidia-smi", f"--id={bus}", f"--query-gpu={','.join(_COLUMNS)}"]

    def read() -> State | None:
        try:
            said = subprocess.run(  # noqa: S603 - our own arguments
                [*command, "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
                check=True,
                timeout=_SMI_SECONDS,
            ).stdout
            return _parsed(said)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None

    return read


def _parsed(line: str) -> State:
    """Parse a line of `nvidia-smi`; unsupported values are 0."""
    sm, memory, watts, celsius, why = (part.strip() for part in line.split(","))
    numbers = [float(n) if n[:1].isdigit() else 0.0 for n in (sm, memory, celsius)]
    drawn = float(watts) if watts[:1].isdigit() else 0.0
    bits = int(why, 16) if why.startswith("0x") else 0
    return State(
        int(numbers[0]), int(numbers[1]), drawn, int(numbers[2]), _reasons(bits)
    )


def _reasons(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _REASONS.items() if int(bits) & bit)
