"""Machine limits, measured in the same run as what is compared with them.

Each limit is a loop of textual LLVM IR: fused multiply-adds or Threefry's mix of adds,
rotations and xors in registers, or temporal and non-temporal store streams. The clock
is derived from a chain of dependent additions, one per cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from tensorlang import machine, targets
from tensorlang.tuner.limits import loops

_LINE: Final = 16  # words of a cache line


def registers() -> tuple[int, int]:
    """Words of a vector register, and how many of them hold sums beside the rest."""
    known = machine.published(targets.host())
    return known.vector_bytes // 4, known.vector_registers * 3 // 4


def _fma(lanes: int, n: int) -> list[str]:
    v = f"<{lanes} x float>"
    half = f"{v} splat (float 0.5)"
    return [f"  %y{n} = call {v} @llvm.fma({v} %x{n}, {half}, {half})"]


def _mix(lanes: int, n: int) -> list[str]:
    v = f"<{lanes} x i32>"
    key = f"{v} splat (i32 {2654435761 + n})"
    return [
        f"  %a{n} = add {v} %x{n}, {key.removeprefix(v + ' ')}",
        f"  %r{n} = call {v} @llvm.fshl({v} %a{n}, {v} %a{n}, {v} splat (i32 13))",
        f"  %y{n} = xor {v} %r{n}, splat (i32 {n + 77})",
    ]


def _stream(name: str, hint: str) -> str:
    body = f"""
  %p = getelementptr <{_LINE} x i32>, ptr %out, i64 %i
  store <{_LINE} x i32> splat (i32 7), ptr %p, align 64{hint}"""
    return loops.HEAD.format(name=name, entry="", body=body, exit="")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Limits for a number of threads: operations, bytes and cycles per second."""

    clock: float
    fma: float
    integer_mix: float
    fill: float
    nontemporal_fill: float


class Loops(loops.Loops):
    """The compiled loops; `ceilings` runs them."""

    def __init__(self) -> None:
        lanes, chains = registers()
        floats, words = f"<{lanes} x float>", f"<{lanes} x i32>"
        text = (
            loops.dependent()
            + loops.chains("fma", floats, partial(_fma, lanes), chains)
            + loops.chains("mix", words, partial(_mix, lanes), chains)
            + _stream("fill", "")
            + _stream("ntfill", ", !nontemporal !0")
            + f"declare {words} @llvm.fshl({words}, {words}, {words})\n"
            + f"declare {floats} @llvm.fma({floats}, {floats}, {floats})\n"
            + "!0 = !{i32 1}\n"
        )
        text = text.replace("@llvm.fshl(", f"@llvm.fshl.v{lanes}i32(")
        text = text.replace("@llvm.fma(", f"@llvm.fma.v{lanes}f32(")
        names = ("clock", "fma", "mix", "fill", "ntfill")
        super().__init__(text, names)


def ceilings(threads: int, *, rounds: int = 5, fill_bytes: int = 64 << 20) -> Ceilings:
    """Measure the limits with `threads` threads: the best of several rounds."""
    limits = Loops()
    lanes, chains = registers()
    steps, small = 2_000_000, chains * lanes * 4
    lines = fill_bytes // 64 // threads

    def rate(name: str, count: int, work: float, size: int = small) -> float:
        times = (limits.run(name, count, threads, size) for _ in range(rounds))
        return work * count * threads / min(times)

    return Ceilings(
        clock=rate("clock", steps, 64) / threads,
        fma=rate("fma", steps, 2 * lanes * chains),
        integer_mix=rate("mix", steps, 3 * lanes * chains),
        fill=rate("fill", lines, 64, lines * 64),
        nontemporal_fill=rate("ntfill", lines, 64, lines * 64),
    )
