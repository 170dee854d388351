"""Fixtures that compile IR text through llvmlite and run it on NumPy arrays."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.ir.nodes import Function
from tensorlang.ir.text.parser import parse


@dataclass
class Compiled:
    """A kernel in memory, run one thread after the other unless it has barriers."""

    function: Function
    lowered: Function
    source: str
    assembly: str
    engine: Any

    def _pointer(self, symbol: str) -> int:
        return int(self.engine.get_function_address(symbol))

    def slots(self, arrays: tuple[Any, ...], scalars: dict[str, Any]) -> Any:
        words = [array.ctypes.data for array in arrays]
        for var in self.function.scalars:
            bits = np.zeros(8, np.uint8)
            raw = np.array([scalars[var.name]], var.dtype.numpy).view(np.uint8)
            bits[: raw.size] = raw
            words.append(int(bits.view(np.uint64)[0]))
        return words

    def query(self, name: str, *arrays: Any, **scalars: Any) -> int:
        words = self.slots(arrays, scalars)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        function = kind(self._pointer(f"{self.function.name}.{name}"))
        return int(function((ctypes.c_uint64 * (len(words) + 1))(*words)))

    def __call__(self, *arrays: Any, team: int = 1, **scalars: Any) -> int:
        words = self.slots(arrays, scalars)
        size = self.query("workspace", *arrays, **scalars)
        if size:  # pieces of it may be for each useful thread
            team = min(team, self.query("team", *arrays, **scalars))
        memory = np.full(size + 4160, 171, np.uint8)
        words.append(memory.ctypes.data + -memory.ctypes.data % 64)
        args = (ctypes.c_uint64 * len(words))(*words)
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
        )
        function = kind(self._pointer(self.function.name))
        if not MEETINGS & {*re.findall(r"@(\w+)", self.source)}:
            faults = [function(args, tid, team, None) for tid in range(team)]
        else:
            faults = together(team, lambda tid: function(args, tid, team, None))
        assert (memory[-4096:] == 171).all(), "written behind the workspace"
        return next((fault for fault in faults if fault), 0)


def together(team: int, run: Callable[[int], int]) -> list[int]:
    """Threads that meet at barriers (a Python barrier, called from the kernel)."""
    MEETING.append(threading.Barrier(team))
    with ThreadPoolExecutor(team) as pool:
        faults = list(pool.map(run, range(team)))
    MEETING.pop()
    return faults


@pytest.fixture(scope="session")
def target() -> targets.Target:
    return targets.host().with_threads(2)


_I64 = ctypes.c_int64
MEETINGS = {"tensorlang_barrier", "tensorlang_wait"}
MEETING: list[threading.Barrier] = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, _I64)
def _barrier(_member: Any, _team: int) -> None:
    MEETING[-1].wait(timeout=20)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _wait(_member: Any) -> None:
    MEETING[-1].wait(timeout=20)


@ctypes.CFUNCTYPE(_I64, ctypes.c_void_p, _I64, _I64)
def _shares(_member: Any, team: int, _useful: int) -> int:
    return 2 * team + 1 if team > 1 else 1


@ctypes.CFUNCTYPE(_I64, ctypes.c_void_p, _I64, _I64, _I64, _I64)
def _claim(_member: Any, team: int, tid: int, shares: int, previous: int) -> int:
    """Every thread runs every `team`-th share."""
    share = tid if previous < 0 else previous + team
    return share if share < shares else -1


POOL = {
    "tensorlang_barrier": _barrier,
    "tensorlang_wait": _wait,
    "tensorlang_shares": _shares,
    "tensorlang_claim": _claim,
}


@pytest.fixture
def build(target: targets.Target) -> Callable[..., Compiled]:
    """Compile IR text (or a function) for this machine, or for less than it has."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, function in POOL.items():
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)

    def make(program: str | Function, without: tuple[str, ...] = ()) -> Compiled:
        function = parse(program) if isinstance(program, str) else program
        left = tuple(name for name in target.features if name not in without)
        chosen = dataclasses.replace(target, features=left)
        lowered = lower(function, chosen)
        source = render(lowered, chosen)
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=3,
        )
        module = llvm.parse_assembly(source)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        assembly = machine.emit_assembly(module)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        return Compiled(function, lowered, source, assembly, engine)

    return make
