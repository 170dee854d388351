"""Machine limits, measured in the same run as what is compared with them.

Each limit is a loop of textual LLVM IR: fused multiply-adds or Threefry's mix of adds,
rotations and xors in registers, or temporal and non-temporal store streams. The clock
is derived from a chain of dependent additions, one per cycle.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tensorlang.runtime import llvm

LANES: Final = 16
CHAINS: Final = 24
_HEAD: Final = """
define void @{name}(ptr %out, i64 %count) {{
entry:
{entry}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{body}
  %next = add nuw i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %exit
exit:
{exit}
  ret void
}}
"""


def _chains(name: str, kind: str, step: Callable[[int], list[str]]) -> str:
    """A loop over independent chains `%x<n>` of vectors, stored at the end."""
    vector = f"<{LANES} x {kind}>"
    entry = []
    for n in range(CHAINS):
        entry += [f"  %p{n} = getelementptr {kind}, ptr %out, i64 {n * LANES}"]
        entry += [f"  %s{n} = load {vector}, ptr %p{n}, align 4"]
    body = [
        f"  %x{n} = phi {vector} [ %s{n}, %entry ], [ %y{n}, %loop ]"
        for n in range(CHAINS)
    ]
    for n in range(CHAINS):
        body += step(n)
    exit_ = [f"  store {vector} %y{n}, ptr %p{n}, align 4" for n in range(CHAINS)]
    return _HEAD.format(
        name=name, entry="\n".join(entry), body="\n".join(body), exit="\n".join(exit_)
    )


def _fma(n: int) -> list[str]:
    v = f"<{LANES} x float>"
    half = f"{v} splat (float 0.5)"
    return [f"  %y{n} = call {v} @llvm.fma({v} %x{n}, {half}, {half})"]


def _mix(n: int) -> list[str]:
    v = f"<{LANES} x i32>"
    key = f"{v} splat (i32 {2654435761 + n})"
    return [
        f"  %a{n} = add {v} %x{n}, {key.removeprefix(v + ' ')}",
        f"  %r{n} = call {v} @llvm.fshl({v} %a{n}, {v} %a{n}, {v} splat (i32 13))",
        f"  %y{n} = xor {v} %r{n}, splat (i32 {n + 77})",
    ]


def _stream(name: str, hint: str) -> str:
    body = f"""
  %p = getelementptr <{LANES} x i32>, ptr %out, i64 %i
  store <{LANES} x i32> splat (i32 7), ptr %p, align 64{hint}"""
    return _HEAD.format(name=name, entry="", body=body, exit="")


def _dependent() -> str:
    """64 dependent additions and exclusive ors: 64 cycles."""
    body = ["  %x0 = phi i64 [ %seed, %entry ], [ %x64, %loop ]"]
    body += [f"  %x{n + 1} = {('add', 'xor')[n % 2]} i64 %x{n}, %i" for n in range(64)]
    return _HEAD.format(
        name="clock",
        entry="  %seed = load i64, ptr %out",
        body="\n".join(body),
        exit="  store i64 %x64, ptr %out",
    )


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Limits for a number of threads: operations, bytes and cycles per second."""

    clock: float
    fma: float
    integer_mix: float
    fill: float
    nontemporal_fill: float


class Loops:
    """The compiled loops; `ceilings` runs them."""

    def __init__(self) -> None:
        vector = f"<{LANES} x i32>"
        declarations = (
            f"declare {vector} @llvm.fshl({vector}, {vector}, {vector})\n"
            f"declare <{LANES} x float> @llvm.fma(<{LANES} x float>, "
            f"<{LANES} x float>, <{LANES} x float>)\n"
        ).replace("@llvm.fshl", f"@llvm.fshl.v{LANES}i32")
        declarations = declarations.replace("@llvm.fma", f"@llvm.fma.v{LANES}f32")
        text = (
            _dependent() + _chains("fma", "float", _fma) + _chains("mix", "i32", _mix)
        )
        text = text.replace("@llvm.fshl(", f"@llvm.fshl.v{LANES}i32(")
        text = text.replace("@llvm.fma(", f"@llvm.fma.v{LANES}f32(")
        text += _stream("fill", "") + _stream("ntfill", ", !nontemporal !0")
        text += declarations + "!0 = !{i32 1}\n"
        names = ("clock", "fma", "mix", "fill", "ntfill")
        self._library = llvm.link([llvm.compile_module(text)], names)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._calls = {name: prototype(self._library[name]) for name in names}

    def run(self, name: str, count: int, threads: int, size: int) -> float:
        """Seconds for `count` iterations per thread, each with its own memory."""
        memory = [_aligned(size) for _ in range(threads)]
        call = self._calls[name]
        together = threading.Barrier(threads + 1)

        places = _processors(threads)

        def work(
            number: int, block: np.ndarray[tuple[int], np.dtype[np.uint8]]
        ) -> None:
            if places:  # otherwise the OS may run several threads on one processor
                os.sched_setaffinity(0, {places[number]})
            together.wait()
            call(block.ctypes.data, count)
            together.wait()

        workers = [
            threading.Thread(target=work, args=given) for given in enumerate(memory)
        ]
        for worker in workers:
            worker.start()
        together.wait()
        start = time.perf_counter()
        together.wait()
        elapsed = time.perf_counter() - start
        for worker in workers:
            worker.join()
        return elapsed


def _processors(threads: int) -> list[int]:
    """One processor per thread; empty without affinity or with too few processors."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[:threads] if threads <= len(allowed) else []


def _aligned(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    block = np.ones(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]


def ceilings(threads: int, *, rounds: int = 5, fill_bytes: int = 64 << 20) -> Ceilings:
    """Measure the limits with `threads` threads: the best of several rounds."""
    loops = Loops()
    steps, small = 2_000_000, CHAINS * LANES * 4
    lines = fill_bytes // 64 // threads

    def rate(name: str, count: int, work: float, size: int = small) -> float:
        times = (loops.run(name, count, threads, size) for _ in range(rounds))
        return work * count * threads / min(times)

    return Ceilings(
        clock=rate("clock", steps, 64) / threads,
        fma=rate("fma", steps, 2 * LANES * CHAINS),
        integer_mix=rate("mix", steps, 3 * LANES * CHAINS),
        fill=rate("fill", lines, 64, lines * 64),
        nontemporal_fill=rate("ntfill", lines, 64, lines * 64),
    )
