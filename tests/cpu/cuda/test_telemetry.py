# ruff: noqa: ARG001, ARG005
"""Clocks beside samples: by NVML, by nvidia-smi, or not at all; never set."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tensorlang import targets
from tensorlang.tuner.measurement import telemetry, timers
from tensorlang.tuner.measurement.telemetry import State, described, reader

SAID = "1755, 2619, 612.50, 61, 0x0000000000000004\n"
CAPPED = State(1755, 2619, 612.5, 61, ("power cap",))


@pytest.fixture
def smi(driver, monkeypatch):
    """An nvidia-smi that says so, and a list of what it is asked."""
    asked = []

    def run(command, **_):
        asked.append(command)
        return SimpleNamespace(stdout=SAID)

    monkeypatch.setattr(telemetry, "find_spec", lambda _: None)
    monkeypatch.setattr(telemetry.subprocess, "run", run)
    return asked


def test_nvidia_smi_is_asked_for_the_gpu_that_cuda_means(smi):
    assert reader(0)() == CAPPED
    (command,) = {tuple(command) for command in smi}
    assert command[:2] == ("nvidia-smi", "--id=0000:1b:00.0")
    assert all("=" in part or part == "nvidia-smi" for part in command)


def test_what_is_not_supported_is_nothing(smi, monkeypatch):
    said = "[N/A], 2619, [N/A], 40, [Not Supported]"
    assert telemetry._parsed(said) == State(0, 2619, 0.0, 40)


def test_nvml(driver, monkeypatch):
    nvml = ModuleType("pynvml")
    nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM, nvml.NVML_TEMPERATURE_GPU = 1, 2, 0
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByPciBusId = lambda bus: bus.decode()
    nvml.nvmlDeviceGetClockInfo = lambda handle, kind: {1: 1755, 2: 2619}[kind]
    nvml.nvmlDeviceGetPowerUsage = lambda handle: 612_500
    nvml.nvmlDeviceGetTemperature = lambda handle, kind: 61
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x4
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(telemetry, "find_spec", lambda _: True)
    assert reader(0)() == CAPPED


def test_without_either_nothing_is_said(driver, monkeypatch):
    monkeypatch.setattr(telemetry, "find_spec", lambda _: None)

    def run(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(telemetry.subprocess, "run", run)
    assert reader(0)() is None
    assert described([None, None]) == "clocks unknown"


def test_they_are_described():
    usual = State(1980, 2619, 400.0, 50)
    assert described([usual]) == "SM 1980 MHz, memory 2619 MHz, 400 W, 50 C"
    assert described([usual, CAPPED, None]) == (
        "SM 1868 MHz, memory 2619 MHz, 506 W, 61 C, slowed by power cap in 1 of 2"
    )


def test_each_sample_has_the_state_beside_it(smi, driver, monkeypatch):
    monkeypatch.setattr(timers, "_WARM_UP", 0.0)
    made = timers.timer_of(targets.get("cuda"))
    made._size = 4096
    found = made.against({"a": lambda: None, "b": lambda: None}, 5)
    assert {len(one.states) for one in found.values()} == {5}
    assert set(found["b"].states) == {CAPPED}


def test_memory_is_overwritten_until_a_slow_host_has_started(driver, monkeypatch):
    monkeypatch.setattr(timers, "_WARM_UP", 0.0)
    made = timers.timer_of(targets.get("cuda"))
    made._size = 4096
    made._once = 1e-4
    assert [made._writes(start) for start in (1e-6, 1e-4, 3e-4, 1.0)] == [1, 2, 5, 16]
    before = driver.counted("cuMemsetD8Async")
    made._runs(lambda: None, 4, 3)
    assert driver.counted("cuMemsetD8Async") == before + 12
