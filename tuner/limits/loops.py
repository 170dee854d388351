"""Loops of textual LLVM IR that reach a limit of the machine, compiled and timed."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tensorlang import hardware
from tensorlang.runtime.cpu import llvm

Memory = np.ndarray[tuple[int], np.dtype[np.uint8]]
HEAD: Final = """
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


def chains(name: str, kind: str, step: Callable[[int], list[str]], count: int) -> str:
    """A loop over independent chains of vectors, stored at the end.

    `step` gives the instructions that make `%y<n>` of `%x<n>`.
    """
    entry = []
    for n in range(count):
        entry += [f"  %p{n} = getelementptr {kind}, ptr %out, i64 {n}"]
        entry += [f"  %s{n} = load {kind}, ptr %p{n}, align 4"]
    body = [
        f"  %x{n} = phi {kind} [ %s{n}, %entry ], [ %y{n}, %loop ]"
        for n in range(count)
    ]
    for n in range(count):
        body += step(n)
    exit_ = [f"  store {kind} %y{n}, ptr %p{n}, align 4" for n in range(count)]
    return HEAD.format(
        name=name, entry="\n".join(entry), body="\n".join(body), exit="\n".join(exit_)
    )


def dependent() -> str:
    """64 dependent additions and exclusive ors: 64 cycles."""
    body = ["  %x0 = phi i64 [ %seed, %entry ], [ %x64, %loop ]"]
    body += [f"  %x{n + 1} = {('add', 'xor')[n % 2]} i64 %x{n}, %i" for n in range(64)]
    return HEAD.format(
        name="clock",
        entry="  %seed = load i64, ptr %out",
        body="\n".join(body),
        exit="  store i64 %x64, ptr %out",
    )


class Loops:
    """Compiled loops, by name."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._library = llvm.link([llvm.compile_module(text)], names)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._calls = {name: prototype(self._library[name]) for name in names}

    def alone(self, name: str, count: int, block: Memory) -> float:
        """Seconds for `count` iterations on the calling thread."""
        call, address = self._calls[name], block.ctypes.data
        start = time.perf_counter()
        call(address, count)
        return time.perf_counter() - start

    def run(self, name: str, count: int, threads: int, size: int) -> float:
        """Seconds for `count` iterations per thread, each with its own memory."""
        memory = [aligned(size) for _ in range(threads)]
        call = self._calls[name]
        together = threading.Barrier(threads)
        places = _processors(threads)
        spans: list[tuple[float, float]] = []

        def work(number: int, block: Memory) -> None:
            if places:  # otherwise the OS may run several threads on one processor
                os.sched_setaffinity(0, {places[number]})
            together.wait()
            start = time.perf_counter()
            call(block.ctypes.data, count)
            spans.append((start, time.perf_counter()))

        workers = [
            threading.Thread(target=work, args=given) for given in enumerate(memory)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return max(end for _, end in spans) - min(start for start, _ in spans)


def _processors(threads: int) -> list[int]:
    """One processor per thread, of as many cores as possible; empty if there are few.

    Also empty where the system has no affinity.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    seen: dict[str, int] = {}
    ranked = []
    for processor in sorted(os.sched_getaffinity(0)):
        core = hardware.siblings(processor)
        ranked.append((seen.setdefault(core, 0), processor))
        seen[core] += 1
    allowed = [processor for _, processor in sorted(ranked)]
    return allowed[:threads] if threads <= len(allowed) else []


def aligned(size: int) -> Memory:
    """Initialised memory that starts on a cache line."""
    block = np.ones(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]
